"""A fault that loses changes inside of the process stops the split before anything is committed."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.connector.commands.cli import main
from headrace.connector.runtime.splits.ledger import Shipment, State
from headrace.connector.runtime.splits.split_task import Progress, SplitRun
from headrace.connector.serde.codecs.json import JsonCodec
from headrace.connector.serde.encoder import Encoder
from headrace.connector.serde.shaping import Shaper
from headrace.plugins import Batch, Codec, Demand, EncodedRecords, Reader
from headrace.sinks.kafka.embedded import EmbeddedBroker
from headrace.sources.cassandra.agreement.intake import AgreedMutations
from headrace.sources.cassandra.batch import MutationBatch
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.reader import CassandraReader
from helpers.recordings.corpora import recording

pytestmark = pytest.mark.long

AVRO = {"format": "avro"}
FEWEST = 2  # Records of a batch that has the fault.
Patch = Callable[[pytest.MonkeyPatch], None]


def taken_out(encoded: EncodedRecords, numbers: Sequence[int]) -> EncodedRecords:
    """Return *encoded* with just the records of these *numbers*, as if it had no others."""
    return encoded.chosen(numbers) if len(encoded) >= FEWEST else encoded


def patched(kind: type, name: str, change: Callable[[Any], Any]) -> Patch:
    """Return what changes the result of a method."""

    def apply(monkeypatch: pytest.MonkeyPatch) -> None:
        whole = getattr(kind, name)
        monkeypatch.setattr(kind, name, lambda *given, **named: change(whole(*given, **named)))

    return apply


def without_first(agreed: AgreedMutations) -> AgreedMutations:
    """Return the agreed mutations but for the first."""
    left = AgreedMutations()
    meta = list(agreed.meta[: agreed.count * constants.AGREED_WIDTH])
    for base in range(constants.AGREED_WIDTH, len(meta), constants.AGREED_WIDTH):
        start, end, *fields = meta[base : base + constants.AGREED_WIDTH]
        host, segment, position, copies, messaging, _, epoch, *digest = fields
        halves = [half % (1 << 64) for half in digest]
        given = (host, segment, position, copies, messaging, epoch, *halves)
        left.append(agreed.data, start, end, *given)
    return left


def never_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the reader lose the first mutation of each batch, after it was agreed."""
    whole = CassandraReader._batch  # noqa: SLF001 (the fault is planted inside)

    def batch(reader: CassandraReader, agreed: AgreedMutations, *given: Any) -> MutationBatch:  # noqa: ANN401 (passed on)
        return whole(reader, without_first(agreed), *given)

    monkeypatch.setattr(CassandraReader, "_batch", batch)


def never_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a split read its first batch and forget it."""
    whole = SplitRun._read_next  # noqa: SLF001 (the fault is planted inside)
    forgotten: list[Batch] = []

    def read_next(run: SplitRun, reader: Reader, demand: Demand) -> Batch | Progress:
        found = whole(run, reader, msgspec.structs.replace(demand, records_max=FEWEST))
        if isinstance(found, Batch) and not forgotten:
            forgotten.append(found)
            return whole(run, reader, msgspec.structs.replace(demand, records_max=FEWEST))
        return found

    monkeypatch.setattr(SplitRun, "_read_next", read_next)


def never_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the ledger take a batch for settled that the sink was never given."""

    def submit(run: SplitRun, shipment: Shipment, _now_ms: int) -> None:
        shipment.state = State.SETTLED
        run.ledger._fold()  # noqa: SLF001 (as above)

    monkeypatch.setattr(SplitRun, "_submit", submit)


def dropped(encoded: EncodedRecords) -> EncodedRecords:
    """Lose the second record."""
    return taken_out(encoded, [0, *range(2, len(encoded))])


def doubled(encoded: EncodedRecords) -> EncodedRecords:
    """Return the first record twice."""
    return taken_out(encoded, [0, *range(len(encoded))])


def exchanged(encoded: EncodedRecords) -> EncodedRecords:
    """Return the first record in place of the second, too."""
    return taken_out(encoded, [0, 0, *range(2, len(encoded))])


def filtered(encoded: EncodedRecords) -> EncodedRecords:
    """Lose the first record, and say that it was left out on purpose."""
    rest = taken_out(encoded, range(1, len(encoded)))
    return (
        msgspec.structs.replace(rest, filtered={encoded.tables[0]: 1})
        if rest is not encoded
        else encoded
    )


def shortened(encoded: EncodedRecords) -> EncodedRecords:
    """Lose the key and the value of the last record, and nothing else."""
    return msgspec.structs.replace(encoded, keys=encoded.keys[:-1], values=encoded.values[:-1])


FAULTS = {
    "agreed and never handed out": (AVRO, never_handed_out),
    "read and never entered": (AVRO, never_entered),
    "settled and never sent": (AVRO, never_sent),
    "dropped in the encoder": (AVRO, patched(MutationBatch, "encode", dropped)),
    "doubled in the encoder": (AVRO, patched(MutationBatch, "encode", doubled)),
    "exchanged in the encoder": (AVRO, patched(MutationBatch, "encode", exchanged)),
    "dropped after the encoder": (AVRO, patched(MutationBatch, "encode", shortened)),
    "said to be filtered": (AVRO, patched(MutationBatch, "encode", filtered)),
    "dropped as JSON": (
        {"format": "json"},
        patched(MutationBatch, "encode", dropped),
    ),
    "dropped while it is written as JSON": (
        {"format": "json", "envelope": "flat"},
        patched(JsonCodec, "written", dropped),
    ),
    "dropped while it is shaped": (
        {"format": "avro", "envelope": "debezium"},
        patched(Shaper, "reshape", dropped),
    ),
    "dropped behind transforms": (
        {
            "format": "avro",
            "envelope": "flat",
            "transforms": "t",
            "transforms.t.type": "Flatten",
        },
        patched(Codec, "encode", dropped),
    ),
    "dropped by transforms of bytes": (
        {
            "format": "avro",
            "envelope": "flat",
            "transforms": "t",
            "transforms.t.type": "InsertField",
            "transforms.t.static.field": "from",
            "transforms.t.static.value": "here",
        },
        patched(Encoder, "_edited", dropped),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_loses_changes_stops_the_split(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With the fault `run` and `verify` end with 4 and nothing is committed; without it, all is."""
    options, plant = FAULTS[name]
    broker = EmbeddedBroker()
    source = {
        "plugin": "cassandra",
        "nodes": {"node1": str(recording("4.1-ops") / "segments")},
        "schema": str(recording("4.1-ops") / "schema.cql"),
        "consistency": "ONE",
        "splits": 1,
    }
    sink = {"plugin": "kafka", "bootstrap.servers": broker.bootstrap_servers, "topic": "lost"}
    job, summary = tmp_path / "job.yaml", tmp_path / "summary.json"
    whole = {"job": "j", "state": "state.db", "source": source, "sink": sink | options}
    job.write_text(json.dumps(whole))
    run = ["--log-level", "error", "run", "--until-idle", "--summary-json", str(summary)]

    with monkeypatch.context() as planted:
        plant(planted)
        assert 4 == main([*run, str(job)])
    assert "changes_missing" in capsys.readouterr().err
    assert 0 == json.loads(summary.read_text())["run"]["changes"]
    assert 4 == main(["verify", str(job)])
    printed = capsys.readouterr().out
    assert "1 of 1 splits failed (1-of-1): changes_missing: " in printed
    assert "the books balance for what was read before that" in printed

    assert 0 == main([*run, str(job)])
    assert 50 < json.loads(summary.read_text())["run"]["changes"]
