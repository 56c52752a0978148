"""The options and orders of runs that statements request."""
