"""Codecs: one record to the bytes of its key and its value."""
