"""The source that reads the commit logs of all replicas of a Cassandra cluster."""
