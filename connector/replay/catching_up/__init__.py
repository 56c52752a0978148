"""Reads in bulk what splits lag behind, under the leases of their job."""
