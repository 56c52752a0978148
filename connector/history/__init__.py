"""Change history: a sink that stores the changes of a table, and queries of them."""
