"""`headrace verify`: the books as committed, and whether the sink has what they say."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from headrace.connector.commands.cli import main
from headrace.plugins import EncodedRecords
from headrace.sinks import files
from headrace.sinks.files.lines import append_lines
from headrace.sinks.kafka import writer
from headrace.sinks.kafka.embedded import EmbeddedBroker
from headrace.sinks.kafka.messages import Messages, messages_of
from helpers.jobs.line_jobs import write_line_job
from helpers.recordings.corpora import recording
from helpers.settings.seeds import soaked
from helpers.stores.file_rows import replace_heads

RECORDING = "5.0-types"  # With values of more than 1,000 bytes.
FEWEST = 2  # Records of a delivery that has the fault.


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a job of two files, 30 lines."""
    write_line_job(tmp_path)
    monkeypatch.chdir("/")  # Where the command is started does not matter.
    return tmp_path


def run(folder: Path) -> int:
    """Run the job until it is idle."""
    return main(["--log-level", "error", "run", str(folder / "job.yaml"), "--until-idle"])


def test_verify_names_splits_that_failed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first line has number, split and reason; the last line is not a plain "balance"."""
    run(folder)
    (folder / "in1.jsonl").write_text("")
    assert 1 == run(folder)
    capsys.readouterr()

    assert 0 == main(["verify", str(folder / "job.yaml")])

    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith("1 of 2 splits failed (in1.jsonl): unreadable_file: ")
    assert "the books balance for what was read before that" == last
    assert 0 == main(["verify", "--json", str(folder / "job.yaml")])
    failed = json.loads(capsys.readouterr().out)["failed"]
    assert ["in1.jsonl"] == list(failed)
    (folder / "in1.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(10)))
    assert 0 == run(folder)
    capsys.readouterr()
    assert 0 == main(["verify", str(folder / "job.yaml")])
    assert capsys.readouterr().out.endswith("\nthe books balance\n")


def test_verify(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`verify` prints the committed books; it starts nothing and creates no file."""
    assert 3 == main(["verify", str(folder / "job.yaml")])
    assert "the state file does not exist" in capsys.readouterr().err
    run(folder)
    capsys.readouterr()

    figures = (
        "30 changes, each once; 0 lost\n"
        "  changes published  30\n"
        "  possibly repeated   0\n"
        "  dead-lettered       0\n"
        "  lost                0\n"
    )
    spans = (
        "all from the beginning to 90: splits in1.jsonl\n"
        "all from the beginning to 190: splits in2.jsonl\n"
    )
    books = f"{spans}changes of lines: cut 30, delivered 30\n"
    assert 0 == main(["verify", str(folder / "job.yaml")])
    assert f"{figures}the books balance\n" == capsys.readouterr().out
    assert 0 == main(["verify", "--books", str(folder / "job.yaml")])
    assert f"{figures}{books}the books balance\n" == capsys.readouterr().out
    assert 0 == main(["verify", "--json", str(folder / "job.yaml")])
    assert 30 == json.loads(capsys.readouterr().out)["figures"]["published"]


def test_verify_of_books_that_differ(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`verify` of books that do not balance ends with status 4 and names the equation."""
    run(folder)
    wrong = {"counters": {"lines": (9, 8, 0, 0, 0, 0, 0, 0)}}
    replace_heads(folder / "state.db", lambda of: wrong if "1" in of.split else {})
    capsys.readouterr()

    assert 4 == main(["verify", str(folder / "job.yaml")])
    assert (
        "split in1.jsonl: changes of lines: cut 9 is not delivered 8 = 8" in capsys.readouterr().err
    )
    assert 4 == run(folder)
    assert "error [books_differ]" in capsys.readouterr().err


class Changes:
    """A job that reads a recording of Cassandra into a sink."""

    def __init__(self, folder: Path, sink: dict[str, str]) -> None:
        """Write the job file."""
        self.folder = folder
        self.broker = EmbeddedBroker()
        source = {
            "plugin": "cassandra",
            "nodes": {"node1": str(recording(RECORDING) / "segments")},
            "schema": str(recording(RECORDING) / "schema.cql"),
            "consistency": "ONE",
            "splits": 2,
        }
        if "plugin" not in sink:
            servers = {"bootstrap.servers": self.broker.bootstrap_servers}
            sink = {"plugin": "kafka", **servers, **sink}
        whole = {"job": "j", "state": "state.db", "source": source, "sink": sink}
        (folder / "job.yaml").write_text(json.dumps(whole))

    def compared(
        self, capsys: pytest.CaptureFixture[str], processes: int = 1
    ) -> tuple[int, dict[str, Any]]:
        """Return the status of `verify --sink --json`, and what it printed."""
        capsys.readouterr()
        options = ["--sink", "--json", "--processes", str(processes)]
        status = main(["verify", *options, str(self.folder / "job.yaml")])
        out, err = capsys.readouterr()
        found = json.loads(out)
        assert [f"error [books_differ]: {line}" for line in found["sink_differences"]] == (
            err.splitlines()
        )
        return status, found


SINKS = {
    "avro": {"topic": "t", "format": "avro"},
    "avro, a topic for each table": {"topic": "t.{keyspace}.{table}", "format": "avro"},
    "avro, flat, tombstones": {
        "topic": "t",
        "format": "avro",
        "envelope": "flat",
        "key": "primary",
        "tombstones.on.delete": "true",
    },
    "json": {"topic": "t", "format": "json"},
    "json, cep44": {"topic": "t", "format": "json", "envelope": "cep44"},
    "json, flat": {"topic": "t", "format": "json", "envelope": "flat"},
    "large values in a folder": {
        "topic": "t",
        "format": "avro",
        "large.policy": "claim-check",
        "large.bytes": "1000",
        "large.store.path": "claims",
    },
    "large values in chunks": {
        "topic": "t",
        "format": "avro",
        "large.policy": "chunk",
        "large.bytes": "1000",
    },
    "a file": {"plugin": "files", "path": "out.jsonl"},
}


def exchanged(messages: Messages) -> Messages:
    """Send the first message again in place of the second, which is lost."""
    if len(messages.values) < FEWEST:
        return messages
    return replace(
        messages,
        keys=[messages.keys[0], messages.keys[0], *messages.keys[2:]],
        values=[messages.values[0], messages.values[0], *messages.values[2:]],
        headers=[messages.headers[0], messages.headers[0], *messages.headers[2:]],
        places=[messages.places[0], messages.places[0], *messages.places[2:]],
    )


def plant_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the sinks lose a record of a delivery and report it as delivered."""

    def messages(encoded: EncodedRecords, **given: Any) -> Messages:  # noqa: ANN401 (passed on)
        return exchanged(messages_of(encoded, **given))

    def lines(path: Path, content: bytes, **given: bool) -> None:
        kept = content.splitlines(keepends=True)
        append_lines(path, b"".join(kept[1:] if len(kept) >= FEWEST else kept), **given)

    monkeypatch.setattr(writer, "messages_of", messages)
    monkeypatch.setattr(files, "append_lines", lines)


@pytest.mark.parametrize("name", SINKS)
def test_the_sink_has_what_the_books_say(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In every envelope and format each delivered change is found, and no other one."""
    job = Changes(tmp_path, SINKS[name])
    assert 0 == run(tmp_path)
    status, found = job.compared(capsys)

    delivered = {
        table: counts["delivered"]
        for table, counts in found["total"]["tables"].items()
        if counts["delivered"]
    }
    assert 50 < sum(delivered.values())
    tables = found["sink"]["tables"]
    assert delivered == {table: each["found"] for table, each in tables.items()}
    assert {0} == {each[key] for each in tables.values() for key in ("missing", "unknown")}
    assert (0, 0, []) == (status, found["sink"]["unreadable"], found["sink_differences"])


# All are read as above; the files of large values differ, as do files from topics.
LOSING = ("avro, flat, tombstones", "json, cep44", "large values in a folder", "a file")


@pytest.mark.soak
@pytest.mark.parametrize(
    "name", [*LOSING, *soaked(*(name for name in SINKS if name not in LOSING))]
)
def test_what_a_sink_lost_is_missing(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink that reports records as delivered which it lost ends with status 4."""
    job = Changes(tmp_path, SINKS[name])
    with monkeypatch.context() as planted:
        plant_loss(planted)
        assert 0 == run(tmp_path)
    assert 0 == main(["verify", str(tmp_path / "job.yaml")])
    status, found = job.compared(capsys)

    missing = sum(each["missing"] for each in found["sink"]["tables"].values())
    assert (4, True) == (status, missing > 0)
    lost = [line for line in found["sink_differences"] if "are missing" in line]
    assert [] != lost


def test_processes_read_the_sink(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Several processes find what one finds."""
    job = Changes(tmp_path, SINKS["avro"])
    assert 0 == run(tmp_path)

    assert job.compared(capsys) == job.compared(capsys, processes=2)
    assert 2 == main(["verify", "--sink", "--processes", "0", str(tmp_path / "job.yaml")])
    assert "--processes: expected 1 or more, found 0" in capsys.readouterr().err


def test_what_was_sent_twice_counts_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job that starts over sends all changes again: none is missing, and all are repeated."""
    job = Changes(tmp_path, SINKS["avro"])
    assert 0 == run(tmp_path)
    _, before = job.compared(capsys)
    (tmp_path / "state.db").unlink()
    path = str(tmp_path / "job.yaml")
    assert 0 == main(["--log-level", "error", "run", "--new-state", "--until-idle", path])
    status, found = job.compared(capsys)

    assert 0 == status
    for table, content in before["sink"]["tables"].items():
        again = found["sink"]["tables"][table]
        assert content["found"] == again["found"] == again["repeated"]


def test_what_the_books_do_not_know_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Changes in the sink that no commit covers are named, with the table."""
    job = Changes(tmp_path, SINKS["avro"])
    assert 0 == run(tmp_path)
    _, before = job.compared(capsys)
    tables = before["sink"]["tables"]
    most = max(tables, key=lambda table: tables[table]["found"])
    less = {"counters": {most: (1, 1, 0, 0, 0, 0, 0, 0)}}
    replace_heads(tmp_path / "state.db", lambda _: less)
    status, found = job.compared(capsys)

    assert 4 == status
    (line,) = found["sink_differences"]
    assert f"changes of {most} are not in the books" in line


def test_messages_of_others_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines that the job did not send are counted, with the reason."""
    job = Changes(tmp_path, SINKS["a file"])
    assert 0 == run(tmp_path)
    with (tmp_path / "out.jsonl").open("a") as out:
        out.write('{"n": 1}\nnot json\n')
    status, found = job.compared(capsys)
    assert (0, 2) == (status, found["sink"]["unreadable"])

    assert 0 == main(["verify", "--sink", str(tmp_path / "job.yaml")])
    assert "sink: 2 messages are not of this job: " in capsys.readouterr().out


REFUSED: Sequence[tuple[dict[str, str], str]] = [
    ({"topic": "t", "format": "avro", "envelope": "debezium"}, "have no mutation and index"),
    ({"plugin": "null"}, "what this sink wrote cannot be read back"),
    (
        {
            "topic": "t",
            "transforms": "r",
            "transforms.r.type": "RegexRouter",
            "transforms.r.regex": "t",
            "transforms.r.replacement": "u",
        },
        "sink.transforms: change the topics of records",
    ),
]


@pytest.mark.parametrize(("sink", "message"), REFUSED)
def test_sinks_that_cannot_be_compared(
    sink: dict[str, str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error says why the sink cannot be compared with the books."""
    job = Changes(tmp_path, sink)
    assert 0 == run(tmp_path)
    capsys.readouterr()

    assert 2 == main(["verify", "--sink", str(job.folder / "job.yaml")])
    assert message in capsys.readouterr().err


def test_lines_are_no_changes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Records of a source that is not a database do not say which changes they are."""
    assert 0 == run(folder)
    capsys.readouterr()

    assert 2 == main(["verify", "--sink", str(folder / "job.yaml")])
    assert "messages of lines have no mutation and index" in capsys.readouterr().err
