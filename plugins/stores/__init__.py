"""The interface of a store, and the key-value interface below it."""
