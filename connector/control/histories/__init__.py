"""Statements about change histories: CREATE CDC and similar ones, and SELECT."""
