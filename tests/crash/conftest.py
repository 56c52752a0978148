"""What starts jobs that are killed."""

from collections.abc import Iterator

import pytest

from helpers.jobs.kill_server import KillServer


@pytest.fixture(scope="session")
def server() -> Iterator[KillServer]:
    """Return what starts jobs in a few milliseconds."""
    with KillServer() as made:
        yield made
