"""Folds changes into rows, by the rules of Cassandra, in any order."""
