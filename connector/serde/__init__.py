"""Generic records to wire bytes, for batches that cannot encode themselves."""

from headrace.connector.serde.encoder import Encoder
from headrace.connector.serde.records import UnfitRecordError, codec

__all__ = ["Encoder", "UnfitRecordError", "codec"]
