"""An overview as a JSON document."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from headrace.connector.control.health.overview import Line, Overview
from headrace.connector.control.running import JobLag
from headrace.connector.foundation.states import Observed


def document_of(overview: Overview) -> Mapping[str, Any]:  # Any: JSON.
    """Return the overview as a JSON object; unknown values are null."""
    return {
        "well": not overview.troubles,
        "troubles": [*overview.troubles],
        "missing": [{"missing": p.message, "statement": p.hint} for p in overview.missing],
        "sources": [_source_document(overview, line) for line in overview.lines],
        "logs": [*_log_documents(overview)],
        "errors": [
            dict(zip(overview.errors.columns, row, strict=True)) for row in overview.errors.rows
        ],
    }


def _source_document(overview: Overview, line: Line) -> Mapping[str, Any]:
    status, lag = line.status, overview.lags.get(line.status.job)
    is_known = isinstance(lag, JobLag)
    return {
        "name": status.name,
        "sink": line.sink,
        "job": status.job,
        "wanted": status.desired.value,
        "state": status.state.value,
        "reason": status.reason,
        "next": line.next,
        "worker": status.worker,
        "splits": len(status.splits),
        "running": sum(split.state is Observed.RUNNING for split in status.splits),
        "rate_bytes": line.rate,
        "lag_seconds": lag.age_seconds if isinstance(lag, JobLag) else None,
        "lag_bytes": lag.left_bytes if isinstance(lag, JobLag) else None,
        "catch_up_seconds": lag.catch_up_seconds if isinstance(lag, JobLag) else None,
        "lag_problem": None if is_known else lag,
    }


def _log_documents(overview: Overview) -> Iterator[Mapping[str, Any]]:
    for job, part, lag in overview.logs():
        size_bytes, files = lag.left.get(part, (None, None))
        space = lag.spaces.get(part)
        yield {
            "log": part,
            "job": job,
            "behind_bytes": size_bytes,
            "behind_files": files,
            "problem": lag.problems.get(part),
            "space": space
            and {**msgspec.structs.asdict(space), "full_in_seconds": space.full_in_seconds},
        }
