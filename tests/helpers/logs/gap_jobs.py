"""A job over three forged logs and the file sink, run by the command line in this process."""

import contextlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog
import yaml

from headrace.connector.commands.cli import main
from headrace.connector.control.service import ControlService
from headrace.connector.language.parser import parse_script
from headrace.connector.stores.job import state_of
from headrace.connector.stores.open_control_store import open_notes
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, segment, write_segment
from helpers.logs.forged import OTHER, SCHEMA, TABLE, insert

NODES = ("n1", "n2", "n3")
WHOLE = "1\nCOMPLETED"
Json = dict[str, Any]


class GapJob:
    """A job in *folder*; its row number *n* has the value n in one byte."""

    def __init__(self, folder: Path, name: str = "orders", **source: object) -> None:
        """Write the job file; *source* are options beside the nodes and the schema."""
        self.folder = folder
        self.name = name
        (folder / "schema.cql").write_text(SCHEMA.replace("cdc = false", "cdc = true"))
        for node in NODES:
            (folder / node).mkdir()
        self.path = folder / "job.yaml"
        self._document: Json = {
            "job": name,
            "state": "state.db",
            "source": {
                "plugin": "cassandra",
                "nodes": {node: node for node in NODES},
                "schema": "schema.cql",
                "splits": 2,
                **source,
            },
            "sink": {"plugin": "files", "path": "out.jsonl"},
        }
        self.path.write_text(yaml.safe_dump(self._document))

    @property
    def source(self) -> Json:
        """The options of the source, with absolute paths."""
        nodes = {node: str(self.folder / node) for node in NODES}
        return {"nodes": nodes, "schema": str(self.folder / "schema.cql")}

    def from_statements(self) -> None:
        """Take sink and tables from statements."""
        del self._document["sink"]
        self.path.write_text(yaml.safe_dump(self._document))

    def leave_name(self) -> None:
        """Leave the name of the job to who runs it, as in the file of a worker."""
        del self._document["job"]
        self.path.write_text(yaml.safe_dump(self._document))

    def deliver(self, sink: Mapping[str, object], runtime: Mapping[str, object]) -> None:
        """Deliver to another sink, with these options of the runtime."""
        self._document |= {"sink": dict(sink), "runtime": dict(runtime)}
        self.path.write_text(yaml.safe_dump(self._document))

    def trace(self, endpoint: str) -> None:
        """Send metrics and spans to a collector."""
        self._document["runtime"] = {"otel.endpoint": endpoint}
        self.path.write_text(yaml.safe_dump(self._document))

    def execute(self, text: str) -> None:
        """Execute statements."""
        with contextlib.closing(open_notes(state_of(self.path)[0])) as connection:
            service = ControlService(connection)
            for parsed in parse_script(text):
                service.execute(parsed.statement)

    def keep_states_in(self, store: Mapping[str, object]) -> None:
        """Store leases and positions in a separate store."""
        self._document["store"] = dict(store)
        self.path.write_text(yaml.safe_dump(self._document))

    def change(self, **source: object) -> None:
        """Change options of the job; None removes one."""
        changed = self._document["source"] | source
        self._document["source"] = {k: v for k, v in changed.items() if v is not None}
        self.path.write_text(yaml.safe_dump(self._document))

    def begin_at(self, start: str) -> None:
        """Set the start of the job."""
        self._document["start"] = start
        self.path.write_text(yaml.safe_dump(self._document))

    def log(
        self,
        number: int,
        rows: range,
        *,
        nodes: Sequence[str] = NODES,
        index: str = WHOLE,
        others: range = range(0),
    ) -> None:
        """Write segment *number* of *nodes* with some rows, then *others* of another table."""
        raws = [insert(b"k%d" % n, b"%c" % n, table=TABLE) for n in rows]
        raws += [insert(b"k%d" % n, b"%c" % n, table=OTHER) for n in others]
        made = segment([raws], segment_id=SEGMENT_ID + number)
        for node in nodes:
            write_segment(
                self.folder / node, made.content, segment_id=SEGMENT_ID + number, index=index
            )

    def spread(self, number: int, *raws: bytes) -> None:
        """Let all nodes log mutations, each in a segment that no other node has."""
        for place, node in enumerate(NODES):
            segment_id = spread_id(place, number)
            made = segment([raws], segment_id=segment_id)
            write_segment(self.folder / node, made.content, segment_id=segment_id, index=WHOLE)

    def poison(self, number: int, content: bytes) -> str:
        """Damage the first node's entry with *content* of spread *number*; return its segment."""
        segment_id = spread_id(0, number)
        (path,) = (self.folder / NODES[0]).glob(f"*-{segment_id}.log")
        damaged = bytearray(path.read_bytes())
        damaged[damaged.index(content)] ^= 0xFF
        path.write_bytes(damaged)
        return str(segment_id)

    def lose(self, node: str, *numbers: int) -> None:
        """Remove segments of a node, and their indexes."""
        for number in numbers:
            for path in (self.folder / node).glob(f"CommitLog-*-{SEGMENT_ID + number}*"):
                path.unlink()

    def run(self, *arguments: str) -> int:
        """Read what is there; return the exit status."""
        return self._main("run", "--until-idle", *arguments)

    def call(self, verb: str, *arguments: str) -> int:
        """Call another command on the job; return the exit status."""
        return self._main(verb, *arguments)

    def replay(self, verb: str, *arguments: str) -> int:
        """Call a verb of `headrace replay` on the job; return the exit status."""
        return self._main("replay", *arguments, before=(verb,))

    def books(self, *arguments: str) -> Mapping[str, int]:
        """Return the source's books, summed over all splits, after checking that they balance."""
        books: Mapping[str, int] = self.verified(*arguments)["total"]["books"]
        return books

    def verified(self, *arguments: str) -> Json:
        """Return what `headrace verify` prints about books that balance."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            assert 0 == self._main("verify", "--json", *arguments)
        document: Json = json.loads(printed.getvalue())
        return document

    def delivered(self) -> int:
        """Return how many changes the books, which balance, have as delivered."""
        tables = self.verified()["total"]["tables"]
        return sum(each["delivered"] for each in tables.values())

    def _main(self, verb: str, *arguments: str, before: Sequence[str] = ()) -> int:
        try:
            return main([verb, *before, str(self.path), *arguments])
        finally:
            structlog.reset_defaults()  # It writes to what this test took for standard error.

    def documents(self) -> list[Json]:
        """Return what is in the sink."""
        lines = (self.folder / "out.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def rows(self) -> list[int]:
        """Return the values of the rows in the sink, sorted."""
        changes = [each for each in self.documents() if "control" not in each]
        return sorted(int(each["columns"]["v"]["value"], 16) for each in changes)

    def notices(self) -> list[Json]:
        """Return the control records in the sink."""
        return [each for each in self.documents() if "control" in each]

    def audit(self) -> list[Json]:
        """Return the lines of the audit log."""
        path = self.folder / "state.db.audit"
        return [json.loads(line) for line in path.read_text().splitlines()]


def spread_id(place: int, number: int) -> int:
    """Return the id of the spread segment of the node at *place*."""
    return SEGMENT_ID + 10_000 * place + number


def place(number: int, offset: int) -> Mapping[str, int]:
    """Return a place in segment *number* in the form of records."""
    return {"segment_id": SEGMENT_ID + number, "position": offset}
