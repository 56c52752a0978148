"""The embedded schema registry: Confluent's HTTP interface for Avro, over one SQLite file."""
