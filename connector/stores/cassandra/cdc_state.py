"""CEP-44's table `cdc_state`: publishes states of splits by token range, and starts jobs from them.

A row is a compressed document: a whole state or, if the state is large, its head and the names of
its chunks, which are rows of `cdc_state_chunks`. Both have the time to live of CEP-44. A running
job does not need these rows.
"""

import time
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from headrace.connector.stores import (
    QUARANTINE_BYTES_MAX,
    Commit,
    SplitState,
    StateLostError,
    StoreUnavailableError,
)
from headrace.connector.stores.keyed.rows import Head
from headrace.connector.stores.keyed.store import Store
from headrace.connector.stores.stored import JOB_KEY_BYTES
from headrace.plugins import ConfigError, EncodedPosition, Problem, TokenRange

if TYPE_CHECKING:  # Users without a store in Cassandra need no driver.
    from headrace.connector.stores.cassandra.session import CassandraSession
    from headrace.connector.stores.cassandra.values import CassandraValues

START: Final = "cdc_state:"  # The prefix of a `start` that names a job.
PUBLISH_SECONDS: Final = 60
WHOLE_BYTES_MAX: Final = 1024 * 1024  # The largest state in one row.
STEP_BYTES_MAX: Final = 4 * 1024 * 1024  # Chunks that one commit copies; later ones continue.
RENEW_SECONDS: Final = 10 * 24 * 3600  # The rows live for 30 days.
_RING: Final = (-(1 << 63), 1 << 63)
_ATTEMPTS: Final = 3
_FORMAT: Final = 1
_SMALLINT: Final = 0x7FFF  # The type of the column of the number.
_PUT: Final = 'INSERT INTO cdc_state (job_id, split, start, "end", state) VALUES (?, ?, ?, ?, ?)'
_PUT_CHUNK: Final = (
    'INSERT INTO cdc_state_chunks (job_id, split, start, "end", name, content) '
    "VALUES (?, ?, ?, ?, ?, ?)"
)
_WHERE: Final = 'WHERE job_id = ? AND split = ? AND start = ? AND "end" = ?'
_DROP_CHUNK: Final = f"DELETE FROM cdc_state_chunks {_WHERE} AND name = ?"  # noqa: S608 (constants)
_NAMES: Final = f"SELECT name FROM cdc_state_chunks {_WHERE}"  # noqa: S608 (constants)
_CHUNKS: Final = f"SELECT name, content FROM cdc_state_chunks {_WHERE}"  # noqa: S608 (constants)
_ROWS: Final = (
    'SELECT split, start, "end", state, WRITETIME(state) AS written FROM cdc_state '
    "WHERE job_id = ? AND split = ?"
)
_HINT: Final = (
    "a row is written a minute after a split's first commit and kept for 30 days; begin with "
    "another `start`"
)

Row = tuple[str, int, int, int]  # The key: the job, the number of the split, its tokens.
Contents = Callable[[Collection[str]], Mapping[str, bytes]]  # Returns chunks by their names.


class StateDocument(msgspec.Struct, frozen=True):
    """A split's state in a row: `chunks` has the chunks, or `names` the rows that have them."""

    split: str
    plan: int
    seq: int
    job_key: bytes
    head: bytes
    chunks: dict[str, bytes] = {}
    names: list[str] = []
    format: int = _FORMAT


class StatePublisher:
    """Writes the states of a job's splits, each once a minute. Belongs to the session's thread."""

    def __init__(self, session: "CassandraSession", job: str, key: Callable[[], bytes]) -> None:
        """Write nothing yet; *key* returns the job's secret key."""
        self._session = session
        self._job = job
        self._key_of_job = key
        self._key = b""
        self._published: dict[str, float] = {}  # Time of publication, by split.
        self._written: dict[str, dict[str, float]] = {}  # Times, by split and chunk.

    def is_due(self, split: str) -> bool:
        """Return whether a split's state was not published for a minute."""
        last = self._published.get(split, -float("inf"))
        return time.monotonic() - last >= PUBLISH_SECONDS

    def publish(self, commit: Commit, sizes: Mapping[str, int], contents: Contents) -> None:
        """Write a committed state; if it is large, its new chunks first.

        *sizes* has all chunks of the state.

        Raises:
            StoreUnavailableError: the state was not written; the next attempt is a minute later.

        """
        now = time.monotonic()
        last = self._published.get(commit.split, -float("inf"))
        if commit.tokens is None:  # The split is not a range of tokens.
            return
        row = self._row(commit.tokens)
        self._published[commit.split] = now
        if sum(sizes.values()) <= WHOLE_BYTES_MAX:
            chunks = dict(contents(sizes))
            if len(chunks) == len(sizes):  # Else the next load reports the damage.
                self._put(row, commit, chunks=chunks)
        elif self._copy(row, commit.split, sizes, contents, now):
            self._put(row, commit, names=sorted(sizes))
            self._drop(row, commit.split, sizes)
        else:
            self._published[commit.split] = last  # The next commit continues.

    def _row(self, tokens: TokenRange) -> Row:
        return self._job, tokens.number & _SMALLINT, tokens.first, tokens.behind

    def _copy(
        self, row: Row, split: str, sizes: Mapping[str, int], contents: Contents, now: float
    ) -> bool:
        """Write missing chunks, some at a time; return whether all exist."""
        if split not in self._written:  # An earlier process may have left some.
            names = [each["name"] for each in self._session.rows(_NAMES, *row)]
            self._written[split] = dict.fromkeys(names, -float("inf"))
        written = self._written[split]
        due = [n for n in sizes if now - written.get(n, -float("inf")) > RENEW_SECONDS]
        step: list[str] = []
        for name in due:
            if step and sum(sizes[each] for each in (*step, name)) > STEP_BYTES_MAX:
                break
            step.append(name)
        content = contents(step)
        self._session.write(
            [(_PUT_CHUNK, (*row, n, zlib.compress(found, 1))) for n, found in content.items()]
        )
        written |= dict.fromkeys(content, now)
        return len(content) == len(due)

    def _put(
        self,
        row: Row,
        commit: Commit,
        *,
        chunks: dict[str, bytes] | None = None,
        names: Sequence[str] = (),
    ) -> None:
        if not self._key:
            self._key = self._key_of_job()
        made = StateDocument(
            split=commit.split,
            plan=commit.plan,
            seq=commit.seq,
            job_key=self._key,
            head=commit.position.head,
            chunks=chunks or {},
            names=list(names),
        )
        blob = zlib.compress(msgspec.msgpack.encode(made), 1)
        self._session.write([(_PUT, (*row, blob))])

    def _drop(self, row: Row, split: str, sizes: Collection[str]) -> None:
        """Remove chunks that no row names."""
        for name in set(self._written[split]).difference(sizes):
            del self._written[split][name]
            self._session.write_later(_DROP_CHUNK, (*row, name))


class PublishedStates(Store):
    """A store in Cassandra that publishes its states: a new job may start from them."""

    def __init__(
        self,
        values: "CassandraValues",
        job: str,
        *,
        quarantine_bytes_max: int = QUARANTINE_BYTES_MAX,
    ) -> None:
        """Own *values*, which belong to this thread."""
        super().__init__(values, job, quarantine_bytes_max=quarantine_bytes_max)
        self._session = values.session
        self._publisher = StatePublisher(values.session, job, self.job_key)
        self._unpublished: dict[str, tuple[Commit, Head]] = {}  # The last of each split.
        self._heads.when_committed = self._publish

    def load(self, split: str, token: int) -> SplitState:
        """See `Store.load`."""
        self._unpublished.pop(split, None)
        return super().load(split, token)

    def release(self, owner: str, split: str, token: int, problem: str = "") -> None:
        """See `Store.release`: the last commit is published first, if it was not yet."""
        last = self._unpublished.pop(split, None)
        if last is not None:
            self._published_now(*last)
        super().release(owner, split, token, problem)

    def _publish(self, commit: Commit, head: Head) -> None:
        """Write the state in CEP-44's form, once a minute; no commit depends on it."""
        if self._publisher.is_due(commit.split):
            self._unpublished.pop(commit.split, None)
            self._published_now(commit, head)
        else:
            bare = EncodedPosition(commit.position.head, {}, frozenset(head.chunks or ()))
            self._unpublished[commit.split] = replace(commit, position=bare, losses=()), head

    def _published_now(self, commit: Commit, head: Head) -> None:
        sizes = {name: size for name, (_, size) in (head.chunks or {}).items()}
        with suppress(StoreUnavailableError):  # Only observers miss something.
            self._publisher.publish(commit, sizes, self._contents(commit, head))

    def _contents(self, commit: Commit, head: Head) -> Contents:
        """Return a function that finds chunks of a commit: in memory, or in their rows."""
        chunks = commit.position.chunks

        def contents(names: Collection[str]) -> Mapping[str, bytes]:
            missing = [name for name in names if name not in chunks]
            keys = self._heads.chunk_keys(commit.split, head, missing)
            found = self._values.read(keys.values())
            there = {name: found[key].value for name, key in keys.items() if key in found}
            return {**{name: c for name, c in chunks.items() if name in names}, **there}

        return contents

    def published(self, job: str) -> tuple[Sequence[SplitState], bytes]:
        """Return the published states of *job*, the latest last, and the job's key.

        If two of them cover the same token, the latest counts.

        Raises:
            StateLostError: they do not cover all tokens, or cannot be read.

        """
        for attempt in range(_ATTEMPTS):
            try:
                return self._published(job)
            except KeyError as error:  # The row of a chunk was replaced meanwhile.
                if attempt + 1 == _ATTEMPTS:
                    raise _lost(job, f"chunk {error} is missing") from error
        raise AssertionError

    def adopt(self, job: str) -> None:
        """Take the key of *job*, by which its states identify mutations, if this job is new."""
        if self.leases():
            return
        _, key = self.published(job)
        self.take_key(key)

    def _published(self, job: str) -> tuple[Sequence[SplitState], bytes]:
        partitions = self._session.rows("SELECT DISTINCT job_id, split FROM cdc_state")
        keys = [(job, each["split"]) for each in partitions if each["job_id"] == job]
        rows = sorted(self._session.rows_of(_ROWS, keys), key=lambda row: -row["written"])
        documents = [_document(job, row["state"]) for row in rows]
        # A forgotten job may have had this name.
        job_key = documents[0].job_key if documents else b""
        found = [
            (document, row)
            for document, row in zip(documents, rows, strict=True)
            if document.job_key == job_key
        ]
        _check_all(job, sorted((int(row["start"]), int(row["end"])) for _, row in found))
        found.sort(key=lambda each: (each[0].plan, each[0].seq))
        if len(job_key) != JOB_KEY_BYTES:
            raise _lost(job, f"its key has {len(job_key)} bytes, expected {JOB_KEY_BYTES}")
        return [self._state(job, document, row) for document, row in found], job_key

    def _state(self, job: str, document: StateDocument, row: Mapping[str, object]) -> SplitState:
        chunks = document.chunks
        if document.names:
            rows = self._session.rows(_CHUNKS, job, row["split"], row["start"], row["end"])
            there = {each["name"]: each["content"] for each in rows}
            try:
                chunks = {name: zlib.decompress(there[name]) for name in document.names}
            except zlib.error as error:
                raise _lost(job, f"a chunk of split {document.split}: {error}") from error
        return SplitState(
            split=document.split,
            plan=document.plan,
            token=0,
            seq=document.seq,
            position=EncodedPosition(document.head, chunks),
            counters={},
        )


def job_of(start: str) -> str:
    """Return the job in *start* whose rows a new job starts from; empty for other values.

    Raises:
        ConfigError: *start* has the prefix and no name.

    """
    if not start.startswith(START):
        return ""
    job = start.removeprefix(START)
    if not job:
        raise ConfigError([Problem("start", f"names no job behind {START!r}", f"{START}JOB")])
    return job


def _document(job: str, blob: bytes) -> StateDocument:
    try:
        return msgspec.msgpack.decode(zlib.decompress(blob), type=StateDocument)
    except (zlib.error, msgspec.MsgspecError) as error:
        raise _lost(job, f"a row cannot be read: {error}") from error


def _check_all(job: str, ranges: Sequence[tuple[int, int]]) -> None:
    """Raise StateLostError if *ranges*, in order, leave out tokens."""
    covered, end = _RING
    for first, behind in ranges:
        if first > covered:
            break
        covered = max(covered, behind)
    if covered < end:
        what = "it has no rows" if not ranges else f"no row has what follows token {covered}"
        raise _lost(job, what)


def _lost(job: str, what: str) -> StateLostError:
    return StateLostError(what, place=f"table cdc_state, job {job}", hint=_HINT)
