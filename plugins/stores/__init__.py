"""What a store is, and the key-value interface that it can be written over."""
