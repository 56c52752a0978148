"""What `headrace new` writes can be installed, passes its suite and can be used."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.connector.commands.authors.new import KINDS
from headrace.connector.commands.cli import main
from headrace.plugins import ConfigError, discovery
from headrace.sinks.kafka.embedded import EmbeddedBroker
from helpers.jobs.deliveries import consume
from helpers.settings.native_modules import ROOT

NAMES = {"sink": "tin", "source": "my-tap", "transform": "loud", "codec": "pairs"}
ENTRIES = {"sink": "tin", "source": "my-tap", "transform": "Loud", "codec": "pairs"}
PACKAGES = [f"headrace-{name}-{kind}" for kind, name in NAMES.items()]
GUIDE = "headrace-http-sink"  # As docs/write-a-sink.md changes it.
BLOCKS = re.findall(
    r"^```python\n(.*?)^```",
    (ROOT / "docs" / "write-a-sink.md").read_text(),
    re.DOTALL | re.MULTILINE,
)


class Workshop:
    """A folder with a package of each kind, and another in which they are installed."""

    def __init__(self, folder: Path) -> None:
        """Write the packages, each by the command, and install them as pip does."""
        self.folder = folder
        self.installed = folder / "installed"
        for kind, name in NAMES.items():
            package = folder / f"headrace-{name}-{kind}"
            assert 0 == main(["new", kind, name, "--folder", str(package)])
        guide = folder / GUIDE
        assert 0 == main(["new", "sink", "http", "--folder", str(guide)])
        (guide / "headrace_http_sink.py").write_text("\n\n".join(BLOCKS[:-1]))
        (guide / "tests" / "test_headrace_http_sink.py").write_text(BLOCKS[-1])
        offline = ("--offline", "--no-build-isolation", "--no-deps", "-p", sys.executable)
        command = ["uv", "pip", "install", "-q", *offline, "--target", str(self.installed)]
        self.run([str(Path(sys.executable).parent / command[0]), *command[1:], *PACKAGES, GUIDE])

    def run(self, command: Sequence[str]) -> str:
        """Run a program that finds what is installed; return what it printed."""
        environment = os.environ | {"PYTHONPATH": str(self.installed)}
        done = subprocess.run(  # noqa: S603 (our own programs)
            [str(self.folder / each) if each in (*PACKAGES, GUIDE) else each for each in command],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=300,
        )
        assert 0 == done.returncode, done.stdout
        return done.stdout


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Return the packages, installed."""
    return Workshop(tmp_path_factory.mktemp("workshop"))


@pytest.fixture
def plugged(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    """Let this process find what is installed."""
    monkeypatch.syspath_prepend(workshop.installed)
    return workshop


def test_each_has_three_files(workshop: Workshop) -> None:
    """A package is its metadata, one module and its tests."""
    for package in PACKAGES:
        module = package.replace("-", "_")
        files = [p for p in (workshop.folder / package).rglob("*.*") if "build" not in str(p)]
        named = {p.name for p in files if p.is_file() and "egg-info" not in str(p)}
        assert {"pyproject.toml", f"{module}.py", f"test_{module}.py"} == named


def test_each_passes_its_tests(workshop: Workshop) -> None:
    """The tests of all packages pass, the guide's too: suites, and a test of their own."""
    quiet = ("-p", "no:schemathesis", "-p", "no:cacheprovider", "-p", "no:xdist")
    said = workshop.run([sys.executable, "-m", "pytest", "-rA", *quiet, *PACKAGES, GUIDE])

    for suite in ("TestHttpSink", "TestTinSink", "TestMyTapSource", "TestLoud", "TestPairsCodec"):
        assert len(re.findall(rf"PASSED .*::{suite}::", said)) > 4
    assert "SKIPPED" not in said


def test_each_is_well_formed(workshop: Workshop) -> None:
    """The linter finds nothing in what is written, and would change nothing."""
    ruff, lines = str(Path(sys.executable).parent / "ruff"), ("--line-length", "100")
    rules = ("--isolated", *lines, "--select", "ALL", "--ignore")
    of_tests = "ANN,ARG002,COM812,CPY,D1,D203,D213,EM,I001,INP001,PLR2004,S101,SIM300,TRY003"

    assert "All checks passed!" in workshop.run([ruff, "check", *rules, of_tests, *PACKAGES, GUIDE])
    said = workshop.run([ruff, "format", "--isolated", *lines, "--check", *PACKAGES, GUIDE])
    assert re.fullmatch(r"\d+ files already formatted\n", said)


def test_each_is_listed(plugged: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    """What is installed is in the list at once, with the package that it came from."""
    assert plugged
    assert 0 == main(["plugins"])
    lines = capsys.readouterr().out.splitlines()

    for kind, package in zip(NAMES, PACKAGES, strict=True):
        (line,) = (line for line in lines if f" {package} " in line)
        assert [kind, ENTRIES[kind]] == line.split()[:2]


def job_into(folder: Path, sink: str) -> str:
    """Write a job of two lines into a sink; return the path of its file."""
    (folder / "lines").write_text("one\ntwo\n")
    head = "job: loud\nstate: state.db\nsource: {plugin: my-tap, path: lines}\n"
    (folder / "job.yaml").write_text(f"{head}sink: {{{sink}}}\n")
    return str(folder / "job.yaml")


def test_source_and_sink_run(plugged: Workshop, tmp_path: Path) -> None:
    """A job reads with the source and writes with the sink."""
    job = job_into(tmp_path, "plugin: tin, path: out")

    assert plugged
    assert 0 == main(["--log-level", "error", "run", job, "--until-idle"])
    written = [json.loads(line) for line in (tmp_path / "out").read_bytes().splitlines()]
    assert ["one", "two"] == [line["text"] for line in written]


def test_transform_and_codec_run(plugged: Workshop, tmp_path: Path) -> None:
    """A job changes with the transform and encodes with the codec, into Kafka."""
    broker = EmbeddedBroker()
    options = "format: pairs, transforms: t, transforms.t.type: Loud, transforms.t.field: text"
    where = f'bootstrap.servers: "{broker.bootstrap_servers}", topic: t'
    job = job_into(tmp_path, f"plugin: kafka, {where}, {options}")

    assert plugged
    assert 0 == main(["--log-level", "error", "run", job, "--until-idle"])
    values = {message.value() for message in consume(broker.bootstrap_servers, "t")}
    assert {b'text="ONE" bytes=4', b'text="TWO" bytes=4'} == values


def test_a_statement_makes_the_sink(plugged: Workshop, tmp_path: Path) -> None:
    """The path of the sink's URI is its option, as `config_of_uri` says."""
    assert plugged
    out, state = tmp_path / "out", str(tmp_path / "state.db")
    arguments = ["exec", "--state", state, "-e", f"CREATE DATA_SINK s WITH 'tin://{out}'"]
    assert 0 == main(arguments)


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("sink", "Big", "NAME: expected a name, found 'Big'"),
        ("sink", "a/../b", "NAME: expected a name, found 'a/../b'"),
        ("codec", "x" * 41, "NAME: expected a name, found 'xxx"),
        ("sink", "kafka", "NAME: there is a sink named 'kafka'"),
    ],
)
def test_bad_names(kind: str, name: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that is none, or taken, is a mistake, and nothing is written."""
    assert 2 == main(["new", kind, name, "--folder", str(ROOT / "docs")])
    assert f"error [config]: {said}" in capsys.readouterr().err


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that has tests already stays as it is."""
    (tmp_path / "tests").mkdir()

    assert 2 == main(["new", "sink", "tin", "--folder", str(tmp_path)])
    assert f"{tmp_path} exists" in capsys.readouterr().err
    assert ["tests"] == [each.name for each in tmp_path.iterdir()]


def test_all_kinds_are_written() -> None:
    """Each kind that the command offers is one of those tried here."""
    assert set(KINDS) == set(NAMES)
    assert all(discovery.names(f"{kind}s") for kind in KINDS)
    with pytest.raises(ConfigError, match="no sink named 'tin'"):
        discovery.load("sinks", "tin")
