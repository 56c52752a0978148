"""Whether the log of a node can be read and kept, and how long its disk lasts."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from headrace.plugins import CheckResult, Finding, HeadraceError, LogSpace
from headrace.plugins.amounts import count_text, size_text, span_text
from headrace.sources.cassandra.config import KEEP, CassandraConfig
from headrace.sources.cassandra.logs.directory import NodeLog
from headrace.sources.cassandra.logs.space import spaces

_PASSED, _WARNED, _FAILED = CheckResult.PASSED, CheckResult.WARNED, CheckResult.FAILED
FULL: Final = (0.7, 0.9)  # The shares used at which a check warns, and fails.
LASTS_SECONDS: Final = (86_400.0, 3_600.0)  # The remaining times below which it warns, and fails.
_ROOM: Final = "read faster, raise cdc_total_space, or let headrace dispose of what was read"


def log_findings(node: str, log: NodeLog) -> Iterator[Finding]:
    """Yield whether the log of *node* can be listed: a directory, or an agent's."""
    try:
        count = len(log.segments())
    except HeadraceError as error:
        place = f"{error.place}: " if error.place else ""
        yield Finding("log", _FAILED, f"{node}: {place}{error.message}", error.hint or _hint(error))
        return
    yield Finding("log", _PASSED, f"{node}: {count_text(count, 'segment')} can be read")


def _hint(error: HeadraceError) -> str:
    return f"see that this process may read it ({error.code})"


def disk_findings(
    node: str, given: Mapping[str, object], config: CassandraConfig, bytes_max: int | None
) -> Iterator[Finding]:
    """Yield findings about the `cdc_raw` of *node* on this machine, as in the job file."""
    path = Path(str(given["path"]))
    if not path.is_dir():
        return  # The check of the log reports that.
    yield _rights(node, path, config)
    for name in ("commitlog", "hold"):
        if name in given and (found := _together(node, path, Path(str(given[name])), name)):
            yield found
    for space in spaces({node: path}, bytes_max):
        yield lasting(node, space)


def _rights(node: str, path: Path, config: CassandraConfig) -> Finding:
    if config.disposal == KEEP:
        return Finding("rights", _PASSED, f"{node}: is read only (disposal: keep)")
    if os.access(path, os.W_OK | os.X_OK):
        return Finding("rights", _PASSED, f"{node}: segments can be disposed of")
    hint = "run as the user of Cassandra, or set disposal: keep"
    return Finding("rights", _FAILED, f"{node}: {path} cannot be written", hint)


def _together(node: str, path: Path, other: Path, name: str) -> Finding | None:
    """Return whether two directories are on one file system, which hard links require."""
    there = next((each for each in (other, *other.parents) if each.exists()), None)
    if there is None:
        return None
    if there.stat().st_dev == path.stat().st_dev:
        return Finding("file system", _PASSED, f"{node}: {name} is on that of cdc_raw")
    hint = f"put {other} and {path} on one file system: segments are linked from one to the other"
    return Finding("file system", _FAILED, f"{node}: {name} is on another one than cdc_raw", hint)


def lasting(node: str, space: LogSpace) -> Finding:
    """Return how full the disk is, and how long its space lasts."""
    used, room, lasts = space.used_bytes, space.room_bytes, space.full_in_seconds
    share = used / (used + room) if room is not None and used + room else 0.0
    said = f"{node}: cdc_raw has {size_text(used)}"
    if room is not None:
        said += f", and room for {size_text(room)} more"
    if lasts is not None:
        said += f", which lasts {span_text(lasts)} at the rate of the last hour"
    for result, full, seconds in (
        (_FAILED, FULL[1], LASTS_SECONDS[1]),
        (_WARNED, FULL[0], LASTS_SECONDS[0]),
    ):
        if share >= full or (lasts is not None and lasts < seconds):
            return Finding("space", result, said, _ROOM)
    return Finding("space", _PASSED, said)
