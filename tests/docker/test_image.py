"""The image has what its extras need, and is built of what the wheel is made of."""

import re
import shlex
from configparser import ConfigParser
from typing import Final

import pytest

from helpers.settings.native_modules import ROOT

DOCKERFILE: Final = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
PAGES: Final = ("docker/Dockerfile", "docs/operations.md")
BUILD: Final = re.compile(r"docker build .*")
SPARK: Final = "pyspark"


def extras() -> dict[str, str]:
    """Return the extras of the package, each with its requirements and those of its extras."""
    settings = ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    given = dict(settings["options.extras_require"])

    def with_its_own(text: str) -> str:
        named = re.findall(r"headrace\[([\w,]+)\]", text)
        return text + "".join(with_its_own(given[e]) for each in named for e in each.split(","))

    return {name: with_its_own(text) for name, text in given.items()}


def test_java_comes_with_spark() -> None:
    """Each extra for users that brings pyspark brings Java 17, and no other does."""
    (pattern,) = re.findall(r'case ",\$EXTRAS," in (\S+)\)', DOCKERFILE)
    expected = {name for name, text in extras().items() if SPARK in text} - {"test"}

    assert {"spark"} < expected
    assert expected == set(re.findall(r"\*,(\w+),\*", pattern))
    assert "openjdk-17-jre-headless" in DOCKERFILE
    assert "Java 17 or newer" in (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")


def test_java_finds_the_folder_of_its_manuals() -> None:
    """Slim images are without it, and Java's package is not installed where it is missing."""
    made, installed = (
        "mkdir -p /usr/share/man/man1",
        "apt-get install -y --no-install-recommends openjdk",
    )

    assert -1 < DOCKERFILE.find(made) < DOCKERFILE.find(installed)


@pytest.mark.parametrize("page", PAGES)
def test_its_commands_are_those_it_takes(page: str) -> None:
    """What the page says of building it names arguments of the Dockerfile, and extras."""
    lines = BUILD.findall((ROOT / page).read_text(encoding="utf-8"))
    known, declared = extras(), re.findall(r"^ARG (\w+)=", DOCKERFILE, re.MULTILINE)
    given = [
        word.partition("=")
        for line in lines
        for word in shlex.split(line)
        if word.isupper() or "=" in word
    ]

    assert len(lines) >= 2
    assert {"EXTRAS"} == {name for name, _, _ in given} == set(declared)
    assert set(known) >= {extra for _, _, value in given for extra in value.split(",")}
    assert all((ROOT / shlex.split(line)[3]).exists() for line in lines)


def test_stages_share_one_base_and_need_no_mounts() -> None:
    """Both stages have the same Python, whose links the environment has; any builder can copy."""
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)

    assert ["python:3.13-slim-bookworm"] * 2 == bases
    assert "--mount" not in DOCKERFILE
    assert "\nUSER 10001\n" in DOCKERFILE


def test_only_what_the_wheel_is_made_of_is_sent() -> None:
    """All rooms, and the files that building reads; what else changes compiles nothing again."""
    first, *lines = [
        line
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    ]
    kept = {line.removeprefix("!") for line in lines if line.startswith("!")}
    rooms = {link.name for link in (ROOT / "src" / "headrace").iterdir() if link.is_symlink()}

    assert "*" == first
    assert {"connector", "plugins", "sinks", "sources"} == rooms
    assert kept == rooms | {"src", "constraints.txt"} | {
        name
        for name in (
            "LICENSE",
            "MANIFEST.in",
            "README.md",
            "pyproject.toml",
            "setup.cfg",
            "setup.py",
        )
        if (ROOT / name).exists()
    }
