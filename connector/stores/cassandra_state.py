"""Loads and replaces the state of splits in Cassandra: fenced, atomic, and sure of the outcome.

A head is replaced by compare-and-set; its chunks are written before, under the writer's token, so
that no other owner ever writes or removes them. Rules cite docs/agreement.md by line.
"""

import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from headrace.connector.runtime import crash
from headrace.connector.stores import (
    Commit,
    SplitState,
    StateLostError,
    StoreUnavailableError,
)
from headrace.connector.stores.cassandra_losses import CassandraLosses
from headrace.connector.stores.cassandra_session import RESTORE, CassandraSession
from headrace.connector.stores.cdc_state import Contents, StatePublisher
from headrace.connector.stores.state_copies import Copied
from headrace.connector.stores.stored import (
    BEGINS_ANEW,
    UnreadableError,
    check_position,
    chunks_of,
    counters_of,
    counters_text,
    not_kept,
)
from headrace.plugins import EncodedPosition, HeadraceError, LeaseLostError

BUCKETS: Final = 16  # Partitions of a job's leases: few to read, and seldom two writers in one.
READS_MAX: Final = 5  # Of a state that somebody replaces meanwhile.
_HEAD: Final = (
    "SELECT plan, fence, owner, seq, head, chunks, counters, kept_in, moved FROM heads "
    "WHERE job = ? AND split = ?"
)
_REPLACE: Final = (
    "UPDATE heads SET seq = ?, head = ?, chunks = ?, counters = ?, kept_in = '', behind = false "
    "WHERE job = ? AND split = ? IF plan = ? AND fence = ? AND owner = ? AND seq = ?"
)
_COPY: Final = (
    "UPDATE heads SET seq = ?, head = ?, chunks = ?, counters = ?, kept_in = ?, moved = ?, "
    "behind = true WHERE job = ? AND split = ? IF plan = ? AND fence = ? AND owner = ? AND seq = ?"
)
_ADOPT: Final = (
    "UPDATE heads SET seq = ?, head = ?, chunks = ?, counters = ?, kept_in = ?, moved = ?, "
    "behind = true WHERE job = ? AND split = ? IF fence = ?"
)
_NEW_HEAD: Final = (
    "INSERT INTO heads (job, split, plan, fence, seq, head, chunks, counters, kept_in, moved) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS"
)
_OVER_HEAD: Final = (
    "UPDATE heads SET plan = ?, fence = ?, owner = null, seq = ?, head = ?, chunks = ?, "
    "counters = ?, kept_in = ?, moved = ?, behind = false WHERE job = ? AND split = ? IF fence < ?"
)
_FENCE_OFF: Final = (
    "UPDATE heads SET fence = ?, owner = null WHERE job = ? AND split = ? IF fence = ?"
)
NEW_LEASE: Final = (
    "INSERT INTO leases (job, bucket, split, fence, beat, lease_ms, problem) "
    "VALUES (?, ?, ?, ?, 0, 0, '') IF NOT EXISTS"
)
PUT_CHUNK: Final = "INSERT INTO chunks (job, split, fence, name, content) VALUES (?, ?, ?, ?, ?)"
_CHUNK: Final = (
    "SELECT name, content FROM chunks WHERE job = ? AND split = ? AND fence = ? AND name = ?"
)

Row = Mapping[str, Any]  # Any: the driver's rows have no types.


class CassandraHeads:
    """The heads and chunks of one job. Belongs to the session's thread."""

    def __init__(self, session: CassandraSession, job: str, losses: CassandraLosses) -> None:
        """Look at nothing yet."""
        self._session = session
        self._job = job
        self._losses = losses
        self._listed: dict[tuple[str, int], dict[str, int]] = {}  # By split and my token.
        self._sizes: dict[str, dict[str, int]] = {}  # In bytes, of those chunks, by split.
        self._publisher = StatePublisher(session, job)
        self._unpublished: dict[str, Commit] = {}  # The last of each split, without its chunks.

    def load(self, split: str, token: int, *, forgets: bool = True) -> SplitState:
        """Read the state of a claimed split, and remove what is in no state any more.

        Unless it *forgets*, losses stay that a commit which is decided elsewhere may cover.
        """
        state, listed = self._read(split)
        if state.token != token:
            raise LeaseLostError(
                f"head carries token {state.token}, mine is {token}", place=f"split {split}"
            )
        if state.plan < 0:
            raise LeaseLostError(f"plan {-state.plan} has ended", place=f"split {split}")
        self._listed = {key: names for key, names in self._listed.items() if key[0] != split}
        self._listed[split, token] = listed
        chunks = state.position.chunks if state.position else {}
        self._sizes[split] = {name: len(content) for name, content in chunks.items()}
        self._unpublished.pop(split, None)
        if forgets:
            self._losses.forget_after(split, state.seq, token)
        self._sweep(split, token, listed)
        return state

    def state(self, split: str) -> SplitState:
        """Read a state without a claim."""
        return self._read(split)[0]

    def copied(self, split: str) -> Copied:
        """Return what is known of a head as a copy; see `state_copies`."""
        row = self._row(split)
        return Copied((row and row["kept_in"]) or "", (row and row["moved"]) or 0)

    def anew(
        self, state: SplitState, copied: Copied, *, is_known: bool
    ) -> tuple[str, Sequence[object]]:
        """Write the chunks of a state that nobody owns; return what puts its head in place.

        The token of *state* keeps out all that were given before. *is_known*: there is a head.
        """
        position = state.position
        chunks = position.chunks if position else {}
        self._session.write(
            [
                (PUT_CHUNK, (self._job, state.split, state.token, name, content))
                for name, content in chunks.items()
            ]
        )
        listed = json.dumps(dict.fromkeys(chunks, state.token)) if position else BEGINS_ANEW
        facts = (state.seq, position.head if position else None, listed)
        kept = (counters_text(state.counters), copied.kept_in, copied.moved)
        if is_known:
            place = (self._job, state.split, state.token)
            return _OVER_HEAD, (state.plan, state.token, *facts, *kept, *place)
        return _NEW_HEAD, (self._job, state.split, state.plan, state.token, *facts, *kept)

    def adopt(self, state: SplitState, position: EncodedPosition, copied: Copied) -> None:
        """Do what `StateCopies.adopt` promises, of a state that was loaded."""
        split, token = state.split, state.token
        before = self._listed[split, token]
        after = {name: before.get(name, token) for name in position.names}
        self._session.write(
            [
                (PUT_CHUNK, (self._job, split, token, name, content))
                for name, content in position.chunks.items()
                if name not in before
            ]
        )
        facts = (state.seq, position.head, json.dumps(after), counters_text(state.counters))
        adopted = self._session.apply(
            _ADOPT, *facts, copied.kept_in, copied.moved, self._job, split, token
        )
        if not adopted["[applied]"]:
            raise LeaseLostError("somebody claimed it meanwhile", place=f"split {split}")
        self._relist(split, token, after, position)

    def judged(self, commit: Commit) -> tuple[bool, HeadraceError | None]:
        """Say whether *commit* was applied, and why it must not be."""
        row = self._row(commit.split)
        error = self._judge(commit, row)
        return row is not None and not error and row["seq"] == commit.seq, error

    def fence_off(self, split: str) -> SplitState:
        """Keep whoever owns a split from committing (I2), and return its state.

        Raises:
            LeaseLostError: somebody claims it just now.

        """
        token = self._read(split)[0].token
        fenced = self._session.apply(_FENCE_OFF, token + 1, self._job, split, token)
        if not fenced["[applied]"]:
            raise LeaseLostError("somebody claims it", place=f"split {split}")
        return self._read(split)[0]

    def owner(self, split: str) -> str | None:
        """Return who claimed a split last."""
        row = self._row(split)
        return None if row is None else row["owner"]

    def commit(
        self, commits: Sequence[Commit], splits: Sequence[str], copied: Copied | None = None
    ) -> Mapping[str, HeadraceError]:
        """Do what `Store.commit` promises; *splits* are all that the job has.

        With *copied* it was decided elsewhere, and this is the copy.
        """
        refused: dict[str, HeadraceError] = {}
        ready: list[tuple[Commit, dict[str, int]]] = []
        writes: list[tuple[str, Sequence[object]]] = []
        for commit in commits:
            full = self._losses.full(commit, splits)
            before = None if full else self._known(commit, refused)
            if full:
                refused[commit.split] = full
            if before is None:
                continue
            position = commit.position
            if gone := position.kept - before.keys():
                refused[commit.split] = self._lost(commit.split, not_kept(gone))
                continue
            after = {name: before.get(name, commit.token) for name in position.names}
            writes += [
                (PUT_CHUNK, (self._job, commit.split, commit.token, name, content))
                for name, content in position.chunks.items()
                if name not in before
            ]
            writes += self._losses.writes(commit)
            ready.append((commit, after))
        self._session.write(writes)
        crash.reached("commit_chunks")
        self._replace(ready, refused, copied)
        crash.reached("committed")
        return refused

    def _known(self, commit: Commit, refused: dict[str, HeadraceError]) -> dict[str, int] | None:
        """Return the chunks of the head that *commit* replaces, if it may; None if it need not."""
        known = self._listed.get((commit.split, commit.token))
        if known is not None:
            return known
        row = self._row(commit.split)
        error = self._judge(commit, row)
        if error is not None:
            refused[commit.split] = error
            return None
        assert row is not None  # noqa: S101 (judged)
        return None if row["seq"] == commit.seq else self._chunks(commit.split, row)

    def _replace(
        self,
        ready: Sequence[tuple[Commit, dict[str, int]]],
        refused: dict[str, HeadraceError],
        copied: Copied | None,
    ) -> None:
        """Replace heads on condition, and learn what became of each (line 30)."""
        replace = _COPY if copied else _REPLACE
        of = (copied.kept_in, copied.moved) if copied else ()
        outcomes = self._session.apply_all(
            [
                (
                    replace,
                    (
                        *(commit.seq, commit.position.head, json.dumps(after)),
                        *(counters_text(commit.counters), *of, self._job, commit.split),
                        *(commit.plan, commit.token, commit.owner, commit.previous),
                    ),
                )
                for commit, after in ready
            ]
        )
        crash.reached("commit_heads")
        unknown: StoreUnavailableError | None = None
        for (commit, after), outcome in zip(ready, outcomes, strict=True):
            applied = outcome is not None and outcome["[applied]"]
            try:
                error = None if applied else self._judge(commit, self._row(commit.split))
            except StoreUnavailableError as late:
                unknown = late
                continue
            if error is None and not applied and not self._is_done(commit):
                unknown = StoreUnavailableError("a commit was not applied", place=commit.split)
                continue
            if error is not None:
                refused[commit.split] = error
                self._losses.forget(commit)
            else:
                self._committed(commit, after)
        if unknown is not None:
            raise unknown

    def _is_done(self, commit: Commit) -> bool:
        row = self._row(commit.split)
        return row is not None and row["seq"] == commit.seq

    def _relist(
        self, split: str, token: int, after: dict[str, int], position: EncodedPosition
    ) -> None:
        """Note the chunks that the head of *position* lists, and remove those of the last one."""
        for name, writer in self._listed.get((split, token), {}).items():
            if name not in after:
                self._drop(split, writer, name)
        self._listed[split, token] = after
        sizes, chunks = self._sizes.get(split, {}), position.chunks
        self._sizes[split] = {
            name: len(chunks[name]) if name in chunks else sizes.get(name, 0) for name in after
        }

    def _committed(self, commit: Commit, after: dict[str, int]) -> None:
        self._relist(commit.split, commit.token, after, commit.position)
        with suppress(StoreUnavailableError):  # Only those who look miss something.
            self._publish(commit)

    def _judge(self, commit: Commit, row: Row | None) -> HeadraceError | None:
        """Say why the head that is there is neither this commit's nor the one before it."""
        if row is None:
            return self._lost(commit.split, "its head is missing")
        if (row["plan"], row["fence"], row["owner"]) != (commit.plan, commit.token, commit.owner):
            return LeaseLostError(
                f"head carries plan {row['plan']}, token {row['fence']}; mine is {commit.plan}, "
                f"{commit.token}",
                place=f"split {commit.split}",
            )
        if row["seq"] not in (commit.seq, commit.previous):
            what = f"head is number {row['seq']}, expected {commit.previous}"
            return self._lost(commit.split, what)
        return None

    def _row(self, split: str) -> Row | None:
        rows = self._session.rows(_HEAD, self._job, split, serial=True)
        return rows[0] if rows and rows[0]["fence"] is not None else None

    def _read(self, split: str) -> tuple[SplitState, dict[str, int]]:
        """Read head and chunks; again, when the head was replaced meanwhile."""
        seen, what = None, "its head is missing"
        for _ in range(READS_MAX):
            row = self._row(split)
            if row is None:
                break
            listed = self._chunks(split, row)
            keys = [(self._job, split, token, name) for name, token in listed.items()]
            found = {each["name"]: each["content"] for each in self._session.rows_of(_CHUNK, keys)}
            missing = [name for name in listed if name not in found]
            if not missing:
                return self._state(split, row, {name: found[name] for name in listed}), listed
            what = f"chunk {missing[0]} of head {row['seq']} is missing"
            if seen == (row["fence"], row["seq"]):
                break
            seen = row["fence"], row["seq"]
        raise self._lost(split, what)

    def _chunks(self, split: str, row: Row) -> dict[str, int]:
        """Return the chunks of a head, and under which token each was written."""
        try:
            listed = chunks_of(row["chunks"], dict[str, int])
            check_position(row["head"], listed, seq=row["seq"], plan=row["plan"])
        except UnreadableError as error:
            raise self._lost(split, f"table heads, {error}") from error
        return listed or {}

    def _state(self, split: str, row: Row, chunks: Mapping[str, bytes]) -> SplitState:
        try:
            counters = counters_of(row["counters"])
        except UnreadableError as error:
            raise self._lost(split, f"table heads, {error}") from error
        return SplitState(
            split=split,
            plan=row["plan"],
            token=row["fence"],
            seq=row["seq"],
            position=None if row["head"] is None else EncodedPosition(row["head"], chunks),
            counters=counters,
        )

    def _sweep(self, split: str, token: int, listed: Mapping[str, int]) -> None:
        """Remove chunks that earlier owners left in no state."""
        rows = self._session.rows(
            "SELECT fence, name FROM chunks WHERE job = ? AND split = ?", self._job, split
        )
        for row in rows:
            if row["fence"] < token and listed.get(row["name"]) != row["fence"]:
                self._drop(split, row["fence"], row["name"])

    def _drop(self, split: str, token: int, name: str) -> None:
        self._session.write_later(
            "DELETE FROM chunks WHERE job = ? AND split = ? AND fence = ? AND name = ?",
            *(self._job, split, token, name),
        )

    def publish_last(self, split: str) -> None:
        """Publish what was committed last of a split that is given back, if it was not yet."""
        commit = self._unpublished.pop(split, None)
        if commit is not None:
            with suppress(StoreUnavailableError):
                self._publisher.publish(commit, self._sizes[split], self._contents(commit))

    def _publish(self, commit: Commit) -> None:
        """Write the state as CEP-44 has it, now and then; no commit depends on it."""
        if self._publisher.is_due(commit.split):
            self._publisher.publish(commit, self._sizes[commit.split], self._contents(commit))
            self._unpublished.pop(commit.split, None)
        else:
            names = frozenset(self._sizes[commit.split])
            bare = EncodedPosition(commit.position.head, {}, names)
            self._unpublished[commit.split] = replace(commit, position=bare, losses=())

    def _contents(self, commit: Commit) -> Contents:
        """Return what finds chunks of a commit: at hand, or in their table."""
        split, chunks = commit.split, commit.position.chunks

        def contents(names: Collection[str]) -> Mapping[str, bytes]:
            listed = self._listed[split, commit.token]
            keys = [(self._job, split, listed[n], n) for n in names if n not in chunks]
            found = {row["name"]: row["content"] for row in self._session.rows_of(_CHUNK, keys)}
            return {**{n: c for n, c in chunks.items() if n in names}, **found}

        return contents

    def _lost(self, split: str, what: str) -> StateLostError:
        return StateLostError(
            what,
            place=f"job {self._job}, split {split}",
            hint=RESTORE,
        )


def lease_key(job: str, split: str) -> tuple[str, int, str]:
    """Return the key of a split's lease."""
    return job, zlib.crc32(split.encode()) % BUCKETS, split
