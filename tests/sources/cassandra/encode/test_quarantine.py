"""What lies in quarantine is sent again once it can be read, and leaves it only then."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connector.commands.cli import main
from headrace.plugins import Quarantined
from headrace.sources.cassandra.encode.quarantine import salvaged, whole_entries
from headrace.sources.cassandra.forge.segments import segment, write_segment
from headrace.sources.cassandra.forge.wire import entry
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema_versions.epochs import Epochs
from helpers.logs.forged import OTHER, SCHEMA, UNKNOWN, insert, mutation, update
from helpers.logs.node_logs import batches, forged_nodes, open_all, source

ROWS = [insert(b"k%d" % n, b"%c" % n) for n in range(9)]
NUMBER = SCHEMA.replace("v blob) WITH cdc = true", "v int) WITH cdc = true")


@given(st.lists(st.one_of(st.binary(max_size=30), st.sampled_from(ROWS)), max_size=8))
def test_whole_entries_are_found_in_any_bytes(parts: list[bytes]) -> None:
    """With anything between them; what the checksums do not vouch for is left."""
    content = b"".join(entry(part) if part in ROWS else part for part in parts)
    found = list(whole_entries(content))

    assert [part for part in parts if part in ROWS] == [raw for raw, _ in found]
    assert all(content[:end].endswith(entry(raw)) for raw, end in found)


def job(folder: Path, schema: str, *logs: tuple[str, bytes]) -> Path:
    """Write the logs, the schema and a job that needs one copy; return the job file."""
    for node, content in logs:
        write_segment(folder / node, content)
    (folder / "schema.cql").write_text(schema)
    document = {
        "job": "orders",
        "state": "state.db",
        "source": {
            "plugin": "cassandra",
            "nodes": {node: node for node, _ in logs},
            "schema": "schema.cql",
            "consistency": "ONE",
            "gaps": "expire",
            "splits": 1,
        },
        "sink": {"plugin": "files", "path": "out"},
    }
    path = folder / "job.yaml"
    path.write_text(json.dumps(document))
    return path


def delivered(folder: Path) -> list[str]:
    """Return the values of the rows that arrived, without notices of gaps."""
    found = [json.loads(line) for line in (folder / "out").read_text().splitlines()]
    return [each["columns"]["v"]["value"] for each in found if "control" not in each]


def listed(path: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    """Return what lies in the quarantine."""
    capsys.readouterr()
    assert 0 == main(["dlq", "list", "--json", str(path)])
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_mended_schema_lets_it_through(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """K10: the run and a re-drive with the schema as it was fail; with another all rows arrive."""
    monkeypatch.chdir(tmp_path)
    content = segment([ROWS]).content
    path = job(tmp_path, NUMBER, ("n1", content), ("n2", content), ("n3", content))
    assert 0 == main(["run", "--until-idle", str(path)])
    kept = listed(path, capsys)
    assert [9 * ["bad_mutation"]] == [[item["code"] for item in kept]]
    assert "node n1: segment 1700000000000: entry that ends at" in str(kept[0]["place"])

    assert 1 == main(["dlq", "redrive", "--all", str(path)])
    assert 9 == len(listed(path, capsys))
    (tmp_path / "schema.cql").write_text(SCHEMA)
    assert 0 == main(["dlq", "redrive", "--all", str(path)])

    assert [] == listed(path, capsys)
    assert [f"0x{n:02x}" for n in range(9)] == delivered(tmp_path)


def spoilt(at: Callable[[int], int]) -> bytes:
    """Return a segment of ROWS with a wrong bit."""
    made = segment([ROWS])
    content = bytearray(made.content)
    content[at(made.ends[2])] ^= 1
    return bytes(content)


def test_whole_entries_of_a_damaged_section_arrive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A size was wrong: what stands behind it cannot be found by reading, but by looking."""
    monkeypatch.chdir(tmp_path)
    content = spoilt(lambda end: end)
    path = job(tmp_path, SCHEMA, ("n1", content), ("n2", content), ("n3", content))
    assert 0 == main(["run", "--until-idle", str(path)])
    assert ["0x00", "0x01", "0x02"] == delivered(tmp_path)
    first, second, third = listed(path, capsys)

    assert 0 == main(["dlq", "redrive", str(path), str(first["number"])])

    assert [f"0x{n:02x}" for n in range(9) if n != 3] == delivered(tmp_path)
    assert [second["number"], third["number"]] == [k["number"] for k in listed(path, capsys)]


def test_a_wrong_entry_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing vouches for its bytes; they can be shown and written to a file."""
    monkeypatch.chdir(tmp_path)
    content = spoilt(lambda end: end - 5)
    path = job(tmp_path, SCHEMA, ("n1", content), ("n2", content), ("n3", content))
    assert 0 == main(["run", "--until-idle", str(path)])
    assert 3 == len(listed(path, capsys))

    assert 1 == main(["dlq", "redrive", "--all", str(path)])
    assert "cannot be made into records" in capsys.readouterr().out
    number = str(listed(path, capsys)[0]["number"])
    assert 0 == main(["dlq", "show", str(path), number, "--content", str(tmp_path / "bytes")])
    assert (tmp_path / "bytes").read_bytes() in content


def test_both_encodings_keep_what_is_needed(tmp_path: Path) -> None:
    """Whichever way a batch is encoded, the same is quarantined."""
    options = forged_nodes(tmp_path, {"n1": ROWS, "n2": ROWS, "n3": []}, NUMBER)
    made = source({**options, "splits": 1})
    (batch,) = batches(open_all(made).values())

    for way in (batch.quarantined(), *(batch.encode(e).quarantined for e in ("avro", "json"))):
        again = [made.recover(item) for item in way]
        assert ROWS == [item.content for item in way]
        assert [2] * 9 == [item.origin["copies"] for item in way]
        assert all(each and each.quarantined() for each in again)


def test_entries_of_other_tables_are_left_in_damage() -> None:
    """A section also has entries of system tables, which are not requested."""
    three = [ROWS[0], insert(b"k", table=UNKNOWN), mutation(update(b"k", table=OTHER))]
    content = b"".join(map(entry, three))
    origin = {"segment": 1, "position": 9, "messaging": 12, "copies": 1, "begin": 100}
    epoch = Epochs().of(parse_schema(SCHEMA))

    agreed = salvaged(Quarantined("", "", "", content, origin=origin), epoch)

    assert agreed is not None
    assert [three[0], three[2]] == [
        bytes(agreed.data[agreed.meta[at] : agreed.meta[at + 1]])
        for at in range(0, agreed.count * constants.AGREED_WIDTH, constants.AGREED_WIDTH)
    ]
    assert 100 + len(entry(ROWS[0])) == agreed.meta[4]
