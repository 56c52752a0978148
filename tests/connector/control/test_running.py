"""Statements that ask a plugin, in another process, in bounded time, and leave nothing behind."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import structlog

from headrace.connector.control.access.permission import (
    CALLER,
    Caller,
    Role,
    RoleGuard,
    UnauthorizedError,
)
from headrace.connector.control.errors import (
    BadPositionError,
    NotAvailableError,
    NotFoundError,
    NotStoppedError,
)
from headrace.connector.control.job_files import job_file
from headrace.connector.control.plugins import probing
from headrace.connector.control.plugins.probe import answer_to
from headrace.connector.control.plugins.probing import Answer, ask, unpacked
from headrace.connector.control.service import ControlService
from headrace.connector.foundation.catch_up import Looks
from headrace.connector.foundation.processes import this_process
from headrace.connector.hosting.host import Host
from headrace.connector.language.parser import parse_script
from headrace.connector.language.rendering import ResultTable, StatementWarning
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.open_control_store import open_notes
from helpers import FOLDER
from helpers.jobs.shells import lookout_on
from helpers.logs.unlogged import HINT, ORDERS, worker_file

LINES = 5
LINE = b'{"n": 1}\n'
TABLE = "brook ON TABLE s.t"


@pytest.fixture(autouse=True)
def _children(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let child processes find the third-party plugins too."""
    folders = [
        FOLDER,
        *map(str, tmp_path_factory.getbasetemp().glob("toys*")),
    ]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(folders))


def ask_here(question: Mapping[str, object]) -> Answer:
    """Answer in this process as a child process would."""
    return unpacked(answer_to(question))


def run(service: ControlService, text: str) -> ResultTable:
    """Execute all statements of *text* and return the last one's answer."""
    return [service.execute(parsed.statement) for parsed in parse_script(text)][-1]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a job of five lines, and make it the working folder."""
    (tmp_path / "in.jsonl").write_bytes(LINE * LINES)
    source = "{plugin: brook, path: in.jsonl}"
    (tmp_path / "job.yaml").write_text(f"job: j\nstate: state.db\nsource: {source}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def service(folder: Path, connection: NoteCopy) -> ControlService:
    """Return a service with a source whose job has not run."""
    made = ControlService(connection, ask=ask_here)
    run(
        made,
        f"CREATE DATA_SINK f WITH 'file://{folder}/out.jsonl';"
        f"CREATE DATA_SOURCE {TABLE} WITH f AND job = 'j'",
    )
    return made


def run_job(folder: Path) -> None:
    """Run the job until it has read everything."""
    Host(folder / "job.yaml", log=structlog.stdlib.get_logger()).run(until_idle=True)


def test_never_run(service: ControlService) -> None:
    """Before its job ran a source has no position; in the list of all a row says so."""
    with pytest.raises(NotAvailableError, match="has never run") as caught:
        run(service, f"SHOW LAG FOR DATA_SOURCE {TABLE}")

    assert "headrace run" in caught.value.hint
    assert "worker's file in place of the state" in caught.value.hint
    assert "job j has never run on this state" == run(service, "SHOW LAG").rows[0][-1]


def test_before_the_first_run(service: ControlService, folder: Path, connection: NoteCopy) -> None:
    """With the worker's file PREVIEW and LAG answer by what the job would read first."""
    del service
    known = ControlService(connection, ask=ask_here, file=folder / "job.yaml")
    found = run(known, f"PREVIEW DATA_SOURCE {TABLE} LIMIT 1")
    lag = run(known, f"SHOW LAG FOR DATA_SOURCE {TABLE}").rows

    assert ("operation", "written", "change") == found.columns
    assert str(LINES * len(LINE)) == lag[0][2]


def test_lag(service: ControlService, folder: Path) -> None:
    """LAG is what is still to be read now, and how long that takes if it is known."""
    run_job(folder)
    assert ("brook.s.t", "", "0", "0", "", "0.0", "0.0", "") == run(service, "SHOW LAG").rows[0]

    with (folder / "in.jsonl").open("ab") as file:
        file.write(LINE * 2)
    left = str(2 * len(LINE))
    row = run(service, f"SHOW LAG FOR DATA_SOURCE {TABLE}").rows[0]
    assert ("brook.s.t", "", left, "1", "", "", "unknown", "") == row


def test_how_long_it_takes_to_catch_up(
    service: ControlService, folder: Path, connection: NoteCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a job that reads it takes two looks: without an earlier one SHOW LAG waits for another."""
    del service
    run_job(folder)
    file = folder / "in.jsonl"
    file.write_bytes(LINE * (LINES + 30))
    store, owner = connection.store("j"), this_process()
    store.enroll(owner)
    store.renew(owner.worker, store.claim(owner.worker, store.leases(), 10_000), {"in.jsonl": 9})
    now, waited = [0.0], []

    def wait(seconds: float) -> None:
        """Let ten of the lines go while SHOW LAG waits."""
        waited.append(seconds)
        now[0] += seconds
        file.write_bytes(LINE * (LINES + 20))

    monkeypatch.setattr("headrace.connector.control.running.time.sleep", wait)
    asked = ControlService(connection, ask=ask_here, looks=Looks(lambda: now[0]))
    for more in (0.0, 2.0):  # Four seconds after the first look it is half as fast.
        now[0] += more
        found = run(asked, "SHOW LAG")
        row = dict(zip(found.columns, found.rows[0], strict=True))
        assert str(20 / 10 * (2.0 + more)) == row["catch_up_seconds"]
    assert [2.0] == waited


def test_another_process(service: ControlService, folder: Path) -> None:
    """An answer of another process is the same as an answer of this one."""
    del service
    run_job(folder)
    for verb, more in [("lag", {}), ("locate", {"split": None, "target": "earliest"})]:
        question = {"verb": verb, "job": "j", "job_file": str(folder / "job.yaml"), **more}
        assert ask_here(question) == ask(question)


def test_lag_in_a_line(service: ControlService, folder: Path) -> None:
    """The shell's status line has the largest lag."""
    del service
    lookout = lookout_on(folder / "state.db")
    run_job(folder)

    assert "lag 0 s, 0 bytes (brook.s.t)" == lookout.lag()


def test_preview(service: ControlService, folder: Path) -> None:
    """PREVIEW shows the next records, as often as it is called, and commits nothing."""
    run_job(folder)
    with (folder / "in.jsonl").open("ab") as file:
        file.write(b'{"n": 2}\n{"n": 3}\n')
    for limit, expected in [("", 0), (" LIMIT 1", 0)]:
        # The lines of this source have no table.
        assert expected == len(run(service, f"PREVIEW DATA_SOURCE {TABLE}{limit}").rows)
    answer = ask_here({
        "verb": "preview", "job": "j", "job_file": str(folder / "job.yaml"),
        "table": "lines", "limit": 1,
    })  # fmt: skip
    assert [["INSERT", 0, json.dumps({"n": 2})]] == answer

    run_job(folder)
    assert LINES + 2 == len((folder / "out.jsonl").read_bytes().splitlines())


def test_set_position(service: ControlService, folder: Path) -> None:
    """A dry run shows what the move will do; the move needs a stopped source."""
    run_job(folder)
    move = f"ALTER DATA_SOURCE {TABLE} SET POSITION = 'earliest'"
    size = LINES * len(LINE)
    row = ("in.jsonl", "", f"offset={size}", "the beginning",
           f"reads again {size} bytes in 1 more files", "brook.s.t")  # fmt: skip

    assert (row,) == run(service, f"{move} DRY RUN").rows
    with pytest.raises(NotStoppedError):
        run(service, move)
    assert (row,) == run(service, f"STOP DATA_SOURCE {TABLE}; {move} FOR SPLIT 'in.jsonl'").rows
    assert () == run(service, "SHOW OFFSETS").rows

    run(service, f"RESUME DATA_SOURCE {TABLE}")
    run_job(folder)
    assert 2 * LINES == len((folder / "out.jsonl").read_bytes().splitlines())


def test_what_was_never_read_can_be_moved(service: ControlService, folder: Path) -> None:
    """A position can be set before the first run, which then starts there."""
    with contextlib.closing(open_notes(folder / "state.db")) as connection:
        connection.store("j").begin_run(str(folder / "job.yaml"))
    run(service, f"STOP DATA_SOURCE {TABLE}")

    run(service, f"ALTER DATA_SOURCE {TABLE} SET POSITION = 'latest'")
    run(service, f"RESUME DATA_SOURCE {TABLE}")
    with (folder / "in.jsonl").open("ab") as file:
        file.write(LINE * 2)
    run_job(folder)

    assert 2 == len((folder / "out.jsonl").read_bytes().splitlines())


@pytest.mark.parametrize(
    ("rest", "error", "message"),
    [
        ("SET POSITION = 'nowhere' DRY RUN", BadPositionError, "knows no position 'nowhere'"),
        (
            "SET POSITION = 'latest' FOR SPLIT 'x' DRY RUN",
            NotFoundError,
            "split 'x' does not exist",
        ),
    ],
)
def test_no_such_place(
    service: ControlService, folder: Path, rest: str, error: type[Exception], message: str
) -> None:
    """An unknown place or split is a named error."""
    run_job(folder)
    with pytest.raises(error, match=message):
        run(service, f"ALTER DATA_SOURCE {TABLE} {rest}")


def test_validate(service: ControlService, monkeypatch: pytest.MonkeyPatch) -> None:
    """VALIDATE shows what the sink found; secrets are resolved in the process that checks."""
    monkeypatch.setenv("HEADRACE_SECRET_BUS", "a canary")
    run(service, "CREATE DATA_SINK k WITH bus://a AND password = '${env:HEADRACE_SECRET_BUS}'")
    columns = ("check", "result", "message", "hint")

    expected = ResultTable(columns, (("stop", "passed", "the password is a canary", ""),))
    assert expected == run(service, "VALIDATE DATA_SINK k")
    monkeypatch.delenv("HEADRACE_SECRET_BUS")
    with pytest.raises(NotAvailableError, match="secret_unavailable") as caught:
        run(service, "VALIDATE DATA_SINK k")
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "result", "message"),
    [
        ("ok.jsonl", "passed", "can be written"),
        ("none/x.jsonl", "failed", "there is no folder"),
        ("in.jsonl/x", "failed", "Not a directory"),
        ("folder", "failed", "it is a folder"),
        ("pipe", "failed", "it is a device"),
        ("/etc/x.jsonl", "failed", "lies outside the folders for files"),
        ("../x.jsonl", "failed", "lies outside the folders for files"),
        ("state.db", "failed", "is the job's own state file"),
    ],
)
def test_validate_says_what_would_happen(  # noqa: PLR0913, PLR0917 (fixtures and parameters)
    folder: Path,
    connection: NoteCopy,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    result: str,
    message: str,
) -> None:
    """VALIDATE checks where the job would write, not in the caller's working folder."""
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    service = ControlService(connection, ask=ask_here, file=folder / "job.yaml")
    monkeypatch.chdir("/")
    run(service, f"CREATE DATA_SINK v WITH 'file://' AND path = '{path}'")
    (row,) = run(service, "VALIDATE DATA_SINK v").rows

    assert (result, True) == (row[1], message in row[2]), row
    assert [] == [p for p in ("ok.jsonl", "none") if (folder / p).exists()]


def test_validate_of_a_job_that_has_run(service: ControlService, folder: Path) -> None:
    """VALIDATE of a sink whose job ran uses that job's file; without one the place is unknown."""
    assert ("path", "unknown") == run(service, "VALIDATE DATA_SINK f").rows[0][:2]
    run_job(folder)
    assert ("file", "passed") == run(service, "VALIDATE DATA_SINK f").rows[0][:2]
    with (folder / "job.yaml").open("a") as file:
        file.write("sink.files.roots: [elsewhere]\n")
    assert ("path", "failed") == run(service, "VALIDATE DATA_SINK f").rows[0][:2]


@pytest.mark.parametrize(
    ("line", "seconds_max", "message"),
    [
        ("late", 0.3, "did not answer within 0.3 s"),
        ("torn", 60, "ended its process with status 7"),
        (
            "odd",
            60,
            r"plugin_broken: ValueError of sink 'bus' \(BusSink\).* at .*\.py:\d+ in check",
        ),
    ],
)
def test_a_plugin_that_does_not_answer(line: str, seconds_max: float, message: str) -> None:
    """A plugin that hangs, or ends its process, gives a named error soon."""
    options = {"bus.stops": "a", "line": line}
    with pytest.raises(NotAvailableError, match=message):
        ask({"verb": "validate", "plugin": "bus", "options": options}, seconds_max=seconds_max)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[NoteCopy]:
    """Return a connection to a new state file."""
    with contextlib.closing(open_notes(tmp_path / "s.db")) as opened:
        yield opened


def test_job_files(state: NoteCopy) -> None:
    """The latest job file counts; a forked job has that of the job that it left."""
    with pytest.raises(NotAvailableError):
        job_file(state, "j")
    for path in ("/a", "/a", "/b"):
        state.store("j").begin_run(str(path))

    assert Path("/b") == job_file(state, "j")
    assert Path("/b") == job_file(state, "j~brook.s.t")


@pytest.mark.parametrize(
    ("text", "role"),
    [
        (f"PREVIEW DATA_SOURCE {TABLE}", Role.OPERATOR),
        ("VALIDATE DATA_SINK f", Role.VIEWER),
        (f"ALTER DATA_SOURCE {TABLE} SET POSITION = 'earliest'", Role.OPERATOR),
    ],
)
def test_who_may(service: ControlService, folder: Path, text: str, role: Role) -> None:
    """A read-only user sees no rows, starts no process and moves nothing."""
    run(service, f"STOP DATA_SOURCE {TABLE}")
    with contextlib.closing(open_notes(folder / "state.db")) as connection:
        connection.store("j").begin_run(str(folder / "job.yaml"))
    before = CALLER.get()
    service.serve(Caller(name="bob", role=role), RoleGuard())
    try:
        with pytest.raises((UnauthorizedError, NotAvailableError)) as caught:
            run(service, text)
        run(service, "SHOW STATUS")
    finally:
        CALLER.set(before)

    assert "SET POSITION" in text or "unauthorized" == caught.value.code


# What the source does not deliver of its table.

SKIPPED = StatementWarning("table_skipped", ORDERS, HINT)
CDC = "DATA_SOURCE cdc ON TABLE shop"


@pytest.fixture
def worker(tmp_path: Path, connection: NoteCopy) -> ControlService:
    """Return a service that has the worker's file, and a sink."""
    made = ControlService(connection, ask=ask_here, file=worker_file(tmp_path))
    run(made, "CREATE DATA_SINK k WITH bus://a")
    return made


@pytest.fixture(autouse=True)
def _stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the working folder, which a question changes."""
    monkeypatch.chdir(tmp_path)


def test_create_warns(worker: ControlService) -> None:
    """CREATE and ALTER accept a table whose writes are not in commit logs, and warn."""
    found = run(worker, f"CREATE {CDC}.orders WITH k")

    assert ResultTable(warnings=(SKIPPED,)) == found
    assert ["cdc.shop.orders"] == [source.name for source in worker.commands.sources()]
    assert (SKIPPED,) == run(worker, f"ALTER {CDC}.orders WITH tasks.max = 2").warnings


def test_create_on_a_misspelt_table_warns(worker: ControlService) -> None:
    """CREATE accepts a table that the schema does not have, and names the nearest one."""
    found = run(worker, f"CREATE {CDC}.itmes WITH k")

    said = ("table_missing", "shop.itmes is not in the schema", "did you mean shop.items?")
    assert [StatementWarning(*said)] == list(found.warnings)
    assert ["cdc.shop.itmes"] == [source.name for source in worker.commands.sources()]


def test_nothing_to_warn_of(worker: ControlService) -> None:
    """A logged table gives no warning, nor does a statement that created nothing."""
    for statement in (
        f"CREATE {CDC}.items WITH k",
        f"DROP {CDC}.items",
        "ALTER DATA_SOURCE IF EXISTS cdc ON TABLE shop.later WITH tasks.max = 2",
    ):
        assert ResultTable() == run(worker, statement)
    run(worker, f"CREATE {CDC}.orders WITH k")
    assert ResultTable() == run(
        worker, "CREATE DATA_SOURCE IF NOT EXISTS cdc ON TABLE shop.orders WITH k"
    )


def test_another_process_warns(worker: ControlService, tmp_path: Path) -> None:
    """Another process gives the same warning, for the cluster that the statement names."""
    del worker
    with (tmp_path / "worker.yaml").open("a") as file:
        file.write("clusters: {far: {plugin: brook, path: in.jsonl}}\n")
    question = {
        "verb": "tables", "job": "j", "job_file": str(tmp_path / "worker.yaml"),
        "tables": ["shop.orders"],
    }  # fmt: skip

    warning = ["table_skipped", ORDERS, HINT]
    assert [warning] == ask({**question, "cluster": ""})
    assert [] == ask_here({**question, "cluster": "far"})  # It is the same, without a process.
    with pytest.raises(NotAvailableError, match="clusters: has no source 'near'"):
        ask_here({**question, "cluster": "near"})


def test_a_cluster_that_does_not_answer(worker: ControlService, tmp_path: Path) -> None:
    """When the cluster does not answer, the source is created, with a warning and the reason."""
    worker_file(tmp_path, "contact_points: ['127.0.0.1:1']")

    (found,) = run(worker, f"CREATE {CDC}.orders WITH k").warnings

    assert "tables_unchecked" == found.code
    assert found.message.startswith(
        "table shop.orders was not checked for writes that are in no commit log: "
        "cluster_unreachable: contact_points 127.0.0.1:1"
    )
    assert "give host:port" in found.hint
    assert ["cdc.shop.orders"] == [source.name for source in worker.commands.sources()]


def test_the_statement_waits_within_a_bound(
    connection: NoteCopy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check of the table has its own time limit, after which the table is not checked."""
    monkeypatch.setattr(probing, "SECONDS_MAX", 0.001)
    service = ControlService(connection, file=worker_file(tmp_path))

    (found,) = run(service, f"CREATE DATA_SINK k WITH bus://a; CREATE {CDC}.orders WITH k").warnings

    assert "tables_unchecked" == found.code
    assert found.message.endswith("the plugin did not answer within 0.001 s")


def test_without_a_workers_file(connection: NoteCopy, tmp_path: Path) -> None:
    """Without a worker's file, tables are not checked until a job ran with a file."""
    asked: list[object] = []

    def note(question: Mapping[str, object]) -> Answer:
        asked.append(question["verb"])
        return ask_here(question)

    service = ControlService(connection, ask=note)
    run(service, "CREATE DATA_SINK k WITH bus://a")
    assert ResultTable() == run(service, f"CREATE {CDC}.orders WITH k")
    assert [] == asked

    connection.store("k").begin_run(str(worker_file(tmp_path)))
    assert (SKIPPED,) == run(service, f"ALTER {CDC}.orders WITH tasks.max = 2").warnings
    assert ["tables"] == asked


def test_a_plugin_without_an_answer_is_not_asked(connection: NoteCopy, tmp_path: Path) -> None:
    """No process is started for a source that does not check tables."""

    def refuse(question: Mapping[str, object]) -> Answer:
        raise AssertionError(question)

    service = ControlService(connection, ask=refuse, file=worker_file(tmp_path))
    run(service, "CREATE DATA_SINK k WITH bus://a")

    assert ResultTable() == run(service, f"CREATE DATA_SOURCE {TABLE} WITH k")


def test_warnings_are_audited(worker: ControlService, tmp_path: Path) -> None:
    """A line of the audit log has the codes of the warnings that the user saw."""
    run(worker, f"CREATE {CDC}.items WITH k; CREATE {CDC}.orders WITH k")
    lines = [json.loads(line) for line in (tmp_path / "state.db.audit").read_text().splitlines()]

    assert [
        ("create_sink", "k", "done", ""),
        ("create_source", "cdc.shop.items", "done", ""),
        ("create_source", "cdc.shop.orders", "done", ""),
        ("check_tables", "cdc.shop.orders", "warned", "table_skipped"),
    ] == [(line["verb"], line["object"], line["outcome"], line["reason"]) for line in lines]
    assert lines[2]["after"] == lines[3]["before"] == lines[3]["after"]
