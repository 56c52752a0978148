"""Decides when enough copies of a mutation agree, and hands out what was agreed."""
