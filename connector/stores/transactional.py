"""The store of a job whose sink keeps the states of its splits, in the transactions of its records.

The sink's state is authoritative. The store has a copy of it for inspection, and keeps the leases,
the schemas and the quarantine; a position set there by command takes precedence over the sink's. A
lease is claimed before the sink fences its former owner, and checked again after.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from headrace.connector.stores import Commit, SplitState, StateLostError, StoreUnavailableError
from headrace.connector.stores.kept_state import KeptState, chunks_in, digest_of, lost
from headrace.connector.stores.keyed.heads import Copied
from headrace.connector.stores.keyed.store import Store
from headrace.connector.stores.stored import FORKED, not_kept
from headrace.plugins import AbortedError, Clock, FencedError, HeadraceError, TransactionalWriter

CALL_MS: Final = 5_000  # The bound of one call; unfinished work is repeated.

Found = Callable[[SplitState, KeptState], None]
"""Called with the copy and the sink's state, if that one is chosen, before it is copied."""


class TransactionalStore(Store):
    """See the module. A mixin before a store's own class. Belongs to the writers' thread."""

    def write_with(
        self,
        writer_of: Callable[[str, int], TransactionalWriter],
        clock: Clock,
        found: Found | None = None,
    ) -> None:
        """Start with *writer_of*, which returns the writer of a split claimed with a token."""
        self._writer_of = writer_of
        self._clock = clock
        self._copies = self.state_copies()
        self._found = found
        self._key = digest_of(self.job_key())
        self._values.flush()  # Before the sink has data under the key.
        self._chunks: dict[str, frozenset[str]] = {}  # In the sink, by split.
        self._moved: dict[str, int] = {}
        self._loaded: dict[str, int] = {}  # The token, by split.
        self._decided: dict[str, int] = {}
        self._doubtful: set[str] = set()  # Splits whose last commit may be missing in the copy.

    def load(self, split: str, token: int) -> SplitState:
        """See `Store.load`. Fences every earlier owner of the split first.

        Raises:
            StoreUnavailableError: the sink has not responded yet. Call again.
            FencedError: the split must be claimed again.

        """
        self._copies.load(split, token)  # Else this would fence the current owner.
        writer = self._writer_of(split, token)
        entries = writer.begin(self._clock.monotonic_ms() + CALL_MS)
        mine = self._copies.load(split, token)
        if entries is None:
            awaited = f": no answer yet from {writer.awaited}" if writer.awaited else ""
            raise StoreUnavailableError(
                f"the state of the split could not be read yet{awaited}", place=writer.place
            )
        kept = KeptState.of(entries, f"{writer.place}, split {split}")
        chosen = self._chosen(mine, kept, writer)
        self._chunks[split] = chunks_in(entries)
        self._loaded[split] = token
        self._doubtful.discard(split)
        return chosen

    def release(self, owner: str, split: str, token: int, problem: str = "") -> None:
        """See `Store.release`. The copy records whether it is reliable."""
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
            except StoreUnavailableError as late:  # Other splits do not wait for it.
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
        self, mine: SplitState, kept: KeptState | None, writer: TransactionalWriter
    ) -> SplitState:
        """Return the state to continue from: the sink's, or the store's if that is newer."""
        split, token, place = mine.split, mine.token, writer.place
        copied = self._copies.copied(split)
        if copied.kept_in == FORKED and (kept is None or kept.token <= token):
            self._copies.outrank(split, token, kept.moved if kept else -1)
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
        if kept.key != self._key:
            raise StateLostError(
                "of the state kept with the records, the key is another job's of this name, or "
                "this job's from another state: one that was lost, or not restored whole",
                place=f"{place}, split {split}",
                hint=f"restore that state; or continue without it: {writer.renewal}, and what the "
                "logs still hold is delivered again",
            )
        if kept.token > token:
            self._copies.raise_token(split, kept.token)
            raise FencedError(
                f"the sink has seen token {kept.token}, mine is {token}",
                place=f"split {split}",
            )
        if (kept.moved, kept.seq) < (copied.moved, mine.seq):
            self._copies.cover(split, token, mine.seq)
            return mine
        self._moved[split] = kept.moved
        if self._found is not None:
            self._found(mine, kept)
        chosen = replace(mine, seq=kept.seq, position=kept.position, counters=kept.counters)
        self._copies.adopt(chosen, kept.position, Copied(place, kept.moved))
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
                return lost(f"{writer.place}, split {split}", not_kept(gone))
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
        """Commit in the sink; return whether it finished in time."""
        self._doubtful.add(commit.split)
        try:
            until_ms = self._clock.monotonic_ms() + CALL_MS
            return writer.commit(self._entries(commit, moved), until_ms)
        except AbortedError:
            self._doubtful.discard(commit.split)
            raise

    def _entries(self, commit: Commit, moved: int) -> dict[str, bytes | None]:
        """Return the changed entries: the head, new chunks, and removed chunks."""
        return KeptState(
            key=self._key,
            token=commit.token,
            seq=commit.seq,
            moved=moved,
            position=commit.position,
            counters=commit.counters,
        ).entries(self._chunks[commit.split])


def transactional(kind: type[Store]) -> type[TransactionalStore]:
    """Return *kind* as a store whose states the sink keeps; open it, then `write_with`."""
    return type(f"Transactional{kind.__name__}", (TransactionalStore, kind), {})
