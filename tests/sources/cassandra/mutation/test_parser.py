"""Cutting raw mutations: real ones to the end, damaged ones never beyond it."""

from functools import cache
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.cassandra.log import LogEntries
from headrace.sources.cassandra.mutation.errors import BadMutationError, UnknownTableError
from headrace.sources.cassandra.mutation.parser import Cutter
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.layout import Catalogue
from helpers.logs.forged import SCHEMA, insert
from helpers.logs.sample_log import segments
from helpers.recordings.corpora import recording
from helpers.settings.filled import filled

pytestmark = pytest.mark.hot

RECORDINGS = (
    "4.0-ops",
    "4.0-types",
    "4.1-random",
    "5.0-compact",
    "5.0-ops",
    "5.0-random",
    "5.0-types",
    "5.0-v8-random",
    "6.0-v9-ops",
    "6.0-v9-random",
    "6.0-v9-types",
)
_NAME_BASED = 3  # The version of the ids of Cassandra's own tables, which no schema here has.
_SMALL_BYTES = 400

Raw = tuple[int, bytes]


def cutter(name: str) -> Cutter:
    """Return a cutter with the schema of a recording."""
    text = (recording(name) / "schema.cql").read_text()
    return Cutter(Catalogue(parse_schema(text)))


@cache
def raws(name: str) -> tuple[Raw, ...]:
    """Return (messaging version, raw mutation) of the tables that the recording's schema has."""
    found = []
    for path in segments(recording(name) / "segments"):
        with path.open("rb") as stream:
            entries = LogEntries(stream)
            messaging = entries.descriptor.messaging
            found += [(messaging, raw) for raw in entries]
    return tuple(found)


@cache
def few(name: str) -> tuple[Raw, ...]:
    """Return some small mutations of the recording's own tables."""
    made = cutter(name)
    own = [(m, raw) for m, raw in raws(name) if len(raw) < _SMALL_BYTES and is_known(made, m, raw)]
    return tuple(Random(name).sample(own, min(len(own), 40)))  # noqa: S311 (a test's dice)


def is_known(made: Cutter, messaging: int, raw: bytes) -> bool:
    """Tell whether the mutation is of a table in the schema."""
    try:
        made.cut(raw, 0, len(raw), messaging)
    except UnknownTableError:
        return False
    return True


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_recorded_mutation_is_cut_to_its_end(name: str) -> None:
    """Only Cassandra's own and dropped tables are refused; all ranges lie in the mutation."""
    made = cutter(name)
    cut = 0
    unknown: set[bytes] = set()
    for messaging, raw in raws(name):
        # Bytes around it must not matter.
        padded = b"\xaa" * 7 + raw + b"\x55" * 9
        try:
            count = made.cut(padded, 7, 7 + len(raw), messaging)
        except UnknownTableError as error:
            unknown.add(error.table_id)
            continue
        assert count > 0
        assert all(7 <= start <= end <= 7 + len(raw) for start, end in parts_of(made, count))
        cut += 1

    assert cut > 10
    # In these a table was dropped before the schema was written.
    dropped = 1 if name.endswith("ops") else 0
    assert dropped == sum(table_id[6] >> 4 != _NAME_BASED for table_id in unknown)


def parts_of(made: Cutter, count: int) -> list[tuple[int, int]]:
    """Return where the parts of the operations that have any begin and end."""
    words = made.operations[: count * constants.WIDTH].tolist()
    return [
        (words[base + at], words[base + at] + words[base + length])
        for base in range(0, len(words), constants.WIDTH)
        for at, length in (
            (constants.START, constants.LENGTH),
            (constants.PATH, constants.PATH_LENGTH),
        )
        if words[base + length] > 0
    ]


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_truncation_is_refused(name: str) -> None:
    """A mutation that ends too early is a bad one, wherever it ends."""
    made = cutter(name)
    for messaging, raw in filled(few(name)):
        for length in range(len(raw)):
            with pytest.raises(BadMutationError):
                made.cut(raw, 0, length, messaging)


@pytest.mark.parametrize("name", RECORDINGS)
def test_trailing_bytes_are_refused(name: str) -> None:
    """A mutation with bytes after its last update is bad."""
    made = cutter(name)
    for messaging, raw in filled(few(name)):
        with pytest.raises(BadMutationError, match="1 bytes are left after the last update"):
            made.cut(raw + b"\0", 0, len(raw) + 1, messaging)


@given(choice=st.data())
def test_wrong_bytes_are_refused_or_stay_inside(choice: st.DataObject) -> None:
    """With any changed bytes, nothing but a bad mutation is raised, nothing outside is read."""
    name = choice.draw(st.sampled_from(RECORDINGS))
    messaging, raw = choice.draw(st.sampled_from(few(name)))
    damaged = bytearray(raw)
    for _ in range(choice.draw(st.integers(1, 3))):
        damaged[choice.draw(st.integers(0, len(raw) - 1))] = choice.draw(st.integers(0, 255))
    made = cutter_of(name)

    try:
        count = made.cut(bytes(damaged), 0, len(damaged), messaging)
    except BadMutationError:
        return
    assert count > 0
    assert all(0 <= start <= end <= len(damaged) for start, end in parts_of(made, count))


@cache
def cutter_of(name: str) -> Cutter:
    """Return a cutter that is used again and again."""
    return cutter(name)


def test_a_refused_mutation_leaves_nothing_behind() -> None:
    """The next one is cut as if there had been no other."""
    made = Cutter(Catalogue(parse_schema(SCHEMA)))
    good = insert(b"key", b"value")
    count = made.cut(good, 0, len(good), 12)
    expected = made.operations[: count * constants.WIDTH].tolist()

    for length in range(len(good)):
        with pytest.raises(BadMutationError):
            made.cut(good, 0, length, 12)
        assert count == made.cut(good, 0, len(good), 12)
        assert expected == made.operations[: count * constants.WIDTH].tolist()


def test_a_column_that_is_listed_twice_is_refused() -> None:
    """Cassandra never writes it; code that keeps one place per column would be wrong."""
    raw = insert(b"k", b"v")
    once, twice = b"\x01\x01v\x01\x24", b"\x02\x01v\x01v\x01\x24"
    assert 1 == raw.count(once)
    twofold = raw.replace(once, twice).replace(b"\x08\x01v\x01", b"\x08\x01v\x08\x01v\x01")
    made = Cutter(Catalogue(parse_schema(SCHEMA)))

    assert made.cut(raw, 0, len(raw), 12) > 0
    with pytest.raises(BadMutationError, match="listed twice"):
        made.cut(twofold, 0, len(twofold), 12)
