"""A message's schema is found in the state file."""

from pathlib import Path

import pytest

from headrace.connector.serde.schemas.lookup import JobSchemas, SchemaUnknownError
from headrace.connector.stores import StateFileError
from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.plugins import RecordSchema

SCHEMA = RecordSchema("shop.orders", "CREATE TABLE …", bytes(16), {"type": "null"}, {"a": [1]})


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Return a state file with one schema."""
    store = SqliteStore.open(tmp_path / "state.db", job="orders")
    store.put_schemas([SCHEMA])
    store.close()
    return tmp_path / "state.db"


def test_a_schema_is_found_by_its_id(state: Path) -> None:
    """A consumer gets the schema that any job's worker stored."""
    schemas = JobSchemas(state)

    found = schemas.get(SCHEMA.schema_id)

    assert found == SCHEMA
    assert (SCHEMA.key, SCHEMA.value) == (found.key, found.value)
    assert found is schemas.get(SCHEMA.schema_id)
    schemas.close()


def test_an_unknown_id_is_a_named_error(state: Path) -> None:
    """The error for an unknown id has the id and the file."""
    schemas = JobSchemas(state)

    with pytest.raises(SchemaUnknownError, match="01" * 16) as caught:
        schemas.get(b"\x01" * 16)

    assert str(state) == caught.value.place
    schemas.close()


def test_a_missing_state_file_is_not_made(tmp_path: Path) -> None:
    """A consumer does not create a missing state file."""
    with pytest.raises(StateFileError):
        JobSchemas(tmp_path / "state.db")

    assert not (tmp_path / "state.db").exists()
