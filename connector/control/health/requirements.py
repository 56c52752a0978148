"""Which versions of Python, of headrace and of its libraries are here, and which are needed."""

import platform
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Final

from headrace import __version__
from headrace.plugins import CheckResult, Finding

_NEED: Final = re.compile(r"([A-Za-z0-9_.-]+)(?:\[[^]]*\])?\s*(.*)")
_BOUND: Final = re.compile(r"(>=|<)\s*([0-9.]+)")
_NUMBER: Final = re.compile(r"\d+")


def library_findings() -> Iterator[Finding]:
    """Yield what is there, and each library that is missing or has another version."""
    said = f"headrace {__version__}, Python {platform.python_version()}"
    yield Finding("versions", CheckResult.PASSED, said)
    needs = [need for need in requires("headrace") or () if "extra ==" not in need]
    problems = [found for need in needs if (found := _problem(need))]
    yield from problems
    if not problems:
        yield Finding("libraries", CheckResult.PASSED, f"all {len(needs)} libraries are there")


def _problem(need: str) -> Finding | None:
    """Return what is wrong with what *need* asks for, as `name >= 1.2, < 2`."""
    matched = _NEED.match(need)
    assert matched is not None  # noqa: S101 (from the metadata of our own distribution)
    name, bounds = matched[1], matched[2].partition(";")[0].strip()
    hint = f"pip install '{name} {bounds}'"
    try:
        found = version(name)
    except PackageNotFoundError:
        return Finding("library", CheckResult.FAILED, f"{name} is missing", hint)
    for sign, bound in _BOUND.findall(bounds):
        is_later = _numbers(found) >= _numbers(bound)
        if is_later is not (sign == ">="):
            said = f"{name} {found} is here, {bounds} is needed"
            return Finding("library", CheckResult.FAILED, said, hint)
    return None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, _NUMBER.findall(text)[:3]))
