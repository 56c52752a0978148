"""Changes by commands to the options of the Cassandra source, as in a job file.

Values are unparsed: references to secrets are not resolved.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from headrace.plugins import (
    ConfigError,
    FolderLogs,
    LogArchive,
    Problem,
    ServiceSettings,
    SidecarService,
    TableReading,
)

TABLE_PLUGIN: Final = "cassandra-table"
ONLY_NODE: Final = "node1"
MEMORY_SECONDS: Final = 14_400  # The default.
_ANY_COPY: Final = {"consistency": "ONE"}
_PLACES: Final = ("path", "url")
_CONTACT: Final = ("contact_points", "username", "password", "tls_ca")

Options = Mapping[str, Any]  # Any: as written.


class JobOptions(LogArchive, TableReading, SidecarService):
    """The option changes of this source; see the base classes."""

    folder_options = ("schema", "consistency")

    @classmethod
    def of_folder(cls, folder: Path, options: Mapping[str, str]) -> FolderLogs:
        """Return the options for the logs in *folder*."""
        nodes = _nodes_in(folder)
        given: dict[str, Any] = {"nodes": nodes}
        schema = options.get("schema") or _schema_beside(folder)
        if schema is not None:
            given["schema"] = str(schema)
        if "consistency" in options:
            given["consistency"] = options["consistency"]
        return FolderLogs(given, is_archive=bool(set(nodes) - {ONLY_NODE}))

    @classmethod
    def log_by_log(cls, options: Options) -> Sequence[Options]:
        """Return options for each node."""
        nodes = options.get("nodes")
        if not isinstance(nodes, Mapping):
            raise ConfigError([Problem("source.nodes", "is required to read log by log")])
        return [
            {**options, **_ANY_COPY, "nodes": {node: _path_of(place)}}
            for node, place in nodes.items()
        ]

    @classmethod
    def any_copy(cls, options: Options) -> Options:
        """Return options with which one copy is enough; a gap hides none that another log has."""
        return {**options, **_ANY_COPY, "gaps": "expire"}

    @classmethod
    def past_gaps(cls, options: Options) -> Options:
        """Return options with which gaps are passed, unless the options say otherwise."""
        return {"gaps": "expire", **options}

    @classmethod
    def table_problem(cls, options: Options) -> Problem | None:
        """Return why tables cannot be read."""
        if options.get("contact_points"):
            return None
        hint = "give the job's source contact_points: a table is read by CQL"
        return Problem("source.contact_points", "is required to read tables", hint)

    @classmethod
    def of_table(cls, options: Options, table: str, *, page_rows: int = 0) -> Options:
        """Return the options of the source `cassandra-table` for *table*."""
        shared = {name: options[name] for name in _CONTACT if name in options}
        pages = {"page_rows": page_rows} if page_rows else {}
        return {"plugin": TABLE_PLUGIN, "table": table, **shared, **pages}

    @classmethod
    def of_service(cls, options: Options, settings: ServiceSettings) -> Options:
        """Return options for the service `cdc`."""
        made = {
            **options,
            "expiry_seconds": settings.watermark_seconds,
            "dedup_window_seconds": min(MEMORY_SECONDS, settings.watermark_seconds),
            "segments_per_batch_max": settings.max_commit_logs,
            "records_max": settings.max_watermarker_size,
        }
        nodes = options.get("nodes")
        if settings.datacenter is not None and isinstance(nodes, Mapping):
            made["nodes"] = _nodes_of(nodes, settings.datacenter)
        return made


def _nodes_of(nodes: Options, datacenter: str) -> Options:
    """Return the nodes of a data centre. Raises ConfigError if it has none."""
    kept = {
        name: node
        for name, node in nodes.items()
        if (node.get("dc", "dc1") if isinstance(node, Mapping) else "dc1") == datacenter
    }
    if not kept:
        problem = Problem("datacenter", f"no node of the worker's file is in {datacenter!r}")
        raise ConfigError([problem])
    return kept


def _path_of(place: object) -> object:
    """Return the place of a node's log, without its tokens: a single log may contain all."""
    if not isinstance(place, Mapping):
        return place
    return {name: place[name] for name in _PLACES if name in place}


def _nodes_in(folder: Path) -> dict[str, str]:
    """Return the folders in *folder* by name, as nodes; *folder* itself if it has only segments.

    Raises:
        ConfigError: it is missing.

    """
    try:
        children = sorted(folder.iterdir())
    except OSError as error:
        hint = "give a folder that every machine of the cluster has"
        said = f"{folder}: {error.strerror}"
        raise ConfigError([Problem("path", said, hint)]) from error
    nodes = {each.name: str(each) for each in children if each.is_dir() and each.name[0] != "."}
    return nodes or {ONLY_NODE: str(folder)}


def _schema_beside(folder: Path) -> Path | None:
    places = (folder / "schema.cql", folder.parent / "schema.cql")
    return next((place for place in places if place.is_file()), None)
