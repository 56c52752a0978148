"""Change history: a sink that keeps the changes of a table, and the queries of what it keeps."""
