"""One real Cassandra node with change data capture on, its commit log small and synced often."""

import contextlib
import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from servers.java import java
from servers.maven import jars
from servers.process import HOST, ServerProcess, free_ports

_COORDINATES: Final = "org.apache.cassandra:cassandra-all"
_JAVA_11, _JAVA_17 = 11, 17


@dataclass(frozen=True, slots=True)
class Release:
    """A release of Cassandra, the Java it runs on, and settings beyond a small node's."""

    version: str
    java: int
    settings: Mapping[str, object] = field(default_factory=dict)

    def class_path(self) -> str:
        """Return its jars, which are fetched the first time."""
        return jars(f"cassandra-{self.version}", f"{_COORDINATES}:{self.version}")


CURRENT: Final = Release("5.0.9", _JAVA_17)
RELEASES: Final[Mapping[str, Release]] = {
    "4.0": Release("4.0.19", _JAVA_11),
    "4.1": Release("4.1.10", _JAVA_11),
    "5.0": CURRENT,
    "5.0-none": Release("5.0.9", _JAVA_17, {"storage_compatibility_mode": "NONE"}),
}
# What 4.0 calls a setting, and in which unit; later releases have the unit in the value.
_NAMES_40: Final = {
    "cdc_total_space": "cdc_total_space_in_mb",
    "commitlog_sync_period": "commitlog_sync_period_in_ms",
    "commitlog_segment_size": "commitlog_segment_size_in_mb",
    "commitlog_total_space": "commitlog_total_space_in_mb",
    "memtable_heap_space": "memtable_heap_space_in_mb",
    "memtable_offheap_space": "memtable_offheap_space_in_mb",
    "key_cache_size": "key_cache_size_in_mb",
    "file_cache_size": "file_cache_size_in_mb",
    "request_timeout": "request_timeout_in_ms",
    "write_request_timeout": "write_request_timeout_in_ms",
}
_UNITS_40: Final = {"ms": 1, "s": 1_000, "MiB": 1}

# What Cassandra reaches into on Java 17, from its own start script.
_EXPORTS: Final = (
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.rmi/sun.rmi.transport.tcp",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
)
_OPENS: Final = (
    *(
        f"java.base/{package}"
        for package in (
            "java.io",
            "java.lang",
            "java.lang.module",
            "java.lang.reflect",
            "java.math",
            "java.net",
            "java.nio",
            "java.nio.charset",
            "java.nio.file.spi",
            "java.util",
            "java.util.concurrent",
            "java.util.concurrent.atomic",
            "java.util.concurrent.locks",
            "jdk.internal.loader",
            "jdk.internal.math",
            "jdk.internal.module",
            "jdk.internal.ref",
            "jdk.internal.reflect",
            "jdk.internal.util.jar",
            "sun.nio.ch",
        )
    ),
    "jdk.management/com.sun.management.internal",
)
_LOGBACK: Final = """\
<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level %d{HH:mm:ss.SSS} %logger{0} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="OUT"/></root>
</configuration>
"""
# A native protocol version 4 OPTIONS request, and the opcode of the answer to it.
_OPTIONS: Final = b"\x04\x00\x00\x00\x05\x00\x00\x00\x00"
_SUPPORTED: Final = 6


@dataclass(frozen=True, slots=True)
class Cassandra:
    """A running node."""

    host: str
    port: int
    cdc_raw: Path


@contextlib.contextmanager
def cassandra(
    folder: Path, *, release: Release = CURRENT, sync_ms: int = 500, segment_mib: int = 1
) -> Iterator[Cassandra]:
    """Run a node whose files lie in *folder*; they stay there when it has ended."""
    folder.mkdir(parents=True)
    storage_port, port, jmx_port = free_ports(3)
    settings = _settings(folder, sync_ms=sync_ms, segment_mib=segment_mib)
    settings |= {"storage_port": storage_port, "native_transport_port": port}
    settings["seed_provider"] = [
        {
            "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
            "parameters": [{"seeds": f"{HOST}:{storage_port}"}],
        }
    ]
    settings |= release.settings
    if release.version.startswith("4.0."):
        settings = dict(_setting_40(name, value) for name, value in settings.items())
    # JSON is YAML too.
    (folder / "cassandra.yaml").write_text(json.dumps(settings, indent=1), encoding="utf-8")
    (folder / "logback.xml").write_text(_LOGBACK, encoding="utf-8")
    with ServerProcess(_command(folder, jmx_port, release), folder) as process:
        process.wait_until(lambda: _answers(port))
        yield Cassandra(HOST, port, folder / "cdc_raw")


def _settings(folder: Path, *, sync_ms: int, segment_mib: int) -> dict[str, object]:
    return {
        "cluster_name": "headrace",
        "num_tokens": 1,
        "initial_token": "0",
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
        "endpoint_snitch": "SimpleSnitch",
        "listen_address": HOST,
        "rpc_address": HOST,
        "auto_bootstrap": False,
        "auto_snapshot": False,
        "data_file_directories": [str(folder / "data")],
        "commitlog_directory": str(folder / "commitlog"),
        "cdc_raw_directory": str(folder / "cdc_raw"),
        "hints_directory": str(folder / "hints"),
        "saved_caches_directory": str(folder / "saved_caches"),
        "cdc_enabled": True,
        "cdc_total_space": "512MiB",
        "commitlog_sync": "periodic",
        "commitlog_sync_period": f"{sync_ms}ms",
        "commitlog_segment_size": f"{segment_mib}MiB",
        "commitlog_total_space": "256MiB",
        "memtable_heap_space": "64MiB",
        "memtable_offheap_space": "64MiB",
        "key_cache_size": "0MiB",
        "file_cache_size": "32MiB",
        "concurrent_compactors": 1,
        "native_transport_max_threads": 8,
        "request_timeout": "20s",
        "write_request_timeout": "20s",
        "disk_failure_policy": "stop",
        "commit_failure_policy": "stop",
    }


def _setting_40(name: str, value: object) -> tuple[str, object]:
    if name not in _NAMES_40:
        return name, value
    number = str(value).rstrip("MiBms")
    return _NAMES_40[name], int(number) * _UNITS_40[str(value).removeprefix(number)]


def java_options(folder: Path) -> list[str]:
    """Return what every program of Cassandra's needs that keeps its files in *folder*."""
    return [
        *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
        *(f"--add-exports={package}=ALL-UNNAMED" for package in _EXPORTS),
        *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENS),
        f"-Dcassandra.config=file://{folder}/cassandra.yaml",
        f"-Dlogback.configurationFile=file://{folder}/logback.xml",
        f"-Dcassandra.logdir={folder}",
        f"-Dcassandra.storagedir={folder}",
        f"-Dcassandra.triggers_dir={folder}",
    ]


def _command(folder: Path, jmx_port: int, release: Release) -> list[str]:
    only = {
        _JAVA_11: "-Dio.netty.tryReflectionSetAccessible=true",
        _JAVA_17: "-Djava.security.manager=allow",
    }
    return [
        java(release.java),
        *("-Xms512M", "-Xmx512M", "-Xss512k", "-Djava.awt.headless=true", only[release.java]),
        *("-Djava.net.preferIPv4Stack=true", "-Djdk.attach.allowAttachSelf=true"),
        *java_options(folder),
        f"-Dcassandra.jmx.local.port={jmx_port}",
        *("-Dcassandra.skip_wait_for_gossip_to_settle=0", "-Dcassandra.ring_delay_ms=100"),
        *("-Dcassandra.superuser_setup_delay_ms=0", "-Dcassandra-foreground=yes"),
        *("-cp", release.class_path(), "org.apache.cassandra.service.CassandraDaemon"),
    ]


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), 2) as connection:
        connection.sendall(_OPTIONS)
        answer = connection.recv(9)
        return len(answer) == 9 and answer[4] == _SUPPORTED
    return False
