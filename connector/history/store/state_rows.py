"""Makes the values of new states for SQLite: those of many rows in one tuple. Hot."""

from typing import Any

_COLUMNS = 5
_EMPTY = bytearray()


def new_rows(
    hashes: dict[tuple[bytes, bytes], int],
    known: dict[tuple[bytes, bytes], int],
    states: dict[tuple[bytes, bytes], bytes],
    expiries: dict[tuple[bytes, bytes], int],
    many: int,
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]], bool]:  # Any: what SQLite takes.
    """Return the values for the states of rows that are not *known*, in the order of *hashes*.

    Each has its hash, the sizes of the key and the name of its row, these and the state in one
    piece, and its expiry. The first list has tuples with the values of *many* rows, the second has
    one tuple for each remaining row; then follows whether a state of a partition is included.
    """
    groups = []
    values: list[Any] = []
    has_partition = False
    for name, of in hashes.items():
        state = states.get(name)
        if state is None or name in known:
            continue
        key, row = name
        if len(row) == 0:
            has_partition = True
        values.append(of)
        values.append(len(key))
        values.append(len(row))
        values.append(_EMPTY.join((key, row, state)))  # Avoids an adapter lookup.
        values.append(expiries.get(name, 0))
        if len(values) == _COLUMNS * many:
            groups.append(tuple(values))
            values = []
    left = [tuple(values[at : at + _COLUMNS]) for at in range(0, len(values), _COLUMNS)]
    return groups, left, has_partition
