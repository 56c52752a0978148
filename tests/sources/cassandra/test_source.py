"""What would stop a job is reported before it reads, by name and with the right exit status."""

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.plugins import ConfigError, HeadraceError
from headrace.sources.cassandra.errors import NotCdcDirectoryError, TopologyError
from headrace.sources.cassandra.logs.pins import HoldDeniedError
from headrace.sources.cassandra.schema.tables import system_table_id
from helpers.logs.forged import SCHEMA, TABLE, insert
from helpers.logs.node_logs import forged_nodes, source

CONFIG, ENVIRONMENT = 2, 3
Options = dict[str, object]
LOGS = {node: [insert(b"k", b"v")] for node in ("node1", "node2", "node3")}


def schema(text: str) -> Callable[[Path, Options], None]:
    """Return a change that makes *text* the schema."""

    def change(folder: Path, _: Options) -> None:
        (folder / "schema.cql").write_text(text)

    return change


def option(**changed: object) -> Callable[[Path, Options], None]:
    """Return a change of options."""
    return lambda _, options: options.update(changed)


def node(given: object) -> Callable[[Path, Options], None]:
    """Return a change of what the second node is."""

    def change(folder: Path, options: Options) -> None:
        nodes = options["nodes"]
        assert isinstance(nodes, dict)
        nodes["node2"] = str(folder / given) if isinstance(given, str) else given

    return change


def undecodable(folder: Path, _: Options) -> None:
    """Make the schema something that is not text."""
    (folder / "schema.cql").write_bytes(b"-- \xff")


def linked(folder: Path, options: Options) -> None:
    """Give the second node the first one's directory, under another name."""
    (folder / "link").symlink_to(folder / "node1")
    node("link")(folder, options)


WITHOUT_KEYSPACE = "\n".join(SCHEMA.splitlines()[2:])
MISTAKES: dict[str, tuple[Callable[[Path, Options], None], type[HeadraceError], int, str]] = {
    "missing directory": (node("nope"), NotCdcDirectoryError, ENVIRONMENT, "nope: expected a cdc_"),
    "no cdc_raw": (node(""), NotCdcDirectoryError, ENVIRONMENT, "expected CommitLog-"),
    "a file": (node("schema.cql"), NotCdcDirectoryError, ENVIRONMENT, "Not a directory"),
    "the same directory": (node("node1"), ConfigError, CONFIG, "nodes.node2: is the directory of"),
    "the same by a link": (linked, ConfigError, CONFIG, "nodes.node2: is the directory of node1"),
    "a number as path": (node({"path": 7}), ConfigError, CONFIG, "nodes.node2.path: expected a te"),
    "an unknown key": (
        node({"path": "x", "tokenz": []}),
        ConfigError,
        CONFIG,
        "nodes.node2.tokenz: unknown",
    ),
    "tokens as text": (
        node({"path": "x", "tokens": "12"}),
        ConfigError,
        CONFIG,
        "nodes.node2.tokens: expected a list of whole numbers, found '12'",
    ),
    "unknown table": (option(tables=("forged.tt",)), ConfigError, CONFIG, "tables: forged.tt is n"),
    "table without CDC": (
        option(tables=("forged.other",)),
        ConfigError,
        CONFIG,
        "other has no CDC",
    ),
    "no table with CDC": (
        schema(SCHEMA.replace("true", "false")),
        ConfigError,
        CONFIG,
        "tables: no table of the schema has CDC",
    ),
    "wrong level": (option(consistency="QORUM"), ConfigError, CONFIG, "did you mean QUORUM?"),
    "missing schema": (option(schema="/nope.cql"), ConfigError, CONFIG, "schema: /nope.cql: No su"),
    "schema that is no text": (undecodable, ConfigError, CONFIG, "byte 3 is not UTF-8"),
    "no keyspace": (schema(WITHOUT_KEYSPACE), TopologyError, CONFIG, "add CREATE KEYSPACE forged"),
    "too few nodes": (
        schema(SCHEMA.replace("'3'", "'5'")),
        TopologyError,
        CONFIG,
        "level ALL needs 5 of 5 copies, the job reads 3",
    ),
    "wrong disposal": (option(disposal="deleet"), ConfigError, CONFIG, "found 'deleet'"),
    "an archive that cannot be": (
        option(disposal={"archive": "/dev/null/archive"}),
        HoldDeniedError,
        ENVIRONMENT,
        "/dev/null/archive: cannot be written",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_reported_before_anything_is_read(tmp_path: Path, mistake: str) -> None:
    """Making the source or planning its splits names it; nothing of that kind is repeated."""
    change, error, status, expected = MISTAKES[mistake]
    options = forged_nodes(tmp_path, LOGS) | {"consistency": "ALL"}
    change(tmp_path, options)

    with pytest.raises(error) as caught:
        source(options).plan()

    assert expected in str(caught.value)
    assert status == caught.value.exit_status


def test_two_nodes_cannot_have_the_same_token(tmp_path: Path) -> None:
    """The problem of each names the other."""
    options = forged_nodes(tmp_path, LOGS)
    paths = options["nodes"]
    assert isinstance(paths, dict)
    options["nodes"] = {name: {"path": path, "tokens": [7]} for name, path in paths.items()}

    with pytest.raises(ConfigError) as caught:
        source(options)

    assert ["nodes.node2.tokens", "nodes.node3.tokens"] == [p.key for p in caught.value.problems]


def test_tables_of_cassandra_itself_are_not_delivered(tmp_path: Path) -> None:
    """By default, also without CDC; a keyspace that is merely called alike is a user's."""
    more = "".join(
        f"CREATE TABLE {name}.t (k blob PRIMARY KEY) WITH cdc = true AND ID = {number};\n"
        for name, number in (
            ("system_auth", system_table_id("system_auth", "t")),
            ("systems", "3f0e0d0c-3b1e-11ef-9d2b-0f1e2d3c4b5a"),
        )
    )
    keyspace = SCHEMA.splitlines()[1].replace("forged", "systems")
    made = source(forged_nodes(tmp_path, LOGS, f"{SCHEMA}{keyspace}\n{more}"))

    assert ["forged.t", "systems.t"] == sorted(table.qualified for table in made._parts.tables)  # noqa: SLF001 (no record is made of a table without data)


def test_a_dropped_table_is_delivered_while_its_keyspace_is_known(tmp_path: Path) -> None:
    """Its entries can still be in the logs; without the keyspace the copies are unknown."""
    dropped = source(forged_nodes(tmp_path / "a", LOGS, f"{SCHEMA}DROP TABLE forged.t;"))
    assert [TABLE] == [table.table_id for table in dropped._parts.tables]  # noqa: SLF001 (as above)

    gone = source(forged_nodes(tmp_path / "b", LOGS, f"{SCHEMA}DROP KEYSPACE forged;"))
    with pytest.raises(ConfigError, match="no table of the schema has CDC"):
        gone.plan()


def test_lists_of_tables_are_read_by_workers_only(tmp_path: Path) -> None:
    """A split is not cut into parts for bulk work where lists are read; else into equal ones."""
    options = forged_nodes(tmp_path, LOGS)
    (whole, *_) = source(options).plan()
    parts = source(options).divide(whole, None, 3)
    assert [f"{n}-of-{3 * int(whole.split_id.partition('-of-')[2])}" for n in (1, 2, 3)] == [*parts]

    read = {**options, "lists": "read", "contact_points": ["127.0.0.1:1"]}
    with pytest.raises(ConfigError, match="lists: are read from their tables by workers only"):
        source(read).divide(whole, None, 3)
