"""Which sinks have messages that can be compared with logs, and the errors of the others."""

import pytest

from headrace.connector.replay.delivery import sink_and_encoder
from headrace.connector.replay.options import check_comparable
from headrace.plugins import NO_ORIGIN, ConfigError

SINK = {"plugin": "kafka", "bootstrap.servers": "localhost:1", "topic": "t"}


def refusal(options: dict[str, str]) -> str:
    """Return the error of a sink with these options, or "" if it can be compared."""
    try:
        with sink_and_encoder({**SINK, **options}, "test", NO_ORIGIN) as (sink, _):
            check_comparable(sink)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"format": "json"},
        {"format": "json", "key.format": "avro"},
        {"format": "avro", "key.format": "avro", "key": "primary"},
    ],
)
def test_comparable(options: dict[str, str]) -> None:
    """Messages in cep44, in Avro or JSON, with keys that identify their rows, can be compared."""
    assert not refusal(options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"envelope": "flat"}, "sink.envelope: expected cep44, found flat"),
        ({"key.format": "text"}, "sink.key.format: expected avro, found text"),
        (
            {"transforms": "t", "transforms.t.type": "ValueToKey", "transforms.t.fields": "table"},
            "sink.transforms: expected none, found t",
        ),
        (
            {"format": "json", "key.format": "text"},
            "sink.key.format: expected json or avro, found text",
        ),
    ],
)
def test_not_comparable(options: dict[str, str], message: str) -> None:
    """The error names the option that prevents a comparison."""
    assert message in refusal(options)
