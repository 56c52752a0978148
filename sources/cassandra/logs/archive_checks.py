"""Checks kept logs by their names: gaps, duplicates, older segments."""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from headrace.plugins import CheckResult, Finding
from headrace.sources.cassandra.commitlog.manifest import RUN_GAP_MAX, file_of
from headrace.sources.cassandra.logs.directory import NodeLog, SegmentInfo

FINDINGS_MAX: Final = 100


def flaws(
    logs: Mapping[str, NodeLog], *, from_ms: int | None, to_ms: int | None
) -> Sequence[Finding]:
    """Return the missing, duplicate and older segments, failures first; at most FINDINGS_MAX.

    The id of a segment is about the time when it was created, so a log does not contain changes
    older than its first segment. Skipped ids usually belong to segments without changes of CDC
    tables.
    """
    listed = {node: log.segments() for node, log in logs.items()}
    found = [*_doubles(listed), *_missing(listed), *_older(listed, from_ms, to_ms)]
    return sorted(found, key=lambda finding: finding.result is not CheckResult.FAILED)[
        :FINDINGS_MAX
    ]


def _missing(listed: Mapping[str, Sequence[SegmentInfo]]) -> Iterator[Finding]:
    for node, segments in listed.items():
        if not segments:
            yield Finding("segments", CheckResult.FAILED, f"the log of {node} is empty")
        for info in segments:
            if info.missing:
                lost = f"segment {file_of(info.segment_id)} of {node}"
                message = f"{lost} is missing: only its index is there"
                hint = "restore it; what other nodes logged counts as before"
                yield Finding("segments", CheckResult.FAILED, message, hint)
        for before, after in pairwise(info.segment_id for info in segments):
            if 1 < after - before <= RUN_GAP_MAX:
                message = f"{node} has no segments between {before} and {after}"
                hint = "mostly they held no change of a CDC table"
                yield Finding("segments", CheckResult.UNKNOWN, message, hint)


def _doubles(listed: Mapping[str, Sequence[SegmentInfo]]) -> Iterator[Finding]:
    owners: dict[int, str] = {}
    for node, segments in listed.items():
        for info in segments:
            file_id = file_of(info.segment_id)
            owner = owners.setdefault(file_id, node)
            if owner != node:
                message = f"segment {file_id} is in the logs of {owner} and {node}"
                hint = "one log under two names would count twice: give each node its own"
                yield Finding("overlap", CheckResult.FAILED, message, hint)


def _older(
    listed: Mapping[str, Sequence[SegmentInfo]], from_ms: int | None, to_ms: int | None
) -> Iterator[Finding]:
    for node, segments in listed.items():
        oldest = file_of(segments[0].segment_id) if segments else 0
        since = dt.datetime.fromtimestamp(oldest / 1000, dt.UTC).isoformat()
        if to_ms is not None and to_ms <= oldest:
            message = f"the log of {node} begins at {since}, behind all that is asked for"
            hint = "give an older archive, or a later time"
            yield Finding("retention", CheckResult.FAILED, message, hint)
        elif from_ms is not None and from_ms < oldest:
            message = f"the log of {node} begins at {since}, and not where it is asked for"
            hint = "what was written before is missing; `headrace backfill` reads the table"
            yield Finding("retention", CheckResult.UNKNOWN, message, hint)
