"""How the job of a data source fares, as the state file knows it: no broker or node is asked."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

# Per job: what stopped it or one of its splits last, and how many splits have an owner.
_JOBS = """
SELECT job, jobs.problem, MAX(COALESCE(leases.problem, '')), COUNT(leases.owner)
FROM jobs LEFT JOIN leases USING (job) GROUP BY job
"""


@dataclass(frozen=True, slots=True)
class Status:
    """`state` is UNASSIGNED until a job ran, then FAILED, RUNNING or STOPPED.

    `problem` is the named error that stopped the job, or one of its splits, last; else empty.
    """

    state: str
    problem: str = ""


UNASSIGNED = Status("UNASSIGNED")


def statuses(
    connection: sqlite3.Connection, job_of_source: Mapping[str, str]
) -> Mapping[str, Status]:
    """Return the status of each source by its name, given the job that it names.

    A source that names none, "", is run by the jobs that no source names: theirs is shown.
    """
    jobs = {job: _status(*row) for job, *row in connection.execute(_JOBS)}
    named = set(job_of_source.values())
    shared = [status for job, status in sorted(jobs.items()) if job not in named]
    worst = max(shared, key=lambda status: status.problem, default=UNASSIGNED)
    return {
        source: jobs.get(job, UNASSIGNED) if job else worst for source, job in job_of_source.items()
    }


def _status(job_problem: str, split_problem: str, owned: int) -> Status:
    problem = (job_problem or split_problem).partition("\n")[0]
    if problem:
        return Status("FAILED", problem)
    return Status("RUNNING" if owned else "STOPPED")
