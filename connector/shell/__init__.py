"""The shell: statements, CQL, and its own commands."""
