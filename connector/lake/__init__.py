"""Tables of lakes as sinks: changes as rows that are added, or the newest state of each row."""
