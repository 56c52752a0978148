"""How fast topics are read back can be measured with a real broker."""

import os
import re
import subprocess
import sys

import pytest

from helpers.settings.native_modules import ROOT

pytestmark = pytest.mark.real

MESSAGES = 4_000
SECONDS_MAX = 120


def test_its_speed_can_be_measured(bootstrap_servers: str) -> None:
    """The benchmark reads what it sent in both ways, all of it; `make bench-verify` judges it."""
    short = ["--messages", str(MESSAGES), "--runs", "1", "--no-alarm"]
    printed = subprocess.run(  # noqa: S603 (our own interpreter)
        [
            sys.executable,
            "-m",
            "bench.sink_reading",
            "--bootstrap-servers",
            bootstrap_servers,
            *short,
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "tests"},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=SECONDS_MAX,
    ).stdout

    bound, found = printed.splitlines()
    assert re.fullmatch(rf"{MESSAGES} messages, a consumer alone: [\d,]+ records/s", bound)
    assert re.fullmatch(r"verify --sink: [\d,]+ records/s \(goal: at least 200,000\)", found)
