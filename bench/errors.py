"""What a measurement raises."""


class ProbeFailedError(Exception):
    """A measured process failed, or did not do what it was measured at."""
