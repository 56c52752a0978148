"""The commands about users: passwords and the audit log."""
