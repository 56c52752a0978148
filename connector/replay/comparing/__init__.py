"""Compares the contents of logs, topics, tables and files, and reports the differences."""
