"""Statements become connector configs, and every mistake in them is reported at once."""

import pytest

from headrace.connector.control.connector_config import compile_sink, compile_source, source_entry
from headrace.connector.control.plugins.search import connector_class
from headrace.connector.language.statements import CreateSink, CreateSource, Options, TableName
from headrace.plugins import ConfigError


def sink(uri: str, *options: tuple[str, str], name: str = "k") -> CreateSink:
    """Return a statement that creates a sink."""
    return CreateSink(name=name, uri=uri, options=options)


def source(
    table: TableName, *, word: str = "flow", options: Options = (), name: str = "k"
) -> CreateSource:
    """Return a statement that creates a source."""
    return CreateSource(word=word, table=table, sink=name, options=options)


def test_sink() -> None:
    """Host, query and options become keys, in this order, as strings, without defaults."""
    statement = sink("bus://a:1,b:2?line=9", ("seats", "7"), ("bus.driver", "true"))

    plugin, config = compile_sink(statement)

    assert "bus" == plugin
    assert [
        ("name", "k"),
        ("connector.class", "BusSink"),
        ("bus.stops", "a:1,b:2"),
        ("line", "9"),
        ("seats", "7"),
        ("bus.driver", "true"),
    ] == list(config.items())


def test_second_scheme() -> None:
    """A sink is found by each of its schemes, in upper or lower case."""
    assert "bus" == compile_sink(sink("TRAM+TLS://a"))[0]


def test_source() -> None:
    """A source's config has keyspace, table, sink and the given options."""
    assert {
        "name": "flow.Shop.orders",
        "connector.class": "RiverFlowSource",
        "keyspace": "Shop",
        "table": "orders",
        "sink": "k",
    } == compile_source(source(TableName("Shop", "orders")))
    assert "j" == compile_source(source(TableName("a", "b"), options=(("job", "j"),)))["job"]


def test_source_of_a_config() -> None:
    """The statement that a config becomes gives the same config."""
    config = {"name": "mine", "connector.class": "RiverFlowSource", "sink": "k"}
    config |= {"keyspace": "Shop", "table": "orders", "tasks.max": "2", "start": "latest"}

    entry = source_entry(config)

    assert ("mine", "k", "flow", "latest") == (entry.name, entry.sink, entry.word, entry.start)
    assert (TableName("Shop", "orders"), 2) == (entry.table, entry.options.tasks_max)
    assert all(text in entry.statement for text in ('ON TABLE "Shop".orders', "AND tasks.max = 2"))
    with pytest.raises(ConfigError, match=r"tasks\.max: must be at least 1"):
        source_entry(config | {"tasks.max": "0"})


@pytest.mark.parametrize(
    ("plugin", "suffix", "expected"),
    [
        ("kafka", "Sink", "KafkaSink"),
        ("cassandra", "CdcSource", "CassandraCdcSource"),
        ("my-own_bus", "Sink", "MyOwnBusSink"),
    ],
)
def test_connector_class(plugin: str, suffix: str, expected: str) -> None:
    """The connector class that Connect's clients see is made of the plugin's name."""
    assert expected == connector_class(plugin, suffix)


@pytest.mark.parametrize(
    ("statement", "code", "problems", "hint"),
    [
        (sink("buss://a"), "unknown_plugin", {"uri": "scheme buss://"}, "did you mean bus://?"),
        (sink("xyz://a"), "unknown_plugin", {"uri": "xyz://"}, "cannot be imported: "),
        (sink("bus://u@a"), "bad_uri", {"uri": "a user"}, "reference"),
        (sink("bus://a/x"), "config", {"uri": "takes no path, found '/x'"}, ""),
        (sink("bus://"), "config", {"bus.stops": "is required"}, "Where it stops."),
        (sink("bus://a", ("lnie", "1")), "config", {"lnie": "not an option"}, "mean line?"),
        (sink("bus://a?lnie=1"), "config", {"lnie": "not an option"}, "mean line?"),
        (sink("bus://a", ("seats", "101")), "config", {"seats": "at most 100"}, ""),
        (sink("bus://a?line=1", ("line", "1")), "config", {"line": "twice"}, "or by AND"),
        (sink("bus://a", ("bus.stops", "a")), "config", {"bus.stops": "twice"}, ""),
        (sink("bus://a", ("name", "x")), "config", {"name": "cannot be given: the statement"}, ""),
        (sink("bus://a?connector.class=x"), "config", {"connector.class": "cannot be given"}, ""),
        (sink("bus://a", ("line", "\x1b")), "config", {"line": "control character"}, ""),
        (
            sink("bus://a", ("seats", "x"), ("lnie", "1"), ("password", "canary")),
            "config",
            {"seats": "whole number", "lnie": "not an option", "password": "is a secret"},
            "did you mean line?",
        ),
        (sink("bus://a", name="a/b"), "bad_name", {"sink": "'a/b' is not a sink name"}, "1 to 48"),
        (sink("bus://a", name="x" * 49), "bad_name", {"sink": "is not a sink name"}, ""),
        (sink("bus://a", name=".."), "bad_name", {"sink": "is not a sink name"}, ""),
        (sink("bus://a", name="k\u0430"), "bad_name", {"sink": "is not a sink name"}, ""),
    ],
)
def test_sink_refused(
    statement: CreateSink, code: str, problems: dict[str, str], hint: str
) -> None:
    """Each mistake is reported under its key, and no error repeats a secret."""
    with pytest.raises(ConfigError) as caught:
        compile_sink(statement)

    found = {problem.key: problem.message for problem in caught.value.problems}
    assert (code, problems.keys()) == (caught.value.code, found.keys())
    assert all(problems[key] in found[key] for key in problems)
    assert hint in caught.value.hint
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("statement", "code", "problems", "hint"),
    [
        (source(TableName("a", "b"), word="flwo"), "unknown_plugin", {"source": "no plugin makes"},
         "did you mean flow?"),
        (source(TableName(None, "b")), "bad_name", {"table": "no keyspace"}, "keyspace.table"),
        (source(TableName("a b", "b")), "bad_name", {"table": "'a b' is not a keyspace name"}, ""),
        (source(TableName("a", "b/..")), "bad_name", {"table": "'b/..' is not a table name"}, ""),
        (source(TableName("a" * 49, "b")), "bad_name", {"table": "not a keyspace name"}, ""),
        (source(TableName("a", "b" * 223)), "bad_name", {"table": "not a table name"}, ""),
        (source(TableName("system", "local")), "system_keyspace", {"table": "keyspace system"}, ""),
        (source(TableName("system_auth", "roles")), "system_keyspace", {"table": "own"}, ""),
        (source(TableName("a", "b"), options=(("jbo", "x"),)), "config", {"jbo": "not an option"},
         "did you mean job?"),
        (source(TableName("a", "b"), options=(("job", "x y"),)), "config", {"job": "not a"}, ""),
        (source(TableName("a", "b"), options=(("sink", "x"),)), "config", {"sink": "not an"}, ""),
    ],
)  # fmt: skip
def test_source_refused(
    statement: CreateSource, code: str, problems: dict[str, str], hint: str
) -> None:
    """Each mistake is reported under its key."""
    with pytest.raises(ConfigError) as caught:
        compile_source(statement)

    found = {problem.key: problem.message for problem in caught.value.problems}
    assert (code, problems.keys()) == (caught.value.code, found.keys())
    assert all(problems[key] in found[key] for key in problems)
    assert hint in caught.value.hint


@pytest.mark.parametrize("table", [TableName("systems", "a"), TableName("a" * 48, "b" * 222)])
def test_names_at_the_bound(table: TableName) -> None:
    """The longest names, and a keyspace that only resembles a system keyspace, are accepted."""
    assert table.name == compile_source(source(table))["table"]


@pytest.mark.parametrize(
    ("key", "value", "accepted"),
    [
        ("password", "canary", False),
        ("password", "", False),
        ("password", "${env:BUS_PASSWORD}", True),
        ("password", "${file:/etc/bus.env:password}", True),
        ("password", "${dir:/run/secrets:bus}", True),
        ("password", "x${env:P}", False),
        ("password", "${vault:x}", False),
        ("password", "${env:}", False),
        ("key.door", "canary", False),
        ("key.door", "${env:DOOR}", True),
        ("bus.password", "canary", False),
        ("bus.client.secret", "canary", False),
        ("bus.sasl.jaas.config", "canary", False),
        ("bus.password", "${env:P}", True),
        ("colour.token", "red", True),
        ("bus.passwords.max", "3", True),
    ],
)
@pytest.mark.parametrize("in_uri", [False, True])
def test_secret(key: str, value: str, *, accepted: bool, in_uri: bool) -> None:
    """A secret, declared as one or named like one, must be a reference."""
    statement = sink(f"bus://a?{key}={value}") if in_uri else sink("bus://a", (key, value))

    if accepted:
        assert value == compile_sink(statement)[1][key]
        return
    with pytest.raises(ConfigError, match=f"{key}: is a secret") as caught:
        compile_sink(statement)
    assert "${env:" in caught.value.hint
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("file://", "path: is required"),
        ("file:///", "path: '/' names no file"),
        ("file://host/x", "uri: 'host' is not a folder"),
        ("file://x?transforms=a&transforms.a.type=Zip", "transforms.a.type: no transform named"),
        ("file://x?transforms=a", "transforms.a.type: is required"),
        ("file://x?predicates=p&predicates.p.type=Zip", "predicates: no transform has the"),
        ("file://x?schema.store=zip", "schema.store: no schema_store named 'zip'"),
        ("file://x?schema.store=registry", "schema.store.url: is required"),
        ("file://x?large.policy=claim-check&large.store=zip", "large.store: no claim_store named"),
        (
            "file://x?errors.deadletterqueue.topic.name=x",
            "errors.deadletterqueue.topic.name: this sink has no topics",
        ),
    ],
)
def test_what_a_run_would_refuse(uri: str, expected: str) -> None:
    """What is wrong without asking a server is refused by the statement, as a run would do it."""
    with pytest.raises(ConfigError) as caught:
        compile_sink(sink(uri))

    assert str(caught.value).startswith(expected)


def test_references_are_left_to_the_run() -> None:
    """A value behind a reference is not checked before the run."""
    options = ("schema.store", "registry"), ("schema.store.url", "${env:URL}")

    assert "${env:URL}" == compile_sink(sink("file://x", *options))[1]["schema.store.url"]


def test_a_start_is_a_place() -> None:
    """A start that the source cannot parse is refused under its key."""
    config = {"name": "x", "connector.class": "RiverFlowSource", "sink": "k"}
    config |= {"keyspace": "shop", "table": "orders"}

    assert "latest" == source_entry(config | {"start": "latest"}).start
    assert "cdc_state:old" == source_entry(config | {"start": "cdc_state:old"}).start
    with pytest.raises(ConfigError, match=r"^start: names no job"):
        source_entry(config | {"start": "cdc_state:"})
    with pytest.raises(ConfigError, match=r"^start: the river has no 'desert'"):
        source_entry(config | {"start": "desert"})
