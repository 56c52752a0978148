"""The changes of a history are read with the row before and after each."""

import json
from pathlib import Path

import pytest

from headrace.connector.commands.cli import main
from headrace.connector.streams.changes import ChangeReader
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sinks.kafka.embedded import EmbeddedBroker
from helpers.histories.kept import FOREVER_MS, Kept, beside, settled
from helpers.histories.rows import TABLE, change, delivery
from helpers.streams.published import read


@pytest.mark.parametrize("envelope", ["cep44", "debezium", "flat"])
def test_a_change_has_the_row_before_and_after_it(tmp_path: Path, envelope: str) -> None:
    """As typed columns; there is none before the first."""
    options = beside(tmp_path, table=TABLE, seed="empty")
    kept = Kept(DrivenClock(), **options)
    writer = kept.writer()
    for written_us, note in ((1, "one"), (2, "two")):
        writer.submit(delivery(change(written_us=written_us, note=note)), settled)
    assert writer.commit({}, FOREVER_MS)
    writer.close()
    broker = EmbeddedBroker()
    sink = {"plugin": "kafka", "bootstrap.servers": broker.bootstrap_servers, "topic": "images"}
    sink |= {"envelope": envelope, "schema.store": "file", "schema.store.path": "schemas"}
    source = {"plugin": "history", "path": options["path"], "images": "both"}
    job = {"job": "images", "state": "state.db", "source": source, "sink": sink}
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    assert 0 == main(["--log-level", "error", "run", str(tmp_path / "job.yaml"), "--until-idle"])

    reader = ChangeReader.of_job(tmp_path / "job.yaml")
    first, second = read(reader, broker.bootstrap_servers, "images")

    assert first.before is None
    assert ["one", "one", "two"] == [first.after.note, second.before.note, second.after.note]
    reader.close()
