"""Checks what a job did to a ring: the invariants I1 to I7 and what agreement promises (35 to 37).

Every state that a reader makes is kept with the one before it. Committed states are a path through
them. Emitted records are checked along such a path, so that a repeat after a crash is distinguished
from one without an excuse. "Line n" cites docs/agreement.md. Nothing of the code under test is used
but for decoding positions.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from headrace.connector.stores import Commit, Plan, SplitState
from headrace.plugins import EncodedPosition
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.state.cdc_state import CdcState
from helpers.model.checks.absence import AbsenceChecks
from helpers.model.checks.lines import (
    NOWHERE,
    WAITING,
    Change,
    Course,
    Flight,
    Line,
    change_of,
    line_of,
    versions_in,
)
from helpers.model.checks.merged import check_closed, check_merged, merged_line
from helpers.model.logs import END, TABLE, Copy, Mutation
from helpers.model.ring import Ring, place_of

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


class JobChecks(AbsenceChecks):
    """Gets every event, and remembers what was wrong, for `verify` to raise."""

    def __init__(
        self,
        ring: Ring,
        job_key: bytes,
        splits: Sequence[str],
        *,
        options: Mapping[str, object],
    ) -> None:
        """Start before the first state of each of *splits*; *options* are those of the source."""
        super().__init__(ring, job_key, options=options)
        self.courses = {split: Course(split) for split in splits}
        for course in self.courses.values():
            course.begin(Line(course, ring.version))
        self.flights: list[Flight] = []
        self.expired: set[frozenset[int]] = set()
        self.publishes_expired = options.get("expired") == "publish"
        self._arrived: set[int] = set()  # Rows, by what is committed.
        self._lines: dict[tuple[Course, bytes], Line] = {}
        self._ends: dict[int, tuple[CdcState, Line]] = {}
        self._released: dict[str, set[int]] = {name: set() for name in ring.nodes}

    @property
    def committed(self) -> Sequence[Line]:
        """The committed states of the current splits."""
        return [course.committed for course in self.courses.values()]

    def verify(self) -> None:
        """Raise what was found to be wrong."""
        self._check_release()
        if self.wrong:
            raise self.error(self.wrong[0])

    # ---- states (I1, lines 8, 16, 20, 22, 27) ----

    def opened(self, split: str, head: bytes | None) -> Line:
        """Return where a reader resumes; it may have an older ring, and get the newer one again."""
        course = self.courses[split]
        line = course.root if head is None else self._lines[course, head]
        line.superseded = {
            v: (since, line.split_time_ms) for v, (since, _) in line.superseded.items()
        }
        return line

    def made(self, parent: Line, end: CdcState, *, now_ms: int, tau_max: int) -> Line:
        """Add a state that was made after *parent*; τ may have grown to *tau_max* (line 8)."""
        current, superseded = versions_in(end)
        # A merged state has several until it is read from; its gaps may be accepted before that.
        (version,) = current if len(current) == 1 or not parent.origins else {parent.version}
        line = line_of(parent.course, version, end)
        line.parent = parent
        line.rings = {*current, *superseded}
        line.records = self.records_in(end)
        line.made_ms = now_ms
        emitted = (f"mutations.{name}" for name in _EMITTED)
        line.has_changes = any(line.books[n] > parent.books[n] for n in emitted)
        line.follow(line.version)
        self._look(line)
        self._lines[line.course, end.encode().head] = line
        self._ends[id(end)] = (end, line)
        self.check(parent.split_time_ms <= line.split_time_ms, "split time went back")
        old = superseded - line.possible_versions() - self.ring.versions_since(parent.made_ms)
        self.check(not old, f"line 9: {old} count")
        self.check(
            line.split_time_ms <= tau_max,
            f"line 8: τ is {line.split_time_ms}, but was watched for {tau_max}",
        )
        self.check_absences(line)
        self.check_records(line)
        self._check_books(line)
        return line

    def replanned(self, ended: Plan, states: Sequence[SplitState]) -> None:
        """Replace the splits by other ones, with their first states (line 33)."""
        check_closed(ended, self.committed, self)
        before, self.courses = list(self.courses.values()), {}
        for stored in states:
            course = Course(stored.split)
            position = stored.position
            state = None if position is None else CdcState.decode(position)
            line = merged_line(course, state, before, self.ring)
            line.records = {} if state is None else self.records_in(state)
            course.begin(line)
            self.courses[stored.split] = course
            if position is not None:
                self._lines[course, position.head] = line
            check_merged(line, state, self)

    def _look(self, line: Line) -> None:
        """Record which part of the logs is before the markers."""
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
                if not line.course.counts(copy) or line.course.root.covers(node, copy):
                    continue
                line.read[node] += 1
                line.damaged[node] += copy.damaged
                if not copy.damaged and not line.parent.covers(node, copy):
                    line.came.add(mutation)

    def _lost(self, line: Line, node: str) -> list[tuple[str, Copy]]:
        """Return what vanished before it was read, according to the books (I10)."""
        assert line.parent is not None
        course, parent = line.course, line.parent
        mine = [
            copy
            for copy in self.ring.nodes[node].copies
            if course.counts(copy)
            and line.covers(node, copy)
            and not course.root.covers(node, copy)
        ]
        unread = [copy for copy in mine if not parent.covers(node, copy)]
        found = [copy for copy in unread if copy.lost]
        skipped = [copy for copy in unread if not copy.lost and line.skips(node, copy)]
        if not found:
            return [(node, copy) for copy in skipped]
        mine = [copy for copy in mine if not any(copy is each for each in skipped)]
        was_lost = {id(copy) for _, copy in line.lost}
        others = sum(id(copy) not in was_lost for copy in mine) - len(found)
        lost = found[max(0, line.books[f"entries.{node}.read"] - others) :]
        for copy in lost:
            began = parent.marker(node, place_of(copy.mutation.key)) > NOWHERE
            passed = not began or line.passes(node, copy)  # Otherwise it starts where the log does.
            self.check(passed, f"I10: {copy} is passed over without a gap")
        return [(node, copy) for copy in (*lost, *skipped)]

    def moved(self, split: str, position: EncodedPosition) -> None:
        """Add a state that a command set in the place of the committed one."""
        course = self.courses[split]
        before, end = course.committed, CdcState.decode(position)
        course.committed = self.made(
            before, end, now_ms=before.made_ms, tau_max=before.split_time_ms
        )

    # ---- what reaches the sink (I2, I4, I6, lines 17, 36) ----

    def submitted(
        self, end: object, values: Sequence[bytes], token: int, *, allowed: bool
    ) -> Flight:
        """Add a delivery; *allowed* is whether the owner's lease was still valid."""
        _, line = self._ends[id(end)]
        flight = Flight(
            len(self.flights),
            line,
            token,
            [change_of(value) for value in values],
            sum(map(len, values)),
        )
        self.flights.append(flight)
        self.check(allowed, "I2: submitted after the deadline of the lease")
        for change in flight.rows():
            self._check_justified(line, change)
        if not line.flights:
            line.said = self._said(flight.rows())
            if not line.gave_way and not line.forgot_early:
                self._check_repeats(line)
            self._check_reported(line, flight)
            self.check_streamed(line)
        line.flights.append(flight)
        self._check_window(line)
        return flight

    def _check_justified(self, line: Line, change: Change) -> None:
        mutation = self.ring.at(change.place)
        self.check(
            mutation is not None and change.row in mutation.rows,
            f"I6: row {change.row} comes from {change.place}, where nothing durable says so",
        )
        if mutation is None:
            return
        hosts = self.ring.hosts(mutation.content)
        self.check(change.copies <= len(hosts), f"{mutation}: {change.copies} copies of {hosts}")
        versions = line.possible_versions()
        meets = any(v.is_met(mutation.key, hosts.union(line.assumed)) for v in versions)
        enough = self.publishes_expired or meets
        self.check(enough, f"line 3: {mutation} emitted, but only {hosts} logged it")

    def _said(self, changes: Sequence[Change]) -> list[Mutation]:
        places = dict.fromkeys(change.place for change in changes)
        return [mutation for place in places if (mutation := self.ring.at(place))]

    def _check_repeats(self, line: Line) -> None:
        """Line 36: what was emitted on this path, and is remembered, is not emitted again."""
        before = line.parent.rows() if line.parent else set()
        gone = self.gone()
        remembered = self.remembered(line)
        for mutation in line.said:
            repeats = mutation.content <= before and mutation.content <= remembered
            record = line.records.get(self.name(mutation))
            if record is not None and record.places & gone:
                repeats = False  # What is gone is not compared.
            self.check(not repeats, f"line 36: {mutation} was said before")
            before |= mutation.content
            remembered |= mutation.content

    def _check_reported(self, line: Line, flight: Flight) -> None:
        """I10: what became of a gap is reported once."""
        line.reported = {(c.place, c.until, c.state) for c in flight.changes if c.row < 0}
        before = {each for other in list(line.back())[1:] for each in other.reported}
        self.check(not line.reported & before, f"I10: {line.reported & before} was reported before")

    def _check_window(self, line: Line) -> None:
        """I7: at most a window is in flight."""
        sizes = []
        for each in line.back():
            if each is line.course.committed:
                break
            sizes += [flight.size_bytes for flight in each.flights[-1:]]
        self.check(
            sum(sizes) <= WINDOW_BYTES + max(sizes, default=0),
            f"I7: {sum(sizes)} bytes are uncommitted",
        )

    def check_order(self) -> None:
        """I4: under one lease a key's records arrive last in the order of their emission."""
        for token, course in {(f.token, f.line.course) for f in self.flights}:
            mine = [f for f in self.flights if (f.token, f.line.course) == (token, course)]
            for key in {c.key for f in mine for c in f.rows()}:
                changes = [c for f in mine for c in f.rows() if c.key == key]
                # What was being sent again when its owner died is sent again by the next owner.
                latest = {(c.place, c.row): c for c in changes}
                dead = {place for place, c in latest.items() if not c.arrived}
                dead |= {(c.place, c.row) for c in changes if c.rejected}
                last = dict.fromkeys((c.place, c.row) for c in reversed(changes) if c.arrived)
                came = [x for x in reversed(last) if x not in dead]
                said = list(dict.fromkeys((c.place, c.row) for c in changes))
                order = [x for x in said if x in last and x not in dead]
                self.check(came == order, f"I4: {came} instead of {order}")

    # ---- commits (I1, I2, I3) ----

    def stored(self, commit: Commit) -> None:
        """Add a commit that the store accepted."""
        course = self.courses.get(commit.split)
        line = self._lines.get((course, commit.position.head)) if course else None
        if course is None or line is None:
            self.complain("line 27: what was committed is no state at a batch's end, of this plan")
            return
        before = course.committed
        if line is before:
            return
        path = []
        for each in line.back():
            if each is before:
                break
            path.append(each)
        else:
            self.complain("I2: the line was replaced")
        for each in path:
            self._check_settled(each)
        self._check_tables(line, commit)
        kept = sum(loss.kind == "quarantined" for loss in commit.losses)
        lost = line.damaged.total() - before.damaged.total() + sum(x.gave_way for x in path)
        self.check(kept == lost, f"I8: {lost} damaged or too many, the bytes of {kept} were kept")
        course.committed = line
        flights = [flight for each in path for flight in each.flights]
        self._arrived |= {c.row for f in flights for c in f.rows() if c.arrived or c.rejected}
        for name, record in line.records.items():
            if record.kind == constants.EXPIRED_DROPPED:
                self.expired.add(self.mutation(name).content)
        for each in path:
            self.expired |= each.set_aside

    def _check_settled(self, line: Line) -> None:
        changes = [c for flight in line.flights for c in flight.changes]
        done = {(c.place, c.row) for c in changes if c.arrived or c.rejected}
        named = {(c.place, c.row) for c in changes}
        self.check(done == named, f"line 28: committed before {named - done} was settled")
        self.check(not line.has_changes or line.flights, "line 28: committed, but never sent")
        known = {gap.name for gap in line.parent.gaps} if line.parent else set()
        for gap in line.gaps:
            reported = gap.name in known or any(c.place == gap.name for c in changes)
            self.check(reported, f"I10: nobody reported {gap}")

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
        self.check(cut == said, f"I3: {cut} changes cut, {said} were said")
        self.check(cut == delivered + dead, f"I3: {cut} cut, {delivered} + {dead}")

    def _check_books(self, line: Line) -> None:
        """I3, the first two equations."""
        books = line.books
        for node in self.ring.nodes:
            read = line.read[node]
            reported = {fate: books[f"entries.{node}.{fate}"] for fate in _FATES}
            balanced = read == books[f"entries.{node}.read"] == sum(reported.values())
            self.check(
                balanced and line.damaged[node] == reported["damaged"],
                f"I3: {read} entries of {node}, the books say {reported}",
            )
        outcomes = {name: books[f"mutations.{name}"] for name in _OUTCOMES}
        opening, first = books["mutations.opening"], books["mutations.first"]
        self.check(
            opening + first == sum(outcomes.values()),
            f"I3: {opening} at first, {first} first, {outcomes}",
        )
        kinds = Counter(record.kind for record in line.records.values())
        self.check(outcomes["pending"] == kinds[constants.PENDING], "I3: pending")

    # ---- release (I5) ----

    def _check_release(self) -> None:
        for node, log in self.ring.nodes.items():
            released = log.released()
            self._released[node] &= released  # After a set-up nothing of the old log is left.
            for segment in released - self._released[node]:
                self._released[node].add(segment)
                for line in self.committed:
                    split = line.course.split
                    past = line.markers.get(node, NOWHERE) >= (segment, END)
                    self.check(past, f"I5: {node}'s segment {segment} went, {split} needs it")
            for line in self.committed:
                for name, record in line.records.items() if self._released[node] else ():
                    for at in record.places if record.kind in WAITING else ():
                        if at[0] == node and at[1] in self._released[node]:
                            there = self.mutation(name).content in log.rescued(at[1])
                            self.check(there, f"line 34: bytes of {self.mutation(name)} went")

    # ---- the end (line 35) ----

    def check_rings(self) -> None:
        """Line 2: in the end all splits use the current ring, copies and level."""
        for line in self.committed:
            right = line.version == self.ring.version
            self.check(right, f"line 2: {line.course.split} goes by {line.version}")

    def check_end(self) -> None:
        """Check that all that agreed has arrived, or that the books have its expiry."""
        self.check_order()
        excused = self.expired | self.suppressed
        skipped = {id(copy) for line in self.committed for _, copy in line.lost}
        for mutation in {c.mutation for log in self.ring.nodes.values() for c in log.copies}:
            if self.ring.is_met(mutation, skipped) and mutation.content not in excused:
                missing = mutation.content - self._arrived
                self.check(not missing, f"line 35: rows {missing} of {mutation} are lost")
        self.verify()
