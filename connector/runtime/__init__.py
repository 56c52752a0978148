"""Moving records: leases, pipeline, ledger, worker."""
