"""The installed plugins, for lists and forms. Loading a plugin imports it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from headrace import __version__
from headrace.connector.control.connector_config import sink_options
from headrace.connector.control.entries import ConnectorOptions, OwnOptions
from headrace.connector.control.plugins.search import connector_class, reads_tables
from headrace.connector.foundation.secrets import secret_problems
from headrace.plugins import HeadraceError, Problem, discovery
from headrace.plugins.config.forms import CheckedOption, Definition, check_options, definitions


class PluginInfo(msgspec.Struct, frozen=True):
    """An installed plugin; `group` is its entry-point group's last word.

    A source that `is_own` is one without a table, whose connectors have its options.
    """

    group: str
    name: str
    class_name: str
    version: str
    is_own: bool = False

    @property
    def config_class(self) -> type | None:
        """Return the class of its options; for a source of tables, of its connectors' options."""
        if self.group == "sources" and not self.is_own:
            return ConnectorOptions
        found: type | None = getattr(discovery.load(self.group, self.name), "config_class", None)
        return found

    def definitions(self) -> Sequence[Definition]:
        """Return the options that its forms show."""
        if self.config_class is None:
            return []
        if self.group != "sources":
            return definitions(self.config_class, group=self.class_name)
        own = definitions(self.config_class, group="Source") if self.is_own else []
        kind = OwnOptions if self.is_own else ConnectorOptions
        return [*definitions(kind, group="Connector"), *own]

    def check(self, config: Mapping[str, str]) -> Sequence[CheckedOption]:
        """Return every key of a sink's config, with its problems."""
        config_class = self.config_class
        if config_class is None:
            return []
        options = sink_options(config)
        problems: list[Problem] = secret_problems(config_class, options)
        return check_options(config_class, options, group=self.class_name, problems=problems)


def installed() -> Sequence[PluginInfo]:
    """Return all sources that statements can name, all sinks and codecs, except broken ones."""
    found = []
    for group in ("sinks", "sources", "codecs"):
        for entry in sorted(discovery.entries(group)):
            try:
                plugin = discovery.load(group, entry.name)
            except HeadraceError:
                continue
            version = entry.dist.version if entry.dist else __version__
            for suffix, is_own in _suffixes(group, plugin):
                made = connector_class(entry.name, suffix)
                found.append(PluginInfo(group, entry.name, made, version, is_own))
    return found


def _suffixes(group: str, plugin: Any) -> Iterator[tuple[str, bool]]:  # noqa: ANN401 (a class)
    """Yield the end of the names of a plugin's classes; of a source, those with tables first."""
    if group != "sources":
        yield {"sinks": "Sink", "codecs": "Codec"}[group], False
        return
    if plugin.word:
        yield f"{plugin.word.capitalize()}Source", False
    if not reads_tables(plugin):
        yield "Source", True


def find_plugin(name: str) -> PluginInfo | None:
    """Return the plugin of a class, whose name may omit the package and `Connector`."""
    return next(iter(find_plugins(name)), None)


def find_plugins(name: str) -> Sequence[PluginInfo]:
    """Return all plugins of that name or class: a source and a sink may have the same name."""
    simple = name.rpartition(".")[2].removesuffix("Connector")
    return [each for each in installed() if simple in (each.class_name, each.name)]
