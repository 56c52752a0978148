"""An audit says what a topic has, and what the books say that it has not, and shows where."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Message
from msgspec.structs import replace

from headrace.connector.stores import TableCounts
from headrace.connector.streams.audit.__main__ import main
from headrace.connector.streams.audit.books import JobBooks
from headrace.connector.streams.audit.comparing import audited, differing
from headrace.connector.streams.changes import ChangeReader
from headrace.sinks.kafka.embedded import EmbeddedBroker
from helpers.jobs.deliveries import consume
from helpers.streams.published import published, records, send

PARTS = {"large.policy": "chunk", "large.bytes": "1000"}


@dataclass
class Place:
    """A job that was run, and its broker."""

    job: Path
    servers: str
    messages: list[Message]

    @property
    def books(self) -> JobBooks:
        """The books of the job."""
        return JobBooks.of_job(self.job)

    def reader(self, topic: str) -> ChangeReader:
        """Return what reads *topic* as the job's."""
        options = {"bootstrap.servers": self.servers, "topic": topic}
        return ChangeReader.of(options, state=self.job.parent / "state.db")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Return a job that was run; some of its values are in parts."""
    broker = EmbeddedBroker()
    servers = broker.bootstrap_servers
    job = published(tmp_path_factory.mktemp("audited"), servers, "whole", **PARTS)
    yield Place(job, servers, consume(servers, "whole"))
    del broker


def expected() -> Counter[str]:
    """Return the number of changes of each table."""
    return Counter(record.schema.table for record in records())


def plain(messages: list[Message]) -> list[Message]:
    """Return the messages that are a whole change."""
    return [m for m in messages if "chunk.id" not in dict(m.headers() or ())]


def table_of(message: Message) -> str:
    """Return the table of a message."""
    return str(dict(message.headers() or ())["table"].decode())  # type: ignore[union-attr]


def test_a_whole_topic_agrees(place: Place) -> None:
    """Each change is counted once, in parts too, and each is expected."""
    found = audited(ChangeReader.of_job(place.job), place.books.read)

    tables = {table: (c.found, c.delivered) for table, c in found.tables.items()}
    assert {table: (number, number) for table, number in expected().items()} == tables
    assert (0, []) == (found.unreadable, [*found.differences()])


def test_what_a_topic_lost_and_repeats(place: Place) -> None:
    """A lost change is missing, a second message is a repeat; the windows show where it was."""
    lost, twice = plain(place.messages)[3], plain(place.messages)[-1]
    sent = [m for m in place.messages if m is not lost]
    send(place.servers, "lost", [*sent, twice])
    found = audited(place.reader("lost"), place.books.read)

    missing = {table: c.missing for table, c in found.tables.items() if c.missing}
    repeated = {table: c.repeated for table, c in found.tables.items() if c.repeated}
    assert {table_of(lost): 1} == missing
    assert {table_of(twice): 1} == repeated
    (line,) = found.differences()
    delivered = expected()[table_of(lost)]
    assert f"{table_of(lost)}: 1 of {delivered} delivered changes are missing" == line
    whole = audited(place.reader("whole"), place.books.read)
    (window,) = differing(found.json(), whole.json())
    assert window.startswith(f"{table_of(lost)}: bucket ")
    assert [] == differing(whole.json(), whole.json())


def test_what_the_books_do_not_know(place: Place) -> None:
    """It is unexpected if the books stayed as they were; what was kept elsewhere may be there."""
    table = min(expected())

    def books(**changed: int) -> Callable[[], Mapping[str, TableCounts]]:
        read = place.books.read()
        fewer = msgspec.structs.replace(read[table], delivered=read[table].delivered - 1, **changed)
        return lambda: {**read, table: fewer}

    found = audited(place.reader("whole"), books())
    assert {table: 1} == {t: c.unknown for t, c in found.tables.items() if c.unknown}
    (line,) = found.differences()
    assert line.startswith(f"{table}: 1 changes are not in the books")
    assert () == tuple(audited(place.reader("whole"), books(dead_lettered=1)).differences())

    versions = iter([books()(), place.books.read()])
    moving = audited(place.reader("whole"), lambda: next(versions))
    assert (True, 1) == (moving.is_moving, moving.tables[table].unknown)
    assert () == tuple(moving.differences())


def test_a_table_without_topic_is_left_out(tmp_path: Path, place: Place) -> None:
    """Where each table has a topic, one of which nothing was delivered may have none."""
    job = published(tmp_path, place.servers, "each.{keyspace}.{table}")
    books = JobBooks.of_job(job).read()
    none = TableCounts(cut=1, filtered=1)
    found = audited(ChangeReader.of_job(job), lambda: {**books, "no.topic": none})

    assert expected() == {table: content.found for table, content in found.tables.items()}
    assert [] == list(found.differences())


def test_messages_of_others_are_not_counted(place: Place) -> None:
    """A message that the job cannot have sent is counted, and hides nothing."""
    options = {"bootstrap.servers": place.servers, "topic": "whole", "envelope": "flat"}
    state = place.job.parent / "state.db"
    found = audited(
        ChangeReader.of(options, state=state, source="cassandra"), place.books.read, *expected()
    )

    assert len(records()) == found.unreadable
    assert "does not fit the schema" in found.text()
    assert len(expected()) == len(found.differences())


def test_partitions_that_were_not_read_prove_nothing(place: Place) -> None:
    """Nothing is called missing before all was read."""
    found = audited(
        place.reader("whole"), lambda: {t: TableCounts(delivered=99) for t in expected()}
    )

    assert len(expected()) == len(found.differences())
    unread = replace(found, unread=["whole:0"])
    assert () == tuple(unread.differences())
    assert "not read to the end: whole:0" in unread.text()


def test_the_command(place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It ends with 0 where books and topic agree, else with 4, and says why."""
    assert 0 == main([str(place.job), "--until-end", "--json"])
    whole = tmp_path / "whole.json"
    whole.write_text(capsys.readouterr().out)
    table, number = min(expected().items())
    counts = {"found": number, "expected": number, "missing": 0, "repeated": 0, "unexpected": 0}
    assert counts == json.loads(whole.read_text())["tables"][table]
    assert 0 == main([str(place.job), "--until-end", "--against", str(whole)])
    line = f"{table}: {number} found, {number} expected, 0 missing, 0 repeated, 0 unexpected\n"
    assert line in capsys.readouterr().out

    send(place.servers, "copy", place.messages[1:])
    where = ["--bootstrap-servers", place.servers, "--topic", "copy", "--until-end"]
    state = ["--state", str(place.job.parent / "state.db"), "--job-name", "published-whole"]
    assert 4 == main([*where, *state, "--against", str(whole)])
    said = capsys.readouterr().err
    assert "error [audit_differs]: " in said
    assert "1 of " in said
    assert "window from " in said


def test_what_the_command_needs(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """A job without a name, or one that the state does not have, is a named error."""
    where = ["--bootstrap-servers", place.servers, "--topic", "whole", "--until-end"]
    state = str(place.job.parent / "state.db")

    assert 2 == main([*where, "--state", state])
    assert "--job-name" in capsys.readouterr().err
    assert 3 == main([*where, "--state", state, "--job-name", "other"])
    assert "holds nothing of job other" in capsys.readouterr().err
    assert 2 == main([str(place.job), "--until-end", "--against", "/none"])
