"""What can be configured is told by the declarations themselves."""

import json

import pytest

from headrace.connector.control.options_command import main
from headrace.plugins import ConfigError


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a name, everything that has options is listed."""
    assert 0 == main([])
    assert {"job", "runtime", "KafkaSink", "CassandraCdcSource"} <= set(
        capsys.readouterr().out.split()
    )


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    """A plugin's options are a table."""
    assert 0 == main(["BusSink"])
    assert "| `bus.stops` | required | Where it stops. |" in capsys.readouterr().out


def test_schema(capsys: pytest.CaptureFixture[str]) -> None:
    """A section's options are a JSON Schema."""
    assert 0 == main(["runtime", "--format", "json-schema"])
    schema = json.loads(capsys.readouterr().out)
    assert 100 == schema["properties"]["tick_min_ms"]["default"]
    assert not schema["additionalProperties"]


def test_unknown() -> None:
    """What has no options is a named error."""
    with pytest.raises(ConfigError, match="nothing named 'Nope'"):
        main(["Nope"])
