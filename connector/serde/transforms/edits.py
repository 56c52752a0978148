"""Transforms as edits of Avro: the same for every record of a schema, known in advance.

A transform is an edit if its effect only depends on schema, table and topic, apart from the write
time. The effect of these transforms on objects is in `builtin`; both ways give the same bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from headrace.connector.serde.avro_types import AvroType, definitions, field_of
from headrace.connector.serde.conversion import Lossless, converting
from headrace.connector.serde.transcode import octets
from headrace.connector.serde.transcode.edit import Edit
from headrace.connector.serde.transforms.builtin import (
    InsertField,
    MaskField,
    ReplaceField,
    ReplaceFieldConfig,
)
from headrace.connector.serde.transforms.casting import Cast, cast_of
from headrace.connector.serde.transforms.fields import record_in
from headrace.connector.serde.transforms.masking import NUMBER_IN_BYTES, ZERO, empty_of, text_of
from headrace.plugins import Document, Transform

_NULL: Final = octets.long_bytes(0)
_THERE: Final = octets.long_bytes(1)
_ZEROS: Final = {"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8}
_PAIR: Final = 2  # Branches of a union of null and a type.

# Returns the edit of a field of a record, at a dotted path.
Make = Callable[[Document, Document, str], Edit]


class NotAnEditError(Exception):
    """The effect of the transform depends on the record."""


def edits_of(transform: Transform, schema: Document, topic: str) -> Sequence[Edit]:
    """Return the effect of *transform* on keys or values of *schema*, as successive edits.

    Raises:
        NotAnEditError: it needs the records.

    """
    at = _Types(schema)
    kind = type(transform)  # A plugin's subclass may behave differently.
    if isinstance(transform, MaskField) and kind is MaskField:
        mask = _Mask(at, transform.config.replacement)
        return [at.edited(schema, _paths(transform.config.fields), mask.at)]
    if isinstance(transform, ReplaceField) and kind is ReplaceField:
        return _replaced(at, transform.config, schema)
    if isinstance(transform, InsertField) and kind is InsertField:
        return [_added(at, transform, schema, topic)]
    if isinstance(transform, Cast) and kind is Cast:
        cast = partial(at.cast, transform.targets)
        paths = _paths(list(transform.targets))
        return [at.edited(schema, paths, lambda _, field, path: cast(path, field["type"]))]
    raise NotAnEditError


def without(schema: Document, names: Sequence[str]) -> Edit:
    """Return the edit of a record that drops the fields with these *names*."""
    at = _Types(schema)
    return at.edited(schema, _paths(names), at.dropped)


def _paths(names: Sequence[str]) -> list[list[str]]:
    return [name.split(".") for name in names]


def _replaced(at: "_Types", config: ReplaceFieldConfig, schema: Document) -> Sequence[Edit]:
    if config.include and config.exclude:
        raise NotAnEditError
    if config.include:
        return [at.only(schema, _paths(config.include))]
    if config.exclude:
        for path in _paths(config.exclude):
            at.check(schema, path)
        return [at.edited(schema, _paths(config.exclude), at.dropped)]
    return []


def _added(at: "_Types", transform: InsertField, schema: Document, topic: str) -> Edit:
    config = transform.config
    added = b""
    if config.static_field:
        added = _NULL
        if config.static_value is not None:
            added = _THERE + octets.sized(config.static_value.encode())
    routed = _THERE + octets.sized(topic.encode()) if config.topic_field else b""
    if config.timestamp_field and routed:  # The time would follow the topic.
        raise NotAnEditError
    adds_time = bool(config.timestamp_field)
    whole = at.plain(octets.KEEP, schema)
    return Edit(octets.RECORD, None, whole, content=added + routed, adds_time=adds_time)


class _Types:
    """The types of one schema, and edits of parts of it."""

    def __init__(self, schema: Document) -> None:
        self.known = definitions(schema)
        self._pieces = Lossless(self.known)

    def plain(self, action: int, avro_type: AvroType, content: bytes = b"") -> Edit:
        """Return an edit of a whole value."""
        return Edit(action, self._pieces.of(avro_type)[1], content=content)

    def inner(self, avro_type: AvroType) -> tuple[Document | None, bool]:
        """Return the record in a type, or None, and whether it may be null."""
        if isinstance(avro_type, list) and (len(avro_type) != _PAIR or avro_type[0] != "null"):
            raise NotAnEditError
        return record_in(avro_type, self.known)

    def dropped(self, _record: Document, field: Document, _path: str) -> Edit:
        """Return the edit that drops a field."""
        return self.plain(octets.DROP, field["type"])

    def cast(self, targets: Mapping[str, str], path: str, avro_type: AvroType) -> Edit:
        """Return the edit that casts the field at *path* to its type in *targets*."""
        if isinstance(avro_type, list):
            return Edit(octets.OPTION, None, self.cast(targets, path, avro_type[-1]))
        made = cast_of(avro_type, targets[path], self.known, path)
        if not made.never_fails:
            raise NotAnEditError
        known = self.known.get(avro_type, avro_type) if isinstance(avro_type, str) else avro_type
        return Edit(octets.CONVERT, converting(known, made.becomes, made.of_bytes))

    def check(self, record: Document, path: Sequence[str]) -> None:
        """Raise NotAnEditError if *path* leads into a value other than a record, such as a map."""
        field = field_of(record, path[0])
        if field is not None and len(path) > 1:
            inner, _ = self.inner(field["type"])
            if inner is None:
                raise NotAnEditError
            self.check(inner, path[1:])

    def edited(
        self, record: Document, paths: Sequence[Sequence[str]], make: Make, prefix: str = ""
    ) -> Edit:
        """Return the edit of the fields at *paths* after *prefix*; others are kept."""
        parts = []
        for field in record["fields"]:
            inner = [path[1:] for path in paths if path[0] == field["name"]]
            within, optional_too = self.inner(field["type"]) if inner else (None, False)
            if [] in inner:
                parts.append(make(record, field, prefix + field["name"]))
            elif within is not None:
                made = self.edited(within, inner, make, f"{prefix}{field['name']}.")
                parts.append(Edit(octets.OPTION, None, made) if optional_too else made)
            else:
                parts.append(self.plain(octets.KEEP, field["type"]))
        return Edit(octets.RECORD, None, *parts)

    def only(self, record: Document, paths: Sequence[Sequence[str]]) -> Edit:
        """Return the edit that keeps only the fields at *paths*."""
        parts = []
        for field in record["fields"]:
            inner = [path[1:] for path in paths if path[0] == field["name"]]
            within, optional_too = self.inner(field["type"]) if inner else (None, False)
            if [] in inner:
                parts.append(self.plain(octets.KEEP, field["type"]))
            elif within is not None:
                made = self.only(within, inner)
                parts.append(Edit(octets.OPTION, None, made) if optional_too else made)
            else:
                parts.append(self.plain(octets.DROP, field["type"]))
        return Edit(octets.RECORD, None, *parts)


class _Mask:
    """The masks of fields, as described for `masking`."""

    def __init__(self, at: _Types, replacement: str | None) -> None:
        self._types = at
        self._replacement = replacement

    def at(self, record: Document, field: Document, _path: str) -> Edit:
        """Return the mask of a field of *record*."""
        return self._of_field(record, field)

    def _of_field(self, record: Document, field: Document) -> Edit:
        if (record["name"], field["name"]) == NUMBER_IN_BYTES:
            return self._types.plain(octets.REPLACE, field["type"], octets.sized(ZERO))
        return self._of(field["type"])

    def _of(self, avro_type: Any) -> Edit:  # noqa: ANN401 (Avro's)
        if isinstance(avro_type, list):
            if len(avro_type) != _PAIR or avro_type[0] != "null":
                raise NotAnEditError
            return Edit(octets.OPTION, None, self._of(avro_type[1]))
        if isinstance(avro_type, str):
            avro_type = self._types.known.get(avro_type, {"type": avro_type})
        kind = avro_type["type"]
        if isinstance(kind, Mapping | list):
            return self._of(kind)
        if kind == "record":
            return Edit(
                octets.RECORD, None, *[self._of_field(avro_type, f) for f in avro_type["fields"]]
            )
        return self._types.plain(octets.REPLACE, avro_type, self._content(avro_type))

    def _content(self, avro_type: Document) -> bytes:
        """Return the empty value of a type, or the replacement, in Avro."""
        kind = avro_type["type"]
        if kind == "string":
            return octets.sized(text_of(avro_type, self._replacement).encode())
        if kind in ("array", "map"):
            return _NULL
        if kind in _ZEROS:
            return bytes(_ZEROS[kind])
        empty = empty_of(avro_type)
        if kind == "enum":
            return octets.long_bytes(avro_type["symbols"].index(empty))
        assert isinstance(empty, bytes)  # noqa: S101 (bytes or fixed)
        return empty if kind == "fixed" else octets.sized(empty)
