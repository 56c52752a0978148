"""The default store: one SQLite file for the processes of one machine."""
