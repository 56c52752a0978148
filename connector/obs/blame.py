"""Finds the cause of an unexpected exception: a plugin's class, a file and a line.

Its message may repeat values of a row, so it is logged only before any row is read: while a plugin
is made or opened. `headrace --debug` logs all messages.
"""

import contextlib
import dataclasses
import sys
import sysconfig
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

from headrace.plugins import Context, FatalError, HeadraceError
from headrace.plugins.config.options import without_secrets
from headrace.plugins.discovery import entries

P = TypeVar("P")

# No later attempt can succeed: the code is wrong.
MISTAKES: Final = (TypeError, NotImplementedError, AttributeError, NameError, ImportError)
HINT: Final = "this is a mistake in the plugin; `headrace --debug` logs messages and whole traces"
_GROUPS: Final = ("sources", "sinks", "stores", "codecs")
_OURS: Final = str(Path(__file__).resolve().parents[1])
_PYTHON: Final = sysconfig.get_paths()["stdlib"]
_BY: Final = "raised by "  # The prefix of the note that names the plugin.
# The configurations of plugins, as long as the plugins live.
_configs: "weakref.WeakKeyDictionary[object, object]" = weakref.WeakKeyDictionary()
_MADE: Final = "raised while a plugin was made or opened: its text is about no row"


class PluginBrokenError(FatalError):
    """A plugin raised an exception that is not a named error."""

    code = "plugin_broken"
    restartable = True


def place_of(error: BaseException) -> str:
    """Return the file, line and function that raised *error*: those of a plugin, if one did."""
    frames = list(traceback.extract_tb(error.__traceback__))
    if not frames:
        return ""
    strangers = [each for each in frames if is_foreign(each.filename)]
    found = (strangers or frames)[-1]
    return f"{found.filename}:{found.lineno} in {found.name}"


def place_in(thread: threading.Thread) -> str:
    """Return the file, line and function that *thread* is in now: a plugin's, if it called one."""
    current = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 (Python's own way)
    if current is None:
        return ""
    frames = list(traceback.extract_stack(current))
    found = next((each for each in frames if is_foreign(each.filename)), frames[-1])
    return f"{found.filename}:{found.lineno} in {found.name}"


def is_foreign(path: str) -> bool:
    """Return whether a file is neither the framework's nor Python's own."""
    return not path.startswith((_PYTHON, "<")) and not str(Path(path).resolve()).startswith(_OURS)


def described(error: Exception) -> str:
    """Return a safe description of *error*: the text of an unnamed one may repeat row values."""
    if isinstance(error, HeadraceError):
        return str(error)
    notes: list[str] = getattr(error, "__notes__", [])
    text = f": {error}" if _MADE in notes else ""
    by = "".join(f" of {n.removeprefix(_BY)}" for n in notes if n.startswith(_BY))
    place = place_of(error)
    return f"{type(error).__name__}{by}{text}{f' at {place}' if place else ''}"


def blame(error: Exception, plugin: object) -> None:
    """Add a note that *plugin* raised *error*, for `described`; once, and not to our own errors."""
    if not isinstance(error, HeadraceError) and not hasattr(error, "__notes__"):
        error.add_note(f"{_BY}{name_of(plugin)}")


def name_of(plugin: object) -> str:
    """Return a plugin's name in job files, and its class. *plugin* is a class or an object."""
    found = plugin if isinstance(plugin, type) else type(plugin)
    value = f"{found.__module__}:{found.__qualname__}"
    for group in _GROUPS:
        for entry in entries(group):
            if entry.value == value:
                return f"{group.removesuffix('s')} {entry.name!r} ({found.__qualname__})"
    return found.__qualname__


# Any: a plugin's class, and an instance of its config_class.
def made(plugin: Callable[[Any, Context], P], config: Any, context: Context) -> P:  # noqa: ANN401
    """Make a plugin, and remember its configuration, to keep its secrets out of messages.

    Raises the plugin's named errors, and PluginBrokenError.
    """
    with making(plugin, "made", config):
        found = plugin(config, context)
    with contextlib.suppress(TypeError):  # Not every object can be referred to weakly.
        _configs[found] = config
    return found


def _without_secrets(config: object, text: str) -> str:
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return without_secrets(config, text)
    return text


@contextlib.contextmanager
def making(plugin: object, doing: str, config: object = None) -> Iterator[None]:
    """Name the plugin in errors that it raises while it is made or opened, before any row is read.

    *config* is its configuration, if that is not remembered; no message contains its secrets. A
    temporary error, such as a server that does not answer, is not changed, but its message is
    logged.

    Raises:
        PluginBrokenError: it has the class, text, file and line of the error.

    """
    try:
        yield
    except HeadraceError:
        raise
    except Exception as error:
        if config is None:
            with contextlib.suppress(TypeError):
                config = _configs.get(plugin)
        text = _without_secrets(config, str(error))
        if isinstance(error, MISTAKES):
            raise PluginBrokenError(
                f"{name_of(plugin)} raised {type(error).__name__} while it was {doing}: {text}",
                place=place_of(error),
                hint=HINT,
            ) from error
        blame(error, plugin)
        if text == str(error):
            error.add_note(_MADE)
        raise
