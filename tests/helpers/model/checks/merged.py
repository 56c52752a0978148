"""Checks the first states of a new plan by the last states of the plan before (line 33)."""

from collections import Counter
from collections.abc import Collection, Mapping
from itertools import chain

from headrace.connector.stores import Plan
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.state.cdc_state import CdcState
from helpers.model.checks.lines import Course, Line, line_of, versions_in
from helpers.model.checks.records import RecordChecks
from helpers.model.logs import TABLE
from helpers.model.ring import Ring, Version, place_of

_PASSED_ON = "mutations.passed_on"
_PENDING = "mutations.pending"


def merged_line(
    course: Course, state: CdcState | None, before: Collection[Course], ring: Ring
) -> Line:
    """Return the first line of a split: *state* was made of the states *before*."""
    ended = [each.committed for each in before if each.part.meets(course.part)]
    version = max((each.version for each in ended), key=ring.age_of)
    line = Line(course, version) if state is None else line_of(course, version, state)
    line.origins = ended
    line.said_before = frozenset(chain.from_iterable(each.rows() for each in ended))
    line.lost = [pair for each in ended for pair in each.lost]
    line.superseded = _superseded(line)
    return line


def _superseded(line: Line) -> Mapping[Version, tuple[int, int]]:
    """Return since when rings are not current: those that one of the splits still used.

    Of what was seen of the others the earliest time counts.
    """
    found: dict[Version, tuple[int, int]] = {}
    for each in line.origins:
        shift = line.split_time_ms - each.split_time_ms
        for version, span in each.superseded.items():
            shifted = span[0] + shift, span[1] + shift
            known = found.get(version, shifted)
            found[version] = max(known[0], shifted[0]), max(known[1], shifted[1])
    found |= {each.version: (line.split_time_ms, line.split_time_ms) for each in line.origins}
    del found[line.version]
    return found


def check_merged(line: Line, state: CdcState | None, checks: RecordChecks) -> None:
    """For each place one state counts as a whole: fields of several states are never mixed."""
    check, parts = checks.check, line.origins
    split_time_ms = max(each.split_time_ms for each in parts)
    check(
        line.split_time_ms == split_time_ms,
        f"line 33: τ is {line.split_time_ms} after a merge, not {split_time_ms}",
    )
    for node, log in checks.ring.nodes.items():
        for copy in log.copies:
            key = copy.mutation.key
            origin = line.origin(key) if line.course.part.has(place_of(key)) else None
            if origin is not None and not copy.damaged:
                same = line.covers(node, copy) == origin.covers(node, copy)
                check(same, f"line 33: {copy} of {node} is not read as far as before")
    _check_records(line, checks)
    waiting = sum(record.kind == constants.PENDING for record in line.records.values())
    opening = {"mutations.opening": waiting, _PENDING: waiting}
    if state is None:
        return
    check(dict(line.books) == opening, f"line 33: books open with {line.books}, not {opening}")
    in_force, others = versions_in(state)
    known = {each.version for each in parts if each.books}
    check(in_force >= known, f"line 33: {known - in_force} was in force for a part")
    sure = {v for each in parts for v in each.sure_versions() if each.books}
    check(in_force | others >= sure, f"line 33: {sure - in_force - others} still counted")
    names = {gap.name for each in parts for gap in each.gaps}
    check({gap.name for gap in line.gaps} >= names, f"line 33: gaps are missing of {names}")


def _check_records(line: Line, checks: RecordChecks) -> None:
    """Check that the records are those of the parts, with the same ages."""
    left = dict(line.records)
    for origin in line.origins:
        for name, before in origin.records.items():
            mutation = checks.mutation(name)
            if not line.course.part.has(place_of(mutation.key)):
                continue
            now = left.pop(name, None)
            same = now is not None and (
                (now.kind, now.seen, now.places) == (before.kind, before.seen, before.places)
            )
            checks.check(same, f"line 33: {mutation} was {before} and is {now}")
            if now is not None:
                ages = now.ages(line.split_time_ms), before.ages(origin.split_time_ms)
                checks.check(ages[0] == ages[1], f"line 33: {mutation}: ages {ages} differ")
    checks.check(not left, f"line 33: {[*map(checks.mutation, left)]} came from nowhere")


def check_closed(plan: Plan, committed: Collection[Line], checks: RecordChecks) -> None:
    """I3: the books of a plan that ended are the sum of what its splits committed."""
    total: Counter[str] = Counter()
    for line in committed:
        total.update(line.books)
    if _PENDING in total:
        total[_PASSED_ON] = total.pop(_PENDING)
    checks.check(
        dict(plan.books) == dict(total), f"I3: a plan ended with {plan.books}, not {total}"
    )
    said = sum(len(m.rows) for line in committed for each in line.back() for m in each.said)
    cut = plan.counters[TABLE].cut if TABLE in plan.counters else 0
    checks.check(cut == said, f"I3: a plan ended with {cut} changes, {said} were said")
