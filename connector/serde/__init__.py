"""Generic records to wire bytes, for batches that cannot encode themselves."""

from headrace.connector.serde.records import SCHEMA_ID_HEADER, UnfitRecordError, codec

__all__ = ["SCHEMA_ID_HEADER", "UnfitRecordError", "codec"]
