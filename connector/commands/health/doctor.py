"""`headrace doctor`: finds what would stop a job or lose data, and says how to fix it."""

import argparse
import contextlib
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from headrace.connector.control.catalogue import Catalogue
from headrace.connector.control.errors import StatementError
from headrace.connector.control.health.kept import state_findings
from headrace.connector.control.health.missing import missing
from headrace.connector.control.job_files import job_file
from headrace.connector.control.plugins.probing import Ask, ask
from headrace.connector.foundation.job_file import FILE_SUFFIXES, read_job_file, state_given
from headrace.connector.language.rendering import printable
from headrace.connector.stores.job import place_and_name
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import CheckResult, Finding, HeadraceError
from headrace.plugins.config.arguments import CommandParser

FAILED_STATUS: Final = 1
STATE: Final = "state"
_MARKS: Final = {
    CheckResult.PASSED: "\N{CHECK MARK}",
    CheckResult.WARNED: "\N{WARNING SIGN}",
    CheckResult.UNKNOWN: "\N{WARNING SIGN}",
    CheckResult.FAILED: "\N{BALLOT X}",
}
_WORDS: Final = {
    CheckResult.PASSED: "ok  ",
    CheckResult.WARNED: "warn",
    CheckResult.UNKNOWN: "warn",
    CheckResult.FAILED: "FAIL",
}


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """A job to check, and its file if it is known."""

    job: str
    file: Path | None


Diagnosed = Sequence[tuple[str, Finding]]
"""Findings, each with its group."""


def main(arguments: Sequence[str], *, ask: Ask = ask) -> int:
    """Print the findings; return 1 if a check failed."""
    given = _parser().parse_args(arguments)
    place = state_given(given.target)
    results: Counter[CheckResult] = Counter()
    documents = []
    for subject in _subjects(place):
        found = look(place, subject, ask=ask)
        results.update(finding.result for _, finding in found)
        if given.json:
            documents.append(_document(subject, found))
        else:
            sys.stdout.write(_text(subject, found))
    undefined = [] if results else [*_undefined(place)]
    results.update(each.result for each in undefined)
    failed, passed = results[CheckResult.FAILED], results[CheckResult.PASSED]
    warned = results.total() - failed - passed
    if given.json:
        counts = {"passed": passed, "warned": warned, "failed": failed}
        missing_checks = [_checked(STATE, each) for each in undefined]
        sys.stdout.write(json.dumps({**counts, "jobs": documents, "checks": missing_checks}) + "\n")
    else:
        if undefined:
            said = f"{printable(str(place))} has no job to check\n"
            sys.stdout.write(said + _lines([(STATE, each) for each in undefined]) + "\n")
        sys.stdout.write(f"{failed} failed, {warned} warnings, {passed} passed\n")
    return FAILED_STATUS if failed else 0


def look(place: Path, subject: Subject, *, ask: Ask = ask) -> Diagnosed:
    """Return the findings from a job's state, and those of its checks."""
    found: list[tuple[str, Finding]] = []
    if (notes := _opened(place)) is not None:
        with contextlib.closing(notes):
            found += [(STATE, each) for each in state_findings(notes, subject.job)]
    if subject.file is None:
        said = f"the file of job {subject.job} is not known: it has never run"
        hint = "give the worker's file instead of the state: headrace doctor WORKER.yaml"
        return [*found, ("job", Finding("file", CheckResult.UNKNOWN, said, hint))]
    path = str(subject.file.absolute())
    try:
        rows = ask({"verb": "diagnosis", "job": subject.job, "job_file": path})
    except StatementError as error:
        problem = error.problems[0]
        return [*found, ("job", Finding("job", CheckResult.FAILED, problem.message, problem.hint))]
    return [
        *found,
        *((group, Finding(c, CheckResult(result), m, h)) for group, c, result, m, h in rows),
    ]


def _subjects(place: Path) -> Iterator[Subject]:
    """Yield the job of a job file, or the jobs of a worker's file or a state file.

    Raises ConfigError and StateFileError.
    """
    file = place if place.suffix in FILE_SUFFIXES else None
    if file is not None and (written := read_job_file(file)).job is not None:
        yield Subject(job=place_and_name(file, written, None)[1], file=file)
        return
    with contextlib.closing(open_notes(place, create=False)) as notes:
        for job in dict.fromkeys(route.job for route in notes.board.routes()):
            known = file
            with contextlib.suppress(StatementError):
                known = job_file(notes, job)
            yield Subject(job=job, file=known)


def _opened(place: Path) -> NoteCopy | None:
    """Return the notes at *place*; None before anything has run, or if they cannot be used."""
    try:
        return open_notes(place, create=False)
    except HeadraceError:
        return None


def _undefined(place: Path) -> Iterator[Finding]:
    """Yield a finding for each thing that is still to be defined before a job exists."""
    with contextlib.closing(open_notes(place, create=False)) as notes:
        sinks = len(Catalogue(notes).sinks())
    for each in missing(sinks, 0):
        yield Finding(each.key, CheckResult.FAILED, each.message, each.hint)


def _text(subject: Subject, found: Diagnosed) -> str:
    return f"job {printable(subject.job)}\n{_lines(found)}\n"


def _lines(found: Diagnosed) -> str:
    lines = []
    marks = _MARKS if _can_print([*_MARKS.values()]) else _WORDS
    group = ""
    for name, finding in found:
        if name != group:
            lines.append(f"\n{printable(name)}\n")
            group = name
        said = f"{finding.check}: {finding.message}"
        lines.append(f"  {marks[finding.result]} {printable(said)}\n")
        if finding.hint and finding.result is not CheckResult.PASSED:
            lines.append(f"      fix: {printable(finding.hint)}\n")
    return "".join(lines)


def _can_print(marks: Sequence[str]) -> bool:
    try:
        "".join(marks).encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _document(subject: Subject, found: Diagnosed) -> Mapping[str, Any]:  # Any: JSON.
    return {"job": subject.job, "checks": [_checked(group, finding) for group, finding in found]}


def _checked(group: str, finding: Finding) -> Mapping[str, str]:
    return {
        "group": group,
        "check": finding.check,
        "result": finding.result.value,
        "message": finding.message,
        "fix": finding.hint,
    }


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="headrace doctor",
        description="Check what a job needs: nodes, disks, brokers, registry, clocks, libraries. "
        "Writes nothing. Exit 0 if no check failed, also with warnings; 1 if one failed.",
    )
    parser.add_argument(
        "target",
        nargs="?",
        metavar="JOB|STATE",
        help="a job's file, or a worker's file or a state file, whose jobs are all checked; "
        "default: HEADRACE_STATE, or headrace.db",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser
