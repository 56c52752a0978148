"""Images of a history in Kafka, as consumers of Debezium's envelope see them."""

import json
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
import yaml

from headrace import history
from headrace.connector.commands.cli import main as cli_main
from headrace.connector.commands.exec import main as exec_main
from headrace.plugins import Operation
from helpers.jobs.committed import committed
from helpers.recordings.batches import source_of

if TYPE_CHECKING:
    from headrace.connector.history.query import Event

pytestmark = pytest.mark.real

NAME = "4.1-ops"
TABLE = "hazel_patient.onyx_walnut"
TIME = "e"  # The column of its key that is a timestamp.


@pytest.fixture
def worker_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of a worker that reads a recording, and its history."""
    monkeypatch.chdir(tmp_path)
    source = source_of(NAME, splits=2)
    images = {"plugin": "history", "path": "history/h.db"}
    path = tmp_path / "worker.yaml"
    document = {"state": "state.db", "source": source, "clusters": {"images": images}}
    path.write_text(yaml.safe_dump(document))
    return path


def execute(statement: str) -> None:
    """Execute a statement."""
    assert 0 == exec_main(["--state", "state.db", "-e", statement])


def key_of(given: Mapping[str, Any]) -> str:
    """Return the key of a row as text; a time, as queries show it, in ms as Debezium has it."""
    made = {name: value for name, value in given.items() if value is not None}
    if isinstance(made.get(TIME), str):
        made[TIME] = round(datetime.fromisoformat(made[TIME]).timestamp() * 1_000)
    return json.dumps(made, sort_keys=True)


def test_debezium_has_the_row_before_and_after(worker_file: Path, bootstrap_servers: str) -> None:
    """Each change of the history comes once; a row is before a change as after the last one."""
    topic = f"images-{uuid4().hex}"
    execute(f"CREATE CDC h ON {TABLE} INCLUDE (ALL) WITH seed = 'empty' AND job = 'h'")
    execute(
        f"CREATE DATA_SINK kafka WITH 'kafka://{bootstrap_servers}?topic={topic}' "
        "AND envelope = 'debezium' AND format = 'json' AND exactly.once = true "
        "AND topic.creation.enable = true AND topic.creation.default.partitions = 3"
    )
    execute(
        f"CREATE DATA_SOURCE history ON TABLE {TABLE} WITH kafka AND cluster = 'images' "
        "AND job = 'images'"
    )
    for job in ("h", "images", "images"):
        assert 0 == cli_main(["run", str(worker_file), "--job", job, "--until-idle"])

    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for message in committed(bootstrap_servers, topic):
        key = key_of(json.loads(message.key() or b""))
        found[key].append(json.loads(message.value() or b""))
    expected: dict[str, list[Event]] = defaultdict(list)
    with history.connect("history/h.db") as opened:
        for event in opened.select(0, include=("pre", "post")):
            expected[key_of(event.key)].append(event)
    assert {k: len(v) for k, v in expected.items()} == {k: len(v) for k, v in found.items()}
    chained = shown = 0
    for key, events in expected.items():
        for event, value in zip(events, found[key], strict=True):
            assert event.written_us == value["source"]["ts_us"]
            if value["op"] == "r" or event.operation is Operation.DELETE_PARTITION:
                assert value["before"] is None
                continue
            assert value["before"] is not None or not event.pre
            assert value["after"] is not None or not event.post
            assert value["op"] != "d" or value["after"] is None
            shown += bool(event.pre) and bool(event.post)
        for one, other in pairwise(found[key]):
            chained += other["before"] is not None and one["after"] == other["before"]
    assert shown > 10
    assert chained > 10
