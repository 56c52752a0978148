"""Converts Avro bytes to other bytes without making Python objects of values."""
