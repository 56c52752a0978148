"""Cassandra's own reader of commit logs, made to print what it finds; another reader's oracle."""

import json
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from real.servers.cassandra import CURRENT, java_options
from real.servers.maven import ServerError, program

_PROGRAM: Final = Path(__file__).with_name("PrintMutations.java")
_SECONDS_MAX: Final = 600


def mutations(ddl: str, segments: Iterable[Path], **settings: object) -> list[dict[str, Any]]:
    """Return what Cassandra's reader finds in *segments*, in mutation JSON, errors included.

    *ddl* has a statement per line's end and an ID for each table; *settings* are of
    `cassandra.yaml`, for the keys of encrypted segments, say. Versions 7 and 8 can be read.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-oracle-") as name:
        folder = Path(name)
        (folder / "schema.cql").write_text(ddl, encoding="utf-8")
        (folder / "cassandra.yaml").write_text(json.dumps(_settings(folder) | settings))
        done = subprocess.run(  # noqa: S603 (Java, on a program of ours)
            [
                program("java"),
                "-Xmx512M",
                *java_options(folder),
                "-cp",
                CURRENT.class_path(),
                str(_PROGRAM),
                str(folder / "schema.cql"),
                *map(str, segments),
            ],
            capture_output=True,
            text=True,
            timeout=_SECONDS_MAX,
            check=False,
        )
    if done.returncode:
        raise ServerError(f"Cassandra's reader failed:\n{done.stderr[-3000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _settings(folder: Path) -> dict[str, object]:
    folders = ("commitlog", "cdc_raw", "hints", "saved_caches")
    seeds = {"class_name": "org.apache.cassandra.locator.SimpleSeedProvider"}
    return {
        "cluster_name": "oracle",
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
        "endpoint_snitch": "SimpleSnitch",
        "listen_address": "127.0.0.1",
        "commitlog_sync": "periodic",
        "commitlog_sync_period": "1s",
        "cdc_enabled": True,
        "materialized_views_enabled": True,
        "data_file_directories": [str(folder / "data")],
        "seed_provider": [seeds | {"parameters": [{"seeds": "127.0.0.1"}]}],
        **{f"{each}_directory": str(folder / each) for each in folders},
    }
