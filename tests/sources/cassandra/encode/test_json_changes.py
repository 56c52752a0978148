"""Change JSON straight from bytes equals that of the documents, byte for byte."""

import json
from collections.abc import Iterator
from copy import copy
from pathlib import Path

import pytest

from headrace.plugins import MODULUS, Batch, EncodedRecords
from headrace.sources.cassandra.agreement.intake import AgreedMutations
from headrace.sources.cassandra.batch import MutationBatch
from headrace.sources.cassandra.native import constants
from helpers.logs.forged import OTHER, SCHEMA, UNKNOWN, insert, mutation, update
from helpers.logs.node_logs import everything, forged_nodes
from helpers.logs.rich_rows import AT_US, PLAIN, UDT, UDT_VALUES, plain_row, udt_row
from helpers.recordings.corpora import FEW, LARGE, RECORDINGS, recording
from helpers.settings.native_modules import is_compiled

pytestmark = pytest.mark.hot

COMPILED = is_compiled("headrace.sources.cassandra.encode.json_changes")
ONE_COPY = {"consistency": "ONE", "splits": 1}
SHARING_A_LOG = 60  # Entries of one log.


def assert_same(slow: EncodedRecords, fast: EncodedRecords) -> None:
    """Compare column by column."""
    assert list(slow.keys) == list(fast.keys)
    assert list(slow.values) == list(fast.values)
    assert list(slow.headers) == list(fast.headers)
    assert list(slow.tables) == list(fast.tables)
    assert [(q.place, q.code, q.content) for q in slow.quarantined] == [
        (q.place, q.code, q.content) for q in fast.quarantined
    ]
    assert list(slow.sums()) == list(fast.sums())
    assert 0 == (slow.omitted - fast.omitted) % MODULUS


def written_directly(batch: Batch) -> EncodedRecords | None:
    """Return what is written from bytes; None if the documents are needed."""
    assert isinstance(batch, MutationBatch)
    return batch._deliveries.json_changes.encode(  # noqa: SLF001 (what `encode` tries first)
        batch._agreed,  # noqa: SLF001
        batch._nodes,  # noqa: SLF001
    )


def from_documents(batch: Batch) -> EncodedRecords:
    """Return what is written change by change, from documents."""
    assert isinstance(batch, MutationBatch)
    return batch._objects("json")  # noqa: SLF001 (what `encode` does otherwise)


def single(batch: Batch) -> Iterator[Batch]:
    """Yield a batch for each mutation of *batch*."""
    assert isinstance(batch, MutationBatch)
    agreed = batch._agreed  # noqa: SLF001 (a part of it)
    meta = list(agreed.meta[: agreed.count * constants.AGREED_WIDTH])
    for base in range(0, len(meta), constants.AGREED_WIDTH):
        start, end, *fields = meta[base : base + constants.AGREED_WIDTH]
        host, segment, position, copies, messaging, _, epoch, *digest = fields
        halves = [half % (1 << 64) for half in digest]
        only = AgreedMutations()
        given = (host, segment, position, copies, messaging, epoch, *halves)
        only.append(agreed.data, start, end, *given)
        one = copy(batch)
        one._agreed, one._intake = only, None  # noqa: SLF001
        one._omitted, one._unfit = {}, None  # noqa: SLF001
        yield one


@pytest.mark.soak
@pytest.mark.parametrize("name", RECORDINGS + LARGE if COMPILED else FEW)
def test_recorded_changes_are_written_as_their_documents_are(name: str) -> None:
    """Every change in a node's log, of all types and operations; none of them needs documents."""
    folder = recording(name)
    options = {"nodes": {"node1": str(folder / "segments")}, "schema": str(folder / "schema.cql")}
    made = 0

    for batch in everything(options | ONE_COPY):
        fast = written_directly(batch)
        assert fast is not None
        assert_same(from_documents(batch), fast)
        made += len(fast)

    assert made > 10


def test_an_agreed_ring_is_written_as_its_documents_are() -> None:
    """Copies, nodes and positions of several logs are the same, too."""
    folder = recording("5.0-ring")
    options: dict[str, object] = {
        "nodes": {f"node{n}": str(folder / "segments" / f"node{n}") for n in (1, 2, 3)},
        "schema": str(folder / "schema.cql"),
        "splits": 8,
    }

    made = 0
    for batch in everything(options):
        if made < 300 or COMPILED:
            fast = written_directly(batch)
            assert fast is not None
            assert_same(from_documents(batch), fast)
            made += len(fast)

    assert made >= 300


def test_changes_of_several_tables_are_counted(tmp_path: Path) -> None:
    """Also those of tables that the job does not have; each keeps its number and its checksum."""
    three = mutation(
        update(b"k", b"1", table=OTHER), update(b"k", b"2"), update(b"k", b"3", at_us=7)
    )
    raws = [insert(b"a", b"1"), three, insert(b"b", b'"\\\n\x7f\xc3\xa9')]
    nodes = forged_nodes(tmp_path, {"n1": raws, "n2": [], "n3": []}, SCHEMA)
    (batch,) = everything(nodes | ONE_COPY)

    fast = written_directly(batch)

    assert fast is not None
    assert [(1, 3), (2, 3)] == [(d["index"], d["of"]) for d in map(json.loads, fast.values)][1:3]
    assert_same(from_documents(batch), fast)


def test_a_batch_with_a_mutation_that_does_not_fit_is_written_from_documents(
    tmp_path: Path,
) -> None:
    """The other changes are there, and what does not fit is quarantined."""
    strange = mutation(update(b"k", b"v"), update(b"k", b"v", table=UNKNOWN), update(b"k", b"w"))
    raws = [insert(b"a", b"1"), strange, insert(b"b", b"2")]
    nodes = forged_nodes(tmp_path, {"n1": raws, "n2": [], "n3": []}, SCHEMA)
    (batch,) = everything(nodes | ONE_COPY)

    assert None is written_directly(batch)
    made = batch.encode("json")
    assert (2, [strange]) == (len(made), [lost.content for lost in made.quarantined])
    assert_same(from_documents(batch), made)


@pytest.mark.parametrize(
    ("whole", "version"),
    [
        (mutation(update(b"key", b"value"), update(b"key", b"other", at_us=9)), 7),
        (plain_row("ben"), 7),
        (plain_row("ben", replaces=False), 7),
        (plain_row("ben", version=9), 9),
        (udt_row(*UDT_VALUES.items(), replaces=True), 7),
        (udt_row(*UDT_VALUES.items()), 7),
    ],
    ids=("two updates", "plain", "appended to", "of 6.0", "of a UDT", "merged into a UDT"),
)
def test_damage_to_mutations_is_judged_alike(tmp_path: Path, whole: bytes, version: int) -> None:
    """Each truncated or flipped mutation alone gives the same changes, or is quarantined."""
    first = 21  # Before it, the log cannot be routed and stops.
    damaged = [whole] + [whole[:length] for length in range(first, len(whole))]
    for bit in range(8 * first, 8 * len(whole), 3 if COMPILED else 41):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        damaged.append(bytes(flipped))
    directly = 0
    for number in range(0, len(damaged), SHARING_A_LOG):
        folder = tmp_path / str(number)
        folder.mkdir()
        logs = {"n1": damaged[number : number + SHARING_A_LOG], "n2": [], "n3": []}
        nodes = forged_nodes(folder, logs, SCHEMA + PLAIN + UDT, version=version)
        for batch in everything(nodes | ONE_COPY | {"gaps": "expire"}):
            for one in single(batch):
                assert_same(from_documents(one), one.encode("json"))
                directly += written_directly(one) is not None

    assert directly >= 1


@pytest.mark.parametrize("positions", [(0,), (0, 1, 2, 3), (1, 2), (4,), (0, 4), (2, 1), ()])
@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.parametrize("form", ["plain", "another time", "removed", "empty", "damaged"])
def test_fields_of_a_udt_are_written_by_name(
    tmp_path: Path, positions: tuple[int, ...], form: str, *, replaces: bool
) -> None:
    """Live and removed ones, of one time and of several, also those that the type does not have."""
    values = dict.fromkeys(UDT_VALUES, {"removed": None, "empty": "", "damaged": "01"}.get(form))
    values = values if form in {"removed", "empty", "damaged"} else {**UDT_VALUES}
    cells = [(position, values.get(position, "00")) for position in positions]
    at_us = AT_US - 5 if form == "another time" else AT_US
    raws = [udt_row(*cells, at_us=at_us, replaces=replaces, column=c) for c in ("m", "w")]
    nodes = forged_nodes(tmp_path, {"n1": raws, "n2": [], "n3": []}, SCHEMA + UDT)
    (batch,) = everything(nodes | ONE_COPY)

    assert_same(from_documents(batch), batch.encode("json"))
