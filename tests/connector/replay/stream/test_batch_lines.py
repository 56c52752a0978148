"""What a driver says of a micro-batch."""

import io

import pytest
import structlog
from structlog.testing import capture_logs

from headrace.connector.replay.stream.batch_lines import BatchLines


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ((3, 12_345, 4_100, 1 << 30), "batch 3: 12,345 records in 4.1 s, 3,011 a second; 1.0 GiB"),
        ((0, 1, 0, None), "batch 0: 1 record in 0.0 s, 1,000 a second"),
    ],
)
def test_on_a_terminal(given: tuple[int, int, int, int | None], line: str) -> None:
    """A batch is a line in words, and no event."""
    stream = Terminal()
    with capture_logs() as logged:
        BatchLines(structlog.stdlib.get_logger(), stream).tell(*given)

    assert [] == logged
    end = " left to read\n" if given[-1] is not None else "\n"
    assert line + end == stream.getvalue()


def test_elsewhere() -> None:
    """A batch is an event with figures, and no line."""
    stream = io.StringIO()
    with capture_logs() as logged:
        lines = BatchLines(structlog.stdlib.get_logger(), stream)
        lines.tell(3, 12_345, 4_100, 7)
        lines.tell(4, 1, 1_000, None)

    reported = {"event": "micro_batch", "log_level": "info"}
    first = {"batch": 3, "records": 12_345, "seconds": 4.1, "records_per_second": 3_011}
    second = {"batch": 4, "records": 1, "seconds": 1.0, "records_per_second": 1}
    assert [reported | first | {"left_bytes": 7}, reported | second] == logged
    assert not stream.getvalue()
