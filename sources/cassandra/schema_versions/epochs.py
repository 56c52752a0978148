"""Epochs: each whole schema under which entries were logged has one small number.

Equal schemas have one number, even in several logs. Objects that readers derive from a schema are
made once per epoch, and live as long as the epoch is held. For one thread. Must not do I/O.
"""

from collections import deque
from contextlib import suppress
from functools import cached_property
from typing import Final
from weakref import WeakValueDictionary

from headrace.sources.cassandra.mutation.atoms import AtomCutter
from headrace.sources.cassandra.mutation.changes import MutationDecoder
from headrace.sources.cassandra.schema.layout import Catalogue
from headrace.sources.cassandra.schema.system_schema import SCHEMA_TABLES
from headrace.sources.cassandra.schema.tables import Schema

RECENT_MAX: Final = 256  # Epochs held here: entries are encoded a little after they were read.
DERIVED_MAX: Final = 16  # The number of these that keep derived objects.


class Epoch:
    """A schema, including the tables of `system_schema`, and the objects derived from it.

    `given` is the schema without these tables. Code that derives an object keeps it in `derived`,
    under its own name.
    """

    def __init__(self, number: int, given: Schema) -> None:
        """Set the *number* of the schema."""
        self.number = number
        self.given = given
        self.schema = Schema(given.keyspaces, {**given.tables, **SCHEMA_TABLES})
        self.derived: dict[str, object] = {}

    @cached_property
    def catalogue(self) -> Catalogue:
        """The tables, by id."""
        return Catalogue(self.schema)

    @cached_property
    def atom_cutter(self) -> AtomCutter:
        """The parser of mutations of the tables."""
        return AtomCutter(self.catalogue)

    @cached_property
    def decoder(self) -> MutationDecoder:
        """The decoder of mutations of the tables."""
        return MutationDecoder(self.catalogue)

    def forget_derived(self) -> None:
        """Drop the derived objects; they can be derived again."""
        self.derived.clear()
        for name in ("catalogue", "atom_cutter", "decoder"):
            with suppress(AttributeError):  # It was not created.
                delattr(self, name)


class Epochs:
    """The epochs of a process that are still held, and the most recent ones."""

    def __init__(self) -> None:
        """Start without epochs."""
        self._by_content: WeakValueDictionary[object, Epoch] = WeakValueDictionary()
        self._by_number: WeakValueDictionary[int, Epoch] = WeakValueDictionary()
        self._recent: deque[Epoch] = deque(maxlen=RECENT_MAX)
        self._next = 0

    def of(self, schema: Schema) -> Epoch:
        """Return the epoch of *schema*, with a new number if no equal one is held."""
        keyspaces = ((k.name, frozenset(k.replication.items())) for k in schema.keyspaces.values())
        content = frozenset(schema.tables.values()), frozenset(keyspaces)
        epoch = self._by_content.get(content)
        if epoch is None:
            epoch = Epoch(self._next, schema)
            self._by_content[content] = self._by_number[self._next] = epoch
            self._next += 1
            self._recent.append(epoch)
            if len(self._recent) > DERIVED_MAX:
                self._recent[-1 - DERIVED_MAX].forget_derived()
        return epoch

    def __getitem__(self, number: int) -> Epoch:
        """Return the held epoch with this number."""
        return self._by_number[number]
