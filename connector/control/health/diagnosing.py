"""Runs the checks of a job: those of the framework, and those that its plugins offer.

All run at once, each on a thread of its own and in bounded time: one that fails or hangs does not
hide others. Findings have no secrets.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

import msgspec

from headrace.connector.control.health.requirements import library_findings
from headrace.connector.obs.blame import HINT, described, name_of
from headrace.connector.runtime.making import made_sink, made_source, read_only_context
from headrace.connector.runtime.schemas import examined_store
from headrace.connector.stores.job import Job
from headrace.plugins import (
    CheckResult,
    ConfigError,
    Context,
    Finding,
    HeadraceError,
    Sink,
    Source,
    TableChecks,
    Tables,
)
from headrace.plugins.amounts import count_text
from headrace.plugins.config.options import without_secrets
from headrace.plugins.diagnosis import Check, Diagnosis, Examined

SECONDS_MAX: Final = 10.0  # For all checks together, and the same again for those about tables.
JOB, LIBRARIES = "job", "libraries"
_FAILED: Final = CheckResult.FAILED
T = TypeVar("T")


class Diagnosed(msgspec.Struct, frozen=True):
    """A finding of a check, and its group."""

    group: str
    finding: Finding


@dataclass(frozen=True, slots=True)
class Asked:
    """A check of *plugin*, whose configuration is *config*: its secrets are never shown."""

    check: Check
    plugin: object = None
    config: object = field(default=None, repr=False)


def diagnose(job: Job, *, seconds_max: float = SECONDS_MAX) -> Sequence[Diagnosed]:
    """Return the findings of the checks of *job*, in groups. Writes nothing."""
    context = read_only_context(job.name, bytes(16))
    found = run_checks([Asked(Check(LIBRARIES, "libraries", library_findings))], seconds_max)
    source = _made(partial(made_source, job, context), found, job.source)
    sink = _made(partial(made_sink, job, context), found, job.sink)
    tables: Sequence[str] = ()
    if source is not None:
        planned: list[str] = []
        check = Check(JOB, "source", partial(_planned, source, planned))
        found += run_checks([Asked(check, job.source, job.source_config)], seconds_max)
        tables = planned
    asked = [*_of_plugins(job, context, source, sink, tables)]
    return _grouped([*found, *run_checks(asked, seconds_max)])


def run_checks(asked: Iterable[Asked], seconds_max: float = SECONDS_MAX) -> list[Diagnosed]:
    """Run all checks at once; return their findings in the order of the checks."""
    running = [(each, _start(each)) for each in asked]
    until = time.monotonic() + seconds_max
    found = []
    for each, answer in running:
        try:
            findings = answer.get(timeout=max(0.0, until - time.monotonic()))
        except Empty:
            said = f"{_by(each)}no answer within {seconds_max:g} s"
            findings = [Finding(each.check.name, _FAILED, said, "see that it can be reached")]
        found += [Diagnosed(each.check.group, _clean(each.config, f)) for f in findings]
    return found


def _start(each: Asked) -> "SimpleQueue[Sequence[Finding]]":
    answer: SimpleQueue[Sequence[Finding]] = SimpleQueue()

    def run() -> None:
        found: list[Finding] = []
        try:
            found.extend(each.check.run())
        except ConfigError as error:
            found += [
                Finding(
                    each.check.name,
                    _FAILED,
                    f"{p.key}: {p.message}" if p.key else p.message,
                    p.hint,
                )
                for p in error.problems
            ]
        except HeadraceError as error:
            place = f"{error.place}: " if error.place else ""
            found.append(Finding(each.check.name, _FAILED, f"{place}{error.message}", error.hint))
        except Exception as error:  # noqa: BLE001 (a stranger's plugin)
            said = f"{_by(each)}raised {described(error)}"
            found.append(Finding(each.check.name, _FAILED, said, HINT))
        answer.put(found)

    threading.Thread(target=run, name=f"check {each.check.name}", daemon=True).start()
    return answer


def _named(plugin: object) -> str:
    """Return the name of the group of checks of *plugin*, such as `sink 'files'`."""
    return name_of(plugin).partition(" (")[0]


def _by(each: Asked) -> str:
    return "" if each.plugin is None else f"{name_of(each.plugin)}: "


def _clean(config: object, finding: Finding) -> Finding:
    """Return *finding* without the secrets of *config*."""
    if config is None:
        return finding
    message, hint = (without_secrets(config, text) for text in (finding.message, finding.hint))
    return Finding(finding.check, finding.result, message, hint)


def _made(make: Callable[[], T], found: list[Diagnosed], plugin: object) -> T | None:
    try:
        return make()
    except Exception as error:  # noqa: BLE001 (a stranger's plugin)
        said = f"{name_of(plugin)}: {described(error).splitlines()[0]}"
        hint = error.hint if isinstance(error, HeadraceError) else HINT
        found.append(Diagnosed(JOB, Finding("plugin", _FAILED, said, hint)))
        return None


def _planned(source: Source, tables: list[str]) -> Iterator[Finding]:
    """Plan as a starting job does; add the tables that the source delivers to *tables*."""
    splits = source.plan()
    yield Finding(
        "source", CheckResult.PASSED, f"can start, with {count_text(len(splits), 'split')}"
    )
    if isinstance(source, Tables):
        tables += source.tables()
        for name, problem in source.missing_tables().items():
            yield Finding("table", CheckResult.WARNED, f"{name}: {problem.message}", problem.hint)
        yield Finding("tables", CheckResult.PASSED, f"delivers {', '.join(tables)}")


def _undelivered(job: Job, context: Context, tables: Sequence[str]) -> Iterator[Finding]:
    """Yield findings about undelivered changes of *tables*, from a source that has not planned."""
    source = made_source(job, context)
    try:
        if isinstance(source, TableChecks):
            for each in source.check_tables(tables):
                yield Finding("table", CheckResult.WARNED, each.message, each.hint)
    finally:
        source.close()


def _of_plugins(
    job: Job,
    context: Context,
    source: Source | None,
    sink: Sink | None,
    tables: Sequence[str],
) -> Iterator[Asked]:
    about = Examined(tables=tables)
    if source is not None:
        check = Check(JOB, "tables", partial(_undelivered, job, context, tables))
        yield Asked(check, job.source, job.source_config)
        yield from _offered(source, about, job.source_config, _named(job.source))
    if sink is not None:
        if isinstance(sink, Diagnosis):
            yield from _offered(sink, about, job.sink_config, _named(job.sink))
        else:
            check = Check(_named(job.sink), "check", sink.check)
            yield Asked(check, job.sink, job.sink_config)
        yield from _of_store(job, context, sink, tables)


def _of_store(job: Job, context: Context, sink: Sink, tables: Sequence[str]) -> Iterator[Asked]:
    try:
        examined = examined_store(job, context, sink, tables)
    except HeadraceError as error:
        problem = Finding("schema store", _FAILED, error.message, error.hint)
        yield Asked(Check("schema store", "schema store", lambda: [problem]))
        return
    if examined is not None and isinstance(examined[0], Diagnosis):
        store, subjects = examined
        yield from _offered(
            store, Examined(tables=tables, subjects=subjects), store.config, "store"
        )


def _offered(plugin: object, about: Examined, config: object, group: str) -> Iterator[Asked]:
    if not isinstance(plugin, Diagnosis):
        return
    try:
        yield from [Asked(check, plugin, config) for check in plugin.checks(about)]
    except Exception as error:  # noqa: BLE001 (a stranger's plugin)
        said = f"{name_of(plugin)}: raised {described(error)}"
        problem = Finding("checks", _FAILED, said, HINT)
        yield Asked(Check(group, "checks", lambda: [problem]), plugin, config)


def _grouped(found: Sequence[Diagnosed]) -> Sequence[Diagnosed]:
    """Return the findings of each group together, the groups in the order of their first ones."""
    order = list(dict.fromkeys(each.group for each in found))
    return sorted(found, key=lambda each: order.index(each.group))
