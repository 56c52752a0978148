"""The system tables that a commit log can contain, by id: their ids derive from their names.

Separate, so that code that skips them can report their names, and the reason.
"""

from collections.abc import Mapping
from typing import Final

from headrace.sources.cassandra.schema.tables import system_table_id

_NAMES: Final = {
    "system": "IndexInfo available_ranges available_ranges_v2 batches built_views cluster_metadata"
    " compaction_history local local_metadata_log metadata_snapshots paxos paxos_repair_history"
    " peer_events peer_events_v2 peers peers_v2 prepared_statements repairs size_estimates"
    " sstable_activity sstable_activity_v2 table_estimates top_partitions transferred_ranges"
    " transferred_ranges_v2 view_builds_in_progress",
    "system_auth": "cidr_groups cidr_permissions identity_to_role network_permissions"
    " resource_role_permissons_index role_members role_permissions roles",
    "system_cluster_metadata": "distributed_metadata_log",
    "system_distributed": "parent_repair_history partition_denylist repair_history"
    " view_build_status",
    "system_schema": "aggregates column_masks columns dropped_columns functions indexes keyspaces"
    " tables triggers types views",
    "system_traces": "events sessions",
}
_BY_ID: Final[Mapping[bytes, str]] = {
    system_table_id(keyspace, table).bytes: f"{keyspace}.{table}"
    for keyspace, tables in _NAMES.items()
    for table in tables.split()
}
_REASONS: Final = {
    "system.batches": "batchlog",
    "system.paxos": "paxos",
    "system.paxos_repair_history": "paxos",
}
_NAME_BASED: Final = 3  # The UUID version of system tables' ids.


def is_system_table(table_id: bytes) -> bool:
    """Return whether *table_id*, 16 bytes, is that of a system table, known or not."""
    return table_id[6] >> 4 == _NAME_BASED


def system_table(table_id: bytes) -> tuple[str, str]:
    """Return the name of a system table, or its id in hex, and the reason to skip it.

    The reason is `batchlog` (its content is logged again as mutations), `paxos` (these are
    proposals; a committed one is logged as a mutation), or `system`.
    """
    name = _BY_ID.get(table_id, table_id.hex())
    return name, _REASONS.get(name, "system")
