"""A state file and third-party plugins for the tests of the control service."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.connector.control.service import ControlService
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.open_control_store import open_notes
from helpers.jobs import toys
from helpers.stores.shared import Kept, shared_notes


@pytest.fixture(autouse=True)
def _toys(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    toys.install(tmp_path_factory.mktemp("toys"), monkeypatch)


@pytest.fixture
def connection(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[NoteCopy]:
    """Return a connection to a new state file, or to a store that machines share."""
    path = tmp_path / "state.db"
    shared = getattr(request, "param", "file") == "shared"
    opened = shared_notes(Kept(path)) if shared else open_notes(path)
    with contextlib.closing(opened):
        yield opened


@pytest.fixture
def service(connection: NoteCopy) -> ControlService:
    """Return a control service on a new state file."""
    return ControlService(connection)
