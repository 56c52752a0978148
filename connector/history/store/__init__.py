"""Where a history keeps its changes and the states of rows."""
