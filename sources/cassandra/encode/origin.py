"""The origin of a change: the node, the place in its log, and the copies read by then."""

from typing import Final

from msgspec.structs import replace

from headrace.plugins.origin import DebeziumSource, Origin, SourceField
from headrace.sources.cassandra.encode.list_modes import HEADER

TABLE_NODE: Final = "table"  # The node of a change that was read from a table.
ORIGIN: Final = Origin(
    fields={"copies": "int", "node": "string", "segment": "long", "position": "long"},
    of_table={"node": TABLE_NODE},
    of_now=HEADER,
    # As Debezium's connector for Cassandra writes it.
    debezium=DebeziumSource(
        connector="cassandra",
        db="NULL",
        name="node",
        fields=(
            SourceField(name="cluster"),
            SourceField(name="file", of="segment", as_text=True),
            SourceField(name="pos", of="position"),
            SourceField(name="keyspace", of="sourceKeyspace"),
            SourceField(name="table", of="sourceTable"),
        ),
    ),
)
TABLE_ORIGIN: Final = replace(ORIGIN, debezium=replace(ORIGIN.debezium, snapshot=True))
