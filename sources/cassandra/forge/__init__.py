"""Writes commit log segments, from the description of the format alone (docs/commit-log.md).

It shares only the schema with the reader, so neither repeats the other's errors.
"""
