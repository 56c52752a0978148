"""Findings from the state of a job: why it stopped, losses, and refused schemas."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from headrace.connector.control.status import ConnectorStatus, file_job_status
from headrace.connector.foundation.states import Observed
from headrace.connector.stores import PublicationState
from headrace.connector.stores.note_copy import NoteCopy
from headrace.plugins import CheckResult, Finding

_RESULTS: Final = {
    Observed.FAILED: CheckResult.FAILED,
    Observed.RESTARTING: CheckResult.WARNED,
    Observed.STALLED: CheckResult.WARNED,
}


def state_findings(notes: NoteCopy, job: str) -> Iterator[Finding]:
    """Yield the findings from the store of *job* alone."""
    yield _running(file_job_status(notes, job))
    store = notes.store(job)
    for each in store.publications().all():
        if each.state is PublicationState.REFUSED:
            said = f"subject {each.subject}: the schema store refused a schema: {each.problem}"
            hint = "allow it at the store, or set schema.on.incompatible"
            yield Finding("schemas", CheckResult.FAILED, said, hint)
    kinds = Counter(kept.loss.kind for kept in store.losses())
    if kinds:
        said = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        hint = "`headrace dlq list JOB.yaml` shows them, `headrace dlq redrive` sends them again"
        yield Finding("dead letters", CheckResult.WARNED, said, hint)


def _running(status: ConnectorStatus) -> Finding:
    result = _RESULTS.get(status.state, CheckResult.PASSED)
    if result is CheckResult.PASSED and status.unread:
        result = CheckResult.WARNED
    said = f"the job is {status.state.value}"
    if result is not CheckResult.PASSED:
        said += f": {status.reason}"
    return Finding("state", result, said, "" if result is CheckResult.PASSED else status.hint)
