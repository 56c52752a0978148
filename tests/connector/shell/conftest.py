"""A session on a new state file, among a stranger's plugins."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.jobs import toys
from helpers.jobs.shells import Seen, opened


@pytest.fixture
def installed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a stranger's plugins."""
    toys.install(tmp_path_factory.mktemp("toys"), monkeypatch)


@pytest.fixture
def seen(tmp_path: Path, installed: None) -> Iterator[Seen]:  # noqa: ARG001 (for its effect)
    """Return an interactive session."""
    with opened(tmp_path / "state.db") as session:
        yield session
