"""Sources without tables: a statement names the plugin, and its options."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import structlog

from headrace.connector.control.access.permission import CALLER, Caller, CassandraGuard, Guard
from headrace.connector.control.entries import ConnectorOptions
from headrace.connector.control.errors import BadRunError, NotFoundError, UnknownPluginError
from headrace.connector.control.plugins.listing import installed
from headrace.connector.control.plugins.probe import answer_to
from headrace.connector.control.plugins.probing import Answer, unpacked
from headrace.connector.control.service import ControlService
from headrace.connector.hosting.host import Host
from headrace.connector.language.parser import parse_script
from headrace.connector.language.rendering import ResultTable
from headrace.connector.stores.note_copy import NoteCopy
from headrace.plugins import ConfigError, HeadraceError
from headrace.plugins.config.options import declared_options
from headrace.sources.files import FileSource

LINES = b'{"n":1}\n' * 3
OUTSIDE = r"outside the folders|own file"
MADE = "CREATE DATA_SOURCE lines WITH f AND plugin = 'files' AND path = 'in/*.jsonl'"


def ask_here(question: Mapping[str, object]) -> Answer:
    """Answer in this process as a child process would."""
    return unpacked(answer_to(question))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with files to read and a worker's file without a source; work in it."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_bytes(LINES)
    (tmp_path / "worker.yaml").write_text("state: state.db\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def service(folder: Path, connection: NoteCopy) -> ControlService:
    """Return a service with a sink into `out.jsonl`."""
    made = ControlService(connection, ask=ask_here, file=folder / "worker.yaml")
    run(made, f"CREATE DATA_SINK f WITH 'file://{folder}/out.jsonl'")
    return made


def run(service: ControlService, text: str) -> ResultTable:
    """Execute all statements of *text* and return the last one's answer."""
    return [service.execute(parsed.statement) for parsed in parse_script(text)][-1]


def run_job(folder: Path, job: str = "lines") -> None:
    """Run a job of the worker until it has read everything."""
    log = structlog.stdlib.get_logger()
    Host(folder / "worker.yaml", job=job, log=log).run(until_idle=True)


def test_from_statement_to_stream(
    service: ControlService, folder: Path, connection: NoteCopy
) -> None:
    """It has a job of its own, whose source is the statement's; the worker's file needs none."""
    run(service, MADE)
    assert ("lines", "f", "lines") == run(service, "SHOW STATUS").rows[0][:3]
    run_job(folder)
    assert LINES == (folder / "out.jsonl").read_bytes()
    connection.store("lines").begin_run(str(folder / "worker.yaml"))

    (folder / "in" / "a.jsonl").write_bytes(2 * LINES)
    (row,) = run(service, "SHOW LAG FOR DATA_SOURCE lines").rows
    assert ("lines", "", str(len(LINES)), "1") == row[:4]
    assert 3 == len(run(service, "PREVIEW DATA_SOURCE lines").rows)
    run(service, "STOP DATA_SOURCE lines; ALTER DATA_SOURCE lines SET POSITION = 'earliest'")
    run(service, "RESUME DATA_SOURCE lines")
    run_job(folder)
    assert 3 * LINES == (folder / "out.jsonl").read_bytes()


def test_it_is_described_changed_and_dropped(service: ControlService) -> None:
    """DESCRIBE has the statement that makes it again; a change of an option is taken."""
    run(service, f"{MADE} AND job = 'nightly'")
    run(service, "ALTER DATA_SOURCE lines WITH path = 'in/b.jsonl'")
    (made,) = run(service, "DESCRIBE DATA_SOURCE lines").rows[0]
    assert {"nightly"} == {row[2] for row in run(service, "SHOW STATUS").rows}
    run(service, "DROP DATA_SOURCE lines")
    assert () == run(service, "DESCRIBE DATA_SOURCES").rows
    run(service, made)

    assert made == run(service, "DESCRIBE DATA_SOURCE lines").rows[0][0]
    assert "AND path = 'in/b.jsonl' AND job = 'nightly'" in made
    assert run(service, f"CREATE DATA_SOURCE IF NOT EXISTS {MADE[19:]}").rows == ()
    with pytest.raises(ConfigError, match="already exists"):
        run(service, MADE)


@pytest.mark.parametrize(
    ("options", "key", "said"),
    [
        ("path = 'in'", "plugin", "is required for a source without a table"),
        ("plugin = 'files'", "path", "is required"),
        ("plugin = 'files' AND pth = 'in'", "pth", "is not an option"),
        ("plugin = 'files' AND path = 'in' AND snapshot = 'initial'", "snapshot", "with tables"),
        ("plugin = 'files' AND path = 'in' AND cluster = 'c'", "cluster", "with tables"),
        ("plugin = 'cassandra' AND schema = 'a'", "plugin", "is a source of tables"),
        ("plugin = 'none' AND path = 'in'", "plugin", "there is no source 'none'"),
    ],
)
def test_mistakes(service: ControlService, options: str, key: str, said: str) -> None:
    """Each is named, and nothing is created."""
    with pytest.raises(ConfigError) as caught:
        run(service, f"CREATE DATA_SOURCE lines WITH f AND {options}")

    assert any(key == p.key and said in p.message for p in caught.value.problems), caught.value
    assert () == run(service, "SHOW STATUS").rows


def test_a_plugin_without_a_word_of_its_own(
    service: ControlService, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So are those that `headrace new source` writes."""
    monkeypatch.setattr(FileSource, "word", "")
    run(service, MADE)
    run_job(folder)

    assert LINES == (folder / "out.jsonl").read_bytes()


def test_it_reads_only_below_the_folders_for_files(service: ControlService, folder: Path) -> None:
    """As a sink writes: else who may create sources could have any file sent anywhere."""
    assert declared_options(FileSource.config_class)["path"][1].reads
    outside = folder.parent / "secret.jsonl"
    outside.write_bytes(LINES)
    for place in (str(outside), "../secret.jsonl", "in/../../secret.jsonl", "worker.yaml"):
        run(service, f"CREATE DATA_SOURCE lines WITH f AND plugin = 'files' AND path = '{place}'")
        with pytest.raises(ConfigError, match=OUTSIDE):
            run_job(folder)
        with pytest.raises(HeadraceError, match=OUTSIDE):
            run(service, "PREVIEW DATA_SOURCE lines")
        run(service, "DROP DATA_SOURCE lines")
    assert not (folder / "out.jsonl").exists()


def test_its_job_has_no_other_source(service: ControlService, folder: Path) -> None:
    """Two in one job are refused with what to do; table sources of its sink are another job."""
    run(service, MADE)
    run(service, "CREATE DATA_SOURCE brook ON TABLE s.t WITH f")
    jobs = {row[0]: row[2] for row in run(service, "SHOW STATUS").rows}
    assert {"lines": "lines", "brook.s.t": "f"} == jobs
    run(service, "CREATE DATA_SOURCE brook ON TABLE s.u WITH f AND job = 'lines'")

    with pytest.raises(ConfigError, match="which has no table, and 1 other sources"):
        run_job(folder)


def test_no_snapshot_and_no_such_source(service: ControlService) -> None:
    """Without a table there are no rows to send; a name that does not exist is named."""
    run(service, MADE)
    with pytest.raises(BadRunError, match="lines has no table"):
        run(service, "SNAPSHOT DATA_SOURCE lines")
    run(service, "CREATE DATA_SOURCE brook ON TABLE s.t WITH f")
    with pytest.raises(NotFoundError, match="data source line does not exist") as caught:
        run(service, "PAUSE DATA_SOURCE line")
    assert "did you mean lines?" == caught.value.problems[0].hint
    with pytest.raises(NotFoundError) as caught:
        run(service, "PAUSE DATA_SOURCE brook")
    assert "did you mean brook ON TABLE s.t?" == caught.value.problems[0].hint
    with pytest.raises(UnknownPluginError):
        run(service, "CREATE DATA_SOURCE x ON TABLE a.b WITH f")


class _Cdc:
    """Cassandra says that a role has CDC, and may read no table."""

    cluster = "c"

    def is_superuser(self, role: str) -> bool:
        return role == "root"

    def has_cdc(self, role: str) -> bool:
        return role == "ann"

    def may_select(self, role: str, table: object) -> bool:
        return not (role and table)


def test_who_may_create_it(connection: NoteCopy, service: ControlService) -> None:
    """It needs no SELECT, because there is no table, but the permission CDC."""
    guard: Guard = CassandraGuard(_Cdc())
    guarded = ControlService(connection, guard=guard)
    for name, allowed in (("eve", False), ("ann", True)):
        token = CALLER.set(Caller(name=name))
        try:
            if allowed:
                run(guarded, MADE)
            else:
                with pytest.raises(HeadraceError, match="no CDC permission"):
                    run(guarded, MADE)
        finally:
            CALLER.reset(token)
    assert ["lines"] == [row[0] for row in run(service, "SHOW STATUS").rows]


def test_its_config_is_checked_key_by_key(service: ControlService) -> None:
    """Kafka Connect's clients see the plugin's options, and what is wrong with each."""
    config = {"name": "lines", "connector.class": "files", "sink": "f", "pth": "in"}
    checked = service.commands.check_source(config)
    found = {each.key: each.errors for each in checked}

    assert len(checked) == len(found)
    assert 2 == sum(len(each.errors) for each in checked)
    assert "Missing required" in json.dumps(found["path"])
    assert found["pth"]
    assert [] == found["sink"]
    right = {"name": "lines", "connector.class": "files", "sink": "f", "path": "in"}
    assert service.commands.create_source(right)
    assert "plugin = 'files' AND path = 'in'" in service.commands.source("lines").statement


def test_it_is_listed_as_a_class_of_connectors() -> None:
    """A source with both has a class of tables and one without; one that reads tables has none."""
    found = {each.class_name: each for each in installed()}

    assert found["FilesSource"].config_class is FileSource.config_class
    assert {"path", "sink", "job"} <= {each.key for each in found["FilesSource"].definitions()}
    assert found["CassandraCdcSource"].config_class is ConnectorOptions
    assert "CassandraSource" not in found


def test_the_state_alone_starts_it(service: ControlService, connection: NoteCopy) -> None:
    """Before its first run the command that starts it is of the state, which says all of it."""
    run(service, MADE)
    run(service, "CREATE DATA_SOURCE cdc ON TABLE shop.orders WITH f")

    hints = {name: each.hint for name, each in service.commands.statuses().items()}
    assert f"start it: headrace worker {connection.beside}" == hints["lines"]
    assert "start it: headrace worker WORKER.yaml" == hints["cdc.shop.orders"]
