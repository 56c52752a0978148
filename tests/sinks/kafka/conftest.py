"""A broker in this process, and sinks that write into it."""

import pytest

from headrace.sinks.kafka.embedded import EmbeddedBroker
from helpers.servers.kafka_clients import way

__all__ = ["way"]


@pytest.fixture(scope="session")
def broker() -> EmbeddedBroker:
    """Return a broker in this process."""
    return EmbeddedBroker()
