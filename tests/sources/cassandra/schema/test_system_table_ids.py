"""System tables are known by their ids, and why they are passed over."""

from uuid import UUID

import pytest

from headrace.sources.cassandra.schema.system_table_ids import is_system_table, system_table

TABLES = {
    "919a4bc5-7a33-3573-b03e-13fc3f68b465": ("system.batches", "batchlog"),
    "b7b7f0c2-fd0a-3410-8c05-3ef614bb7c2d": ("system.paxos", "paxos"),
    "7ad54392-bcdd-35a6-8417-4e047860b377": ("system.local", "system"),
    "afddfb9d-bc1e-3068-8056-eed6c302ba09": ("system_schema.tables", "system"),
    "00000000-0000-3000-8000-000000000001": ("00000000000030008000000000000001", "system"),
}


@pytest.mark.parametrize("text", TABLES)
def test_system_tables_have_a_name_and_a_reason(text: str) -> None:
    """The batch log and Paxos have reasons of their own; an unknown one is named by its id."""
    table_id = UUID(text).bytes
    assert is_system_table(table_id)
    assert TABLES[text] == system_table(table_id)


def test_users_tables_are_none() -> None:
    """Ids made of time, and those of 6.0, are users' tables."""
    for text in ("6f0c2f80-3b1e-11ef-9d2b-0f1e2d3c4b5a", "1b255f4d-ef25-40a6-0000-000000000009"):
        assert not is_system_table(UUID(text).bytes)
