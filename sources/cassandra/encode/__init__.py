"""Writes agreed mutations as Avro bytes, by a plan for each table."""
