"""Changes in the envelope `cep44` with all of its fields, of tables that a test creates."""

from collections.abc import Mapping
from typing import Any

from headrace.plugins import RecordSchema
from headrace.sources.cassandra.encode.avro_schema import key_schema, value_schema
from headrace.sources.cassandra.schema.ddl import parse_schema


def schema_of(ddl: str) -> RecordSchema:
    """Return the schema of the only table that *ddl* creates."""
    (table,) = parse_schema(ddl).tables.values()
    key, value = key_schema(table), value_schema(table)
    return RecordSchema.of(table.qualified, table.text, key=key, value=value)


def whole(
    operation: str,
    written_us: int,
    payload: Mapping[str, Any],
    written: Mapping[str, Any],
    **fields: Any,  # noqa: ANN401 (of the envelope)
) -> Mapping[str, Any]:
    """Return a change whose *payload* is complemented by what was *written*."""
    return {
        "timestampMicros": written_us,
        "operationType": operation,
        "sourceKeyspace": "k",
        "sourceTable": "t",
        "schemaUuid": bytes(16),
        "version": None,
        "isPartial": True,
        "truncatedFields": [],
        "isStatic": False,
        "ttl": None,
        "expires": None,
        "updateFields": list(written),
        "payload": {**payload, **written},
        "cells": [],
        "range": None,
        "mutation": bytes(16),
        "index": 0,
        "of": 1,
        "copies": 1,
        "node": "node1",
        "segment": 1,
        "position": 1,
    } | fields
