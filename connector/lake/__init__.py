"""Tables of lakes as sinks: an added row for each change, or the newest state of each row."""
