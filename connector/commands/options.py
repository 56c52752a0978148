"""`headrace options`: shows the options of plugins and sections, from their declarations."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from headrace.connector.control.plugins.listing import PluginInfo, find_plugins, installed
from headrace.connector.foundation.job_file import JobFile, RuntimeConfig
from headrace.connector.rest.config import RestConfig
from headrace.plugins import ConfigError, HeadraceError, Problem, discovery
from headrace.plugins.config.arguments import CommandParser
from headrace.plugins.config.forms import json_schema, options_table
from headrace.plugins.errors import meant

# By section: the class that declares its options, and where users write them.
_OURS: Final[Mapping[str, tuple[type, str]]] = {
    "job": (JobFile, "job file or worker's file, top level"),
    "runtime": (RuntimeConfig, "job file or worker's file, `runtime`"),
    "rest": (RestConfig, "worker's file, `rest`"),
}
# By group of plugins: where users write their options.
_PLACES: Final[Mapping[str, str]] = {
    "sources": "job file, `source` with `plugin: {}`; worker's file, also `clusters.NAME`",
    "sinks": "job file, `sink` with `plugin: {}`, and CREATE DATA_SINK",
    "stores": "job file, `store` with `plugin: {}`",
    "schema_stores": "sink, with `schema.store: {}`, behind `schema.store.`",
    "claim_stores": "sink, with `large.store: {}`, behind `large.store.`",
    "transforms": "sink, with `transforms.NAME.type: {}`, behind `transforms.NAME.`",
    "predicates": "sink, with `predicates.NAME.type: {}`, behind `predicates.NAME.`",
}
_STATEMENTS: Final = "CREATE DATA_SOURCE, and the config of the connector {}"


class Section(msgspec.Struct, frozen=True):
    """The options of one place; *kind* names their owner, such as `schema store`."""

    place: str
    config_class: type
    kind: str


def main(arguments: Sequence[str]) -> int:
    """Print the options of a plugin or a section, or the names of all that have some."""
    parser = CommandParser(
        prog="headrace options",
        description="Print the options of a plugin, or of the sections job, runtime and rest. "
        "Without NAME, print all names, each with the place where its options are written.",
    )
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="a plugin or a class: cassandra, KafkaSink"
    )
    parser.add_argument(
        "--format", choices=("table", "json-schema"), default="table", help="default: table"
    )
    given = parser.parse_args(arguments)
    if given.name is None:
        sys.stdout.writelines(f"{name:<20} {each.place}\n" for name, each in every_section())
        return 0
    sections = list(_sections(given.name))
    if not sections:
        known = sorted({name for name, _ in every_section()})
        hint = f"{meant(given.name, known)} `headrace options` lists what there is".lstrip()
        raise ConfigError([Problem("", f"nothing named {given.name!r} has options", hint)])
    if given.format == "json-schema":
        sys.stdout.write(json.dumps(_schema(given.name, sections), indent=2) + "\n")
    else:
        tables = [f"## {each.place}\n\n{options_table(each.config_class)}" for each in sections]
        sys.stdout.write("\n".join(tables))
    return 0


def every_section() -> Iterator[tuple[str, Section]]:
    """Yield each section by its name; options of several places come once for each."""
    for name, (declared, place) in _OURS.items():
        yield name, Section(place, declared, "section")
    for group in _PLACES:
        for name in discovery.names(group):
            section = _section(group, name)
            if section is not None:
                yield name, section
    for plugin in installed():
        if plugin.config_class is not None:
            yield plugin.class_name, _section_of_class(plugin, plugin.config_class)


def _sections(name: str) -> Iterator[Section]:
    """Yield all sections called *name*, which may be a plugin of several groups."""
    if name in _OURS:
        declared, place = _OURS[name]
        yield Section(place, declared, "section")
    seen: set[type] = set()
    for group in _PLACES:
        section = _section(group, name) if name in discovery.names(group) else None
        if section is not None:
            seen.add(section.config_class)
            yield section
    for plugin in find_plugins(name):
        if plugin.config_class is not None and plugin.config_class not in seen:
            seen.add(plugin.config_class)
            yield _section_of_class(plugin, plugin.config_class)


def _section(group: str, name: str) -> Section | None:
    """Return the options of a plugin; None if it has none, or is broken."""
    declared = _declared(group, name)
    kind = group.replace("_", " ").removesuffix("s")
    return None if declared is None else Section(_PLACES[group].format(name), declared, kind)


def _section_of_class(plugin: PluginInfo, declared: type) -> Section:
    place = _place_of_class(plugin.group, plugin.class_name, plugin.name)
    return Section(place, declared, "connector" if plugin.group == "sources" else "sink")


def _declared(group: str, name: str) -> type | None:
    """Return the class of a plugin's options; None if it has none, or the plugin is broken."""
    try:
        found: type | None = getattr(discovery.load(group, name), "config_class", None)
    except HeadraceError:
        return None
    return found


def _place_of_class(group: str, class_name: str, name: str) -> str:
    return _STATEMENTS.format(class_name) if group == "sources" else _PLACES[group].format(name)


def _schema(name: str, sections: Sequence[Section]) -> dict[str, Any]:  # Any: JSON.
    """Return one JSON Schema; options of several places match any of their schemas."""
    if len(sections) == 1:
        return json_schema(sections[0].config_class, title=name)
    schemas = [json_schema(each.config_class, title=each.place) for each in sections]
    return {"title": name, "anyOf": schemas}
