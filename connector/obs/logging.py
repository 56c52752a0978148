"""The log of a process: JSON lines, or text with colours on a terminal, always one stream.

The log must not contain values of rows. So a field is a number, a text, or a list of these; other
values are logged as their type. An exception is logged with its place, and with its message only if
it is our own, because others repeat the value that caused them. With `--debug` all messages are
logged, and the files of frames with their folders.
"""

import logging
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Final, TextIO
from uuid import UUID

import msgspec
import structlog
from structlog.typing import EventDict, Processor

from headrace.plugins import HeadraceError

LEVELS: Final = ("debug", "info", "warning", "error")
FRAMES_MAX: Final = 20  # Innermost frames of an exception that are logged.


def configure(level: str = "info", stream: TextIO | None = None, *, messages: bool = False) -> None:
    """Send all logging, structlog's and the standard library's, to *stream* (standard error).

    Other packages log from `warning` on. Another call replaces these settings. With *messages* the
    messages of all exceptions are logged, even if they contain values.
    """
    stream = sys.stderr if stream is None else stream
    _Threshold.messages = messages
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        exception_without_values,
        fields_without_values,
    ]
    renderer = _renderer(stream)
    structlog.configure(
        processors=[_above_threshold, *shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=structlog.WriteLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(handlers=[handler], force=True)
    set_threshold(level)


def set_threshold(level: str) -> None:
    """Log our own events from *level* on, also those of loggers that are bound already.

    Other packages are logged from *level* on too, but never from less than `warning`. A package
    whose own logger has a level keeps that level.
    """
    _Threshold.level = logging.getLevelNamesMapping()[level.upper()]
    logging.getLogger().setLevel(max(_Threshold.level, logging.WARNING))


def threshold() -> str:
    """Return the lowest level of our own events that is logged."""
    return logging.getLevelName(_Threshold.level).lower()


def shows_messages() -> bool:
    """Return whether the messages of all exceptions are logged."""
    return _Threshold.messages


class _Threshold:
    level: ClassVar[int] = logging.INFO
    messages: ClassVar[bool] = False


def _above_threshold(_: object, method: str, event: EventDict) -> EventDict:
    # Only for structlog's own loggers, which expect DropEvent. The standard library does not: there
    # it would reach the code that logs, for example the thread that reads a driver's connections.
    known = logging.getLevelNamesMapping()
    name = {"exception": "ERROR", "warn": "WARNING"}.get(method, method.upper())
    if known.get(name, logging.CRITICAL) < _Threshold.level:
        raise structlog.DropEvent
    return event


def exception_without_values(_: object, __: str, event: EventDict) -> EventDict:
    """Replace `exc_info` by the type, code, place and frames of the exception."""
    error = event.pop("exc_info", None)
    if error is True:
        error = sys.exc_info()
    if isinstance(error, tuple):
        error = error[1]
    if not isinstance(error, BaseException):
        return event
    event["error"] = type(error).__name__
    if isinstance(error, HeadraceError):
        event.update(error_code=error.code, error_message=error.message, error_place=error.place)
    elif _Threshold.messages:
        event["error_message"] = str(error)
    event["frames"] = _frames(error)
    if _Threshold.messages and (cause := error.__cause__) is not None:
        event.update(cause=f"{type(cause).__name__}: {cause}", cause_frames=_frames(cause))
    return event


def _frames(error: BaseException) -> list[str]:
    return [
        f"{f.filename if _Threshold.messages else Path(f.filename).name}:{f.lineno} {f.name}"
        for f in traceback.extract_tb(error.__traceback__)[-FRAMES_MAX:]
    ]


def fields_without_values(_: object, __: str, event: EventDict) -> EventDict:
    """Replace every field that could hold part of a row by the name of its type."""
    return {key: _shown(value) for key, value in event.items()}


def _shown(value: object) -> object:
    if isinstance(value, bool | int | float | str | None):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, UUID | Path):
        return str(value)
    if isinstance(value, list | tuple) and all(isinstance(part, int | str) for part in value):
        return list(value)
    if isinstance(value, Mapping) and all(isinstance(part, int) for part in value.values()):
        return dict(value)  # Counters, by name.
    return f"<{type(value).__name__}>"


def _renderer(stream: TextIO) -> Callable[[Any, str, EventDict], str]:  # Any: as structlog has it
    if not stream.isatty():
        return _json
    return structlog.dev.ConsoleRenderer(colors="NO_COLOR" not in os.environ)


def _json(_: object, __: str, event: EventDict) -> str:
    return msgspec.json.encode(event).decode()
