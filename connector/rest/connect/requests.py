"""Parses requests to Kafka Connect's paths; words errors as its clients expect."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from headrace.connector.control.entries import NAME_KEY
from headrace.connector.control.offsets import Offset
from headrace.connector.rest.exchange import RefusedError, an_object, kind, only

OFFSETS_MAX: Final = 10_000


def config_of(given: object, *, nulls: bool = False) -> dict[str, Any]:  # Any: a text, or None.
    """Return a connector config whose values are strings, as Connect makes them.

    Raises:
        RefusedError: it is not an object, or a value is not a string, number or boolean.

    """
    config = an_object(given, "a connector config")
    for key, value in config.items():
        if value is None:
            if not nulls:
                raise invalid(["Null value can not be supplied as the configuration value."])
        elif isinstance(value, bool):
            config[key] = str(value).lower()
        elif isinstance(value, str | int):
            config[key] = str(value)
        else:
            raise RefusedError(
                400, f"the value of {key[:80]!r} must be a text, found {kind(value)}"
            )
    return config


def offsets_of(given: object) -> Sequence[Offset]:
    """Return the offsets that a request gives. Raises RefusedError."""
    asked = an_object(given, "a request to alter offsets")
    only(asked, "offsets")
    offsets = asked.get("offsets") or []
    if not isinstance(offsets, list):
        raise RefusedError(400, f"offsets must be an array, found {kind(offsets)}")
    if not offsets:
        raise RefusedError(
            400, "Partitions / offsets need to be provided for an alter offsets request"
        )
    if len(offsets) > OFFSETS_MAX:
        raise RefusedError(400, f"more than {OFFSETS_MAX} offsets")
    made = []
    for item in offsets:
        part = an_object(item, "an offset")
        only(part, "partition", "offset")
        if part.get("partition") is None:
            raise RefusedError(400, "Partition objects cannot be null")
        partition = an_object(part["partition"], "a partition")
        offset = part.get("offset")
        if offset is not None:
            offset = an_object(offset, "an offset")
        for value in (*partition.values(), *(offset or {}).values()):
            if not isinstance(value, str | int) or isinstance(value, bool):
                raise RefusedError(400, f"expected strings and numbers, found {kind(value)}")
        made.append(Offset({k: str(v) for k, v in partition.items()}, offset))
    return made


def named(config: Mapping[str, str], name: str) -> dict[str, str]:
    """Return *config* with its name, as the last key if it had none."""
    given = config.get(NAME_KEY, name)
    if given != name:
        raise RefusedError(
            400,
            f"Connector name configuration ({given}) doesn't match connector name in the URL "
            f"({name})",
        )
    return {**config, NAME_KEY: name}


def invalid(errors: Sequence[str]) -> RefusedError:
    """Return Connect's response to a config with *errors*."""
    listed = "\n".join(errors)
    return RefusedError(
        400,
        f"Connector configuration is invalid and contains the following {len(errors)} error(s):\n"
        f"{listed}\nYou can also find the above list of errors at the endpoint "
        "`/connector-plugins/{connectorType}/config/validate`",
    )
