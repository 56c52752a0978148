"""The schema store `file`."""

from pathlib import Path

import pytest

from headrace.connector.serde.schemas.schema_files import (
    FileSchemaStore,
    SchemaFolderConfig,
    SchemaFolderError,
)
from headrace.plugins import parse_config
from headrace.plugins.testing.doubles import context, sample_records

SCHEMA = sample_records(1)[0].schema


def store_of(path: Path) -> FileSchemaStore:
    """Return a store."""
    return FileSchemaStore(parse_config(SchemaFolderConfig, {"path": str(path)}), context())


def test_each_schema_is_a_file(tmp_path: Path) -> None:
    """A file is named by subject and schema id; publishing again writes no second file."""
    store = store_of(tmp_path / "new" / "folder")
    for _ in range(2):
        store.publish("a/b-value", '"long"', SCHEMA)

    (path,) = (tmp_path / "new" / "folder").iterdir()
    assert f"a_b-value-{SCHEMA.schema_id.hex()}.avsc" == path.name
    assert '"long"\n' == path.read_text()


def test_a_folder_that_cannot_be_is_tried_again(tmp_path: Path) -> None:
    """A folder that cannot be created is retried."""
    (tmp_path / "file").write_text("")

    with pytest.raises(SchemaFolderError):
        store_of(tmp_path / "file").publish("s", '"long"', SCHEMA)
