"""A stranger's plugins, for commands that list plugins or make them."""

import pytest

from helpers.jobs import toys


@pytest.fixture(autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a stranger's plugins."""
    toys.install(tmp_path_factory.mktemp("toys"), monkeypatch)
