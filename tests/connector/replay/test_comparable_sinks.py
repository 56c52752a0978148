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
            check_comparable(sink, ["forged.t"])
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
        {"key.format": "text"},
        {"envelope": "flat"},
        {"envelope": "debezium", "format": "json"},
        {"transforms": "t", "transforms.t.type": "MaskField", "transforms.t.fields": "payload.v"},
    ],
)
def test_comparable(options: dict[str, str]) -> None:
    """Messages of every envelope, in Avro or JSON, can be compared, also transformed ones."""
    assert not refusal(options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "text"}, "sink.format: expected avro or json, found text"),
        (
            {"transforms": "t", "transforms.t.type": "ValueToKey", "transforms.t.fields": "table"},
            "sink.transforms.t: changes keys",
        ),
    ],
)
def test_not_comparable(options: dict[str, str], message: str) -> None:
    """The error names the option that prevents a comparison."""
    assert message in refusal(options)
