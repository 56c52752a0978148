"""The sink that docs/write-a-sink.md builds does what the page says, in jobs of headrace."""

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from headrace.connector.commands.cli import main
from helpers.settings.native_modules import ROOT

if TYPE_CHECKING:
    from types import ModuleType

PAGE = (ROOT / "docs" / "write-a-sink.md").read_text()
PARTS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
MODULE, SUITE = "\n\n".join(PARTS[:-1]), PARTS[-1]
(SECTION,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


class Guide:
    """The module of the page, installed; its receiver, and a job of 100 lines into it."""

    def __init__(self, folder: Path) -> None:
        """Import the page's two files from *folder*."""
        self.folder = folder
        self.tests: ModuleType = importlib.import_module("test_headrace_http_sink")
        self.receiver = self.tests.Receiver()
        (folder / "in.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(100)))

    def run(self, **options: object) -> int:
        """Run the job of the page until it is idle; return its exit status."""
        document: dict[str, Any] = yaml.safe_load(SECTION)
        document["sink"] |= {"url": self.receiver.url, "batch.records": 30, **options}
        document |= {"job": "web", "state": "state.db"}
        document["source"] = {"plugin": "files", "path": "in.jsonl"}
        (self.folder / "job.yaml").write_text(yaml.safe_dump(document))
        return main(["--log-level", "error", "run", str(self.folder / "job.yaml"), "--until-idle"])

    def numbers(self) -> list[int]:
        """Return what has arrived."""
        return [json.loads(line)["n"] for line in self.receiver.lines]


@pytest.fixture
def guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guide]:
    """Install the page's sink for one test."""
    metadata = tmp_path / "headrace_http_sink-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: headrace-http-sink\nVersion: 0.1.0\n")
    entry = "[headrace.sinks]\nhttp = headrace_http_sink:HttpSink\n"
    (metadata / "entry_points.txt").write_text(entry)
    (tmp_path / "headrace_http_sink.py").write_text(MODULE)
    (tmp_path / "test_headrace_http_sink.py").write_text(SUITE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("HTTP_TOKEN", "s3cret")
    guide = Guide(tmp_path)
    yield guide
    guide.receiver.close()
    for name in ("headrace_http_sink", "test_headrace_http_sink"):
        del sys.modules[name]


def test_all_arrives_in_batches(guide: Guide) -> None:
    """The lines arrive once, in order, in requests of at most `batch.records`, with the token."""
    assert 0 == guide.run()

    assert list(range(100)) == guide.numbers()
    assert 4 == len(guide.receiver.keys) == len(set(guide.receiver.keys))
    assert {"Bearer s3cret"} == guide.receiver.tokens


def test_a_refused_request_is_repeated(guide: Guide) -> None:
    """What was answered with 503 or 429 is sent again, also what followed, with the same keys."""
    guide.receiver.next_statuses = [200, 503, 200, 429]
    assert 0 == guide.run(**{"errors.retry.delay.max.ms": 100})

    assert set(range(100)) == set(guide.numbers())
    assert 4 == len(set(guide.receiver.keys))
    first_seen = list(dict.fromkeys(guide.receiver.keys))
    assert first_seen[-1] != first_seen[0] == guide.receiver.keys[0]


def test_a_bad_record_is_a_dead_letter(guide: Guide, capsys: pytest.CaptureFixture[str]) -> None:
    """A request that is refused as malformed is sent record by record; one is dead-lettered."""
    guide.receiver.next_statuses = [400, *[200] * 7, 422]
    assert 0 == guide.run()

    assert [n for n in range(100) if n != 7] == sorted(guide.numbers())
    assert "1 dead-lettered" in capsys.readouterr().out


def test_a_wrong_token_stops_the_job(guide: Guide, capsys: pytest.CaptureFixture[str]) -> None:
    """After 401 nothing more is sent, and the error has the reason, but not the token."""
    guide.receiver.next_statuses = [401]
    assert 1 == guide.run(**{"batch.records": 500})
    said = "".join(capsys.readouterr())

    assert "the server answered 401" in said
    assert "s3cret" not in said
    assert [] == guide.numbers()


def test_a_url_of_nothing_is_refused(guide: Guide, capsys: pytest.CaptureFixture[str]) -> None:
    """A URL without a server is a mistake of the file."""
    assert 2 == guide.run(url="ftp://x")
    assert "error [config]: " in (said := capsys.readouterr().err)
    assert "sink.url: expected http(s)://host:port/path" in said


@pytest.mark.parametrize(
    "given", ["'http://127.0.0.1:8000/in'", "'http://' AND url = 'https://h/in'"]
)
def test_a_statement_makes_it(guide: Guide, given: str) -> None:
    """The URI is the URL, and one with TLS is an option."""
    state = str(guide.folder / "state.db")
    create = f"CREATE DATA_SINK web WITH {given}"

    assert create.startswith("CREATE DATA_SINK web WITH 'http://")
    assert 0 == main(["exec", "--state", state, "-e", create])


def test_a_check_needs_the_server(guide: Guide) -> None:
    """It passes while something listens there, and sends nothing."""
    sink = guide.receiver.sink()
    assert ["passed"] == [finding.result.value for finding in sink.check()]
    assert 0 == guide.run()  # The server has seen the end of the check when this is answered.
    assert 4 == len(guide.receiver.keys)

    gone = type(sink)(type(sink.config)(url="http://127.0.0.1:1/in"), sink.context)
    assert ["failed"] == [finding.result.value for finding in gone.check()]
