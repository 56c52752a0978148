"""Faults that are planted: of the known kinds, and in what runs only."""

from pathlib import Path

import pytest

from faults import ROOT, faults_in, stages_of

SOURCE = '''"""A docstring with 1 < 2."""
from typing import Final

MOST: Final = 7


def size(of: "int | None", *, least: int) -> int:
    """Return 1 if True."""
    log.info("event", size=1 + 2)
    if of is None:
        raise ValueError(f"{of} is not {min(3, least)}")
    of.count += least
    assert of < 3
    return min(of.take(least, of), least)


def fits(é: int) -> bool:
    if é and [one for one in é if one <= é]:
        return False
    é.kept = é
'''
EXPECTED = """
4 constant: 7 -> 8
4 constant: 7 -> (6)
10 negation: of is None -> (not (of is None))
10 comparison: of is None -> (of is not None)
11 removal: raise ValueError(f"{of} is not {min(3, least)}") -> pass
12 removal: of.count += least -> pass
14 return: return min(of.take(least, of), least) -> return None
14 min, max: min -> max
14 arguments: of.take(least, of) -> of.take(of, least)
18 negation: é and [one for one in é if one <= é] -> (not (é and [one for one in é if one <= é]))
18 and, or: é and [one for one in é if one <= é] -> (é or [one for one in é if one <= é])
18 negation: one <= é -> (not (one <= é))
18 comparison: one <= é -> (one < é)
19 return: return False -> return True
20 removal: é.kept = é -> pass
"""


def test_faults_of_a_known_source() -> None:
    """Each kind, where something runs: not in strings, messages, log events, asserts or types."""
    assert EXPECTED.strip().splitlines() == [f"{f.line} {f}" for f in faults_in(SOURCE.encode())]


def test_a_fault_changes_its_place_alone() -> None:
    """The rest of the module has its bytes and lines, and the module is Python."""
    source = SOURCE.encode()
    for fault in faults_in(source):
        planted = fault.plant(source)
        assert fault.old == source[fault.start : fault.end].decode()
        assert (
            planted.removeprefix(source[: fault.start])
            == fault.new.encode() + (source[fault.end :])
        )
        compile(planted, "planted", "exec")


@pytest.mark.parametrize(
    ("module", "first"),
    [
        ("sources/cassandra/state/gaps.py", ["tests/sources/cassandra/state/test_gaps.py"]),
        ("sources/cassandra/state/__init__.py", None),
        ("connector/nothing/of_it.py", None),
    ],
)
def test_the_mirroring_tests_come_first(module: str, first: list[str] | None) -> None:
    """Then those of the folder, then those that import it, each once; it may have none."""
    found = stages_of(Path(module))
    there = {str(p.relative_to(ROOT)) for p in (ROOT / "tests" / module).parent.glob("test_*.py")}
    names = [name for names in found for name in names]

    assert len(names) == len(set(names))
    assert there == set(names[: len(there)])
    assert first is None or first == found[0]
    if first is not None:
        assert "tests/sources/cassandra/state/test_cdc_state.py" in found[1]
        assert "tests/sources/cassandra/reading/test_damage.py" in found[2]
