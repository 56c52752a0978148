"""Cassandra's own reader, run here, finds what it found when the recordings were made."""

import json
from typing import Any

import pytest

from helpers.logs.sample_log import segments
from helpers.recordings.corpora import recording
from real.servers import oracle

pytestmark = pytest.mark.real


def without_comments(document: Any) -> Any:  # noqa: ANN401 (JSON)
    """Return *document* without the members `text`, which are not compared."""
    if isinstance(document, list):
        return [without_comments(item) for item in document]
    if not isinstance(document, dict):
        return document
    return {k: without_comments(v) for k, v in document.items() if k != "text"}


def test_it_prints_what_it_printed() -> None:
    """A recorded log of version 8 gives the same mutations, object for object."""
    folder = recording("5.0-v8-ops")
    found = oracle.mutations((folder / "schema.cql").read_text(), segments(folder / "segments"))
    expected = (folder / "oracle.jsonl").read_text().splitlines()
    assert [without_comments(json.loads(line)) for line in expected] == found
