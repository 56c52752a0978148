"""The common transforms, as Kafka Connect names and configures them."""

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headrace.connector.serde.avro_types import definitions, standalone
from headrace.connector.serde.transforms.fields import edited, edited_schema, optional, without
from headrace.connector.serde.transforms.predicates import check_pattern
from headrace.plugins import (
    BadRecordError,
    ConfigError,
    Document,
    Problem,
    Record,
    RecordSchema,
    Transform,
    option,
)

Datum = Any  # Any: what a field has for a value.


class TransformError(BadRecordError):
    """A transform cannot be applied to this record."""

    code = "transform"


class PartTransform(Transform):
    """Changes the key or the value; a subclass says how, schema and data apart."""

    def part_schema(self, schema: Document, whole: RecordSchema) -> Document:  # noqa: ARG002
        """Return the part's schema afterwards."""
        return schema

    def part_data(self, data: Document, record: Record) -> Document:  # noqa: ARG002
        """Return the part's data afterwards."""
        return data

    def schema(self, schema: RecordSchema) -> RecordSchema:
        """Change the part's schema."""
        key, value = schema.key, schema.value
        if self.part == "key":
            key = self.part_schema(key, schema)
        else:
            value = self.part_schema(value, schema)
        return RecordSchema(schema.table, schema.text, schema.schema_id, key, value)

    def one(self, record: Record) -> Record | None:
        """Change the part's data."""
        if self.part == "value":
            return record.changed(value=self.part_data(record.value, record))
        if record.key is None:
            return record
        return record.changed(key=self.part_data(record.key, record))


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertFieldConfig:
    """Options of InsertField."""

    static_field: str | None = option("A field to add.", name="static.field", default=None)
    static_value: str | None = option("Its text.", name="static.value", default=None)
    timestamp_field: str | None = option(
        "A field to add for the write time, ms.", name="timestamp.field", default=None
    )
    topic_field: str | None = option(
        "A field to add for the topic.", name="topic.field", default=None
    )


class InsertField(PartTransform):
    """Adds fields."""

    config_class = InsertFieldConfig
    config: InsertFieldConfig

    def part_schema(self, schema: Document, whole: RecordSchema) -> Document:
        """Add them at the end."""
        del whole
        added = [
            (self.config.static_field, "string"),
            (self.config.timestamp_field, "long"),
            (self.config.topic_field, "string"),
        ]
        fields = [optional(name, avro_type) for name, avro_type in added if name]
        return {**schema, "fields": [*schema["fields"], *fields]}

    def part_data(self, data: Document, record: Record) -> Document:
        """Add what they hold."""
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

    include: tuple[str, ...] = option("The only fields that stay.", default=())
    exclude: tuple[str, ...] = option("Fields that go.", default=())
    renames: tuple[str, ...] = option("Fields with their new names: old:new.", default=())

    def __post_init__(self) -> None:
        """Check the form of renames."""
        wrong = [each for each in self.renames if each.count(":") != 1]
        if wrong:
            raise ConfigError([Problem("renames", f"expected old:new, found {wrong[0]!r}")])


class ReplaceField(PartTransform):
    """Leaves fields out, and renames them."""

    config_class = ReplaceFieldConfig
    config: ReplaceFieldConfig

    def __init__(self, config: ReplaceFieldConfig, part: str) -> None:
        """Take the renames apart."""
        super().__init__(config, part)
        self._renames: dict[str, str] = dict(each.split(":") for each in config.renames)

    def part_schema(self, schema: Document, whole: RecordSchema) -> Document:
        """Do it to the schema; what a field that goes had defined is defined where it is used."""
        del whole
        known = definitions(schema)
        for path in self.config.exclude:
            schema = edited_schema(schema, path.split("."), lambda _: None)
        fields = [f for f in schema["fields"] if self._stays(f["name"])]
        defined = {schema["name"]}
        return {
            **schema,
            "fields": [
                {
                    **field,
                    "name": self._renames.get(field["name"], field["name"]),
                    "type": standalone(field["type"], known, defined),
                }
                for field in fields
            ],
        }

    def part_data(self, data: Document, record: Record) -> Document:
        """Do it to the data."""
        del record
        for path in self.config.exclude:
            data = without(data, path.split("."))
        return {self._renames.get(n, n): each for n, each in data.items() if self._stays(n)}

    def _stays(self, name: str) -> bool:
        return not self.config.include or name in self.config.include


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskFieldConfig:
    """Options of MaskField."""

    fields: tuple[str, ...] = option("Fields to mask; dots go inwards.")
    replacement: str | None = option(
        "What stands there instead, in fields of texts; by default nothing does.", default=None
    )


class MaskField(PartTransform):
    """Replaces values by the empty value of their type, or texts by a text."""

    config_class = MaskFieldConfig
    config: MaskFieldConfig

    def part_data(self, data: Document, record: Record) -> Document:
        """Mask what is there; null stays null."""
        del record
        for path in self.config.fields:
            data = edited(data, path.split("."), self._masked)
        return data

    def _masked(self, value: Datum) -> Datum:
        if isinstance(value, str):
            return self.config.replacement or ""
        if isinstance(value, Mapping):
            return {name: self._masked(each) for name, each in value.items()}
        return None if value is None else type(value)()


@dataclass(frozen=True, slots=True, kw_only=True)
class NoConfig:
    """No options."""


class Filter(Transform):
    """Leaves records out; meant for use with a predicate."""

    config_class = NoConfig

    def one(self, record: Record) -> None:
        """Leave it out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegexRouterConfig:
    """Options of RegexRouter."""

    regex: str = option("What the whole topic must match.")
    replacement: str = option("The new topic; $1 is the first group.")

    def __post_init__(self) -> None:
        """Check the expression."""
        check_pattern("regex", self.regex)


class RegexRouter(Transform):
    """Sends records to another topic."""

    config_class = RegexRouterConfig
    config: RegexRouterConfig

    def __init__(self, config: RegexRouterConfig, part: str) -> None:
        """Prepare the expression, and the replacement as Python writes it."""
        super().__init__(config, part)
        self._regex = re.compile(config.regex)
        escaped = config.replacement.replace("\\", r"\\")
        self._replacement = re.sub(r"\$(\d+)", r"\\g<\1>", escaped)
        self._routes: dict[str, str] = {}

    def one(self, record: Record) -> Record:
        """Replace the topic, if it matches."""
        topic = record.topic or ""
        route = self._routes.get(topic)
        if route is None:
            match = self._regex.fullmatch(topic)
            route = match.expand(self._replacement) if match else topic
            self._routes[topic] = route
        return record.changed(topic=route)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlattenConfig:
    """Options of Flatten."""

    delimiter: str = option("What stands between the names.", default="_")

    def __post_init__(self) -> None:
        """Avro's names are of few characters."""
        if not re.fullmatch(r"[A-Za-z0-9_]+", self.delimiter):
            raise ConfigError([Problem("delimiter", "expected letters, digits and _")])


class Flatten(PartTransform):
    """Makes one record of records within records; lists and maps stay."""

    config_class = FlattenConfig
    config: FlattenConfig

    def part_schema(self, schema: Document, whole: RecordSchema) -> Document:
        """Give each inner field a name of its own, null where its record is."""
        del whole
        known = definitions(schema)
        defined = {schema["name"]}
        fields = []
        for name, field in self._fields(schema, "", known, nullable=False):
            fields.append(
                {**field, "name": name, "type": standalone(field["type"], known, defined)}
            )
        return {**schema, "fields": fields}

    def part_data(self, data: Document, record: Record) -> Document:
        """Give each inner value the name of its field."""
        schema = record.schema.key if self.part == "key" else record.schema.value
        return dict(self._values(schema, data, "", definitions(schema)))

    def _fields(
        self, schema: Document, prefix: str, known: Mapping[str, Document], *, nullable: bool
    ) -> Iterator[tuple[str, Document]]:
        for field in schema["fields"]:
            name = f"{prefix}{field['name']}"
            inner, optional_too = _record_in(field["type"], known)
            if inner is not None:
                deeper = f"{name}{self.config.delimiter}"
                either = nullable or optional_too
                yield from self._fields(inner, deeper, known, nullable=either)
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
            inner, _ = _record_in(field["type"], known)
            if inner is None:
                yield name, value
            else:
                yield from self._values(inner, value, f"{name}{self.config.delimiter}", known)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampConverterConfig:
    """Options of TimestampConverter."""

    field: str = option("The field; dots go inwards.")
    target_type: str = option(
        "What it becomes.", name="target.type", choices=("string", "unix", "Timestamp")
    )
    format: str = option(
        "Of a string, in the words of strftime; by default as in 2023-11-14T22:13:20.123Z.",
        default="",
    )
    unix_precision: str = option(
        "What the number in the record counts, and the one it becomes.",
        name="unix.precision",
        default="milliseconds",
        choices=("seconds", "milliseconds", "microseconds", "nanoseconds"),
    )


class TimestampConverter(PartTransform):
    """Makes texts of times since 1970, or logical timestamps of them."""

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

    fields: tuple[str, ...] = option("Fields.")
    headers: tuple[str, ...] = option("The headers that get them, in the same order.")
    operation: str = option("`copy`, or `move`.", default="copy", choices=("copy", "move"))

    def __post_init__(self) -> None:
        """Check that there are as many."""
        if len(self.fields) != len(self.headers):
            raise ConfigError([Problem("headers", "expected as many as fields")])


class HeaderFrom(PartTransform):
    """Puts fields into headers, as texts."""

    config_class = HeaderFromConfig
    config: HeaderFromConfig

    def part_schema(self, schema: Document, whole: RecordSchema) -> Document:
        """Leave out fields that move."""
        del whole
        if self.config.operation == "copy":
            return schema
        mover = ReplaceField(ReplaceFieldConfig(exclude=self.config.fields), self.part)
        return mover.part_schema(schema, RecordSchema("", "", b"", {}, {}))

    def one(self, record: Record) -> Record:
        """Copy or move them; null makes no header."""
        data = record.key or {} if self.part == "key" else record.value
        pairs = zip(self.config.fields, self.config.headers, strict=True)
        given = [(name, data.get(field)) for field, name in pairs]
        added = tuple((name, _header(value)) for name, value in given if value is not None)
        made = record.changed(headers=record.headers + added)
        if self.config.operation == "move":
            for field in self.config.fields:
                data = without(data, [field])
            made = made.changed(**{self.part: data})
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class DropHeadersConfig:
    """Options of DropHeaders."""

    headers: tuple[str, ...] = option("Headers that go.")


class DropHeaders(Transform):
    """Leaves headers of records out; the option `headers` says which constant ones there are."""

    config_class = DropHeadersConfig
    config: DropHeadersConfig

    def one(self, record: Record) -> Record:
        """Leave them out."""
        kept = tuple(pair for pair in record.headers if pair[0] not in self.config.headers)
        return record.changed(headers=kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueToKeyConfig:
    """Options of ValueToKey."""

    fields: tuple[str, ...] = option("Fields of the value that make the key.")


class ValueToKey(Transform):
    """Makes the key of fields of the value."""

    config_class = ValueToKeyConfig
    config: ValueToKeyConfig

    def schema(self, schema: RecordSchema) -> RecordSchema:
        """Take the fields' types over."""
        known, defined = definitions(schema.value), {"Key"}
        by_name = {field["name"]: field for field in schema.value["fields"]}
        missing = [name for name in self.config.fields if name not in by_name]
        if missing:
            raise TransformError(f"{schema.table} has no field {missing[0]}", place=schema.table)
        fields = [
            {**by_name[name], "type": standalone(by_name[name]["type"], known, defined)}
            for name in self.config.fields
        ]
        key = {"type": "record", "name": "Key", "fields": fields}
        if "namespace" in schema.value:
            key["namespace"] = schema.value["namespace"]
        return RecordSchema(schema.table, schema.text, schema.schema_id, key, schema.value)

    def one(self, record: Record) -> Record:
        """Take the values over."""
        return record.changed(key={name: record.value[name] for name in self.config.fields})


_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_PER_SECOND: Final = {
    "seconds": 1,
    "milliseconds": 1_000,
    "microseconds": 1_000_000,
    "nanoseconds": 1_000_000_000,
}


def _record_in(
    avro_type: Any,  # noqa: ANN401 (Avro's)
    known: Mapping[str, Document],
) -> tuple[Document | None, bool]:
    """Return the record that a type is, if it is one, and whether it may be null."""
    optional_too = isinstance(avro_type, list)
    inner = avro_type[1] if optional_too and len(avro_type) > 1 else avro_type
    if isinstance(inner, str):
        inner = known.get(inner, inner)
    is_record = isinstance(inner, Mapping) and inner.get("type") == "record"
    return (inner if is_record else None), optional_too


def _header(value: Datum) -> bytes:
    if isinstance(value, bytes):
        return value
    return (str(value).lower() if isinstance(value, bool) else str(value)).encode()
