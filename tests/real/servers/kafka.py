"""One real Kafka broker that is its own controller."""

import base64
import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from helpers.servers.ports import HOST, free_ports
from real.servers.certificates import CERTIFICATE, KEY_STORE, make_certificate
from real.servers.java import archived
from real.servers.maven import jars, program
from real.servers.process import ServerProcess, said_by


@dataclass(frozen=True)
class Release:
    """A release of Kafka; the artefacts bring no logging backend, so each names its own."""

    version: str
    backend: str
    java_options: tuple[str, ...]
    """How the backend finds `log.config` in the folder of the server."""


RELEASE: Final = Release(
    "4.3.1",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
    ("-Dlog4j2.configurationFile=log.yaml",),
)
RELEASE_3: Final = Release(
    "3.9.2", "org.slf4j:slf4j-reload4j:1.7.36", ("-Dlog4j.configuration=file:log.properties",)
)
_LOGS: Final = {
    "log.yaml": """\
Configuration:
  Appenders:
    Console: {name: OUT, PatternLayout: {pattern: "%p %d{HH:mm:ss.SSS} %c{1} %m%n"}}
  Loggers:
    Root: {level: WARN, AppenderRef: [{ref: OUT}]}
""",
    "log.properties": """\
log4j.rootLogger=WARN, OUT
log4j.appender.OUT=org.apache.log4j.ConsoleAppender
log4j.appender.OUT.layout=org.apache.log4j.PatternLayout
log4j.appender.OUT.layout.ConversionPattern=%p %d{HH:mm:ss.SSS} %c{1} %m%n
""",
}


class Kafka:
    """A broker whose files lie in one folder. Entering the context starts it, leaving ends it."""

    def __init__(
        self,
        folder: Path,
        *,
        release: Release = RELEASE,
        users: Mapping[str, str] | None = None,
        option: str = "",
    ) -> None:
        """Make its storage in the new *folder*; *option* is for Java.

        With *users* and their passwords it takes clients over SASL_SSL only, and allows them what
        access lists say; `internal_servers` is for the test itself, which may do everything.
        """
        folder.mkdir(parents=True)
        self._folder = folder
        self._release = release
        self._option = option
        port, internal_port, controller_port = free_ports(3)
        self.bootstrap_servers = f"{HOST}:{port}"
        self.internal_servers = f"{HOST}:{internal_port}" if users else self.bootstrap_servers
        controller = f"{HOST}:{controller_port}"
        properties = _properties(folder, self.internal_servers, controller)
        if users:
            properties |= _secured(folder, properties, self.bootstrap_servers)
        lines = [f"{key}={value}\n" for key, value in properties.items()]
        (folder / "server.properties").write_text("".join(lines), encoding="utf-8")
        for name, text in _LOGS.items():
            (folder / name).write_text(text, encoding="utf-8")
        self._format(users or {})
        self._process: ServerProcess | None = None

    @property
    def ca_location(self) -> str:
        """The certificate that clients trust, where there are users."""
        return str(self._folder / CERTIFICATE)

    def client(self, user: str, password: str) -> dict[str, str]:
        """Return what a client of that user connects with."""
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": user,
            "sasl.password": password,
            "ssl.ca.location": self.ca_location,
        }

    def tool(self, main_class: str, *arguments: str) -> str:
        """Run one of Kafka's own command-line tools and return what it prints."""
        return said_by(self._java(main_class, *arguments), self._folder, main_class)

    def start(self) -> None:
        """Start it, again or for the first time, and wait until it answers."""
        command = self._java("kafka.Kafka", "server.properties")
        command.insert(1, self._option or self._archived())
        self._process = ServerProcess(command, self._folder)
        client = AdminClient(
            {
                "bootstrap.servers": self.internal_servers,
                "log_level": 0,
                "reconnect.backoff.max.ms": 200,
            }
        )
        self._process.wait_until(lambda: _answers(client))

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would."""
        assert self._process is not None
        self._process.kill()

    def pause(self) -> None:
        """Stop it as it is: it takes connections and bytes, and answers nothing."""
        assert self._process is not None
        self._process.send(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume it."""
        assert self._process is not None
        self._process.send(signal.SIGCONT)

    def _format(self, users: Mapping[str, str]) -> None:
        cluster_id = base64.urlsafe_b64encode(b"\x00" + os.urandom(15)).decode()[:22]
        scram = [
            part
            for name, password in users.items()
            for part in ("--add-scram", f"SCRAM-SHA-256=[name={name},password={password}]")
        ]
        self.tool(
            "kafka.tools.StorageTool",
            *("format", "--cluster-id", cluster_id, "--config", "server.properties", *scram),
        )

    def _archived(self) -> str:
        def run(folder: Path, option: str) -> None:
            with Kafka(folder, release=self._release, option=option):
                pass

        return archived(f"kafka-{self._release.version}", run)

    def _java(self, main_class: str, *arguments: str) -> list[str]:
        version = self._release.version
        coordinates = (
            f"org.apache.kafka:kafka_2.13:{version}",
            f"org.apache.kafka:kafka-tools:{version}",
            self._release.backend,
        )
        return [
            program("java"),
            *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("-Djava.awt.headless=true", *self._release.java_options),
            *("-cp", jars(f"kafka-{version}", *coordinates)),
            main_class,
            *arguments,
        ]

    def __enter__(self) -> Self:
        """Start it."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End it, if it runs."""
        if self._process is not None:
            self._process.stop()


def _properties(folder: Path, address: str, controller: str) -> dict[str, object]:
    replication = {
        f"{topic}.replication.factor": 1
        for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    }
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{controller}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listeners": f"PLAINTEXT://{address},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{address}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": folder / "data",
        "num.partitions": 3,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        # A broker that was killed is not taken back before its session has ended.
        "broker.session.timeout.ms": 3_000,
        "broker.heartbeat.interval.ms": 500,
        "log.cleaner.dedupe.buffer.size": 16 << 20,
        **replication,
    }


def _secured(folder: Path, properties: Mapping[str, object], address: str) -> Mapping[str, object]:
    """Return what a broker has besides whose clients have names and rights."""
    make_certificate(folder)
    protocols = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    return {
        "listeners": f"SASL_SSL://{address},{properties['listeners']}",
        "advertised.listeners": f"SASL_SSL://{address},{properties['advertised.listeners']}",
        "listener.security.protocol.map": protocols,
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": scram,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": folder / KEY_STORE,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",  # The user of the other listeners.
    }


def _answers(client: AdminClient) -> bool:
    with contextlib.suppress(KafkaException):
        return bool(client.list_topics(timeout=1).brokers)
    return False
