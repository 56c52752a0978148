"""What statements say about snapshots of tables."""
