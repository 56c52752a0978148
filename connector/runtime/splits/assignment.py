"""Assigns splits to workers, by bytes a second and by local logs. Pure.

Every worker computes it from the same rows and gets the same result, so no worker decides for the
others. See docs/adr/0017: a move must lower a cost by a share of what it moves, so with the same
loads nothing is moved back and forth.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import exp
from typing import Final

IDLE_SHARE: Final = 0.25  # The weight of a split that reads nothing, as a part of the mean.
LOCAL_SHARE: Final = 0.5  # The value of reading a split locally, as a part of a worker's mean load.
GAIN_MIN: Final = 0.2  # The least gain of a move for each byte, as a part of a worker's mean load.
EXCHANGE_MIN: Final = 0.24  # The same for an exchange, which moves two.
TAKERS_MAX: Final = 3  # The number of workers that are considered for a split.
PASSES_MAX: Final = 4

Places = Mapping[str, Mapping[str, float]]
"""For each split, the share of its reads at each place."""
FADE_MS: Final = 60_000  # Reads longer ago weigh little.


@dataclass(frozen=True, slots=True)
class Part:
    """A split, its bytes a second, and the live worker that owns it, or None."""

    split: str
    rate: int
    owner: str | None


def assigned(
    parts: Sequence[Part], workers: Mapping[str, Collection[str]], places: Places
) -> Mapping[str, str]:
    """Return the worker of each split; *workers* has the places that are local to each.

    Splits stay where they are unless a move gains enough. Without workers nothing is assigned.
    """
    if not workers:
        return {}
    return _Board(parts, workers, places).settled()


@dataclass(slots=True)
class _Worker:
    """A worker, and its splits so far."""

    name: str
    load: float = 0.0
    parts: set[str] = field(default_factory=set)


class _Board:
    """The assignment while it is computed.

    The cost is the sum of the squares of all loads, less the value of local reads. For each byte
    moved, a move gains `2 * (gap - weight)` for the load, and the value of reads that become local.
    """

    def __init__(
        self, parts: Sequence[Part], workers: Mapping[str, Collection[str]], places: Places
    ) -> None:
        total = sum(part.rate for part in parts)
        idle = max(1.0, IDLE_SHARE * total / max(1, len(parts)))
        self._weights = {part.split: part.rate + idle for part in sorted(parts, key=_by_name)}
        self._workers = {name: _Worker(name) for name in sorted(workers)}
        self._mean = sum(self._weights.values()) / len(workers)
        # The value, for each byte a second, of a worker that is local to a split.
        self._worths = _worths(self._weights, workers, places, LOCAL_SHARE * self._mean)
        self._owners: dict[str, str] = {}
        for part in sorted(parts, key=_by_name):
            if part.owner in self._workers:
                self._give(part.split, part.owner)

    def settled(self) -> Mapping[str, str]:
        """Place the splits without a worker, then make each move that gains enough."""
        free = [split for split in self._weights if split not in self._owners]
        self._place(sorted(free, key=lambda split: (-self._weights[split], split)))
        for _ in range(PASSES_MAX):
            if not self._level() + self._bring_home():
                break
        return self._owners

    def _place(self, free: Sequence[str]) -> None:
        lightest = _Lightest(self._workers)
        for split in free:
            near = [self._workers[name] for name in self._worths.get(split, ())]
            worker = min([lightest.top(), *near], key=lambda w: (self._cost(split, w), w.name))
            self._give(split, worker.name)
            lightest.push(worker)

    def _cost(self, split: str, worker: _Worker) -> float:
        return 2 * worker.load - self._worth(split, worker)

    def _level(self) -> int:
        """Move splits from the workers with most load to those with least; return how many."""
        moves = 0
        lightest = _Lightest(self._workers)
        heaviest = [(-worker.load, worker.name) for worker in self._workers.values()]
        heapify(heaviest)
        while heaviest:
            load, name = heappop(heaviest)
            giver, taker = self._workers[name], lightest.top()
            if -load != giver.load:
                continue  # Its load has changed: it has another entry, or has become light.
            if giver.load - taker.load <= GAIN_MIN / 2 * self._mean:
                break
            split = self._best(giver, taker)
            if split is None:
                continue  # No move from it gains enough: the others only get heavier.
            self._give(split, taker.name)
            moves += 1
            lightest.push(giver)
            lightest.push(taker)
            heappush(heaviest, (-giver.load, giver.name))
        return moves

    def _best(self, giver: _Worker, taker: _Worker) -> str | None:
        """Return the split whose move gains most, if it gains enough; the last of equal ones."""
        best, gain_max = None, 0.0
        for split in giver.parts:
            gain = self._gain(split, giver, taker)
            if gain < GAIN_MIN * self._mean:
                continue
            gain *= self._weights[split]
            if (gain, split) > (gain_max, best or ""):
                best, gain_max = split, gain
        return best

    def _gain(self, split: str, giver: _Worker, taker: _Worker) -> float:
        """Return the gain of a move for each byte moved."""
        spread = 2 * (giver.load - taker.load - self._weights[split])
        return spread + self._worth(split, taker) - self._worth(split, giver)

    def _bring_home(self) -> int:
        """Move or exchange splits so that more reads are local; return how many."""
        moves = 0
        for split, worths in self._worths.items():
            giver = self._workers[self._owners[split]]
            at_home = self._worth(split, giver)
            takers = [self._workers[name] for name, worth in worths.items() if worth > at_home]
            takers.sort(key=lambda worker: (self._cost(split, worker), worker.name))
            for taker in takers[:TAKERS_MAX]:
                if self._gain(split, giver, taker) >= GAIN_MIN * self._mean:
                    self._give(split, taker.name)
                    moves += 1
                    break
                back = self._exchange(split, giver, taker)
                if back is not None:
                    self._give(split, taker.name)
                    self._give(back, giver.name)
                    moves += 2
                    break
        return moves

    def _exchange(self, split: str, giver: _Worker, taker: _Worker) -> str | None:
        """Return the split that *taker* should give for *split*, if an exchange gains enough."""
        weight, best, gain_max = self._weights[split], None, 0.0
        come = weight * (self._worth(split, taker) - self._worth(split, giver))
        gap = giver.load - taker.load
        # The most that the loads can gain: beyond it only splits local to the giver help.
        alone = come + gap * gap / 2 >= EXCHANGE_MIN * self._mean * weight
        for back in taker.parts:
            near = self._worth(back, giver)
            if not (alone or near):
                continue
            other = self._weights[back]
            gone = other * (near - self._worth(back, taker))
            net = weight - other
            gain = 2 * net * (gap - net) + come + gone
            enough = EXCHANGE_MIN * self._mean * (weight + other)
            if gain >= enough and (gain, back) > (gain_max, best or ""):
                best, gain_max = back, gain
        return best

    def _worth(self, split: str, worker: _Worker) -> float:
        worths = self._worths.get(split)
        return worths.get(worker.name, 0.0) if worths else 0.0

    def _give(self, split: str, worker: str) -> None:
        weight = self._weights[split]
        before = self._owners.get(split)
        if before is not None:
            self._workers[before].load -= weight
            self._workers[before].parts.remove(split)
        self._owners[split] = worker
        self._workers[worker].load += weight
        self._workers[worker].parts.add(split)


class _Lightest:
    """The worker with the least load, while loads change."""

    def __init__(self, workers: Mapping[str, _Worker]) -> None:
        self._workers = workers
        self._heap = [(worker.load, worker.name) for worker in workers.values()]
        heapify(self._heap)

    def top(self) -> _Worker:
        """Return this worker; the first by name of several."""
        while True:
            load, name = self._heap[0]
            if self._workers[name].load == load:
                return self._workers[name]
            heappop(self._heap)

    def push(self, worker: _Worker) -> None:
        """Record a changed load."""
        heappush(self._heap, (worker.load, worker.name))


def _worths(
    splits: Collection[str], workers: Mapping[str, Collection[str]], places: Places, whole: float
) -> Mapping[str, Mapping[str, float]]:
    """Return, by split, the value of each worker as its reader; empty if all workers are alike.

    *whole* is the value of reading all of a split locally.
    """
    if len({frozenset(near) for near in workers.values()}) < 2:  # noqa: PLR2004 (one is all alike)
        return {}
    at: dict[str, list[str]] = {}
    for name, near in sorted(workers.items()):
        for place in near:
            at.setdefault(place, []).append(name)
    found: dict[str, dict[str, float]] = {}
    for split in splits:
        shares: dict[str, float] = {}
        for place, share in sorted(places.get(split, {}).items()):
            for name in at.get(place, ()):
                shares[name] = min(1.0, shares.get(name, 0.0) + share)
        found[split] = {name: whole * share for name, share in shares.items()}
    return found


def _by_name(part: Part) -> str:
    return part.split


@dataclass(slots=True)
class _Seen:
    total: int
    at_ms: int
    rate: float


class Rates:
    """The rates of the splits that this process runs."""

    def __init__(self) -> None:
        """Start without splits."""
        self._seen: dict[str, _Seen] = {}

    def begin(self, split: str, rate: int, now_ms: int) -> None:
        """Start with the rate that the last owner of *split* reported; nothing is read yet."""
        self._seen[split] = _Seen(0, now_ms, rate)

    def observe(self, totals: Mapping[str, int], now_ms: int) -> None:
        """Record how many bytes of each split were read since it started."""
        for split, total in totals.items():
            seen = self._seen.get(split)
            if seen is None:
                self._seen[split] = _Seen(total, now_ms, 0)
                continue
            passed_ms = now_ms - seen.at_ms
            if passed_ms <= 0:
                continue
            if total != seen.total or seen.rate:  # Else it stays 0, like that of most splits.
                fresh = max(0, total - seen.total) * 1000 / passed_ms
                kept = exp(-passed_ms / FADE_MS)
                seen.rate = kept * seen.rate + (1 - kept) * fresh
                seen.total = total
            seen.at_ms = now_ms

    def end(self, split: str) -> None:
        """Forget a split that ended."""
        self._seen.pop(split, None)

    def all(self) -> Mapping[str, int]:
        """Return the bytes a second of each split."""
        return {split: round(seen.rate) for split, seen in self._seen.items()}
