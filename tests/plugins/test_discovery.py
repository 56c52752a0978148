"""Plugins are found by name, and a broken one affects only the job that uses it."""

import sys
from pathlib import Path

import pytest

from headrace.plugins import ConfigError, MissingRequirementError, discovery

ENTRY_POINTS = """\
[headrace.sources]
good = json:JSONDecoder
typo = json:JSONDekoder
gone = no_such_module:Source
torn = stranger_torn:Source
twice = json:JSONDecoder
[headrace.sinks]
other = json:JSONEncoder
levelled = stranger_levels:Levelled
future = stranger_levels:Future
worded = stranger_levels:Worded
"""
LEVELS = f"""\
class Levelled:
    api_level = {discovery.API_LEVEL}

class Future:
    api_level = {discovery.API_LEVEL + 1}

class Worded:
    api_level = "one"
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two strangers' distributions, with plugins that work and plugins that do not."""
    for name, text in {
        "stranger": ENTRY_POINTS,
        "rival": "[headrace.sources]\ntwice = json:JSONEncoder\n",
    }.items():
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(text)
    (tmp_path / "stranger_levels.py").write_text(LEVELS)
    (tmp_path / "stranger_torn.py").write_text("raise ZeroDivisionError('at import')\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("installed")
def test_names() -> None:
    """Listing names every plugin of its group, broken ones too, and imports none of them."""
    found = discovery.names("sources")

    assert {"good", "typo", "gone", "torn", "twice"} <= set(found)
    assert "other" not in found
    assert "stranger_torn" not in sys.modules


@pytest.mark.usefixtures("installed")
def test_load() -> None:
    """A plugin is the object that its entry point names."""
    assert "JSONDecoder" == discovery.load("sources", "good").__name__


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("typo", "AttributeError: module 'json' has no attribute 'JSONDekoder'"),
        ("gone", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("torn", "ZeroDivisionError: at import"),
    ],
)
def test_broken(name: str, why: str) -> None:
    """A plugin that cannot be imported is a named error with its place, and no other's fault."""
    with pytest.raises(MissingRequirementError, match=f"plugin '{name}' cannot be imported: {why}"):
        discovery.load("sources", name)

    assert "JSONDecoder" == discovery.load("sources", "good").__name__


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("group", "name", "message", "hint"),
    [
        ("sources", "god", "no source named 'god'", "did you mean good?"),
        ("sources", "twice", "two plugins", "remove one of json:JSONDecoder, json:JSONEncoder"),
        ("log_readers", "x", "no log_reader named 'x'", "installed: none"),
    ],
)
def test_wrong_name(group: str, name: str, message: str, hint: str) -> None:
    """A name that no plugin has, or two have, is a mistake in the configuration."""
    with pytest.raises(ConfigError, match=message) as caught:
        discovery.load(group, name)

    assert hint in caught.value.hint


@pytest.mark.usefixtures("installed")
def test_where_a_plugin_is_broken(tmp_path: Path) -> None:
    """What a plugin's module raises is shown with its file and line."""
    with pytest.raises(MissingRequirementError) as caught:
        discovery.load("sources", "torn")

    assert f"{tmp_path / 'stranger_torn.py'}:1" == caught.value.place


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "level", "hint"),
    [
        ("future", discovery.API_LEVEL + 1, "update headrace, or install an older stranger 1.0"),
        ("worded", "one", "update stranger 1.0"),
    ],
)
def test_api_levels(name: str, level: object, hint: str) -> None:
    """A plugin for another level of the contract is refused by name; one for this level works."""
    with pytest.raises(discovery.ApiLevelError) as caught:
        discovery.load("sinks", name)

    said = f"plugin {name!r} is written for API level {level!r}, this headrace has "
    assert caught.value.message.startswith(said)
    assert hint == caught.value.hint
    assert "Levelled" == discovery.load("sinks", "levelled").__name__
