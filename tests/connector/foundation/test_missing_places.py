"""What a job file names that is missing."""

from pathlib import Path

import pytest

from headrace.connector.foundation.missing_places import missing_places

RING = {"plugin": "cassandra", "schema": "schema.cql"}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"nodes": {"n1": "logs/n1", "n2": "logs/n2"}}, ["source.nodes.n2"]),
        ({"nodes": {"n2": {"path": "logs/n2"}, "n3": {"url": "https://h"}}}, ["source.nodes.n2"]),
        ({"nodes": {"n1": "logs/n1", "n2": "logs/n2"}, "absent": ["n2"]}, []),
        ({"nodes": {"n2": "${env:PLACE}"}}, []),
        ({"nodes": 7, "schema": "none.cql"}, ["source.schema"]),
    ],
)
def test_of_a_ring(tmp_path: Path, more: dict[str, object], expected: list[str]) -> None:
    """Each node's directory but of those that are gone or elsewhere, and the schema's file."""
    (tmp_path / "logs" / "n1").mkdir(parents=True)
    (tmp_path / "schema.cql").touch()

    found = list(missing_places(tmp_path, None, {"source": {**RING, **more}}))
    assert expected == [each.key for each in found]


def test_what_is_written_needs_its_folder(tmp_path: Path) -> None:
    """A file that is written need not be there, but its folder; so with the state."""
    for path, expected in (("out.jsonl", []), ("none/out.jsonl", ["sink.path"])):
        given = {"plugin": "files", "path": path}
        assert expected == [e.key for e in missing_places(tmp_path, None, {"sink": given})]
    for path, expected in (("state.db", []), ("none/state.db", ["state"])):
        assert expected == [each.key for each in missing_places(tmp_path, path, {})]
