"""Transforms of bytes give what the same transforms make of objects, byte for byte."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product

import pytest

from headrace.connector.serde import Encoder
from headrace.connector.serde.transforms.chain import Chain
from headrace.plugins import (
    MODULUS,
    Batch,
    EncodedRecords,
    Encoding,
    RecordSchema,
    SinkOptions,
    parse_config,
)
from headrace.sources.cassandra.encode.origin import ORIGIN
from helpers.logs.node_logs import everything
from helpers.recordings.corpora import recording
from helpers.settings.native_modules import long
from helpers.settings.pairs import pairs
from helpers.settings.seeds import is_soak, soaked

LONG = pytest.mark.long
RECORDINGS = ("5.0-types", "6.0-v9-random", *soaked("4.0-ops"))
# The names of an envelope's fields that are a column's: without a column, one that no record has.
COLUMNS = {"flat": "{}", "cep44": "payload.{}", "debezium": "after.{}.value"}
# Columns of "5.0-types".
WHOLE = ("c_int", "c_smallint", "c_tinyint", "c_bigint", "c_date", "c_time", "c_timestamp")
NUMBERS = (*WHOLE, "c_float", "c_double", "c_boolean")
TEXTS = ("c_text", "c_ascii", "c_blob", "c_uuid", "c_inet")
Chains = Sequence[Mapping[str, str]]


@lru_cache
def batches(name: str) -> Sequence[Batch]:
    """Return what a node recorded."""
    folder = recording(name)
    nodes = {"node1": str(folder / "segments")}
    options = {"nodes": nodes, "schema": str(folder / "schema.cql")}
    return everything(options | {"consistency": "ONE", "splits": 1})


def columns(name: str) -> Sequence[str]:
    """Return the names of all columns, as Avro has them."""
    found: dict[str, None] = {}
    for batch in batches(name):
        for schema in batch.schemas():
            payload = next(f for f in schema.value["fields"] if f["name"] == "payload")
            found |= dict.fromkeys(field["name"] for field in payload["type"]["fields"])
    return list(found)


def chain_of(transforms: Chains) -> Chain:
    """Return a chain; a transform with `tables` applies to these alone."""
    given: dict[str, object] = {"transforms": [f"t{i}" for i in range(len(transforms))]}
    predicates = []
    for i, options in enumerate(transforms):
        own = dict(options)
        pattern = own.pop("tables", None)
        if pattern is not None:
            own["predicate"] = f"p{i}"
            predicates.append(f"p{i}")
            given |= {f"predicates.p{i}.type": "TableMatches", f"predicates.p{i}.pattern": pattern}
        given |= {f"transforms.t{i}.{key}": value for key, value in own.items()}
    return Chain(parse_config(SinkOptions, given | {"predicates": predicates}))


def encoded(
    batch: Batch, wanted: Encoding, transforms: Chains, *, by_edits: bool
) -> EncodedRecords:
    """Encode a batch, from bytes or from objects."""
    chain = chain_of(transforms)
    if by_edits:
        edits = chain.edits

        def known(schema: RecordSchema, topic: str) -> object:
            found = edits(schema, topic)
            assert found is not None
            return found

        chain.edits = known  # type: ignore[method-assign, assignment]
    else:
        chain.edits = lambda schema, topic: None  # type: ignore[method-assign]  # noqa: ARG005
    return Encoder(wanted, ORIGIN, chain=chain, topic_of=str.upper).encode(batch, token=1)


def assert_same(slow: EncodedRecords, fast: EncodedRecords) -> None:
    """Compare all that a sink and the books see."""
    assert list(slow.values) == list(fast.values)
    assert list(slow.keys) == list(fast.keys)
    assert list(slow.headers) == list(fast.headers)
    assert list(slow.tables) == list(fast.tables)
    assert slow.topics == fast.topics
    assert list(slow.tombstones) == list(fast.tombstones)
    assert dict(slow.filtered) == dict(fast.filtered)
    assert list(slow.sums()) == list(fast.sums())
    assert 0 == (slow.omitted - fast.omitted) % MODULUS
    assert [(q.code, q.content) for q in slow.quarantined] == [
        (q.code, q.content) for q in fast.quarantined
    ]


def check(name: str, wanted: Encoding, transforms: Chains) -> EncodedRecords:
    """Compare both ways for all batches; return the last of them."""
    for batch in batches(name):
        fast = encoded(batch, wanted, transforms, by_edits=True)
        assert_same(encoded(batch, wanted, transforms, by_edits=False), fast)
    return fast


def every(name: str, envelope: str, step: int = 1) -> str:
    """Return the paths of each column, or of each second one, in an envelope."""
    return ",".join(COLUMNS[envelope].format(column) for column in columns(name)[::step])


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "envelope", "codec"), pairs(RECORDINGS, sorted(COLUMNS), ("avro", "json"))
)
def test_masks(name: str, envelope: str, codec: str) -> None:
    """Of every column, of any type; null stays null."""
    mask = {"type": "MaskField", "fields": every(name, envelope)}
    wanted = Encoding(codec=codec, envelope=envelope)

    made = check(name, wanted, [mask])

    plain = Encoder(wanted, ORIGIN).encode(batches(name)[-1], token=1)
    assert list(plain.values) != list(made.values)
    check(name, wanted, [{**mask, "replacement": "0b0e7c1e-3b1e-11ef-9d2b-0f1e2d3c4b5a"}])


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "envelope", "option"), pairs(RECORDINGS, sorted(COLUMNS), ("include", "exclude"))
)
def test_fields_are_left_out(name: str, envelope: str, option: str) -> None:
    """Each second column, or all others."""
    wanted = Encoding(codec="avro", envelope=envelope)

    made = check(name, wanted, [{"type": "ReplaceField", option: every(name, envelope, 2)}])

    plain = Encoder(wanted, ORIGIN).encode(batches(name)[-1], token=1)
    assert sum(map(len, plain.values)) > sum(map(len, made.values))


@pytest.mark.soak
@pytest.mark.parametrize(
    ("envelope", "target"),
    product(COLUMNS, ("int8", "int64", "float32", "boolean", "string"))
    if is_soak()
    else [
        ("cep44", "int8"),
        ("cep44", "boolean"),
        ("debezium", "float32"),
        ("debezium", "string"),
        ("flat", "int64"),
        ("flat", "string"),
    ],
)
def test_casts(envelope: str, target: str) -> None:
    """Of columns of each type that is a number, and of others to a string."""
    wanted = Encoding(codec="avro", envelope=envelope)
    names = NUMBERS + (TEXTS if target == "string" else ())
    if envelope != "debezium":  # Where these are strings, and not every string is a number.
        names += ("c_decimal", "c_varint")
    spec = ",".join(f"{COLUMNS[envelope].format(name)}:{target}" for name in names)

    made = check("5.0-types", wanted, [{"type": "Cast", "spec": spec}])

    plain = Encoder(wanted, ORIGIN).encode(batches("5.0-types")[-1], token=1)
    assert list(plain.values) != list(made.values)


@pytest.mark.hot
@pytest.mark.parametrize("codec", ["avro", long("json")])
@pytest.mark.parametrize(
    "transforms",
    [
        pytest.param(
            [{"type": "InsertField", "static.field": "s", "static.value": "é", "topic.field": "t"}],
            id="constants",
            marks=LONG,
        ),
        pytest.param([{"type": "InsertField", "timestamp.field": "written"}], id="the time"),
        pytest.param(
            [{"type": "InsertField$Key", "static.field": "s"}], id="null, in the key", marks=LONG
        ),
        pytest.param(
            [{"type": "ReplaceField", "renames": "__op:op,__mutation:id"}], id="names", marks=LONG
        ),
        pytest.param(
            [{"type": "MaskField", "fields": "__mutation,__op,__cells,no"}], id="facts", marks=LONG
        ),
        pytest.param([{"type": "Filter", "tables": ".*[aeiou]"}], id="some tables"),
        pytest.param([{"type": "Filter"}], id="all tables", marks=LONG),
        pytest.param(
            [
                {"type": "RegexRouter", "regex": "(.)(.*)", "replacement": "$2.$1"},
                {"type": "InsertField", "topic.field": "t", "tables": ".*[aeiou]"},
                {"type": "MaskField", "fields": "t,__mutation", "replacement": "none"},
                {"type": "Cast", "spec": "__mutation:string,__position:string,__op:string"},
                {"type": "ReplaceField", "exclude": "__cells,__range", "renames": "t:topic"},
                {"type": "InsertField", "static.field": "s", "static.value": "x" * 300},
            ],
            id="one after the other",
        ),
    ],
)
def test_transforms(transforms: Chains, codec: str) -> None:
    """Each alone, for some tables, and several in order; with keys, topics and tombstones."""
    wanted = Encoding(codec=codec, envelope="flat", key="primary", tombstones=True)

    made = check("4.0-ops", wanted, transforms)

    changes = len(Encoder(wanted, ORIGIN).encode(batches("4.0-ops")[-1], token=1))
    assert changes == len(made) + sum(made.filtered.values())


@pytest.mark.parametrize(
    "transforms",
    [
        [{"type": "Flatten"}],
        [
            {"type": "MaskField", "fields": "a"},
            {"type": "HeaderFrom", "fields": "a", "headers": "h"},
        ],
        [{"type": "InsertField", "topic.field": "t", "timestamp.field": "at"}],
        [{"type": "ReplaceField", "include": "a", "exclude": "b"}],
        [{"type": "InsertField", "static.field": "__op"}],
        [{"type": "Cast", "spec": "__node:int32"}],
    ],
)
def test_what_depends_on_records_is_given_records(transforms: Chains) -> None:
    """Other transforms, and options whose result is not known beforehand."""
    chain = chain_of(transforms)
    encoder = Encoder(Encoding(codec="avro", envelope="flat"), ORIGIN)
    (schema, *_) = batches("4.0-ops")[0].schemas()

    assert None is chain.edits(encoder.schema(schema), "topic")
