"""The page on HTTP has every option, key and path."""

import re
from pathlib import Path

import pytest

from headrace.connector.control.services import CdcService
from headrace.connector.rest.config import RestConfig
from headrace.plugins import declared_options
from helpers.servers.rest_server import RestWorker
from helpers.settings.native_modules import ROOT

PAGE = (Path(ROOT) / "docs" / "rest.md").read_text()


@pytest.mark.parametrize("config_class", [RestConfig, CdcService])
def test_options(config_class: type) -> None:
    """Every option is in a table, and so is its default."""
    options = declared_options(config_class)
    assert options
    for key, (field, _) in options.items():
        line = next((li for li in PAGE.splitlines() if li.startswith("|") and f"`{key}`" in li), "")
        assert line, key
        if isinstance(field.default, int | str) and field.default is not None:
            assert f"`{str(field.default).lower()}`" in line.lower(), key


def test_paths(served: RestWorker) -> None:
    """Every path of our own, as its description has it, is on the page."""
    paths = served.client("GET", "/openapi.json").json["paths"]
    assert paths
    for path in paths:
        last = re.sub(r"\{\w+\}", "", path).rstrip("/").rpartition("/")[2]
        assert last in PAGE, path
