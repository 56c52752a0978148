"""A plugin with mistakes, as its author sees them: class, text, file and line are reported."""

import json
import re
from pathlib import Path

import pytest

from headrace.connector.commands.cli import main

PLUGIN = """
from dataclasses import dataclass

from headrace.plugins import ConfigError, Sink, Writer, option


class HalfWriter(Writer):
    def submit(self, delivery, settle):
        settle(range(len(delivery.encoded)))


class HttpWriter(HalfWriter):
    def submit(self, delivery, settle):
        {submit}

    def drain(self, deadline_ms):
        return True

    def close(self):
        pass


@dataclass(frozen=True)
class HttpConfig:
    url: str = option("Where to.")
    token: str = option("A secret.", default="", secret=True)

    def __post_init__(self):
        {check}


class HttpSink(Sink):
    config_class = HttpConfig

    def __init__(self, config, context):
        self._config = config
        {init}

    def open(self):
        {open}
"""
GOOD = {
    "check": "pass",
    "init": "pass",
    "open": "return HttpWriter()",
    "submit": "settle(range(len(delivery.encoded)))",
}
JOB = """\
job: lines
state: state.db
runtime: {retry_seconds_max: 1}
source: {plugin: files, path: in.jsonl}
sink: {plugin: http, url: u, token: "${env:HTTP_TOKEN}"}
"""
ROW = "a value of the row"


class Author:
    """Writes the plugin, each time as another module, and runs a job with it."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """Write the job and one line for it."""
        self._folder = folder
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        monkeypatch.setenv("HTTP_TOKEN", "s3cr3t")
        (folder / "job.yaml").write_text(JOB)
        (folder / "in.jsonl").write_text(f'{{"n": "{ROW}"}}\n')

    def run(self, *flags: str, **mistakes: str) -> tuple[int, str]:
        """Return the status of a run with these lines in the plugin, and what it said."""
        module = f"acme_http_{self._folder.name}"
        (self._folder / f"{module}.py").write_text(PLUGIN.format(**{**GOOD, **mistakes}))
        metadata = self._folder / "acme-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Name: acme\nVersion: 1.0\n")
        points = f"[headrace.sinks]\nhttp = {module}:HttpSink\n"
        (metadata / "entry_points.txt").write_text(points)
        self._monkeypatch.syspath_prepend(self._folder)
        status = main([*flags, "run", "--until-idle", str(self._folder / "job.yaml")])
        said = self._capsys.readouterr().err
        self.place = re.compile(rf"{re.escape(str(self._folder))}/{module}\.py:\d+ in (\w+)")
        return status, said


@pytest.fixture
def author(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Author:
    """Return who makes the mistakes, in a folder from which the process comes back."""
    monkeypatch.chdir(tmp_path)
    return Author(tmp_path, monkeypatch, capsys)


def error_of(said: str) -> str:
    """Return the line that a command ends with, and its hint."""
    return said[said.index("error [") :]


@pytest.mark.parametrize(
    ("mistakes", "text", "function"),
    [
        ({"open": "return HalfWriter()"}, "instantiate abstract class HalfWriter", "open"),
        ({"open": "raise NotImplementedError('later')"}, "later", "open"),
        ({"init": "self._conf.url"}, "object has no attribute '_conf'", "__init__"),
    ],
)
def test_a_mistake_at_the_opening_ends_at_once(
    author: Author, mistakes: dict[str, str], text: str, function: str
) -> None:
    """With the plugin's name, its class, the message, the file and the line."""
    status, said = author.run(**mistakes)

    error = error_of(said)
    assert 1 == status
    assert error.startswith("error [plugin_broken]: ")
    assert "sink 'http' (HttpSink) raised " in error
    assert text in error
    found = author.place.search(error)
    assert found is not None
    assert function == found[1]
    assert "bug of headrace" not in said


def test_the_text_of_what_may_pass_is_reported(author: Author) -> None:
    """A server that does not answer at the opening: its class, text and place, but no secret."""
    status, said = author.run(open="raise OSError('no route to ' + self._config.url)")

    assert 1 == status
    assert (
        "error [plugin_broken]: OSError of sink 'http' (HttpSink): no route to u at "
        in error_of(said)
    )
    assert author.place.search(error_of(said))


@pytest.mark.parametrize("kind", ["TypeError", "OSError"])
@pytest.mark.parametrize(("where", "config"), [("init", "config"), ("open", "self._config")])
def test_a_secret_is_in_no_message(author: Author, kind: str, where: str, config: str) -> None:
    """Neither in that of a mistake nor in that of what may pass."""
    status, said = author.run(**{where: f"raise {kind}('bad token ' + {config}.token)"})

    assert 1 == status
    assert kind in error_of(said)
    assert "s3cr3t" not in said


def test_checks_of_options_that_raise_are_mistakes_of_the_configuration(author: Author) -> None:
    """A ValueError there, with its text and without secrets."""
    status, said = author.run(check="raise ValueError(f'no {self.url} for {self.token}')")

    assert 2 == status
    assert "error [config]: " in said
    assert "HttpConfig raised ValueError: no u for ***" in said


def test_a_configuration_error_may_be_a_text(author: Author) -> None:
    """`ConfigError("…")` is what it says, not an AttributeError."""
    status, said = author.run(check="raise ConfigError('url must be https')")

    assert 2 == status
    assert "url must be https" in said
    assert "AttributeError" not in said


def test_the_text_of_a_failed_delivery_may_hold_rows(author: Author) -> None:
    """So class, file and line are reported, and the text is not."""
    status, said = author.run(submit="raise KeyError(delivery.encoded.values[0])")

    assert 1 == status
    assert ROW not in said
    assert "KeyError of sink 'http' (HttpSink) at " in error_of(said)
    assert "headrace --debug" in error_of(said)
    found = author.place.search(error_of(said))
    assert found is not None
    assert "submit" == found[1]


def test_debug_tells_all_texts(author: Author) -> None:
    """With `--debug` the log has the text, and whole paths in its frames."""
    _, said = author.run("--debug", submit="raise KeyError(delivery.encoded.values[0])")

    assert ROW in said
    assert author.place.pattern.rpartition("/")[2].partition("\\.py")[0] in said


@pytest.mark.parametrize(
    ("result", "wrong"),
    [
        ("[0, 3, 0, 2]", "for 1 records is invalid: 1 doubled (first: 0), 2 unknown (first: 2)"),
        ("[]", "for 1 records is invalid: 1 missing (first: 0)"),
    ],
)
def test_an_invalid_result_has_its_numbers(author: Author, result: str, wrong: str) -> None:
    """How many records are missing, doubled or unknown, and the first of each."""
    status, said = author.run(submit=f"settle({result})")

    assert 1 == status
    assert f"the sink's result {wrong}" in said


def test_a_number_of_records_is_no_result(author: Author) -> None:
    """A plugin of a former version said how many were delivered: it learns what is expected."""
    status, said = author.run(submit="settle(1)")

    assert 1 == status
    assert "the sink says how many were delivered (1), not which records" in said


def test_debug_tells_the_trace_of_a_mistake(author: Author) -> None:
    """With `--debug` the log also has the frames of what a named error was made of."""
    _, said = author.run("--debug", open="raise NotImplementedError('later')")

    (line,) = (json.loads(x) for x in said.splitlines() if '"command_failed"' in x)
    assert "NotImplementedError: later" == line["cause"]
    assert line["cause_frames"][-1].endswith(" open")


def test_without_debug_there_is_no_trace(author: Author) -> None:
    """A named error is a line and a hint."""
    assert '"event":"command_failed"' not in author.run(open="raise NotImplementedError('x')")[1]
