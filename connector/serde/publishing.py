"""Schemas go to a schema store behind the stream: queued durably, published on another thread.

The data thread announces schemas and looks up what became of them; it waits for nothing. The other
thread asks the store, again and again while it does not answer. They exchange messages.
"""

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

import structlog

from headrace.connector.notes import open_notes
from headrace.connector.stores import Publication, Publications, PublicationState
from headrace.connector.stores.notes import job_store
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
STRATEGIES: Final = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")
PARTS: Final = ("key", "value")


class SchemaUnpublishedError(RetriableError):
    """A message must have the number that the store gives its schema, and it has none yet."""

    code = "schema_unpublished"


class SchemaIncompatibleError(FatalError):
    """The schema store refused a table's new schema, and `schema.on.incompatible` is `stop`."""

    code = "schema_incompatible"


def subject_of(strategy: str, part: str, *, topic: str, schema: Document) -> str:
    """Return the subject of a schema under one of Confluent's strategies."""
    name = ".".join(schema[part] for part in ("namespace", "name") if part in schema)
    match strategy:
        case "RecordNameStrategy":
            return name
        case "TopicRecordNameStrategy":
            return f"{topic}-{name}"
        case _:
            return f"{topic}-{part}"


class Publisher:
    """See the module. Made, called and closed on the data thread."""

    def __init__(  # noqa: PLR0913 (what it is told)
        self,
        store: SchemaStore,
        notes: Path,
        job: str,
        *,
        strategy: str,
        on_incompatible: str,
        topics_of: Callable[[str], Sequence[str]],
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        """Begin with what is still to be published. *notes* is as for `open_notes`.

        *topics_of* says where the records of a table are sent.
        """
        self._store = store
        self._open = partial(open_notes, notes)
        self._job = job
        self._strategy = strategy
        self._on_incompatible = on_incompatible
        self._topics_of = topics_of
        self._log = log
        self._connection = self._open()
        self._queue = job_store(self._connection, job).publications()
        self._told: SimpleQueue[Publication] = SimpleQueue()
        self._known: dict[tuple[bytes, str], Publication] = {}
        for each in self._queue.all():
            self._note(each)
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="schemas", daemon=True)
        self._thread.start()

    # The data thread's.

    def announce(self, schemas: Sequence[RecordSchema], parts: Sequence[str] = PARTS) -> None:
        """Queue the schemas of keys and values, as their records are encoded."""
        if schemas:
            queued = [p for s in schemas for part in parts for p in self._publications(s, part)]
            self._queue.enqueue(queued)
            self._wake.set()

    def outcome(self, schema_id: bytes, part: str) -> Publication | None:
        """Return what became of a schema; None while it waits."""
        found = self._known.get((schema_id, part))
        if found is None:
            self._hear()
            found = self._known.get((schema_id, part))
        return found

    def refusal(self, schema_id: bytes) -> str:
        """Return why the store does not take a schema, or nothing."""
        self._hear()
        outcomes = [self._known.get((schema_id, part)) for part in PARTS]
        problems = [o.problem for o in outcomes if o and o.state is PublicationState.REFUSED]
        return problems[0] if problems else ""

    def close(self) -> None:
        """Stop; what is queued stays queued."""
        self._stopping = True
        self._wake.set()
        self._thread.join(STOP_SECONDS_MAX)
        self._connection.close()

    def _publications(self, schema: RecordSchema, part: str) -> Sequence[Publication]:
        document = schema.key if part == "key" else schema.value
        subjects = [
            subject_of(self._strategy, part, topic=topic, schema=document)
            for topic in self._topics_of(schema.table)
        ]
        text = json.dumps(document, separators=(",", ":"))
        return [
            Publication(subject=subject, schema_id=schema.schema_id, part=part, text=text)
            for subject in dict.fromkeys(subjects)
        ]

    def _hear(self) -> None:
        while True:
            try:
                self._note(self._told.get_nowait())
            except Empty:
                return

    def _note(self, outcome: Publication) -> None:
        if outcome.state in (PublicationState.PUBLISHED, PublicationState.REFUSED):
            self._known[outcome.schema_id, outcome.part] = outcome

    # The other thread's.

    def _run(self) -> None:
        connection = self._open()
        try:
            queue = job_store(connection, self._job).publications()
            pause = PAUSE_FIRST_SECONDS
            last = False
            while not last:
                self._wake.clear()
                last = self._stopping  # Then what is queued is tried once more.
                try:
                    self._publish_all(queue)
                    pause = PAUSE_FIRST_SECONDS
                    wait_seconds = None
                except HeadraceError as error:
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
            connection.close()

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
            moved = f"{queued.subject}-{queued.schema_id.hex()[:8]}"
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
