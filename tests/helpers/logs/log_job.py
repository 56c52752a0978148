"""A job over logs that grow while a test drives it by hand."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from headrace.plugins import Batch, Quarantined, Reader
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, segment, write_segment
from headrace.sources.cassandra.logs.pins import FOLDER
from headrace.sources.cassandra.logs.repair_streams import FILE, Stream
from headrace.sources.cassandra.state.cdc_state import CdcState
from helpers.logs.forged import SCHEMA
from helpers.logs.node_logs import batches, forged_nodes, open_all, source
from helpers.stores.shelf import Shelf

EXPIRY_S: Final = 60
REST_S: Final = 5
NODES: Final = ("a", "b", "c")
NO_RING: Final[Mapping[str, Mapping[str, object]]] = {}


class Job:
    """A source over growing logs of some nodes, and the published events."""

    def __init__(
        self,
        folder: Path,
        nodes: Iterable[str] = NODES,
        schema: str = SCHEMA,
        ring: Mapping[str, Mapping[str, object]] = NO_RING,
        **options: object,
    ) -> None:
        """Open all splits over empty logs; *ring* has the nodes' tokens, if they need any."""
        self.folder = folder
        self.clock = DrivenClock()
        self.events: list[Mapping[str, object]] = []
        self.aside: list[Quarantined] = []
        self.shelf = Shelf()
        self._logged: Counter[str] = Counter()
        paths = {node: {"path": str(folder / node)} for node in nodes}
        for node in paths:
            (folder / node).mkdir()
        given: dict[str, object] = {
            **forged_nodes(folder, {}, schema),
            "nodes": {node: {**path, **ring.get(node, {})} for node, path in paths.items()},
            "expiry_seconds": EXPIRY_S,
            "dedup_window_seconds": EXPIRY_S,
            "splits": 2,
            **options,
        }
        self._options = given
        self.source = source(given, self.clock)
        self.readers: Mapping[str, Reader] = open_all(self.source)

    @property
    def positions(self) -> Mapping[str, CdcState]:
        """What is committed."""
        return self.shelf.states()

    def restart(self, **options: object) -> None:
        """Crash, and continue at the committed positions with other *options*."""
        self._options |= options
        self.source.close()
        self.source = source(self._options, self.clock)
        self.readers = open_all(self.source, self.positions)

    def log(self, node: str, *mutations: bytes, version: int = 7, index: str | None = None) -> None:
        """Let a node log mutations, in a new segment."""
        number = SEGMENT_ID + self._logged[node]
        self._logged[node] += 1
        made = segment([mutations], segment_id=number, version=version)
        text = index or f"{made.durable}\nCOMPLETED"
        write_segment(
            self.folder / node, made.content, segment_id=number, version=version, index=text
        )

    def read(self) -> list[str]:
        """Read all logs; return the keys of the published events."""
        came = []
        for batch in batches(self.readers.values()):
            came += [record.document() for record in batch.records()]
            self.aside += batch.quarantined()
            self._release(batch)
        self.events += came
        return [str(event["key"]["k"]) for event in came]

    def wait(self, seconds: int) -> list[str]:
        """Let time pass, listing the logs meanwhile; return the keys of the published events."""
        found: list[str] = []
        for _ in range(0, seconds, REST_S):
            self.clock.advance(REST_S * 1000)
            found += self.read()
        return found

    def books(self) -> Counter[str]:
        """Return the books of all splits."""
        total: Counter[str] = Counter()
        for position in self.positions.values():
            total.update(position.books())
        return total

    def _release(self, batch: Batch) -> None:
        self.shelf.put(batch.split, batch.end)
        self.readers[batch.split].release(batch.end)


def report(folder: Path, *streams: Stream) -> None:
    """Write which streams a node receives."""
    (folder / FOLDER).mkdir(exist_ok=True)
    (folder / FOLDER / FILE).write_bytes(msgspec.json.encode(streams))


def shown(*names: bytes) -> list[str]:
    """Return keys in the form of events."""
    return [f"0x{name.hex()}" for name in names]
