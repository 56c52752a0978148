"""What an operator sees of a running process: its log, its metrics.

structlog imports rich where it is installed, for tracebacks that this log never shows, and asyncio,
for loggers that are awaited. Each delays every start by more than the rest of structlog, so it sees
no rich, and asyncio only when it uses it.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any, Final, cast


class _Asyncio(ModuleType):
    """Imports asyncio when something of it is asked for."""

    def __getattr__(self, name: str) -> object:
        """Return what asyncio has under this name."""
        return getattr(import_module("asyncio"), name)


_STAND_INS: Final = {
    "asyncio": _Asyncio("asyncio"),
    "rich": cast("Any", None),  # Any: what Python takes for "not to be found".
}
_hidden = {}
if "structlog" not in sys.modules:
    _hidden = {name: module for name, module in _STAND_INS.items() if name not in sys.modules}
sys.modules.update(_hidden)
import structlog  # noqa: E402 (imported here so that it finds the stand-ins)

for _name in _hidden:
    del sys.modules[_name]

__all__ = ["structlog"]
