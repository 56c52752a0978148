"""Claim stores of a plugin: one whose values are in a single file, and one that cannot be read."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.plugins import ClaimStore, RetriableError, option

ENTRY_POINTS = """\
[headrace.claim_stores]
box = helpers.streams.claim_box:Box
chute = helpers.streams.claim_box:Chute
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the plugins an installed distribution for one test, in its child processes too."""
    metadata = folder / "boxes-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Name: boxes\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(folder)
    tests = Path(__file__).parent.parent.parent
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{tests}")


class BoxEmptyError(RetriableError):
    """The box does not have what is asked for."""

    code = "box_empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxConfig:
    """Options of the box."""

    file: str = option("The file.", writes=True)


class Chute(ClaimStore):
    """Appends values to a file; nothing comes out."""

    config_class = BoxConfig
    config: BoxConfig

    def put(self, name: str, content: bytes) -> str:
        """Append; a place is an offset and a length."""
        del name
        with Path(self.config.file).open("ab") as file:
            begin = file.tell()
            file.write(content)
        return f"{begin}+{len(content)}"


class Box(Chute):
    """Appends values to a file, and reads them."""

    def get(self, place: str) -> bytes:
        """Read the bytes at a place."""
        begin, length = map(int, place.split("+"))
        try:
            content = Path(self.config.file).read_bytes()
        except OSError as error:
            raise BoxEmptyError("there is no file") from error
        return content[begin : begin + length]
