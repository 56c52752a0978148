"""Compares the writes to the ring with the changes that the consumer received. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from headrace.connector.demo.consumer import Received
from headrace.connector.runtime.books.figures import Figures

EXAMPLES_MAX: Final = 3

Json = Mapping[str, Any]  # Any: JSON.


class Checked(msgspec.Struct, frozen=True):
    """The result of the comparison; `problems` is empty unless changes are lost or unexplained."""

    written: int
    received: int
    repeated: int
    problems: Sequence[str]

    def text(self, figures: Figures) -> str:
        """Return the result in a line."""
        parts = [f"{self.written:,} writes, {self.received:,} received"]
        if self.repeated:
            named = f"{self.repeated:,} came again, of at most {figures.repeated:,} that are named"
            parts.append(f"{named} as possibly repeated")
        elif not self.problems:
            parts.append("each once")
        return f"check: {'; '.join(parts)}: {'FAILED' if self.problems else 'passed'}"


def written_of(line: bytes) -> bytes:
    """Return the canonical form of a write, from a line of the ring's own list."""
    write = msgspec.json.decode(line)
    return _canonical(
        write["table"],
        write["operation"],
        write["timestampMicros"],
        write["key"],
        write["values"],
    )


def received_of(record: Received) -> bytes:
    """Return the canonical form of a received change."""
    value = record.value
    present = {name: each for name, each in value["payload"].items() if each is not None}
    return _canonical(
        f"{value['sourceKeyspace']}.{value['sourceTable']}",
        value["operationType"],
        value["timestampMicros"],
        record.key,
        present,
    )


def check(
    written: Iterable[bytes],
    received: "Counter[bytes]",
    figures: Figures,
    failures: Sequence[str] = (),
) -> Checked:
    """Compare: each write must have come once, or repeated as often as the books permit."""
    wanted = Counter(written)
    lost = wanted.keys() - received.keys()
    strange = received.keys() - wanted.keys()
    again = sum(count - wanted[each] for each, count in received.items() if each in wanted)
    problems = list(failures)
    if lost:
        problems.append(f"{len(lost):,} writes were not received")
    if strange:
        problems.append(f"{len(strange):,} changes were received that were not written")
    if again > figures.repeated:
        named = f"{figures.repeated:,} are named as possibly repeated"
        problems.append(f"{again:,} changes came again, where at most {named}")
    if figures.differences:
        problems.append(f"{figures.differences} equations of the books do not hold")
    problems += [f"lost: {each.decode()}" for each in sorted(lost)[:EXAMPLES_MAX]]
    problems += [f"not written: {each.decode()}" for each in sorted(strange)[:EXAMPLES_MAX]]
    return Checked(wanted.total(), received.total(), again, problems)


def _canonical(table: str, operation: str, time_us: int, key: Json, values: Json) -> bytes:
    return msgspec.json.encode([table, operation, time_us, key, values], order="deterministic")
