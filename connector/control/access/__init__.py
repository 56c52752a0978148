"""Who may change what, and the record of every attempt."""
