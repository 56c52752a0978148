"""The control plane behind every interface: statements, validation, and the catalogue."""
