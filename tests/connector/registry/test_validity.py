"""Schemas that only fastavro takes."""

from collections.abc import Sequence
from typing import Any

import fastavro
import pytest

from headrace.connector.registry.validity import faults


def record(*names: object) -> dict[str, Any]:
    """Return the schema of a record with fields of these names."""
    return {"type": "record", "name": "R", "fields": [{"name": n, "type": "int"} for n in names]}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        pytest.param("string", [], id="a name"),
        pytest.param(record("a", "b", "_9"), [], id="fine"),
        pytest.param({**record("a"), "namespace": "x.y"}, [], id="namespace"),
        pytest.param({"type": "fixed", "name": "F", "size": 0}, [], id="size 0"),
        pytest.param(record("a", "a"), ["R: duplicate field a"], id="duplicate"),
        pytest.param(record("a-b"), ["R: illegal field name 'a-b'"], id="field name"),
        pytest.param(record(5), ["R: illegal field name 5"], id="field number"),
        pytest.param({**record(), "name": "R-x"}, ["illegal name 'R-x'"], id="name"),
        pytest.param({**record(), "name": "x..R"}, ["illegal name 'x..R'"], id="namespace empty"),
        pytest.param(
            {"type": "fixed", "name": "F", "size": -1}, ["F: expected a size, found -1"], id="size"
        ),
        pytest.param(
            {"type": "fixed", "name": "F", "size": True},
            ["F: expected a size, found True"],
            id="bool",
        ),
        pytest.param(
            ["null", {"type": "array", "items": {"type": "map", "values": record("a", "a")}}],
            ["R: duplicate field a"],
            id="inwards",
        ),
    ],
)
def test_faults_are_found(schema: Any, expected: Sequence[str]) -> None:  # noqa: ANN401 (Avro's)
    """Names that Avro forbids, fields of one name, sizes that are none."""
    assert expected == list(faults(fastavro.parse_schema(schema)))


def test_a_deep_schema_is_no_problem() -> None:
    """It may be deeper than Python's stack."""
    schema: Any = record("a-b")
    for _ in range(5_000):
        schema = {"type": "array", "items": schema}

    assert 1 == len(list(faults(schema)))
