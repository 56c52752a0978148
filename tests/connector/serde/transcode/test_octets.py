"""Numbers and byte operations that compiled and interpreted code share."""

import re
from io import BytesIO
from pathlib import Path

import fastavro
from hypothesis import given
from hypothesis import strategies as st

from headrace.connector.serde.transcode import octets

_LINE = re.compile(r"^    (\w+) = (-?\w+)$", re.MULTILINE)


def test_compiled_code_has_the_same_numbers() -> None:
    """octets.pxd and octets.py define the same numbers under the same names."""
    text = Path(octets.__file__).with_suffix(".pxd").read_text()

    compiled = {name: int(number, 0) for name, number in _LINE.findall(text)}

    numbers = {name: each for name, each in vars(octets).items() if re.fullmatch("[A-Z_]+", name)}
    assert {n: each for n, each in numbers.items() if not n.startswith("_")} == compiled


@given(number=st.integers(-(2**63), 2**63 - 1))
def test_numbers_are_avros(number: int) -> None:
    """Numbers are written and read as fastavro does it."""
    out = BytesIO()
    fastavro.schemaless_writer(out, "long", number)

    assert out.getvalue() == octets.long_bytes(number)
    assert (number, len(out.getvalue())) == octets.long_at(out.getvalue(), 0)
