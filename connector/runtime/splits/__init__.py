"""The assignment of splits to workers, and the run of a split."""
