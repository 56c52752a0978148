"""Writes a comparison as files: JSON, Parquet, and a self-contained page with charts."""

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
from headrace.connector.replay.pages.charts import BARS, bars, head, over_time
from headrace.plugins import Origin

SAMPLES_MAX: Final = 100
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
        head(title),
        f"<p>{_conclusion(outcome)}</p>",
        _notes(outcome),
        _tables(outcome),
        bars({d.value: (counts[d.value], _COLORS[d]) for d in Difference}),
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
    return f"<table><tr>{heads}{''.join(rows)}</table>\n{bars(counts)}"


def _over_time(times: Sequence[int]) -> str:
    """Return the write times of the differences, as bars."""
    if not times:
        return ""
    low, high = min(times), max(times)
    span = max(1, high - low + 1)
    counts = Counter((time - low) * BARS // span for time in times)
    values = [counts[place] for place in range(BARS)]
    return over_time("Differences by write time", values, low, high)
