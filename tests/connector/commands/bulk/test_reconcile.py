"""`headrace reconcile` of a job over forged logs and a broker in this process."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headrace.sinks.kafka.embedded import EmbeddedBroker
from helpers.jobs.deliveries import consume
from helpers.logs.forged import insert
from helpers.logs.gap_jobs import GapJob
from helpers.servers.registries import registry
from helpers.settings.seeds import soaked

ROWS = 40


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """Return a broker of the test's own."""
    made = EmbeddedBroker()
    yield made
    del made


def job_into(folder: Path, broker: EmbeddedBroker, **sink: str) -> GapJob:
    """Return a job that delivers forged rows to the topic `t`; *sink* are more options."""
    job = GapJob(folder)
    job.log(1, range(ROWS))
    deliver(job, broker, topic="t", **sink)
    return job


def deliver(job: GapJob, broker: EmbeddedBroker, **sink: str) -> None:
    """Let the job deliver to the broker."""
    servers = broker.bootstrap_servers
    job.deliver({"plugin": "kafka", "bootstrap.servers": servers, **sink}, {})


def reconcile(job: GapJob, *more: str) -> int:
    """Compare logs and topic; return the exit status."""
    options = ("--no-table", "--grace=0", "--master=none", f"--report={job.folder / 'report'}")
    return job.call("reconcile", *options, *more)


def test_a_log_with_damage_is_compared(
    tmp_path: Path, broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the other logs have is in the topic, and a change that is missing there is found."""
    job = job_into(tmp_path, broker)
    assert 0 == job.run()
    job.log(2, range(ROWS, ROWS + 1))
    log = min((tmp_path / "n1").glob("*.log"))
    content = bytearray(log.read_bytes())
    content[content.index(b"k3")] ^= 1
    log.write_bytes(content)

    assert 4 == reconcile(job)
    said = capsys.readouterr().out
    assert f"{ROWS + 1} changes in the logs, {ROWS} in the topic" in said
    assert re.search(r"^missing +1$", said, re.MULTILINE)
    assert "note: tables were not compared: --no-table\n" in said


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--table-shards=0", "--table-shards: must be at least 1, found '0'"),
        ("--table-shards=-1", "--table-shards: must be at least 1, found '-1'"),
        ("--table-shards=100001", "--table-shards: must be at most 100000, found '100001'"),
        ("--buckets=0", "--buckets: must be at least 1, found '0'"),
        ("--buckets=1048577", "--buckets: must be at most 1048576, found '1048577'"),
        ("--grace=-1", "--grace: must be at least 0, found '-1'"),
        ("--grace=1" + 400 * "0", "--grace: must be at most 31622400"),
    ],
)
def test_numbers_out_of_bounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, said: str
) -> None:
    """A number out of bounds is refused by its option before anything is read."""
    assert 2 == GapJob(tmp_path).call("reconcile", "--master=none", option)
    assert f"error [config]: {said}" in capsys.readouterr().err


MASK = {"transforms": "m", "transforms.m.type": "MaskField", "transforms.m.fields": "payload.v"}
OF_INSERTS = {
    "transforms.m.predicate": "p",
    "predicates": "p",
    "predicates.p.type": "OperationIs",
    "predicates.p.operations": "INSERT",
}
NO_ORIGIN_FIELDS = {
    "transforms": "r",
    "transforms.r.type": "ReplaceField",
    "transforms.r.exclude": "__node,__segment,__position,__copies,__written",
}
FORMS: tuple[dict[str, str], ...] = (
    {},
    {"envelope": "flat", "format": "json", "key.format": "text"},
    {"envelope": "debezium", "format": "json"},
    {"types": "cep44", "key.format": "json"},
    MASK,
    {**MASK, **OF_INSERTS, "envelope": "debezium", "transforms.m.fields": "after.v"},
    {**NO_ORIGIN_FIELDS, "envelope": "flat"},
    *soaked(
        {"format": "json"},
        {"envelope": "flat"},
        {"envelope": "flat", "format": "json"},
        {"envelope": "debezium"},
        {"key.format": "json"},
        {"envelope": "flat", "key.format": "text"},
        {"types": "cep44"},
        {**MASK, **OF_INSERTS},
        {**NO_ORIGIN_FIELDS, "envelope": "flat", "format": "json"},
    ),
)


def copied(broker: EmbeddedBroker, *, swapped: bool) -> None:
    """Copy the topic `t` to `u`, without its first message.

    With *swapped* the second is there twice, and the third has the value of the fourth.
    """
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    given = consume(broker.bootstrap_servers, "t")
    for number, each in enumerate(given[1:], 1):
        value = given[3].value() if swapped and number == 2 else each.value()
        for _ in range(2 if swapped and number == 1 else 1):
            place = each.partition() or 0
            producer.produce("u", value, each.key(), place, headers=each.headers())
    producer.flush(10)


@pytest.mark.soak
@pytest.mark.parametrize("options", FORMS, ids=str)
def test_loss_repetition_and_other_values_are_found(
    tmp_path: Path,
    broker: EmbeddedBroker,
    capsys: pytest.CaptureFixture[str],
    options: dict[str, str],
) -> None:
    """Every envelope, in each format and transformed, is compared by what its messages say.

    Repeated messages are counted and do not count as differences; missing ones can be repaired.
    """
    job = job_into(tmp_path, broker, **options)
    assert 0 == job.run()
    assert 0 == reconcile(job), capsys.readouterr()
    assert f"{ROWS} changes in the logs, {ROWS} in the topic" in capsys.readouterr().out

    copied(broker, swapped=True)
    deliver(job, broker, topic="u", **options)
    assert 4 == reconcile(job, "--repair")
    said = capsys.readouterr().out
    found = {name: int(n) for name, n in re.findall(r"^(\w+) +(\d+)$", said, re.MULTILINE)}
    assert {"missing": 2, "extra": 1} == {name: n for name, n in found.items() if n}
    assert "1 messages in the topic repeat another" in said
    assert 0 == job.replay("run", said.split()[-1], "--master", "none")
    assert 4 == reconcile(job)
    said = capsys.readouterr().out
    assert {"missing": 0, "extra": 1}.items() <= {
        name: int(n) for name, n in re.findall(r"^(\w+) +(\d+)$", said, re.MULTILINE)
    }.items()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"transforms": "k", "transforms.k.type": "ValueToKey", "transforms.k.fields": "index"},
            "sink.transforms.k: changes keys",
        ),
        (
            {"transforms": "k", "transforms.k.type": "MaskField$Key", "transforms.k.fields": "k"},
            "sink.transforms.k: changes keys",
        ),
        (
            {
                "transforms": "k",
                "transforms.k.type": "RegexRouter",
                "transforms.k.regex": "t",
                "transforms.k.replacement": "w",
            },
            "sink.transforms: change the topics of records",
        ),
        (
            {
                "transforms": "k",
                "transforms.k.type": "ReplaceField",
                "transforms.k.exclude": "timestampMicros",
            },
            "sink.transforms: remove or change timestampMicros of forged.",
        ),
        (
            {
                "envelope": "debezium",
                "transforms": "k",
                "transforms.k.type": "Flatten",
            },
            "sink.transforms: remove or change source of forged.",
        ),
        ({"format": "text"}, "sink.format: expected avro or json, found text"),
    ],
)
def test_messages_that_cannot_be_compared(
    tmp_path: Path,
    broker: EmbeddedBroker,
    capsys: pytest.CaptureFixture[str],
    options: dict[str, str],
    message: str,
) -> None:
    """What prevents a comparison is named before anything is read."""
    job = job_into(tmp_path, broker, **options)
    job.run()
    capsys.readouterr()

    assert 2 == reconcile(job)
    assert message in capsys.readouterr().err
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize("selected", ["DELETE", "DELETE_PARTITION"])
def test_operations_that_debezium_does_not_distinguish(
    tmp_path: Path, broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str], selected: str
) -> None:
    """Only both can be selected: the messages of the other would look as if they were extra."""
    job = job_into(tmp_path, broker, envelope="debezium")

    assert 2 == reconcile(job, f"--operations={selected}")
    assert "--operations: Debezium's envelope has the same `op`" in capsys.readouterr().err


@pytest.mark.parametrize("codec", ["avro", "json"])
@pytest.mark.parametrize(
    "large", [{"policy": "chunk"}, {"policy": "claim-check", "store.path": "claims"}]
)
def test_large_values_are_read_whole(
    tmp_path: Path,
    broker: EmbeddedBroker,
    capsys: pytest.CaptureFixture[str],
    codec: str,
    large: dict[str, str],
) -> None:
    """Large values, split or stored elsewhere, are compared; a lost claim is a missing change."""
    job = GapJob(tmp_path)
    job.spread(1, insert(b"k", bytes(5_000)))
    job.spread(2, insert(b"l", b"small"))
    options = {"large.bytes": "2000", **{f"large.{name}": text for name, text in large.items()}}
    deliver(job, broker, topic="t", format=codec, **options)
    assert 0 == job.run()

    assert 0 == reconcile(job)
    assert "2 changes in the logs, 2 in the topic" in capsys.readouterr().out
    claims = list((tmp_path / "claims").glob("*/*"))
    assert len(claims) == ("store.path" in large)
    for path in claims:
        path.unlink()
        assert 4 == reconcile(job)
        assert re.search(r"^missing +1$", capsys.readouterr().out, re.MULTILINE)
        assert not path.exists()


@pytest.mark.soak
@pytest.mark.parametrize(
    ("framing", "options"),
    [
        ("confluent", {"format": "json", "key.format": "avro"}),
        ("confluent", {"envelope": "flat"}),
        ("confluent-headers", {}),
        ("confluent-headers", {"envelope": "debezium"}),
        *soaked(
            ("confluent", {}),
            ("confluent", {"envelope": "debezium"}),
            ("confluent-headers", {"format": "json", "key.format": "avro"}),
            ("confluent-headers", {"envelope": "flat"}),
        ),
    ],
)
def test_framed_messages(
    tmp_path: Path,
    broker: EmbeddedBroker,
    capsys: pytest.CaptureFixture[str],
    framing: str,
    options: dict[str, str],
) -> None:
    """Framed messages are compared and replayed like others."""
    with registry(tmp_path / "registry.db") as address:
        options |= {"schema.store": "registry", "schema.store.url": address}
        job = job_into(tmp_path, broker, **{**options, "schema.framing": framing})
        assert 0 == job.run()
        assert 0 == reconcile(job)
        assert f"{ROWS} changes in the logs, {ROWS} in the topic" in capsys.readouterr().out

        assert 0 == job.replay("plan", "--json", "--accept-gaps", "--shards", "2")
        run = json.loads(capsys.readouterr().out)["run"]
        assert 0 == job.replay("run", run, "--master", "none")
        assert 0 == job.replay("verify", run, "--master", "none")
