"""`headrace backfill` over a node that answers by ranges of tokens, without Spark: N01 to N08."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.connector.control.jobs import job_text
from headrace.connector.control.jobs import table_source as table_source_of
from headrace.connector.replay.delivery import sink_and_encoder
from headrace.connector.replay.planning import planned
from headrace.connector.replay.runs import ShardState
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.shards import SourceSpec, batches, encoded_changes, opened
from headrace.plugins import NO_ORIGIN, Origin
from helpers.jobs.children import until
from helpers.jobs.filled_tables import (
    EDGES,
    KILLED,
    OTHER,
    RANGES,
    ROWS,
    TOKENS,
    Filled,
    T,
    answering,
    keys,
)


@pytest.fixture
def filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Filled]:
    """Return a job whose node tells the schema that the job's file has."""
    with answering(tmp_path, monkeypatch) as node:
        yield Filled(tmp_path, node)


@pytest.mark.parametrize(
    ("options", "passes"), [(["--mode", "always"], 5), ([], 1), (["--plan"], 0)]
)
def test_modes(filled: Filled, options: list[str], passes: int) -> None:
    """N01: of five calls all read the table, or only the first, or none because each plans."""
    filled.hold(T, ROWS)
    asked = []
    for _ in range(5):
        assert 0 == filled.backfill(T, *options)
        asked.append(filled.asked()[T])

    assert [RANGES] * passes + [0] * (5 - passes) == asked
    assert sorted(keys(T) * passes) == filled.sent()


def test_another_target_is_another_backfill(filled: Filled) -> None:
    """N01: a table that was read into another target, or for some tokens, is read again."""
    filled.hold(T, ROWS)
    others: Sequence[Sequence[str]] = (
        [],
        ["--to-folder", "out"],
        [f"--token-range={EDGES[0]}:{EDGES[1]}"],
    )

    first = [(filled.backfill(T, *options), filled.asked()[T]) for options in others]
    second = [(filled.backfill(T, *options), filled.asked()[T]) for options in others]

    assert [(0, RANGES), (0, RANGES), (0, 1)] == first
    assert [(0, 0)] * 3 == second


def test_an_empty_table(filled: Filled) -> None:
    """N02: the backfill of an empty table is DONE; a row that is logged afterwards arrives once."""
    filled.hold(T, 0)

    assert 0 == filled.backfill(T)
    assert [[ShardState.PASS] * RANGES] == filled.states()
    assert [] == filled.sent()
    filled.job.log(1, range(3))
    assert 0 == filled.job.run()
    filled.asked()
    assert 0 == filled.backfill(T)

    assert not filled.asked()
    assert [0, 1, 2] == filled.job.rows()
    assert filled.job.books()


def test_a_table_without_cdc(filled: Filled, capsys: pytest.CaptureFixture[str]) -> None:
    """N03: a table that the job does not deliver is named, and no table is read."""
    path = filled.job.folder / "schema.cql"
    path.write_text("cdc = false".join(path.read_text().rsplit("cdc = true", 1)))
    filled.hold(T, ROWS)
    filled.hold(OTHER, ROWS)

    assert 2 == filled.backfill(T, OTHER)
    assert f"tables: '{OTHER}' is not a table of the source" in capsys.readouterr().err
    assert not filled.asked()
    assert ([], []) == (filled.states(), filled.sent())


def test_two_tables(filled: Filled, capsys: pytest.CaptureFixture[str]) -> None:
    """N04: two tables with five rows each give ten records; the end of each table is marked."""
    filled.hold(T, ROWS)
    filled.hold(OTHER, ROWS)

    assert 0 == filled.backfill(T, OTHER)

    assert sorted(keys(T) + keys(OTHER)) == filled.sent()
    assert {"table"} == {each["node"] for each in filled.job.documents()}
    assert [[ShardState.PASS] * RANGES] * 2 == filled.states()
    reported = [line for line in capsys.readouterr().out.splitlines() if "PASS" in line]
    assert [f"{RANGES} PASS; {ROWS} changes"] * 2 == [
        t.split(": ")[1].split(",")[0] for t in reported
    ]


def test_a_range_that_is_refused(filled: Filled, capsys: pytest.CaptureFixture[str]) -> None:
    """N05: a range that fails is named and stays undone; the others are done, in both tables."""
    filled.hold(T, ROWS, refused=1)
    filled.hold(OTHER, ROWS)

    assert 1 == filled.backfill(T, OTHER)

    reported = capsys.readouterr().err
    assert f"table_query: table {T}, tokens {TOKENS[1][0]}:{TOKENS[1][1]}" in reported
    first, second = filled.states()
    assert (ShardState.FAIL, [ShardState.PASS] * 2) == (first.pop(1), first)
    assert [ShardState.PASS] * RANGES == second
    lost = {(T, f"0x{key.hex()}") for key in (b"k1", b"k4")}
    assert sorted({*keys(T), *keys(OTHER)} - lost) == filled.sent()


def test_nobody_answers(filled: Filled, capsys: pytest.CaptureFixture[str]) -> None:
    """N05: a backfill that cannot start fails at once and leaves no run."""
    filled.job.change(contact_points=["127.0.0.1:1"])

    assert 3 == filled.backfill(T)
    assert "cluster_unreachable" in capsys.readouterr().err
    assert ([], []) == (filled.states(), filled.sent())


def test_a_sink_that_takes_nothing(filled: Filled, capsys: pytest.CaptureFixture[str]) -> None:
    """N05: a range that the sink rejected stays undone; once the sink works, all rows arrive."""
    filled.hold(T, ROWS)
    out = filled.job.folder / "out.jsonl"
    out.mkdir()

    assert 1 == filled.backfill(T)
    assert "out.jsonl" in capsys.readouterr().err
    assert [[ShardState.FAIL] * RANGES] == filled.states()
    out.rmdir()
    assert 0 == filled.backfill(T)
    assert keys(T) == filled.sent()


def test_interrupted(filled: Filled) -> None:
    """N06: after SIGKILL, the next call continues, and queries no range again that is done.

    The range in which it was killed is read again; the records of it that were already sent arrive
    twice.
    """
    filled.hold(T, ROWS)
    filled.node.slow = filled.statement(T, 1)
    folder = filled.job.folder
    command = ["backfill", str(filled.job.path), *filled.options(T)]
    with subprocess.Popen(  # noqa: S603 (ours)
        [sys.executable, "-c", KILLED, str(folder), *command],
        env=os.environ | {"TMPDIR": str(folder)},  # What it cannot remove goes with the test.
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as child:
        until(lambda: filled.node.slow in filled.node.levels, "nothing was asked", child=child)
        child.send_signal(signal.SIGKILL)
    done = [ShardState.PASS, ShardState.STARTED, ShardState.NOT_STARTED]
    assert [done] == filled.states()
    filled.node.slow = "nothing"
    filled.node.levels.clear()

    assert 0 == filled.backfill(T)

    again = {statement for statement in filled.node.levels if "token(" in statement}
    assert {filled.statement(T, 1), filled.statement(T, 2)} == again
    assert [[ShardState.PASS] * RANGES] == filled.states()
    assert keys(T) == filled.sent()


def transform(filled: Filled, **options: str) -> None:
    """Give the sink a transform; `_` in a name stands for a dot."""
    document = yaml.safe_load(filled.job.path.read_text())
    document["sink"] |= {name.replace("_", "."): value for name, value in options.items()}
    filled.job.path.write_text(yaml.safe_dump(document))


@pytest.mark.parametrize(
    ("type_", "option", "tables"),
    [
        ("TableMatches", {"predicates_some_pattern": "forged.other"}, (T,)),
        ("OperationIs", {"predicates_some_operations": "INSERT"}, ()),
    ],
    ids=["table", "operation"],
)
def test_what_is_left_out(
    filled: Filled, type_: str, option: dict[str, str], tables: tuple[str, ...]
) -> None:
    """N08: neither backfill nor logs deliver a table or an operation that the sink leaves out."""
    dropped = {"transforms": "drop", "transforms_drop_type": "Filter"}
    some = {"transforms_drop_predicate": "some", "predicates": "some"}
    transform(filled, **dropped, **some, predicates_some_type=type_, **option)
    filled.hold(T, ROWS)
    filled.hold(OTHER, ROWS)
    filled.job.log(1, range(ROWS), others=range(ROWS))

    assert 0 == filled.backfill(T, OTHER)
    of_backfill = filled.sent()
    assert 0 == filled.job.run()

    expected = sorted(pair for table in tables for pair in keys(table))
    assert (expected, sorted(expected * 2)) == (of_backfill, filled.sent())


@pytest.mark.parametrize("excluded", ["", "v"])
def test_a_column_that_is_left_out(filled: Filled, excluded: str) -> None:
    """N08: neither backfill nor logs deliver a column that the sink leaves out."""
    sink = {"plugin": "kafka", "bootstrap.servers": "nowhere:1", "topic": "orders"}
    sink |= {"format": "json", "envelope": "flat", "transforms": "drop"}
    sink |= {"transforms.drop.type": "ReplaceField$Value", "transforms.drop.exclude": excluded}
    filled.hold(T, ROWS)
    filled.job.log(1, range(ROWS))
    text = job_text(filled.job.path)

    for given in (text.source, table_source_of(text, T)):
        spec = SourceSpec(given=given, directory=str(text.directory))
        sent = [json.loads(value) for value in encoded(spec, sink)]
        assert [{"k", "v"} - {excluded}] * ROWS == [{"k", "v"} & each.keys() for each in sent]


@pytest.mark.parametrize(
    ("envelope", "of_logs", "of_table"),
    [
        ("debezium", ("i", "false"), ("r", "true")),
        ("flat", ("INSERT", "n1"), ("INSERT", "table")),
        ("cep44", ("INSERT", "n1"), ("INSERT", "table")),
    ],
)
def test_the_mark_of_a_row(
    filled: Filled, envelope: str, of_logs: tuple[str, str], of_table: tuple[str, str]
) -> None:
    """ADR 48: in each envelope a row that was read is distinguished from a change of the logs."""
    sink = {"plugin": "kafka", "bootstrap.servers": "nowhere:1", "topic": "orders"}
    sink |= {"format": "json", "envelope": envelope}
    filled.hold(T, ROWS)
    filled.job.log(1, range(ROWS))
    filled.job.change(consistency="ONE", nodes={"n1": "n1"})
    text = job_text(filled.job.path)

    for given, expected in ((text.source, of_logs), (table_source_of(text, T), of_table)):
        spec = SourceSpec(given=given, directory=str(text.directory))
        sent = [json.loads(value) for value in encoded(spec, sink, spec.origin)]
        assert [expected] * ROWS == [mark_of(each, envelope) for each in sent]


def mark_of(document: dict[str, Any], envelope: str) -> tuple[str, str]:
    """Return the operation of a record, and what says where it was read."""
    if envelope == "debezium":
        return document["op"], document["source"]["snapshot"]
    names = ("__op", "__node") if envelope == "flat" else ("operationType", "node")
    operation, node = (document[name] for name in names)
    return operation, node


def encoded(
    spec: SourceSpec, sink: Mapping[str, str], origin: Origin = NO_ORIGIN
) -> Iterator[bytes]:
    """Yield the values that a sink would get of a source; the sink is not opened."""
    with sink_and_encoder(sink, "r1", origin) as (_, encoder):
        for shard in planned(spec, Selection(), shards=RANGES).shards:
            with opened(shard) as source:
                for batch in batches(source, shard):
                    encoder.announce(batch.schemas())
                    yield from encoded_changes(encoder, batch).values
