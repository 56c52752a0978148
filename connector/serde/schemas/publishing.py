"""Publishes schemas to a schema store: queues them durably; another thread publishes.

The data thread announces schemas and reads the results, without waiting. The other thread calls the
store, and retries while it does not answer. The threads exchange messages.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

import structlog
from msgspec.structs import replace

from headrace.connector.stores import Publication, PublicationState
from headrace.connector.stores.keyed.publications import Publications
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
SUFFIX_DIGITS: Final = 8  # The number of digits of the schema's id at the end of a new subject.


class SchemaUnpublishedError(RetriableError):
    """A message needs its schema's number, which the store has not yet assigned."""

    code = "schema_unpublished"


class SchemaIncompatibleError(FatalError):
    """The schema store refused a table's new schema, and `schema.on.incompatible` is `stop`."""

    code = "schema_incompatible"
    table = ""
    """The table, as `keyspace.table`."""
    remedy = ""
    """The part of the hint that says how to get the schema accepted."""


def unpublished(schema_id: bytes, problem: HeadraceError | None) -> SchemaUnpublishedError:
    """Return the error for a schema without a number; *problem* is the store's last one."""
    said = f": {problem.code}: {problem.place}: {problem.message}" if problem else ""
    hint = (problem.hint if problem else "") or "see that the schema store answers"
    return SchemaUnpublishedError(
        f"the schema store has not assigned a number yet{said}",
        place=f"schema {schema_id.hex()}",
        hint=f"{hint}. Nothing is lost: the records wait, and are read again when the job is "
        "started again. Without schema.framing no record waits for the store",
    )


def incompatible(table: str, refused: Publication) -> SchemaIncompatibleError:
    """Return the error for a *table* whose records cannot be sent: its schema was *refused*."""
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
    """Return the record's full name: the table's namespace and the name of the part."""
    return ".".join(schema[part] for part in ("namespace", "name") if part in schema)


class Publisher:
    """Publishes schemas in the background. Create, call and close it on the data thread."""

    def __init__(  # noqa: PLR0913 (settings)
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
        """Start with the schemas that are still queued. *notes* is as for `open_notes`.

        *topics_of* returns the topics of a table, and *is_shared* says whether records of other
        tables can be sent to such a topic. Without a *strategy*, it is chosen by *is_shared*.
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
        if FORK_MARK in job:  # It continues the publications of the original job.
            base = job.partition(FORK_MARK)[0]
            self._queues.append(self._notes.store(base).publications())
        self._reported: SimpleQueue[Publication] = SimpleQueue()
        self._known: dict[tuple[bytes, str], dict[str, Publication]] = {}
        self._wanted: dict[tuple[bytes, str], Mapping[str, str]] = {}  # Schemas by subject.
        self._asked_again: set[tuple[bytes, str]] = set()
        for each in self._queue.all():
            if each.state is PublicationState.REFUSED:  # A user may have changed the store.
                self._ask_again(each)
            else:
                self._note(each)
        self._wake = threading.Event()
        self._stopping = False
        self._problem: HeadraceError | None = None  # Only written by the other thread.
        self._thread = threading.Thread(target=self._run, name="schemas", daemon=True)
        self._thread.start()

    # For the data thread.

    def announce(self, schemas: Sequence[RecordSchema], parts: Sequence[str] = PARTS) -> None:
        """Queue the schemas of keys and values, in the form of the encoded records.

        From now on only their results count, and not those under other options.
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
        """Return the result for a schema, or None while it waits."""
        found = self._known.get((schema_id, part))
        if not found:
            self._hear()
            found = self._known.get((schema_id, part))
        outcomes = sorted((found or {}).values(), key=lambda each: each.number is None)
        return outcomes[0] if outcomes else None

    def unpublished(self, schema_id: bytes) -> SchemaUnpublishedError:
        """Return the error for a waiting schema, with the problem that delays it."""
        return unpublished(schema_id, self._problem)

    def refusal(self, schema_id: bytes) -> Publication | None:
        """Return the refused publication of a schema, or None; `problem` is the reason.

        Raises:
            SchemaUnpublishedError: the store refused the schema before, and is being asked again.

        """
        self._hear()
        keys = [(schema_id, part) for part in PARTS]
        if not self._asked_again.isdisjoint(keys):
            raise self.unpublished(schema_id)
        outcomes = [each for key in keys for each in self._known.get(key, {}).values()]
        return next((o for o in outcomes if o.state is PublicationState.REFUSED), None)

    def close(self) -> None:
        """Stop publishing; queued schemas stay queued."""
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
        """Return a strategy with which tables never share a subject.

        A table that was published as `<topic>-<part>` keeps this subject, even if the topic later
        has other tables.
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
                self._note(self._reported.get_nowait())
            except Empty:
                return

    def _note(self, outcome: Publication) -> None:
        if outcome.state is PublicationState.QUEUED:
            return
        key = outcome.schema_id, outcome.part
        self._asked_again.discard(key)
        wanted = self._wanted.get(key)
        moved = f"-{outcome.schema_id.hex()[:SUFFIX_DIGITS]}"
        text = (wanted or {}).get(outcome.subject.removesuffix(moved))
        is_meant = wanted is None or text == outcome.text
        if is_meant and outcome.state is not PublicationState.MOVED:
            self._known.setdefault(key, {})[outcome.subject] = outcome

    def _ask_again(self, refused: Publication) -> None:
        key = refused.schema_id, refused.part
        moved = refused.subject.endswith(f"-{refused.schema_id.hex()[:SUFFIX_DIGITS]}")
        problem = refused.problem if moved else ""
        self._queue.settle(replace(refused, state=PublicationState.QUEUED, problem=problem))
        self._asked_again.add(key)

    # For the other thread.

    def _run(self) -> None:
        notes = self._open()
        try:
            queue = notes.store(self._job).publications()
            pause = PAUSE_FIRST_SECONDS
            last = False
            while not last:
                self._wake.clear()
                last = self._stopping  # The last attempt for queued schemas.
                try:
                    self._publish_all(queue)
                    self._problem = None
                    pause = PAUSE_FIRST_SECONDS
                    wait_seconds = None
                except HeadraceError as error:
                    self._problem = error
                    if pause == PAUSE_FIRST_SECONDS:  # Logged once for each outage.
                        self._log.warning("schemas_unpublished", error=str(error))
                    wait_seconds = pause
                    pause = min(2 * pause, PAUSE_SECONDS_MAX)
                if not last:
                    self._wake.wait(wait_seconds)
        except Exception as error:  # noqa: BLE001 (a plugin: the stream continues without it)
            self._log.error("plugin_broken", exc_info=error)
        finally:
            self._store.close()
            notes.close()

    def _publish_all(self, queue: Publications) -> None:
        """Publish queued schemas. Raises the errors of the store."""
        waiting = [each for each in queue.all() if each.state is PublicationState.QUEUED]
        for each in waiting:
            outcome = self._publish(queue, each)
            queue.settle(outcome)
            self._reported.put(outcome)

    def _publish(self, queue: Publications, queued: Publication) -> Publication:
        schema = RecordSchema("", "", queued.schema_id, {}, {})
        try:
            made = self._store.publish(queued.subject, queued.text, schema)
        except SchemaRefusedError as error:
            self._log.warning("schema_refused", subject=queued.subject, error=str(error))
            moved = f"{queued.subject}-{queued.schema_id.hex()[:SUFFIX_DIGITS]}"
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
