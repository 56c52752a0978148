"""The configuration of a job: what is given, what is a default, and no secret."""

import json
from pathlib import Path

from headrace.connector.control.console.configuration import configuration_of
from headrace.connector.control.service import ControlService
from headrace.connector.language.parser import parse_script
from headrace.connector.stores.note_copy import NoteCopy

JOB = """\
job: j
state: state.db
source: {plugin: brook, path: in.jsonl, password: canary-1, unknown: canary-2}
runtime: {tick_min_ms: 7}
"""
SINK = (
    "CREATE DATA_SINK k WITH 'kafka://b:9092?topic=x' "
    "AND sasl.password = '${env:HEADRACE_SECRET_X}';"
)


def test_no_secret_is_shown(connection: NoteCopy, service: ControlService, tmp_path: Path) -> None:
    """References are shown as they are written, and what may be a secret is not."""
    (tmp_path / "job.yaml").write_text(JOB)
    for parsed in parse_script(
        SINK + "CREATE DATA_SOURCE brook ON TABLE s.t WITH k AND job = 'j';"
    ):
        service.execute(parsed.statement)
    connection.store("j").begin_run(str(tmp_path / "job.yaml"))
    found = configuration_of(connection, "j")
    options = {f"{o['section']}.{o['option']}": (o["value"], o["given"]) for o in found["options"]}

    assert "canary" not in json.dumps(found)
    assert ("(not shown)", True) == options["source.password"] == options["source.unknown"]
    assert ("${env:HEADRACE_SECRET_X}", True) == options["sink.sasl.password"]
    assert ("in.jsonl", True) == options["source.path"]
    assert ("7", True) == options["runtime.tick_min_ms"]
    assert options["runtime.commit_max_bytes"][1] is False


def test_a_job_that_never_ran_has_none(connection: NoteCopy) -> None:
    """The document says why."""
    assert "never run" in configuration_of(connection, "j")["problem"]
