"""The store for many machines: a keyspace of Cassandra."""
