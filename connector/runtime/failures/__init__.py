"""What happens to records, calls and tables that fail."""
