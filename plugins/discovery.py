"""Plugins found by entry points. Listing imports none; a broken plugin affects only itself."""

import importlib
import os
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headrace.plugins.errors import ConfigError, MissingRequirementError, Problem, meant

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUPS_MAX: Final = 32  # Cached; there are fewer.
# The levels of the contract that a plugin may require: the oldest, and the current one.
API_LEVEL_MIN: Final = 1
API_LEVEL: Final = 1
_NOT_WHERE: Final = ("<", str(Path(importlib.__file__).parent))  # Python's own import machinery.


class ApiLevelError(MissingRequirementError):
    """A plugin requires a level of the contract that this headrace does not have."""

    code = "api_level"


def names(group: str) -> tuple[str, ...]:
    """Return the names in `headrace.<group>`, sorted, without importing any of them."""
    return tuple(sorted({found.name for found in entries(group)}))


def load(group: str, name: str, *, key: str = "plugin") -> Any:  # noqa: ANN401 (the caller knows what a group holds)
    """Import and return the plugin *name* of `headrace.<group>`; the option *key* names it.

    Raises:
        ConfigError: there is no plugin of that name, or there are two.
        MissingRequirementError: it is installed but cannot be imported.
        ApiLevelError: it requires another level of the contract.

    """
    found = [entry for entry in entries(group) if entry.name == name]
    if not found:
        known = names(group)
        hint = meant(name, known, f"installed: {', '.join(known) or 'none'}")
        raise ConfigError([Problem(key, f"no {group.removesuffix('s')} named {name!r}", hint)])
    if len(places := {entry.value for entry in found}) > 1:
        hint = f"remove one of {', '.join(sorted(places))}"
        raise ConfigError([Problem(key, f"two plugins are named {name!r}", hint)])
    try:
        plugin = found[0].load()
    except Exception as error:  # The module of a plugin may raise anything.
        raise MissingRequirementError(
            f"plugin {name!r} cannot be imported: {type(error).__name__}: {error}",
            place=_raised_at(error) or found[0].value,
            hint="mend the plugin, reinstall the distribution that brings it, or remove it",
        ) from error
    _check_level(found[0], plugin)
    return plugin


def _raised_at(error: Exception) -> str:
    """Return file and line of the plugin's code that raised *error*, if its code ran."""
    import traceback  # noqa: PLC0415 (only for a broken plugin)

    frames = traceback.extract_tb(error.__traceback__)[1:]
    places = [f"{f.filename}:{f.lineno}" for f in frames if not f.filename.startswith(_NOT_WHERE)]
    return places[-1] if places else ""


def _check_level(entry: "EntryPoint", plugin: object) -> None:
    """Raise ApiLevelError for a plugin with an unsupported level; the default is the first."""
    level = getattr(plugin, "api_level", API_LEVEL_MIN)
    if isinstance(level, int) and API_LEVEL_MIN <= level <= API_LEVEL:
        return
    brings = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "its distribution"
    newer = isinstance(level, int) and level > API_LEVEL
    here = f"{API_LEVEL}" if API_LEVEL == API_LEVEL_MIN else f"{API_LEVEL_MIN} to {API_LEVEL}"
    raise ApiLevelError(
        f"plugin {entry.name!r} is written for API level {level!r}, this headrace has {here}",
        place=entry.value,
        hint=f"update headrace, or install an older {brings}" if newer else f"update {brings}",
    )


def entries(group: str) -> Sequence["EntryPoint"]:
    """Return the entry points of `headrace.<group>`, without importing any of them."""
    return _installed(group, _places())


def _places() -> tuple[tuple[str, int], ...]:
    """Return the places of distributions, with the time of the last change in each."""
    places = []
    for path in sys.path:
        try:
            # A Path of each would take ten times as long, for each search of a plugin.
            places.append((path, os.stat(path or os.curdir).st_mtime_ns))  # noqa: PTH116
        except OSError:
            places.append((path, 0))
    return tuple(places)


@lru_cache(maxsize=GROUPS_MAX)
def _installed(group: str, places: tuple[tuple[str, int], ...]) -> Sequence["EntryPoint"]:
    return tuple(_scanned(places).select(group=f"headrace.{group}"))


@lru_cache(maxsize=1)
def _scanned(places: tuple[tuple[str, int], ...]) -> Any:  # noqa: ANN401 (its class depends on Python's version)
    """Scan all distributions, which takes tens of milliseconds: once for all groups."""
    # Imported only here: it would delay each command, even one without plugins.
    from importlib.metadata import entry_points  # noqa: PLC0415

    del places
    return entry_points()
