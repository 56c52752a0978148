"""What transforms of a record's key or value have in common."""

from headrace.plugins import BadRecordError, Document, Record, RecordSchema, Transform


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
