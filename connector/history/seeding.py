"""The seed of a history: rows of a table's snapshot become states, but not changes.

Bulk work reads the snapshot, as for a backfill, and writes it through `RowWriter`. The file records
which run does this, and the arrival from which all rows are known.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from headrace import plugins
from headrace.connector.history.errors import HistorySeedError
from headrace.connector.history.images import Expiries, next_expiry, row_name, state_of
from headrace.connector.history.store.contract import HistoryPart, HistoryStore, Name, Seed
from headrace.connector.history.writing.dividing import divided, schemas_of
from headrace.connector.rows.folding import TableView
from headrace.connector.rows.snapshots import seeded
from headrace.connector.serde.codecs.records import reader_of
from headrace.plugins.records.codecs import SCHEMA_ID_HEADER

_PACK: Final = msgspec.msgpack.Encoder()


def seed_now(file: HistoryStore) -> Seed | None:
    """Return the seed of the states that are currently stored."""
    epochs = file.epochs()
    return file.seed(epochs[-1].states_since_us) if epochs else None


def begin_seed(file: HistoryStore, run: str, now_us: int) -> None:
    """Allow only *run* to write rows from now on. Raises as `HistoryStore.writing`."""
    for part in file.parts:
        with part.writing():
            since_us = part.epochs()[-1].states_since_us
            known = part.seed(since_us) or Seed(run, now_us, None, 0)
            part.keep_seed(since_us, known._replace(run=run, done=None))


def end_seed(file: HistoryStore, now_ms: int) -> None:
    """Record that all rows were read. Raises as `HistoryStore.writing`."""
    for part in file.parts:
        with part.writing():
            since_us, seed = part.epochs()[-1].states_since_us, seed_now(part)
            if seed is not None and seed.done is None:
                done = part.next_arrival(now_ms)
                part.keep_seed(since_us, seed._replace(done=done))


class RowWriter(plugins.Writer):
    """Writes a run's rows of the table: each delivery is one transaction per part.

    Writing a row again has no effect.
    """

    def __init__(self, file: HistoryStore, run: str, clock: plugins.Clock) -> None:
        """Write to *file*; the writer closes it."""
        self._file = file
        self._rows = [_Rows(part, run, clock) for part in file.parts]
        self._schemas: set[bytes] = set()

    def submit(self, delivery: plugins.Delivery, settle: plugins.Settle) -> None:
        """Fold rows into the existing states.

        Raises:
            HistoryBusyError: some of it was not written: submit it again.
            HistorySeedError: another run seeds the history, or its states are no longer stored.

        """
        new = [each for each in schemas_of(delivery.encoded) if each not in self._schemas]
        if new:
            with self._file.writing():  # A row can expire before the first change.
                for schema_id in new:
                    self._file.schema_number(delivery.schemas[schema_id])
            self._schemas |= {*new}
        for rows, encoded in zip(self._rows, divided(delivery.encoded, self._file), strict=True):
            rows.write(encoded, delivery.schemas)
        settle(range(len(delivery.encoded)))

    def drain(self, deadline_ms: int) -> bool:  # noqa: ARG002 (nothing is ever unsettled)
        """Return True."""
        return True

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class _Rows:
    """The rows of one part."""

    def __init__(self, file: HistoryPart, run: str, clock: plugins.Clock) -> None:
        self._clock = clock
        self._file = file
        self._run = run
        self._expiries = Expiries(file)
        self._settled_s: int | None = None
        self._shapes: dict[bytes, _Shape] = {}

    def write(
        self, encoded: plugins.EncodedRecords, schemas: Mapping[bytes, plugins.RecordSchema]
    ) -> None:
        """Fold rows; raises as `RowWriter.submit`."""
        for schema_id in schemas.keys() - self._shapes.keys():
            self._shapes[schema_id] = _Shape(schemas[schema_id])
        with self._file.writing():
            seed = seed_now(self._file)
            if seed is None or seed.run != self._run:
                raise HistorySeedError(
                    f"run {self._run} does not seed this history any more",
                    place=self._file.place,
                    hint="another run does, or ALTER CDC removed the images: see DESCRIBE CDC",
                )
            self._settled_s = self._expiries.settle(self._clock.wall_ms())
            read_us = (self._clock.wall_ms() + 1) * 1_000
            self._fold(encoded, seed.begun_us, read_us)
            since_us = self._file.epochs()[-1].states_since_us
            self._file.keep_seed(since_us, seed._replace(rows=seed.rows + len(encoded)))

    def _fold(self, encoded: plugins.EncodedRecords, begun_us: int, read_us: int) -> None:
        parts: list[tuple[Name, _Shape, plugins.Document]] = []
        for key, content, headers in zip(
            encoded.keys, encoded.values, encoded.headers, strict=True
        ):
            shape = self._shapes[dict(headers)[SCHEMA_ID_HEADER]]
            value = shape.read(content)
            parts.append(((key or b"", row_name(value, shape.view)), shape, value))
        names = sorted({name for name, _, _ in parts})
        states = {(key, row): state for key, row, state in self._file.states(names)}
        for name, shape, value in parts:
            known = state_of(states.get(name))
            states[name] = _PACK.encode(seeded(known, value, shape.view, begun_us, read_us))
        expiries: dict[Name, int] = {}
        if self._settled_s is not None:
            expiries = {name: next_expiry(s, self._settled_s) for name, s in states.items()}
        self._file.keep_states(states, expiries)


class _Shape:
    """Reads the rows of one schema."""

    def __init__(self, schema: plugins.RecordSchema) -> None:
        """Read the schema."""
        self.read = reader_of(schema.value)
        self.view = TableView(schema)
