"""Checks the installed versions of Python, headrace and its libraries against the required ones."""

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

from headrace import __version__
from headrace.plugins import CheckResult, Finding


def library_findings() -> Iterator[Finding]:
    """Yield the installed versions, and each library that is missing or has another version."""
    said = f"headrace {__version__}, Python {platform.python_version()}"
    yield Finding("versions", CheckResult.PASSED, said)
    needs = [Requirement(need) for need in requires("headrace") or ()]
    needed = [n for n in needs if n.marker is None or n.marker.evaluate({"extra": ""})]
    problems = [found for need in needed if (found := _problem(need))]
    yield from problems
    if not problems:
        yield Finding("libraries", CheckResult.PASSED, f"all {len(needed)} libraries are there")


def _problem(need: Requirement) -> Finding | None:
    """Return the problem of the requirement *need*, if there is one."""
    hint = f"pip install '{need.name}{need.specifier}'"
    try:
        found = version(need.name)
    except PackageNotFoundError:
        return Finding("library", CheckResult.FAILED, f"{need.name} is missing", hint)
    if need.specifier.contains(found, prereleases=True):
        return None
    said = f"{need.name} {found} is here, {need.specifier} is needed"
    return Finding("library", CheckResult.FAILED, said, hint)
