"""The common transforms, with Kafka Connect's names and options."""

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headrace.connector.serde.avro_types import definitions, optional, standalone
from headrace.connector.serde.transforms.fields import (
    edited,
    edited_schema,
    field_at,
    only,
    only_schema,
    record_in,
    renamed,
    renamed_schema,
    value_at,
    without,
)
from headrace.connector.serde.transforms.masking import Mask, mask_at
from headrace.connector.serde.transforms.names import check_headers, check_names
from headrace.connector.serde.transforms.parts import PartTransform, TransformError
from headrace.connector.serde.transforms.predicates import check_pattern
from headrace.plugins import ConfigError, Document, Problem, Record, RecordSchema, Transform, option

Datum = Any  # Any: a field's value.


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertFieldConfig:
    """Options of InsertField."""

    static_field: str | None = option("A field to add.", name="static.field", default=None)
    static_value: str | None = option("Its value.", name="static.value", default=None)
    timestamp_field: str | None = option(
        "A field to add for the write time, ms.", name="timestamp.field", default=None
    )
    topic_field: str | None = option(
        "A field to add for the topic.", name="topic.field", default=None
    )

    def __post_init__(self) -> None:
        """Check the names."""
        for part in ("static", "timestamp", "topic"):
            name = getattr(self, f"{part}_field")
            check_names(f"{part}.field", [name] if name else [])


class InsertField(PartTransform):
    """Adds fields."""

    config_class = InsertFieldConfig
    config: InsertFieldConfig

    def part_schema(self, schema: Document, whole: RecordSchema) -> Document:
        """Add the fields at the end."""
        del whole
        added = [
            (self.config.static_field, "string"),
            (self.config.timestamp_field, "long"),
            (self.config.topic_field, "string"),
        ]
        fields = [optional(name, avro_type) for name, avro_type in added if name]
        return {**schema, "fields": [*schema["fields"], *fields]}

    def part_data(self, data: Document, record: Record) -> Document:
        """Add the fields' values."""
        config = self.config
        added = {
            config.static_field: config.static_value,
            config.timestamp_field: record.timestamp_us // 1_000,
            config.topic_field: record.topic,
        }
        return {**data, **{name: value for name, value in added.items() if name}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceFieldConfig:
    """Options of ReplaceField."""

    include: tuple[str, ...] = option(
        "The only fields that stay; dotted paths address nested fields.", default=()
    )
    exclude: tuple[str, ...] = option(
        "Fields to drop; dotted paths address nested fields.", default=()
    )
    renames: tuple[str, ...] = option(
        "Fields with their new names, old:new; the old name may be a dotted path.", default=()
    )

    def __post_init__(self) -> None:
        """Check the form of renames, and the new names."""
        wrong = [each for each in self.renames if each.count(":") != 1]
        if wrong:
            raise ConfigError([Problem("renames", f"expected old:new, found {wrong[0]!r}")])
        check_names("renames", [each.partition(":")[2] for each in self.renames])


class ReplaceField(PartTransform):
    """Drops and renames fields."""

    config_class = ReplaceFieldConfig
    config: ReplaceFieldConfig

    def __init__(self, config: ReplaceFieldConfig, part: str) -> None:
        """Parse the renames."""
        super().__init__(config, part)
        pairs = [each.split(":") for each in config.renames]
        self._names = {tuple(old.split(".")): new for old, new in pairs}
        self._include = [path.split(".") for path in config.include]

    def part_schema(self, schema: Document, whole: RecordSchema) -> Document:
        """Drop and rename fields of the schema."""
        del whole
        for path in self.config.exclude:
            schema = edited_schema(schema, path.split("."), lambda _: None)
        if self._include:
            schema = only_schema(schema, self._include)
        return renamed_schema(schema, self._names)

    def part_data(self, data: Document, record: Record) -> Document:
        """Drop and rename fields of the data."""
        del record
        for path in self.config.exclude:
            data = without(data, path.split("."))
        if self._include:
            data = only(data, self._include)
        return renamed(data, self._names) if self._names else data


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskFieldConfig:
    """Options of MaskField."""

    fields: tuple[str, ...] = option("Fields to mask; dotted paths address nested fields.")
    replacement: str | None = option(
        "The replacement in string fields; by default empty.", default=None
    )


class MaskField(PartTransform):
    """Replaces values by the empty value of their type, or strings by a given string."""

    config_class = MaskFieldConfig
    config: MaskFieldConfig

    def __init__(self, config: MaskFieldConfig, part: str) -> None:
        """Prepare a cache of masks, by schema."""
        super().__init__(config, part)
        self._known: dict[bytes, Sequence[tuple[Sequence[str], Mask]]] = {}

    def part_data(self, data: Document, record: Record) -> Document:
        """Mask the fields; null stays null."""
        masks = self._known.get(record.schema.schema_id)
        if masks is None:
            schema = record.schema.key if self.part == "key" else record.schema.value
            masks = self._known[record.schema.schema_id] = self._masks(schema)
        for path, mask in masks:
            data = edited(data, path, mask)
        return data

    def _masks(self, schema: Document) -> Sequence[tuple[Sequence[str], Mask]]:
        """Return the masks of the existing fields, each with its path."""
        known, text = definitions(schema), self.config.replacement
        paths = [name.split(".") for name in self.config.fields]
        masks = [(path, mask_at(schema, path, known, text)) for path in paths]
        return [(path, mask) for path, mask in masks if mask is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoConfig:
    """No options."""


class Filter(Transform):
    """Drops records; use it with a predicate."""

    config_class = NoConfig

    def one(self, record: Record) -> None:
        """Drop the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegexRouterConfig:
    """Options of RegexRouter."""

    regex: str = option("The pattern that the whole topic must match.")
    replacement: str = option("The new topic; $1 is the first group.")

    def __post_init__(self) -> None:
        """Check the expression, and the replacement's groups and characters."""
        check_pattern("regex", self.regex)
        groups = re.compile(self.regex).groups
        missing = [each for each in _GROUP.findall(self.replacement) if int(each) > groups]
        if missing:
            message = f"group ${missing[0]} does not exist, the regex has {groups}"
            raise ConfigError([Problem("replacement", message, "groups are in round brackets")])
        letters = _GROUP.sub("", self.replacement)
        if not _TOPIC.fullmatch(letters) and (letters or not self.replacement):
            found = f"expected a topic's name, found {self.replacement!r}"
            raise ConfigError([Problem("replacement", found, _TOPIC_HINT)])


class RegexRouter(Transform):
    """Sends records to another topic."""

    config_class = RegexRouterConfig
    config: RegexRouterConfig

    def __init__(self, config: RegexRouterConfig, part: str) -> None:
        """Prepare the expression, and the replacement in Python's syntax."""
        super().__init__(config, part)
        self._regex = re.compile(config.regex)
        self._replacement = _GROUP.sub(r"\\g<\1>", config.replacement)
        self._routes: dict[str, str] = {}

    def topic(self, topic: str) -> str:
        """Replace *topic*, if it matches."""
        route = self._routes.get(topic)
        if route is None:
            match = self._regex.fullmatch(topic)
            route = self._routes[topic] = self._checked(match) if match else topic
        return route

    def one(self, record: Record) -> Record:
        """Replace the record's topic."""
        return record.changed(topic=self.topic(record.topic or ""))

    def _checked(self, match: re.Match[str]) -> str:
        route = match.expand(self._replacement)
        if not _TOPIC.fullmatch(route) or route in (".", ".."):
            raise TransformError(
                f"expected a topic's name, found {route!r}", place=match.string, hint=_TOPIC_HINT
            )
        return route


@dataclass(frozen=True, slots=True, kw_only=True)
class FlattenConfig:
    """Options of Flatten."""

    delimiter: str = option("The separator of the names.", default="_")

    def __post_init__(self) -> None:
        """Check that Avro allows the delimiter in names."""
        if not re.fullmatch(r"[A-Za-z0-9_]+", self.delimiter):
            raise ConfigError([Problem("delimiter", "expected letters, digits and _")])


class Flatten(PartTransform):
    """Flattens nested records into one; lists and maps stay."""

    config_class = FlattenConfig
    config: FlattenConfig

    def part_schema(self, schema: Document, whole: RecordSchema) -> Document:
        """Give each inner field a unique name; it is null if its record is null."""
        del whole
        named = self._fields(schema, "", nullable=False)
        return {**schema, "fields": [{**field, "name": name} for name, field in named]}

    def part_data(self, data: Document, record: Record) -> Document:
        """Give each inner value the name of its field."""
        schema = record.schema.key if self.part == "key" else record.schema.value
        return dict(self._values(schema, data, "", definitions(schema)))

    def _fields(
        self, schema: Document, prefix: str, *, nullable: bool
    ) -> Iterator[tuple[str, Document]]:
        for field in schema["fields"]:
            name = f"{prefix}{field['name']}"
            inner, optional_too = record_in(field["type"], {})
            if inner is not None:
                deeper = f"{name}{self.config.delimiter}"
                either = nullable or optional_too
                yield from self._fields(inner, deeper, nullable=either)
            elif nullable and not isinstance(field["type"], list):
                yield name, {**field, **optional(name, field["type"])}
            else:
                yield name, field

    def _values(
        self, schema: Document, data: Document | None, prefix: str, known: Mapping[str, Document]
    ) -> Iterator[tuple[str, Datum]]:
        for field in schema["fields"]:
            name = f"{prefix}{field['name']}"
            value = None if data is None else data[field["name"]]
            inner, _ = record_in(field["type"], known)
            if inner is None:
                yield name, value
            else:
                yield from self._values(inner, value, f"{name}{self.config.delimiter}", known)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampConverterConfig:
    """Options of TimestampConverter."""

    field: str = option("The field; a dotted path addresses a nested one.")
    target_type: str = option(
        "The type to convert to.", name="target.type", choices=("string", "unix", "Timestamp")
    )
    format: str = option(
        "The format of a string, as for strftime; by default as in 2023-11-14T22:13:20.123Z.",
        default="",
    )
    unix_precision: str = option(
        "The unit of a number, in the record and in the result.",
        name="unix.precision",
        default="milliseconds",
        choices=("seconds", "milliseconds", "microseconds", "nanoseconds"),
    )


class TimestampConverter(PartTransform):
    """Converts times since 1970 to strings or to logical timestamps."""

    config_class = TimestampConverterConfig
    config: TimestampConverterConfig

    def part_schema(self, schema: Document, whole: RecordSchema) -> Document:
        """Give the field its new type."""
        del whole
        return edited_schema(schema, self.config.field.split("."), self._field)

    def part_data(self, data: Document, record: Record) -> Document:
        """Convert the number; null stays null."""
        del record
        return edited(data, self.config.field.split("."), self._converted)

    def _field(self, field: Document) -> Document:
        made: object = {
            "string": "string",
            "unix": "long",
            "Timestamp": {"type": "long", "logicalType": "timestamp-millis"},
        }[self.config.target_type]
        return {**field, "type": ["null", made] if isinstance(field["type"], list) else made}

    def _converted(self, value: Datum) -> Datum:
        if value is None:
            return None
        if not isinstance(value, int):
            raise TransformError(f"expected a number in {self.config.field}")
        per_second = _PER_SECOND[self.config.unix_precision]
        if self.config.target_type == "unix":
            return value
        if self.config.target_type == "Timestamp":
            return value * 1_000 // per_second
        try:
            moment = _EPOCH + dt.timedelta(microseconds=value * 1_000_000 // per_second)
        except OverflowError as error:
            raise TransformError(f"{self.config.field} is beyond the year 9999") from error
        if self.config.format:
            return moment.strftime(self.config.format)
        return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1_000:03}Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderFromConfig:
    """Options of HeaderFrom."""

    fields: tuple[str, ...] = option("Fields; dotted paths address nested fields.")
    headers: tuple[str, ...] = option("The headers that get them, in the same order.")
    operation: str = option("`copy`, or `move`.", default="copy", choices=("copy", "move"))

    def __post_init__(self) -> None:
        """Check that there are as many headers as fields."""
        if len(self.fields) != len(self.headers):
            raise ConfigError([Problem("headers", "expected as many as fields")])


class HeaderFrom(PartTransform):
    """Puts fields into headers, as strings."""

    config_class = HeaderFromConfig
    config: HeaderFromConfig

    def part_schema(self, schema: Document, whole: RecordSchema) -> Document:
        """Drop fields that move."""
        del whole
        if self.config.operation == "copy":
            return schema
        mover = ReplaceField(ReplaceFieldConfig(exclude=self.config.fields), self.part)
        return mover.part_schema(schema, RecordSchema("", "", b"", {}, {}))

    def one(self, record: Record) -> Record:
        """Copy or move the fields; null does not make a header."""
        data = record.key or {} if self.part == "key" else record.value
        pairs = zip(self.config.fields, self.config.headers, strict=True)
        given = [(name, value_at(data, field.split("."))) for field, name in pairs]
        added = tuple((name, _header(value)) for name, value in given if value is not None)
        made = record.changed(headers=record.headers + added)
        if self.config.operation == "move":
            for field in self.config.fields:
                data = without(data, field.split("."))
            made = made.changed(**{self.part: data})
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class DropHeadersConfig:
    """Options of DropHeaders."""

    headers: tuple[str, ...] = option("Headers to drop.")

    def __post_init__(self) -> None:
        """Check that records have such headers."""
        check_headers("headers", self.headers)


class DropHeaders(Transform):
    """Drops headers of records; constant headers are chosen by the sink's option `headers`."""

    config_class = DropHeadersConfig
    config: DropHeadersConfig

    def one(self, record: Record) -> Record:
        """Drop the headers."""
        kept = tuple(pair for pair in record.headers if pair[0] not in self.config.headers)
        return record.changed(headers=kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueToKeyConfig:
    """Options of ValueToKey."""

    fields: tuple[str, ...] = option(
        "Fields of the value that make the key; dotted paths address nested fields."
    )


class ValueToKey(Transform):
    """Makes the key from fields of the value."""

    config_class = ValueToKeyConfig
    config: ValueToKeyConfig

    def schema(self, schema: RecordSchema) -> RecordSchema:
        """Make the key's schema from the fields' types."""
        known, defined = definitions(schema.value), {"Key"}
        fields = []
        for name in self.config.fields:
            field = field_at(schema.value, name.split("."), known)
            if field is None:
                raise TransformError(f"{schema.table} has no field {name}")
            fields.append({**field, "type": standalone(field["type"], known, defined)})
        key = {"type": "record", "name": "Key", "fields": fields}
        if "namespace" in schema.value:
            key["namespace"] = schema.value["namespace"]
        return RecordSchema(schema.table, schema.text, schema.schema_id, key, schema.value)

    def one(self, record: Record) -> Record:
        """Make the key from the fields' values."""
        paths = [name.split(".") for name in self.config.fields]
        return record.changed(key={path[-1]: value_at(record.value, path) for path in paths})


_GROUP: Final = re.compile(r"\$(\d+)", re.ASCII)
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_TOPIC_HINT: Final = "Kafka's topics have 1 to 249 letters, digits, dots, _ and -"
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_PER_SECOND: Final = {
    "seconds": 1,
    "milliseconds": 1_000,
    "microseconds": 1_000_000,
    "nanoseconds": 1_000_000_000,
}


def _header(value: Datum) -> bytes:
    if isinstance(value, bytes):
        return value
    return (str(value).lower() if isinstance(value, bool) else str(value)).encode()
