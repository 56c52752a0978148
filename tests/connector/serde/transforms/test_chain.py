"""Transforms with Kafka Connect's configuration, on rows with a nested record."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro
import pytest

from headrace.connector.serde import Encoder
from headrace.connector.serde.transforms.chain import Chain
from headrace.plugins import (
    BadRecordError,
    ConfigError,
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

ADDRESS: Document = {
    "type": "record",
    "name": "Address",
    "fields": [{"name": "street", "type": "string"}, {"name": "zip", "type": "int"}],
}
SCHEMA = RecordSchema.of(
    "shop.orders",
    "CREATE TABLE shop.orders (…)",
    key={"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]},
    value={
        "type": "record",
        "name": "Row",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "card", "type": ["null", "string"]},
            {"name": "home", "type": ["null", ADDRESS]},
            {"name": "work", "type": ["null", "Address"]},
            {"name": "at", "type": "long"},
        ],
    },
)
HOME = {"street": "Elm", "zip": 7}


def row(number: int, operation: Operation = Operation.INSERT, **other: object) -> Record:
    """Return a record."""
    value = {"id": number, "card": "4711", "home": HOME, "work": None, "at": 1_700_000_000_123}
    return Record(
        key={"id": number},
        value=value | other,
        operation=operation,
        timestamp_us=5_000,
        schema=SCHEMA,
        headers=(("mine", b"1"),),
    )


def chain_of(**options: Mapping[str, object]) -> Chain:
    """Return a chain: options of transforms by their names; names with `p_` are predicates."""
    given: dict[str, object] = {}
    for group, names in (
        ("transforms", [name for name in options if not name.startswith("p_")]),
        ("predicates", [name for name in options if name.startswith("p_")]),
    ):
        given[group] = names
        given |= {f"{group}.{n}.{key}": each for n in names for key, each in options[n].items()}
    return Chain(parse_config(SinkOptions, given))


def encoded(chain: Chain, *records: Record) -> tuple[EncodedRecords, list[Any]]:
    """Return records in Avro, and the values that a reader with the chain's schema reads."""
    encoder = Encoder(Encoding(codec="avro", envelope="flat"), chain=chain, topic_of=str.upper)
    batch = RecordBatch("all", NumberPosition(0), 0, list(records))
    found = encoder.encode(batch, token=1)
    schema: Any = fastavro.parse_schema(dict(encoder.schema(SCHEMA).value), {})
    return found, [_read(schema, value) for value in found.values]


def _read(schema: Any, content: bytes) -> Any:  # noqa: ANN401 (any datum)
    from io import BytesIO  # noqa: PLC0415 (only here)

    return fastavro.schemaless_reader(BytesIO(content), schema, None)


def one(**options: object) -> tuple[EncodedRecords, Any]:
    """Return what one transform makes of a row."""
    found, (value,) = encoded(
        chain_of(t={k.replace("_", "."): v for k, v in options.items()}), row(1)
    )
    return found, value


BEFORE = row(1).value


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(
            {"type": "InsertField", "static_field": "s", "static_value": "x", "topic_field": "t"},
            {**BEFORE, "s": "x", "t": "SHOP.ORDERS"},
            id="insert",
        ),
        pytest.param(
            {"type": "InsertField$Value", "timestamp_field": "ms"},
            {**BEFORE, "ms": 5},
            id="insert the time",
        ),
        pytest.param(
            {"type": "ReplaceField", "exclude": "home,at", "renames": "card:c"},
            {"id": 1, "c": "4711", "work": None},
            id="replace: what went had defined a type",
        ),
        pytest.param(
            {"type": "ReplaceField", "include": "id,card"},
            {"id": 1, "card": "4711"},
            id="replace: only some",
        ),
        pytest.param(
            {"type": "ReplaceField", "exclude": "home.street"},
            {**BEFORE, "home": {"zip": 7}},
            id="replace: inwards",
        ),
        pytest.param(
            {"type": "ReplaceField", "include": "home.zip,work.zip,card"},
            {"card": "4711", "home": {"zip": 7}, "work": None},
            id="replace: only some, inwards",
        ),
        pytest.param(
            {"type": "ReplaceField", "renames": "home.street:road,home:house"},
            {"id": 1, "card": "4711", "house": {"road": "Elm", "zip": 7}}
            | {"work": None, "at": 1_700_000_000_123},
            id="replace: renames stay within their parents",
        ),
        pytest.param(
            {"type": "MaskField", "fields": "card,at,home.street"},
            {**BEFORE, "card": "", "at": 0, "home": {"street": "", "zip": 7}},
            id="mask",
        ),
        pytest.param(
            {"type": "MaskField", "fields": "card,work", "replacement": "***"},
            {**BEFORE, "card": "***"},
            id="mask with a text, null stays",
        ),
        pytest.param(
            {"type": "Flatten"},
            {
                "id": 1,
                "card": "4711",
                "home_street": "Elm",
                "home_zip": 7,
                "work_street": None,
                "work_zip": None,
                "at": 1_700_000_000_123,
            },
            id="flatten",
        ),
        pytest.param(
            {"type": "Cast", "spec": "id:string,card:int16,home.zip:float64,at:int32"},
            {**BEFORE, "id": "1", "card": 4711, "home": {"street": "Elm", "zip": 7.0}}
            | {"at": -807_049_093},
            id="cast",
        ),
        pytest.param(
            {"type": "TimestampConverter", "field": "at", "target_type": "string"},
            {**BEFORE, "at": "2023-11-14T22:13:20.123Z"},
            id="time as text",
        ),
        pytest.param(
            {"type": "TimestampConverter", "field": "at", "target_type": "string", "format": "%Y"},
            {**BEFORE, "at": "2023"},
            id="time in a form",
        ),
        pytest.param(
            {"type": "TimestampConverter", "field": "at", "target_type": "string"}
            | {"unix_precision": "microseconds"},
            {**BEFORE, "at": "1970-01-20T16:13:20.000Z"},
            id="time in microseconds",
        ),
        pytest.param(
            {"type": "Flatten", "delimiter": "__"},
            {
                "id": 1,
                "card": "4711",
                "home__street": "Elm",
                "home__zip": 7,
                "work__street": None,
                "work__zip": None,
                "at": 1_700_000_000_123,
            },
            id="flatten with a delimiter",
        ),
    ],
)
def test_values_are_changed_as_connect_changes_them(
    options: Mapping[str, object], expected: object
) -> None:
    """The value fits the new schema, and is what Kafka Connect's transform makes."""
    assert expected == one(**options)[1]


@pytest.mark.parametrize(
    ("replacement", "left"),
    [({}, ["00000000-0000-0000-0000-000000000000"]), ({"replacement": "***"}, [])],
    ids=["nil", "no uuid"],
)
def test_a_masked_uuid_is_a_uuid_still(replacement: Mapping[str, str], left: object) -> None:
    """A record whose field cannot have the replacement's type is dead-lettered."""
    of = {"type": "string", "logicalType": "uuid"}
    fields = [{"name": "who", "type": ["null", of]}]
    schema = RecordSchema.of(
        "shop.people", "…", key=SCHEMA.key, value={**SCHEMA.value, "fields": fields}
    )
    person = row(1).changed(value={"who": "6f2c1d9e-1111-4222-8333-444455556666"}, schema=schema)
    chain = chain_of(m={"type": "MaskField", "fields": "who", **replacement})

    done = chain.apply([person])

    assert left == [record.value["who"] for record in done.records]
    assert 1 == len(done.records) + len(done.quarantined)


def test_connects_long_names_are_understood() -> None:
    """Connect's class names of transforms are accepted."""
    name = "org.apache.kafka.connect.transforms.MaskField$Value"

    assert "" == one(type=name, fields="card")[1]["card"]


def test_keys_are_transformed_too() -> None:
    """A transform with `$Key` changes the key."""
    found, _ = one(type="InsertField$Key", static_field="s", static_value="x")

    assert [b"\x02\x02\x02x"] == list(found.keys)


def test_the_key_can_be_made_of_the_value() -> None:
    """The key has the types that the fields have in the value."""
    found, _ = one(type="ValueToKey", fields="card,id")

    assert [b"\x02\x084711\x02"] == list(found.keys)


def test_headers_come_and_go() -> None:
    """Headers are made of fields, which are copied or moved, and are dropped by name."""
    chain = chain_of(
        h={"type": "HeaderFrom", "fields": "id,card", "headers": "a,b", "operation": "move"},
        d={"type": "DropHeaders", "headers": "mine"},
    )
    found, (value,) = encoded(chain, row(1))

    assert (("a", b"1"), ("b", b"4711")) == found.headers[0][1:]
    assert {"home", "work", "at"} == value.keys()


@pytest.mark.parametrize(
    ("operation", "home"), [("copy", HOME), ("move", {"zip": 7})], ids=["copy", "move"]
)
def test_headers_come_from_inner_fields(operation: str, home: object) -> None:
    """A header is made of a nested field; only a moved field is removed from its record."""
    options = {"fields": "home.street,work.street", "headers": "a,b", "operation": operation}
    found, value = one(type="HeaderFrom", **options)

    assert (("a", b"Elm"),) == found.headers[0][2:]
    assert home == value["home"]


@pytest.mark.parametrize(("fields", "key"), [("home.zip", b"\x02\x0e"), ("work.zip", b"\x00")])
def test_the_key_can_be_made_of_inner_fields(fields: str, key: bytes) -> None:
    """A key of nested fields is null where their record is null."""
    found, _ = one(type="ValueToKey", fields=fields)

    assert [key] == list(found.keys)


def test_records_are_routed_by_their_topic() -> None:
    """The router's replacement has groups as `$1`; topics that do not match stay."""
    found, _ = encoded(
        chain_of(
            r={"type": "RegexRouter", "regex": r"(\w+)\.(\w+)", "replacement": "$2-of-$1"},
            n={"type": "RegexRouter", "regex": "nothing", "replacement": "else"},
        ),
        row(1),
    )

    assert ["ORDERS-of-SHOP"] == list(found.topics or ())


def test_a_predicate_asks_for_the_topic_that_a_router_gave() -> None:
    """A predicate sees the topic that a router before it gave, for schemas and records."""
    chain = chain_of(
        r={"type": "RegexRouter", "regex": "SHOP.*", "replacement": "routed"},
        m={"type": "ReplaceField", "include": "id", "predicate": "p_x"},
        p_x={"type": "TopicNameMatches", "pattern": "routed"},
    )

    assert [{"id": 1}] == encoded(chain, row(1))[1]
    assert ["routed"] == list(chain.topics("shop.orders", "SHOP.ORDERS"))


@pytest.mark.parametrize("negate", ["false", "true"])
@pytest.mark.parametrize(
    "predicate",
    [
        {"type": "OperationIs", "operations": "DELETE"},
        {"type": "HasHeaderKey", "name": "mine"},
        {"type": "TopicNameMatches", "pattern": "SHOP.*"},
        {"type": "TopicNameMatches", "pattern": "other"},
        {"type": "TableMatches", "pattern": r"shop\.orders"},
        {"type": "TableMatches", "pattern": "other"},
    ],
    ids=str,
)
def test_topics_of_a_table_are_those_of_its_records(
    predicate: Mapping[str, object], negate: str
) -> None:
    """Schemas are published where records go: for all these topics, and for no others."""
    router = {"type": "RegexRouter", "regex": "SHOP.*", "replacement": "routed"}
    chain = chain_of(r={**router, "predicate": "p_x", "negate": negate}, p_x=predicate)
    found, _ = encoded(
        chain, row(1), row(2, Operation.DELETE), row(3).changed(headers=(("other", b"1"),))
    )

    assert {*(found.topics or ())} == {*chain.topics("shop.orders", "SHOP.ORDERS")}


@pytest.mark.parametrize(
    ("pattern", "negate", "value"),
    [
        ("SHOP.*", "false", {"id": 1}),
        ("SHOP.*", "true", BEFORE),
        ("other", "false", BEFORE),
        ("other", "true", {"id": 1}),
    ],
)
def test_the_schema_changes_where_records_are_meant(
    pattern: str, negate: str, value: object
) -> None:
    """A reader with the published schema reads what the transform made, or left."""
    changed = {"type": "ReplaceField", "include": "id", "predicate": "p_x", "negate": negate}
    chain = chain_of(m=changed, p_x={"type": "TopicNameMatches", "pattern": pattern})

    assert [value] == encoded(chain, row(1))[1]


@pytest.mark.parametrize(
    ("regex", "replacement"),
    [
        pytest.param("SHOP(x?).*", "$1", id="nothing"),
        pytest.param("SHOP(.).*", "$1", id="a dot"),
        pytest.param("SHOP.*", "$0" * 23, id="too long"),
    ],
)
def test_a_record_without_a_topic_is_a_dead_letter(regex: str, replacement: str) -> None:
    """A record with a topic name that Kafka does not allow is dead-lettered."""
    found, _ = encoded(
        chain_of(r={"type": "RegexRouter", "regex": regex, "replacement": replacement}), row(1)
    )

    ((lost),) = found.quarantined
    assert "transform" == lost.code
    assert lost.message.startswith("expected a topic's name, found ")


@pytest.mark.parametrize(
    ("predicate", "negate", "left"),
    [
        ({"type": "OperationIs", "operations": "DELETE"}, "false", [1, 3]),
        ({"type": "OperationIs", "operations": "DELETE"}, "true", [2]),
        ({"type": "TableMatches", "pattern": r"shop\..*"}, "false", []),
        ({"type": "TableMatches", "pattern": "shop"}, "false", [1, 2, 3]),
        ({"type": "TopicNameMatches", "pattern": "SHOP.*"}, "true", [1, 2, 3]),
        ({"type": "HasHeaderKey", "name": "mine"}, "false", []),
    ],
)
def test_predicates_say_which_records_are_meant(
    predicate: Mapping[str, object], negate: str, left: Sequence[int]
) -> None:
    """Filtered records are counted; the others keep their order."""
    chain = chain_of(f={"type": "Filter", "predicate": "p_x", "negate": negate}, p_x=predicate)
    found, values = encoded(chain, row(1), row(2, Operation.DELETE), row(3))

    assert left == [value["id"] for value in values]
    assert 3 - len(left) == sum(found.filtered.values())


def test_a_record_that_a_transform_fails_on_is_a_dead_letter() -> None:
    """A record that a transform fails on is dead-lettered alone, with stage, without values."""
    chain = chain_of(t={"type": "TimestampConverter", "field": "at", "target.type": "string"})
    found, values = encoded(chain, row(1), row(2, at=1 << 62), row(3))

    assert [1, 3] == [value["id"] for value in values]
    ((lost),) = found.quarantined
    assert ("TRANSFORMATION", "transform") == (lost.stage, lost.code)
    assert {} == dict(found.filtered)


def test_what_failed_has_table_and_transform() -> None:
    """The dead letter names table and transform, also when the error is not headrace's."""
    chain = chain_of(
        t={"type": "ValueToKey", "fields": "card.x", "predicate": "p_x"},
        p_x={"type": "OperationIs", "operations": "DELETE"},
    )
    assert 1 == len(chain.apply([row(1)]).records)
    with pytest.raises(BadRecordError, match=r"shop\.orders has no field card\.x"):
        chain.schema(SCHEMA, "topic")
    broken = chain_of(t={"type": "TimestampConverter", "field": "at", "target.type": "string"})

    for made in (chain.apply([row(1)]), broken.apply([row(1).changed(value=None)])):
        assert [] == list(made.records)
        assert ["shop.orders, transforms.t"] == [lost.place for lost in made.quarantined]
    assert ["failed with AttributeError"] == [lost.message for lost in made.quarantined]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"type": "InsertField", "static_field": "card"}, id="insert"),
        pytest.param({"type": "ReplaceField", "renames": "at:card"}, id="rename"),
        pytest.param({"type": "ReplaceField", "renames": "home.zip:street"}, id="rename inwards"),
        pytest.param({"type": "ValueToKey", "fields": "home.zip,work.zip"}, id="key"),
    ],
)
def test_a_field_never_takes_anothers_name(options: Mapping[str, str]) -> None:
    """A record is dead-lettered if the new schema would have a field's name twice."""
    chain = chain_of(t={k.replace("_", "."): v for k, v in options.items()})

    done = chain.apply([row(1)])

    assert [] == list(done.records)
    ((lost),) = done.quarantined
    assert ("TRANSFORMATION", "transform") == (lost.stage, lost.code)
    assert "2 fields" in lost.message


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"fields": "x"}, "transforms.t.type"),
        ({"type": "MaskFeld"}, "transforms.t.type"),
        ({"type": "MaskField"}, "transforms.t.fields"),
        ({"type": "MaskField$Both", "fields": "x"}, "transforms.t.type"),
        ({"type": "MaskField", "fields": "x", "colour": "red"}, "transforms.t.colour"),
        ({"type": "RegexRouter", "regex": "(", "replacement": ""}, "transforms.t.regex"),
        ({"type": "Filter", "predicate": "nobody"}, "transforms.t.predicate"),
        ({"type": "RegexRouter", "regex": "(a)", "replacement": "$2x"}, "transforms.t.replacement"),
        (
            {"type": "RegexRouter", "regex": "a", "replacement": "bad topic!"},
            "transforms.t.replacement",
        ),
        ({"type": "RegexRouter", "regex": "a", "replacement": r"a\x"}, "transforms.t.replacement"),
        ({"type": "RegexRouter", "regex": "a", "replacement": "${1}"}, "transforms.t.replacement"),
        ({"type": "RegexRouter", "regex": "a", "replacement": ""}, "transforms.t.replacement"),
        ({"type": "ReplaceField", "renames": "a"}, "transforms.t.renames"),
        ({"type": "ReplaceField", "renames": "a:b-c"}, "transforms.t.renames"),
        ({"type": "ReplaceField", "renames": "a.b:a.c"}, "transforms.t.renames"),
        ({"type": "InsertField", "static.field": "my-field"}, "transforms.t.static.field"),
        ({"type": "InsertField", "topic.field": "2nd"}, "transforms.t.topic.field"),
        ({"type": "DropHeaders", "headers": "op,table"}, "transforms.t.headers"),
        ({"type": "DropHeaders", "headers": "__key_schema_id"}, "transforms.t.headers"),
    ],
)
def test_mistakes_are_named_by_their_keys(options: Mapping[str, object], key: str) -> None:
    """The error has the key as the user wrote it."""
    with pytest.raises(ConfigError) as caught:
        chain_of(t=options)

    assert [key] == [problem.key for problem in caught.value.problems]


FILTER = {"transforms": "t", "transforms.t.type": "Filter"}
BY_NAME = {"predicates": "p", "predicates.p.type": "HasHeaderKey", "predicates.p.name": "x"}
MEANT = {**FILTER, **BY_NAME, "transforms.t.predicate": "p"}


@pytest.mark.parametrize(
    ("options", "key"),
    [
        pytest.param({**MEANT, "transforms.t.negate": "yes"}, "transforms.t.negate", id="yes"),
        pytest.param({**MEANT, "transforms.t.negate": 1}, "transforms.t.negate", id="1"),
        pytest.param({**MEANT, "transforms.t.negate": ""}, "transforms.t.negate", id="nothing"),
        pytest.param({**FILTER, "transforms.t.negate": True}, "transforms.t.negate", id="of none"),
        pytest.param({**FILTER, "transforms.b.type": "Filter"}, "transforms.b", id="transform"),
        pytest.param({**MEANT, "predicates.b.type": "OperationIs"}, "predicates.b", id="predicate"),
        pytest.param({**FILTER, "transforms": "t,t"}, "transforms", id="transform twice"),
        pytest.param({**MEANT, "predicates": "p,p"}, "predicates", id="predicate twice"),
        pytest.param({**FILTER, **BY_NAME}, "predicates", id="predicate of no transform"),
        pytest.param(
            {**MEANT, "predicates.p.name": "token"}, "predicates.p.name", id="late header"
        ),
    ],
)
def test_what_would_do_nothing_or_something_else_is_a_mistake(
    options: Mapping[str, object], key: str
) -> None:
    """Invalid booleans, and transforms that are not listed or listed twice, are refused."""
    with pytest.raises(ConfigError) as caught:
        Chain(parse_config(SinkOptions, options))

    assert [key] == [problem.key for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("negate", "left"), [(True, 0), (False, 1), ("TRUE", 0), ("false", 1)], ids=repr
)
def test_negate_is_true_or_false(negate: object, left: int) -> None:
    """`negate` may be YAML's true and false, or Connect's strings."""
    chain = Chain(parse_config(SinkOptions, {**MEANT, "transforms.t.negate": negate}))

    assert left == len(chain.apply([row(1)]).records)


def test_without_an_envelope_nothing_that_was_to_be_masked_goes_out() -> None:
    """Without an envelope a transform of the value dead-letters the record, sending nothing."""
    chain = chain_of(m={"type": "MaskField$Value", "fields": "card"})
    encoder = Encoder(Encoding(codec="json"), chain=chain)

    made = encoder.encode(RecordBatch("all", NumberPosition(0), 0, [row(1)]), token=1)

    assert [] == list(made.values)
    assert ["bad_record"] == [each.code for each in made.quarantined]


def test_records_without_an_envelope_are_filtered() -> None:
    """Without an envelope a filter drops records, and does not change the others."""
    chain = chain_of(
        f={"type": "Filter", "predicate": "p_dead"},
        p_dead={"type": "OperationIs", "operations": "DELETE"},
    )
    encoder = Encoder(Encoding(codec="json"), chain=chain)
    rows = [row(1), row(2, Operation.DELETE)]

    made = encoder.encode(RecordBatch("all", NumberPosition(0), 0, rows), token=1)

    assert [1] == [json.loads(value or b"")["id"] for value in made.values]
