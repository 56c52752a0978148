"""No third-party plugins but those that a test installs."""

import pytest


@pytest.fixture(autouse=True)
def installed() -> None:
    """Install none."""
