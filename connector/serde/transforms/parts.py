"""The base of transforms of a record's key or value."""

from headrace.connector.serde.avro_types import closed, definitions, opened
from headrace.plugins import BadRecordError, Document, Record, RecordSchema, Transform


class TransformError(BadRecordError):
    """A transform cannot be applied to this record."""

    code = "transform"


class PartTransform(Transform):
    """Changes the key or the value; a subclass changes schema and data separately."""

    def part_schema(self, schema: Document, whole: RecordSchema) -> Document:  # noqa: ARG002
        """Return the changed schema. In both schemas, each use of a type has its definition.

        So dropping a field does not remove a definition, and changing a field does not change
        another one.
        """
        return schema

    def part_data(self, data: Document, record: Record) -> Document:  # noqa: ARG002
        """Return the changed data."""
        return data

    def schema(self, schema: RecordSchema) -> RecordSchema:
        """Change the part's schema."""
        before = schema.key if self.part == "key" else schema.value
        whole = opened(before, definitions(before))
        made = self.part_schema(whole, schema)
        if made is whole:
            return schema
        after = closed(made, definitions(whole))
        key, value = (after, schema.value) if self.part == "key" else (schema.key, after)
        return RecordSchema(schema.table, schema.text, schema.schema_id, key, value)

    def one(self, record: Record) -> Record | None:
        """Change the part's data."""
        if self.part == "value":
            return record.changed(value=self.part_data(record.value, record))
        if record.key is None:
            return record
        return record.changed(key=self.part_data(record.key, record))
