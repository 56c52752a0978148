"""Schemas go to a schema store behind the stream: queued durably, published on another thread.

The data thread announces schemas and looks up what became of them; it waits for nothing. The other
thread asks the store, again and again while it does not answer. They exchange messages.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

import structlog

from headrace.connector.stores import Publication, Publications, PublicationState
from headrace.connector.stores.open_control_store import open_notes
from headrace.connector.stores.target_state import FORK_MARK
from headrace.plugins import (
    Document,
    FatalError,
    HeadraceError,
    RecordSchema,
    RetriableError,
    SchemaRefusedError,
    SchemaStore,
)

PAUSE_FIRST_SECONDS: Final = 0.2
PAUSE_SECONDS_MAX: Final = 30.0
STOP_SECONDS_MAX: Final = 5.0
BY_TOPIC: Final = "TopicNameStrategy"
BY_BOTH: Final = "TopicRecordNameStrategy"
STRATEGIES: Final = (BY_TOPIC, "RecordNameStrategy", BY_BOTH)
PARTS: Final = ("key", "value")
NOTHING_LOST: Final = "Nothing is lost: records that were not sent are read again"
_SUFFIX_DIGITS: Final = 8  # Of the schema's id, behind a subject of its own.


class SchemaUnpublishedError(RetriableError):
    """A message must have the number that the store gives its schema, and it has none yet."""

    code = "schema_unpublished"


class SchemaIncompatibleError(FatalError):
    """The schema store refused a table's new schema, and `schema.on.incompatible` is `stop`."""

    code = "schema_incompatible"
    table = ""
    """The table, as `keyspace.table`."""
    remedy = ""
    """What the hint says, without how to go on."""


def unpublished(schema_id: bytes, problem: HeadraceError | None) -> SchemaUnpublishedError:
    """Return the error of a schema that has no number yet; *problem* is the store's last one."""
    said = f": {problem.code}: {problem.place}: {problem.message}" if problem else ""
    hint = (problem.hint if problem else "") or "see that the schema store answers"
    return SchemaUnpublishedError(
        f"the schema store has given no number yet{said}",
        place=f"schema {schema_id.hex()}",
        hint=f"{hint}. Nothing is lost: the records wait, and are read again when the job is "
        "started again. Without schema.framing no record waits for the store",
    )


def incompatible(table: str, refused: Publication) -> SchemaIncompatibleError:
    """Return the error of a *table* whose records cannot be sent: its schema was *refused*."""
    subject = refused.subject
    remedy = (
        f"allow it at the store (compatibility level or mode of subject {subject}), or set "
        "schema.on.incompatible to new_subject or dlq, or, if other tables have this subject, "
        f"set subject.name.strategy to {BY_BOTH}"
    )
    error = SchemaIncompatibleError(
        f"the schema store refused the {refused.part} schema: {refused.problem}",
        place=f"table {table}, subject {subject}",
        hint=f"{remedy}; then start again. {NOTHING_LOST}",
    )
    error.table, error.remedy = table, remedy
    return error


def subject_of(strategy: str, part: str, *, topic: str, schema: Document) -> str:
    """Return the subject of a schema under one of Confluent's strategies."""
    name = _name_of(schema)
    match strategy:
        case "RecordNameStrategy":
            return name
        case "TopicRecordNameStrategy":
            return f"{topic}-{name}"
        case _:
            return f"{topic}-{part}"


def _name_of(schema: Document) -> str:
    """Return the record's name with its namespace: the table's, and what it is of it."""
    return ".".join(schema[part] for part in ("namespace", "name") if part in schema)


class Publisher:
    """See the module. Made, called and closed on the data thread."""

    def __init__(  # noqa: PLR0913 (what it is told)
        self,
        store: SchemaStore,
        notes: Path,
        job: str,
        *,
        strategy: str | None,
        on_incompatible: str,
        topics_of: Callable[[str], Sequence[str]],
        is_shared: Callable[[str, str], bool],
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        """Begin with what is still to be published. *notes* is as for `open_notes`.

        *topics_of* says where the records of a table are sent, and *is_shared* of a table and such
        a topic whether records of other tables can be sent there. Without a *strategy* it decides.
        """
        self._store = store
        self._open = partial(open_notes, notes)
        self._job = job
        self._strategy = strategy
        self._on_incompatible = on_incompatible
        self._topics_of = topics_of
        self._is_shared = is_shared
        self._log = log
        self._notes = self._open()
        self._queue = self._notes.store(job).publications()
        self._queues = [self._queue]
        if FORK_MARK in job:  # It publishes on what the job that it parted from began.
            base = job.partition(FORK_MARK)[0]
            self._queues.append(self._notes.store(base).publications())
        self._told: SimpleQueue[Publication] = SimpleQueue()
        self._known: dict[tuple[bytes, str], dict[str, Publication]] = {}
        self._wanted: dict[tuple[bytes, str], Mapping[str, str]] = {}  # Texts, by subjects.
        self._asked_again: set[tuple[bytes, str]] = set()
        for each in self._queue.all():
            if each.state is PublicationState.REFUSED:  # Somebody may have mended it since.
                self._ask_again(each)
            else:
                self._note(each)
        self._wake = threading.Event()
        self._stopping = False
        self._problem: HeadraceError | None = None  # The other thread's; this one only reads it.
        self._thread = threading.Thread(target=self._run, name="schemas", daemon=True)
        self._thread.start()

    # The data thread's.

    def announce(self, schemas: Sequence[RecordSchema], parts: Sequence[str] = PARTS) -> None:
        """Queue the schemas of keys and values, as their records are encoded.

        From now on only what becomes of these counts: not what was published by other options.
        """
        if not schemas:
            return
        pairs = [(schema, part) for schema in schemas for part in parts]
        queued = {(s.schema_id, part): self._publications(s, part) for s, part in pairs}
        self._queue.enqueue([each for publications in queued.values() for each in publications])
        for key, publications in queued.items():
            self._wanted[key] = {each.subject: each.text for each in publications}
            self._known.pop(key, None)
        for each in self._queue.all():
            self._note(each)
        self._wake.set()

    def outcome(self, schema_id: bytes, part: str) -> Publication | None:
        """Return what became of a schema; None while it waits."""
        found = self._known.get((schema_id, part))
        if not found:
            self._hear()
            found = self._known.get((schema_id, part))
        outcomes = sorted((found or {}).values(), key=lambda each: each.number is None)
        return outcomes[0] if outcomes else None

    def unpublished(self, schema_id: bytes) -> SchemaUnpublishedError:
        """Return the error of a schema that waits, with what keeps it from being published."""
        return unpublished(schema_id, self._problem)

    def refusal(self, schema_id: bytes) -> Publication | None:
        """Return what the store refused of a schema: its `problem` says why.

        Raises:
            SchemaUnpublishedError: it refused the schema before, and is asked again just now.

        """
        self._hear()
        keys = [(schema_id, part) for part in PARTS]
        if not self._asked_again.isdisjoint(keys):
            raise self.unpublished(schema_id)
        outcomes = [each for key in keys for each in self._known.get(key, {}).values()]
        return next((o for o in outcomes if o.state is PublicationState.REFUSED), None)

    def close(self) -> None:
        """Stop; what is queued stays queued."""
        self._stopping = True
        self._wake.set()
        self._thread.join(STOP_SECONDS_MAX)
        self._notes.close()

    def _publications(self, schema: RecordSchema, part: str) -> Sequence[Publication]:
        document = schema.key if part == "key" else schema.value
        subjects = []
        for topic in self._topics_of(schema.table):
            strategy = self._strategy or self._fitting(schema.table, topic, part, document)
            subjects.append(subject_of(strategy, part, topic=topic, schema=document))
        text = json.dumps(document, separators=(",", ":"))
        return [
            Publication(subject=subject, schema_id=schema.schema_id, part=part, text=text)
            for subject in dict.fromkeys(subjects)
        ]

    def _fitting(self, table: str, topic: str, part: str, document: Document) -> str:
        """Return the strategy with which no two tables share a subject.

        A table that was published as `<topic>-<part>` keeps that subject, also when other tables
        come to the topic.
        """
        subject = subject_of(BY_TOPIC, part, topic=topic, schema=document)
        queued = [each for queue in self._queues for each in queue.all()]
        known = [each for each in queued if each.subject == subject]
        published = [each for each in known if each.state is PublicationState.PUBLISHED]
        names = {_name_of(json.loads(each.text)) for each in published or known}
        if names:
            return BY_TOPIC if names == {_name_of(document)} else BY_BOTH
        return BY_BOTH if self._is_shared(table, topic) else BY_TOPIC

    def _hear(self) -> None:
        while True:
            try:
                self._note(self._told.get_nowait())
            except Empty:
                return

    def _note(self, outcome: Publication) -> None:
        if outcome.state is PublicationState.QUEUED:
            return
        key = outcome.schema_id, outcome.part
        self._asked_again.discard(key)
        wanted = self._wanted.get(key)
        moved = f"-{outcome.schema_id.hex()[:_SUFFIX_DIGITS]}"
        text = (wanted or {}).get(outcome.subject.removesuffix(moved))
        is_meant = wanted is None or text == outcome.text
        if is_meant and outcome.state is not PublicationState.MOVED:
            self._known.setdefault(key, {})[outcome.subject] = outcome

    def _ask_again(self, refused: Publication) -> None:
        key = refused.schema_id, refused.part
        moved = refused.subject.endswith(f"-{refused.schema_id.hex()[:_SUFFIX_DIGITS]}")
        problem = refused.problem if moved else ""
        self._queue.settle(replace(refused, state=PublicationState.QUEUED, problem=problem))
        self._asked_again.add(key)

    # The other thread's.

    def _run(self) -> None:
        notes = self._open()
        try:
            queue = notes.store(self._job).publications()
            pause = PAUSE_FIRST_SECONDS
            last = False
            while not last:
                self._wake.clear()
                last = self._stopping  # Then what is queued is tried once more.
                try:
                    self._publish_all(queue)
                    self._problem = None
                    pause = PAUSE_FIRST_SECONDS
                    wait_seconds = None
                except HeadraceError as error:
                    self._problem = error
                    if pause == PAUSE_FIRST_SECONDS:  # Once for each time that it stays away.
                        self._log.warning("schemas_unpublished", error=str(error))
                    wait_seconds = pause
                    pause = min(2 * pause, PAUSE_SECONDS_MAX)
                if not last:
                    self._wake.wait(wait_seconds)
        except Exception as error:  # noqa: BLE001 (a plugin: the stream goes on without it)
            self._log.error("plugin_broken", exc_info=error)
        finally:
            self._store.close()
            notes.close()

    def _publish_all(self, queue: Publications) -> None:
        """Publish what is queued. Raises what keeps it from being published."""
        waiting = [each for each in queue.all() if each.state is PublicationState.QUEUED]
        for each in waiting:
            outcome = self._publish(queue, each)
            queue.settle(outcome)
            self._told.put(outcome)

    def _publish(self, queue: Publications, queued: Publication) -> Publication:
        schema = RecordSchema("", "", queued.schema_id, {}, {})
        try:
            made = self._store.publish(queued.subject, queued.text, schema)
        except SchemaRefusedError as error:
            self._log.warning("schema_refused", subject=queued.subject, error=str(error))
            moved = f"{queued.subject}-{queued.schema_id.hex()[:_SUFFIX_DIGITS]}"
            if self._on_incompatible == "new_subject" and not queued.problem:
                queue.enqueue([replace(queued, subject=moved, problem=error.message)])
                self._wake.set()
                state = PublicationState.MOVED
            else:
                state = PublicationState.REFUSED
            return replace(queued, state=state, problem=error.message)
        return replace(
            queued,
            state=PublicationState.PUBLISHED,
            number=made.number,
            guid=made.guid,
        )
