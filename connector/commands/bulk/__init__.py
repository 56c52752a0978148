"""The commands of bulk work, and of jobs on Spark: those that need an extra."""
