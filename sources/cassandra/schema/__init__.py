"""Tables and types: DDL, system_schema and live metadata."""
