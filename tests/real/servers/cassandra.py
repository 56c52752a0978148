"""One real Cassandra node with change data capture on, its commit log small and synced often."""

import contextlib
import json
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from helpers.servers.ports import HOST, free_ports
from real.servers.java import archived, java
from real.servers.maven import jars
from real.servers.process import EndedError, ServerProcess, said_by

_COORDINATES: Final = "org.apache.cassandra:cassandra-all"
_JAVA_11, _JAVA_17 = 11, 17


@dataclass(frozen=True, slots=True)
class Release:
    """A release of Cassandra, the Java it runs on, and what differs from a small node's.

    Those are settings, and options of Java.
    """

    version: str
    java: int
    settings: Mapping[str, object] = field(default_factory=dict)
    options: tuple[str, ...] | None = None
    """By default where its classes are archived."""

    def class_path(self) -> str:
        """Return its jars, which are fetched the first time."""
        return jars(f"cassandra-{self.version}", f"{_COORDINATES}:{self.version}")


CURRENT: Final = Release("5.0.9", _JAVA_17)
CENTRE: Final = "datacenter1"
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
# Says in which data centre a node is.
_WHERE: Final = "cassandra-rackdc.properties"
# Where a node keeps its files.
_FOLDERS: Final = ("data", "commitlog", "cdc_raw", "hints", "saved_caches")
_JOIN_MS: Final = 5_000  # In which all nodes learn of one that comes, goes or moves.
_JOINS_MAX: Final = 5
# What a node says that stays outside the ring, because a stream to it failed.
_NOT_JOINED: Final = b"Node is not yet bootstrapped completely"
# A native protocol version 4 OPTIONS request, and the opcode of the answer to it.
_OPTIONS: Final = b"\x04\x00\x00\x00\x05\x00\x00\x00\x00"
_SUPPORTED: Final = 6


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node is, and with whom it makes a ring."""

    host: str
    port: int
    storage_port: int
    """The same for all nodes of a ring, as is `port`."""
    token: int = 0
    seeds: tuple[str, ...] = ()
    """Addresses; itself, when there are none."""
    bootstraps: bool = False
    """Streams what it owns from the others before it is a member."""
    replaces: str = ""
    """The address of the node whose place it takes, which does not run; its own one, too."""
    centre: str = CENTRE


class Cassandra:
    """A node whose files lie in one folder. Entering the context starts it, leaving ends it."""

    def __init__(
        self, folder: Path, *, release: Release = CURRENT, place: Place | None = None
    ) -> None:
        """Write its configuration into the new *folder*; the files stay when it has ended."""
        folder.mkdir(parents=True)
        if place is None:
            port, storage_port = free_ports(2)
            place = Place(HOST, port, storage_port)
        (self._jmx_port,) = free_ports(1)
        self._folder, self._place = folder, place
        self._ring_delay_ms = _JOIN_MS if place.bootstraps else 100
        self._replaces, self._joins = place.replaces, bool(place.seeds)
        self._process: ServerProcess | None = None
        self._logged = 0  # Size of the log when the process started.
        self.release = release
        self.host, self.port, self.centre = place.host, place.port, place.centre
        self.cdc_raw, self.commitlog = folder / "cdc_raw", folder / "commitlog"
        self._settings = _settings(folder) | _settings_of(place) | dict(release.settings)
        self._write_settings()
        (folder / "logback.xml").write_text(_LOGBACK, encoding="utf-8")
        where = f"dc={place.centre}\nrack=rack1\n"
        (folder / _WHERE).write_text(where, encoding="utf-8")

    def _write_settings(self) -> None:
        settings = self._settings
        if self.release.version.startswith("4.0."):
            settings = dict(_setting_40(name, value) for name, value in settings.items())
        # JSON is YAML too.
        path = self._folder / "cassandra.yaml"
        path.write_text(json.dumps(settings, indent=1), encoding="utf-8")

    @property
    def log(self) -> Path:
        """What it wrote to its output."""
        return self._folder / "output.log"

    def start(self) -> None:
        """Start it, again or for the first time, and wait until it answers.

        One that joins a ring asks the others once, and ends when they are too busy to answer in
        time; it does not end, but does not join either, when a stream from them fails. So it is
        started again, a few times.
        """
        for left in reversed(range(_JOINS_MAX if self._joins else 1)):
            self.begin()
            try:
                self.wait()
            except EndedError:
                if not left:
                    raise
            else:
                return

    def begin(self) -> None:
        """Start it, and do not wait."""
        self._logged = self.log.stat().st_size if self.log.exists() else 0
        self._process = ServerProcess(self._command(), self._folder)

    def wait(self) -> None:
        """Wait until it answers. Raises EndedError if it ended, or gave up joining the ring."""
        assert self._process is not None
        self._process.wait_until(lambda: self._gave_up() or _answers(self.host, self.port))
        if self._gave_up():
            self.kill()
            raise EndedError(f"{self.host} did not join the ring: a stream failed")

    def _gave_up(self) -> bool:
        return self._joins and _NOT_JOINED in self.log.read_bytes()[self._logged :]

    def stop(self) -> None:
        """End it politely: what it has goes to its tables first."""
        assert self._process is not None
        self._process.stop()

    def upgrade(self, release: Release) -> None:
        """Continue with the same files in another release, whose settings have the same names."""
        self.stop()
        self.release = replace(release, settings=self.release.settings)
        self.start()

    def set(self, **settings: object) -> None:
        """Give it these settings, besides its own, from its next start on."""
        self._settings |= settings
        self._write_settings()

    def restart(self, **settings: object) -> None:
        """End it politely, and start it with these settings besides its own."""
        self.stop()
        self.set(**settings)
        self.start()

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would, if it runs."""
        if self._process is not None:
            self._process.kill()

    def lose_disk(self) -> None:
        """Lose all files, as one that does not run; it comes back in its own place."""
        for name in _FOLDERS:
            shutil.rmtree(self._folder / name, ignore_errors=True)
        self._replaces = self.host

    @property
    def takes_its_own_place(self) -> bool:
        """Whether it comes back without its files, when it starts next."""
        return self._replaces == self.host

    def tell_always(self, host: str) -> None:
        """Continue telling the node at *host* about the ring, while it seems to be down, too."""
        self._place = replace(self._place, seeds=(*self._place.seeds, host))
        self._settings |= _settings_of(self._place)
        self._write_settings()
        self.nodetool("reloadseeds")

    def nodetool(self, *arguments: str) -> str:
        """Run Cassandra's own tool on it and return what it prints."""
        command = [
            *(java(_JAVA_17), "-Xmx128M", *java_options(self._folder)),
            *("-cp", self.release.class_path(), "org.apache.cassandra.tools.NodeTool"),
            *("-h", HOST, "-p", str(self._jmx_port), *arguments),
        ]
        return said_by(command, self._folder, f"nodetool {arguments}")

    def _command(self) -> list[str]:
        only = {
            _JAVA_11: "-Dio.netty.tryReflectionSetAccessible=true",
            _JAVA_17: "-Djava.security.manager=allow",
        }
        return [
            java(self.release.java),
            *(
                "-Xms512M",
                "-Xmx512M",
                "-Xss512k",
                "-Djava.awt.headless=true",
                only[self.release.java],
            ),
            *("-Djava.net.preferIPv4Stack=true", "-Djdk.attach.allowAttachSelf=true"),
            *java_options(self._folder),
            f"-Dcassandra.jmx.local.port={self._jmx_port}",
            *(
                "-Dcassandra.skip_wait_for_gossip_to_settle=0",
                f"-Dcassandra.ring_delay_ms={self._ring_delay_ms}",
            ),
            *("-Dcassandra.superuser_setup_delay_ms=0", "-Dcassandra-foreground=yes"),
            "-Dcassandra.batchlog.replay_timeout_in_ms=2000",
            # It measures how large a row in memory is, by default with 100,000 of them.
            "-Dcassandra.memtable_row_overhead_computation_step=1000",
            *self._replacing(),
            *_options(self.release),
            *("-cp", self.release.class_path(), "org.apache.cassandra.service.CassandraDaemon"),
        ]

    def _replacing(self) -> list[str]:
        if not self._replaces:
            return []
        return [
            f"-Dcassandra.replace_address_first_boot={self._replaces}",
            # So long it watches whether the other one is alive.
            f"-Dcassandra.broadcast_interval_ms={self._ring_delay_ms + 1_000}",
        ]

    def __enter__(self) -> Self:
        """Start it."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End it, if it runs."""
        if self._process is not None:
            self._process.stop()


def _options(release: Release) -> tuple[str, ...]:
    if release.options is not None:
        return release.options
    if release.java < _JAVA_17:
        return ()

    def run(folder: Path, option: str) -> None:
        with Cassandra(folder, release=replace(release, options=(option,))):
            pass

    return (archived(f"cassandra-{release.version}", run),)


def _settings(folder: Path) -> dict[str, object]:
    return {
        "cluster_name": "headrace",
        "num_tokens": 1,
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
        "endpoint_snitch": "GossipingPropertyFileSnitch",
        "auto_snapshot": False,
        "data_file_directories": [str(folder / "data")],
        **{f"{name}_directory": str(folder / name) for name in _FOLDERS[1:]},
        "cdc_enabled": True,
        "cdc_total_space": "512MiB",
        "commitlog_sync": "periodic",
        "commitlog_sync_period": "500ms",
        "commitlog_segment_size": "1MiB",
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


def _settings_of(place: Place) -> dict[str, object]:
    seeds = ",".join(f"{seed}:{place.storage_port}" for seed in place.seeds or (place.host,))
    provider = "org.apache.cassandra.locator.SimpleSeedProvider"
    return {
        "initial_token": str(place.token),
        "listen_address": place.host,
        "rpc_address": place.host,
        "storage_port": place.storage_port,
        "native_transport_port": place.port,
        "auto_bootstrap": place.bootstraps,
        "seed_provider": [{"class_name": provider, "parameters": [{"seeds": seeds}]}],
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
        f"-D{_WHERE}=file://{folder}/{_WHERE}",
        f"-Dlogback.configurationFile=file://{folder}/logback.xml",
        f"-Dcassandra.logdir={folder}",
        f"-Dcassandra.storagedir={folder}",
        f"-Dcassandra.triggers_dir={folder}",
    ]


def _answers(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), 2) as connection:
        connection.sendall(_OPTIONS)
        answer = connection.recv(9)
        return len(answer) == 9 and answer[4] == _SUPPORTED
    return False
