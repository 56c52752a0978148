"""The two ways to produce, for tests that run with each."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import KafkaError, Message, Producer

from headrace.sinks.kafka import clients
from headrace.sinks.kafka.clients.client import Reports

if TYPE_CHECKING:
    from headrace.sinks.kafka.clients.librdkafka import Handle

DIRECT: Final = "direct"
CONFLUENT: Final = "confluent"
WAYS: Final = (CONFLUENT,) if clients.why_not_direct() else (DIRECT, CONFLUENT)


def choose(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sinks of this process produce in one way, and not in the other."""
    reason = "" if way == DIRECT else "as the test asks for"
    monkeypatch.setattr(clients, "why_not_direct", lambda: reason)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with each way to produce, and say which it is."""
    chosen: str = request.param
    choose(chosen, monkeypatch)
    return chosen


def faulty(
    way: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    skipped: Collection[bytes | None],
    twice: Collection[bytes | None],
) -> None:
    """Let clients lose messages of the values *skipped*, and report those of *twice* two times."""
    if way == CONFLUENT:
        monkeypatch.setattr(
            "headrace.sinks.kafka.clients.confluent.Producer", _faulty_producer(skipped, twice)
        )
    else:
        monkeypatch.setattr(
            "headrace.sinks.kafka.clients.direct.Handle", _faulty_handle(skipped, twice)
        )


def _faulty_producer(
    skipped: Collection[bytes | None], twice: Collection[bytes | None]
) -> type[Producer]:
    class Faulty(Producer):
        def produce(self, *message: Any, **_: Any) -> None:  # noqa: ANN401 (the client's own)
            topic, value, key, partition, report, *more = message

            def reports(error: KafkaError | None, message: Message) -> None:
                for _ in range(2 if value in twice else 1):
                    report(error, message)

            if value not in skipped:
                super().produce(topic, value, key, partition, reports, *more)

    return Faulty


def _faulty_handle(
    skipped: Collection[bytes | None], twice: Collection[bytes | None]
) -> "type[Handle]":
    from headrace.sinks.kafka.clients.librdkafka import Handle  # noqa: PLC0415 (where it can be)

    class Faulty(Handle):
        def produce(self, reports: Reports, begin: int, end: int) -> tuple[int, int]:
            for number in range(begin, end):
                if reports.messages.values[number] not in skipped:
                    super().produce(reports, number, number + 1)
            return end, 0

        def reported(self) -> Sequence[tuple[Reports, int, Sequence[tuple[int, int]]]]:
            found = list(super().reported())
            for reports, _, _ in found.copy():
                for number, value in enumerate(reports.messages.values):
                    if value in twice and reports.times[number] == 1:
                        reports.times[number] += 1
                        found.append((reports, 1, []))
            return found

    return Faulty
