"""Judges what a job did to a ring: the invariants I1 to I7 and what agreement promises (35 to 37).

Every state that a reader makes is kept with the one before it. What was committed is a path through
them; what was emitted is judged along such a line, so that a repeat after a crash is told from one
that nothing excuses. "Line n" cites docs/agreement.md. Nothing of the code under test takes part
but for decoding positions.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile
from typing import ClassVar, Final

from headrace.connector.stores import Commit
from headrace.plugins import EncodedPosition
from headrace.sources.cassandra import codes
from headrace.sources.cassandra.frame import digest
from headrace.sources.cassandra.state import OPEN, CdcState
from model_lines import (
    PUBLISHED,
    Change,
    Digest,
    Flight,
    Known,
    Line,
    change_of,
    gaps_in,
    rows_of,
    versions_in,
)
from model_ring import END, SPLITS, TABLE, Copy, Mutation, Ring, Version, raw, split_of

EXPIRY_S: Final = 120
MEMORY_S: Final = 100
COMPLETE_S: Final = 40
FETCHED_MS: Final = 10_000  # Line 8.
WINDOW_BYTES: Final = 3_000
_FATES: Final = ("first", "counted", "surplus", "repeat", "damaged")
_EMITTED: Final = ("agreed", "expired_published")
_OUTCOMES: Final = (
    "agreed",
    "reencoded",
    "expired",
    "expired_published",
    "not_replica",
    "filtered",
    "overflow",
    "pending",
)


class BrokenError(AssertionError):
    """The job did what it must never do."""


class Judge:
    """Is told of everything and remembers what was wrong, for `verify` to raise.

    `heeds` is for tests of the judge itself: how the words begin that it may say.
    """

    heeds: ClassVar[str] = ""

    def __init__(self, ring: Ring, job_key: bytes, *, publishes_expired: bool = False) -> None:
        """Begin before the first state of each split."""
        self.ring = ring
        self.committed = {split: Line(split, ring.version) for split in SPLITS}
        self.flights: list[Flight] = []
        self.wrong: list[str] = []
        self.expired: set[frozenset[int]] = set()
        self.publishes_expired = publishes_expired
        self._job_key = job_key
        self._lines: dict[bytes, Line] = {}
        self._ends: dict[int, tuple[CdcState, Line]] = {}
        self._digests: dict[Digest, Mutation] = {}
        self._names: dict[Mutation, Digest] = {}
        self._chunks: dict[tuple[str, tuple[str, ...]], list[tuple[Digest, Known]]] = {}
        self._released: dict[str, set[int]] = {name: set() for name in ring.nodes}

    def verify(self) -> None:
        """Raise what was found wrong."""
        self._check_release()
        if self.wrong:
            raise BrokenError(self.wrong[0])

    def _check(self, right: object, what: str) -> None:
        if not right:
            self.complain(what)

    def complain(self, what: str) -> None:
        """Remember what is wrong."""
        if what.startswith(self.heeds):
            self.wrong.append(what)

    # ---- states (I1, lines 8, 16, 20, 22, 27) ----

    def opened(self, split: str, head: bytes | None) -> Line:
        """Return where a reader resumes; it may know an older ring, and learn of a change anew."""
        if head is None:
            return Line(split, self.ring.version)
        line = self._lines[head]
        line.superseded = {v: (since, line.tau) for v, (since, _) in line.superseded.items()}
        return line

    def made(self, parent: Line, end: CdcState, *, now_ms: int, tau_max: int) -> Line:
        """Take a state that was made after *parent*; τ may have grown to *tau_max* (line 8)."""
        encoded = end.encode()
        version, superseded = versions_in(end)
        line = Line(
            parent.split,
            version,
            parent,
            end.tau,
            {n: (m.segment_id, m.offset) for n, m in end.markers.items()},
            self._records(end),
            dict(end.counters),
            gaps_in(end),
            is_stopped=any(gap.state == OPEN for gap in end.met_gaps),
            made_ms=now_ms,
        )
        emitted = (f"mutations.{name}" for name in _EMITTED)
        line.has_changes = any(line.books[n] > parent.books.get(n, 0) for n in emitted)
        line.follow(line.version)
        self._look(line)
        self._lines[encoded.head] = line
        self._ends[id(end)] = (end, line)
        self._check(parent.tau <= line.tau, "split time went back")
        old = superseded - line.possible_versions() - self.ring.versions_since(parent.made_ms)
        self._check(not old, f"line 9: {old} count")
        self._check(line.tau <= tau_max, f"line 8: τ is {line.tau}, but was watched for {tau_max}")
        self._check_records(line, now_ms)
        self._check_books(line)
        return line

    def _check_records(self, line: Line, now_ms: int) -> None:
        gone = self._gone()
        before = line.parent.records if line.parent else {}
        for name, record in line.records.items():
            mutation = self._mutation(name)
            covered = line.covered[mutation.content]
            self._check(record.seen <= covered, f"I1: {mutation}: later copies are in the state")
            if record.kind == codes.PENDING:
                stays = self._meets(record.seen, mutation, self._sure(line))
                lacks_bytes = record.places <= gone
                self._check(not stays or lacks_bytes, f"line 17: {mutation} waits for nothing")
            if record.kind != codes.EXPIRED_DROPPED:
                continue
            expires = name not in before or before[name].kind != codes.EXPIRED_DROPPED
            if expires or mutation in line.came:
                meets = self._meets(record.seen, mutation, self._sure(line))
                self._check(not meets, f"line 16: {mutation} is not late")
            if expires:
                self._check_expiry(line, mutation, now_ms)
        for name, record in before.items():
            if name not in line.records:
                self._check_dropped(line, name, record)
        for mutation in line.came:
            self._check(self._name(mutation) in line.records, f"I1: {mutation} left no trace")

    def _check_dropped(self, line: Line, name: Digest, record: Known) -> None:
        """Lines 22 and 23; times are those of the states before, so never too late."""
        mutation = self._mutation(name)
        if record.kind == codes.PENDING:
            self.complain(f"line 22: {mutation} was pending and is forgotten")
            return
        expected = {n for v in self._sure(line) for n in v.replicas(mutation.key)}
        complete = record.kind != codes.EXPIRED_DROPPED and record.seen >= expected
        before = list(line.back())[1:]
        if complete:
            since = max(x.parent.tau for x in before if x.parent and mutation in x.came)
        else:
            same = takewhile(
                lambda x: name in x.records and x.records[name].kind == record.kind, before
            )
            first = list(same)[-1].parent
            since = first.tau if first else 0
        age_ms = line.tau - since
        kept_ms = (COMPLETE_S if complete else MEMORY_S) * 1000
        self._check(age_ms >= kept_ms, f"line 23: {mutation} is forgotten after {age_ms} ms")

    @staticmethod
    def _sure(line: Line) -> set[Version]:
        """Return the rings that counted all the time that led to a state."""
        before = line.parent.sure_versions() if line.parent else set()
        return line.sure_versions() & before

    def _check_expiry(self, line: Line, mutation: Mutation, now_ms: int) -> None:
        for node, log in self.ring.nodes.items():
            for copy in log.copies:
                if copy.mutation == mutation and not line.covers(node, copy) and copy.counts:
                    unread = (copy.durable_ms or 0) < now_ms - FETCHED_MS
                    self._check(not unread, f"line 20: {mutation} expired, a copy lies unread")

    def _look(self, line: Line) -> None:
        """Note what of the logs is before the markers."""
        assert line.parent is not None
        line.lost = [*line.parent.lost]
        for node, log in self.ring.nodes.items():
            line.lost += self._lost(line, node)
            lost = {id(copy) for _, copy in line.lost}
            for copy in log.copies:
                mutation = copy.mutation
                if not line.covers(node, copy) or id(copy) in lost:
                    continue
                if not copy.damaged:
                    line.covered[mutation.content].add(node)
                if not _counted(line.split, copy):
                    continue
                line.read[node] += 1
                line.damaged[node] += copy.damaged
                if not copy.damaged and not line.parent.covers(node, copy):
                    line.came.add(mutation)

    def _lost(self, line: Line, node: str) -> list[tuple[str, Copy]]:
        """Return what vanished before it was read, for all that the books say (I10)."""
        assert line.parent is not None
        found = [
            copy
            for copy in self.ring.nodes[node].copies
            if copy.lost
            and line.covers(node, copy)
            and not line.parent.covers(node, copy)
            and _counted(line.split, copy)
        ]
        if not found:
            return []
        was_lost = {id(copy) for _, copy in line.lost}
        others = sum(
            _counted(line.split, copy) and line.covers(node, copy)
            for copy in self.ring.nodes[node].copies
            if id(copy) not in was_lost
        ) - len(found)
        lost = found[max(0, line.books[f"entries.{node}.read"] - others) :]
        began = any(line.parent.markers.get(node, ()))  # Else reading starts where the log does.
        for copy in lost if began else ():
            self._check(line.passes(node, copy), f"I10: {copy} is passed over without a gap")
        return [(node, copy) for copy in lost]

    def _meets(
        self, hosts: Collection[str], mutation: Mutation, versions: Collection[Version]
    ) -> bool:
        return any(v.is_met(self.ring.level, mutation.key, hosts) for v in versions)

    def moved(self, split: str, position: EncodedPosition) -> None:
        """Take a state that somebody put in the place of the committed one."""
        before = self.committed[split]
        end = CdcState.decode(position)
        self.committed[split] = self.made(before, end, now_ms=before.made_ms, tau_max=before.tau)

    # ---- what reaches the sink (I2, I4, I6, lines 17, 36) ----

    def submitted(
        self, end: object, values: Sequence[bytes], token: int, *, allowed: bool
    ) -> Flight:
        """Take a delivery; *allowed* says whether the owner's lease was still good."""
        _, line = self._ends[id(end)]
        flight = Flight(
            len(self.flights),
            line,
            token,
            [change_of(value) for value in values],
            sum(map(len, values)),
        )
        self.flights.append(flight)
        self._check(allowed, "I2: submitted after the deadline of the lease")
        for change in flight.rows():
            self._check_justified(line, change)
        if not line.flights:
            line.said = self._said(flight.rows())
            self._check_repeats(line)
        line.flights.append(flight)
        self._check_window(line)
        return flight

    def _check_justified(self, line: Line, change: Change) -> None:
        mutation = self.ring.at(change.place)
        self._check(
            mutation is not None and change.row in mutation.rows,
            f"I6: row {change.row} comes from {change.place}, where nothing durable says so",
        )
        if mutation is None:
            return
        hosts = self.ring.hosts(mutation.content)
        self._check(change.copies <= len(hosts), f"{mutation}: {change.copies} copies of {hosts}")
        assumed = {gap.node for gap in line.gaps if gap.assumed}
        enough = self.publishes_expired or self._meets(
            hosts | assumed, mutation, line.possible_versions()
        )
        self._check(enough, f"line 3: {mutation} emitted, but only {hosts} logged it")

    def _said(self, changes: Sequence[Change]) -> list[Mutation]:
        places = dict.fromkeys(change.place for change in changes)
        return [mutation for place in places if (mutation := self.ring.at(place))]

    def _check_repeats(self, line: Line) -> None:
        """Line 36: what was said before on this line, and is remembered, is not said again."""
        before = line.parent.rows() if line.parent else set()
        gone = self._gone()
        remembered = self._remembered(line)
        for mutation in line.said:
            repeats = mutation.content <= before and mutation.content <= remembered
            record = line.records.get(self._name(mutation))
            if record is not None and record.places & gone:
                repeats = False  # What is gone is not compared.
            self._check(not repeats, f"line 36: {mutation} was said before")
            before |= mutation.content
            remembered |= mutation.content

    def _remembered(self, line: Line) -> set[int]:
        """Return the rows of what was published and is still known, with bytes in a log."""
        gone = self._gone()
        return {
            row
            for name, record in (line.parent.records.items() if line.parent else ())
            if record.kind in PUBLISHED and name in line.records and not record.places & gone
            for row in self._mutation(name).rows
        }

    def _gone(self) -> set[tuple[str, int]]:
        """Return the segments that are not there any more."""
        return {(node, n) for node, log in self.ring.nodes.items() for n in log.gone()}

    def _check_window(self, line: Line) -> None:
        """I7: no more than a window is on its way."""
        sizes = []
        for each in line.back():
            if each is self.committed[line.split]:
                break
            sizes += [flight.size_bytes for flight in each.flights[-1:]]
        self._check(
            sum(sizes) <= WINDOW_BYTES + max(sizes, default=0),
            f"I7: {sum(sizes)} bytes are uncommitted",
        )

    def check_order(self) -> None:
        """I4: under one lease a key's records come last in the order in which they were said."""
        for token, split in {(f.token, f.line.split) for f in self.flights}:
            mine = [f for f in self.flights if (f.token, f.line.split) == (token, split)]
            for key in {c.key for f in mine for c in f.rows()}:
                changes = [c for f in mine for c in f.rows() if c.key == key]
                dead = {(c.place, c.row) for c in changes if c.rejected}
                last = dict.fromkeys((c.place, c.row) for c in reversed(changes) if c.arrived)
                came = [x for x in reversed(last) if x not in dead]
                said = list(dict.fromkeys((c.place, c.row) for c in changes))
                order = [x for x in said if x in last and x not in dead]
                self._check(came == order, f"I4: {came} instead of {order}")

    # ---- commits (I1, I2, I3) ----

    def stored(self, commit: Commit) -> None:
        """Take a commit that the store accepted."""
        line = self._lines.get(commit.position.head)
        before = self.committed[commit.split]
        if line is None:
            self.complain("line 27: what was committed is no state at a batch's end")
            return
        if line is before:
            return
        path = []
        for each in line.back():
            if each is before:
                break
            path.append(each)
        else:
            self._check(before.parent is None and not before.flights, "I2: the line was replaced")
        for each in path:
            self._check_settled(each)
        self._check_tables(line, commit)
        kept = sum(loss.kind == "quarantined" for loss in commit.losses)
        damaged = line.damaged.total() - before.damaged.total()
        self._check(kept == damaged, f"I8: {damaged} damaged, the bytes of {kept} were kept")
        self.committed[commit.split] = line
        for name, record in line.records.items():
            if record.kind == codes.EXPIRED_DROPPED:
                self.expired.add(self._mutation(name).content)

    def _check_settled(self, line: Line) -> None:
        changes = [c for flight in line.flights for c in flight.changes]
        done = {(c.place, c.row) for c in changes if c.arrived or c.rejected}
        named = {(c.place, c.row) for c in changes}
        self._check(done == named, f"line 28: committed before {named - done} was settled")
        self._check(not line.has_changes or line.flights, "line 28: committed, but never sent")
        known = {gap.name for gap in line.parent.gaps} if line.parent else set()
        for gap in line.gaps:
            told = gap.name in known or any(c.place == gap.name for c in changes)
            self._check(told, f"I10: nobody was told of {gap}")

    def _check_tables(self, line: Line, commit: Commit) -> None:
        """I3, the third equation."""
        cut = delivered = dead = 0
        for table, counts in commit.counters.items():
            if table != TABLE:
                continue
            cut += counts.cut
            delivered += counts.delivered
            dead += counts.dead_lettered
        said = sum(len(m.rows) for each in line.back() for m in each.said)
        self._check(cut == said, f"I3: {cut} changes cut, {said} were said")
        self._check(cut == delivered + dead, f"I3: {cut} cut, {delivered} + {dead}")

    def _check_books(self, line: Line) -> None:
        """I3, the first two equations."""
        books = line.books
        for node in self.ring.nodes:
            read = line.read[node]
            told = {fate: books[f"entries.{node}.{fate}"] for fate in _FATES}
            balanced = read == books[f"entries.{node}.read"] == sum(told.values())
            self._check(
                balanced and line.damaged[node] == told["damaged"],
                f"I3: {read} entries of {node}, the books say {told}",
            )
        outcomes = {name: books.get(f"mutations.{name}", 0) for name in _OUTCOMES}
        self._check(
            books["mutations.first"] == sum(outcomes.values()),
            f"I3: {books['mutations.first']} first, {outcomes}",
        )
        kinds = Counter(record.kind for record in line.records.values())
        self._check(outcomes["pending"] == kinds[codes.PENDING], "I3: pending")

    # ---- release (I5) ----

    def _check_release(self) -> None:
        for node, log in self.ring.nodes.items():
            for segment in log.released() - self._released[node]:
                self._released[node].add(segment)
                for split, line in self.committed.items():
                    past = line.markers.get(node, (0, 0)) >= (segment, END)
                    self._check(past, f"I5: {node}'s segment {segment} went, {split} needs it")
                    for name, record in line.records.items():
                        waits = record.kind in (codes.PENDING, codes.EXPIRED_DROPPED)
                        held = waits and (node, segment) in record.places
                        self._check(not held, f"line 34: bytes of {self._mutation(name)} went")

    # ---- the end (line 35) ----

    def check_end(self) -> None:
        """Check that all that agreed has arrived, or that its expiry was in the books."""
        self.check_order()
        kept = {row for line in self.committed.values() for row in self._kept(line)}
        for mutation in {c.mutation for log in self.ring.nodes.values() for c in log.copies}:
            if self.ring.is_met(mutation) and mutation.content not in self.expired:
                missing = mutation.content - kept
                self._check(not missing, f"line 35: rows {missing} of {mutation} are lost")
        self.verify()

    def _kept(self, line: Line) -> Iterator[int]:
        for each in line.back():
            for flight in each.flights:
                yield from (c.row for c in flight.rows() if c.arrived or c.rejected)

    # ---- names ----

    def _name(self, mutation: Mutation) -> Digest:
        if mutation in self._names:
            return self._names[mutation]
        hashed = digest(raw(mutation), self._job_key)
        self._names[mutation] = name = (
            int.from_bytes(hashed[:8], "little"),
            int.from_bytes(hashed[8:], "little"),
        )
        self._digests[name] = mutation
        return name

    def _mutation(self, name: Digest) -> Mutation:
        if name not in self._digests:
            for log in self.ring.nodes.values():
                for copy in log.copies:
                    self._name(copy.mutation)
        return self._digests[name]

    def _records(self, state: CdcState) -> dict[Digest, Known]:
        found: dict[Digest, Known] = {}
        for chunk in state.chunks:
            key = chunk.name, state.hosts
            if key not in self._chunks:
                self._chunks[key] = list(rows_of(chunk.rows, state.hosts))
            for name, known in self._chunks[key]:
                found.pop(name, None)
                if known.kind != codes.FREE:
                    found[name] = known
        return found


def _counted(split: str, copy: Copy) -> bool:
    """Say whether a split books an entry; the first one books all damage."""
    of = SPLITS[0] if copy.damaged else split_of(copy.mutation.key)
    return copy.durable_ms is not None and of == split
