"""A state file whose job has many splits of a token ring, some of which fail or are missing."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from headrace.connector.control.service import ControlService
from headrace.connector.foundation.processes import this_process
from headrace.connector.foundation.states import Observed
from headrace.connector.language.parser import parse_script
from headrace.connector.stores import Commit, Loss, Seen, TableCounts
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins.positions import OPEN
from headrace.sources.cassandra.ring.splits import names
from headrace.sources.cassandra.state.cdc_state import CdcState, Marker, StoredGap

MADE: Final = """
CREATE DATA_SINK lake WITH 'null://';
CREATE DATA_SOURCE cdc ON TABLE shop.orders WITH lake AND job = 'orders';
CREATE DATA_SOURCE cdc ON TABLE shop.customers WITH lake AND job = 'orders';
"""
WORKER: Final = """\
state: state.db
source:
  plugin: cassandra
  schema: schema.cql
  nodes: {node1: a, node2: b}
"""
MISSING: Final = (200, 201, 202, 203)
FAILED: Final = 17
LOST: Final = 120  # Dead letters: more than a page has.
_GIB: Final = 1 << 30


def a_ring(folder: Path, *, splits: int = 500, broken: bool = True) -> Path:
    """Return a new state file in *folder*, whose job has as many splits; this process runs them.

    Of a *broken* ring some splits are missing, one failed, and there are dead letters.
    """
    (folder / "worker.yaml").write_text(WORKER)
    found = [n for number, n in enumerate(names(splits)) if not broken or number not in MISSING]
    with contextlib.closing(open_notes(folder / "state.db")) as notes:
        service = ControlService(notes)
        for parsed in parse_script(MADE):
            service.execute(parsed.statement)
        notes.store("orders").begin_run(str(folder / "worker.yaml"))
        store, owner = notes.store("orders"), this_process()
        store.register(found)
        store.enroll(owner)
        tokens = store.claim(owner.worker, store.leases(), 600_000)
        store.renew(owner.worker, tokens, dict.fromkeys(found, 2_000))
        store.see([
            Seen(split=split, state=Observed.RUNNING, generation=1, worker=owner.worker)
            for split in found
        ])  # fmt: skip
        if broken:
            split = found[FAILED]
            lost = [
                Loss(
                    kind="quarantined",
                    table="shop.orders",
                    place=f"node1 segment 7:{number}",
                    code="bad_record",
                    message="the value <b>is torn</b>",
                    content=b"canary-in-a-row",
                )
                for number in range(LOST)
            ]
            commit = Commit(
                split=split,
                plan=1,
                token=tokens[split],
                owner=owner.worker,
                previous=0,
                seq=1,
                position=_position().encode(),
                counters={"shop.orders": TableCounts(cut=6_571, delivered=6_451, quarantined=LOST)},
                losses=lost,
            )
            assert not store.commit([commit])
            reason = "log_gap: node2 lost segment 12\nhint: headrace gaps worker.yaml --job orders"
            store.release(owner.worker, split, tokens[split], reason)
            store.see([Seen(split=split, state=Observed.FAILED, generation=1)])
    return folder / "state.db"


def _position() -> CdcState:
    """Return a position with books that balance, and a gap that stops the split."""
    gap = StoredGap("node2", Marker(12, 0), Marker(13, 0), "missing", OPEN)
    mutations = {"mutations.first": 6_580, "mutations.agreed": 6_571, "mutations.pending": 9}
    entries = {"entries.node1.read": 13_151, "entries.node1.first": 6_580}
    return CdcState(
        split_time_ms=1_790_000_000_000,
        number=6_571,
        hosts=("node1", "node2"),
        keyspaces=("shop",),
        markers={"node1": Marker(12, 77), "node2": Marker(12, 0)},
        counters={**mutations, **entries, "entries.node1.counted": 6_571},
        met_gaps=(gap,),
    )


def ask(question: Mapping[str, object]) -> Any:  # noqa: ANN401 (JSON)
    """Answer how far the job is behind, as its plugin would."""
    assert "lag" == question["verb"]
    parts: Sequence[Sequence[object]] = [
        [{"node": "node1"}, 3 << 20, 2, ""],
        [{"node": "node2"}, 0, 0, "node_unreachable: cdc_raw cannot be listed"],
    ]
    space = {"used_bytes": 3 * _GIB, "limit_bytes": 4 * _GIB, "free_bytes": 90 * _GIB}
    full = {"partition": {"node": "node1"}, **space, "growth": 200_000.0}
    return {"parts": parts, "oldest_us": 1_790_000_000_000_000, "spaces": [full]}
