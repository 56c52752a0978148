"""A driver's report of each micro-batch: an event of the log, or a line on a terminal."""

import sys
from dataclasses import dataclass, field
from typing import Final, TextIO

import structlog

from headrace.plugins.amounts import size_text, span_text

_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class BatchLines:
    """Writes reports to `stream` if that is a terminal, else to the log."""

    log: structlog.stdlib.BoundLogger
    stream: TextIO = field(default_factory=lambda: sys.stderr)

    def tell(self, batch: int, records: int, took_ms: int, left_bytes: int | None) -> None:
        """Report the records of a batch, how long it took, and the bytes left to read, if known."""
        seconds = max(1, took_ms) / _MS
        rate = round(records / seconds)
        if not self.stream.isatty():
            self.log.info(
                "micro_batch",
                batch=batch,
                records=records,
                seconds=seconds,
                records_per_second=rate,
                **({} if left_bytes is None else {"left_bytes": left_bytes}),
            )
            return
        left = "" if left_bytes is None else f"; {size_text(left_bytes)} left to read"
        noun = "record" if records == 1 else "records"
        self.stream.write(
            f"batch {batch}: {records:,} {noun} in {span_text(seconds)}, {rate:,} a second{left}\n"
        )
        self.stream.flush()
