"""The files of the pages."""

import hashlib
import json

import pytest

from headrace.connector.rest.console.pages import static_files, tone


def test_what_others_made_is_as_it_was_taken() -> None:
    """Each vendored file has the hash that was recorded with its version and licence."""
    files = static_files()
    (uplot,) = json.loads(files["vendored.json"][0]).values()
    ours = {"console.css", "console.js", "icon.svg", "vendored.json"}

    assert ("1.6.32", "MIT") == (uplot["version"], uplot["licence"])
    assert b"1.6.32" in files["uPlot.iife.min.js"][0][:100]
    assert files.keys() - ours == uplot["sha256"].keys()
    for name, expected in uplot["sha256"].items():
        assert expected == hashlib.sha256(files[name][0]).hexdigest(), name


@pytest.mark.parametrize(
    ("state", "expected"),
    [("RUNNING", "good"), ("FAILED", "bad"), ("STALLED", "waiting"), ("PAUSED", "idle")],
)
def test_tones(state: str, expected: str) -> None:
    """A state looks as it is."""
    assert expected == tone(state)
