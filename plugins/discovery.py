"""Plugins found by entry points. Listing imports nothing; a broken plugin hurts only itself."""

import difflib
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from headrace.plugins.errors import ConfigError, MissingRequirementError, Problem


def names(group: str) -> tuple[str, ...]:
    """Return the names in `headrace.<group>`, sorted, without importing any of them."""
    return tuple(sorted({found.name for found in _group(group)}))


def load(group: str, name: str) -> Any:  # noqa: ANN401 (the caller knows what a group holds)
    """Import and return the plugin *name* of `headrace.<group>`.

    Raises:
        ConfigError: there is none of that name, or there are two.
        MissingRequirementError: it is installed but cannot be imported.

    """
    found = [entry for entry in _group(group) if entry.name == name]
    if not found:
        known = names(group)
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"installed: {', '.join(known) or 'none'}"
        raise ConfigError([Problem("plugin", f"no {group.removesuffix('s')} named {name!r}", hint)])
    if len(places := {entry.value for entry in found}) > 1:
        hint = f"remove one of {', '.join(sorted(places))}"
        raise ConfigError([Problem("plugin", f"two plugins are named {name!r}", hint)])
    try:
        return found[0].load()
    except Exception as error:  # A stranger's module may raise anything.
        raise MissingRequirementError(
            f"plugin {name!r} cannot be imported: {type(error).__name__}: {error}",
            place=found[0].value,
            hint="reinstall the distribution that brings it, or remove it",
        ) from error


def _group(group: str) -> list[EntryPoint]:
    return list(entry_points(group=f"headrace.{group}"))
