"""The notebook of the pages, run from its first cell to its last."""

import json
import re
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import SparkSession

from helpers.recordings.corpora import recording
from helpers.settings.native_modules import ROOT
from real.spark.spark_jobs import RING, by_worker

pytestmark = pytest.mark.real

NOTEBOOK = ROOT / "docs" / "changes.ipynb"
DAY = "2023-11-21"  # Of all write times in the recording, and the hour.
HOUR = 20
TABLE, KEY = "ring_cobalt_ticket.b_gale_umbra", "k"


def test_the_notebook(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """It prints the changes of each table, plots those of a day, and prints a row's history."""
    import matplotlib.pyplot as plt  # noqa: PLC0415 (slow, for all who collect)

    assert spark is SparkSession.getActiveSession()
    plt.switch_backend("agg")  # Draws without a display.
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    settings, *code = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    given = {
        "ARCHIVE": str(recording(RING) / "segments"),
        "DAY": DAY,
        "TABLE": TABLE,
        "KEY": KEY,
    }
    names: dict[str, Any] = {}
    exec(settings, names)  # noqa: S102 (the notebook's own)
    assert given.keys() <= names.keys()
    names |= given
    said = []
    for cell in code:
        exec(cell, names)  # noqa: S102 (the notebook's own)
        said.append([line for line in capsys.readouterr().out.splitlines() if "|" in line][1:])

    wanted = by_worker().elements()
    changes = [(str(table), str(operation), key) for table, operation, key, _, _ in wanted]
    counts = Counter((table, operation) for table, operation, _ in changes)
    printed = [re.split(r"\s*\|\s*", line)[1:-1] for line in said[0]]
    assert {(t, o, str(n)) for (t, o), n in counts.items()} == {(t, o, n) for t, o, n in printed}
    (axes,) = plt.gcf().axes
    heights = {bars.get_label(): [bar.get_height() for bar in bars] for bars in axes.containers}
    per_table = Counter(table for table, _, _ in changes)
    assert {t: [n * (hour == HOUR) for hour in range(24)] for t, n in per_table.items()} == heights
    plt.close()
    of_key = Counter(key for table, _, key in changes if table == TABLE)
    assert max(of_key.values()) == len(said[2])
    times = [line.split("|")[1] for line in said[2]]
    assert sorted(times) == times
