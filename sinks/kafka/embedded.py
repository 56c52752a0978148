"""A Kafka broker for demos and tests, in its own process: librdkafka's mock cluster.

Not for important data: it keeps messages in memory, and silently drops the oldest beyond 5 MiB or
100,000 messages per partition, so consume while you produce.
"""

import os
import select
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from confluent_kafka import Producer

from headrace.plugins.config.arguments import CommandParser

_START_SECONDS: Final = 10


class EmbeddedBroker:
    """A mock cluster that lives as long as this object."""

    def __init__(self, brokers: int = 1) -> None:
        """Start *brokers* brokers on free loopback ports."""
        self._cluster = Producer(
            {
                "bootstrap.servers": "127.0.0.1:1",  # Replaced by that of the mock.
                "test.mock.num.brokers": brokers,
                "log_level": 2,
            }
        )
        found = self._cluster.list_topics(timeout=_START_SECONDS).brokers.values()
        self.bootstrap_servers = ",".join(f"{broker.host}:{broker.port}" for broker in found)


def main(arguments: Sequence[str]) -> int:
    """Run a Kafka broker that keeps messages in memory.

    Example: headrace embedded-broker

    It ends with SIGTERM, SIGINT, or the end of standard input. Returns 0.
    """
    parser = CommandParser(
        prog="headrace embedded-broker",
        description="Run a throw-away Kafka broker that keeps messages in memory; "
        "its address is the one line it prints. It ends when standard input does.",
    )
    parser.add_argument("--port-file", type=Path, metavar="F", help="write the address there too")
    parser.add_argument("--brokers", type=int, default=1, choices=range(1, 10), metavar="N")
    options = parser.parse_args(arguments)

    # Signals arrive through the pipe, so that one wait serves both ways to end.
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _noted)

    broker = EmbeddedBroker(options.brokers)
    if options.port_file:
        options.port_file.write_text(broker.bootstrap_servers + "\n", encoding="utf-8")
    print(broker.bootstrap_servers, flush=True)  # noqa: T201 (the command's output)
    inputs = [wake_read, sys.stdin.fileno()]
    while True:
        readable, _, _ = select.select(inputs, [], [])
        if wake_read in readable or not os.read(sys.stdin.fileno(), 4096):
            return 0


def _noted(number: int, frame: FrameType | None) -> None:
    """Do nothing: the byte in the pipe is enough."""
