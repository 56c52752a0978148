"""Third-party plugins, for commands that list plugins or create them."""

import pytest

from helpers.jobs import toys


@pytest.fixture(autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install third-party plugins."""
    toys.install(tmp_path_factory.mktemp("toys"), monkeypatch)
