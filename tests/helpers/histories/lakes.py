"""Lakes in folders of tests, of both kinds, filled through their sinks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg import catalog
from pyiceberg.utils.config import Config

from headrace.connector.lake.sink import DeltaSink, IcebergSink, LakeSink
from headrace.plugins import TransactionalWriter, parse_config
from headrace.plugins.testing.doubles import DrivenClock, context
from headrace.sources.cassandra.encode.origin import ORIGIN
from helpers.histories.kept import FOREVER_MS, settled
from helpers.histories.rows import TABLE, delivery

KINDS = ("delta", "iceberg")


class LakeBox:
    """A lake of one kind in a folder."""

    def __init__(
        self,
        kind: str,
        folder: Path,
        mode: str,
        monkeypatch: pytest.MonkeyPatch,
        namespace: str = "cdc",
    ) -> None:
        """Prepare it; for Iceberg the catalog `lake` is in the same folder."""
        self.kind = kind
        self._namespace = namespace
        self.folder = folder
        self.clock = DrivenClock()
        self.mode = mode
        for name, value in catalog_in(folder).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())  # It was read with the module.

    def options(self) -> dict[str, str]:
        """Return the options of the sink."""
        if self.kind == "delta":
            return {"path": str(self.folder / "lake"), "mode": self.mode}
        return {
            "catalog": "lake",
            "namespace": self._namespace,
            "commits": str(self.folder / f"positions-{self._namespace}.db"),
            "mode": self.mode,
        }

    def sink(self) -> LakeSink:
        """Return a new sink."""
        kind = DeltaSink if self.kind == "delta" else IcebergSink
        config = parse_config(kind.config_class, self.options())
        return kind(config, replace(context(self.clock), origin=ORIGIN))

    def writer(self, split: str = "1-of-1") -> TransactionalWriter:
        """Return a writer that is ready."""
        made = self.sink().open_split(split)
        assert made.begin(FOREVER_MS) is not None
        return made

    def commit(self, *changes: Mapping[str, Any]) -> None:
        """Write changes."""
        writer = self.writer()
        writer.submit(delivery(*changes), settled)
        assert writer.commit({"head": b"1"}, FOREVER_MS)
        writer.close()

    def table(self, name: str = TABLE) -> pa.Table | None:
        """Return a table as engines read it."""
        if self.kind == "delta":
            path = self.folder / "lake" / name
            found = DeltaTable.is_deltatable(str(path))
            return DeltaTable(path).to_pyarrow_table() if found else None
        identifier = (self._namespace, name.replace(".", "__"))
        opened = catalog.load_catalog("lake")
        if not opened.table_exists(identifier):
            return None
        return opened.load_table(identifier).scan().to_arrow()

    def rows(self, name: str = TABLE) -> Sequence[Mapping[str, Any]]:
        """Return its rows."""
        found = self.table(name)
        return [] if found is None else list(found.to_pylist())


def catalog_in(folder: Path) -> dict[str, str]:
    """Return the environment with a catalog `lake` in *folder*."""
    folder.mkdir(parents=True, exist_ok=True)
    prefix = "PYICEBERG_CATALOG__LAKE__"
    return {
        f"{prefix}TYPE": "sql",
        f"{prefix}URI": f"sqlite:///{folder}/catalog.db",
        f"{prefix}WAREHOUSE": folder.as_uri(),
    }
