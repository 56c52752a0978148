"""Where a batch of several logs ends: what they hold up to there was logged together."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from headrace.sources.cassandra.errors import END_OFFSET
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, segment, write_segment
from headrace.sources.cassandra.forge.wrapping import PLAIN, Wrapping, compression
from headrace.sources.cassandra.keystore.keys import KeyOptions, Keys
from headrace.sources.cassandra.logs.batch_ends import STEP_BYTES, ahead
from headrace.sources.cassandra.logs.directory import LogDirectory
from headrace.sources.cassandra.state.cdc_state import CdcState, Marker
from helpers.logs.forged import insert

EMPTY = CdcState(0, 0, ("n1", "n2"), ("ks",), {}, {})
KEYS = Keys(KeyOptions())
ROWS = 6_000
ROW_BYTES = 1_000
PERIOD_MS = 10  # Between two rows.
YEAR_MS = 365 * 24 * 60 * 60 * 1_000
STEP_ROWS = STEP_BYTES // ROW_BYTES
SEGMENT_ROWS = 1_500
FIRSTS = (4_000, 0, 2_000)
LATEST = 4_000
SECTION_ROWS = 50
BATCH_ROWS = 9_000  # Of all logs together: 6,000 of them were written before LATEST.
Times = Callable[[int, int], int]


@pytest.mark.parametrize("live", [False, True])
def test_all_logs_come_closer_to_their_ends_by_the_same_part(tmp_path: Path, *, live: bool) -> None:
    """Where nothing says when they were logged, none is further than a step ahead of its part."""
    whole = {"n1": 6 * STEP_BYTES, "n2": 3 * STEP_BYTES + 5}
    for node, size in whole.items():
        index = f"{size}" if live else f"{size}\nCOMPLETED"
        write_segment(tmp_path / node, bytes(size + 7), segment_id=5, index=index)
    logs = {node: LogDirectory(tmp_path / node) for node in whole}
    state, parts = EMPTY, []
    while (following := ahead(logs, state, 2 * STEP_BYTES, KEYS)).markers != state.markers:
        state = following
        ends = {n: min(size, state.markers[n].offset) for n, size in whole.items()}
        parts.append({node: ends[node] / size for node, size in whole.items()})

    assert len(parts) == 5
    assert all(abs(part["n1"] - part["n2"]) <= 1 / 3 for part in parts)
    assert {"n1": 1, "n2": 1} == parts[-1]
    assert state.markers == ahead(logs, EMPTY, 1 << 62, KEYS).markers


def test_a_final_segment_whose_index_is_behind_is_taken_whole(tmp_path: Path) -> None:
    """A place is not chosen where a packed segment may have ended: its file says nothing of it."""
    write_segment(tmp_path / "n1", bytes(4 * STEP_BYTES), segment_id=5, index="1\nCOMPLETED")
    logs = {"n1": LogDirectory(tmp_path / "n1")}

    assert {"n1": Marker(5, END_OFFSET)} == ahead(logs, EMPTY, 1, KEYS).markers


class Logs:
    """Logs of the same rows; a node that was down has those from its first on.

    Row *n* of log *i* has the write time `times(i, n)`, in ms after the first node started; it was
    logged PERIOD_MS after the row before.
    """

    def __init__(
        self,
        folder: Path,
        firsts: Sequence[int],
        times: Times,
        wrapping: Wrapping = PLAIN,
        *,
        were_down: bool = True,
    ) -> None:
        """Write the logs, in sections and several segments.

        Unless nodes *were_down* before their first rows, they were only cut off.
        """
        self.logs: dict[str, LogDirectory] = {}
        self.firsts = firsts
        self._rows: dict[str, list[tuple[Marker, int]]] = {}
        for number, first in enumerate(firsts):
            node = f"n{number}"
            self._rows[node] = [(Marker(0, 0), first)]
            for place, begin in enumerate(range(first, ROWS, SEGMENT_ROWS)):
                of_segment = [
                    insert(b"%d" % row, bytes(ROW_BYTES), at_us=times(number, row) * 1_000)
                    for row in range(begin, min(begin + SEGMENT_ROWS, ROWS))
                ]
                starts = range(0, len(of_segment), SECTION_ROWS)
                sections = [of_segment[at : at + SECTION_ROWS] for at in starts]
                segment_id = SEGMENT_ID + place + (first * PERIOD_MS if were_down else 0)
                made = segment(sections, segment_id=segment_id, wrapping=wrapping)
                index = f"{made.durable}\nCOMPLETED"
                path = write_segment(
                    folder / node, made.content, segment_id=segment_id, index=index
                )
                ended_s = (SEGMENT_ID + (begin + len(of_segment)) * PERIOD_MS) / 1_000
                os.utime(path, (ended_s, ended_s))
                self._rows[node] += [
                    (Marker(segment_id, end), begin + row)
                    for row, end in enumerate(made.ends, start=1)
                ]
            self.logs[node] = LogDirectory(folder / node)

    def batches(self, size_bytes: int) -> Iterator[Sequence[int]]:
        """Yield up to which row each log is read, batch by batch."""
        state = CdcState(0, 0, tuple(self.logs), ("ks",), {}, {})
        while (following := ahead(self.logs, state, size_bytes, KEYS)).markers != state.markers:
            state = following
            yield [self._row(node, state.markers[node]) for node in self.logs]

    def _row(self, node: str, marker: Marker) -> int:
        return max(row for place, row in self._rows[node] if place <= marker)


def written(_log: int, row: int) -> int:
    """Return when a row was written if nothing else is said: then it was logged."""
    return row * PERIOD_MS


def some_later(_log: int, row: int) -> int:
    """Return a write time that a client has given to each fifth row."""
    return row * PERIOD_MS + (0 if row % 5 else 1_000 * PERIOD_MS)


def once_later(log: int, row: int) -> int:
    """Return a write time that a client has given to many rows, of one log."""
    return row * PERIOD_MS + (YEAR_MS if log == 1 and 900 <= row < 1_900 else 0)


def hinted(_log: int, row: int) -> int:
    """Return a write time of any row while hints came."""
    if row < LATEST:
        return row * PERIOD_MS
    return LATEST * PERIOD_MS + row * 48_271_003 % ((ROWS - LATEST) * PERIOD_MS)


def any_time(_log: int, row: int) -> int:
    """Return a time of the last year that says nothing."""
    return -(row * 48_271_000_003 % YEAR_MS)


def any_time_at_last(log: int, row: int) -> int:
    """Return the write time of a row; it says nothing from the row LATEST on."""
    return written(log, row) if row < LATEST else any_time(log, row)


@pytest.mark.parametrize(
    ("times", "slack", "wrapping"),
    [
        (written, 2 * STEP_ROWS, PLAIN),
        (written, 2 * STEP_ROWS, compression("LZ4Compressor")),
        (some_later, 2 * STEP_ROWS, PLAIN),
        (once_later, SEGMENT_ROWS + STEP_ROWS, PLAIN),
        (hinted, STEP_ROWS + SECTION_ROWS, PLAIN),
        (any_time, SEGMENT_ROWS + STEP_ROWS, PLAIN),
    ],
    ids=["plain", "packed", "some-later", "once-later", "hinted", "any-time"],
)
def test_a_log_that_begins_later_waits(
    times: Times, slack: int, wrapping: Wrapping, tmp_path: Path
) -> None:
    """Of a node that was down nothing is read before the others come to its first row.

    Where write times do not say that, the times of segments do.
    """
    logs = Logs(tmp_path, FIRSTS, times, wrapping)
    found = list(logs.batches(3 * STEP_BYTES))

    assert [ROWS] * 3 == found[-1]
    assert len(found) > 8
    for each in found:
        behind = min(each)
        assert all(
            at <= max(first, behind + slack) for at, first in zip(each, logs.firsts, strict=True)
        )


def test_a_log_whose_files_have_another_time(tmp_path: Path) -> None:
    """Copied later, or older than the node: write times say when its entries were logged."""
    logs = Logs(tmp_path, FIRSTS, written)
    for log in logs.logs.values():
        for number, path in enumerate(sorted(log.path.glob("*.log"))):
            os.utime(path, (0, 0) if number % 2 else None)

    for each in logs.batches(3 * STEP_BYTES):
        behind = min(each) + 2 * STEP_ROWS
        assert all(at <= max(first, behind) for at, first in zip(each, logs.firsts, strict=True))


def test_a_log_that_waited_continues_beside_the_others(tmp_path: Path) -> None:
    """Where times stop to show which log is ahead, it does not catch up by its share."""
    logs = Logs(tmp_path, FIRSTS, any_time_at_last)
    for log in logs.logs.values():
        for path in log.path.glob("*.log"):
            os.utime(path, (0, 0))
    found = next(iter(logs.batches(BATCH_ROWS * ROW_BYTES)))

    assert min(found) > LATEST
    assert max(found) - min(found) <= 2 * STEP_ROWS


def test_a_log_with_a_few_older_times_waits(tmp_path: Path) -> None:
    """A node that was cut off is not read before the others, though it has some hints."""

    def some_hinted(_log: int, row: int) -> int:
        return row * PERIOD_MS if row % 5 else (row - FIRSTS[0]) * PERIOD_MS

    logs = Logs(tmp_path, FIRSTS, some_hinted, were_down=False)

    for each in logs.batches(3 * STEP_BYTES):
        behind = min(each) + 2 * STEP_ROWS
        assert all(at <= max(first, behind) for at, first in zip(each, logs.firsts, strict=True))
