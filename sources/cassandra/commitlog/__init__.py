"""Turns the bytes of a commit log segment into entries; reads no files."""
