"""What a sink's options do with real changes; the Kafka sink has all of them."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from headrace.connector.foundation.job_file import RuntimeConfig
from headrace.connector.runtime.schemas import encoder_of
from headrace.connector.serde import Encoder
from headrace.connector.serde.schemas.publishing import (
    SchemaIncompatibleError,
    SchemaUnpublishedError,
)
from headrace.connector.stores.job import Job
from headrace.plugins import (
    ConfigError,
    EncodedRecords,
    NumberPosition,
    Operation,
    Record,
    RecordBatch,
    Sink,
    parse_config,
)
from headrace.plugins.records.codecs import CLAIM_HEADER
from headrace.plugins.testing.doubles import MemoryConfig, MemorySource, context
from headrace.sinks.kafka import KafkaConfig, KafkaSink
from headrace.sinks.null import NullConfig, NullSink
from headrace.sources.cassandra.encode.origin import ORIGIN
from helpers.jobs.children import until
from helpers.jobs.deliveries import NO_BROKER
from helpers.recordings.batches import recorded_batches
from helpers.servers.registries import ask, registry
from helpers.settings.seeds import soaked

GIVEN = {"bootstrap.servers": "h:1", "topic": "t"}
JSON = {"format": "json"}
NOWHERE = {"large.store": "nowhere"}
RECORDS = [record for batch in recorded_batches("4.1-ops") for record in batch.records()]
KINDS = dict.fromkeys(record.operation for record in RECORDS)
FIRST = [next(record for record in RECORDS if record.operation == kind) for kind in KINDS]
TYPES = next(iter(recorded_batches("5.0-types")[0].records()))
OTHER = next(r.schema.table for r in RECORDS if r.schema.table != FIRST[0].schema.table)
TABLES = len({record.schema.table for record in RECORDS})


@contextmanager
def encoder(
    folder: Path, options: Mapping[str, str] = GIVEN, sink: Sink | None = None
) -> Iterator[Encoder]:
    """Return the encoder of *sink*, by default Kafka's with *options*."""
    config = parse_config(KafkaConfig, {**GIVEN, **options})
    job = Job(
        name="job",
        directory=folder,
        state=folder / "state.db",
        source=MemorySource,
        source_config=MemoryConfig(),
        sink=KafkaSink,
        sink_config=config,
        runtime=RuntimeConfig(),
    )
    made = encoder_of(job, context(), sink or KafkaSink(config, context()), ORIGIN)
    try:
        yield made
    finally:
        made.close()


def encoded(made: Encoder, *records: Record) -> EncodedRecords:
    """Return records, by default a change of each kind, as they are sent."""
    batch = RecordBatch("all", NumberPosition(0), 0, records or FIRST)
    return made.encode(batch, token=1)


def announced(made: Encoder) -> EncodedRecords:
    """Return the same, after the schema store has answered."""
    made.announce([record.schema for record in RECORDS])
    found: list[EncodedRecords] = []

    def came() -> bool:
        try:
            found.append(encoded(made))
        except SchemaUnpublishedError:
            return False
        return True

    until(came, "no schema was published")
    return found[0]


def parsed(content: bytes | None) -> dict[str, Any]:  # Any: JSON.
    """Return a JSON object; an empty one, when it is none."""
    try:
        found: dict[str, Any] = json.loads(content or b"")
    except ValueError:
        return {}
    return found


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, None, id="avro"),
        pytest.param(JSON, -(1 << 63), id="format"),
        pytest.param(JSON | {"types": "cep44"}, 0, id="types"),
    ],
)
def test_the_value(tmp_path: Path, options: dict[str, str], expected: int | None) -> None:
    """The value has the requested format, and CEP-44's types where these are requested."""
    with encoder(tmp_path, options) as made:
        (content,) = encoded(made, TYPES).values

    assert expected == parsed(content).get("payload", {}).get("c_bigint")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"key.format": "json"}, ["a", "b"]),
        ({"key.format": "json", "key": "primary"}, ["a", "b", "c", "d", "e"]),
        ({"key.format": "json", "envelope": "debezium"}, ["a", "b", "c", "d", "e"]),
        ({"key": "primary"}, []),
    ],
)
def test_the_key(tmp_path: Path, options: dict[str, str], expected: list[str]) -> None:
    """The key has its own format, and the requested columns."""
    with encoder(tmp_path, options) as made:
        assert expected == list(parsed(encoded(made).keys[0]))


@pytest.mark.parametrize("envelope", ["cep44", "flat"])
def test_the_envelope(tmp_path: Path, envelope: str) -> None:
    """Without an envelope the columns are the value."""
    with encoder(tmp_path, JSON | {"envelope": envelope}) as made:
        assert (envelope == "cep44") is ("isPartial" in parsed(encoded(made).values[0]))


def test_tombstones(tmp_path: Path) -> None:
    """With tombstones, one follows the deletion of a partition, and nothing else."""
    with encoder(tmp_path, {"tombstones.on.delete": "true"}) as made:
        buried = [FIRST[index].operation for index in encoded(made).tombstones]

    assert [Operation.DELETE_PARTITION] == buried


def test_headers(tmp_path: Path) -> None:
    """A message has the requested headers."""
    with encoder(tmp_path, {"headers": "keyspace"}) as made:
        found = encoded(made).headers

    assert [{"keyspace"}] * len(FIRST) == [{name for name, _ in each} for each in found]


def test_large_values(tmp_path: Path) -> None:
    """The bound of values, and the store of larger ones, are the requested ones."""
    own = {"large.policy": "claim-check", "large.bytes": "1000"}
    folder = tmp_path / "kept"
    kept = {"large.store.path": str(folder)}
    with encoder(tmp_path, own | kept) as made:
        (headers,) = encoded(made, TYPES).headers

    assert [headers[-1]] == [
        (CLAIM_HEADER, str(kept.relative_to(folder)).encode()) for kept in folder.glob("*/*")
    ]
    with pytest.raises(ConfigError, match="nowhere"), encoder(tmp_path, own | NOWHERE):
        """An unknown claim store is refused."""


LARGE_TEXT = {**TYPES.value["payload"], "c_text": "x" * 3_000}


@pytest.mark.parametrize(
    ("excluded", "cut"),
    [("c_int", ["c_text"]), ("c_text", []), ("c_blob", ["c_text"])],
    ids=["of no matter", "all that is large", "of a larger one"],
)
def test_only_strings_and_blobs_that_are_sent_are_cut(
    tmp_path: Path, excluded: str, cut: list[str]
) -> None:
    """Only strings and blobs that are in the message are truncated."""
    payload = {**LARGE_TEXT, "c_blob": bytes(6_000 if excluded == "c_blob" else 0)}
    record = TYPES.changed(value={**TYPES.value, "payload": payload})
    options = JSON | {
        "transforms": "less",
        "transforms.less.type": "ReplaceField",
        "transforms.less.exclude": f"payload.{excluded}",
    }
    with encoder(tmp_path, options) as made:
        (whole,) = encoded(made, record).values
    bound = {"large.policy": "truncate", "large.bytes": str(len(whole) - 2_000 * len(cut) - 1)}
    with encoder(tmp_path, options | bound) as made:
        (value,) = encoded(made, record).values

    expected, found = parsed(whole), parsed(value)
    assert cut == found["truncatedFields"]
    for name in cut:
        assert expected["payload"].pop(name).startswith(found["payload"].pop(name))
    assert expected["payload"] == found["payload"]


def test_schemas_are_kept(tmp_path: Path) -> None:
    """Schemas are in the requested store, under subjects of the requested strategy."""
    options = {"schema.store": "file", "schema.store.path": str(tmp_path / "kept")}
    options["subject.name.strategy"] = "RecordNameStrategy"
    with encoder(tmp_path, options) as made:
        announced(made)
        until(lambda: 2 * TABLES == len(list((tmp_path / "kept").glob("*.avsc"))), "none came")

    assert [] == list((tmp_path / "kept").glob("t-*"))  # The topic's subject, as by default.


@pytest.mark.parametrize(
    ("predicate", "topics"),
    [
        pytest.param({}, ["r.t"], id="all"),
        pytest.param({"type": "OperationIs", "operations": "DELETE"}, ["r.t", "t"], id="some"),
        pytest.param({"type": "TableMatches", "pattern": "no.table"}, ["t"], id="none"),
    ],
)
def test_subjects_are_of_the_topics_that_messages_go_to(
    tmp_path: Path, predicate: Mapping[str, str], topics: list[str]
) -> None:
    """Subjects are named after the topics that routers give, where consumers look them up."""
    with registry(tmp_path / "registry.db") as address:
        options = {"schema.store": "registry", "schema.store.url": address, "transforms": "r"}
        options |= {
            "schema.framing": "confluent",
            "subject.name.strategy": "TopicRecordNameStrategy",
        }
        options |= {f"predicates.p.{key}": predicate[key] for key in predicate}
        options |= {"transforms.r.type": "RegexRouter", "transforms.r.regex": "(.*)"}
        options |= {"transforms.r.replacement": "r.$1"}
        options |= {"predicates": "p", "transforms.r.predicate": "p"} if predicate else {}
        with encoder(tmp_path, options) as made:
            found = announced(made)
            expected = {f"{t}-headrace.{r.schema.table}.Key" for t in topics for r in RECORDS}
            until(lambda: expected <= set(ask(address, "GET", "/subjects")[1]), "no subject came")
        subjects = ask(address, "GET", "/subjects")[1]

    assert set(topics) == set(found.topics or ())
    assert expected == {subject for subject in subjects if subject.endswith(".Key")}


@pytest.mark.parametrize(("framing", "expected"), [("none", (False, 1)), ("confluent", (True, 1))])
def test_framing(tmp_path: Path, framing: str, expected: tuple[bool, int]) -> None:
    """With framing, the registry's id stands before key and value."""
    with registry(tmp_path / "registry.db") as address:
        options = {"schema.store": "registry", "schema.store.url": address}
        with encoder(tmp_path, options | {"schema.framing": framing}) as made:
            found = announced(made)

    starts = {value[:4] == bytes(4) for value in found.values}
    assert expected == (starts.pop(), 1 + len(starts))


@pytest.mark.parametrize("framing", ["confluent", "confluent-headers"])
@pytest.mark.parametrize(
    "store",
    [
        {"schema.store": "file", "schema.store.path": "kept"},
        {
            "schema.store": "topic",
            "schema.store.topic": "kept",
            "schema.store.bootstrap.servers": NO_BROKER,
        },
    ],
    ids=["file", "topic"],
)
def test_framing_needs_numbers(tmp_path: Path, store: dict[str, str], framing: str) -> None:
    """Framing with a store without ids is refused at once: no record could ever be sent."""
    options = {**store, "schema.framing": framing}

    with (
        pytest.raises(ConfigError, match=f"found schema.store: {store['schema.store']}"),
        encoder(tmp_path, options),
    ):
        """Do not create it."""


@pytest.mark.parametrize("policy", ["stop", "dlq", "new_subject"])
def test_a_schema_that_is_refused(tmp_path: Path, policy: str) -> None:
    """A rejected schema stops the split, dead-letters its records, or gets its own subject."""
    with registry(tmp_path / "registry.db") as address:
        before = {"schema": '"long"'}
        assert 200 == ask(address, "POST", "/subjects/t-value/versions", before)[0]
        options = {"schema.store": "registry", "schema.store.url": address}
        options |= {"schema.framing": "confluent", "schema.on.incompatible": policy}
        options |= {"subject.name.strategy": "TopicNameStrategy"}
        with encoder(tmp_path, options) as made:
            if policy == "stop":
                with pytest.raises(SchemaIncompatibleError):
                    announced(made)
                return
            found = announced(made)
        subjects = ask(address, "GET", "/subjects")[1]

    assert (len(FIRST) if policy == "dlq" else 0) == len(found.quarantined)
    assert (policy == "new_subject") is (TABLES < len(subjects))


SOME: Final = ({"type": "OperationIs", "operations": "DELETE"}, len(FIRST))
ANOTHER_TABLES: Final = ({"type": "TableMatches", "pattern": OTHER}, 0)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("framing", "predicate", "aside"),
    [
        ("none", *SOME),
        ("confluent", *ANOTHER_TABLES),
        ("confluent-headers", *SOME),
        *soaked(
            ("none", *ANOTHER_TABLES),
            ("confluent", *SOME),
            ("confluent-headers", *ANOTHER_TABLES),
        ),
    ],
)
def test_a_schema_that_a_transform_fails_on(
    tmp_path: Path, framing: str, predicate: Mapping[str, str], aside: int
) -> None:
    """All its records are dead-lettered, as none could be read; other tables continue."""
    with registry(tmp_path / "registry.db") as address:
        options = {"schema.store": "registry", "schema.store.url": address, "envelope": "flat"}
        options |= {"schema.framing": framing, "transforms": "t", "predicates": "p"}
        options |= {"transforms.t.type": "InsertField", "transforms.t.static.field": "__op"}
        options |= {"transforms.t.static.value": "x", "transforms.t.predicate": "p"}
        with encoder(
            tmp_path, options | {f"predicates.p.{k}": predicate[k] for k in predicate}
        ) as made:
            found = announced(made)

    assert (aside, len(FIRST) - aside) == (len(found.quarantined), len(found))
    assert {
        ("transform", f"{lost.origin['table']}, transforms.t") for lost in found.quarantined
    } == {(lost.code, lost.place) for lost in found.quarantined}


def test_the_null_sink_has_a_format(tmp_path: Path) -> None:
    """The null sink encodes in a given format, as benchmarks need it."""
    with encoder(tmp_path, sink=NullSink(parse_config(NullConfig, JSON), context())) as made:
        assert parsed(encoded(made).values[0])
