"""Avro bytes to other bytes: no value becomes a Python object."""
