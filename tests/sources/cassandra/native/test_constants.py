"""The numbers that compiled and interpreted code share."""

import re
from pathlib import Path

from headrace.sources.cassandra.native import constants

_LINE = re.compile(r"^    (\w+) = (-?\w+)$", re.MULTILINE)


def test_compiled_code_has_the_same_numbers() -> None:
    """codes.pxd says what codes.py says, name by name."""
    text = Path(constants.__file__).with_suffix(".pxd").read_text()

    compiled = {name: int(number, 0) for name, number in _LINE.findall(text)}

    assert {name: n for name, n in vars(constants).items() if name.isupper()} == compiled
