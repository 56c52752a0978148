"""A job whose contact point is a node that answers queries of its tables by ranges of tokens."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from headrace.connector.control.service import ControlService
from headrace.connector.hosting.host import Host
from headrace.connector.language.parser import parse_script
from headrace.connector.language.rendering import ResultTable
from headrace.connector.replay.runs import RunTable, ShardState
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins.testing.doubles import context
from headrace.sources.cassandra import table_source
from headrace.sources.cassandra.mutation.snapshot import Selected
from headrace.sources.cassandra.schema.ddl import parse_schema
from helpers.logs.forged import NOW_US
from helpers.logs.gap_jobs import GapJob
from helpers.servers.cql_node import TEXT, CqlNode, rows

RANGES: Final = 3
ROWS: Final = 5
T, OTHER = "forged.t", "forged.other"
_BIGINT, _BLOB, _INT = b"\x00\x02", b"\x00\x03", b"\x00\x09"
_COLUMNS: Final = {"token": _BIGINT, "k": _BLOB, "v": _BLOB, "w": _BIGINT, "ttl": _INT}
EDGES: Final = [-(1 << 63) + (1 << 64) * n // RANGES for n in range(RANGES)]
TOKENS: Final = list(pairwise([*EDGES, (1 << 63) - 1]))
_VERSION: Final = rows({"release_version": TEXT}, [b"5.0.2"])
KILLED: Final = """
import sys
from pathlib import Path
from headrace.connector.commands.cli import main
from headrace.sources.cassandra import table_source
from headrace.sources.cassandra.schema.ddl import parse_schema
schema = parse_schema(Path(sys.argv[1], "schema.cql").read_text())
table_source.read_live_schema = lambda contact: schema
sys.exit(main(sys.argv[2:]))
"""


@contextmanager
def answering(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CqlNode]:
    """Run a node that tells the schema which the job's file in *folder* has."""

    def said(_: object) -> object:
        return parse_schema((folder / "schema.cql").read_text())

    monkeypatch.setattr(table_source, "read_live_schema", said)
    with CqlNode() as node:
        yield node


class Filled:
    """A job whose contact point is a node that holds rows of its tables, and its backfills."""

    def __init__(self, folder: Path, node: CqlNode) -> None:
        """Start with a node without rows."""
        self.job = GapJob(folder, contact_points=[node.point])
        self.node = node
        self._schema = parse_schema((folder / "schema.cql").read_text())

    def statement(self, table: str, place: int) -> str:
        """Return the query for one of the token ranges."""
        found = self._schema.table(table)
        assert found is not None
        return Selected(found, times_of_elements=True).statement() % TOKENS[place]

    def hold(self, table: str, count: int, *, refused: int | None = None) -> None:
        """Give the node *count* rows, spread over its ranges; it rejects the query of *refused*."""
        answers = {"SELECT release_version": _VERSION, **self.node.answers}
        for place, (after, _) in enumerate(TOKENS):
            found = [_row(after, n) for n in range(place, count, RANGES)]
            answers[self.statement(table, place)] = rows(_COLUMNS, *found)
        if refused is not None:
            del answers[self.statement(table, refused)]
        self.node.answers = answers

    def hold_row(self, table: str, number: int, value: bytes | None) -> None:
        """Let the node answer the query of one row, which has this value; None: there is none."""
        found = self._schema.table(table)
        assert found is not None
        statement = Selected(found, times_of_elements=True).statement_of_row(is_static=False)
        row = [bytes(8), b"k%d" % number, value, NOW_US.to_bytes(8, "big"), None]
        key = f"""'"0x{(b"k%d" % number).hex()}"'"""
        answer = rows(_COLUMNS, *([] if value is None else [row]))
        self.node.answers = {**self.node.answers, statement % key: answer}

    def asked(self) -> Counter[str]:
        """Return how many ranges of each table were queried since the last call."""
        found = [statement for statement in self.node.levels if "token(" in statement]
        self.node.levels.clear()
        return Counter(s.split(" FROM ")[1].split(" ")[0].replace('"', "") for s in found)

    def backfill(self, *arguments: str) -> int:
        """Call the command in this process; return the exit status."""
        return self.job.call("backfill", *self.options(*arguments))

    @staticmethod
    def options(*arguments: str) -> Sequence[str]:
        """Return the options of a backfill."""
        return (*arguments, "--shards", str(RANGES), "--master", "none")

    def states(self) -> Sequence[list[ShardState]]:
        """Return the states of the shards of each run, the first run first."""
        with closing(RunTable(self.job.folder / "state.db")) as table:
            found = [[row.state for row in table.shards(run.run)] for run in table.runs()]
        return found[::-1]

    def sent(self) -> list[tuple[str, str]]:
        """Return table and key of all that is in the sink, sorted."""
        if not (self.job.folder / "out.jsonl").exists():
            return []
        return sorted((each["table"], each["key"]["k"]) for each in self.job.documents())


class Snapped(Filled):
    """A job of statements, and its snapshots."""

    def execute(self, text: str) -> ResultTable:
        """Execute statements; return the last answer."""
        with closing(open_notes(self.job.folder / "state.db")) as notes:
            service = ControlService(notes)
            return [service.execute(parsed.statement) for parsed in parse_script(text)][-1]

    def shown(self) -> list[dict[str, str]]:
        """Return the rows of SHOW SNAPSHOTS."""
        found = self.execute("SHOW SNAPSHOTS")
        return [dict(zip(found.columns, row, strict=True)) for row in found.rows]

    def only(self) -> dict[str, str]:
        """Return the only row of SHOW SNAPSHOTS."""
        (found,) = self.shown()
        return found

    def host(self) -> Host:
        """Return the job, to be run."""
        return Host(self.job.path, log=context().log)


def _row(after: int, number: int) -> list[bytes | None]:
    """Return a row as the node sends it: token, key, value, its write time and time to live."""
    token = (after + 1 + number).to_bytes(8, "big", signed=True)
    return [token, b"k%d" % number, b"%c" % number, NOW_US.to_bytes(8, "big"), None]


def keys(table: str, count: int = ROWS) -> list[tuple[str, str]]:
    """Return table and key of the rows that a node holds."""
    return sorted((table, f"0x{(b'k%d' % number).hex()}") for number in range(count))
