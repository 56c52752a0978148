"""Values too large for a message: policies, claims and chunks, and how they are read back."""

import json
import os
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connector.serde import Encoder
from headrace.connector.serde.large import (
    BrokenChunkError,
    ClaimLostError,
    DirectoryClaimStore,
    DirectoryConfig,
    Reassembler,
    ValueTooLargeError,
    resolved,
)
from headrace.connector.serde.transforms.chain import Chain
from headrace.plugins import (
    Document,
    EncodedRecords,
    Encoding,
    NumberPosition,
    Operation,
    Record,
    RecordBatch,
    RecordSchema,
    SinkOptions,
    parse_config,
)
from headrace.plugins.records.codecs import chunk_id_of

BYTES_MAX = 2_000
FIELDS = [
    {"name": "id", "type": ["null", "int"]},
    {"name": "note", "type": ["null", "string"]},
    {"name": "blob", "type": ["null", "bytes"]},
]
PAYLOAD = {"type": "record", "name": "Payload", "fields": FIELDS}
VALUE: Document = {
    "type": "record",
    "name": "Change",
    "fields": [
        {"name": "truncatedFields", "type": {"type": "array", "items": "string"}},
        {"name": "payload", "type": PAYLOAD},
    ],
}
KEY: Document = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
SCHEMA = RecordSchema.of("ks.t", "CREATE TABLE ks.t (…)", key=KEY, value=VALUE)
OTHER = RecordSchema.of("ks.other", "CREATE TABLE ks.other (…)", key=KEY, value=VALUE)


def change(number: int, note: str = "", blob: bytes = b"") -> Record:
    """Return a change."""
    payload = {"id": number, "note": note, "blob": blob}
    return Record(
        key={"id": number},
        value={"truncatedFields": [], "payload": payload},
        operation=Operation.INSERT,
        timestamp_us=0,
        schema=SCHEMA,
    )


def encoded(*records: Record, folder: Path = Path("nowhere"), **options: str) -> EncodedRecords:
    """Return records in JSON of at most BYTES_MAX bytes; `_` in option names stands for `.`."""
    given = {key.replace("_", "."): value for key, value in options.items()}
    parsed = parse_config(SinkOptions, given)
    encoder = Encoder(
        Encoding(codec="json", envelope="cep44", value_bytes_max=BYTES_MAX),
        chain=Chain(parsed),
        options=parsed,
        claims=DirectoryClaimStore(DirectoryConfig(path=str(folder))),
    )
    return encoder.encode(RecordBatch("all", NumberPosition(0), 0, list(records)), token=1)


def documents(found: EncodedRecords) -> Sequence[Document]:
    """Return the values."""
    return [json.loads(value) for value in found.values]


def test_by_default_the_sink_decides() -> None:
    """O06: by default the sink rejects a value that is too large, which is dead-lettered."""
    small, large = change(1), change(2, "x" * 5_000)

    assert 5_000 < len(encoded(small, large).values[1])


def test_a_split_can_stop_at_a_large_value() -> None:
    """`fail` stops the split; the error has the table, the size, and the limit."""
    assert 1 == len(encoded(change(1), large_policy="fail"))
    with pytest.raises(ValueTooLargeError, match="allowed are 2000") as caught:
        encoded(change(1, "x" * 5_000), large_policy="fail")

    assert "table ks.t" == caught.value.place


def test_a_table_can_have_a_policy_of_its_own() -> None:
    """O06: a table's own policy overrides the default policy."""
    found = encoded(change(1, "x" * 5_000), large_policy="fail", large_policy_ks_t="dlq")

    assert 1 == len(found)


@pytest.mark.parametrize(
    ("note", "blob", "names"),
    [
        ("x" * 5_000, b"", ["note"]),
        ("", bytes(5_000), ["blob"]),
        ("x" * 2_500, bytes(4_000), ["blob", "note"]),
        ("é" * 3_000, b"", ["note"]),
    ],
    ids=["text", "bytes", "both", "characters of two bytes"],
)
def test_what_is_cut_off_is_named(note: str, blob: bytes, names: Sequence[str]) -> None:
    """O06: the longest columns are truncated until the value fits, and are named."""
    small, cut = documents(encoded(change(1), change(2, note, blob), large_policy="truncate"))

    assert ([], names) == (small["truncatedFields"], cut["truncatedFields"])
    assert note.startswith(cut["payload"]["note"])
    assert len(json.dumps(cut, ensure_ascii=False).encode()) <= BYTES_MAX + 20  # Blanks.


def test_what_was_left_out_moves_no_cut(tmp_path: Path) -> None:
    """After a filter, the truncated columns are those of the record itself."""
    records = [change(n, "x" * 2_000 + str(n) * 2_000) for n in range(4)]
    for index in (0, 2):
        records[index].schema = OTHER
    options = {
        "large_policy": "truncate",
        "transforms": "drop",
        "transforms_drop_type": "Filter",
        "transforms_drop_predicate": "other",
        "predicates": "other",
        "predicates_other_type": "TableMatches",
        "predicates_other_pattern": "ks.other",
    }

    found = encoded(*records, folder=tmp_path, **options)

    assert [1, 3] == [each["payload"]["id"] for each in documents(found)]
    assert all(len(value) <= BYTES_MAX for value in found.values)
    assert {"ks.other": 2} == found.filtered


def test_what_cannot_be_made_to_fit_stays_whole() -> None:
    """A value that cannot be made small enough is not truncated, and is dead-lettered whole."""
    wide = {"name": "rest", "type": ["null", {"type": "array", "items": "string"}]}
    fields = [
        VALUE["fields"][0],
        {"name": "payload", "type": {**PAYLOAD, "fields": [*FIELDS, wide]}},
    ]
    record = change(1, "x" * 5_000)
    record.schema = RecordSchema.of("ks.t", "", key=KEY, value={**VALUE, "fields": fields})
    record.value = {**record.value, "payload": {**record.value["payload"], "rest": ["y"] * 5_000}}

    assert encoded(record).values == encoded(record, large_policy="truncate").values


def test_bytes_keep_what_fits() -> None:
    """In JSON three bytes take four characters: no more bytes are removed than necessary."""
    (value,) = encoded(change(1, "", bytes(5_000)), large_policy="truncate").values

    assert BYTES_MAX - 150 < len(value) <= BYTES_MAX


def test_a_key_is_never_cut_off() -> None:
    """Keys are never truncated, so that rows stay distinct; the value stays too large."""
    keyed = {**PAYLOAD, "partitionKey": ["note"], "clustering": ["blob"]}
    fields = [VALUE["fields"][0], {"name": "payload", "type": keyed}]
    schema = RecordSchema.of("ks.t", SCHEMA.text, key=KEY, value={**VALUE, "fields": fields})
    record = change(1, "x" * 5_000, bytes(5_000))
    record.schema = schema

    (found,) = documents(encoded(record, large_policy="truncate"))

    assert ([], "x" * 5_000) == (found["truncatedFields"], found["payload"]["note"])


def test_a_claim_leads_back_to_the_value(tmp_path: Path) -> None:
    """A claim has the path of the value, its size and checksum; the message keeps its key."""
    whole = encoded(change(7, "x" * 5_000)).values[0]
    found = encoded(change(6), change(7, "x" * 5_000), large_policy="claim-check", folder=tmp_path)
    headers = dict(found.headers[1])

    claim = json.loads(found.values[1])
    assert {"claim", "bytes", "sha256"} == claim.keys()
    assert (len(whole), claim["claim"].encode()) == (claim["bytes"], headers["claimCheck"])
    assert whole == resolved(found.values[1], headers, tmp_path)
    assert found.values[0] == resolved(found.values[0], dict(found.headers[0]), tmp_path)
    assert b'{"id":7}' == found.keys[1]


def test_old_claims_are_removed(tmp_path: Path) -> None:
    """The first value after a start deletes claims that are older than the retention."""
    large = {"large_policy": "claim-check", "folder": tmp_path}
    old, young = (encoded(change(n, "x" * 5_000), **large) for n in (1, 2))  # type: ignore[arg-type]
    paths = [tmp_path / json.loads(each.values[0])["claim"] for each in (old, young)]
    os.utime(paths[0], (time.time() - 7_300,) * 2)
    store = DirectoryClaimStore(DirectoryConfig(path=str(tmp_path), retention_hours=2))

    store.put("ff" * 16, b"new")

    assert [False, True] == [path.exists() for path in paths]


def test_a_claim_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    """A claim whose file was changed, deleted, or is elsewhere gives an error."""
    found = encoded(change(7, "x" * 5_000), large_policy="claim-check", folder=tmp_path)
    value, headers = found.values[0], dict(found.headers[0])
    path = tmp_path / json.loads(value)["claim"]

    path.write_bytes(b"other")
    with pytest.raises(ClaimLostError, match="something else"):
        resolved(value, headers, tmp_path)
    path.unlink()
    with pytest.raises(ClaimLostError):
        resolved(value, headers, tmp_path)
    elsewhere = json.dumps({**json.loads(value), "claim": "../../etc/passwd"}).encode()
    with pytest.raises(ClaimLostError, match="out of the folder"):
        resolved(elsewhere, headers, tmp_path)


@pytest.mark.parametrize("value", [b"", b"\xff", b"[]", b"{}", b'{"claim": 1, "sha256": ""}'])
def test_a_claim_that_is_none_is_named(tmp_path: Path, value: bytes) -> None:
    """A message with the header of a claim, but without a claim, gives a named error."""
    with pytest.raises(ClaimLostError, match="no claim"):
        resolved(value, {"claimCheck": b"x"}, tmp_path)


def test_a_folder_that_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    """A folder that cannot be written is retried: no claim is sent without its value."""
    (tmp_path / "file").write_text("")

    with pytest.raises(ClaimLostError):
        encoded(change(1, "x" * 5_000), large_policy="claim-check", folder=tmp_path / "file")


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file grow beyond 1,000 bytes: what is longer is written in part, and fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("is_there", [False, True])
def test_a_value_is_kept_whole_or_not_at_all(tmp_path: Path, *, is_there: bool) -> None:
    """A disk that is full leaves no part of a value, and one that is there already stays."""
    store, name, content = DirectoryClaimStore(DirectoryConfig(path=str(tmp_path))), "ff" * 16, b"x"
    path = tmp_path / "ff" / name
    if is_there:
        store.put(name, content * 5_000)
    with full_disk(), pytest.raises(ClaimLostError):
        store.put(name, content * 5_000)

    assert is_there == path.exists()
    assert f"ff/{name}" == store.put(name, content * 5_000)
    assert content * 5_000 == path.read_bytes()


def test_a_value_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is on disk before a message names it: an fsync that fails is an error."""

    def fail(_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ClaimLostError, match="Input/output error"):
        DirectoryClaimStore(DirectoryConfig(path=str(tmp_path))).put("ff" * 16, b"1")

    assert not (tmp_path / "ff" / ("ff" * 16)).exists()


def chunk(whole: bytes, number: int, count: int) -> Mapping[str, bytes]:
    """Return the headers of a chunk."""
    sums = {"chunk.id": chunk_id_of(whole)}
    return {**sums, "chunk.index": b"%d" % number, "chunk.count": b"%d" % count}


def parts(whole: bytes, size: int) -> Sequence[tuple[bytes, Mapping[str, bytes]]]:
    """Return the chunks of a value, with their headers."""
    cut = [whole[begin : begin + size] for begin in range(0, len(whole), size)]
    return [(part, chunk(whole, number, len(cut))) for number, part in enumerate(cut)]


@given(order=st.permutations([(n, i) for n in (b"a", b"b") for i in range(3)]), again=st.booleans())
def test_chunks_are_joined_in_any_order(order: list[tuple[bytes, int]], *, again: bool) -> None:
    """Chunks of several values may be mixed, in any order, and repeated."""
    joiner = Reassembler()
    found = []
    for name, number in order:
        times = 1 + (again and number == 0 and order[-1] != (name, 0))
        headers = chunk(name * 6, number, 3)
        found += [joiner.add(name * (number + 1), headers) for _ in range(times)]

    assert {b"aaaaaa", b"bbbbbb"} <= set(found)
    assert b"plain" == joiner.add(b"plain", {})


def test_what_stays_incomplete_is_forgotten() -> None:
    """Above the bound the value that waited longest is dropped; complete ones are returned."""
    joiner = Reassembler(bytes_max=10)
    old, new = b"123456780", b"123456789"
    assert joiner.add(old[:8], chunk(old, 0, 2)) is None
    assert joiner.add(new[:8], chunk(new, 0, 2)) is None

    assert joiner.add(old[8:], chunk(old, 1, 2)) is None
    assert new == joiner.add(new[8:], chunk(new, 1, 2))


def test_what_still_comes_is_kept() -> None:
    """The value that got no chunk for the longest time is dropped, not the oldest value."""
    joiner = Reassembler(bytes_max=10)
    first, *rest = parts(b"123456789", 3)
    joiner.add(*first)
    joiner.add(b"abcd", chunk(b"abcde", 0, 2))

    assert [None, b"123456789"] == [joiner.add(*each) for each in rest]


@given(
    whole=st.binary(min_size=2, max_size=40),
    sizes=st.lists(st.integers(1, 39), min_size=2, max_size=3),
    died=st.integers(1, 40),
)
def test_a_value_sent_again_in_other_parts_is_the_same(
    whole: bytes, sizes: list[int], died: int
) -> None:
    """After a crash the producer may send the value again with another `large.bytes`."""
    joiner = Reassembler()
    *before, last = (parts(whole, size) for size in sizes)
    found = [joiner.add(*each) for attempt in before for each in attempt[:died]]
    found += [joiner.add(*each) for each in last]

    assert {whole} == {value for value in found if value is not None}


@pytest.mark.parametrize(
    "place",
    [
        {},
        {"chunk.index": b"0"},
        {"chunk.index": b"-1", "chunk.count": b"2"},
        {"chunk.index": b"2", "chunk.count": b"2"},
        {"chunk.index": b"0", "chunk.count": b"0"},
        {"chunk.index": "²".encode(), "chunk.count": b"2"},
    ],
)
def test_a_part_that_does_not_say_which(place: Mapping[str, bytes]) -> None:
    """A chunk with invalid headers is refused, and nothing of it is kept."""
    joiner = Reassembler(bytes_max=0)

    with pytest.raises(BrokenChunkError):
        joiner.add(b"x", {"chunk.id": b"0" * 16, **place})
    assert b"12" == [joiner.add(*each) for each in parts(b"12", 1)][-1]
