"""`make check` asks for known vulnerabilities, and never pretends that it could."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from helpers.servers.ports import free_port
from helpers.settings.native_modules import ROOT

PACKAGES = {"good": "1.0", "bad": "2.0"}


class Advisories(BaseHTTPRequestHandler):
    """Knows one vulnerability, of the package `bad`."""

    def do_POST(self) -> None:
        """Answer as OSV does."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        flaw = {
            "id": "PYSEC-1",
            "summary": "It is bad.",
            "affected": [
                {
                    "package": {"name": "bad", "ecosystem": "PyPI"},
                    "ranges": [{"type": "ECOSYSTEM", "events": [{"fixed": "2.1"}]}],
                }
            ],
        }
        body = json.dumps({"vulns": [flaw]} if asked["package"]["name"] == "bad" else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def advisories() -> Iterator[str]:
    """Serve them; give the URL."""
    server = HTTPServer(("127.0.0.1", 0), Advisories)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/query"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def audit(folder: Path, url: str, packages: dict[str, str]) -> tuple[int, str]:
    """Return the status and what was said of *packages*."""
    path = folder / "constraints.txt"
    path.write_text("".join(f"{name}=={version}\n" for name, version in packages.items()))
    done = subprocess.run(  # noqa: S603 (our own)
        [sys.executable, str(ROOT / ".ci" / "audit"), str(path), url],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "" == done.stderr
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("names", "status", "said"),
    [
        (["good"], 0, "audit: no known vulnerability in 1 packages, says osv\n"),
        (
            ["good", "bad"],
            1,
            (
                "bad 2.0: PYSEC-1, fixed in 2.1\n"
                "audit: 1 known vulnerabilities in 2 packages, says osv\n"
            ),
        ),
    ],
)
def test_what_is_known_is_reported(
    tmp_path: Path, names: list[str], status: int, said: str
) -> None:
    """A vulnerability ends the check with its name and the version that has it no more."""
    with advisories() as url:
        found = audit(tmp_path, url, {name: PACKAGES[name] for name in names})

    assert (status, said) == found


def test_without_a_database_it_is_skipped(tmp_path: Path) -> None:
    """It says that it was skipped, and why, and does not fail."""
    status, said = audit(tmp_path, f"http://127.0.0.1:{free_port()}/v1/query", PACKAGES)

    assert 0 == status
    assert said.startswith("audit: SKIPPED, no advisory database can be reached: osv: ")
    assert "Connection" in said


def test_all_versions_have_hashes() -> None:
    """Each version in constraints.txt has hashes, which uv verifies as it installs."""
    text = (ROOT / "constraints.txt").read_text()
    blocks = re.split(r"\n(?=[a-z])", text.strip())

    assert 100 < len(blocks)
    assert [] == [b[:60] for b in blocks if not re.match(r"[a-z0-9.-]+==\S+ ", b)]
    assert [] == [b[:60] for b in blocks if not re.search(r"--hash=sha256:[0-9a-f]{64}", b)]
