"""Writes a comparison as files: JSON, Parquet, and a self-contained page with charts."""

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

from headrace.connector.replay.columns import own_columns
from headrace.connector.replay.comparing.differences import Difference, Found, FoundRow
from headrace.connector.replay.comparing.reconciling import Outcome
from headrace.plugins import Origin

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
_SIDES: Final = ("changes in logs", "changes in topic", "rows in tables", "rows of topic")
_SCHEMA: Final = pa.schema(
    [
        ("difference", pa.string()),
        ("between", pa.string()),
        ("table", pa.string()),
        ("key", pa.string()),
        ("row", pa.string()),
        ("columns", pa.list_(pa.string())),
        ("operation", pa.string()),
        ("write_time", pa.timestamp("us", tz="UTC")),
        ("mutation", pa.string()),
        ("index", pa.int32()),
    ]
)


def write_report(
    folder: Path, outcome: Outcome, origin: Origin, *, plain_keys: bool, title: str
) -> dict[str, Any]:
    """Write the report into *folder* and return its JSON. Keys are hashed unless *plain_keys*.

    Changes that a topic has also have the fields of *origin*.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = [_of_change(found, origin, plain=plain_keys) for found in outcome.found]
    rows += [
        _of_row(found, origin, plain=plain_keys) for found in (*outcome.rows, *outcome.expired)
    ]
    summary = {
        "title": title,
        "in_logs": dict(outcome.in_logs),
        "in_topic": dict(outcome.in_topic),
        "rows_in_tables": dict(outcome.rows_in_table),
        "rows_from_topic": dict(outcome.rows_in_topic),
        "rows_behind": outcome.rows_behind,
        "settled": outcome.settled,
        "buckets": {"compared": outcome.buckets_compared, "different": outcome.buckets_different},
        "unreadable": outcome.unreadable,
        "repeated": outcome.repeated,
        "differences": outcome.counts(),
        "keys": "plain" if plain_keys else "hashed",
        "notes": outcome.notes,
        "samples": rows[:SAMPLES_MAX],
    }
    (folder / "report.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    schema = pa.schema([*_SCHEMA, *own_columns(origin)])
    columns = [
        pa.array([row[each.name] for row in rows], pa.int64()).cast(each.type)
        if each.name == "write_time"
        else pa.array([row[each.name] for row in rows], each.type)
        for each in schema
    ]
    table = pa.Table.from_arrays(columns, schema=schema)
    pq.write_table(table, folder / "differences.parquet")
    (folder / "report.html").write_text(_page(outcome, title), encoding="utf-8")
    return summary


def _of_change(found: Found, origin: Origin, *, plain: bool) -> dict[str, Any]:
    row = found.row
    return dict.fromkeys([*_SCHEMA.names, *origin.fields]) | {
        "difference": found.difference.value,
        "between": "logs and topic",
        "table": row.table,
        "key": _shown(row.key, plain=plain),
        "operation": row.operation,
        "write_time": row.time_us,
        "mutation": row.name[:-4].hex() if row.name else None,
        "index": int.from_bytes(row.name[-4:], "big") if row.name else None,
        **dict(zip(origin.fields, row.origin, strict=False)),
    }


def _of_row(found: FoundRow, origin: Origin, *, plain: bool) -> dict[str, Any]:
    row = found.row
    return dict.fromkeys([*_SCHEMA.names, *origin.fields]) | {
        "difference": found.difference.value,
        "between": "topic and table",
        "table": row.table,
        "key": _shown(row.key, plain=plain),
        "row": row.name.hex(),
        "columns": list(found.columns),
        "write_time": row.newest_us,
    }


def _shown(key: bytes, *, plain: bool) -> str:
    return key.hex() if plain else sha256(key).hexdigest()[:16]


def _page(outcome: Outcome, title: str) -> str:
    counts = outcome.counts()
    times = [each.row.time_us for each in outcome.found]
    times += [each.row.newest_us for each in outcome.rows]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        f"<title>{html.escape(title)}</title>",
        _STYLE,
        f"<h1>{html.escape(title)}</h1>",
        f"<p>{_conclusion(outcome)}</p>",
        _notes(outcome),
        _tables(outcome),
        _bars({d.value: (counts[d.value], _COLORS[d]) for d in Difference}),
        _over_time(times),
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _conclusion(outcome: Outcome) -> str:
    words = "There are differences." if outcome.differs else "No differences."
    return (
        f"{words} {outcome.buckets_different} of {outcome.buckets_compared} buckets differ; "
        f"{outcome.rows_behind} rows are not as the topic says; "
        f"{outcome.unreadable} messages could not be read, {outcome.repeated} repeat another."
    )


def _notes(outcome: Outcome) -> str:
    return "".join(f"<p>{html.escape(note)}</p>" for note in outcome.notes)


def _tables(outcome: Outcome) -> str:
    """Return the numbers of each side, by table, in figures and as bars."""
    sides = (outcome.in_logs, outcome.in_topic, outcome.rows_in_table, outcome.rows_in_topic)
    names = sorted({name for side in sides for name in side})
    heads = "".join(f"<th>{head}" for head in ("table", *_SIDES))
    rows = [
        f"<tr><td>{html.escape(name)}" + "".join(f"<td>{side[name]}" for side in sides)
        for name in names
    ]
    counts = {head: (side.total(), "#555") for head, side in zip(_SIDES, sides, strict=True)}
    return f"<table><tr>{heads}{''.join(rows)}</table>\n{_bars(counts)}"


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


def _over_time(times: Sequence[int]) -> str:
    """Return the write times of the differences, as bars."""
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
    return f"<p>Write times of the differences:</p>{picture}"


def _time(time_us: int) -> str:
    """Return a time as a date, or in µs where no date can express it."""
    try:
        time = dt.datetime.fromtimestamp(time_us // 1_000_000, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_us} µs"
    return f"{time:%Y-%m-%d %H:%M:%S}"
