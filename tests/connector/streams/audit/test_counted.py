"""Changes are counted once each, also if sent again, by table, bucket and window."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from headrace.connector.serde.change_names import hash_of, name_of
from headrace.connector.streams.audit.counted import CountedChanges, UnnamedChangeError
from headrace.connector.streams.changes import Change, ChangeReader
from headrace.plugins.records.codecs import RUN_HEADER
from headrace.sinks.kafka.embedded import EmbeddedBroker
from helpers.streams.published import published, read, records

HOUR_US = 3_600_000_000


@pytest.fixture(scope="module")
def changes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[Change]]:
    """Return the changes of the recording, as they are in a topic."""
    folder = tmp_path_factory.mktemp("counted")
    broker = EmbeddedBroker()
    job = published(folder, broker.bootstrap_servers, "counted")
    reader = ChangeReader.of_job(job)
    yield list(read(reader, broker.bootstrap_servers, "counted"))
    reader.close()


def with_repeats(changes: Sequence[Change]) -> list[Change]:
    """Return *changes* in another order, each third again, with offsets of one partition."""
    sent = [*changes, *changes[::3]]
    random.Random(7).shuffle(sent)  # noqa: S311 (a test)
    return [
        replace(change, message=msgspec.structs.replace(change.message, offset=offset))
        for offset, change in enumerate(sent)
    ]


def test_sums_are_those_of_the_source(changes: Sequence[Change]) -> None:
    """Numbers and hashes of tables and windows are those of the source's records, in any order."""
    counted = CountedChanges({}, {})
    for change in with_repeats(changes):
        counted.take(change)

    number: Counter[str] = Counter()
    hashes: Counter[str] = Counter()
    windows: Counter[tuple[str, int]] = Counter()
    for record in records():
        table = record.schema.table
        number[table] += 1
        hashes[table] += hash_of(name_of(record.value["mutation"], record.value["index"]))
        windows[table, record.timestamp_us // HOUR_US * HOUR_US] += 1
    repeated = Counter(change.table for change in changes[::3])
    found = counted.tables()
    assert number == {table: each.number for table, each in found.items()}
    assert repeated == {table: each.repeated for table, each in found.items() if each.repeated}
    assert {t: h % (1 << 64) for t, h in hashes.items()} == {t: c.hashes for t, c in found.items()}
    by_window: Counter[tuple[str, int]] = Counter()
    for window, each in counted.windows().items():
        by_window[window.table, window.begin_us] += each.number
    assert windows == by_window
    assert 1 < len({window.bucket for window in counted.windows()})


def test_the_bucket_is_that_of_the_key(changes: Sequence[Change]) -> None:
    """All changes of a key are in one bucket, and sums of topics are added."""
    key = changes[0].message.key
    same = [
        change
        for change in changes
        if (change.table, change.message.key) == (changes[0].table, key)
    ]
    counted = CountedChanges({}, {})
    for change in same:
        counted.take(change)
        counted.take(
            replace(
                change,
                topic="other",
                message=msgspec.structs.replace(change.message, topic="other"),
            )
        )

    assert 1 == len({window.bucket for window in counted.windows()})
    found = counted.tables()[changes[0].table]
    assert (len(same), len(same)) == (found.number, found.repeated)


def test_what_a_replay_sent_does_not_count(changes: Sequence[Change]) -> None:
    """As in `verify`: the books do not have it."""
    message = changes[0].message
    counted = CountedChanges({}, {})
    headers = {**message.headers, RUN_HEADER: b"run"}
    counted.take(replace(changes[0], message=msgspec.structs.replace(message, headers=headers)))

    assert {} == counted.tables()


@pytest.mark.parametrize(
    ("facts", "offset", "said"),
    [({"mutation": None}, 0, "mutation"), ({"index": None}, 0, "index"), ({}, -1, "offset")],
)
def test_what_has_no_name_is_refused(
    changes: Sequence[Change], facts: dict[str, None], offset: int, said: str
) -> None:
    """Without mutation, index or offset nothing is counted: repeats could not be recognised."""
    message = msgspec.structs.replace(changes[0].message, offset=offset)
    counted = CountedChanges({}, {})

    with pytest.raises(UnnamedChangeError, match=said):
        counted.take(replace(changes[0], message=message, **facts))  # type: ignore[arg-type]
    assert {} == counted.tables()


@pytest.mark.parametrize(
    ("envelope", "headers", "has_names"),
    [
        ("flat", "schemaId,table", True),
        ("debezium", "schemaId,table,mutation,index", True),
        ("debezium", "schemaId,table", False),
    ],
)
def test_where_names_are(tmp_path: Path, envelope: str, headers: str, *, has_names: bool) -> None:
    """They are fields, or the headers mutation and index, which debezium needs."""
    broker = EmbeddedBroker()
    servers = broker.bootstrap_servers
    job = published(tmp_path, servers, "names", envelope=envelope, headers=headers)
    reader = ChangeReader.of_job(job)
    found = {(change.mutation, change.index) for change in read(reader, servers, "names")}
    reader.close()

    named = {(record.value["mutation"], record.value["index"]) for record in records()}
    assert (named if has_names else {(None, None)}) == found
