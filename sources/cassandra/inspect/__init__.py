"""The command `headrace inspect`."""
