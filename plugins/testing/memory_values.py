"""A key-value backend in memory, for tests: the smallest that passes `KeyValueSuite`."""

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import msgspec

from headrace.plugins.config.options import option
from headrace.plugins.stores.contract import StoreUnavailableError
from headrace.plugins.stores.key_values import Change, Entry, Key, KeyValues, Partition


class Memory(msgspec.Struct):
    """The rows that several connections share. While it is `away` it does not answer."""

    rows: dict[Key, Entry] = msgspec.field(default_factory=dict)
    lock: threading.Lock = msgspec.field(default_factory=threading.Lock)
    away: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConfig:
    """The option: the name of a memory; connections of a process with one name share it."""

    name: str = option("The name of the memory.")


class MemoryValues(KeyValues):
    """Rows in memory, as described for `KeyValues`."""

    config_class = MemoryConfig
    noun = "memory"
    _MEMORIES: dict[str, Memory] = {}  # noqa: RUF012 (all connections of a process share it)

    def __init__(self, memory: Memory, name: str = "") -> None:
        """Share *memory*."""
        self._memory = memory
        self._name = name

    @classmethod
    def open(cls, config: MemoryConfig, *, create: bool = True) -> Self:
        """Implement `KeyValues.open`."""
        del create
        return cls(cls._MEMORIES.setdefault(config.name, Memory()), config.name)

    @property
    def place(self) -> str:
        """The place, as described for `KeyValues.place`."""
        return f"memory {self._name}"

    def read(self, keys: Collection[Key]) -> Mapping[Key, Entry]:
        """Implement `KeyValues.read`."""
        rows = self._rows()
        with self._memory.lock:
            return {key: rows[key] for key in keys if key in rows}

    def scan(self, partitions: Collection[Partition]) -> Mapping[Key, Entry]:
        """Implement `KeyValues.scan`."""
        rows, wanted = self._rows(), set(partitions)
        with self._memory.lock:
            found = [key for key in rows if key.partition in wanted]
            return {key: rows[key] for key in sorted(found, key=lambda key: key.name)}

    def names(self, partition: Partition) -> Sequence[str]:
        """Implement `KeyValues.names`."""
        return [key.name for key in self.scan([partition])]

    def put(self, rows: Mapping[Key, bytes | None]) -> None:
        """Implement `KeyValues.put`."""
        self._rows()
        with self._memory.lock:
            for key, value in rows.items():
                self._put(key, 0, value)

    def change(
        self, changes: Sequence[Change], before: Mapping[Key, bytes] | None = None
    ) -> Sequence[bool | None]:
        """Implement `KeyValues.change`."""
        rows, applied = self._rows(), []
        with self._memory.lock:
            for key, value in (before or {}).items():
                self._put(key, 0, value)
            for change in changes:
                there = {n: rows.get(Key(change.partition, n)) for n in change.expected}
                stamps = {name: entry and entry.stamp for name, entry in there.items()}
                applied.append(stamps == dict(change.expected))
                if applied[-1]:
                    for key, value in change.first.items():
                        self._put(key, 0, value)
                    for name, new in change.rows.items():
                        self._put(Key(change.partition, name), change.stamp, new)
                    for key in change.then:
                        self._put(key, 0, None)
        return applied

    def close(self) -> None:
        """Implement `KeyValues.close`."""

    def _rows(self) -> dict[Key, Entry]:
        if self._memory.away:
            raise StoreUnavailableError("is away", place=self.place)
        return self._memory.rows

    def _put(self, key: Key, stamp: int, value: bytes | None) -> None:
        if value is None:
            self._memory.rows.pop(key, None)
        else:
            self._memory.rows[key] = Entry(stamp, value)
