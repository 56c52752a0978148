"""The schema in force at each place of a log."""
