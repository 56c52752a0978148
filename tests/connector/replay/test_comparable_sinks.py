"""Sinks whose messages can be compared with logs, and what is told of the others."""

import pytest

from headrace.connector.replay.delivery import sink_and_encoder
from headrace.connector.replay.options import check_comparable
from headrace.plugins import NO_ORIGIN, ConfigError

SINK = {"plugin": "kafka", "bootstrap.servers": "localhost:1", "topic": "t"}


def refusal(options: dict[str, str]) -> str:
    """Return what is told of a sink with these options; nothing, if it can be compared."""
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
    """Messages in cep44, in Avro or JSON, with keys that leave them their names."""
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
    """The option that is in the way is named."""
    assert message in refusal(options)
