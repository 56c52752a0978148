"""The quarantine: written before the commit that covers it, and visible once the head is."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import msgspec

from headrace.connector.stores import Commit, KeptLoss, Loss, QuarantineFullError
from headrace.connector.stores.keyed.rows import NUMBERS, JobRows, LossRow, named, pack
from headrace.plugins.stores.key_values import Key, Partition

PIECE_BYTES: Final = 256 * 1024  # The part of a loss in one row.
UNSENT_MAX: Final = 500
_NUMBER: Final = "losses"
_DIGITS: Final = 19  # The width of numbers in names, so that names sort as numbers.


class _Kept(NamedTuple):
    split: str
    name: str
    row: LossRow
    seq: int
    """The number of the commit that covers it."""
    token: int
    """The token of the owner that stored it."""


class Losses:
    """The losses of one job. Belongs to the store's thread."""

    def __init__(self, rows: JobRows, *, bytes_max: int) -> None:
        """Look at nothing yet."""
        self._rows = rows
        self._values = rows.values
        self._bytes_max = bytes_max
        self._numbers: dict[str, tuple[int, int, int]] = {}  # For the last commit of each split.

    def full(self, commit: Commit, splits: Sequence[str]) -> QuarantineFullError | None:
        """Return why losses of *commit* do not fit beside those of *splits*; None if they fit."""
        used = sum(kept.row.size for kept in self._kept(splits))
        more = sum(_size(loss) for loss in commit.losses)
        if used + more <= self._bytes_max:
            return None
        return QuarantineFullError(
            f"the quarantine holds {used} bytes, {more} more exceed its bound of {self._bytes_max}",
            place=f"split {commit.split}",
            hint="see why with `headrace dlq list`, then raise runtime.quarantine_bytes_max",
        )

    def rows(self, commit: Commit) -> dict[Key, bytes]:
        """Return the rows of the losses of *commit*. Idempotent."""
        if not commit.losses:
            return {}
        number, now_ms = self._number(commit), time.time_ns() // 1_000_000
        partition, found = self._rows.losses(commit.split), {}
        for place, loss in enumerate(commit.losses):
            name = f"{commit.seq:0{_DIGITS}}/{commit.token:0{_DIGITS}}/{place}"
            pieces = [
                loss.content[start : start + PIECE_BYTES]
                for start in range(0, len(loss.content), PIECE_BYTES)
            ]
            row = LossRow(
                number=number + place,
                lost_ms=now_ms,
                sent=False,
                size=_size(loss),
                pieces=len(pieces),
                loss=replace(loss, content=b""),
            )
            found[Key(partition, name)] = pack(row)
            content = self._rows.content(commit.split, name)
            found |= {Key(content, str(n)): piece for n, piece in enumerate(pieces)}
        return found

    def forget_after(self, split: str, seq: int, token: int) -> None:
        """Remove losses that owners up to *token* stored for commits that were not applied."""
        kept = self._kept([split])
        self._remove([each for each in kept if each.seq > seq and each.token <= token])

    def forget(self, commit: Commit) -> None:
        """Remove the losses of a refused commit."""
        if commit.losses:
            kept = self._kept([commit.split])
            mine = (commit.seq, commit.token)
            self._remove([each for each in kept if (each.seq, each.token) == mine])

    def all(
        self, committed: Mapping[str, int], numbers: Sequence[int] | None = None
    ) -> Iterator[KeptLoss]:
        """Return the losses that *committed* (the number of each split's head) covers."""
        found = (self._loss(kept) for kept in self._seen(committed, numbers))
        return (loss for loss in found if loss is not None)

    def unsent(self, committed: Mapping[str, int], *, bytes_max: int) -> Sequence[KeptLoss]:
        """Return the losses that are not in the topic for dead letters, oldest first."""
        found: list[KeptLoss] = []
        size = 0
        for kept in self._seen(committed, None):
            if kept.row.sent:
                continue
            size += kept.row.size
            if len(found) == UNSENT_MAX or (found and size > bytes_max):
                break
            loss = self._loss(kept)
            if loss is not None:
                found.append(loss)
        return found

    def mark_sent(self, committed: Mapping[str, int], numbers: Sequence[int]) -> None:
        """Record that the topic for dead letters has them."""
        self._values.put(
            {
                Key(self._rows.losses(kept.split), kept.name): pack(
                    msgspec.structs.replace(kept.row, sent=True)
                )
                for kept in self._seen(committed, numbers)
            }
        )

    def remove(self, losses: Sequence[KeptLoss]) -> None:
        """Remove *losses* without reading the others, because many are removed one by one."""
        partitions = {self._rows.losses(loss.split): loss.split for loss in losses}
        keys = [Key(self._rows.losses(loss.split), loss.name) for loss in losses]
        self._remove(self._named(partitions, self._rows.read(LossRow, keys)))

    def _number(self, commit: Commit) -> int:
        """Return the first of the numbers for a commit's losses; the same for a repeated commit."""
        split, mine = commit.split, (commit.seq, commit.token)
        if self._numbers.get(split, (0, 0, 0))[:2] == mine:
            return self._numbers[split][2]
        count = len(commit.losses)
        key, taken = Key(NUMBERS, _NUMBER), lambda last: (last or 0) + count
        last = self._rows.replace(key, int, taken, "the number of losses") or 0
        self._numbers[split] = (*mine, last - count + 1)
        return self._numbers[split][2]

    def _seen(self, committed: Mapping[str, int], numbers: Sequence[int] | None) -> Sequence[_Kept]:
        wanted = None if numbers is None else set(numbers)
        found = [
            kept
            for kept in self._kept(list(committed))
            if kept.seq <= committed[kept.split] and (wanted is None or kept.row.number in wanted)
        ]
        return sorted(found, key=lambda kept: kept.row.number)

    def _kept(self, splits: Sequence[str]) -> Sequence[_Kept]:
        partitions = {self._rows.losses(split): split for split in splits}
        return self._named(partitions, self._rows.scan(LossRow, list(partitions)))

    def _named(
        self, partitions: Mapping[Partition, str], rows: Mapping[Key, tuple[int, LossRow]]
    ) -> Sequence[_Kept]:
        """Return *rows* with their parsed names; *partitions* has the split of each."""
        return [
            _Kept(partitions[key.partition], key.name, row, *named(key, _parsed, self._values))
            for key, (_, row) in rows.items()
        ]

    def _loss(self, kept: _Kept) -> KeptLoss | None:
        """Return a loss with its content; None if it was removed meanwhile."""
        row, pieces = kept.row, self._pieces(kept)
        if pieces is None:
            return None
        loss = replace(row.loss, content=b"".join(pieces))
        return KeptLoss(row.number, kept.split, kept.name, row.lost_ms, row.sent, loss)

    def _pieces(self, kept: _Kept) -> Sequence[bytes] | None:
        """Return the content of a loss; None if the loss is gone."""
        content = self._rows.content(kept.split, kept.name)
        keys = [Key(content, str(n)) for n in range(kept.row.pieces)]
        found = self._values.read(keys)
        missing = [key.name for key in keys if key not in found]
        if not missing:
            return [found[key].value for key in keys]
        loss = Key(self._rows.losses(kept.split), kept.name)
        if loss not in self._values.read([loss]):
            return None
        what = f"of loss {kept.row.number}, piece {missing[0]} is missing"
        raise self._rows.lost(what, kept.split)

    def _remove(self, losses: Sequence[_Kept]) -> None:
        """Remove losses before their content: a loss without content counts as damaged."""
        if losses:
            self._values.put({Key(self._rows.losses(x.split), x.name): None for x in losses})
        pieces = {
            Key(self._rows.content(kept.split, kept.name), str(n)): None
            for kept in losses
            for n in range(kept.row.pieces)
        }
        if pieces:
            self._values.put(pieces)


def _parsed(name: str) -> tuple[int, int]:
    seq, token, _ = name.split("/")
    return int(seq), int(token)


def _size(loss: Loss) -> int:
    return len(loss.content) + len(loss.key or b"")
