"""A segment and mutations written by hand, and a reader of recorded ones."""

from collections.abc import Iterator
from pathlib import Path

from headrace.sources.cassandra.commitlog.segment import parse_name
from headrace.sources.cassandra.log import read_mutations
from headrace.sources.cassandra.mutation.changes import Mutation, MutationDecoder
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.layout import Catalogue
from headrace.sources.cassandra.schema.tables import Schema

SEGMENT_ID = 1_700_000_000_000
NOW_US = 1_700_000_000_000_000
NOW_S = 1_700_000_000
SCHEMA = """
CREATE TYPE shop.address (street text, no int);
CREATE TABLE shop.users (id int, seq int, age int, name text, note text {static}, tags set<text>,
    attrs map<text, int>, addr address, PRIMARY KEY (id, seq))
    WITH cdc = true AND ID = 6f0c2f80-3b1e-11ef-9d2b-0f1e2d3c4b5a;
"""
# One update of the table, its id, and the partition key 7.
_HEAD = "016f0c2f803b1e11ef9d2b0f1e2d3c4b5a0400000007"
_NOW = "fce9d96a43c000"  # As a minimum timestamp: NOW_US less Cassandra's epoch.
_BEFORE = "fce9d96a43bfff"  # A microsecond earlier.
_NOW_S = "ef535700"
MUTATIONS = {
    name: bytes.fromhex(_HEAD + rest)
    for name, rest in {
        # INSERT (seq, name, age) VALUES (1, 'Ann', 30)
        "insert": f"10{_NOW}00000203616765046e616d650124000000000100080000001e0803416e6e01",
        # UPDATE USING TTL 86400 SET name = null, tags = {'a', 'b'} WHERE seq = 1
        "replace": f"10{_BEFORE}{_NOW_S}c15180"
        "02046e616d650474616773"
        "01600000000001"
        "050100"
        "000002"
        "0601c15180000161"
        "0601c15180000162"
        "01",
        # UPDATE SET attrs = {'k': 7}, tags = tags + {'c'}: the live deletion of 4.x, then of 5.x.
        "both, 4.x": f"10{_BEFORE}{_NOW_S}00"
        "02056174747273"
        "0474616773"
        "01600000000001"
        "0000010001016b0400000007"
        "ff7ff9f5dbe7e1c001"
        "f01aac0eff"
        "0104010163"
        "01",
        "both, 5.x": f"10{_BEFORE}{_NOW_S}00"
        "02056174747273"
        "0474616773"
        "01600000000001"
        "0000010001016b0400000007"
        "ff7ff9f5dbe7e1c001"
        "ffffffffff9aac0eff"
        "0104010163"
        "01",
        # DELETE WHERE seq >= 1 AND seq < 5
        "range": f"10{_NOW}{_NOW_S}0000000201000100000000010000020000010000000005000001",
        # The same, and from 5 on ten microseconds and three seconds later.
        "two ranges": f"10{_NOW}{_NOW_S}00"
        "0000"
        "02010001"
        "0000000001"
        "0000"
        "02020001"
        "0000000005"
        "0000"
        "0a03"
        "02060000"
        "0a03"
        "01",
        "partition": f"14{_NOW}{_NOW_S}000000000001",
        # UPDATE SET note = 'hi' (static), and DELETE WHERE seq = 1.
        "static": f"18{_NOW}{_NOW_S}0001046e6f746500a001000002686901300000000001000001",
        # UPDATE SET addr.street = 'Main', addr.no = 9
        "fields": f"10{_NOW}0000"
        "010461646472"
        "01200000000001"
        "02"
        "0000020000044d61696e"
        "000002000104"
        "00000009"
        "01",
    }.items()
}
SEGMENT = (
    bytes.fromhex("000000070000018bcfe5680000027b7d52ecfd5a00000065da074c340000003d792c930d")
    + MUTATIONS["insert"]
    + bytes.fromhex("1549fac20000006dfd050d9e0000000000000000")
)


def sample_schema(*, static: bool = False) -> Schema:
    """Return the schema of what is written by hand; *static* makes `note` a static column."""
    return parse_schema(SCHEMA.format(static="static" if static else ""))


def sample_mutation(name: str) -> Mutation:
    """Return one of MUTATIONS, decoded."""
    decoder = MutationDecoder(Catalogue(sample_schema(static=name == "static")))
    return decoder.decode(MUTATIONS[name], messaging=12, segment_id=SEGMENT_ID, position=101)


def segments(folder: Path) -> list[Path]:
    """Return the segments in *folder* by id."""
    named = [(parse_name(path.name), path) for path in folder.iterdir()]
    return [path for _name, path in sorted((name, path) for name, path in named if name)]


def recorded_mutations(folder: Path, logs: Path | None = None) -> Iterator[Mutation]:
    """Yield the mutations of a recording of one node, or of the node with the segments *logs*."""
    known = parse_schema((folder / "schema.cql").read_text())
    for path in segments(logs or folder / "segments"):
        with path.open("rb") as stream:
            for mutation in read_mutations(stream, known, place=path.name):
                if mutation.updates[0].table.table_id in known.tables:  # The log also has views.
                    yield mutation
