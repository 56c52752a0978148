"""Finds the plugin of a URI scheme, or of the word after DATA_SOURCE.

Both are attributes of the plugin's class, so plugins are imported here, the one with the same
name first. A plugin that cannot be imported is skipped; the error names it if no plugin fits.
"""

import re
from collections.abc import Sequence
from typing import Any

from headrace.connector.control.errors import UnknownPluginError
from headrace.plugins import HeadraceError, Sink, Source, Tables, declared_options, discovery
from headrace.plugins.errors import meant


def sink_of_scheme(scheme: str) -> tuple[str, type[Sink]]:
    """Return the name and class of the sink whose URIs have *scheme*.

    Raises:
        UnknownPluginError: no installed sink has it.

    """
    found, words, broken = _search("sinks", scheme)
    if found is None:
        raise UnknownPluginError(
            "uri", f"no sink has the URI scheme {scheme}://", _hint(scheme, words, broken, "://")
        )
    return found


def source_of_word(word: str) -> tuple[str, type[Source]]:
    """Return the name and class of the source that statements name DATA_SOURCE *word*.

    Raises:
        UnknownPluginError: no installed source has it.

    """
    found, words, broken = _search("sources", word)
    if found is None:
        raise UnknownPluginError(
            "source", f"no plugin makes sources called {word}", _hint(word, words, broken, "")
        )
    return found


def source_of_class(name: str) -> tuple[str, type[Source]]:
    """Return the source of a connector's class: `CassandraCdcSource`.

    The name may have a package before it and `Connector` after it; it may also be the name of the
    plugin alone.

    Raises:
        UnknownPluginError: no installed source has it.

    """
    return _of_class("sources", name)


def sink_of_class(name: str) -> tuple[str, type[Sink]]:
    """Return the sink of a connector's class: `KafkaSink`. See `source_of_class`."""
    return _of_class("sinks", name)


def _of_class(group: str, name: str) -> tuple[str, Any]:  # Any: a plugin's class.
    classes: dict[str, tuple[str, Any]] = {}
    for plugin in discovery.names(group):
        try:
            found = discovery.load(group, plugin)
        except HeadraceError:
            continue
        if group == "sinks":
            classes[connector_class(plugin, "Sink")] = (plugin, found)
        else:
            for word in {found.word.capitalize(), ""}:  # For tables, and without tables.
                classes[connector_class(plugin, f"{word}Source")] = (plugin, found)
    simple = name.rpartition(".")[2].removesuffix("Connector")
    for known, found in classes.items():
        if simple in (known, found[0]):
            return found
    kind, hint = group.removesuffix("s"), _hint(simple, [*classes], [], "")
    raise UnknownPluginError("connector.class", f"there is no {kind} {name[:80]!r}", hint)


def sink_schemes() -> Sequence[str]:
    """Return the URI schemes of all sinks that can be imported."""
    return sorted(_search("sinks", "")[1])


def source_words() -> Sequence[str]:
    """Return the words after DATA_SOURCE of all sources that can be imported."""
    return sorted(_search("sources", "")[1])


def reads_tables(source: type[Source]) -> bool:
    """Return whether a statement that names *source* must name a table."""
    return issubclass(source, Tables) or "table" in declared_options(source.config_class)


def connector_class(plugin: str, suffix: str) -> str:
    """Return the class name that Connect's clients see: `KafkaSink`, `CassandraCdcSource`."""
    return "".join(part.capitalize() for part in re.split(r"[^A-Za-z0-9]+", plugin)) + suffix


def _search(group: str, wanted: str) -> tuple[tuple[str, type] | None, list[str], list[str]]:
    words: list[str] = []
    broken: list[str] = []
    for name in sorted(discovery.names(group), key=lambda name: (name != wanted, name)):
        try:
            plugin = discovery.load(group, name)
        except HeadraceError:
            broken.append(name)
            continue
        its_words = plugin.schemes if group == "sinks" else (plugin.word,)
        if wanted and wanted in its_words:
            return (name, plugin), words, broken
        words += [word for word in its_words if word]
    return None, words, broken


def _hint(wanted: str, words: list[str], broken: list[str], suffix: str) -> str:
    known = {word: f"{word}{suffix}" for word in words}
    cannot = f"; cannot be imported: {', '.join(broken)}" if broken else ""
    return meant(wanted, known, f"installed: {', '.join(known.values()) or 'none'}{cannot}")
