"""What benchmarks with a real broker have in common: their options, and the broker."""

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def broker_parser(module: str, description: str | None, *, runs: int) -> argparse.ArgumentParser:
    """Return a parser of the options that all of them have; *runs* is a default."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--runs", type=int, default=runs, help="how often each is measured")
    parser.add_argument("--bootstrap-servers", help="real brokers; without it one is started")
    parser.add_argument("--no-alarm", action="store_true", help="never fail for being slow")
    return parser


@contextmanager
def brokers(given: argparse.Namespace) -> Iterator[tuple[str, Path]]:
    """Give the bootstrap servers that the options name, or a broker of our own, and a folder."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        if given.bootstrap_servers:
            yield given.bootstrap_servers, Path(name)
            return
        # Its class is found where the tests that need Java are.
        from real.servers.kafka import Kafka  # noqa: PLC0415 (not needed with brokers that are given)

        with Kafka(Path(name) / "broker") as broker:
            yield broker.bootstrap_servers, Path(name)
