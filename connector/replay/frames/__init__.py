"""The data sources of Spark: segments, tables and topics as frames, and a job's sink."""
