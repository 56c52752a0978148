"""Basic modules that each room of the framework may use: clock, processes, job file, secrets."""
