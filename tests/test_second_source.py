"""A source with other counters and other origin fields than Cassandra's runs as that one does.

The mill declares them to the framework, which knows neither its words nor those of any source.
"""

import ast
import contextlib
import io
import json
import re
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import structlog
import yaml

from headrace import __version__
from headrace.connector.commands.cli import main
from headrace.connector.control.plugins.probe import answer_to
from headrace.connector.control.plugins.probing import unpacked
from headrace.connector.control.service import ControlService
from headrace.connector.language.parser import parse_script
from headrace.connector.language.rendering import ResultTable
from headrace.connector.replay.delivery import Target, deliver
from headrace.connector.replay.planning import planned
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.shards import Shard, SourceSpec
from headrace.connector.serde.avro_types import without_logic
from headrace.connector.serde.shaping import Shaper
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import ConfigError, Encoding, declared_options
from headrace.plugins.records.codecs import header_problems, record_headers
from headrace.plugins.testing import SourceDriver, SourceSuite
from headrace.plugins.testing.doubles import context
from headrace.sources.cassandra.config import CassandraConfig
from headrace.sources.cassandra.source import CassandraSource
from headrace.sources.cassandra.table_source import TableConfig
from helpers import FOLDER
from helpers.jobs import mill

SACKS = {
    "north": [
        {"id": 1, "kind": "rye", "grams": 300, "fate": "ground"},
        {"id": 2, "kind": "oat", "grams": 200, "fate": "spilt"},
        {"id": 3, "kind": "rye", "grams": 100, "fate": "ground"},
    ],
    "south": [
        {"id": 4, "kind": "wheat", "grams": 50, "fate": "stored"},
        {"id": 5, "kind": "wheat", "grams": 70, "fate": "ground"},
    ],
}
GROUND = [("north", 0, 1, 300), ("north", 2, 3, 100), ("south", 1, 5, 70)]


class MillJob:
    """A job of the mill, run by the command line in this process."""

    def __init__(self, folder: Path) -> None:
        """Write the sacks and the job file."""
        self.folder = folder
        for wheel, sacks in SACKS.items():
            self.add(wheel, *sacks)
        self.path = folder / "job.yaml"
        self.configure()

    def add(self, wheel: str, *sacks: Mapping[str, object]) -> int:
        """Bring sacks to a wheel; return how many bytes that are."""
        lines = "".join(f"{json.dumps(sack)}\n" for sack in sacks)
        with (self.folder / f"{wheel}.sacks").open("a") as file:
            return file.write(lines)

    def configure(self, *, sink: Mapping[str, object] | None = None, **source: object) -> None:
        """Write the job file with these options."""
        document = {
            "job": "mill",
            "state": "state.db",
            "source": {"plugin": "mill", "path": str(self.folder), **source},
            "sink": {"plugin": "barn", "path": str(self.folder / "out"), **(sink or {})},
        }
        self.path.write_text(yaml.safe_dump(document))

    def call(self, verb: str, *arguments: str) -> tuple[int, str]:
        """Call a command on the job; return its status and what it printed."""
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                status = main(["--log-level", "error", verb, str(self.path), *arguments])
        finally:
            structlog.reset_defaults()
        return status, printed.getvalue()

    def run(self) -> int:
        """Take what is there."""
        return self.call("run", "--until-idle")[0]

    def messages(self) -> list[dict[str, Any]]:
        """Return what is in the barn, in the order of the sacks."""
        rows = [json.loads(line) for line in (self.folder / "out").read_text().splitlines()]
        return sorted(rows, key=lambda row: str(row["headers"].get("wheel")))


class MillDriver(SourceDriver):
    """Tells the suite about the mill."""

    def __init__(self, folder: Path) -> None:
        """Write the sacks."""
        self._job = MillJob(folder)

    def source(self) -> mill.MillSource:
        """Return a source over the wheels."""
        return mill.MillSource(mill.MillConfig(path=str(self._job.folder)), context())

    def grow(self) -> int:
        """Bring a sack, and one of which nothing comes."""
        self._job.add("south", SACKS["north"][0], SACKS["north"][1])
        return 1


class TestMillSource(SourceSuite):
    """The mill obeys the contract, like any source."""

    @pytest.fixture
    def driver(self, tmp_path: Path) -> SourceDriver:
        """Return the driver."""
        return MillDriver(tmp_path)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MillJob:
    """Return a job of a source that is installed like any other."""
    plugin = tmp_path / "plugin"
    plugin.mkdir()
    mill.install(plugin, monkeypatch)
    monkeypatch.chdir(tmp_path)
    return MillJob(tmp_path)


def test_its_books_balance(job: MillJob) -> None:
    """`verify` adds up the counters that the source declares, and names what waits and repeats."""
    assert 0 == job.run()
    status, reported = job.call("verify", "--books")

    assert 0 == status
    assert "sacks at north: brought 3, ground 2, spilt 1\n" in reported
    assert "sacks at south: brought 2, ground 1, stored 1\n" in reported
    assert "loaves: baked 3, ordered 4, rising 1\n" in reported
    assert "changes of bakery.flour: cut 3, delivered 3\n" in reported
    assert "at most 1 loaves may be in the sink twice (echo): the baker stutters\n" in reported
    assert [] == json.loads(job.call("verify", "--json")[1])["differences"]


def test_books_that_do_not_balance_are_found(
    job: MillJob, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sack that the source loses count of ends the run, and `verify`, with the equation."""
    job.configure(forgets=3)

    assert 0 != job.run()
    assert "sacks at north: brought 3 is not ground 1 + spilt 1 = 2" in capsys.readouterr().err
    status, reported = job.call("verify", "--json")
    assert 0 != status
    assert [
        "split north: sacks at north: brought 3 is not ground 1 + spilt 1 = 2",
        "sacks at north: brought 3 is not ground 1 + spilt 1 = 2",
    ] == json.loads(reported)["differences"]


def test_what_waits_is_reported(job: MillJob) -> None:
    """`run` counts it in the source's words; `waiting` lists it."""
    _, reported = job.call("run", "--until-idle")

    assert reported.startswith(
        "3 changes, of which at most 1 came twice; 0 lost; 1 loaf is rising\n"
    )
    assert re.search(r"^  waiting  +1  headrace waiting ", reported, re.MULTILINE)
    assert "1 loaves" in job.call("waiting")[1]


def test_splits_that_are_no_ranges_of_tokens(job: MillJob) -> None:
    """`splits` lists them without a range."""
    assert 0 == job.run()
    rows = [json.loads(line) for line in job.call("splits", "--json")[1].splitlines()]

    assert [("north", None, None, 0), ("south", None, None, 0)] == [
        (row["split"], row["from"], row["to"], row["lag"]) for row in rows
    ]


@pytest.mark.parametrize("codec", ["avro", "json"])
@pytest.mark.parametrize("envelope", ["cep44", "flat", "debezium"])
def test_every_envelope_has_its_origin(job: MillJob, envelope: str, codec: str) -> None:
    """Each says where a change was read, in the source's words and none of another's."""
    headers = ("schemaId", "wheel")
    job.configure(sink={"envelope": envelope, "format": codec, "headers": list(headers)})
    assert 0 == job.run()
    schema = Shaper(Encoding(codec="avro", envelope=envelope), mill.ORIGIN).schema(mill.SCHEMA)
    parsed: Any = fastavro.parse_schema(without_logic(schema.value), {})

    def decoded(value: bytes) -> Any:  # noqa: ANN401 (a document)
        if codec == "json":
            return json.loads(value)
        return fastavro.schemaless_reader(BytesIO(value), parsed, None)

    found = [decoded(bytes.fromhex(row["value"])) for row in job.messages()]

    assert [origin_in(envelope, *sack) for sack in GROUND] == [
        _origin_of(envelope, document) for document in found
    ]
    assert [id_ for _, _, id_, _ in GROUND] == [_id_of(envelope, document) for document in found]


def origin_in(envelope: str, wheel: str, sack: int, id_: int, grams: int) -> dict[str, Any]:
    """Return what an envelope must say of where a change was read."""
    del id_
    match envelope:
        case "flat":
            return {"__wheel": wheel, "__sack": sack, "__grams": grams}
        case "debezium":
            time_us = 1_000_000 + sack
            return {
                "version": __version__,
                "connector": "mill",
                "name": wheel,
                "ts_ms": time_us // 1_000,
                "snapshot": "false",
                "db": "barn",
                "sequence": "[0,1]",
                "ts_us": time_us,
                "ts_ns": time_us * 1_000,
                "bag": str(sack),
                "grams": grams,
                "village": "",
                "table": "flour",
            }
        case _:
            return {"wheel": wheel, "sack": sack, "grams": grams}


def _origin_of(envelope: str, document: Mapping[str, Any]) -> dict[str, Any]:
    if envelope == "debezium":
        return dict(document["source"])
    own = ("mutation", "index", "of", "op", "timestamp", "static", "ttl", "expires", "written")
    known = {f"__{name}" for name in (*own, "truncated", "cells", "range")}
    if envelope == "flat":
        return {n: v for n, v in document.items() if n.startswith("__") and n not in known}
    return {name: document[name] for name in [*document][-3:]}


def _id_of(envelope: str, document: Mapping[str, Any]) -> int:
    match envelope:
        case "debezium":
            found: int = document["after"]["id"]["value"]
        case "flat":
            found = document["id"]
        case _:
            found = document["payload"]["id"]
    return found


def test_documents_have_its_origin(job: MillJob) -> None:
    """In JSON without an envelope a record's document says it, too."""
    job.configure(sink={"headers": ["wheel"]})
    assert 0 == job.run()
    found = [json.loads(bytes.fromhex(row["value"])) for row in job.messages()]

    assert GROUND == [(d["wheel"], d["sack"], d["payload"]["id"], d["grams"]) for d in found]


@pytest.mark.parametrize("form", [{}, {"format": "avro", "envelope": "flat"}])
def test_its_fields_can_be_headers(job: MillJob, form: Mapping[str, object]) -> None:
    """They stand behind those that every change has; numbers and strings are strings."""
    wanted = record_headers(mill.ORIGIN)
    job.configure(sink={**form, "headers": list(wanted)})
    assert 0 == job.run()
    found = [row["headers"] for row in job.messages()]

    names = ("mutation", "index", "of", "op", "timestamp", "wheel", "sack", "grams", "traceparent")
    assert names == wanted
    assert [names] * len(GROUND) == [tuple(headers) for headers in found]
    assert [(w, str(s), str(g)) for w, s, _, g in GROUND] == [
        tuple(bytes.fromhex(headers[name]).decode() for name in mill.ORIGIN.fields)
        for headers in found
    ]


@pytest.fixture
def shard(job: MillJob) -> Shard:
    """Return the first wheel as a replay reads it."""
    given = {"plugin": "mill", "path": str(job.folder)}
    spec = SourceSpec(given=given, directory=str(job.folder))
    return planned(spec, Selection()).shards[0]


def test_a_replay_into_files_has_its_origin(job: MillJob, shard: Shard) -> None:
    """The columns of a source's own stand behind those of every change, with its types."""
    report = deliver(shard, Target(directory=str(job.folder), path="p"), run="r1", attempt=1)
    (file,) = (job.folder / "p").rglob("*.parquet")
    rows = pq.read_table(file)

    assert "" == report.problem
    own = [("wheel", pa.string()), ("sack", pa.int64()), ("grams", pa.int32())]
    assert own == [(field.name, field.type) for field in rows.schema][-3:]
    north = [sack for sack in GROUND if sack[0] == "north"]
    assert [(wheel, sack, grams) for wheel, sack, _, grams in north] == [
        (row["wheel"], row["sack"], row["grams"]) for row in rows.to_pylist()
    ]


def test_a_replay_into_a_sink_has_its_origin(job: MillJob, shard: Shard) -> None:
    """Messages are those that a worker sends."""
    form = {"envelope": "debezium", "format": "avro", "headers": ["schemaId", "wheel"]}
    job.configure(sink=form)
    assert 0 == job.run()
    sink = {"plugin": "barn", "path": str(job.folder / "again"), **form}
    report = deliver(shard, Target(directory=str(job.folder), sink=sink), run="r1", attempt=1)

    again = [json.loads(line) for line in (job.folder / "again").read_text().splitlines()]
    assert "" == report.problem
    assert 2 == len(again)
    assert [row["value"] for row in job.messages()[:2]] == [row["value"] for row in again]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("backfill", "bakery.flour", "--to-folder", "o"), "TableReading"),
        (("replay", "index"), "LogArchive"),
        (("replay", "plan", "--to-folder", "o", "--token-range", "1:2"), "BulkReading"),
        (("replay", "plan", "--to-folder", "o", "--after", "latest"), "Relocation"),
        (("replay", "catch-up"), "MicroBatches"),
        (("run", "--engine", "spark"), "MicroBatches"),
    ],
)
def test_what_it_does_not_offer_is_named(
    job: MillJob, capsys: pytest.CaptureFixture[str], command: tuple[str, ...], said: str
) -> None:
    """A command that needs a capability of the source says which one, and does nothing."""
    if "catch-up" in command:
        assert 0 == job.run()
    verb, *arguments = command
    names = [arguments.pop(0)] if verb == "replay" else []

    assert 2 == main([verb, *names, str(job.path), *arguments])
    assert f"it does not offer {said}" in capsys.readouterr().err


@pytest.mark.usefixtures("job")
def test_a_header_that_no_source_has_is_refused() -> None:
    """The hint names those of every source that is installed."""
    (problem,) = header_problems(("wheel", "whele"))

    assert "'whele' is not a header" == problem.message
    assert {"wheel", "sack", "grams", *CassandraSource.origin.fields} <= {
        *re.findall(r"\w+", problem.hint)
    }


@pytest.fixture
def service(job: MillJob) -> Iterator[ControlService]:
    """Return a service that has made the job from statements."""
    document = yaml.safe_load(job.path.read_text())
    del document["sink"]
    job.path.write_text(yaml.safe_dump(document))
    with contextlib.closing(open_notes(job.folder / "state.db")) as connection:
        made = ControlService(connection, ask=lambda question: unpacked(answer_to(question)))
        said(
            made,
            f"CREATE DATA_SINK b WITH 'barn://{job.folder}/out';"
            f"CREATE DATA_SOURCE mill ON TABLE {mill.TABLE} WITH b AND job = 'mill'",
        )
        yield made


def said(service: ControlService, text: str) -> ResultTable:
    """Execute statements, and return the last one's answer."""
    return [service.execute(parsed.statement) for parsed in parse_script(text)][-1]


def test_statements_about_it(job: MillJob, service: ControlService) -> None:
    """SHOW OFFSETS and SHOW LAG report its parts and its places by its own names."""
    assert 0 == job.run()
    turns = {w: len("".join(f"{json.dumps(s)}\n" for s in sacks)) for w, sacks in SACKS.items()}

    assert [
        ("mill.bakery.flour", wheel, f"wheel={wheel}", f"turn={turn}")
        for wheel, turn in turns.items()
    ] == list(said(service, "SHOW OFFSETS").rows)
    size_bytes = job.add("south", SACKS["south"][0])
    left = {row[1]: row[2:4] for row in said(service, "SHOW LAG").rows}
    assert {"wheel=north": ("0", "0"), "wheel=south": (str(size_bytes), "1")} == left


def test_a_place_that_it_does_not_have_is_refused(service: ControlService) -> None:
    """A statement with another place than `earliest` names what the source does not offer."""
    create = "CREATE DATA_SOURCE mill ON TABLE bakery.oats WITH b AND job = 'oats' AND start = '{}'"

    with pytest.raises(ConfigError, match="MillSource can begin at `earliest` only") as caught:
        said(service, create.format("latest"))
    assert ["start"] == [problem.key for problem in caught.value.problems]
    said(service, create.format("earliest"))
    assert "mill.bakery.oats" in {source.name for source in service.commands.sources()}


ROOMS = Path(FOLDER).parent / "connector"
# Rooms of the framework that are about Cassandra as something else than a source: as a store, as
# what checks logins, and as what the recording of the demonstration is of.
EXEMPT = ("stores/cassandra", "control/access/authority.py", "demo/")
# Words that are the framework's, too, and in what sense.
SHARED = {
    "cassandra": "the plugin of a store, and the driver's logger",
    "cluster": "an option of statements, and a scope of loggers",
    "entries": "a list of a statement's options",
    "expired": "a difference that a comparison finds",
    "file": "the scheme of a URI",
    "filtered": "what became of a change, in the framework's own books",
    "gaps": "a command",
    "keyspace": "a part of a table's name",
    "mutations": "a format of what a replay reads",
    "node": "whose log a request for a mode is about",
    "position": "an option of SET POSITION",
    "read": "a step of the pipeline",
    "table": "what a change is of",
}


def words_of_the_cassandra_source() -> set[str]:
    """Return the names of its counters and of its origin fields."""
    keeping, origin = CassandraSource.bookkeeping, CassandraSource.origin
    words = {*origin.fields, *keeping.repeats, *keeping.held_back, origin.debezium.connector}
    for group in keeping.groups:
        words |= {group.name, f"{group.name}.", group.part, group.metric}
        words |= {*group.left, *group.right}
    assert keeping.waiting is not None
    words |= {keeping.waiting.counter, keeping.waiting.passed_on, keeping.waiting.metric}
    words |= {each.counter for each in keeping.repeats.values()}
    words |= {field.name for field in origin.debezium.fields}
    return words - {""}


# What both a source's option and something of the framework are called, and what that is there.
SHARED_OPTIONS = {
    "cassandra": "the plugin of a store, and the driver's logger",
    "expired": "a difference that a comparison finds",
    "gaps": "a command",
    "mode": "an option that the contract names",
    "password": "an option of the shell, and of users",
    "schema": "a field of requests, of statements and of the registry",
    "splits": "a command, and a part of a summary",
    "table": "what a change is of",
    "tables": "an option that the contract names: statements give a source its tables",
    "tables_missing": "an option that the contract names",
    "username": "an option of the shell",
}


def options_of_the_cassandra_sources() -> set[str]:
    """Return the names of their options and of what stands in them, and of the plugins."""
    declared = {*declared_options(CassandraConfig), *declared_options(TableConfig)}
    return declared | {"dc", "cassandra", "cassandra-table"}


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the strings in a module's code, each with its line; no docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    reported = {
        id(node.value)
        for each in ast.walk(tree)
        if isinstance(each, ast.Module | ast.ClassDef | ast.FunctionDef)
        for node in each.body
        if isinstance(node, ast.Expr)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in reported
        ):
            yield node.lineno, node.value


def framework_modules() -> list[Path]:
    """Return the modules of the framework, without those that are about Cassandra as such."""
    return [p for p in ROOMS.rglob("*.py") if not str(p.relative_to(ROOMS)).startswith(EXEMPT)]


def found_in(modules: list[Path], words: set[str]) -> list[str]:
    """Return where one of *words* is a literal."""
    return [
        f"{path.relative_to(ROOMS)}:{line}: {text}"
        for path in sorted(modules)
        for line, text in literals(path)
        if text in words
    ]


def test_the_framework_has_no_word_of_the_cassandra_source() -> None:
    """No literal in `connector/` is the name of one of its counters or fields."""
    modules = framework_modules()
    words = words_of_the_cassandra_source() - SHARED.keys()

    assert [] == found_in(modules, words)
    assert {"segment", "mutations.pending", "surplus"} <= words
    assert len(modules) > 100


def test_the_framework_has_no_option_of_the_cassandra_source() -> None:
    """No literal in `connector/` is an option of one of its plugins, or the name of one."""
    options = options_of_the_cassandra_sources() - SHARED_OPTIONS.keys()

    assert [] == found_in(framework_modules(), options)
    assert {"nodes", "contact_points", "consistency", "expiry_seconds", "disposal"} <= options
