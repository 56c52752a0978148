"""One real Kafka broker that is its own controller."""

import base64
import contextlib
import os
import subprocess
from pathlib import Path
from typing import Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from servers.maven import ServerError, jars, program
from servers.process import HOST, ServerProcess, free_ports

VERSION: Final = "4.3.1"
_COORDINATES: Final = (
    f"org.apache.kafka:kafka_2.13:{VERSION}",
    f"org.apache.kafka:kafka-tools:{VERSION}",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",  # The artefacts bring no backend.
)
_FORMAT_SECONDS_MAX: Final = 60
_LOG4J: Final = """\
Configuration:
  Appenders:
    Console: {name: OUT, PatternLayout: {pattern: "%p %d{HH:mm:ss.SSS} %c{1} %m%n"}}
  Loggers:
    Root: {level: WARN, AppenderRef: [{ref: OUT}]}
"""


class Kafka:
    """A broker whose files lie in one folder. Entering the context starts it, leaving ends it."""

    def __init__(self, folder: Path) -> None:
        """Make its storage in the new *folder*."""
        folder.mkdir(parents=True)
        self._folder = folder
        port, controller_port = free_ports(2)
        self.bootstrap_servers = f"{HOST}:{port}"
        controller = f"{HOST}:{controller_port}"
        properties = _properties(folder, self.bootstrap_servers, controller)
        lines = [f"{key}={value}\n" for key, value in properties.items()]
        (folder / "server.properties").write_text("".join(lines), encoding="utf-8")
        (folder / "log4j2.yaml").write_text(_LOG4J, encoding="utf-8")
        _format(folder)
        self._process: ServerProcess | None = None

    def start(self) -> None:
        """Start it, again or for the first time, and wait until it answers."""
        command = _java(self._folder, "kafka.Kafka", str(self._folder / "server.properties"))
        self._process = ServerProcess(command, self._folder)
        client = AdminClient(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "log_level": 0,
                "reconnect.backoff.max.ms": 200,
            }
        )
        self._process.wait_until(lambda: _answers(client))

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would."""
        assert self._process is not None
        self._process.kill()

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
        "log.cleaner.dedupe.buffer.size": 16 << 20,
        **replication,
    }


def _java(folder: Path, main_class: str, *arguments: str) -> list[str]:
    return [
        program("java"),
        *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"),
        f"-Dlog4j2.configurationFile={folder / 'log4j2.yaml'}",
        *("-cp", jars(f"kafka-{VERSION}", *_COORDINATES)),
        main_class,
        *arguments,
    ]


def _format(folder: Path) -> None:
    cluster_id = base64.urlsafe_b64encode(b"\x00" + os.urandom(15)).decode()[:22]
    command = _java(
        folder,
        "kafka.tools.StorageTool",
        *("format", "--cluster-id", cluster_id, "--config", str(folder / "server.properties")),
    )
    done = subprocess.run(  # noqa: S603 (Kafka's own tool)
        command, capture_output=True, text=True, timeout=_FORMAT_SECONDS_MAX, check=False
    )
    if done.returncode:
        raise ServerError(f"Kafka's storage cannot be made:\n{done.stdout}{done.stderr}")


def _answers(client: AdminClient) -> bool:
    with contextlib.suppress(KafkaException):
        return bool(client.list_topics(timeout=1).brokers)
    return False
