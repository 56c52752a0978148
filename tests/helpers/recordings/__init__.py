"""Recorded logs, and the forms in which they are compared."""
