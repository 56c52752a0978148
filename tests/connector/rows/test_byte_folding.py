"""Folding the bytes of changes makes the states that folding decoded changes makes."""

import random
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec
import pytest

from headrace.connector.rows.byte_folding import ByteFold, is_single, schema_id_of, single_of
from headrace.connector.rows.fold_plans import plan_of
from headrace.connector.rows.folding import State, TableView, row_key
from headrace.connector.rows.message_pack import BadStateError
from headrace.connector.serde import Encoder
from headrace.connector.serde.codecs.records import UnfitRecordError, reader_of, writer_of
from headrace.connector.serde.transcode.walk import BadAvroError
from headrace.plugins import Encoding, Operation, RecordSchema
from headrace.plugins.records.record import OPERATIONS
from helpers.histories.plain_fold import add
from helpers.histories.whole_changes import schema_of, whole
from helpers.recordings.batches import recorded_batches
from helpers.settings.native_modules import long
from helpers.settings.seeds import soaked

pytestmark = pytest.mark.hot

WIDE = (Operation.DELETE_RANGE, Operation.DELETE_PARTITION)
RECORDINGS = (
    *("4.1-schema", "5.0-types", *map(long, ("4.1-ops", "6.0-v9-random"))),
    *soaked("5.0-random"),
)
PACK = msgspec.msgpack.Encoder()
UNPACK = msgspec.msgpack.Decoder()
DDL = """
CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
CREATE TYPE k.money (zloty int, amount double);
CREATE TABLE k.t (id int, at int, n int, f float, d double, t text, b blob, yes boolean,
  fixed frozen<list<int>>, whole frozen<money>, tags set<text>, l list<int>, m map<int, text>,
  prices map<frozen<money>, int>, price money, s int static, PRIMARY KEY (id, at))
WITH ID = 00000000-0000-1000-8000-000000000003 AND cdc = true;
"""
MONEY = ({"zloty": 1, "amount": 2.5}, {"zloty": None, "amount": -0.0}, {"zloty": 1, "amount": None})
VALUES: Mapping[str, tuple[Any, ...]] = {
    "n": (None, 0, -1, 127, -33, 128, 255, -129, 65_536, (1 << 31) - 1, -(1 << 31)),
    "f": (None, 0.0, -0.0, 1.5, float("inf"), -2.25),
    "d": (None, 0.0, -0.0, 0.1, float("-inf"), 1e300),
    "t": (None, "", "a", "b", "é" * 20, "x" * 300),
    "b": (None, b"", b"a", b"b" * 256, b"c" * 70_000),
    "yes": (None, False, True),
    "fixed": (None, [], [1, None, 2], list(range(20))),
    "whole": (None, *MONEY),
}
KEYS: Mapping[str, tuple[Any, ...]] = {
    "tags": ("a", "b", "c" * 40),
    "l": ("e1", "e2"),
    "m": (1, -200, 70_000),
    "prices": MONEY,
}
OF_CELLS = {"l": (None, 1, 2), "m": (None, "", "y"), "prices": (None, 5, 6)}
TIMES = (5, 5, 5, 6, 7, -3, 1 << 40)  # Mostly equal, so that values decide.
EXPIRIES = (None, None, 50, 60, 1 << 33)


SCHEMA = schema_of(DDL)


class Both:
    """One schema, for both ways."""

    def __init__(self, schema: RecordSchema) -> None:
        """Take it apart."""
        self.fold = ByteFold(plan_of(schema))
        self.read = reader_of(schema.value)
        self.write = writer_of(schema.value)
        self.view = TableView(schema)


def same(state: State, packed: bytes) -> bool:
    """Say whether two states are the same, also where NaN is."""
    return repr(UNPACK.decode(PACK.encode(state))) == repr(UNPACK.decode(packed))


@lru_cache
def recorded(name: str) -> tuple[tuple[RecordSchema, bytes], ...]:
    """Return each change of a recording behind its schema."""
    found = []
    schemas: dict[bytes, RecordSchema] = {}
    for batch in recorded_batches(name):
        encoded = Encoder(Encoding(codec="avro", envelope="cep44")).encode(batch, token=1)
        schemas |= {each.schema_id: each for each in batch.schemas()}
        for content, headers in zip(encoded.values, encoded.headers, strict=True):
            found.append((schemas[dict(headers)["schemaId"]], content))
    return tuple(found)


@pytest.mark.soak
@pytest.mark.parametrize("name", RECORDINGS)
def test_states_are_those_of_the_decoded_changes(name: str) -> None:
    """Of each change of a recording, in any order, also twice."""
    ways: dict[bytes, Both] = {}
    for seed in range(2):
        sent = [*recorded(name)] * 2
        random.Random(seed).shuffle(sent)  # noqa: S311 (any order)
        packed: dict[bytes, bytes] = {}
        states: dict[bytes, State] = {}
        for schema, content in sent:
            if schema.schema_id not in ways:
                ways[schema.schema_id] = Both(schema)
            way = ways[schema.schema_id]
            value = way.read(content)
            key = row_key(value, way.view)
            states[key] = add(states.get(key), value)
            way.fold.read(content)
            packed[key] = way.fold.fold(packed.get(key))
            assert same(states[key], packed[key])


@pytest.mark.soak
@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("name", RECORDINGS)
def test_many_changes_are_folded_as_one_by_one(name: str, lazy: bool) -> None:  # noqa: FBT001
    """States, and what each change found, are the same; it stops behind changes of many rows.

    Also where the first change of a row is folded only when there is a second.
    """
    wide = left = 0
    for schema, same_schema in groupby(recorded(name), key=itemgetter(0)):
        changes = [content for _, content in same_schema]
        keys = [(b"", b"a", b"b")[number % 3] for number in range(len(changes))]
        fold, alone = (ByteFold(plan_of(schema)) for _ in range(2))
        operations: list[int] = []
        written_us: list[int] = []
        rows_of = fold.rows(changes, 0, len(changes), operations, written_us)
        names = list(zip(keys, rows_of, strict=True))
        around_names = [(key, b"") for key in keys]
        numbers = {name: number for number, name in enumerate({*names, *around_names})}
        states: list[bytes | None] = [None] * len(numbers)
        expected: dict[tuple[bytes, bytes], bytes | None] = dict.fromkeys(numbers)
        found = []
        for key, change, of in zip(keys, changes, names, strict=True):
            alone.read(change)
            assert (key, alone.row()) == of
            around = expected.get((of[0], b"")) if of[1] else None
            found.append((alone.operation, alone.written_us, PACK.encode((expected[of], around))))
            expected[of] = alone.fold(expected[of])
        befores: list[bytes] = []
        at = 0
        rows, partitions = [[numbers[n] for n in each] for each in (names, around_names)]
        single = single_of(schema.schema_id) if lazy else b""
        while at < len(changes):
            given = states, befores, single
            at = fold.fold_many(rows, partitions, changes, operations, at, len(changes), *given)
            is_wide = OPERATIONS[operations[at - 1]] in WIDE
            wide += is_wide
            assert is_wide or fold.ranges or at == len(changes)
        singles = [state for state in states if state is not None and is_single(state)]
        assert {schema.schema_id} >= {*map(schema_id_of, singles)}
        left += len(singles)
        assert [*expected.values()] == [fold.alone(s) if s in singles else s for s in states]
        assert found == list(zip(operations, written_us, befores, strict=True))
    assert wide or name.endswith(("schema", "types"))
    assert lazy == (left > 0)


@pytest.mark.soak
@pytest.mark.parametrize("name", RECORDINGS)
def test_a_document_is_what_avro_has(name: str) -> None:
    """Up to its range: each change of a recording is what fastavro decodes."""
    ways: dict[bytes, Both] = {}
    for schema, content in recorded(name):
        if schema.schema_id not in ways:
            ways[schema.schema_id] = Both(schema)
        way = ways[schema.schema_id]
        found = UNPACK.decode(way.fold.document(content))
        assert "range" == [*found][-1]
        value = way.read(content)
        assert repr({field: value[field] for field in found}) == repr(found)


def test_other_operations_are_refused() -> None:
    """A schema whose operations have other numbers is not folded by chance."""
    fields: Any = SCHEMA.value["fields"]
    turned = [
        {**f, "type": {**f["type"], "symbols": f["type"]["symbols"][::-1]}}
        if f["name"] == "operationType"
        else f
        for f in fields
    ]
    with pytest.raises(UnfitRecordError, match=r"operations of k\.t are DELETE_PARTITION"):
        plan_of(replace(SCHEMA, value={**SCHEMA.value, "fields": turned}))


class Chance:
    """Makes changes of the table with all kinds of columns, many of which have equal times."""

    def __init__(self, seed: int) -> None:
        """Make the same ones whenever *seed* is the same."""
        self._random = random.Random(seed)  # noqa: S311 (not a secret)

    def change(self) -> Mapping[str, Any]:
        """Return one."""
        pick = self._random.choice
        operation = pick(("INSERT", "UPDATE", "UPDATE", "DELETE", "DELETE_RANGE"))
        columns: dict[str, Any] = {}
        notes = []
        if operation in ("INSERT", "UPDATE"):
            names = self._random.sample([*VALUES, *KEYS, "price"], self._random.randrange(6))
            columns = {name: self._value(name) for name in names}
            notes = [self._note(name) for name in names if name in VALUES and pick((0, 1))]
        bounds = {"values": {"at": pick((1, 2))}, "count": 1, "inclusive": pick((True, False))}
        return whole(
            operation,
            pick(TIMES),
            {"id": 1, "at": 1},
            columns,
            expires=pick(EXPIRIES),
            cells=notes,
            range={"start": bounds, "end": None} if operation == "DELETE_RANGE" else None,
        )

    def _value(self, name: str) -> Any:  # noqa: ANN401 (by type)
        pick = self._random.choice
        if name in VALUES:
            return pick(VALUES[name])
        head = {"mode": pick(("replace", "merge")), "deletedAt": pick((None, *TIMES))}
        if name == "price":
            fields = {
                "zloty": pick((None, self._cell() | {"value": pick((None, 1, 2))})),
                "amount": pick((None, self._cell() | {"value": pick((None, 1.5, -0.0))})),
            }
            return {**head, "fields": fields}
        keys = self._random.choices(KEYS[name], k=self._random.randrange(4))
        values = OF_CELLS.get(name, (None,))
        return {**head, "cells": [self._cell() | {"key": k, "value": pick(values)} for k in keys]}

    def _cell(self) -> dict[str, Any]:
        pick = self._random.choice
        return {
            "removed": pick((False, False, True)),
            "timestampMicros": pick(TIMES),
            "ttl": None,
            "expires": pick(EXPIRIES),
        }

    def _note(self, name: str) -> Mapping[str, Any]:
        pick = self._random.choice
        return {
            "field": name,
            "timestampMicros": pick((None, *TIMES)),
            "ttl": pick((None, 9)),
            "expires": pick(EXPIRIES),
            "isEmpty": pick((False, False, True)),
        }


@pytest.mark.parametrize("seed", [*range(6), *map(long, range(6, 20))])
def test_ties_are_decided_alike(seed: int) -> None:
    """By a tombstone, by what expires, and when, and by the larger value; in any order."""
    way, chance = Both(SCHEMA), Chance(seed)
    changes = [chance.change() for _ in range(60)]
    ends = []
    for order in (changes, changes[::-1], changes + changes):
        state: State | None = None
        packed: bytes | None = None
        for each in order:
            content = way.write(each)
            state = add(state, way.read(content))
            way.fold.read(content)
            packed = way.fold.fold(packed)
            assert same(state, packed)
        assert packed is not None
        end = UNPACK.decode(packed)
        ends.append(end | {"ranges": sorted(map(repr, end.get("ranges", ())))})
    assert ends[0] == ends[1] == ends[2]


def test_the_name_of_a_row_has_its_clustering_values() -> None:
    """That of static columns, and of the deletion of many rows, is empty."""
    way = Both(SCHEMA)
    names = []
    payload = {"id": 1, "at": 300}
    for given in (
        whole("INSERT", 1, payload, {}),
        whole("INSERT", 1, payload, {}, isStatic=True),
        whole("DELETE_PARTITION", 1, payload, {}),
        whole("DELETE_RANGE", 1, payload, {}, range={"start": None, "end": None}),
    ):
        way.fold.read(way.write(given))
        names.append(way.fold.row())
    assert [PACK.encode([300]), b"", b"", b""] == names


def test_what_newer_versions_keep_in_a_state_stays() -> None:
    """Members of a state, and columns that the schema does not have, stay as they are."""
    way = Both(SCHEMA)
    known = {
        "seeded": [["n"], {"tags": [b"\xa1a"]}, False, {}],
        "columns": {"gone": [1, None, [None, 7]], "n": [1, None, [None, 7]]},
        "deleted": 3,
    }
    way.fold.read(way.write(whole("UPDATE", 1, {"id": 1, "at": 1}, {})))
    assert known == UNPACK.decode(way.fold.fold(PACK.encode(known)))


def test_damage_has_a_name() -> None:
    """If any byte of a change or a state is damaged or missing: nothing else is raised."""
    way, chance = Both(SCHEMA), Chance(3)
    packed: bytes | None = None
    contents = [way.write(chance.change()) for _ in range(30)]
    for content in contents:
        way.fold.read(content)
        packed = way.fold.fold(packed)
    assert packed is not None
    small = bytes(packed[:2_000])
    named = 0
    hints: set[str] = set()
    rng = random.Random(5)  # noqa: S311 (not a secret)
    for number in range(4_000):
        content, state = contents[number % len(contents)], packed
        if number % 2:
            content = damaged(content, rng)
        else:
            state = damaged(state if number % 4 else small, rng)
        try:
            way.fold.rows([content], 0, 1, [], [])
            way.fold.read(content)
            way.fold.row()
            way.fold.fold(state)
            assert 0 <= way.fold.operation < len(OPERATIONS)
            way.fold.document(content)
        except (BadAvroError, BadStateError) as error:
            named += 1
            hints.add(error.hint)
    assert 500 < named < 4_000
    assert not any("CDC" in hint for hint in hints)  # Consumers have states, too.


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Return bytes of which one is another, or the last ones are missing."""
    at = rng.randrange(min(len(content), 400))
    if rng.random() < 0.3:
        return content[:at]
    return content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :]
