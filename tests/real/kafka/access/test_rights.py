"""`headrace doctor` and access lists: what a user may do to topics, groups and ids."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # Its stubs forget them.
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from headrace.plugins import CheckResult, Finding, parse_config
from headrace.plugins.diagnosis import Examined
from headrace.plugins.testing.doubles import context
from headrace.sinks.kafka import KafkaConfig, KafkaSink
from real.servers.kafka import RELEASE_3, Kafka

pytestmark = pytest.mark.real

WRITER, READER = "writer", "reader"
PASSWORD = "a-password"  # noqa: S105 (of a test's broker)
PASSED, FAILED = CheckResult.PASSED, CheckResult.FAILED
WARNED, UNKNOWN = CheckResult.WARNED, CheckResult.UNKNOWN
CLUSTER = "kafka-cluster"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Run a broker that knows two users, who may do nothing yet."""
    folder = tmp_path_factory.mktemp("kafka3") / "broker"
    users = {WRITER: PASSWORD, READER: PASSWORD}
    with Kafka(folder, release=RELEASE_3, users=users) as running:
        yield running


def listed(
    kafka: Kafka,
    kind: ResourceType,
    name: str,
    *operations: AclOperation,
    user: str = WRITER,
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> None:
    """Add *operations* on what has *name* to the access lists; ids begin with it."""
    begins = kind is ResourceType.TRANSACTIONAL_ID
    pattern = ResourcePatternType.PREFIXED if begins else ResourcePatternType.LITERAL
    bindings = [
        AclBinding(kind, name, pattern, f"User:{user}", "*", operation, permission)
        for operation in operations
    ]
    admin = AdminClient({"bootstrap.servers": kafka.internal_servers})
    for future in admin.create_acls(bindings).values():
        future.result(30)


def topics(kafka: Kafka) -> str:
    """Make a topic of changes, one of signals and one of positions; return the first's name."""
    name = f"rights-{uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": kafka.internal_servers})
    wanted = [NewTopic(f"{name}{end}", 1, 1) for end in ("", "-signals", "-positions")]
    for future in admin.create_topics(wanted).values():
        future.result(30)
    return name


def found(kafka: Kafka, topic: str, user: str = WRITER, job: str = "orders") -> list[Finding]:
    """Return what `headrace doctor` finds of the brokers' rights; a user without name is super."""
    client = kafka.client(user, PASSWORD) if user else {"bootstrap.servers": kafka.internal_servers}
    options = {
        "topic": topic,
        "exactly.once": "true",
        "offsets.storage.topic": f"{topic}-positions",
        "signal.topic": f"{topic}-signals",
        "signal.group.id": f"{topic}-group",
        **client,
    }
    sink = KafkaSink(parse_config(KafkaConfig, options), context(job=job))
    _, brokers = sink.checks(Examined())
    return [each for each in brokers.run() if each.check == "rights"]


def test_what_a_user_may(kafka: Kafka) -> None:
    """With the rights that the page on Kafka names, and Describe of the cluster, all is passed."""
    topic = topics(kafka)
    listed(kafka, ResourceType.TOPIC, topic, AclOperation.WRITE)
    listed(kafka, ResourceType.TOPIC, f"{topic}-signals", AclOperation.READ)
    listed(kafka, ResourceType.TOPIC, f"{topic}-positions", AclOperation.READ, AclOperation.WRITE)
    listed(kafka, ResourceType.GROUP, f"{topic}-group", AclOperation.READ)
    listed(kafka, ResourceType.TRANSACTIONAL_ID, "headrace-orders-", AclOperation.WRITE)
    before = found(kafka, topic)
    listed(kafka, ResourceType.BROKER, CLUSTER, AclOperation.DESCRIBE)
    after = found(kafka, topic)

    unknown = [(each.result, each.message) for each in before if each.result is not PASSED]
    ids = "transactional id headrace-orders-1-of-8"
    assert [(UNKNOWN, f"{ids}: this user may not see access lists")] == unknown
    assert [
        (PASSED, f"this user may write topic {topic}"),
        (PASSED, f"this user may read and write topic {topic}-positions"),
        (PASSED, f"{ids}: User:{WRITER} may write"),
        (PASSED, f"this user may read topic {topic}-signals"),
        (PASSED, f"this user may read in group {topic}-group"),
    ] == [(each.result, each.message) for each in after]
    everything = found(kafka, topic, "", "bills")
    assert [PASSED] * 5 == [each.result for each in everything]
    assert "this user may do everything to the cluster" in everything[2].message


def test_what_a_user_may_not(kafka: Kafka) -> None:
    """Each right that is missing is found, with the command that grants it."""
    topic = topics(kafka)
    for name in (topic, f"{topic}-signals", f"{topic}-positions"):
        listed(kafka, ResourceType.TOPIC, name, AclOperation.DESCRIBE, user=READER)
    listed(kafka, ResourceType.BROKER, CLUSTER, AclOperation.DESCRIBE, user=READER)
    wrong = (ResourceType.TRANSACTIONAL_ID, "headrace-bills-", AclOperation.WRITE)
    listed(kafka, *wrong)
    listed(kafka, *wrong, user=READER, permission=AclPermissionType.DENY)
    results = {each.message: each for each in found(kafka, topic, READER, "bills")}

    assert [FAILED] * 5 == [each.result for each in results.values()]
    ids = f"transactional id headrace-bills-1-of-8: an access list forbids User:{READER} to write"
    assert ids in results
    assert (
        f"kafka-acls --add --allow-principal User:{READER} --operation Write --operation Describe "
        "--transactional-id 'headrace-bills-' --resource-pattern-type prefixed"
    ) == results[ids].hint
    group = results[f"this user may not see group {topic}-group"]
    assert f"--operation Read --operation Describe --group '{topic}-group'" in group.hint

    (none,) = [e for e in found(kafka, topic, READER, "none") if "headrace-none" in e.message]
    assert (WARNED, True) == (none.result, "no access list is about it" in none.message)
    listed(kafka, ResourceType.TRANSACTIONAL_ID, "headrace-none-", AclOperation.WRITE)
    (other,) = [e for e in found(kafka, topic, READER, "none") if "headrace-none" in e.message]
    assert (FAILED, True) == (other.result, "no access list lets" in other.message)
