"""What is known about a row that a snapshot of its table showed.

A SELECT shows live values and their write times, but no deletions. So for an older value that the
snapshot did not show, it is unknown whether a deletion covers it. Everything written after the logs
were first followed is in the logs.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final
from uuid import UUID

import msgspec

from headrace.connector.rows.folding import NEVER, State, TableView, is_live, lives
from headrace.plugins import Document

MARK: Final = "seeded"
"""The member of a state that says what the snapshot had: see `seeded`."""
_PACK: Final = msgspec.msgpack.Encoder()
_UNPACK: Final = msgspec.msgpack.Decoder()
_UUID_EPOCH_US: Final = 12_219_292_800_000_000  # From 1582 to 1970.
_PREPENDED_US: Final = 2 * 1_262_304_000_000_000  # Ids of prepended elements count down from 2010.
_TICKS: Final = 10


def seeded(
    state: State | None, value: Document, view: TableView, begun_us: int, read_us: int
) -> State:
    """Return *state* with a row, or static columns, of the snapshot; safe to repeat.

    *value* contains them in the form of a change, as they were before *read_us*. The logs have
    everything written after *begun_us*. The mark contains the columns without a value, the keys of
    the cells of each collection and UDT, whether there was a row without any value, and which
    collections have the time of the row: it may be their own, or a substitute for one that CQL does
    not show.
    """
    live = None if state is None else state.get("live")
    fold = view.reading(value)
    alone = _UNPACK.decode(fold.fold(None))["columns"]
    made: State = _UNPACK.decode(fold.fold(None if state is None else _PACK.encode(state)))
    names = view.static if value["isStatic"] else view.regular
    if not value["isStatic"]:
        # CQL does not show whether and when the row itself was written: older is safe.
        expires = value["expires"]
        guess = [min(value["timestampMicros"], begun_us - 1), expires is not None, expires or 0]
        made["live"] = guess if live is None else max(live, guess)
    made[MARK] = [
        [name for name in names if name not in alone],
        {name: list(each["cells"]) for name, each in alone.items() if isinstance(each, Mapping)},
        not alone,
        {
            name: [at_us, read_us]
            for name, each in alone.items()
            if (at_us := _guessed(each, value)) is not None
        },
    ]
    return made


def is_doubtful(view: TableView, state: State, after: int, at_s: int, begun_us: int) -> bool:
    """Return whether an older deletion may cover part of the *state* shown at *at_s*.

    *after* is the newest deletion of the whole row. The snapshot had the content of the mark of
    *state*, or nothing of the row.
    """
    nulls, cells, has_row, guesses = state.get(MARK, (None, {}, False, {}))
    is_there = False
    for name, column in state["columns"].items():
        if name not in view.types:
            continue  # It was dropped, or the change precedes it.
        if isinstance(column, Mapping):
            known = frozenset(cells.get(name, ()))
            since = max(after, column["deleted"])
            shown = [path for path, c in column["cells"].items() if lives(c, since, at_s)]
            is_there = is_there or bool(shown)
            if any(p not in known and column["cells"][p][0] < begun_us for p in shown):
                return True
            at_us, read_us = guesses.get(name, (None, NEVER))
            if at_us is not None and _is_changed(column, known, at_us, since, begun_us):
                return True
            if _is_list(view, name) and not known.isdisjoint(shown):
                cells_now = column["cells"].items()
                others = {p: c[0] for p, c in cells_now if p not in known and c[0] > since}
                if not _are_new(others, begun_us) or any(at < read_us for at in others.values()):
                    return True
        elif lives(column, after, at_s):
            is_there = True
            if column[0] < begun_us and (nulls is None or name in nulls):
                return True
    is_alone = not is_there and is_live(state, after, at_s)
    return is_alone and not has_row and bool(state["live"][0] < begun_us)


def _guessed(column: Any, value: Document) -> int | None:  # noqa: ANN401 (of a state)
    """Return the common time of a collection's cells if it may be the row's time instead."""
    times = {c[0] for c in column["cells"].values()} if isinstance(column, Mapping) else set()
    row_us = value["timestampMicros"]
    return min(times) if times in ({row_us}, {row_us + 1}) else None  # A list adds one.


def _is_changed(
    column: Mapping[str, Any], known: Collection[bytes], at_us: int, since: int, begun_us: int
) -> bool:
    """Return whether an old change may lie between *at_us* and the times of the cells."""
    if at_us <= since < begun_us:
        return True
    cells = [cell for path, cell in column["cells"].items() if path in known]
    return any(at_us != cell[0] < begun_us for cell in cells)


def _is_list(view: TableView, name: str) -> bool:
    return str(view.types[name].get("cqlType")).startswith("list<")


def _are_new(paths: Collection[bytes], begun_us: int) -> bool:
    """Return whether these list elements were all added after *begun_us*, by their ids.

    The snapshot shows elements without ids, so it may have shown an older one.
    """
    for path in paths:
        at_us = UUID(_UNPACK.decode(path)).time // _TICKS - _UUID_EPOCH_US
        if _PREPENDED_US - begun_us <= at_us < begun_us:
            return False
    return True
