"""Converts statements to connector configs of Kafka Connect's API: all values are strings.

Options are checked against those that the plugin declares, without any connection. A config holds
the options of the statement and the keys that name the connector, and no defaults.
"""

import itertools
import re
import urllib.parse
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

import msgspec

from headrace.connector.control.entries import (
    CLASS_KEY,
    ENGINE_KEY,
    NAME_KEY,
    OBJECT_NAME,
    SNAPSHOT_KEY,
    SPARK,
    START_KEY,
    TABLE_KEY,
    TASKS_KEY,
    WORKER,
    ConnectorOptions,
    OwnOptions,
    RouteOptions,
    SinkEntry,
    SourceEntry,
    own_options,
)
from headrace.connector.control.errors import BadNameError, SystemKeyspaceError, UnknownPluginError
from headrace.connector.control.plugins.search import (
    connector_class,
    reads_tables,
    sink_of_class,
    sink_of_scheme,
    source_of_class,
    source_of_word,
)
from headrace.connector.control.plugins.sink_uri import SinkUri, parse_sink_uri
from headrace.connector.foundation.offered import check_place
from headrace.connector.foundation.secrets import secret_problems
from headrace.connector.language.cursor import UNSAFE_CHARACTER
from headrace.connector.language.formatting import format_statement
from headrace.connector.language.statements import NO_TABLE, CreateSink, CreateSource, TableName
from headrace.connector.runtime.failures.tolerance import topic_problems
from headrace.connector.stores.cassandra.cdc_state import job_of
from headrace.plugins import ConfigError, MicroBatches, Problem, Sink, SinkOptions, parse_config
from headrace.plugins.config.sink_options import DEAD_LETTERS_KEY

CONNECTOR_NAME_CHARS_MAX: Final = 320
PLUGIN_KEY: Final = "plugin"

_KEYSPACE: Final = re.compile(r"[A-Za-z0-9_]{1,48}")
_TABLE: Final = re.compile(r"[A-Za-z0-9_]{1,222}")
_CONNECTOR_NAME: Final = re.compile(r"[^/\\%?#]+")
_HINT: Final = "Cassandra's names are of ASCII letters, digits and _"


def compile_sink(statement: CreateSink) -> tuple[str, dict[str, str]]:
    """Return the name of the sink's plugin, and the connector config.

    Raises:
        BadNameError: no sink can have this name.
        BadUriError: the URI cannot be read.
        UnknownPluginError: no installed sink has the URI's scheme.
        ConfigError: it has every option that is wrong.

    """
    check_name("sink", statement.name)
    uri = parse_sink_uri(statement.uri)
    plugin, sink = sink_of_scheme(uri.scheme)
    parts = (sink.config_of_uri(uri.host, uri.path).items(), uri.query, statement.options)
    options, problems = _joined(parts)
    problems += secret_problems(sink.config_class, options)
    problems += topic_problems(sink, options.get(DEAD_LETTERS_KEY, ""))
    _check(sink.config_class, options, problems, name=plugin)
    made = {NAME_KEY: statement.name, CLASS_KEY: connector_class(plugin, "Sink")}
    return plugin, made | options


def sink_entry(statement: CreateSink) -> SinkEntry:
    """Return the sink that *statement* creates. Raises as `compile_sink` does."""
    plugin, config = compile_sink(statement)
    text = format_statement(msgspec.structs.replace(statement, if_not_exists=False))
    return SinkEntry(name=statement.name, plugin=plugin, statement=text, config=config)


def sink_entry_of(config: Mapping[str, str]) -> SinkEntry:
    """Return the sink that a connector config describes; the config is kept as it is.

    Raises as `compile_sink` does, also for a config that no statement can express.
    """
    _, sink = sink_of_class(config.get(CLASS_KEY, ""))
    options = sink_options(config)
    uri = _uri_of(sink, options)
    if not re.fullmatch(r"[1-9][0-9]{0,8}", config.get(TASKS_KEY, "1")):
        raise ConfigError([Problem(TASKS_KEY, "expected a whole number from 1 on")])
    made = sink.config_of_uri(uri.host, uri.path)
    given = tuple((key, value) for key, value in options.items() if key not in made)
    text = f"{uri.scheme}://{uri.host}{urllib.parse.quote(uri.path)}"
    entry = sink_entry(CreateSink(name=config.get(NAME_KEY, ""), uri=text, options=given))
    return replace(entry, config=config)


def sink_options(config: Mapping[str, str]) -> dict[str, str]:
    """Return the options in a sink's connector config that belong to the sink itself."""
    return {k: v for k, v in config.items() if k not in (NAME_KEY, CLASS_KEY, TASKS_KEY)}


def _uri_of(sink: type[Sink], options: Mapping[str, str]) -> SinkUri:
    """Return a URI with those of *options* that the sink reads back from it."""
    scheme = sink.schemes[0]
    for key, value in options.items():
        for host, path in ((value, ""), ("", value)):
            text = f"{scheme}://{host}{urllib.parse.quote(path)}"
            try:
                uri = parse_sink_uri(text)
                if sink.config_of_uri(uri.host, uri.path) == {key: value}:
                    return uri
            except ConfigError:
                continue
    return parse_sink_uri(f"{scheme}://")


def compile_source(statement: CreateSource) -> dict[str, str]:
    """Return the connector config of a source.

    Raises:
        BadNameError: the table's name has no keyspace, or is not valid.
        SystemKeyspaceError: the table belongs to Cassandra.
        UnknownPluginError: no installed source has the statement's word.
        ConfigError: it has every option that is wrong.

    """
    if statement.table == NO_TABLE:
        return _compile_own(statement)
    plugin, _ = source_of_word(statement.word)
    keyspace, table = whole_table(statement.table)
    _check_keyspace(keyspace)
    options, problems = _joined((statement.options,), (CLASS_KEY,))
    name = options.pop(NAME_KEY, source_name(statement.word, statement.table))
    problems += _connector_name_problems(name)
    _check(RouteOptions, options, problems)
    return {
        NAME_KEY: name,
        CLASS_KEY: connector_class(plugin, f"{statement.word.capitalize()}Source"),
        "keyspace": keyspace,
        "table": table,
        "sink": statement.sink,
    } | options


def _compile_own(statement: CreateSource) -> dict[str, str]:
    """Return the connector config of a source without a table: its plugin has its own options."""
    made = (NAME_KEY, CLASS_KEY, "sink")
    options, problems = _joined((statement.options,), made)
    plugin = options.pop(PLUGIN_KEY, "")
    if not plugin:
        hint = f"AND plugin = 'files', or DATA_SOURCE {statement.word} ON TABLE keyspace.table"
        problems.append(Problem(PLUGIN_KEY, "is required for a source without a table", hint))
    if problems:
        raise ConfigError(problems)
    try:
        name, found = source_of_class(plugin)
    except UnknownPluginError as error:
        raise ConfigError(
            [msgspec.structs.replace(p, key=PLUGIN_KEY) for p in error.problems]
        ) from error
    if reads_tables(found):
        hint = f"DATA_SOURCE {found.word or 'cdc'} ON TABLE keyspace.table"
        raise ConfigError([Problem(PLUGIN_KEY, f"{name} is a source of tables", hint)])
    fixed = {NAME_KEY: statement.word, CLASS_KEY: connector_class(name, "Source")}
    return fixed | {"sink": statement.sink} | options


def is_own(config: Mapping[str, str]) -> bool:
    """Return whether a connector config is that of a source without a table."""
    if "keyspace" in config or TABLE_KEY in config:
        return False
    try:
        _, plugin = source_of_class(config.get(CLASS_KEY, ""))
    except UnknownPluginError:
        return False
    return not reads_tables(plugin)


def own_class(config: Mapping[str, str]) -> type:
    """Return the options class of the plugin of a source without a table."""
    found: type = source_of_class(config[CLASS_KEY])[1].config_class
    return found


def _own_entry(config: Mapping[str, str], problems: list[Problem]) -> SourceEntry:
    plugin, _ = source_of_class(config[CLASS_KEY])
    options, kind = own_options(config), own_class(config)
    problems += secret_problems(kind, options)
    for key in config:
        if key == "cluster" or key.partition(".")[0] == SNAPSHOT_KEY:
            problems.append(Problem(key, "is of sources with tables"))
    for check in (
        lambda: check_name("source", config.get(NAME_KEY, "")),
        lambda: parse_config(OwnOptions, {k: v for k, v in config.items() if k not in options}),
        lambda: parse_config(kind, options, name=plugin),
        lambda: _check_source(config[CLASS_KEY], config),
    ):
        try:
            check()
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    given = {k: v for k, v in config.items() if k not in (NAME_KEY, CLASS_KEY, "sink")}
    statement = CreateSource(
        word=config[NAME_KEY],
        table=NO_TABLE,
        sink=config["sink"],
        options=((PLUGIN_KEY, plugin), *given.items()),
    )
    return SourceEntry(
        name=config[NAME_KEY],
        sink=config["sink"],
        job=config.get("job") or config[NAME_KEY],
        statement=format_statement(statement),
        config=config,
    )


def source_entry(config: Mapping[str, str]) -> SourceEntry:
    """Return the source that a connector config describes; the config is kept as it is.

    Raises:
        ConfigError: it has every key that is wrong.

    """
    problems = [
        Problem(key, "holds a control character")
        for key, value in config.items()
        if UNSAFE_CHARACTER.search(key + value)
    ]
    if is_own(config):
        return _own_entry(config, problems)
    problems += _connector_name_problems(config.get(NAME_KEY, "x"))
    for check in (
        lambda: parse_config(ConnectorOptions, config),
        lambda: whole_table(TableName(config.get("keyspace", "k"), config.get("table", "t"))),
        lambda: _check_keyspace(config.get("keyspace", "")),
        lambda: _check_source(config[CLASS_KEY], config) if CLASS_KEY in config else None,
    ):
        try:
            check()
        except (ConfigError, UnknownPluginError) as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    given = parse_config(ConnectorOptions, config)
    word = source_of_class(given.connector_class)[1].word
    table = TableName(given.keyspace, given.table)
    made = {CLASS_KEY, "keyspace", "table", "sink"}
    if given.name == source_name(word, table):
        made.add(NAME_KEY)
    options = tuple((key, value) for key, value in config.items() if key not in made)
    statement = CreateSource(word=word, table=table, sink=given.sink, options=options)
    return SourceEntry(
        name=given.name,
        sink=given.sink,
        job=given.job or "",
        statement=format_statement(statement),
        config=config,
    )


def source_name(word: str, table: TableName) -> str:
    """Return the connector's name: `cdc.shop.orders`.

    Raises:
        BadNameError: the table's name has no keyspace, or is not valid.

    """
    return ".".join((word, *whole_table(table)))


def whole_table(table: TableName) -> tuple[str, str]:
    """Return keyspace and table.

    Raises:
        BadNameError: the keyspace is missing, or one of the names is not valid.

    """
    if table.keyspace is None:
        raise BadNameError("table", f"{table.name[:48]!r} has no keyspace", "write keyspace.table")
    if not _KEYSPACE.fullmatch(table.keyspace):
        raise BadNameError("table", f"{table.keyspace[:48]!r} is not a keyspace name", _HINT)
    if not _TABLE.fullmatch(table.name):
        raise BadNameError("table", f"{table.name[:48]!r} is not a table name", _HINT)
    return table.keyspace, table.name


def check_name(key: str, name: str) -> None:
    """Check the name of a sink, a source or a job.

    Raises:
        BadNameError: it is too long, or has characters other than letters, digits, _ and -.

    """
    if not OBJECT_NAME.fullmatch(name):
        hint = "1 to 48 ASCII letters, digits, _ and -"
        raise BadNameError(key, f"{name[:48]!r} is not a {key} name", hint)


def _check_source(name: str, config: Mapping[str, str]) -> None:
    """Check that a source of the class *name* exists and supports the start position.

    Also check that Spark can read it, if Spark is its engine.
    """
    plugin, source = source_of_class(name)
    if config.get(ENGINE_KEY) == SPARK and not issubclass(source, MicroBatches):
        said = f"Spark cannot read {plugin}, which has no micro-batches"
        raise ConfigError(
            [Problem(ENGINE_KEY, said, f"leave it out, or {ENGINE_KEY} = '{WORKER}'")]
        )
    if START_KEY not in config:
        return
    try:
        if not job_of(config[START_KEY]):
            check_place(source, config[START_KEY])
    except ConfigError as error:
        raise ConfigError(
            [msgspec.structs.replace(p, key=START_KEY) for p in error.problems]
        ) from error


def _check_keyspace(keyspace: str) -> None:
    if keyspace == "system" or keyspace.startswith("system_"):
        raise SystemKeyspaceError("table", f"keyspace {keyspace} is Cassandra's own")


def _connector_name_problems(name: str) -> list[Problem]:
    whole = _CONNECTOR_NAME.fullmatch(name) and name == name.strip() and name not in (".", "..")
    if whole and len(name) <= CONNECTOR_NAME_CHARS_MAX and not UNSAFE_CHARACTER.search(name):
        return []
    hint = f"1 to {CONNECTOR_NAME_CHARS_MAX} characters, none of them / \\ % ? # or a control"
    return [Problem(NAME_KEY, f"{name[:48]!r} is not a connector name", hint)]


def _joined(
    parts: Iterable[Iterable[tuple[str, str]]], made: Collection[str] = (NAME_KEY, CLASS_KEY)
) -> tuple[dict[str, str], list[Problem]]:
    options: dict[str, str] = {}
    problems: list[Problem] = []
    for key, value in itertools.chain.from_iterable(parts):
        if key in options:
            problems.append(Problem(key, "is given twice", "give it in the URI or by AND"))
        elif key in made:
            problems.append(Problem(key, "cannot be given: the statement determines it"))
            continue
        elif UNSAFE_CHARACTER.search(value):
            problems.append(Problem(key, "holds a control character"))
        options[key] = value
    return options, problems


def _check(
    config_class: type, options: Mapping[str, str], problems: list[Problem], *, name: str = ""
) -> None:
    try:
        config: object = parse_config(config_class, options, name=name)
        if isinstance(config, SinkOptions):
            # Imported here because sources do not need it.
            from headrace.connector.runtime.schemas import check_options  # noqa: PLC0415

            check_options(config)
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(problems)
