"""Debezium's connector for Cassandra 5, which reads the log of one node into Kafka."""

import json
import shutil
from pathlib import Path
from typing import Final, Self

from helpers.servers.ports import free_ports
from real.servers.cassandra import Cassandra, java_options
from real.servers.java import java
from real.servers.maven import artefact
from real.servers.process import ServerProcess

# One jar with all that it needs, Confluent's classes among it.
JAR: Final = "io.debezium:debezium-connector-cassandra-5:3.4.1.Final:jar:jar-with-dependencies"
_MAIN: Final = "io.debezium.connector.cassandra.CassandraConnectorTask"
_JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
_SLOW: Final = "-XX:TieredStopAtLevel=1"  # What other servers start faster with.
_DRIVER: Final = """\
datastax-java-driver {{
  basic.contact-points = ["{host}:{port}"]
  basic.load-balancing-policy.local-datacenter = "{centre}"
}}
"""


class Debezium:
    """It reads a copy of a log, in the schema of a node. Entering the context starts it.

    Of a table it writes the topic `<prefix>.<keyspace>.<table>`, in JSON, with `acks=all`.
    """

    def __init__(  # noqa: PLR0913 (what its files say)
        self,
        folder: Path,
        node: Cassandra,
        log: Path,
        *,
        prefix: str,
        bootstrap_servers: str,
        producer: dict[str, str],
    ) -> None:
        """Write its configuration into the new *folder*; *producer* has more keys of Kafka's."""
        self._folder = folder
        for name in ("moved", "offsets", "commitlog", "data"):
            (folder / name).mkdir(parents=True)
        shutil.copytree(log, folder / "cdc_raw")
        settings = json.loads(node.log.with_name("cassandra.yaml").read_text())
        settings |= {
            "cdc_raw_directory": str(folder / "cdc_raw"),
            "commitlog_directory": str(folder / "commitlog"),
            "data_file_directories": [str(folder / "data")],
            "commitlog_segment_size": "32MiB",
        }
        (folder / "cassandra.yaml").write_text(json.dumps(settings))
        for name in ("logback.xml", "cassandra-rackdc.properties"):
            shutil.copy(node.log.with_name(name), folder / name)
        driver = _DRIVER.format(host=node.host, port=node.port, centre=node.centre)
        (folder / "driver.conf").write_text(driver)
        (http,) = free_ports(1)
        given = {
            "topic.prefix": prefix,
            "snapshot.mode": "NEVER",
            "http.port": http,
            "cassandra.config": folder / "cassandra.yaml",
            "cassandra.driver.config.file": folder / "driver.conf",
            "cassandra.node.id": "node1",
            "commit.log.relocation.dir": folder / "moved",
            "commit.log.post.processing.enabled": "false",
            "offset.backing.store.dir": folder / "offsets",
            "key.converter": _JSON,
            "key.converter.schemas.enable": "false",
            "value.converter": _JSON,
            "value.converter.schemas.enable": "false",
            "kafka.producer.bootstrap.servers": bootstrap_servers,
            "kafka.producer.acks": "all",
            **{f"kafka.producer.{key}": value for key, value in producer.items()},
        }
        lines = "".join(f"{key}={value}\n" for key, value in given.items())
        (folder / "debezium.properties").write_text(lines)
        self.process: ServerProcess

    def __enter__(self) -> Self:
        """Start it, with all of Java's compilers."""
        options = [option for option in java_options(self._folder) if option != _SLOW]
        command = [
            *(java(17), "-Xmx2g", "-Djava.security.manager=allow", *options),
            *("-cp", str(artefact(JAR)), _MAIN, str(self._folder / "debezium.properties")),
        ]
        self.process = ServerProcess(command, self._folder)
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.process.kill()
