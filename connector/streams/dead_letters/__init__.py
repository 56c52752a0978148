"""The dead letters of a job, from their topic: typed records, and an app to watch them."""
