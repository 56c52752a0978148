"""Loads and replaces the states of splits: fenced, atomic, with a known outcome.

A head is one decided row, replaced by compare-and-set. Chunks are plain rows that are durable
before the head that lists them, and are named by the writer's token, so that no other owner ever
writes or removes them. Rules cite docs/agreement.md by line.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from headrace.connector.foundation import crash
from headrace.connector.stores import Commit, SplitState, StoreUnavailableError
from headrace.connector.stores.keyed.losses import Losses
from headrace.connector.stores.keyed.rows import Head, JobRows, counters_in, counts_of, named
from headrace.connector.stores.stored import not_kept
from headrace.plugins import EncodedPosition, HeadraceError, LeaseLostError
from headrace.plugins.stores.kept_modes import KeptModes
from headrace.plugins.stores.key_values import Change, Key

TRIES_MAX: Final = 10  # For heads that another process replaces meanwhile.

InForce = Callable[[], tuple[int, Sequence[str]] | None]
"""Returns the plan in force and its splits; None for a job that does not exist."""


class Known(NamedTuple):
    """A head, and the stamp of its row."""

    stamp: int
    head: Head


class Copied(msgspec.Struct, frozen=True):
    """The place that a head is a copy of, if any, and how often a command set its position."""

    kept_in: str
    moved: int


class Heads:
    """The heads and chunks of one job. Belongs to the store's thread; all calls may block.

    If a sink keeps the states of splits, these are copies, and the sink is read first (see
    `transactional`). Copies serve commands that show or move states.
    """

    def __init__(self, rows: JobRows, losses: Losses, in_force: InForce) -> None:
        """Read nothing yet."""
        self._rows = rows
        self._values = rows.values
        self._losses = losses
        self._in_force = in_force
        self._known: dict[str, Known] = {}  # Heads of splits claimed here.
        self.splits_of_all_plans: Callable[[], Sequence[str]] = list
        self.when_committed: Callable[[Commit, Head], None] | None = None

    # Reading.

    def read(self, splits: Collection[str]) -> dict[str, Known]:
        """Return the newest heads of splits that have one. Raises StateLostError."""
        keys = {self._rows.head(split): split for split in splits}
        return {keys[key]: Known(*each) for key, each in self._rows.read(Head, list(keys)).items()}

    def head(self, split: str) -> Known:
        """Return a head.

        Raises:
            LeaseLostError: the split does not belong to the plan in force.
            StateLostError: the head should exist and is missing.

        """
        known = self.read([split]).get(split)
        if known is None:
            raise self._headless(split)
        return known

    def state(self, split: str) -> SplitState:
        """Return a state without a claim. Raises as `head`, or StateLostError for lost chunks."""
        return self._whole(split)[1]

    def changed(
        self, splits: Sequence[str], stamps: Mapping[str, int]
    ) -> tuple[dict[str, int], Sequence[SplitState]]:
        """Return the stamps of *splits*, and the states of those whose stamp changed.

        Raises as `state`.
        """
        heads, found, changed = self.read(splits), dict[str, int](), []
        for split in splits:
            known = heads.get(split)
            if known is None or stamps.get(split) != known.stamp:
                known, state = self._whole(split, known)
                changed.append(state)
            found[split] = known.stamp
        return found, changed

    def load(self, split: str, token: int, *, forgets: bool = False) -> SplitState:
        """Return the state of a claimed split, and remove chunks that are no longer in a state.

        Unless *forgets*, losses stay that a commit decided elsewhere may cover.
        """
        known, state = self._whole(split)
        if state.plan < 0:
            raise LeaseLostError(f"plan {-state.plan} has ended", place=f"split {split}")
        if state.token != token:
            raise _replaced(split, state.token, token)
        self._known[split] = _bare(known)
        if forgets:
            self._losses.forget_after(split, state.seq, token)
        self._sweep(split, known.head)
        return state

    def _whole(self, split: str, known: Known | None = None) -> tuple[Known, SplitState]:
        """Read head, unless *known*, and chunks; retry if the head was replaced meanwhile."""
        known = known or self.head(split)
        for _ in range(TRIES_MAX):
            self._check(split, known.head)
            keys = self.chunk_keys(split, known.head)
            found = self._values.read(keys.values())
            missing = [name for name, key in keys.items() if key not in found]
            if not missing:
                chunks = {name: found[key].value for name, key in keys.items()}
                return known, _state(split, known.head, chunks)
            before, known = known, self.head(split)
            if before.stamp == known.stamp:
                what = f"chunk {missing[0]} of head {known.head.seq} is missing"
                raise self._rows.lost(what, split)
        raise StoreUnavailableError("its state is replaced all the time", place=f"split {split}")

    def _check(self, split: str, head: Head) -> None:
        """Raise if a head neither has a position nor says that there is none (I7)."""
        if head.position is None and head.chunks is not None:
            what = f"head: found NULL, expected the position of commit {head.seq}"
            raise self._rows.lost(what, split)
        if head.position is not None and head.chunks is None:
            raise self._rows.lost("head: found a position without names of chunks", split)

    def chunk_keys(
        self, split: str, head: Head, names: Collection[str] | None = None
    ) -> dict[str, Key]:
        """Return the keys of the chunks of a head, or of *names* only."""
        of = self._rows.chunks(split)
        listed = head.chunks or {}
        return {n: Key(of, _chunk(n, listed[n][0])) for n in (listed if names is None else names)}

    def _sweep(self, split: str, head: Head) -> None:
        """Remove chunks of earlier owners that are not in a state."""
        partition = self._rows.chunks(split)
        listed = {key.name for key in self.chunk_keys(split, head).values()}
        gone = {
            Key(partition, name): None
            for name in self._values.names(partition)
            if name not in listed
            and named(Key(partition, name), _token_of, self._values) < head.token
        }
        if gone:
            self._values.put(gone)

    # Writing, by the owner of a split.

    def claim(
        self, owner: str, tokens: Mapping[str, int], known: Mapping[str, Known]
    ) -> Collection[str]:
        """Write claims into the heads, last *known*; return the splits that may be taken.

        A split without a head may be taken, because loading it reports the error. A split that
        another owner claimed with a higher token may not (I2).
        """
        waiting, taken = dict(tokens), set[str]()
        for _ in range(TRIES_MAX):
            changes: dict[str, tuple[Change, Head]] = {}
            for split, token in waiting.items():
                found = known.get(split)
                if found is None or (found.head.token, found.head.owner) == (token, owner):
                    taken.add(split)
                elif found.head.token < token:
                    head = msgspec.structs.replace(found.head, token=token, owner=owner)
                    changes[split] = self._rows.head_change(split, found.stamp, head), head
            waiting = self._apply(changes, taken, waiting)
            if not waiting:
                return taken
            known = self.read(waiting)
        raise StoreUnavailableError("heads are replaced all the time", place=min(waiting))

    def _apply(
        self,
        changes: Mapping[str, tuple[Change, Head]],
        taken: set[str],
        waiting: Mapping[str, int],
    ) -> dict[str, int]:
        """Apply claims; return those that were refused: the former owner committed meanwhile."""
        outcomes = self._values.change([change for change, _ in changes.values()])
        refused: dict[str, int] = {}
        for (split, (change, head)), outcome in zip(changes.items(), outcomes, strict=True):
            if outcome:
                self._known[split] = _bare(Known(change.stamp, head))
                taken.add(split)
            else:
                refused[split] = waiting[split]
        return refused

    def commit(
        self, commits: Sequence[Commit], copied: Copied | None = None
    ) -> Mapping[str, HeadraceError]:
        """Implement `Store.commit`. With *copied* the commit was decided elsewhere."""
        refused: dict[str, HeadraceError] = {}
        waiting = list(commits)
        for _ in range(TRIES_MAX):
            ready = []
            for commit in waiting:
                change = self._prepared(commit, refused, copied)
                if change is not None:
                    ready.append((commit, *change))
            waiting = self._replace(ready)
            if not waiting:
                crash.reached("committed")
                return refused
        raise StoreUnavailableError("heads are replaced all the time", place=waiting[0].split)

    def _replace(self, ready: Sequence[tuple[Commit, Change, Head]]) -> list[Commit]:
        """Replace heads conditionally; return the commits to check again."""
        outcomes = self._values.change([change for _, change, _ in ready])
        again: list[Commit] = []
        for (commit, change, head), outcome in zip(ready, outcomes, strict=True):
            if outcome:
                self._known[commit.split] = _bare(Known(change.stamp, head))
                if self.when_committed:
                    self.when_committed(commit, head)
            else:
                self._known.pop(commit.split, None)
                again.append(commit)
        if None in outcomes:
            raise StoreUnavailableError("what became of a commit is not known")
        return again

    def _prepared(
        self, commit: Commit, refused: dict[str, HeadraceError], copied: Copied | None
    ) -> tuple[Change, Head] | None:
        """Return what replaces the head; None if nothing is to be done, or it must not be."""
        split, position = commit.split, commit.position
        known = self._known.get(split)
        if known is None or self._mismatch(commit, known.head):
            known = self.read([split]).get(split)
        if known and not self._mismatch(commit, known.head) and known.head.seq == commit.seq:
            self._known[split] = _bare(known)
            return None  # An earlier attempt of this commit was applied after all.
        error = self._refusal(commit, known)
        if error or known is None:
            refused[split] = error or self._headless(split)
            self._losses.forget(commit)
            return None
        head, new, gone = self._moved(known.head, commit, position, copied)
        first = new | self._losses.rows(commit)
        change = self._rows.head_change(split, known.stamp, head, first, gone)
        return replace(change, is_commit=True), head

    def _moved(
        self,
        head: Head,
        to: Commit | SplitState,
        position: EncodedPosition,
        copied: Copied | None,
    ) -> tuple[Head, dict[Key, bytes], Sequence[Key]]:
        """Return *head* moved to a state at *position*, and which chunks are new and gone.

        New chunks get the token of the owner that writes them. With *copied* it was decided
        elsewhere.
        """
        split, token, before = to.split, to.token, head.chunks or {}
        listed = {n: before.get(n) or (token, len(position.chunks[n])) for n in position.names}
        of = self._rows.chunks(split)
        new = {Key(of, _chunk(n, token)): c for n, c in position.chunks.items() if n not in before}
        gone = self.chunk_keys(split, head, before.keys() - listed.keys())
        moved = msgspec.structs.replace(
            head,
            seq=to.seq,
            position=position.head,
            chunks=listed,
            counters=counts_of(to.counters),
            kept_in=copied.kept_in if copied else "",
            moved=copied.moved if copied else head.moved,
            behind=copied is not None,
        )
        return moved, new, list(gone.values())

    def _refusal(self, commit: Commit, known: Known | None) -> HeadraceError | None:
        """Return why the *known* head must not be replaced."""
        error = self._mismatch(commit, known and known.head)
        if error or known is None:
            return error
        if gone := commit.position.kept - (known.head.chunks or {}).keys():
            return self._rows.lost(not_kept(gone), commit.split)
        return self._losses.full(commit, self.splits_of_all_plans()) if commit.losses else None

    def _mismatch(self, commit: Commit, head: Head | None) -> HeadraceError | None:
        """Return why a head is neither that of *commit* nor of the one before it."""
        if head is None:
            return self._headless(commit.split)
        if head.token != commit.token or head.owner != commit.owner:
            return _replaced(commit.split, head.token, commit.token)  # I2.
        if head.plan != commit.plan:
            what = f"head carries plan {head.plan}, mine is {commit.plan}"
            return LeaseLostError(what, place=f"split {commit.split}")
        if head.seq not in (commit.seq, commit.previous):
            what = f"head is number {head.seq}, expected {commit.previous}"
            return self._rows.lost(what, commit.split)
        return None

    # Writing, of splits without an owner.

    def restart(
        self, split: str, known: Known | None, head: Head, position: EncodedPosition | None
    ) -> Change:
        """Return the change that replaces the *known* head by *head* at *position*.

        Its token fences every earlier owner.
        """
        chunks = position.chunks if position else {}
        listed = {name: (head.token, len(content)) for name, content in chunks.items()}
        partition = self._rows.chunks(split)
        first = {Key(partition, _chunk(n, head.token)): chunks[n] for n in chunks}
        head = msgspec.structs.replace(
            head,
            position=position.head if position else None,
            chunks=listed if position else None,
        )
        gone = self.chunk_keys(split, known.head).values() if known else ()
        then = [key for key in gone if key not in first]
        return self._rows.head_change(split, known and known.stamp, head, first, then)

    def update(
        self,
        split: str,
        updated: Callable[[Head], Mapping[str, Any] | None],  # Any: of its fields.
    ) -> Head:
        """Replace fields of a head, unless *updated* returns None. Returns the resulting head.

        Raises as `head`.
        """
        for _ in range(TRIES_MAX):
            known = self.head(split)
            fields = updated(known.head)
            if fields is None:
                return known.head
            head = msgspec.structs.replace(known.head, **fields)
            change = self._rows.head_change(split, known.stamp, head)
            if self._values.change([change])[0]:
                if split in self._known:
                    self._known[split] = _bare(Known(change.stamp, head))
                return head
        raise StoreUnavailableError("it is replaced all the time", place=f"split {split}")

    def keep_modes(self, split: str, token: int, owner: str, modes: KeptModes) -> None:
        """Keep the modes in which the owner of a split reads.

        Raises:
            LeaseLostError: the head carries another token (I2).

        """

        def kept(head: Head) -> Mapping[str, KeptModes]:
            if (head.token, head.owner) != (token, owner):
                raise _replaced(split, head.token, token)
            return {"modes": modes}

        self.update(split, kept)

    def modes(self, splits: Collection[str]) -> Mapping[str, KeptModes | None]:
        """Return the modes that the owners of *splits* stored last."""
        return {split: known.head.modes for split, known in self.read(splits).items()}

    def forget(self, split: str) -> None:
        """Remove head and chunks of a split."""
        known = self.read([split]).get(split)
        if known and not self._values.change([self._rows.head_change(split, known.stamp, None)])[0]:
            raise StoreUnavailableError("another process wrote to it", place=f"split {split}")
        self.drop_chunks(split)
        self._known.pop(split, None)

    def drop_chunks(self, split: str) -> None:
        """Remove all chunks of a split."""
        partition = self._rows.chunks(split)
        gone = {Key(partition, name): None for name in self._values.names(partition)}
        if gone:
            self._values.put(gone)

    # Copies of states that a sink keeps.

    def copied(self, split: str) -> Copied:
        """Return what a head is a copy of, and how often a command set its position."""
        known = self.read([split]).get(split)
        return Copied(known.head.kept_in, known.head.moved) if known else Copied("", 0)

    def prepare(self, commit: Commit) -> tuple[bool, HeadraceError | None]:
        """Store the losses of a commit that is decided elsewhere; they are not visible yet.

        Returns whether the copy has the commit, and why it must not be applied.
        """
        known = self.read([commit.split]).get(commit.split)
        error = self._mismatch(commit, known and known.head)
        applied = known is not None and not error and known.head.seq == commit.seq
        if applied or error or not commit.losses:
            return applied, error
        # Losses of an earlier attempt are removed.
        self._losses.forget_after(commit.split, commit.previous, commit.token)
        full = self._losses.full(commit, self.splits_of_all_plans())
        if full is None:
            self._values.put(self._losses.rows(commit))
        return False, full

    def copy(self, commit: Commit, copied: Copied) -> HeadraceError | None:
        """Copy a state that was committed elsewhere; its losses become visible."""
        seen = replace(commit, losses=())  # They are stored: see `prepare`.
        return self.commit([seen], copied).get(commit.split)

    def adopt(self, state: SplitState, position: EncodedPosition, copied: Copied) -> None:
        """Copy a state at *position* from elsewhere, replacing an existing one.

        Raises:
            LeaseLostError: the head carries another token.

        """
        split, token = state.split, state.token
        known = self.head(split)
        if known.head.token != token:
            raise _replaced(split, known.head.token, token)
        head, new, gone = self._moved(known.head, state, position, copied)
        change = self._rows.head_change(split, known.stamp, head, new, gone)
        if not self._values.change([change])[0]:
            raise LeaseLostError("another worker claimed it", place=f"split {split}")
        self._known[split] = _bare(Known(change.stamp, head))
        self._losses.forget_after(split, state.seq, token)

    def cover(self, split: str, token: int, seq: int) -> None:
        """Continue from *seq*: losses up to it become visible, later ones are removed.

        From now on the head may be behind; see `released`.
        """

        def behind(head: Head) -> Mapping[str, bool]:
            if head.token != token:
                raise _replaced(split, head.token, token)
            return {"behind": True}

        self.update(split, behind)
        self._losses.forget_after(split, seq, token)

    def released(self, split: str, token: int) -> None:
        """Record that the head equals the sink's state, as its owner knows."""
        self.update(split, lambda head: {"behind": False} if head.token == token else None)

    def outrank(self, split: str, token: int, moved: int) -> None:
        """Make the head of a forked job take precedence over a state kept elsewhere as *moved*."""

        def first(head: Head) -> Mapping[str, int | str]:
            if head.token != token:
                raise _replaced(split, head.token, token)
            return {"moved": max(head.moved, moved + 1), "kept_in": ""}

        self.update(split, first)

    def raise_token(self, split: str, token: int) -> None:
        """Make the token of the next claim of *split* exceed *token*."""
        self.update(split, lambda head: {"token": token} if head.token < token else None)

    def behind(self) -> frozenset[str]:
        """Return the splits of which the sink may have a newer state than the copy.

        These have an owner, or one that died, perhaps between commit and copy.
        """
        heads = self.read((self._in_force() or (0, ()))[1])
        return frozenset(split for split, known in heads.items() if known.head.behind)

    def believe(self) -> None:
        """Mark the states here as the newest: the sink no longer keeps those of the job."""
        for split in self.behind():
            self.update(split, lambda head: {"behind": False} if head.behind else None)

    def _headless(self, split: str) -> HeadraceError:
        """Return why a split has no head: another plan replaced it, or it was lost."""
        plan = self._in_force()
        if plan is not None and split not in plan[1]:
            return LeaseLostError(f"is not a split of plan {plan[0]}", place=f"split {split}")
        return self._rows.lost("its head is missing", split)


def _state(split: str, head: Head, chunks: Mapping[str, bytes]) -> SplitState:
    return SplitState(
        split=split,
        plan=head.plan,
        token=head.token,
        seq=head.seq,
        position=None if head.position is None else EncodedPosition(head.position, chunks),
        counters=counters_in(head.counters),
        modes=head.modes,
    )


def _bare(known: Known) -> Known:
    """Return the part of a head that the next commit needs: durable data is not held (ADR 25)."""
    return known._replace(head=msgspec.structs.replace(known.head, position=b""))


def _token_of(chunk: str) -> int:
    return int(chunk.partition("/")[0])


def _chunk(name: str, token: int) -> str:
    return f"{token}/{name}"


def _replaced(split: str, found: int, mine: int) -> LeaseLostError:
    return LeaseLostError(f"head carries token {found}, mine is {mine}", place=f"split {split}")
