"""The page of a run: its rate, its remaining changes over time, and its failures."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from headrace.connector.replay.pages.charts import BARS, bars, head, over_time, time_text
from headrace.connector.replay.runs import Run, ShardRow, ShardState

_SHOWN_MAX: Final = 100  # Problems and notes, each.
_COLORS: Final = {
    ShardState.PASS: "#27ae60",
    ShardState.STARTED: "#2980b9",
    ShardState.NOT_STARTED: "#95a5a6",
    ShardState.FAIL: "#c0392b",
    ShardState.DIFF: "#8e44ad",
}
_MS, _US = 1_000, 1_000


@dataclass(frozen=True, slots=True)
class Course:
    """The deliveries of shards over time, by their last attempts: equal parts from start to end.

    `rates` are changes per second in each part, `left` the changes not delivered at its end.
    """

    from_ms: int
    to_ms: int
    rates: Sequence[float]
    left: Sequence[float]


def course_of(run: Run, rows: Sequence[ShardRow]) -> Course | None:
    """Return the course of a run; None if no shard has ended.

    A shard counts as delivered at an even rate. For shards that did not pass, the plan's estimate
    counts.
    """
    done = [row for row in rows if row.state is ShardState.PASS and row.report.get("ended_ms")]
    if not done:
        return None
    spans = [
        (int(r["ended_ms"]) - max(1, round(r["wall_seconds"] * _MS)), int(r["ended_ms"]), r)
        for r in (row.report for row in done)
    ]
    from_ms, to_ms = min(span[0] for span in spans), max(span[1] for span in spans)
    step_ms = (to_ms - from_ms) / BARS
    counts = [0.0] * BARS
    for begun_ms, ended_ms, report in spans:
        for part in range(BARS):
            low, high = from_ms + part * step_ms, from_ms + (part + 1) * step_ms
            shared_ms = max(0.0, min(high, ended_ms) - max(low, begun_ms))
            counts[part] += report["delivered"] * shared_ms / (ended_ms - begun_ms)
    missing = float(run.facts.get("rows", 0)) * (len(rows) - len(done)) / len(rows)
    left = [missing + sum(counts[part + 1 :]) for part in range(BARS)]
    return Course(from_ms, to_ms, [count * _MS / step_ms for count in counts], left)


def run_page(run: Run, rows: Sequence[ShardRow]) -> str:
    """Return the page."""
    states = Counter(row.state for row in rows)
    delivered = sum(row.report.get("delivered", 0) for row in rows)
    cpu = sum(row.report.get("cpu_seconds", 0) for row in rows)
    parts = [
        head(f"run {run.run}"),
        f"<p>{delivered:,} changes into {escape(run.target.describe())}; CPU {cpu:.2f} s.</p>",
        bars({state.value: (states[state], color) for state, color in _COLORS.items()}),
    ]
    course = course_of(run, rows)
    if course is not None:
        ends = course.from_ms * _US, course.to_ms * _US
        parts += [
            f"<p>From {time_text(ends[0])} to {time_text(ends[1])} UTC.</p>",
            over_time("Rate, in changes per second", course.rates, *ends),
            over_time("Lag, in changes that were left", course.left, *ends),
        ]
    parts += _listed("Problems", [(row, row.report.get("problem", "")) for row in rows])
    parts += _listed("Notes", [(row, note) for row in rows for note in row.report.get("notes", ())])
    return "\n".join(parts) + "\n"


def _listed(title: str, texts: Sequence[tuple[ShardRow, str]]) -> Sequence[str]:
    found = [(row, text) for row, text in texts if text]
    if not found:
        return ()
    lines = [
        f"<tr><td>shard {row.shard.number}<td>{escape(text)}" for row, text in found[:_SHOWN_MAX]
    ]
    more = f"<p>And {len(found) - _SHOWN_MAX} more.</p>" if len(found) > _SHOWN_MAX else ""
    return (f"<h2>{title}</h2><table>{''.join(lines)}</table>{more}",)
