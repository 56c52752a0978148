"""A comparison as files: JSON, Parquet, and a page with pictures that needs nothing else."""

import datetime as dt
import html
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.connector.replay.reconciling import Difference, Found, Outcome

_STYLE: Final = (
    "<style>body{font:15px sans-serif;max-width:720px;margin:2em auto}"
    "td,th{padding:2px 12px;text-align:left}svg text{font:12px sans-serif}</style>"
)
SAMPLES_MAX: Final = 100
_TIME_BARS: Final = 40
_WIDTH: Final = 640
_COLORS: Final[Mapping[Difference, str]] = {
    Difference.MISSING: "#c0392b",
    Difference.STALE: "#d35400",
    Difference.EXPIRED: "#95a5a6",
    Difference.EXTRA: "#2980b9",
    Difference.UNDER_REPLICATED: "#8e44ad",
}
_SCHEMA: Final = pa.schema(
    [
        ("difference", pa.string()),
        ("table", pa.string()),
        ("key", pa.string()),
        ("operation", pa.string()),
        ("write_time", pa.timestamp("us", tz="UTC")),
        ("mutation", pa.string()),
        ("index", pa.int32()),
        ("copies", pa.int32()),
    ]
)


def write_report(folder: Path, outcome: Outcome, *, plain_keys: bool, title: str) -> dict[str, Any]:
    """Write the report into *folder*, keys hashed unless *plain_keys*; return what JSON has."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [_row(found, plain=plain_keys) for found in outcome.found]
    summary = {
        "title": title,
        "in_logs": dict(outcome.in_logs),
        "in_topic": dict(outcome.in_topic),
        "buckets": {"compared": outcome.buckets_compared, "different": outcome.buckets_different},
        "unreadable": outcome.unreadable,
        "differences": outcome.counts(),
        "keys": "plain" if plain_keys else "hashed",
        "samples": [{**row, "write_time": row["write_time"]} for row in rows[:SAMPLES_MAX]],
    }
    (folder / "report.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    columns = [
        pa.array([row[each.name] for row in rows], pa.int64()).cast(each.type)
        if each.name == "write_time"
        else pa.array([row[each.name] for row in rows], each.type)
        for each in _SCHEMA
    ]
    table = pa.Table.from_arrays(columns, schema=_SCHEMA)
    pq.write_table(table, folder / "differences.parquet")
    (folder / "report.html").write_text(_page(outcome, title), encoding="utf-8")
    return summary


def _row(found: Found, *, plain: bool) -> dict[str, Any]:
    row = found.row
    return {
        "difference": found.difference.value,
        "table": row.table,
        "key": row.key.hex() if plain else sha256(row.key).hexdigest()[:16],
        "operation": row.operation,
        "write_time": row.time_us,
        "mutation": row.name[:-4].hex(),
        "index": int.from_bytes(row.name[-4:], "big"),
        "copies": row.copies,
    }


def _page(outcome: Outcome, title: str) -> str:
    counts = outcome.counts()
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        f"<title>{html.escape(title)}</title>",
        _STYLE,
        f"<h1>{html.escape(title)}</h1>",
        f"<p>{_verdict(outcome)}</p>",
        _tables(outcome),
        _bars({d.value: (counts[d.value], _COLORS[d]) for d in Difference}),
        _over_time(outcome.found),
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _verdict(outcome: Outcome) -> str:
    words = "There are differences." if outcome.found else "No differences."
    return (
        f"{words} {outcome.buckets_different} of {outcome.buckets_compared} buckets differ; "
        f"{outcome.unreadable} messages could not be read."
    )


def _tables(outcome: Outcome) -> str:
    names = sorted(outcome.in_logs.keys() | outcome.in_topic.keys())
    rows = [
        f"<tr><td>{html.escape(n)}<td>{outcome.in_logs[n]}<td>{outcome.in_topic[n]}" for n in names
    ]
    return "<table><tr><th>table<th>in the logs<th>in the topic" + "".join(rows) + "</table>"


def _bars(counts: Mapping[str, tuple[int, str]]) -> str:
    most = max(count for count, _ in counts.values()) or 1
    lines = []
    for place, (name, (count, color)) in enumerate(counts.items()):
        y = 24 * place
        width = round((_WIDTH - 220) * count / most)
        lines.append(
            f'<text x="0" y="{y + 15}">{name}</text>'
            f'<rect x="130" y="{y + 2}" width="{width}" height="18" fill="{color}"/>'
            f'<text x="{138 + width}" y="{y + 15}">{count}</text>'
        )
    return f'<svg width="{_WIDTH}" height="{24 * len(counts)}">{"".join(lines)}</svg>'


def _over_time(found: Sequence[Found]) -> str:
    """Return when what differs was written, as bars."""
    times = [each.row.time_us for each in found]
    if not times:
        return ""
    low, high = min(times), max(times)
    span = max(1, high - low + 1)
    bars = Counter((time - low) * _TIME_BARS // span for time in times)
    most = max(bars.values())
    width = _WIDTH / _TIME_BARS
    lines = [
        f'<rect x="{width * bar:.1f}" y="{100 - 90 * count / most:.1f}" width="{width - 1:.1f}" '
        f'height="{90 * count / most:.1f}" fill="#555"/>'
        for bar, count in sorted(bars.items())
    ]
    ends = f'<text x="0" y="116">{_time(low)}</text><text x="460" y="116">{_time(high)}</text>'
    picture = f'<svg width="{_WIDTH}" height="120">{"".join(lines)}{ends}</svg>'
    return f"<p>When what differs was written:</p>{picture}"


def _time(time_us: int) -> str:
    """Return a time in words, as far as there are words for it."""
    try:
        time = dt.datetime.fromtimestamp(time_us // 1_000_000, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_us} µs"
    return f"{time:%Y-%m-%d %H:%M:%S}"
