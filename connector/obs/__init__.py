"""What an operator sees of a running process: its log, its metrics.

structlog imports rich where it is installed, for tracebacks that this log never shows. That takes
longer than everything else a process needs before its first record, so structlog does not see it.
"""

import sys
from typing import Any, cast

_hidden = "rich" not in sys.modules and "structlog" not in sys.modules
if _hidden:
    sys.modules["rich"] = cast("Any", None)  # Any: what Python takes for "not to be found".
import structlog  # noqa: E402 (imported here so that it finds no rich)

if _hidden:
    del sys.modules["rich"]

__all__ = ["structlog"]
