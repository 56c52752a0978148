"""The new states of a commit, as plain rows of a key-value store, until they are applied.

They are written before the commit is decided, and removed after its states were written. So any
process can write the states, even if the deciding process died.
"""

from collections.abc import Mapping
from typing import Final

from headrace.connector.history.store.contract import Name
from headrace.connector.history.store.rows import State
from headrace.connector.stores.keyed.rows import pack, plain, unpack
from headrace.plugins.stores.key_values import Key, KeyValues, Partition

ROW_BYTES: Final = 256 * 1024  # Accepted even by a node with small segments.
_Row = list[tuple[bytes, bytes, bytes, int]]


class Journal:
    """The states of the commits of one history. Its calls may raise StoreUnavailableError."""

    def __init__(self, values: KeyValues) -> None:
        """Store in *values*."""
        self._values = values

    def rows(self, history: str, attempt: int, states: Mapping[Name, State]) -> Mapping[Key, bytes]:
        """Return the plain rows for *states*."""
        parts: list[_Row] = [[]]
        size = 0
        for (key, row), state in states.items():
            parts[-1].append((key, row, *state))
            size += len(key) + len(row) + len(state.state)
            if size >= ROW_BYTES:
                parts.append([])
                size = 0
        of = _place(history, attempt)
        return {Key(of, f"{n:06}"): pack(each) for n, each in enumerate(parts) if each}

    def read(self, history: str, attempt: int) -> dict[Name, State]:
        """Return the states of an attempt; empty if they were written and removed here."""
        found = self._values.scan([_place(history, attempt)])
        parts = [unpack(_Row, key, entry, self._values) for key, entry in found.items()]
        return {(key, row): State(state, at) for each in parts for key, row, state, at in each}

    def drop(self, history: str, attempt: int) -> None:
        """Remove the rows of an attempt."""
        of = _place(history, attempt)
        self._values.put({Key(of, name): None for name in self._values.names(of)})


def _place(history: str, attempt: int) -> Partition:
    return plain("history states", history, str(attempt))
