"""The log and the metrics of a process, for its operator.

structlog imports rich where it is installed, for tracebacks that this log never shows, colorama,
which only Windows needs, and asyncio, for loggers that are awaited. Together they delay every start
by more than the rest of structlog, so it sees neither of the first two, and asyncio only at its
first use.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any, Final, cast


class _Asyncio(ModuleType):
    """Imports asyncio at the first access to an attribute."""

    def __getattr__(self, name: str) -> object:
        """Return the attribute of asyncio with this name."""
        return getattr(import_module("asyncio"), name)


_MISSING = cast("Any", None)  # Any: Python raises for a module that is None.
_STAND_INS: Final = {
    "asyncio": _Asyncio("asyncio"),
    "colorama": _MISSING,
    "rich": _MISSING,
}
_hidden = {}
if "structlog" not in sys.modules:
    _hidden = {name: module for name, module in _STAND_INS.items() if name not in sys.modules}
sys.modules.update(_hidden)
import structlog  # noqa: E402 (imported here so that it finds the stand-ins)

for _name in _hidden:
    del sys.modules[_name]

__all__ = ["structlog"]
