"""What the pages show works."""

import json
import os
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace.connector.commands.exec import main as exec_main
from headrace.connector.control.access.permission import Role
from headrace.connector.control.jobs import read_job
from headrace.connector.foundation.job_file import JobFile, RuntimeConfig
from headrace.connector.rest.auth import hash_password
from headrace.connector.rest.users import read_users
from headrace.plugins import Relocation, parse_config
from headrace.plugins.config.options import declared_options
from headrace.plugins.discovery import load, names
from headrace.plugins.records.codecs import (
    CHUNK_COUNT_HEADER,
    CHUNK_ID_HEADER,
    CHUNK_INDEX_HEADER,
    chunk_id_of,
)
from headrace.plugins.testing import SourceSuite
from headrace.plugins.testing.doubles import DrivenClock
from helpers.histories.kept import FOREVER_MS, Kept, settled
from helpers.histories.rows import TABLE, change, delivery
from helpers.settings.filled import filled
from helpers.settings.native_modules import ROOT

ROOMS = ("connector", "plugins", "sinks", "sources")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of *page* in *language*."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def test_readme_job(tmp_path: Path) -> None:
    """The README's job file is one that `headrace run` takes."""
    (text,) = blocks(ROOT / "README.md", "yaml")
    (tmp_path / "job.yaml").write_text(text)
    job = read_job(tmp_path / "job.yaml")

    assert "orders" == job.name
    assert ("CassandraSource", "FileSink") == (job.source.__name__, job.sink.__name__)


def test_the_job_beside_debezium(tmp_path: Path) -> None:
    """The job file of the page on migration is one that a job takes, with Debezium's envelope."""
    text = _page("from-debezium.md")
    (block,) = re.findall(r"^ {4}```yaml\n(.*?)^ {4}```", text, re.DOTALL | re.MULTILINE)
    (tmp_path / "job.yaml").write_text(textwrap.dedent(block))
    job = read_job(tmp_path / "job.yaml")

    assert ("debezium", "json") == (job.sink_config.envelope, job.sink_config.format)
    assert {"node1", "node2", "node3"} == set(job.source_config.nodes)


def programs(page: Path) -> dict[str, Any]:
    """Run the programs of *page* one after another; return the names that they leave.

    Those for Spark need Java: tests with real servers run them.
    """
    names: dict[str, Any] = {}
    for block in (each for each in blocks(page, "python") if "pyspark" not in each):
        exec(compile(block, page.name, "exec"), names)  # noqa: S102 (what the page tells to run)
    return names


def test_all_programs_run() -> None:
    """Each page with a program in Python has a test that runs it."""
    run = {
        "consumers.md": "tests/real/kafka/consumers/test_consumer_kit.py",
        "history.md": "tests/real/spark/test_spark_history.py",
        "kafka.md": "tests/test_docs.py",
        "plugins.md": "tests/test_docs.py",
        "reading-logs.md": "tests/sources/cassandra/test_reading_logs.py",
        "spark.md": "tests/real/spark/test_spark_frames.py",
        "tutorial.md": "tests/test_tutorial.py",
        "write-a-sink.md": "tests/connector/commands/authors/test_guide.py",
    }

    assert sorted(run) == sorted(page.name for page in PAGES if blocks(page, "python"))
    assert [] == [page for page, test in run.items() if page not in (ROOT / test).read_text()]


@dataclass
class Message:
    """What a consumer of Kafka gets."""

    content: bytes
    given: Mapping[str, bytes]

    def headers(self) -> list[tuple[str, bytes]]:
        """Return its headers."""
        return list(self.given.items())

    def value(self) -> bytes:
        """Return its value."""
        return self.content

    def partition(self) -> int:
        """Return its partition."""
        return 0


def test_chunks_are_joined_as_the_page_shows() -> None:
    """The page's consumer returns a value in two messages once, and a small one as it is."""
    value_of = programs(ROOT / "docs" / "kafka.md")["value_of"]
    chunk = {CHUNK_ID_HEADER: chunk_id_of(b"whole"), CHUNK_COUNT_HEADER: b"2"}

    assert value_of(Message(b"who", chunk | {CHUNK_INDEX_HEADER: b"0"})) is None
    assert b"small" == value_of(Message(b"small", {}))
    assert b"whole" == value_of(Message(b"le", chunk | {CHUNK_INDEX_HEADER: b"1"}))


def test_a_history_is_read_as_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page's program shows a change with its images, and makes a table of Arrow."""
    now_ms = time.time_ns() // 1_000_000
    clock = DrivenClock(now_ms - DrivenClock(0).wall_ms())
    path = tmp_path / "history" / "orders_hist.db"
    options = {"path": str(path), "table": TABLE, "include": "pre,post", "seed": "empty"}
    kept = Kept(clock, **options)
    writer = kept.writer()
    writer.submit(delivery(change(written_us=1, of=(7, 1), note="seven")), settled)
    assert writer.commit({}, FOREVER_MS)
    writer.close()
    monkeypatch.chdir(tmp_path)
    names = programs(ROOT / "docs" / "history.md")

    assert [{"id": 7, "at": 1, "note": "seven", "total": None}] == names["table"][
        "post"
    ].to_pylist()
    said = capsys.readouterr().out
    assert "INSERT {} {'note': 'seven', 'total': None}" in said
    assert "{'id': 7, 'at': 1} {'note': 'seven'}" in said


def test_plugins_of_the_page() -> None:
    """Options, capabilities and books of the page's plugins are what the framework takes."""
    names = programs(ROOT / "docs" / "plugins.md")
    config = parse_config(names["RoomConfig"], {"url": "http://rooms", "page.size": "7"})

    assert ("http://rooms", 7, None) == (config.url, config.page_size, config.password)
    assert issubclass(names["HouseSource"], Relocation)
    assert names["BOOKS"] is names["RoomSource"].bookkeeping
    assert {"floor", "page"} == set(names["RoomSource"].origin.fields)
    assert issubclass(names["TestRoomSource"], SourceSuite)


STATEMENTS = blocks(ROOT / "docs" / "statements.md", "sql")[0].splitlines()


@pytest.mark.parametrize("statement", STATEMENTS)
def test_sinks_of_the_page(statement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each statement that the page shows is one that `headrace exec` carries out."""
    monkeypatch.chdir(tmp_path)

    assert 0 == exec_main(["--state", "state.db", "-e", statement])


def test_the_statements_of_the_page(tmp_path: Path) -> None:
    """What the page shows for a shell makes a sink and a source, and lists it."""
    program = next(b for b in blocks(ROOT / "docs" / "statements.md", "") if "headrace exec" in b)
    done = subprocess.run(  # noqa: S603 (what the page tells to run)
        ["/bin/sh", "-e", "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
    )

    (source,) = map(json.loads, done.stdout.splitlines())
    assert ("cdc.shop.orders", "lake") == (source["name"], source["sink"])
    assert source["problem"].startswith("not_started: no worker runs job lake; start it: headrace ")


@pytest.mark.parametrize("section", blocks(ROOT / "docs" / "kafka.md", "yaml"))
def test_kafka_sinks_of_the_page(section: str, tmp_path: Path) -> None:
    """Each sink that the page shows is one that a job takes."""
    head = blocks(ROOT / "README.md", "yaml")[0].partition("sink:")[0]
    (tmp_path / "job.yaml").write_text(head + section)

    sink = read_job(tmp_path / "job.yaml").sink_config
    assert "cdc.{keyspace}.{table}" == sink.topic


def test_users_of_the_page(tmp_path: Path) -> None:
    """The page's file of users is one that a worker takes, with a hash in place of the dots."""
    text = blocks(ROOT / "docs" / "rest.md", "yaml")[0]
    hashed = text.replace("$argon2id$v=19$…", hash_password("x"))
    (tmp_path / "users.yaml").write_text(hashed)
    users, certificates = read_users(tmp_path / "users.yaml")

    assert text != hashed
    assert {"ann": Role.OPERATOR} == {name: user.role for name, user in (users or {}).items()}
    assert {"ops.example.com": Role.ADMIN} == certificates


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links(page: Path) -> None:
    """A relative link leads to a file of this project."""
    targets = re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text())
    paths = [(page.parent / target).resolve() for target in targets]

    assert [] == [str(p) for p in paths if not (p.exists() and p.is_relative_to(ROOT.resolve()))]


def table_problems(text: str) -> list[str]:
    """Return the lines of a page on which a table would not be rendered as one."""
    problems = []
    wanted = 0  # Cells in a row of the table that the line before belongs to.
    lines = re.sub(r"^```.*?^```", _emptied, text, flags=re.DOTALL | re.MULTILINE).split("\n")
    lines.append("")
    for number, line in enumerate(lines, start=1):
        cells = len(re.findall(r"(?<!\\)\|", line.strip())) - 1
        if not line.startswith("|"):
            wanted = 0
        elif not line.rstrip().endswith("|"):
            problems.append(f"{number}: does not end with |")
        elif wanted:
            if cells != wanted:
                problems.append(f"{number}: {cells} cells of {wanted}")
        elif re.fullmatch(r"\|(?: *:?-+:? *\|)+", lines[number].strip()):
            wanted = cells
        else:
            problems.append(f"{number}: belongs to no table")
    return problems


def _emptied(block: re.Match[str]) -> str:
    return "\n" * block[0].count("\n")


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("| a | b |\n|---|---|\n| 1 | `x \\| y` |\n", []),
        ("| a | b |\n|---|---|\n| 1 |\n", ["3: 1 cells of 2"]),
        ("| a | b |\n|---|\n", ["2: 1 cells of 2"]),
        ("| a | b |\n|---|---|\n| 1 | x | y |\n", ["3: 3 cells of 2"]),
        ("| a |\n|---|\n\n| 1 |\n", ["4: belongs to no table"]),
        ("| a |\n|---|\n| 1\n", ["3: does not end with |"]),
        ("```\n| a\n```\n| a |\n|---|\n", []),
    ],
)
def test_broken_tables_are_found(text: str, problems: list[str]) -> None:
    """A row with other cells than its header, and a row that is cut off, are problems."""
    assert problems == table_problems(text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tables(page: Path) -> None:
    """Every table on a page is rendered as one."""
    assert [] == table_problems(page.read_text())


@pytest.mark.parametrize(
    "config_class",
    [
        JobFile,
        RuntimeConfig,
        *(load("sources", name).config_class for name in names("sources")),
        *(load("sinks", name).config_class for name in names("sinks")),
        *(load("stores", name).config_class for name in names("stores")),
    ],
    ids=lambda config_class: config_class.__name__,
)
def test_options_are_documented(config_class: type) -> None:
    """The page on jobs has every option; where it gives a number or a word, it is the default."""
    text = _page("jobs.md")
    for key, (field, declared) in filled(declared_options(config_class).items()):
        if declared.keys_allowed:
            continue
        if isinstance(field.default, bool):
            assert f"| `{key}` | {str(field.default).lower()} |" in text
        elif isinstance(field.default, int | float):
            assert f"| `{key}` | {field.default} |" in text
        elif isinstance(field.default, str):
            assert f"| `{key}` | `{field.default}` |" in text
        else:
            assert f"`{key}`" in text


def test_errors_are_documented() -> None:
    """The page for operators has the code of every error."""
    text = _page("operations.md")
    modules = [m for room in ROOMS for m in modules_of(room)]
    codes = {
        code for m in modules for code in re.findall(r"^    code\b.* = \"(\w+)\"$", m, re.MULTILINE)
    }

    assert {"corrupt_segment", "state_lost"} < codes
    assert [] == sorted(code for code in codes if f"`{code}`" not in text)
    listed = set(re.findall(r"^\| `(\w+)` \| \d \|", text, re.MULTILINE))
    words = set(re.findall(r"\w+", "\n".join(modules)))
    assert set() == listed - words  # Some are named by constants.


def test_sizes_follow_from_the_formulae() -> None:
    """Each row of the page on sizing is what its formulae come to, for four hours."""
    rows = re.findall(r"^\| (\d.*) \|$", _page("sizing.md"), re.MULTILINE)
    found = [[float(x) for x in re.findall(r"\d[\d.]*", row.replace(",", ""))] for row in rows]

    assert filled(found)
    for m, b, n, rf, space, records, low, high, network in found:
        assert space == round(m * (b + 12) * rf / n * 4 * 3_600 / (1 << 30), 1)
        assert records == m * 600
        assert [low, high] == [round(records * size / (1 << 20)) for size in (120, 240)]
        assert network == round(m * (b + 21 * rf) / (1 << 20), 1)


def test_citations_lead_somewhere() -> None:
    """A section of the format, or a line of the rules, that the code cites is on its page."""
    modules = "\n".join(modules_of("sources/cassandra"))
    sections = re.findall(r"^##+ ([\d.]*\d)", _page("commit-log.md"), re.MULTILINE)
    rules = re.findall(r"^\| (\d+) \|", _page("agreement.md"), re.MULTILINE)
    cited = re.findall(r"\((\d+\.\d+)\)|(?:commit-log\.md|section) (\d[\d.]*\d|\d)", modules)

    assert cited
    assert set(sections) >= {inline or named for inline, named in cited}
    assert set(rules) >= set(re.findall(r"\b[Ll]ine (\d+)", modules))


def test_promises_and_rules_are_there() -> None:
    """An invariant or a rule for plugins that the code cites is on its page."""
    modules = "\n".join(m for room in ROOMS for m in modules_of(room))
    promises = re.findall(r"^\*\*(I\d+)\. ", _page("invariants.md"), re.MULTILINE)
    rules = re.findall(r"^\| (R\d+) \|", _page("plugins.md"), re.MULTILINE)

    assert set(promises) >= set(re.findall(r"\bI(?:10|[1-9])\b", modules))
    assert set(rules) >= set(re.findall(r"\bR(?:1[0-2]|[1-9])\b", modules))


def _page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def modules_of(room: str) -> list[str]:
    """Return the sources of a room's modules."""
    return [path.read_text() for path in (ROOT / room).rglob("*.py")]


def test_invariants_have_tests() -> None:
    """A test that a page names exists."""
    text = _page("invariants.md")
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", text)
    missing = [name for file, name in named if f"def {name}(" not in (ROOT / file).read_text()]

    assert named
    assert [] == missing


def test_decisions_are_listed() -> None:
    """The list of decisions has each page of one, ascending by number."""
    folder = ROOT / "docs" / "adr"
    listed = re.findall(r"^\| \[\d+\]\(([^)]+)\)", (folder / "README.md").read_text(), re.MULTILINE)

    assert sorted(page.name for page in folder.glob("0*.md")) == listed


def test_make_targets() -> None:
    """A command that a page names is a target of the Makefile, and each target has its help."""
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split())
    helped = set(re.findall(r"^([a-z-]+):.*  ## \S", makefile, re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"\bmake ([a-z-]+)", _code(page))}

    assert targets == helped
    assert targets >= named


def _code(page: Path) -> str:
    """Return what stands in *page* as code, inline or indented."""
    text = page.read_text()
    return "\n".join(re.findall(r"`[^`\n]+`|^ {4}.*", text, re.MULTILINE))
