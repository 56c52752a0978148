"""Reads the lag of splits in bulk, under the leases of their job."""
