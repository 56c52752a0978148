"""Three users manage sinks and sources through every door while data flows; nothing is lost."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import confluent_kafka
import pytest
import requests
import yaml
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import WhiteListRoundRobinPolicy
from confluent_kafka import TopicPartition
from kafka_connect import KafkaConnect

from helpers.servers.ports import free_ports
from real.ring_jobs import SECONDS_MAX, wait_for
from real.servers.cassandra import Cassandra
from real.shell.guarded import NO_CDC, NO_SELECT, SUPER, WITH, WITHOUT, said_by
from real.stream import HEADRACE

pytestmark = pytest.mark.real


PAUSE_SECONDS: Final = 0.02
WRITTEN_MEANWHILE: Final = 50  # Rows that are not published yet.
ORDERS = "DATA_SOURCE cdc ON TABLE shop.orders"
SECRETS = "DATA_SOURCE cdc ON TABLE shop.secrets"
NAME = "cdc.shop.orders"
TABLE: Final = {"connector.class": "CassandraCdcSource", "keyspace": "shop", "sink": "lake"}
# What one who may nothing tries, in the shell; each is refused.
TRIED: Final = f"""
CREATE DATA_SINK other WITH 'null://';
ALTER DATA_SINK lake WITH topic = 'stolen';
DROP DATA_SINK lake;
VALIDATE DATA_SINK lake;
CREATE {SECRETS} WITH lake;
ALTER {ORDERS} WITH "tasks.max" = 2;
PAUSE {ORDERS};
RESUME {ORDERS};
STOP {ORDERS};
RESTART {ORDERS};
PREVIEW {ORDERS};
DROP {ORDERS};
"""
# The same over Kafka Connect's paths, and CEP-44's.
SENT: Final[tuple[tuple[str, str, Any], ...]] = (
    ("POST", "/connectors", {"name": "o", "config": {"connector.class": "NullSink"}}),
    ("PUT", f"/connectors/{NAME}/config", TABLE | {"table": "orders"}),
    ("PATCH", f"/connectors/{NAME}/config", {"tasks.max": "2"}),
    ("PATCH", "/connectors/lake/config", {"topic": "stolen"}),
    ("PUT", f"/connectors/{NAME}/pause", None),
    ("PUT", f"/connectors/{NAME}/resume", None),
    ("PUT", f"/connectors/{NAME}/stop", None),
    ("PUT", "/connectors/lake/stop", None),
    ("POST", f"/connectors/{NAME}/restart", None),
    ("POST", f"/connectors/{NAME}/tasks/0/restart", None),
    ("DELETE", f"/connectors/{NAME}", None),
    ("DELETE", "/connectors/lake", None),
    ("PUT", "/admin/loggers/root", {"level": "DEBUG"}),
    ("PUT", "/api/v1/services/cdc/config", {"config": {"topic": "stolen"}}),
    ("PUT", "/api/v1/services/kafka/config", {"config": {"bootstrap.servers": "h:1"}}),
    ("DELETE", "/api/v1/services/cdc/config", None),
)


@dataclass
class Writer:
    """Writes rows with ever higher ids, on a thread, until it is asked to end."""

    node: Cassandra
    written: int = 0
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        """Begin."""
        profile = ExecutionProfile(WhiteListRoundRobinPolicy([self.node.host]), request_timeout=30)
        self._cluster = Cluster(
            [self.node.host],
            port=self.node.port,
            protocol_version=5,
            auth_provider=PlainTextAuthProvider(SUPER, SUPER),
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        )
        session = self._cluster.connect("shop")
        self._insert = session.prepare("INSERT INTO orders (id) VALUES (?)")
        self._thread = threading.Thread(target=self._write, args=(session,))
        self._thread.start()
        return self

    def _write(self, session: Any) -> None:  # noqa: ANN401 (the driver's)
        while not self._over.wait(PAUSE_SECONDS):
            session.execute(self._insert, (self.written,))
            self.written += 1

    def end(self) -> int:
        """Write no more; return how many rows there are."""
        self._over.set()
        self._thread.join()
        return self.written

    def __exit__(self, *_: object) -> None:
        """End, also after an error."""
        self.end()
        self._cluster.shutdown()


class Topics:
    """What has come into topics: the ids of rows of `shop.orders`."""

    def __init__(self, bootstrap_servers: str, *names: str) -> None:
        """Begin at the beginning of topics, which are made."""
        made = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
        self._consumer = confluent_kafka.Consumer(
            made | {"group.id": names[0], "allow.auto.create.topics": True}
        )
        self.ids: dict[str, set[int]] = {name: set() for name in names}
        places = []
        for name in names:
            partitions: Any = {}
            while not partitions:
                partitions = self._consumer.list_topics(name, timeout=60).topics[name].partitions
            places += [TopicPartition(name, number, 0) for number in partitions]
        self._consumer.assign(places)

    def of(self, *names: str) -> set[int]:
        """Return the ids that have come into any of *names*."""
        while messages := self._consumer.consume(1_000, timeout=0.2):
            for message in messages:
                found = re.search(rb'"id":\s*(\d+)', message.value() or b"")
                if found:
                    self.ids[str(message.topic())].add(int(found[1]))
        return set().union(*(self.ids[name] for name in names))


@dataclass
class Doors:
    """A worker, and the three users at its doors."""

    node: Cassandra
    folder: Path
    url: str
    services: str

    def shell(self, user: str, text: str, *, far: bool = False) -> str:
        """Return what goes wrong when *user* says *text*, here or from another machine."""
        rest = self.url if far else ""
        return said_by(self.node, self.folder, user, text, rest=rest).stderr

    def client(self, user: str) -> KafkaConnect:
        """Return a client of Kafka Connect."""
        return KafkaConnect(self.url, auth=f"{user}:{user}")

    def send(self, user: str, method: str, path: str, document: Any = None) -> tuple[int, str]:  # noqa: ANN401 (JSON)
        """Return the status and what is wrong, of Kafka Connect's paths or CEP-44's."""
        base = self.services if path.startswith("/api/v1/services") else self.url
        answer = requests.request(method, base + path, json=document, auth=(user, user), timeout=60)
        wrong = answer.status_code >= 400
        return answer.status_code, answer.json()["message"] if wrong else ""

    def state(self, name: str = NAME) -> str:
        """Return the connector's state, as anybody sees it who is logged in."""
        return str(self.client(WITHOUT).get_connector_status(name)["connector"]["state"])

    def becomes(self, state: str) -> None:
        """Wait for a state."""
        wait_for(lambda: self.state() == state, f"never {state}")


@pytest.fixture
def doors(guarded: Cassandra, tmp_path: Path) -> Iterator[Doors]:
    """Run `headrace worker`, where Cassandra's users log in."""
    port, services = free_ports(2)
    worker = {
        "state": "state.db",
        "source": {
            "plugin": "cassandra",
            "contact_points": f"{guarded.host}:{guarded.port}",
            "streamed": "publish",
            "username": SUPER,
            "password": f"${{file:{tmp_path}/secrets:password}}",
            "nodes": {"node1": str(guarded.cdc_raw)},
            "consistency": "ONE",
            "splits": 2,
        },
        "rest": {
            "listen": f"127.0.0.1:{port}",
            "listen_services": f"127.0.0.1:{services}",
            "cassandra": f"{guarded.host}:{guarded.port}",
        },
    }
    (tmp_path / "secrets").write_text(f"password={SUPER}\n")
    (tmp_path / "worker.yaml").write_text(yaml.safe_dump(worker))
    made = Doors(guarded, tmp_path, f"http://127.0.0.1:{port}", f"http://127.0.0.1:{services}")
    with (tmp_path / "log").open("wb") as log:
        child = subprocess.Popen(  # noqa: S603 (headrace itself)
            [*HEADRACE, "worker", str(tmp_path / "worker.yaml")], stdout=log, stderr=log
        )
    try:
        wait_for(
            lambda: child.poll() is not None or _answers(made.url), "the worker never answered"
        )
        yield made
        child.terminate()
        assert 0 == child.wait(SECONDS_MAX)
    finally:
        child.kill()
        child.wait()
        sys.stderr.write((tmp_path / "log").read_text()[-4_000:])


def _answers(url: str) -> bool:
    try:
        return bool(requests.get(f"{url}/health", timeout=5).ok)
    except requests.ConnectionError:
        return False


def refuses_bob(doors: Doors, position: str) -> None:
    """Let the user without the permission try everything at every door."""
    tried = f"{TRIED}\nALTER {ORDERS} SET POSITION = 'earliest';"
    for far in (False, True):
        said = doors.shell(WITHOUT, tried, far=far)
        assert tried.count(";") == said.count(f"Unauthorized: {NO_CDC}"), said
    statuses = [doors.send(WITHOUT, *sent) for sent in SENT]
    moved = {"offsets": [{"partition": {}, "offset": {"at": position}}]}
    statuses.append(doors.send(WITHOUT, "PATCH", f"/connectors/{NAME}/offsets", moved))
    assert [] == [found for found in statuses if found != (403, f"Unauthorized: {NO_CDC}")]


def test_session(doors: Doors, bootstrap_servers: str) -> None:
    """Create, alter, pause, move and drop through shell, Kafka Connect and CEP-44's paths."""
    topics = Topics(bootstrap_servers, "session-a", "session-b", "session-c", "session-d")
    with Writer(doors.node) as writer:
        _by_connect_and_shell(doors, bootstrap_servers, topics, writer)
        _by_services(doors, bootstrap_servers, topics, writer)

    assert {SUPER, WITH, WITHOUT} <= _audited(doors)


def _by_connect_and_shell(
    doors: Doors, bootstrap_servers: str, topics: Topics, writer: Writer
) -> None:
    alice, root = doors.client(WITH), doors.client(SUPER)
    lake = {"connector.class": "KafkaSink", "bootstrap.servers": bootstrap_servers}
    lake |= {"topic": "session-a", "format": "json"}
    assert (
        lake | {"name": "lake"}
        == alice.create_connector({"name": "lake", "config": lake})["config"]
    )
    hidden = {"name": "cdc.shop.secrets", "config": TABLE | {"table": "secrets"}}
    status, message = doors.send(WITH, "POST", "/connectors", hidden)
    assert (403, True) == (status, NO_SELECT in message)
    assert NO_SELECT in doors.shell(WITH, f"CREATE {SECRETS} WITH lake;", far=True)
    alice.create_connector({"name": NAME, "config": TABLE | {"table": "orders"}})
    doors.becomes("RUNNING")
    wait_for(lambda: len(topics.of("session-a")) > 10, "nothing came")
    refuses_bob(doors, "earliest")
    # Alter: the sink's topic, live; by the shell, from another machine.
    assert "" == doors.shell(WITH, "ALTER DATA_SINK lake WITH topic = 'session-b';", far=True)
    wait_for(lambda: len(topics.of("session-b")) > 10, "nothing came into the new topic")
    # Pause and resume: by Kafka Connect, and by the shell beside the file.
    alice.pause_connector(NAME)
    doors.becomes("PAUSED")
    assert "" == doors.shell(SUPER, f"RESUME {ORDERS};")
    doors.becomes("RUNNING")
    # Move: stopped first, back to the beginning, dry and then really.
    moved = f"ALTER {ORDERS} SET POSITION = 'earliest'"
    assert "not STOPPED" in doors.shell(WITH, f"{moved};", far=True)
    root.stop_connector(NAME)
    doors.becomes("STOPPED")
    before = topics.ids["session-b"].copy()
    assert "" == doors.shell(WITH, f"{moved} DRY RUN; {moved};", far=True)
    alice.resume_connector(NAME)
    wait_for(lambda: topics.of("session-b") > before | {0}, "nothing was read again")
    # A second source by the superuser, who may take what alice may not; dropped by her.
    assert "" == doors.shell(SUPER, f"CREATE {SECRETS} WITH lake;")
    alice.delete_connector("cdc.shop.secrets")
    written = set(range(writer.written))
    wait_for(lambda: written <= topics.of("session-a", "session-b"), "something was lost")
    assert "is used by" in doors.shell(WITH, "DROP DATA_SINK lake;")
    assert "" == doors.shell(WITH, f"DROP {ORDERS};")
    alice.delete_connector("lake")
    assert [] == root.list_connectors()


def _by_services(doors: Doors, bootstrap_servers: str, topics: Topics, writer: Writer) -> None:
    path = "/api/v1/services/{}/config".format
    kafka = {"config": {"bootstrap.servers": bootstrap_servers, "format": "json"}}
    first, second = ({"config": {"topic": f"session-{name}"}} for name in "cd")
    assert (200, "") == doors.send(WITH, "PUT", path("kafka"), kafka)
    assert (200, "") == doors.send(WITH, "PUT", path("cdc"), first)
    wait_for(lambda: len(topics.of("session-c")) > 10, "nothing came")
    assert (403, f"Unauthorized: {NO_CDC}") == doors.send(WITHOUT, "PUT", path("cdc"), second)
    assert (200, "") == doors.send(SUPER, "PUT", path("cdc"), second)
    wait_for(lambda: len(topics.of("session-d")) > 10, "nothing came into the new topic")
    assert (200, "") == doors.send(WITH, "DELETE", path("cdc"))
    enough = writer.written + WRITTEN_MEANWHILE
    wait_for(lambda: writer.written >= enough, "nothing is written")
    assert (200, "") == doors.send(WITH, "PUT", path("cdc"), second)
    everything = set(range(writer.end()))
    wait_for(lambda: everything <= topics.of("session-c", "session-d"), "something was lost")
    assert (200, "") == doors.send(SUPER, "DELETE", path("cdc"))


def _audited(doors: Doors) -> set[str]:
    """Return who is in the audit, which is an unbroken chain."""
    done = subprocess.run(  # noqa: S603 (headrace itself)
        [*HEADRACE, "audit", "--state", str(doors.folder / "state.db")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr)
    return set(re.findall(r'"actor": ?"(\w+)"', done.stdout))
