"""The position of a split: its parts, its gaps, and how positions are divided and merged."""
