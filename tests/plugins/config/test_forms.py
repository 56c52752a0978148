"""One declaration gives forms, schemas and tables that agree with the check."""

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from headrace.plugins import ConfigError, Problem, option, parse_config
from headrace.plugins.config.forms import check_options, definitions, json_schema, options_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Options of all kinds."""

    host: str = option("Where.", name="the.host")
    port: int = option("Which door.", default=9042, minimum=1, maximum=65535)
    mode: str = option("How.", default="fast", choices=("fast", "safe"))
    ratio: float = option("How much.", default=0.5)
    dry: bool = option("Only try.", default=False)
    tables: tuple[str, ...] = option("Which.", default=("a", "b"))
    password: str | None = option("A secret.", default=None, secret=True)
    extras: Mapping[str, str] = option("The rest.", keys_allowed=r"x\..*")

    def __post_init__(self) -> None:
        """Check across."""
        if self.mode == "safe" and self.dry:
            raise ConfigError([Problem("dry", "cannot be safe")])


def test_definitions() -> None:
    """Kinds are those that Kafka Connect's clients know; a secret has no default to show."""
    found = {d.key: (d.kind, d.required, d.default) for d in definitions(Sample)}

    assert {
        "the.host": ("STRING", True, None),
        "port": ("LONG", False, "9042"),
        "mode": ("STRING", False, "fast"),
        "ratio": ("DOUBLE", False, "0.5"),
        "dry": ("BOOLEAN", False, "false"),
        "tables": ("LIST", False, "a,b"),
        "password": ("PASSWORD", False, None),
    } == found
    assert [1, 2, 3, 4, 5, 6, 7] == [d.order for d in definitions(Sample)]


@pytest.mark.parametrize(
    ("given", "key", "error"),
    [
        ({}, "the.host", 'Missing required configuration "the.host" which has no default value.'),
        ({"the.host": "h", "port": "0"}, "port", "Invalid value 0 for configuration port: Must be"),
        ({"the.host": "h", "prot": "1"}, "prot", "Is not an option (did you mean port?)"),
        ({"the.host": "h", "mode": "saef"}, "mode", "did you mean safe?"),
        ({"the.host": "h", "mode": "safe", "dry": "true"}, "dry", "Cannot be safe"),
    ],
)
def test_errors(given: dict[str, str], key: str, error: str) -> None:
    """Each mistake is under its key, in the words of the clients, and there is no other."""
    found = {option.key: option.errors for option in check_options(Sample, given) if option.errors}

    assert [key] == list(found)
    assert error in found[key][0]


def test_values() -> None:
    """A form shows what was given, else the default; no secret, and nothing undeclared."""
    given = {"the.host": "h", "password": "canary", "x.y": "z"}
    found = {option.key: option.value for option in check_options(Sample, given)}

    assert ("h", "9042", None, None) == (
        found["the.host"],
        found["port"],
        found["password"],
        found["x.y"],
    )


@pytest.mark.parametrize("key", ["password", "sasl.jaas.config", "prot", "x.secret", ""])
def test_only_declared_values_are_shown(key: str) -> None:
    """Neither the form nor an error repeats the value of a secret or of an undeclared key."""
    elsewhere = [Problem(key, "is wrong")]
    found = check_options(Sample, {"the.host": "h", key: "canary"}, problems=elsewhere)

    assert key in [checked.key for checked in found if checked.errors]
    assert "canary" not in str(found)


def test_json_schema() -> None:
    """The schema says what the check says, of types, bounds and unknown keys."""
    schema = json_schema(Sample, title="sample")

    assert (["the.host"], False) == (schema["required"], schema["additionalProperties"])
    assert {
        "description": "Which door.",
        "type": "integer",
        "minimum": 1,
        "maximum": 65535,
        "default": 9042,
    } == schema["properties"]["port"]
    assert ["fast", "safe"] == schema["properties"]["mode"]["enum"]
    assert (["string", "null"], True) == (
        schema["properties"]["password"]["type"],
        schema["properties"]["password"]["writeOnly"],
    )
    assert ["^(?:x\\..*)$"] == list(schema["patternProperties"])
    assert parse_config(Sample, {"the.host": "h", "x.a": "1"}).extras == {"x.a": "1"}


def test_table() -> None:
    """The table has a line for each option."""
    lines = options_table(Sample).splitlines()

    assert "| `the.host` | required | Where. |" in lines
    assert "| `mode` | `fast` | How. One of `fast`, `safe`. |" in lines
    assert "| `password` | none | A secret. |" in lines
    assert 10 == len(lines)
