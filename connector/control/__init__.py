"""One control plane behind every door: statements, validation, and the catalogue they change."""
