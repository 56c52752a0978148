"""The job file: what is accepted, and that every mistake is reported at its place."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connector.commands.exec import main as exec_main
from headrace.connector.control.commands import Commands
from headrace.connector.control.jobs import job_text, read_job
from headrace.connector.foundation.job_file import JOB_FILE_BYTES_MAX
from headrace.connector.language.statements import CreateSink
from headrace.connector.stores import StateFileError
from headrace.connector.stores.cassandra.session import StoreUnreachableError
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import ConfigError, SecretUnavailableError
from headrace.sinks.files import FileSink
from helpers.servers.cql_node import CqlNode

GOOD = """\
job: orders
state: state.db
source: {plugin: files, path: "in*.jsonl"}
sink: {plugin: files, path: out.jsonl}
"""


def write(folder: Path, text: str) -> Path:
    """Write a job file, beside a file to read, and return its path."""
    path = folder / "job.yaml"
    (folder / "in.jsonl").touch()
    path.write_text(text, encoding="utf-8")
    return path


def test_reads_a_job(tmp_path: Path) -> None:
    """Options reach the plugins' configurations; the state file is beside the job file."""
    job = read_job(write(tmp_path, GOOD + "runtime: {tick_min_ms: 5, commit_max_seconds: 0.5}\n"))

    assert ("orders", tmp_path, tmp_path / "state.db") == (job.name, job.directory, job.state)
    assert (FileSink, "out.jsonl") == (job.sink, job.sink_config.path)
    assert (5, 0.5, 10.0) == (
        job.runtime.tick_min_ms,
        job.runtime.commit_max_seconds,
        job.runtime.lease_seconds,
    )


@pytest.mark.parametrize(
    ("text", "key", "message", "hint"),
    [
        (GOOD + "jobb: x", "jobb", "is not an option", "did you mean job?"),
        (GOOD.replace("job: orders\n", ""), "job", "is required", ""),
        (GOOD.replace("path: out", "pth: out"), "sink.pth", "is not an option", "path"),
        (GOOD.replace("plugin: files, path: out", "path: out"), "sink.plugin", "is required", ""),
        (GOOD.replace("files, path: out", "filez, path: out"), "sink.plugin", "filez", "files"),
        (GOOD + "runtime: {tick_ms: 5}", "runtime.tick_ms", "is not an option", "tick_min_ms"),
        (GOOD + "runtime: {sink: x}", "runtime.sink", "is not an option", "beside `runtime`"),
        (GOOD + "runtime: {path: x}", "runtime.path", "is not an option", "option of `source`"),
        (GOOD + "runtime: {tick_min_ms: 0}", "runtime.tick_min_ms", "at least 1", ""),
        (GOOD + "runtime: {tick_min_ms: soon}", "runtime.tick_min_ms", "whole number", ""),
        (GOOD + "runtime: []", "runtime", "expected a mapping", ""),
        (GOOD.replace("orders", "''"), "job", "is required", ""),
    ],
)
def test_names_every_mistake(tmp_path: Path, text: str, key: str, message: str, hint: str) -> None:
    """A mistake is reported under its key, with a hint where one helps."""
    with pytest.raises(ConfigError) as caught:
        read_job(write(tmp_path, text))
    found = {problem.key: problem for problem in caught.value.problems}

    assert key in found
    assert message in found[key].message
    assert hint in found[key].hint
    assert str(tmp_path / "job.yaml") == caught.value.place
    assert 2 == caught.value.exit_status


def test_a_mistake_outside_hides_none_inside(tmp_path: Path) -> None:
    """A key of no section, and what is wrong within sections, are reported together, each once."""
    text = GOOD.replace("path: out", "pth: out").replace("state:", "stat:") + "runtime: {tick: 1}\n"
    with pytest.raises(ConfigError) as caught:
        read_job(write(tmp_path, text))

    keys = [problem.key for problem in caught.value.problems]
    assert ["runtime.tick", "sink.path", "sink.pth", "stat", "state"] == sorted(keys)


@pytest.mark.parametrize(
    "section", ["source: [files]", "source: {plugin: files, path: 7}\nsink: x"]
)
def test_sections_of_another_form(tmp_path: Path, section: str) -> None:
    """A section that is not a mapping is one mistake, and its keys are not looked at."""
    with pytest.raises(ConfigError) as caught:
        read_job(write(tmp_path, f"job: j\nstat: s\n{section}\n"))

    keys = [problem.key for problem in caught.value.problems]
    assert len(set(keys)) == len(keys)
    assert {"stat", "state"} < set(keys)


def test_names_all_mistakes_at_once(tmp_path: Path) -> None:
    """Mistakes in several sections are reported together."""
    text = GOOD.replace("path: out", "pth: out") + "runtime: {tick: 1}\n"
    with pytest.raises(ConfigError) as caught:
        read_job(write(tmp_path, text))

    keys = {problem.key for problem in caught.value.problems}
    assert {"sink.pth", "sink.path", "runtime.tick"} == keys


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("job: [", ":1:7", "expected"),
        ("job: a\njob: b\n", ":2:1", "job is given twice"),
        ("job: a\n1: b\n", ":2:1", "a key must be text"),
        (
            "job: !!python/object:os.system x",
            ":1:6",
            "constructor for the tag",
        ),
        ("- job", "", "expected keys and values, found list"),
        ("", "", "expected keys and values, found NoneType"),
        ("[" * 1000, "", "is not usable YAML"),
        ("job: 2026-99-99", ":1:6", "found a value that is not a valid timestamp"),
        ("a" * (JOB_FILE_BYTES_MAX + 1), "", "has more than"),
        ("job: \0", "", "is not YAML"),
    ],
    ids=["open", "twice", "number", "object", "list", "empty", "deep", "date", "large", "nul"],
)
def test_names_invalid_yaml(tmp_path: Path, text: str, place: str, message: str) -> None:
    """Invalid YAML is reported with line and column, where there are any."""
    path = write(tmp_path, text)
    with pytest.raises(ConfigError, match=message) as caught:
        read_job(path)

    assert f"{path}{place}" == caught.value.place


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('job: "a\\nb"', "job: expected a name"),
        ('job: "a\\x07b"', "job: expected a name"),
        ('job: "a\\u202eb"', "job: expected a name"),
        (f"job: {'x' * 181}", "job: expected a name"),
        ("job: orders~x", "without ~, which is in the names of forked jobs"),
        (f"job: {'ü' * 34}", "job: expected a name"),
        ('job: "a\\0b"', ":1:6: a text holds a NUL"),
        ('job: "\\udc80"', ":1:6: a text holds half of a character"),
        (f"state: {'x' * 10_000}", "state: is not a file name: File name too long"),
        (f"state: {'ü' * 200}", "state: is not a file name: File name too long"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_names_that_cannot_be(tmp_path: Path, text: str, message: str) -> None:
    """A name of a job or of a file under which nothing can be stored is a named error."""
    section = text.partition(":")[0]
    kept = [known for known in GOOD.splitlines() if not known.startswith(f"{section}:")]
    path = write(tmp_path, "\n".join([text, *kept, ""]))
    with pytest.raises(ConfigError) as caught:
        read_job(path)

    assert message in str(caught.value)


def test_a_name_in_halves_is_whole(tmp_path: Path) -> None:
    """A character that JSON writes as a pair of escapes is one character."""
    path = write(tmp_path, GOOD.replace("job: orders", 'job: "\\ud83d\\ude00"'))

    assert "😀" == read_job(path).name


def test_names_a_missing_file(tmp_path: Path) -> None:
    """A missing job file is a configuration error."""
    with pytest.raises(ConfigError, match="cannot be read"):
        read_job(tmp_path / "none.yaml")


def test_a_secret_is_referred_to(tmp_path: Path) -> None:
    """A password that is written in the job file is refused, and no message repeats it."""
    sink = "sink: {plugin: kafka, bootstrap.servers: h:9, topic: t, sasl.password: canary}\n"
    text = "".join(line for line in GOOD.splitlines(keepends=True) if "sink:" not in line) + sink
    with pytest.raises(ConfigError) as caught:
        read_job(write(tmp_path, text))

    assert ["sink.sasl.password"] == [problem.key for problem in caught.value.problems]
    assert "${env:HEADRACE_SECRET_SASL_PASSWORD}" in str(caught.value)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        "sasl.jaas.config: canary",
        "runtime: {basic.auth.user.info: canary}",
        "runtime: {tick_min_ms: {client.secret: canary}}",
        "runtime: {tick_min_ms: [canary]}",
        "start: {client.secret: canary}",
        "sink: {plugin: files, path: o, sasl.oauthbearer.client.secret: canary}",
        "sink: {plugin: files, path: {basic.auth.user.info: canary}}",
        "sink: {plugin: files, path: [canary]}",
        "sink: {plugin: kafka, topic: t, bootstrap.servers: h, sasl.jaas.config: canary}",
        "sink: {plugin: kafka, topic: t, bootstrap.servers: h, client.id: {a: canary}}",
        "sink: {plugin: {a: canary}}",
        "sink: [canary]",
        "source: {plugin: files, path: in, pasword: canary}",
        "source: {plugin: cassandra, nodes: {n1: {tokn: canary}}}",
        "source: {plugin: cassandra, nodes: [{tokn: canary}]}",
        "source: {plugin: cassandra, nodes: {n1: [canary]}}",
        "store: {plugin: cassandra, pasword: canary}",
        "job: [canary]",
        "? {a: canary}\n: 1",
        "start: !!int canary",
        "start: !!timestamp canary",
        "start: !!python/name:canary x",
        "start: !canary",
        "start: *canary",
        "start: &canary x\nx: &canary y",
        "start: {canary: 1, canary",
    ],
)
def test_no_undeclared_value_is_repeated(tmp_path: Path, line: str) -> None:
    """No message about a job file repeats the value of a key that is not declared."""
    section = line.partition(":")[0]
    kept = [known for known in GOOD.splitlines() if not known.startswith(f"{section}:")]
    path = write(tmp_path, "\n".join([*kept, line, ""]))
    with pytest.raises(ConfigError) as caught:
        read_job(path)

    assert "canary" not in str(caught.value)


def test_resolves_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference is resolved on this machine; one that cannot be resolved is named."""
    path = write(tmp_path, GOOD.replace("out.jsonl", "'${env:OUT_PATH}'"))
    monkeypatch.setenv("OUT_PATH", "there.jsonl")
    assert "there.jsonl" == read_job(path).sink_config.path
    monkeypatch.delenv("OUT_PATH")
    with pytest.raises(SecretUnavailableError) as caught:
        read_job(path)

    assert "sink.path" == caught.value.place


def test_takes_sink_and_tables_from_the_statements(tmp_path: Path) -> None:
    """The sink and tables of CREATE DATA_SINK and CREATE DATA_SOURCE complete the job file."""
    statements = """
        CREATE DATA_SINK out WITH 'file://out.jsonl';
        CREATE DATA_SOURCE cdc ON TABLE shop.orders WITH out;
    """
    assert 0 == exec_main(["--state", str(tmp_path / "state.db"), "-e", statements])
    source = "{plugin: cassandra, schema: schema.cql, nodes: {n1: cdc_raw}}"
    job = read_job(write(tmp_path, f"job: orders\nstate: state.db\nsource: {source}\n"))

    assert (FileSink, "out.jsonl") == (job.sink, job.sink_config.path)
    assert ("shop.orders",) == job.source_config.tables


def of_statements(folder: Path, sink: str, more: str = "") -> Path:
    """Return a job file whose sink was created by a statement."""
    statements = f"""
        CREATE DATA_SINK out WITH {sink};
        CREATE DATA_SOURCE cdc ON TABLE shop.orders WITH out;
    """
    assert 0 == exec_main(["--state", str(folder / "state.db"), "-e", statements])
    (folder / "cdc_raw").mkdir()
    (folder / "schema.cql").touch()
    source = "{plugin: cassandra, schema: schema.cql, nodes: {n1: cdc_raw}}"
    return write(folder, f"job: orders\nstate: state.db\nsource: {source}\n{more}\n")


SCHEMAS = "'kafka://h?topic=t' AND schema.store = 'file' AND schema.store.path = "
CLAIMS = "'file://x' AND large.policy = 'claim-check' AND large.store.path = "


@pytest.mark.parametrize(
    ("sink", "more", "key"),
    [
        ("'file:///etc/cron.d/x'", "", "sink.path"),
        ("'file://' AND path = '../x'", "", "sink.path"),
        ("'file://' AND path = 'in/../../x'", "", "sink.path"),
        ("'file://' AND path = 'link/x'", "", "sink.path"),
        ("'file://x'", "sink.files.roots: [out]", "sink.path"),
        ("'file://x'", "sink.files.roots: []", "sink.path"),
        ("'file://' AND path = 'output/x'", "sink.files.roots: [out]", "sink.path"),
        ("'file://job.yaml'", "", "sink.path"),
        ("'file://state.db'", "", "sink.path"),
        ("'file://state.db.audit'", "", "sink.path"),
        (f"{SCHEMAS}'/tmp/x'", "", "sink.schema.store.path"),
        (f"{CLAIMS}'../x'", "", "sink.large.store.path"),
    ],
)
def test_statements_write_below_the_roots(tmp_path: Path, sink: str, more: str, key: str) -> None:
    """A sink of a statement may not write outside the roots, also through `..` and links."""
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    with pytest.raises(ConfigError) as caught:
        read_job(of_statements(folder, sink, more))

    assert [key] == [problem.key for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("sink", "more"),
    [
        ("'file://x'", ""),
        ("'file://' AND path = 'out/x'", "sink.files.roots: out"),
        ("'file://{}/elsewhere/x'", "sink.files.roots: [out, '{}/elsewhere']"),
        (f"{SCHEMAS}'schemas'", ""),
    ],
)
def test_statements_may_write_below_the_roots(tmp_path: Path, sink: str, more: str) -> None:
    """The roots are the folder of the job file, unless the job file names others."""
    folder = tmp_path / "job"
    folder.mkdir()

    assert read_job(of_statements(folder, sink.format(tmp_path), more.format(tmp_path)))


def test_a_job_file_may_write_anywhere(tmp_path: Path) -> None:
    """A sink in the job file itself may write anywhere."""
    path = write(tmp_path, GOOD.replace("out.jsonl", "/elsewhere/out.jsonl"))

    assert "/elsewhere/out.jsonl" == read_job(path).sink_config.path


def test_who_only_reads_the_text_checks_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay into a statement's sink resolves only the references that its job may resolve."""
    monkeypatch.setenv("CANARY", "canary")
    sink = "'kafka://h?topic=t' AND sasl.password = '${env:CANARY}'"
    with pytest.raises(SecretUnavailableError, match="may not refer to"):
        job_text(of_statements(tmp_path, sink))


def test_asks_the_state_for_a_missing_sink(tmp_path: Path) -> None:
    """Without `sink` a state file must exist; reading the job does not create it."""
    text = GOOD.replace("sink: {plugin: files, path: out.jsonl}\n", "")
    with pytest.raises(StateFileError, match="the state file does not exist"):
        read_job(write(tmp_path, text))

    assert not (tmp_path / "state.db").exists()


@given(text=st.text(max_size=200))
def test_any_text_gives_a_named_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """Any text in the file gives an error of headrace (I9)."""
    path = tmp_path_factory.mktemp("job") / "job.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ConfigError):
        read_job(path)


def test_a_store_is_opened(tmp_path: Path) -> None:
    """Leases and positions are in the store that the job file names, or else in the state file."""
    file = write(tmp_path, GOOD)
    read_job(file).open_store().close()
    assert (tmp_path / "state.db").exists()
    with CqlNode() as node:
        write(tmp_path, f"{GOOD}store: {{plugin: cassandra, contact_points: '{node.point}'}}\n")
        with pytest.raises(StoreUnreachableError, match="no answer to: CREATE KEYSPACE"):
            read_job(file).open_store()


def test_a_source_of_another_cluster(tmp_path: Path) -> None:
    """A worker's file may have several clusters, and statements choose the one a job reads."""
    path = tmp_path / "worker.yaml"
    path.write_text(
        "state: s.db\nsource: {plugin: files, path: here}\n"
        "clusters: {east: {plugin: files, path: there}}\n"
    )
    with contextlib.closing(open_notes(tmp_path / "s.db")) as notes:
        commands = Commands(notes)
        commands.create_sink(CreateSink(name="k", uri="null://"))
        for name, more in (("a", {}), ("b", {"cluster": "east"}), ("c", {"cluster": "west"})):
            table = {"keyspace": "ks", "table": name, "sink": "k"}
            made = {"name": name, "connector.class": "CassandraCdcSource"} | table | more
            commands.create_source(made)
        jobs = {name: status.job for name, status in commands.statuses().items()}
    texts = [job_text(path, jobs[name]) for name in "ab"]

    assert {"a": "k", "b": "k@east", "c": "k@west"} == jobs
    assert ["here", "there"] == [text.source["path"] for text in texts]
    assert [["ks.a"], ["ks.b"]] == [text.source["tables"] for text in texts]
    with pytest.raises(ConfigError, match="has no source 'west'"):
        job_text(path, "k@west")
