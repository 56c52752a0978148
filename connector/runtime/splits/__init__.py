"""Which worker owns which split, and one split while it runs."""
