"""Decides when enough copies of a mutation agree, and provides the agreed mutations."""
