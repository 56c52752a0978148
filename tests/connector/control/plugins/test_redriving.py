"""Dead letters that a statement sends again."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from headrace.connector.control.access.permission import CALLER, Caller, Role, UnauthorizedError
from headrace.connector.control.errors import NotFoundError
from headrace.connector.control.plugins import probe
from headrace.connector.control.plugins.probing import Answer, unpacked
from headrace.connector.control.service import ControlService
from headrace.connector.language.parser import parse_statement
from headrace.connector.language.rendering import ResultTable
from headrace.connector.runtime.failures import redrive
from headrace.connector.stores.note_copy import NoteCopy
from helpers.stores.letters import keep_letters


def ask_here(question: Mapping[str, object]) -> Answer:
    """Answer in this process as a child process would."""
    return unpacked(probe.answer_to(question))


def run(service: ControlService, text: str) -> ResultTable:
    """Execute a statement."""
    return service.execute(parse_statement(text))


@pytest.fixture
def service(
    connection: NoteCopy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ControlService:
    """Return a service with a job into `out.jsonl` that has three dead letters."""
    monkeypatch.chdir(tmp_path)
    source = "{plugin: brook, path: in.jsonl}"
    files = "sink.files.roots: [.]"
    Path("job.yaml").write_text(f"job: j\nstate: state.db\nsource: {source}\n{files}\n")
    service = ControlService(connection, ask=ask_here)
    run(service, f"CREATE DATA_SINK f WITH 'file://{tmp_path}/out.jsonl'")
    run(service, "CREATE DATA_SOURCE brook ON TABLE s.t WITH f AND job = 'j'")
    connection.store("j").begin_run(str(tmp_path / "job.yaml"))
    keep_letters(connection, "j", 3)
    return service


def test_one_and_then_all(service: ControlService, connection: NoteCopy) -> None:
    """What is delivered leaves the quarantine; the answer has a row for each."""
    kept = connection.store("j").losses
    middle = [each.number for each in kept()][1]
    one = run(service, f"REDRIVE DEAD_LETTER {middle} FOR JOB 'j'")

    assert ((str(middle), "delivered"),) == one.rows
    assert ['{"n": 1}'] == Path("out.jsonl").read_text().splitlines()
    assert 2 == len(run(service, "REDRIVE DEAD_LETTERS FOR JOB 'j'").rows)
    assert ['{"n": 1}', '{"n": 0}', '{"n": 2}'] == Path("out.jsonl").read_text().splitlines()
    assert [] == list(kept())
    assert () == run(service, "REDRIVE DEAD_LETTERS FOR JOB 'j'").rows


def test_a_statement_ends_in_time(service: ControlService, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the time is over after a group, the answer says how many are left; none is lost."""
    monkeypatch.setattr(probe, "REDRIVE_SECONDS_MAX", 0.0)
    monkeypatch.setattr(redrive, "GROUP_RECORDS_MAX", 1)
    found = run(service, "REDRIVE DEAD_LETTERS FOR JOB 'j'")

    assert (1, (("left", "2"),)) == (len(found.rows), found.footer)


def test_who_may(service: ControlService, connection: NoteCopy) -> None:
    """It needs the role operator, and is in the audit; a job that does not exist is named."""
    token = CALLER.set(Caller(name="eve", role=Role.VIEWER, door="rest"))
    try:
        with pytest.raises(UnauthorizedError):
            run(service, "REDRIVE DEAD_LETTERS FOR JOB 'j'")
    finally:
        CALLER.reset(token)
    with pytest.raises(NotFoundError, match="job 'k' does not exist"):
        run(service, "REDRIVE DEAD_LETTERS FOR JOB 'k'")

    line = service.commands.audit()[0]
    assert ("redrive", "j: all", "eve") == (line["verb"], line["object"], line["actor"])
    assert 3 == len(list(connection.store("j").losses()))
