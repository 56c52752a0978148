"""A batch of agreed mutations: nothing that cannot be made into records is lost silently."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.plugins import MODULUS, Batch, Codec, EncodedRecords, Quarantined
from headrace.plugins.discovery import load
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, segment
from helpers.logs.forged import OTHER, SCHEMA, UNKNOWN, insert, mutation, update
from helpers.logs.node_logs import everything, forged_nodes

# As in the forged logs, but of a time when the value was text.
TEXT = SCHEMA.replace("v blob", "v text")
GOOD = insert(b"a", b"Ann")
NO_TEXT = mutation(update(b"b", b"Bob"), update(b"b", b"\xff\xfe"))
STRANGE = mutation(update(b"c", b"Cal", table=UNKNOWN), update(b"c", b"Cal"))
LAST = insert(b"d", b"Dan")


def made(folder: Path, raws: Sequence[bytes], schema: str = TEXT) -> Batch:
    """Return the one batch of *raws*, which one copy justifies."""
    logs = {"node1": raws, "node2": [], "node3": []}
    options = forged_nodes(folder, logs, schema) | {"consistency": "ONE", "splits": 1}
    (batch,) = everything(options)
    return batch


def encoded(batch: Batch, encoding: str, *, way: str) -> EncodedRecords:
    """Encode a batch as it does itself, or as the framework's codec does."""
    codec: Codec = load("codecs", encoding)()
    return batch.encode(encoding) if way == "batch" else codec.encode(batch)


def lost(quarantined: Sequence[Quarantined]) -> list[tuple[str, bytes]]:
    """Return codes and bytes of what was quarantined."""
    return [(each.code, each.content) for each in quarantined]


@pytest.mark.parametrize("way", ["batch", "codec"])
@pytest.mark.parametrize("encoding", ["avro", "json"])
def test_a_mutation_that_does_not_fit_is_quarantined_whole(
    tmp_path: Path, encoding: str, way: str
) -> None:
    """Its bytes and its place are kept, none of its changes is delivered, the others all are."""
    raws = [GOOD, NO_TEXT, STRANGE, LAST]
    ends = segment([raws]).ends

    found = encoded(made(tmp_path, raws), encoding, way=way)

    assert 2 == len(found)
    assert [("bad_value", NO_TEXT), ("unknown_table", STRANGE)] == lost(found.quarantined)
    assert [f"node node1: segment {SEGMENT_ID}: entry that ends at {ends[i]}" for i in (1, 2)] == [
        each.place for each in found.quarantined
    ]


def test_records_and_quarantine_add_up(tmp_path: Path) -> None:
    """What has no record is in the quarantine, what has one is not."""
    batch = made(tmp_path, [GOOD, NO_TEXT, LAST])

    assert ["Ann", "Dan"] == [r.document()["columns"]["v"]["value"] for r in batch.records()]
    assert [("bad_value", NO_TEXT)] == lost(batch.quarantined())


def test_what_fits_is_not_quarantined(tmp_path: Path) -> None:
    """Good mutations have records only."""
    assert [] == lost(made(tmp_path, [GOOD, LAST]).quarantined())


@pytest.mark.parametrize("encoding", ["avro", "json"])
def test_changes_have_the_same_number_in_every_job(tmp_path: Path, encoding: str) -> None:
    """`index` and `of` count all changes of the mutation, also of tables that are not asked for."""
    three = mutation(update(b"k", b"1", table=OTHER), update(b"k", b"2"), update(b"k", b"3"))
    batch = made(tmp_path, [three], SCHEMA)

    numbers = [(r.document()["index"], r.document()["of"]) for r in batch.records()]

    assert [(1, 3), (2, 3)] == numbers
    assert 2 == len(encoded(batch, encoding, way="batch"))
    slow, fast = (encoded(batch, encoding, way=way) for way in ("codec", "batch"))
    assert (slow.keys, slow.values, slow.headers) == (fast.keys, fast.values, fast.headers)


@pytest.mark.parametrize("way", ["batch", "codec"])
@pytest.mark.parametrize("encoding", ["avro", "json"])
def test_checksums_add_up(tmp_path: Path, encoding: str, way: str) -> None:
    """Also where a mutation is quarantined that has a change of a table that is not asked for."""
    mixed = mutation(update(b"b", b"1", table=OTHER), update(b"b", b"\xff\xfe"))
    batch = made(tmp_path, [GOOD, mixed, NO_TEXT, LAST])

    found = encoded(batch, encoding, way=way)

    whole = sum(found.checksums or ()) + sum(each.checksum for each in found.quarantined)
    assert 2 == len(found) == len(found.quarantined)
    assert batch.checksum == (whole + found.omitted) % MODULUS
