"""Moves records from sources to sinks: leases, pipeline, ledger, worker."""
