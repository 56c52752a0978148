"""The store of a job whose sink keeps the states of its splits, in the transactions of its records.

The sink's state is authoritative. The store has a copy of it for inspection, and keeps the leases,
the schemas and the quarantine; a position set there by command takes precedence over the sink's. A
lease is claimed before the sink fences its former owner, and checked again after.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Self

import msgspec
from msgspec.structs import replace

from headrace.connector.stores import (
    Commit,
    Counters,
    SplitState,
    StateLostError,
    StoreUnavailableError,
)
from headrace.connector.stores.keyed.heads import Copied
from headrace.connector.stores.keyed.store import Store
from headrace.connector.stores.stored import FORKED, counters_of, counters_text, not_kept
from headrace.plugins import (
    AbortedError,
    Clock,
    EncodedPosition,
    FencedError,
    HeadraceError,
    TransactionalWriter,
)

CALL_MS: Final = 5_000  # How long one call may take; what is not done then is repeated.
_HEAD: Final = "head"
_CHUNK: Final = "chunk/"
_VERSION: Final = 1


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """A split's state as the entry `head` has it: all but the chunks, which it lists."""

    version: int = _VERSION
    key: str
    token: int
    seq: int
    moved: int
    counters: str
    chunks: Sequence[str]
    head: bytes


class _Kept(msgspec.Struct, frozen=True):
    """A split's state as the sink keeps it."""

    head: _Head
    position: EncodedPosition
    counters: Counters

    @classmethod
    def of(cls, entries: Mapping[str, bytes], place: str) -> Self | None:
        """Read the entry `head`, and the chunks it lists; None where nothing was ever kept."""
        if _HEAD not in entries:
            return None
        try:
            head = msgspec.json.decode(entries[_HEAD], type=_Head)
            if head.version != _VERSION:
                raise _lost(place, f"the head has version {head.version}, expected {_VERSION}")
            if any(_CHUNK + name not in entries for name in head.chunks):
                raise _lost(place, "a chunk is missing")
            chunks = {name: entries[_CHUNK + name] for name in head.chunks}
            return cls(head, EncodedPosition(head.head, chunks), counters_of(head.counters))
        except ValueError as error:
            raise _lost(place, f"the head cannot be read: {error!r}") from error


class TransactionalStore(Store):
    """See the module: what stands before a store's own class. Belongs to the writers' thread."""

    def write_with(
        self, writer_of: Callable[[str, int], TransactionalWriter], clock: Clock
    ) -> None:
        """Begin: *writer_of* returns the writer of a split that was claimed with a token."""
        self._writer_of = writer_of
        self._clock = clock
        self._copies = self.state_copies()
        self._key = hashlib.sha256(b"headrace.job_key:" + self.job_key()).hexdigest()[:16]
        self.keep_key()  # Before the sink has anything under it.
        self._chunks: dict[str, frozenset[str]] = {}  # What the sink keeps, by split.
        self._moved: dict[str, int] = {}
        self._loaded: dict[str, int] = {}  # Under which token.
        self._decided: dict[str, int] = {}
        self._doubtful: set[str] = set()  # Splits with a commit that is not copied, if it was one.

    def load(self, split: str, token: int) -> SplitState:
        """See `Store.load`. First keeps out every earlier owner of the split.

        Raises:
            StoreUnavailableError: the sink has not answered yet. Call again.
            FencedError: the split must be claimed again.

        """
        self._copies.load(split, token)  # Else the owner of today would be the one kept out.
        writer = self._writer_of(split, token)
        entries = writer.begin(self._clock.monotonic_ms() + CALL_MS)
        mine = self._copies.load(split, token)
        if entries is None:
            awaited = f": no answer yet from {writer.awaited}" if writer.awaited else ""
            raise StoreUnavailableError(
                f"the state of the split could not be read yet{awaited}", place=writer.place
            )
        kept = _Kept.of(entries, f"{writer.place}, split {split}")
        chosen = self._chosen(mine, kept, writer)
        self._chunks[split] = frozenset(
            name.removeprefix(_CHUNK) for name in entries if name.startswith(_CHUNK)
        )
        self._loaded[split] = token
        self._doubtful.discard(split)
        return chosen

    def release(self, owner: str, split: str, token: int, problem: str = "") -> None:
        """See `Store.release`. The copy says whether it is reliable."""
        if self._loaded.get(split) == token and split not in self._doubtful:
            self._copies.released(split, token)
        super().release(owner, split, token, problem)

    def commit(self, commits: Sequence[Commit]) -> Mapping[str, HeadraceError]:
        """See `Store.commit`; each split is a transaction of its own."""
        refused: dict[str, HeadraceError] = {}
        unknown: StoreUnavailableError | None = None
        for commit in commits:
            try:
                error = self._commit(commit)
            except StoreUnavailableError as late:  # The other splits do not wait for it.
                unknown = late
            except HeadraceError as refusal:
                refused[commit.split] = refusal
            else:
                if error:
                    refused[commit.split] = error
        if unknown:
            raise unknown
        return refused

    def _chosen(
        self, mine: SplitState, kept: _Kept | None, writer: TransactionalWriter
    ) -> SplitState:
        """Return the state to continue from: the sink's, or that of the store where it is newer."""
        split, token, place = mine.split, mine.token, writer.place
        copied = self._copies.copied(split)
        if copied.kept_in == FORKED and (kept is None or kept.head.token <= token):
            self._copies.outrank(split, token, kept.head.moved if kept else -1)
            copied = self._copies.copied(split)
        self._moved[split] = copied.moved
        if kept is None:
            if copied.kept_in == place:
                raise StateLostError(
                    "the sink no longer has the state of this split, which was kept with the "
                    f"records; the store has a copy, of commit {mine.seq}",
                    place=f"{place}, split {split}",
                    hint="restore it; or continue from the copy, after which at most one commit is "
                    f"delivered again: {writer.renewal}",
                )
            self._copies.cover(split, token, mine.seq)
            return mine
        if kept.head.key != self._key:
            raise StateLostError(
                "of the state kept with the records, the key is another job's of this name, or "
                "this job's from another state: one that was lost, or not restored whole",
                place=f"{place}, split {split}",
                hint=f"restore that state; or continue without it: {writer.renewal}, and what the "
                "logs still hold is delivered again",
            )
        if kept.head.token > token:
            self._copies.raise_token(split, kept.head.token)
            raise FencedError(
                f"the sink has seen token {kept.head.token}, mine is {token}",
                place=f"split {split}",
            )
        if (kept.head.moved, kept.head.seq) < (copied.moved, mine.seq):
            self._copies.cover(split, token, mine.seq)
            return mine
        self._moved[split] = kept.head.moved
        chosen = replace(mine, seq=kept.head.seq, position=kept.position, counters=kept.counters)
        self._copies.adopt(chosen, kept.position, Copied(place, kept.head.moved))
        return chosen

    def _commit(self, commit: Commit) -> HeadraceError | None:
        split = commit.split
        if self._loaded.get(split) != commit.token:
            self.load(split, commit.token)
        applied, error = self._copies.prepare(commit)
        if applied or error:
            return error
        writer = self._writer_of(split, commit.token)
        moved = self._moved[split]
        if self._decided.get(split) != commit.seq:
            if gone := commit.position.kept - self._chunks[split]:
                return _lost(f"{writer.place}, split {split}", not_kept(gone))
            if not self._is_decided(writer, commit, moved):
                raise StoreUnavailableError(
                    "whether a transaction was committed is not known yet", place=writer.place
                )
            self._decided[split] = commit.seq
            self._chunks[split] = frozenset(commit.position.names)
        refusal = self._copies.copy(commit, Copied(writer.place, moved))
        if refusal is None:
            self._doubtful.discard(split)
        return refusal

    def _is_decided(self, writer: TransactionalWriter, commit: Commit, moved: int) -> bool:
        """Have the sink commit; say whether it did so in time."""
        self._doubtful.add(commit.split)
        try:
            until_ms = self._clock.monotonic_ms() + CALL_MS
            return writer.commit(self._entries(commit, moved), until_ms)
        except AbortedError:
            self._doubtful.discard(commit.split)
            raise

    def _entries(self, commit: Commit, moved: int) -> dict[str, bytes | None]:
        """Return what changes: the head, chunks that are new, and those that are gone."""
        position, known = commit.position, self._chunks[commit.split]
        head = _Head(
            key=self._key,
            token=commit.token,
            seq=commit.seq,
            moved=moved,
            counters=counters_text(commit.counters),
            chunks=position.names,
            head=position.head,
        )
        entries: dict[str, bytes | None] = {
            _CHUNK + n: None for n in known.difference(position.names)
        }
        for name, content in position.chunks.items():
            if name not in known:
                entries[_CHUNK + name] = content
        return entries | {_HEAD: msgspec.json.encode(head)}


def transactional(kind: type[Store]) -> type[TransactionalStore]:
    """Return *kind* as a store whose truth is with the sink; open it, then `write_with`."""
    return type(f"Transactional{kind.__name__}", (TransactionalStore, kind), {})


def _lost(place: str, what: str) -> StateLostError:
    return StateLostError(
        f"of the state kept with the records, {what}",
        place=place,
        hint="restore what it was in; or give the job another name, and set its positions",
    )
