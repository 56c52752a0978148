"""Histories in each store: a test that uses the fixture `each_store` runs with both."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.histories import places
from helpers.histories.places import Places, TablePlaces, table_places


@pytest.fixture(scope="session")
def node_places() -> Iterator[TablePlaces]:
    """Return the tables of a node."""
    with table_places() as made:
        yield made


@pytest.fixture(params=["file", "tables"])
def each_store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Places:
    """Have the histories of the test in a file, and then in tables."""
    made: Places = Places()
    if request.param == "tables":
        tables: TablePlaces = request.getfixturevalue("node_places")
        monkeypatch.chdir(tmp_path)
        tables.begin(tmp_path)
        made = tables
    monkeypatch.setattr(places, "chosen", made)
    return made
