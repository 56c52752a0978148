"""Avro straight from bytes equals what fastavro makes of the records, byte for byte."""

from collections.abc import Mapping
from hashlib import sha256
from itertools import islice, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connector.serde.avro_types import definitions, standalone
from headrace.connector.serde.codecs.records import writer_of
from headrace.connector.serde.shaping import Shaper
from headrace.plugins import MODULUS, Batch, Codec, EncodedRecords, Encoding
from headrace.plugins.discovery import load
from headrace.sources.cassandra.agreement.intake import AgreedMutations
from headrace.sources.cassandra.encode.origin import ORIGIN
from headrace.sources.cassandra.encode.transcode import Transcoder
from headrace.sources.cassandra.forge.mutations import MESSAGING
from headrace.sources.cassandra.forge.segments import segment, write_segment
from headrace.sources.cassandra.mutation.parser import Cutter
from helpers.logs.forged import SCHEMA, UNKNOWN, insert, mutation, update
from helpers.logs.node_logs import everything, forged_nodes
from helpers.logs.rich_rows import AT_US, PLAIN, PLAIN_KEY, UDT, UDT_VALUES, plain_row, udt_row
from helpers.recordings.corpora import FEW, LARGE, RECORDINGS, recording
from helpers.settings.filled import filled
from helpers.settings.native_modules import is_compiled
from helpers.settings.seeds import is_soak

pytestmark = pytest.mark.hot

COMPILED = is_compiled("headrace.sources.cassandra.encode.transcode")
LOOKED_AT = 20  # Changes of a batch whose columns are compared.
FIRST_KEY_END = 1 + 16 + 1 + 3  # Before it, the log cannot be routed and stops.
SHARING_A_KEY = 60  # Entries of one log.
ONE_COPY = {"consistency": "ONE", "splits": 1}
PASSED = {"gaps": "expire"}  # Damage, too, where one copy is enough.


def codec() -> Codec:
    """Return the framework's own Avro."""
    made: Codec = load("codecs", "avro")()
    return made


def assert_same(slow: EncodedRecords, fast: EncodedRecords) -> None:
    """Compare column by column."""
    assert slow.keys == fast.keys
    assert slow.values == fast.values
    assert slow.headers == fast.headers
    assert slow.tables == fast.tables
    assert list(slow.quarantined) == list(fast.quarantined)
    assert [each.checksum for each in slow.quarantined] == [e.checksum for e in fast.quarantined]
    assert slow.checksums is not None
    assert fast.checksums is not None
    assert list(slow.checksums) == list(fast.checksums)
    assert 0 == (slow.omitted - fast.omitted) % MODULUS


def test_facts_take_32_bytes_for_a_change_and_48_for_a_mutation(tmp_path: Path) -> None:
    """A batch on its way keeps them; the checksums of its changes are elsewhere, to be dropped."""
    raws = [insert(b"k%d" % number, b"v") for number in range(300)]
    nodes = forged_nodes(tmp_path, {"n1": raws, "n2": [], "n3": []})
    (batch,) = everything(nodes | ONE_COPY)
    encoded = batch.encode("avro")
    facts = encoded.facts
    assert facts is not None
    columns = [facts.timestamps_us, facts.operations, facts.indexes, facts.mutations]
    columns += facts.places.values()
    kept = {id(column.obj): memoryview(column.obj).nbytes for column in columns}

    assert 300 == len(encoded)
    assert 300 * (32 + 48) == sum(kept.values()) + len(facts.ids)


@pytest.mark.soak
@pytest.mark.parametrize("name", RECORDINGS + LARGE if COMPILED else FEW)
def test_recorded_mutations_are_encoded_as_their_records_are(name: str) -> None:
    """Keys, values, headers and tables of every change in a node's log are the same."""
    folder = recording(name)
    options = {"nodes": {"node1": str(folder / "segments")}, "schema": str(folder / "schema.cql")}
    made = 0

    for batch in everything(options | ONE_COPY):
        fast, slow = batch.encode("avro"), codec().encode(batch)
        assert_same(slow, fast)
        assert_shapes(batch, fast)
        assert_starts(batch, fast)
        made += len(fast)

    assert made > 10


def assert_starts(batch: Batch, own: EncodedRecords) -> int:
    """Find each column of *own* where *batch* says; return how many changes it says it of."""
    placed = batch.encode("avro.starts")
    assert own == placed
    assert placed.starts is not None
    records = list(islice(batch.records(), LOOKED_AT))
    known = at = 0
    for record, value in zip(records, placed.values, strict=False):
        payload = next(f["type"] for f in record.schema.value["fields"] if f["name"] == "payload")
        starts = placed.starts[at : at + len(payload["fields"]) + 1].tolist()
        at += len(starts)
        if starts[0] >= 0:
            known += 1
            row = record.value["payload"]
            whole = writer_of(standalone(payload, definitions(record.schema.value), set()))(row)
            assert whole == value[starts[0] : starts[-1]]
            for field, (begin, end) in zip(payload["fields"], pairwise(starts), strict=True):
                kind = standalone(field["type"], definitions(record.schema.value), set())
                assert writer_of(kind)(row[field["name"]]) == value[begin:end]
    assert at == len(placed.starts) or len(records) == LOOKED_AT
    return known


def assert_shapes(batch: Batch, own: EncodedRecords) -> None:
    """Compare what *batch* writes in another envelope or under another key with *own*, reshaped."""
    for envelope, key in (("flat", "partition"), ("cep44", "primary"), ("flat", "primary")):
        shaper = Shaper(Encoding(codec="avro", envelope=envelope, key=key), ORIGIN)
        assert shaper.knows(batch, own)
        shaped, fast = shaper.reshape(own), batch.encode(shaper.encoding)
        assert (shaped.keys, shaped.values) == (fast.keys, fast.values)
        assert (own.headers, own.tables) == (fast.headers, fast.tables)
        assert list(own.quarantined) == list(fast.quarantined)


def test_an_agreed_ring_is_encoded_as_its_records_are() -> None:
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
            fast = batch.encode("avro")
            assert_same(codec().encode(batch), fast)
            made += len(fast)

    assert made >= 300


def test_write_times_of_every_length_are_encoded(tmp_path: Path) -> None:
    """Where a number takes a byte more, and where it is negative."""
    powers = [1 << bits for bits in range(63)]
    times = sorted({sign * power - less for power in powers for sign in (1, -1) for less in (0, 1)})
    raws = [insert(b"%d" % at_us, b"v", at_us=at_us) for at_us in times]
    batches = everything(
        forged_nodes(tmp_path, {"n1": raws, "n2": [], "n3": []}, SCHEMA) | ONE_COPY
    )

    made = 0
    for batch in batches:
        fast = batch.encode("avro")
        assert_same(codec().encode(batch), fast)
        made += len(fast)

    assert len(times) == made


@pytest.mark.parametrize("count", [0, 2])
def test_a_delivered_table_behind_an_unknown_one_is_quarantined(tmp_path: Path, count: int) -> None:
    """With its bytes and its place, and without any of its changes."""
    strange = mutation(
        *[update(b"k", b"v", at_us=i) for i in range(count)],
        update(b"k", b"v", table=UNKNOWN),
        update(b"k", b"w"),
    )
    raws = [insert(b"a", b"1"), strange, insert(b"b", b"2")]
    (batch,) = everything(
        forged_nodes(tmp_path, {"n1": raws, "n2": [], "n3": []}, SCHEMA) | ONE_COPY
    )

    fast = batch.encode("avro")

    (lost,) = fast.quarantined
    assert (strange, "unknown_table") == (lost.content, lost.code)
    assert lost.place.endswith(f"entry that ends at {segment([raws]).ends[1]}")
    assert UNKNOWN.hex in lost.message
    assert 2 == len(fast)
    assert_same(codec().encode(batch), fast)


@pytest.mark.parametrize("version", [7, 8, 9])
@pytest.mark.parametrize("count", [1, 3])
def test_what_stands_before_an_unknown_table_is_delivered(
    tmp_path: Path, count: int, version: int
) -> None:
    """Nothing to deliver can be behind it: no id of such a table is there."""
    messaging = MESSAGING[version]
    updates = [update(b"k", b"v", at_us=i, messaging=messaging) for i in range(count)]
    unknown = [update(b"k", b"v", table=UNKNOWN, messaging=messaging) for _ in range(2)]
    options = forged_nodes(tmp_path, {"n2": [], "n3": []}, SCHEMA) | ONE_COPY
    options["nodes"] = {n: str(tmp_path / n) for n in ("n1", "n2", "n3")}
    strange = mutation(*updates, *unknown, messaging=messaging)
    write_segment(tmp_path / "n1", segment([[strange]], version=version).content, version=version)
    (batch,) = everything(options)

    fast = batch.encode("avro")

    assert (count, []) == (len(fast), list(fast.quarantined))
    assert_same(codec().encode(batch), fast)


def test_what_is_no_neighbour_is_no_reason_to_deliver(tmp_path: Path) -> None:
    """Bytes where no update of the same key stands show that the schema is wrong, not a table."""
    other_key = mutation(update(b"k", b"v"), update(b"x", b"v", table=UNKNOWN))
    cut_short = mutation(update(b"k", b"v"), UNKNOWN.bytes + b"\x05")
    (batch,) = everything(
        forged_nodes(tmp_path, {"n1": [other_key, cut_short], "n2": [], "n3": []}, SCHEMA)
        | ONE_COPY
    )

    fast = batch.encode("avro")

    assert [other_key, cut_short] == [lost.content for lost in fast.quarantined]
    assert_same(codec().encode(batch), fast)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("whole", "version"),
    [
        (mutation(update(b"key", b"value"), update(b"key", b"other", at_us=9)), 7),
        (plain_row("ben"), 7),
        (plain_row("ben", replaces=False), 7),
        (plain_row("bent"), 7),  # In messages, not in the log, the set precedes a simple column.
        (plain_row("ben", version=9), 9),
        (plain_row("ben", kind="update"), 7),
        (plain_row("ben", kind="update", replaces=False), 7),
        (plain_row("ben", kind="update", late="en"), 7),
        (plain_row("ben", kind="expiring"), 7),
        (plain_row("bent", kind="expiring", version=9), 9),
        (udt_row(*UDT_VALUES.items(), replaces=True), 7),
        (udt_row(*UDT_VALUES.items(), kind="update"), 7),
        (udt_row(*UDT_VALUES.items(), kind="expiring"), 7),
    ],
    ids=(
        *("two updates", "plain", "appended to", "by another order", "of 6.0", "an update"),
        *("an update that appends", "an update at two times", "with a TTL", "with a TTL, of 6.0"),
        *("of a UDT", "an update of a UDT", "of a UDT with a TTL"),
    ),
)
def test_damage_to_mutations_is_judged_alike(tmp_path: Path, whole: bytes, version: int) -> None:
    """Truncated and flipped mutations are encoded the same, or quarantined the same, both ways."""
    damaged = [whole] + [whole[:length] for length in range(FIRST_KEY_END, len(whole))]
    step = (1 if is_soak() else 3) if COMPILED else 31  # Odd: all bits of a byte have turns.
    for bit in range(8 * FIRST_KEY_END, 8 * len(whole), step):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        damaged.append(bytes(flipped))
    # Each is compared with all before it: most have the key of the whole one, and odd times.
    for first in range(0, len(damaged), SHARING_A_KEY):
        folder = tmp_path / str(first)
        folder.mkdir()
        logs = {"n1": damaged[first : first + SHARING_A_KEY], "n2": [], "n3": []}
        schema = SCHEMA + PLAIN + UDT
        check_both_ways(forged_nodes(folder, logs, schema, version=version) | ONE_COPY | PASSED)


@pytest.mark.skipif(COMPILED, reason="compiled code calls the cutter without its Python method")
@pytest.mark.parametrize("kind", ["insert", "update", "expiring"])
def test_a_plain_row_is_not_cut(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An insert, an insert with a TTL and an update are encoded in one pass."""
    raw = plain_row("ben", kind=kind, is_complex=False)
    options = forged_nodes(tmp_path, {"n1": [raw], "n2": [], "n3": []}, SCHEMA + PLAIN) | ONE_COPY
    (batch,) = everything(options)
    monkeypatch.delattr(Cutter, "cut_range")

    assert 1 == len(batch.encode("avro"))


@pytest.mark.parametrize("kind", ["insert", "update", "expiring"])
@pytest.mark.parametrize("is_complex", [False, True])
def test_columns_of_a_plain_row_are_found(kind: str, tmp_path: Path, *, is_complex: bool) -> None:
    """Where columns begin is known of a mutation that is encoded in one pass."""
    raw = plain_row("ben", kind=kind, is_complex=is_complex)
    options = forged_nodes(tmp_path, {"n1": [raw], "n2": [], "n3": []}, SCHEMA + PLAIN) | ONE_COPY
    (batch,) = everything(options)

    assert (COMPILED or not is_complex) == assert_starts(batch, batch.encode("avro"))


def check_both_ways(options: Mapping[str, object]) -> None:
    """Check that bytes and records give the same messages and quarantined mutations."""
    for batch in filled(everything(options)):
        fast, slow = batch.encode("avro"), codec().encode(batch)
        assert [(q.place, q.code, q.content) for q in slow.quarantined] == [
            (q.place, q.code, q.content) for q in fast.quarantined
        ]
        assert slow.values == fast.values
        assert slow.keys == fast.keys
        assert_shapes(batch, fast)


@pytest.mark.parametrize(
    "positions", [(0,), (3,), (0, 1, 2, 3), (1, 2), (4,), (0, 4), (2, 1), (1, 1), (0xFFFF,), ()]
)
@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.parametrize("form", ["plain", "another time", "removed", "empty", "damaged"])
def test_fields_of_a_udt_are_encoded_by_name(
    tmp_path: Path, positions: tuple[int, ...], form: str, *, replaces: bool
) -> None:
    """Both ways alike; cells without a field in the schema, or in disorder, are quarantined."""
    values = dict.fromkeys(UDT_VALUES, {"removed": None, "empty": "", "damaged": "01"}.get(form))
    values = values if form in {"removed", "empty", "damaged"} else {**UDT_VALUES}
    cells = [(position, values.get(position, "00")) for position in positions]
    at_us = AT_US - 5 if form == "another time" else AT_US
    raws = [udt_row(*cells, at_us=at_us, replaces=replaces, column=column) for column in ("m", "w")]
    options = forged_nodes(tmp_path, {"n1": raws, "n2": [], "n3": []}, SCHEMA + UDT) | ONE_COPY

    (batch,) = everything(options)
    fast, slow = batch.encode("avro"), codec().encode(batch)

    assert_same(slow, fast)
    ordered = sorted(set(positions) & set(UDT_VALUES)) == list(positions)
    fits = ordered and (form != "damaged" or set(positions) <= {1})
    assert (2 if fits else 0) == len(fast)


def test_keys_of_every_length_are_encoded(tmp_path: Path) -> None:
    """Where the length of a key takes a byte more, too."""
    parts = [b"k" * length for length in range(300)]
    keys = [len(k).to_bytes(2, "big") + k + b"\0" + PLAIN_KEY[-7:] for k in parts]
    raws = [plain_row("ben", key=key) for key in keys]
    options = forged_nodes(tmp_path, {"n1": raws, "n2": [], "n3": []}, SCHEMA + PLAIN) | ONE_COPY

    made = 0
    for batch in everything(options):
        fast = batch.encode("avro")
        assert_same(codec().encode(batch), fast)
        made += len(fast)

    assert len(raws) == made


def test_a_key_cannot_pose_as_its_row(tmp_path: Path) -> None:
    """Were the length of a long key taken for a short one, its end would be read as a row."""
    rest = insert(b"k", b"v")[FIRST_KEY_END - 2 :]
    posing = insert(b"k", bytes(len(rest) - 1))[FIRST_KEY_END - 2 : -len(rest)]
    raw = insert(b"f" * 127 + posing, b"v")
    options = forged_nodes(tmp_path, {"n1": [raw], "n2": [], "n3": []}) | ONE_COPY

    (batch,) = everything(options)

    assert_same(codec().encode(batch), batch.encode("avro"))


@pytest.mark.parametrize(("end", "fits"), [(b"x", True), ("é".encode(), True), (b"\xff", False)])
@pytest.mark.parametrize("columns", ["ben", "bent"])
def test_text_of_every_length_is_judged(
    tmp_path: Path, columns: str, end: bytes, *, fits: bool
) -> None:
    """Among simple columns and in a set, and where only its last character is not ASCII."""
    raws = [plain_row(columns, text=b"t" * length + end) for length in range(140)]
    options = forged_nodes(tmp_path, {"n1": raws, "n2": [], "n3": []}, SCHEMA + PLAIN) | ONE_COPY

    made = 0
    for batch in everything(options):
        fast, slow = batch.encode("avro"), codec().encode(batch)
        assert slow.values == fast.values
        assert [q.content for q in slow.quarantined] == [q.content for q in fast.quarantined]
        made += len(fast)

    assert len(raws) * fits == made


@given(sizes=st.lists(st.sampled_from([*range(130), 183, 184, 1_000, 9_000]), max_size=50))
def test_a_mutation_is_named_by_the_digest_of_its_bytes(sizes: list[int]) -> None:
    """Half of SHA-256, however many go side by side and wherever each of them ends."""
    raws = [bytes((size + at) & 0xFF for at in range(size)) for size in sizes]
    agreed = AgreedMutations()
    for raw in raws:
        agreed.append(memoryview(raw), 0, len(raw), 0, 1, 1, 1, MESSAGING[7], 0, 0, 0)
    transcoder = Transcoder(None)  # type: ignore[arg-type]  # It encodes nothing.

    transcoder.identify(agreed)

    assert [sha256(raw).digest()[:16] for raw in raws] == [
        bytes(transcoder.ids[16 * i : 16 * i + 16]) for i in range(len(raws))
    ]
