"""A worker's file over a schema with tables whose writes are in no commit log, and its state."""

from pathlib import Path
from typing import Final

# As DESCRIBE SCHEMA WITH INTERNALS of 6.0-alpha2 prints them, without the options of storage.
SCHEMA: Final = """\
CREATE KEYSPACE shop WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': '1'}
 AND durable_writes = true AND fast_path = 'simple';

CREATE TABLE shop.orders (
    id int PRIMARY KEY,
    total int
) WITH ID = 5b1c3f70-4a55-11ef-8c6c-d7e2f3a0b1c2
    AND additional_write_policy = '99p'
    AND cdc = true
    AND comment = ''
    AND fast_path = 'keyspace'
    AND gc_grace_seconds = 864000
    AND transactional_mode = 'full'
    AND transactional_migration_from = 'none';

CREATE TABLE shop.moving (
    id int PRIMARY KEY
) WITH ID = 5b1c3f70-4a55-11ef-8c6c-d7e2f3a0b1c3
    AND cdc = true
    AND transactional_mode = 'full'
    AND transactional_migration_from = 'off';

CREATE TABLE shop.items (
    id int PRIMARY KEY
) WITH ID = 5b1c3f70-4a55-11ef-8c6c-d7e2f3a0b1c4
    AND cdc = true
    AND transactional_mode = 'off'
    AND transactional_migration_from = 'none';

CREATE KEYSPACE quiet WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': '1'}
 AND durable_writes = false AND fast_path = 'simple';

CREATE TABLE quiet.visits (
    id int PRIMARY KEY
) WITH ID = 5b1c3f70-4a55-11ef-8c6c-d7e2f3a0b1c5
    AND cdc = true;

CREATE TABLE shop.hits (
    id int PRIMARY KEY,
    n counter
) WITH ID = 5b1c3f70-4a55-11ef-8c6c-d7e2f3a0b1c6
    AND cdc = true;
"""
ORDERS: Final = (
    "table shop.orders is transactional: its writes are in no commit log, so nothing of it is "
    "delivered (accord)"
)
HINT: Final = (
    "Cassandra writes them to its accord_journal: set transactional_mode = 'off', and let the "
    "migration end"
)
WARNED: Final = f"warning [table_skipped]: {ORDERS}\nhint: {HINT}\n"
HEADER: Final = f'299 headrace "[table_skipped] {ORDERS}; hint: {HINT}"'


def worker_file(folder: Path, source: str = "schema: schema.cql") -> Path:
    """Write the file of a worker, and the schema beside it; return the file."""
    (folder / "schema.cql").write_text(SCHEMA)
    path = folder / "worker.yaml"
    path.write_text(
        f"state: state.db\nsource: {{plugin: cassandra, nodes: {{node1: cdc_raw}}, {source}}}\n"
    )
    return path
