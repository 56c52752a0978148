"""Files and directories that a job file names and that do not exist.

A start reports the first of them anyway; these are reported beside other mistakes of the file, so
that all can be corrected at once. Sections are looked at as written: their options may be wrong.
"""

from collections.abc import Iterator, Mapping
from glob import glob
from pathlib import Path
from typing import Any, Final

from headrace.plugins import Problem, declared_options, is_reference

_HINT: Final = "make it, or name another; relative paths begin at the folder of the file"
Given = Mapping[str, Any]  # Any: YAML.


def missing_places(folder: Path, state: object, sections: Mapping[str, Given]) -> Iterator[Problem]:
    """Yield missing paths of a job file in *folder*; *sections* are those with plugins, by name."""
    if isinstance(state, str) and not (folder / state).parent.is_dir():
        yield Problem("state", f"the directory {(folder / state).parent} does not exist", _HINT)
    for name, given in sections.items():
        yield from _of_section(folder, name, given)


def _of_section(folder: Path, section: str, given: Given) -> Iterator[Problem]:
    # Imported here because a file without mistakes does not need it.
    from headrace.plugins.discovery import load  # noqa: PLC0415

    declared = declared_options(load(f"{section}s", given.get("plugin", "")).config_class)
    for key, (_, found) in declared.items():
        if not (found.reads or found.writes):
            continue
        for name, path in _paths(given, key):
            place = folder / path
            if found.writes:
                place = place.parent
            if not (place.exists() or glob(str(place))):  # noqa: PTH207 (a pattern may be absolute)
                yield Problem(f"{section}.{name}", f"{place} does not exist", _HINT)


def _paths(given: Given, key: str) -> Iterator[tuple[str, str]]:
    """Yield the paths of an option: one, or one for each name, or `path` of each name.

    Skips a name that another option lists: that option may say, for example, that the name is gone.
    """
    value = given.get(key)
    if isinstance(value, str):
        if not is_reference(value):
            yield key, value
    elif isinstance(value, Mapping):
        others = [other for name, other in given.items() if name != key]
        listed = {name for other in others if isinstance(other, list | Mapping) for name in other}
        for name, each in value.items():
            path = each.get("path") if isinstance(each, Mapping) else each
            if isinstance(path, str) and name not in listed and not is_reference(path):
                yield f"{key}.{name}", path
