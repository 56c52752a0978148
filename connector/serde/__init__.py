"""Encodes generic records as messages, for batches that cannot encode themselves."""

from headrace.connector.serde.codecs.records import UnfitRecordError, codec
from headrace.connector.serde.encoder import Encoder

__all__ = ["Encoder", "UnfitRecordError", "codec"]
