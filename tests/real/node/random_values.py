"""Random CQL types, and values of them as CQL text."""

import struct
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address, IPv6Address
from random import Random
from typing import Final
from uuid import UUID

from headrace.sources.cassandra.schema.types import CqlType

_NATIVES: Final = (
    *("ascii", "bigint", "blob", "boolean", "date", "decimal", "double", "float", "inet", "int"),
    *("smallint", "text", "time", "timestamp", "timeuuid", "tinyint", "uuid", "varint"),
)
_BITS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_WORDS: Final = ("alpha", "käse", "日本語", "it''s", '"dq"', "emoji😀", "line\nbreak", "")
_DAY_NS: Final = 86_400_000_000_000
_LEAST_DAY, _MOST_DAY = -700_000, 2_900_000  # Within the years that CQL has a text for.
_EXTREME: Final = 0.15
_NULL: Final = 0.15
_DEPTH_MAX: Final = 3


class Types:
    """Makes types; every one of them can be a column's, those of `key` a key column's too."""

    def __init__(self, random: Random, *, vectors: bool) -> None:
        """Draw from *random*; 4.x has no *vectors*."""
        self._random = random
        self._vectors = vectors
        self.udts: list[CqlType] = []

    def key(self) -> CqlType:
        """Return a type for a key column: frozen, without durations and vectors."""
        return self._make(0, key=True).freeze()

    def column(self) -> CqlType:
        """Return a type for a regular or static column."""
        if self._random.random() < 0.05:
            return CqlType("duration")
        return self._make(0, key=False)

    def udt(self, keyspace: str) -> CqlType:
        """Make a UDT, which later types can use."""
        fields = tuple((f"f{i}", self.key()) for i in range(self._random.randint(2, 4)))
        made = CqlType(f"u{len(self.udts)}", keyspace=keyspace, fields=fields)
        self.udts.append(made)
        return made

    def _make(self, depth: int, *, key: bool) -> CqlType:
        random = self._random
        roll = random.random()
        if depth >= _DEPTH_MAX or roll < 0.5:
            return CqlType(random.choice(_NATIVES))
        if self.udts and roll < 0.6:
            udt = random.choice(self.udts)
            return udt if depth == 0 and random.random() < 0.5 else udt.freeze()
        names = ["list", "set", "map", "tuple"]
        if self._vectors and not key:
            names.append("vector")
        name = random.choice(names)
        inner = [self._make(depth + 1, key=key or i == 0).freeze() for i in range(3)]
        if name == "tuple":
            return CqlType(name, tuple(inner[: random.randint(1, 3)]))
        if name == "vector":
            return CqlType(name, (inner[0],), dimension=random.randint(1, 4))
        arity = 2 if name == "map" else 1
        return CqlType(name, tuple(inner[:arity]), frozen=random.random() < 0.4)


class Values:
    """Makes values, as CQL text."""

    _natives: Mapping[str, Callable[[], str]]

    def __init__(self, random: Random) -> None:
        """Draw from *random*."""
        self._random = random
        self._in_key = False
        self._natives = {
            "ascii": lambda: _quoted("".join(random.choices("abc XYZ_'\"{[\\", k=self._size(8)))),
            "blob": lambda: "0x" + random.randbytes(self._size(12)).hex(),
            "boolean": lambda: random.choice(("true", "false")),
            "date": lambda: str(random.randint(_LEAST_DAY, _MOST_DAY) + (1 << 31)),
            "decimal": self._decimal,
            "double": lambda: self._real(random.uniform(-1e12, 1e12)),
            "duration": self._duration,
            "float": self._float,
            "inet": self._inet,
            "text": lambda: f"'{' '.join(random.choices(_WORDS, k=self._size(3)))}'",
            "time": lambda: _time(random.choice((0, _DAY_NS - 1, random.randrange(_DAY_NS)))),
            "timestamp": lambda: str(random.randint(_LEAST_DAY, _MOST_DAY) * 86_400_000 + 123),
            "timeuuid": lambda: str(UUID(int=random.getrandbits(128), version=1)),
            "uuid": lambda: str(UUID(int=random.getrandbits(128), version=random.choice((1, 4)))),
            "varint": lambda: str(random.randint(-(1 << 200), 1 << 200) >> random.randrange(200)),
        }

    def of(self, cql_type: CqlType) -> str:
        """Return a value; one that may be null only inside tuples and UDTs."""
        if cql_type.is_udt:
            fields = (f"{name}: {self._or_null(inner)}" for name, inner in cql_type.fields)
            return "{" + ", ".join(fields) + "}"
        name = cql_type.name
        if name == "tuple":
            return "(" + ", ".join(map(self._or_null, cql_type.arguments)) + ")"
        if name in {"list", "set", "map", "vector"}:
            return self.collection(cql_type, cql_type.dimension or self._random.randint(1, 3))
        if name in _BITS:
            return self._integer(_BITS[name])
        return self._natives[name]()

    def collection(self, cql_type: CqlType, size: int) -> str:
        """Return a collection of *size* elements; fewer when a set or map has one twice."""
        if cql_type.name in {"list", "vector"}:
            listed = (self.of(cql_type.arguments[0]) for _ in range(size))
            return "[" + ", ".join(listed) + "]"
        items = dict.fromkeys(self.element(cql_type) for _ in range(size))
        if cql_type.name == "map":
            pairs = (f"{key}: {self.of(cql_type.arguments[1])}" for key in items)
            return "{" + ", ".join(pairs) + "}"
        return "{" + ", ".join(items) + "}"

    def element(self, cql_type: CqlType) -> str:
        """Return an element of a set, or a key of a map.

        SELECT JSON makes one name of NaN and the infinities as keys, so they are none.
        """
        outer, self._in_key = self._in_key, cql_type.name == "map" or self._in_key
        made = self.of(cql_type.arguments[0])
        self._in_key = outer
        return made

    def _or_null(self, cql_type: CqlType) -> str:
        return "null" if self._random.random() < _NULL else self.of(cql_type)

    def _size(self, most: int) -> int:
        return self._random.randint(0, most)

    def _integer(self, bits: int) -> str:
        least, most = -(1 << bits - 1), (1 << bits - 1) - 1
        if self._random.random() < _EXTREME:
            return str(self._random.choice((least, most, 0, -1)))
        return str(self._random.randint(least, most) >> self._random.choice((0, bits // 2)))

    def _real(self, value: float) -> str:
        if self._random.random() > _EXTREME:
            return repr(value)
        odd: tuple[str, ...] = () if self._in_key else ("NaN", "Infinity", "-Infinity")
        return self._random.choice(("0.0", "-0.0", *odd))

    def _float(self) -> str:
        (single,) = struct.unpack(">f", struct.pack(">f", self._random.uniform(-1e6, 1e6)))
        return self._real(single)

    def _decimal(self) -> str:
        digits, scale = self._random.randint(-(10**18), 10**18), self._random.randint(-40, 40)
        return f"{digits >> self._random.randrange(60)}E{scale}"

    def _duration(self) -> str:
        months, days, seconds = (self._random.randint(0, 400) for _ in range(3))
        return f"{self._random.choice(('', '-'))}{months}mo{days}d{seconds}s1ns"

    def _inet(self) -> str:
        if self._random.random() < 0.5:
            return f"'{IPv4Address(self._random.getrandbits(32))}'"
        return f"'{IPv6Address(self._random.getrandbits(128) | 1 << 127)}'"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _time(nanoseconds: int) -> str:
    seconds, nanoseconds = divmod(nanoseconds, 10**9)
    return f"'{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{nanoseconds:09}'"
