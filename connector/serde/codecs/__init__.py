"""Codecs: encode a record's key and value."""
