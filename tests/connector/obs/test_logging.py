"""The log says what happened to rows, and never what is in them."""

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import structlog

from headrace.connector.obs.logging import FRAMES_MAX, configure, set_threshold
from headrace.plugins import CloseReason, FatalError
from headrace.plugins.testing.doubles import sample_records

CELL = "Ann"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """Return the JSON lines of *stream*."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_off_a_terminal() -> None:
    """A line is one JSON object with event, level, time and the fields."""
    stream = io.StringIO()
    configure(stream=stream)
    structlog.get_logger().bind(job="orders", split="0").info("split_started", position=7)
    (line,) = lines(stream)
    timestamp = line.pop("timestamp")

    assert timestamp.endswith("Z")
    assert {
        "event": "split_started",
        "level": "info",
        "job": "orders",
        "split": "0",
        "position": 7,
    } == line


def test_text_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person reads text, with colours unless NO_COLOR is set."""
    stream = Terminal()
    configure(stream=stream)
    structlog.get_logger().info("split_started", position=7)
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal()
    configure(stream=plain)
    structlog.get_logger().info("split_started", position=7)

    assert "\x1b[" in stream.getvalue()
    assert "\x1b[" not in plain.getvalue()
    assert "position=7" in plain.getvalue()


@pytest.fixture
def package() -> Iterator[logging.Logger]:
    """Return the logger of a package that is not ours; its level and the root's are put back."""
    found, root = logging.getLogger("cassandra.cluster"), logging.getLogger()
    before = found.level, root.level
    yield found
    found.setLevel(before[0])
    root.setLevel(before[1])


def test_the_level_rises_for_other_packages(package: logging.Logger) -> None:
    """A level that is set later holds for them too; a record below it raises nothing."""
    stream = io.StringIO()
    configure("info", stream)
    set_threshold("error")
    package.warning("a")
    package.error("b")
    set_threshold("debug")
    package.info("c")
    package.warning("d")

    assert ["b", "d"] == [line["event"] for line in lines(stream)]


def test_the_level_of_a_package(package: logging.Logger) -> None:
    """A package whose own level is lower than ours is logged from that level on."""
    stream = io.StringIO()
    configure("info", stream)
    package.setLevel("DEBUG")
    package.debug("a")

    assert ["a"] == [line["event"] for line in lines(stream)]


@pytest.mark.parametrize(
    ("level", "expected"),
    [("debug", ["a", "b", "c", "d"]), ("info", ["b", "c", "d"]), ("error", ["d"])],
)
def test_level(level: str, expected: list[str]) -> None:
    """Less than the level is not written."""
    stream = io.StringIO()
    configure(level, stream)
    log = structlog.get_logger()
    log.debug("a")
    log.info("b")
    log.warning("c")
    log.error("d")

    assert expected == [line["event"] for line in lines(stream)]


def test_other_packages() -> None:
    """Other packages log into the same stream, from warnings on, and only once."""
    stream = io.StringIO()
    configure("debug", io.StringIO())
    configure("debug", stream)
    logging.getLogger("cassandra").info("connected")
    logging.getLogger("cassandra").warning("host %s is down", "node1")
    (line,) = lines(stream)

    assert ("host node1 is down", "warning", "cassandra") == (
        line["event"],
        line["level"],
        line["logger"],
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, 7),
        (1.5, 1.5),
        (None, None),
        (True, True),
        ("ks.t", "ks.t"),
        (CloseReason.FAILED, "failed"),
        (Path("a/b"), "a/b"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (["a", 1], ["a", 1]),
        ({"entries.read": 3}, {"entries.read": 3}),
        ({"name": CELL}, "<dict>"),
        ([CELL.encode()], "<list>"),
        (CELL.encode(), "<bytes>"),
        (memoryview(CELL.encode()), "<memoryview>"),
        (sample_records(1)[0], "<Record>"),
        (ValueError(CELL), "<ValueError>"),
    ],
)
def test_fields(value: object, expected: object) -> None:
    """A field shows numbers, names and counters; what may hold part of a row shows its type."""
    stream = io.StringIO()
    configure(stream=stream)
    structlog.get_logger().info("event", field=value)

    assert expected == lines(stream)[0]["field"]


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()], ids=["json", "terminal"])
def test_exception_hides_values(stream: io.StringIO) -> None:
    """Neither the locals of a frame, nor its source, nor a foreign message reaches the log."""
    configure(stream=stream)

    def fail(cell: str) -> None:
        int(cell)

    try:
        fail(CELL)
    except ValueError:
        structlog.get_logger().exception("read_failed")
        logging.getLogger("other").exception("read failed")

    assert CELL not in stream.getvalue()
    assert "ValueError" in stream.getvalue()
    assert "test_logging.py" in stream.getvalue()


def test_own_exception() -> None:
    """One of our errors shows its code, message and place."""
    stream = io.StringIO()
    configure(stream=stream)
    structlog.get_logger().error("failed", exc_info=FatalError("torn", place="a.log, byte 7"))
    (line,) = lines(stream)

    assert ("FatalError", "fatal", "torn", "a.log, byte 7", []) == (
        line["error"],
        line["error_code"],
        line["error_message"],
        line["error_place"],
        line["frames"],
    )


def test_frames_are_bounded() -> None:
    """A deep recursion logs its innermost frames only."""
    stream = io.StringIO()
    configure(stream=stream)

    def dive(depth: int) -> None:
        if not depth:
            raise ZeroDivisionError
        dive(depth - 1)

    try:
        dive(100)
    except ZeroDivisionError:
        structlog.get_logger().exception("deep")

    assert FRAMES_MAX == len(lines(stream)[0]["frames"])
