"""Converts values of the envelope `cep44` to Arrow values of the types of `types`. Pure.

A timestamp is µs, a map is pairs, a struct a mapping.
"""

from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from typing import Any, Final

from headrace.connector.history.frames.types import DECIMAL_SCALE, DIGITS_MAX, form_of, named_fields
from headrace.connector.serde.avro_types import AvroType, without_null
from headrace.plugins import Document

Value = Any  # Any: the value of an Avro type, and the value for Arrow.

_US_PER_MS: Final = 1_000
_MS_MAX: Final = ((1 << 63) - 1) // _US_PER_MS
_EXACT: Final = Context(prec=DIGITS_MAX)
_DIGITS_OF_A_BYTE_MAX: Final = 3


class UnfitError(ValueError):
    """A value is outside the range of its column."""


def is_as_it_is(kind: AvroType) -> bool:
    """Return whether `arrow_value` returns every value of a type unchanged."""
    return form_of(without_null(kind)) not in _FORMS


def arrow_value(kind: AvroType, value: Value) -> Value:
    """Return a value of an opened type for Arrow. Raises UnfitError."""
    if value is None:
        return None
    kind = without_null(kind)
    convert = _FORMS.get(form_of(kind))
    return value if convert is None else convert(kind, value)


def pairs(key: AvroType, content: AvroType, entries: list[tuple[Value, Value]]) -> Value:
    """Return the entries of a map. Raises UnfitError: a key is null."""
    made = [(arrow_value(key, each), arrow_value(content, value)) for each, value in entries]
    if any(each is None for each, _ in made):
        raise UnfitError
    return made


def _list(kind: Document, value: list[Value]) -> Value:
    return [arrow_value(kind["items"], each) for each in value]


def _map(kind: Document, value: list[Document]) -> Value:
    key, content = (field["type"] for field in kind["items"]["fields"])
    return pairs(key, content, [(each["key"], each["value"]) for each in value])


def _record(kind: Document, value: Document) -> Value:
    return {
        name: arrow_value(field["type"], value[field["name"]])
        for name, field in named_fields(kind).items()
    }


def _timestamp(_kind: Document, ms: int) -> int:
    if not -_MS_MAX <= ms <= _MS_MAX:
        raise UnfitError
    return ms * _US_PER_MS


def _varint(_kind: Document, value: bytes) -> Decimal:
    return _number(0, value, 0)


def _decimal(_kind: Document, value: Document) -> Decimal:
    return _number(value["scale"], value["unscaled"], DECIMAL_SCALE)


def _number(own: int, unscaled: bytes, scale: int) -> Decimal:
    """Return a number with exactly *scale* digits after the point, without loss."""
    number = int.from_bytes(unscaled, "big", signed=True)
    more = scale - own
    if number and not -_DIGITS_OF_A_BYTE_MAX * len(unscaled) <= more <= DIGITS_MAX:
        raise UnfitError  # It is too large, or digits would be lost.
    if number and more > 0:
        number *= 10**more
    elif number:
        number, rest = divmod(number, 10**-more)
        if rest:
            raise UnfitError
    if abs(number) >= 10**DIGITS_MAX:
        raise UnfitError
    return Decimal(number).scaleb(-scale, _EXACT)


_FORMS: Final[Mapping[str, Callable[[Document, Value], Value]]] = {
    "Decimal": _decimal,
    "list": _list,
    "map": _map,
    "timestamp": _timestamp,
    "tuple": _record,
    "udt": _record,
    "varint": _varint,
}
