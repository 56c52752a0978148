"""Writes commit log segments, from the description of the format alone (docs/commit-log.md).

It shares nothing with the reader but the schema: what one gets wrong the other does not repeat.
"""
