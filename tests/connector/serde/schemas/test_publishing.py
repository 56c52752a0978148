"""Schemas are published while records flow, also when the schema store fails for a while."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.connector.serde.schemas.framing import Framing, NoGuidError
from headrace.connector.serde.schemas.publishing import (
    STRATEGIES,
    Publisher,
    SchemaIncompatibleError,
    SchemaUnpublishedError,
    subject_of,
)
from headrace.plugins import (
    EncodedRecords,
    Published,
    RecordSchema,
    RetriableError,
    SchemaRefusedError,
    SchemaStore,
)
from headrace.plugins.testing.doubles import context, sample_records
from helpers.jobs.children import until

SCHEMA = sample_records(1)[0].schema
OTHER = RecordSchema.of("shop.users", "CREATE TABLE shop.users (…)", key=SCHEMA.key, value={})
GUID = bytes(range(16))


class MemoryStore(SchemaStore):
    """A schema store in memory, which can be down, and which rejects schemas of some subjects."""

    def __init__(self) -> None:
        """Be up, and reject nothing."""
        super().__init__(None, context())
        self.there = threading.Event()
        self.there.set()
        self.refused: set[str] = set()
        self.asked = 0
        self.kept: list[str] = []

    def publish(self, subject: str, text: str, schema: RecordSchema) -> Published:
        """Store it, unless the store is down or rejects it."""
        del text, schema
        self.asked += 1
        if not self.there.is_set():
            raise RetriableError("away")
        if subject in self.refused:
            raise SchemaRefusedError("not after that one")
        self.kept.append(subject)
        return Published(len(self.kept), GUID)


class Desk:
    """A publisher and its store."""

    def __init__(self, path: Path) -> None:
        """Do not start the publisher yet."""
        self.path = path
        self.store = MemoryStore()
        self.publisher: Publisher | None = None

    def open(
        self,
        on_incompatible: str = "stop",
        *,
        strategy: str | None = "TopicNameStrategy",
        topic: str = "",
        shared: bool = False,
        job: str = "job",
    ) -> Publisher:
        """Start or restart the publisher; *topic* is the topic of all tables."""
        self.close()
        self.publisher = Publisher(
            self.store,
            self.path,
            job,
            strategy=strategy,
            on_incompatible=on_incompatible,
            topics_of=lambda table: [topic or f"cdc.{table}"],
            is_shared=lambda *_: shared,
            log=context().log,
        )
        return self.publisher

    def close(self) -> None:
        """Stop the publisher."""
        if self.publisher is not None:
            self.publisher.close()
            self.publisher = None


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Return a desk whose publisher is stopped after the test."""
    made = Desk(tmp_path / "state.db")
    yield made
    made.close()


def framing_of(publisher: Publisher, form: str = "none", on_incompatible: str = "stop") -> Framing:
    """Return a framing of keys and values."""
    return Framing(publisher, form=form, on_incompatible=on_incompatible, parts=("key", "value"))


def published(publisher: Publisher, schema: RecordSchema = SCHEMA) -> None:
    """Wait until the publisher's thread has an outcome for *schema*."""
    until(lambda: publisher.outcome(schema.schema_id, "value") is not None, "no outcome")


def encoded(*schemas: RecordSchema) -> EncodedRecords:
    """Return a record of each schema."""
    return EncodedRecords(
        keys=[b"k"] * len(schemas),
        values=[b"v%d" % n for n in range(len(schemas))],
        headers=[(("schemaId", schema.schema_id),) for schema in schemas],
        tables=[schema.table for schema in schemas],
    )


def test_key_and_value_are_published_under_their_subjects(desk: Desk) -> None:
    """A schema is published once, however often it is announced, also after a restart."""
    publisher = desk.open()
    publisher.announce([SCHEMA])
    publisher.announce([SCHEMA])
    published(publisher)
    publisher = desk.open()
    publisher.announce([SCHEMA, OTHER])
    published(publisher, OTHER)

    assert [f"cdc.shop.{t}-{p}" for t in ("orders", "users") for p in ("key", "value")] == (
        desk.store.kept
    )


def test_nothing_waits_for_a_store_that_is_away(desk: Desk) -> None:
    """While the store is down records are sent; the schema is published when it is back."""
    desk.store.there.clear()
    publisher = desk.open()
    publisher.announce([SCHEMA])

    assert encoded(SCHEMA) == framing_of(publisher).apply(encoded(SCHEMA))
    desk.store.there.set()
    published(publisher)
    assert 2 == len(desk.store.kept)


def test_what_was_queued_is_published_after_a_restart(desk: Desk) -> None:
    """The queue is stored in the state file, so that a restart publishes it."""
    desk.store.there.clear()
    desk.open().announce([SCHEMA])
    desk.close()
    desk.store.there.set()

    published(desk.open())

    assert 2 == len(desk.store.kept)


def test_a_number_stands_before_key_and_value(desk: Desk) -> None:
    """A framed message starts with Confluent's five bytes: zero, and the id, big-endian."""
    publisher = desk.open()
    publisher.announce([SCHEMA])
    published(publisher)

    framed = framing_of(publisher, "confluent").apply(encoded(SCHEMA))

    assert [b"\0\0\0\0\1k"] == list(framed.keys)
    assert [b"\0\0\0\0\2v0"] == list(framed.values)


def test_without_its_number_a_message_waits(desk: Desk) -> None:
    """With framing, a message waits while the store is down; without framing it does not."""
    desk.store.there.clear()
    publisher = desk.open()
    publisher.announce([SCHEMA])
    framing = framing_of(publisher, "confluent")

    with pytest.raises(SchemaUnpublishedError):
        framing.apply(encoded(SCHEMA))
    desk.store.there.set()
    published(publisher)
    assert 1 == len(framing.apply(encoded(SCHEMA)))


def test_guids_stand_in_headers(desk: Desk) -> None:
    """Each part has a header of a one and 16 bytes; records of a schema share the headers."""
    publisher = desk.open()
    publisher.announce([SCHEMA])
    published(publisher)
    framing = framing_of(publisher, "confluent-headers")

    (headers,) = framing.apply(encoded(SCHEMA)).headers

    assert (
        ("schemaId", SCHEMA.schema_id),
        ("__key_schema_id", b"\1" + GUID),
        ("__value_schema_id", b"\1" + GUID),
    ) == headers


def test_a_store_without_guids_cannot_serve_headers(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Headers with a store that has no GUIDs are refused, with a hint what to do."""
    monkeypatch.setattr(desk.store, "publish", lambda *_: Published(7))
    publisher = desk.open()
    publisher.announce([SCHEMA])
    published(publisher)

    with pytest.raises(NoGuidError, match="gives no guid"):
        framing_of(publisher, "confluent-headers").apply(encoded(SCHEMA))


def test_a_refused_schema_stops_its_records(desk: Desk) -> None:
    """Only records of a rejected schema fail, also after a restart."""
    desk.store.refused.add("cdc.shop.orders-value")
    publisher = desk.open()
    publisher.announce([SCHEMA, OTHER])
    published(publisher, OTHER)

    for _ in range(2):
        with pytest.raises(SchemaIncompatibleError, match="not after that one"):
            framing_of(publisher).accepted(encoded(OTHER, SCHEMA))
        assert 1 == len(framing_of(publisher).accepted(encoded(OTHER)))
        publisher = desk.open()
        published(publisher)


def test_a_refused_schema_is_asked_for_again(desk: Desk) -> None:
    """After a restart a rejected schema is sent again, and its records wait for the answer."""
    desk.store.refused.add("cdc.shop.orders-value")
    publisher = desk.open()
    publisher.announce([SCHEMA])
    published(publisher)
    desk.close()
    desk.store.refused.clear()
    desk.store.there.clear()
    publisher = desk.open()
    publisher.announce([SCHEMA])

    with pytest.raises(SchemaUnpublishedError):
        framing_of(publisher).accepted(encoded(SCHEMA))
    desk.store.there.set()
    published(publisher)
    assert 1 == len(framing_of(publisher).accepted(encoded(SCHEMA)))


def test_a_schema_that_options_changed_is_published_again(desk: Desk) -> None:
    """Another envelope keeps a table's schema id, but its schema is published as another one."""
    changed = RecordSchema(SCHEMA.table, SCHEMA.text, SCHEMA.schema_id, SCHEMA.key, {"type": "int"})
    numbers = []
    for schema in (SCHEMA, changed, SCHEMA):
        publisher = desk.open()
        publisher.announce([schema])
        published(publisher)
        outcome = publisher.outcome(schema.schema_id, "value")
        assert outcome
        numbers.append(outcome.number)

    assert [2, 3, 4] == numbers
    assert 4 == len(desk.store.kept)


def test_records_of_a_refused_schema_are_dead_letters(desk: Desk) -> None:
    """With `dlq` records of a rejected schema are dead-lettered; all others are delivered."""
    desk.store.refused.add("cdc.shop.orders-value")
    publisher = desk.open("dlq")
    publisher.announce([SCHEMA, OTHER])
    published(publisher, OTHER)

    framing = framing_of(publisher, on_incompatible="dlq")
    left = framing.accepted(encoded(OTHER, SCHEMA, OTHER))

    assert [b"v0", b"v2"] == list(left.values)
    assert [("schema_incompatible", b"v1")] == [(q.code, q.content) for q in left.quarantined]


def test_a_refused_schema_begins_a_subject_of_its_own(desk: Desk) -> None:
    """With `new_subject` a rejected schema is published under a subject with its schema id."""
    desk.store.refused.add("cdc.shop.orders-value")
    publisher = desk.open("new_subject")
    publisher.announce([SCHEMA])
    published(publisher)

    assert f"cdc.shop.orders-value-{SCHEMA.schema_id.hex()[:8]}" == desk.store.kept[-1]
    assert 1 == len(framing_of(publisher, "confluent").apply(encoded(SCHEMA)))


def table_schema(name: str) -> RecordSchema:
    """Return the schema of a table, with names as the source writes them."""
    document = {"type": "record", "namespace": f"headrace.s.{name}", "fields": []}
    return RecordSchema.of(
        f"s.{name}",
        f"CREATE TABLE s.{name} (…)",
        key={**document, "name": "Key"},
        value={**document, "name": "Change"},
    )


@pytest.mark.parametrize(
    ("shared", "subjects"),
    [
        (False, ["t-key", "t-value"]),
        (True, ["t-headrace.s.a.Key", "t-headrace.s.a.Change"]),
    ],
)
def test_a_topic_of_many_tables_has_subjects_for_each(
    desk: Desk, *, shared: bool, subjects: list[str]
) -> None:
    """By default subjects are named after the topic, and after the record if tables share it."""
    publisher = desk.open(strategy=None, topic="t", shared=shared)
    publisher.announce([table_schema("a")])
    published(publisher, table_schema("a"))

    assert subjects == desk.store.kept


def test_a_table_keeps_its_subjects_when_others_come(desk: Desk) -> None:
    """A subject named after the topic stays; another table of the topic never takes it."""
    first, second = table_schema("a"), table_schema("b")
    publisher = desk.open(topic="t")
    publisher.announce([first])
    published(publisher, first)

    publisher = desk.open(strategy=None, topic="t", shared=True)
    publisher.announce([second, first])
    published(publisher, second)
    publisher = desk.open(strategy=None, topic="t", shared=False)
    publisher.announce([second, first])
    published(publisher, second)

    expected = ["t-key", "t-value", "t-headrace.s.b.Key", "t-headrace.s.b.Change"]
    assert expected == desk.store.kept


def test_a_table_keeps_its_subjects_in_a_fork(desk: Desk) -> None:
    """When a table moves to a forked job, its subjects stay the same."""
    first = table_schema("a")
    publisher = desk.open(strategy=None, topic="t", shared=False)
    publisher.announce([first])
    published(publisher, first)
    publisher = desk.open(strategy=None, topic="t", shared=True, job="job~cdc.s.a")
    publisher.announce([first])
    published(publisher, first)

    assert ["t-key", "t-value"] * 2 == desk.store.kept


def test_tables_that_were_refused_for_sharing_a_subject_get_their_own(desk: Desk) -> None:
    """Tables that were rejected for sharing a subject get their own with the next start."""
    first, second = table_schema("a"), table_schema("b")
    publisher = desk.open(topic="t")
    publisher.announce([first])
    published(publisher, first)
    desk.store.refused |= {"t-key", "t-value"}
    publisher.announce([second])
    published(publisher, second)
    with pytest.raises(SchemaIncompatibleError, match=r"table s\.b, subject t-key") as caught:
        framing_of(publisher).accepted(encoded(second))
    assert "subject.name.strategy to TopicRecordNameStrategy" in caught.value.hint

    publisher = desk.open(strategy=None, topic="t", shared=True)
    publisher.announce([first, second])
    until(lambda: 4 == len(desk.store.kept), "its schemas were not published")

    assert 2 == len(framing_of(publisher).accepted(encoded(first, second)))
    assert ["t-headrace.s.b.Key", "t-headrace.s.b.Change"] == desk.store.kept[2:]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    list(zip(STRATEGIES, ("t-value", "ns.Change", "t-ns.Change"), strict=True)),
)
def test_subjects_are_named_as_confluents(strategy: str, expected: str) -> None:
    """Subjects are named by topic, by record, or by both, as Confluent names them."""
    schema = {"type": "record", "name": "Change", "namespace": "ns", "fields": []}

    assert expected == subject_of(strategy, "value", topic="t", schema=schema)
