"""The checks of `headrace doctor` that only the Cassandra source can make."""
