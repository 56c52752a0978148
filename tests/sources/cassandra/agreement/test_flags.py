"""What did not agree as others do says so in the sink, with the copies that were seen."""

from pathlib import Path

import pytest

from headrace.connector.serde import Encoder
from headrace.plugins import Batch, Encoding, Reader
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, segment, write_segment
from helpers.logs.forged import insert
from helpers.logs.gap_jobs import GapJob
from helpers.logs.node_logs import batches, forged_nodes, open_all, source

EXPIRY_S = 3600
ROW = insert(b"k", b"v")


def waited(reader: Reader, clock: DrivenClock) -> list[Batch]:
    """Return what comes while split time continues to the expiry."""
    found = list(batches([reader]))
    for _ in range(0, EXPIRY_S + 10, 5):
        clock.advance(5_000)
        found += batches([reader])
    return found


def headers_of(found: list[Batch], codec: str) -> list[tuple[str, ...]]:
    """Return the names and values of the headers of all records, but for schema ids."""
    encoder = Encoder(Encoding(codec=codec))
    encoded = [encoder.encode(batch, token=1) for batch in found]
    return [
        tuple(f"{name}={value.decode()}" for name, value in headers if name != "schemaId")
        for each in encoded
        for headers in each.headers
    ]


@pytest.mark.parametrize("codec", ["avro", "json"])
def test_what_expired_is_flagged(tmp_path: Path, codec: str) -> None:
    """A mutation that is published all the same says so, and how many copies it had."""
    logs = {"n1": [ROW], "n2": [], "n3": []}
    more = {"expiry_seconds": EXPIRY_S, "dedup_window_seconds": EXPIRY_S, "expired": "publish"}
    clock = DrivenClock()
    (reader,) = open_all(
        source({**forged_nodes(tmp_path, logs), **more, "splits": 1}, clock)
    ).values()

    found = waited(reader, clock)

    assert [("agreement=expired",)] == headers_of(found, codec)
    (record,) = [record for batch in found for record in batch.records()]
    assert ("expired", 1) == (record.document()["agreement"], record.document()["copies"])
    assert 1 == found[-1].end.books()["mutations.expired_published"]


@pytest.mark.parametrize("codec", ["avro", "json"])
def test_what_came_late_is_flagged(tmp_path: Path, codec: str) -> None:
    """A copy that completes what had expired publishes it after all; nothing else has a flag."""
    logs = {"n1": [ROW], "n2": [], "n3": []}
    more = {"expiry_seconds": EXPIRY_S, "dedup_window_seconds": EXPIRY_S}
    clock = DrivenClock()
    (reader,) = open_all(
        source({**forged_nodes(tmp_path, logs), **more, "splits": 1}, clock)
    ).values()
    assert [] == headers_of(waited(reader, clock), codec)

    number = SEGMENT_ID + 1
    for node, raws in (("n2", [ROW, insert(b"l", b"w")]), ("n3", [insert(b"l", b"w")])):
        content = segment([raws], segment_id=number).content
        write_segment(tmp_path / node, content, segment_id=number)
    found = list(batches([reader]))

    assert [(), ("agreement=late",)] == sorted(headers_of(found, codec))
    books = found[-1].end.books()
    assert (2, 0) == (books["mutations.agreed"], books["mutations.expired"])


def test_what_counts_on_a_lost_copy_is_flagged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a gap that is passed by `assume`, one copy and the lost part agree."""
    monkeypatch.chdir(tmp_path)
    job = GapJob(tmp_path, gaps="assume")
    job.log(0, range(3))
    job.log(1, range(3, 6), nodes=("n2",))
    assert 0 == job.run()
    assert list(range(3)) == job.rows()
    job.lose("n1", 0)
    job.log(3, range(6, 9))

    assert 0 == job.run()

    flags = {
        doc["columns"]["v"]["value"]: doc.get("agreement") for doc in job.documents() if "op" in doc
    }
    assert {f"0x{n:02x}": "assumed" if 3 <= n < 6 else None for n in range(9)} == flags
    assert {"agreed": 9, "pending": 0} == {
        fate: job.books()[f"mutations.{fate}"] for fate in ("agreed", "pending")
    }
