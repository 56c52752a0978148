"""The changes of a history over HTTP: a line for each, and one that says how it ended."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from headrace.connector.control.connector_config import sink_options
from headrace.connector.rest import statements
from headrace.plugins.testing.doubles import DrivenClock
from helpers.histories.kept import FOREVER_MS, Kept, settled
from helpers.histories.rows import change, delivery
from helpers.servers.rest_server import RestWorker

PATH = "/api/v1/cdc/h/changes"
CREATE = "CREATE CDC h ON shop.orders INCLUDE (CHANGE, PRE, POST) WITH seed = 'empty'"


@pytest.fixture
def worker(served: RestWorker) -> RestWorker:
    """Return a worker with a history of seven changes."""
    assert served.client("POST", "/api/v1/statements", {"statement": CREATE}).status == 200
    kept = Kept(DrivenClock(), **sink_options(served.commands.sink("h").config))
    writer = kept.writer()
    for number in range(7):
        sent = change(written_us=number, of=(number % 2, number), note=str(number))
        writer.submit(delivery(sent), settled)
        kept.clock.advance(1_000)
        assert writer.commit({}, FOREVER_MS)
    writer.close()
    return served


def lines(worker: RestWorker, query: str) -> tuple[Sequence[Any], dict[str, str]]:
    """Return the documents of an answer, and its end."""
    found = worker.client("GET", f"{PATH}?{query}")
    assert 200 == found.status
    *documents, end = map(json.loads, found.body.splitlines())
    return documents, end["end"]


def notes(worker: RestWorker, query: str) -> list[str]:
    """Return what each change of an answer wrote into a column."""
    return [document["change_image"]["note"] for document in lines(worker, query)[0]]


def test_each_change_is_a_line(worker: RestWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order, in pages of any size, as SELECT JSON has them."""
    monkeypatch.setattr(statements, "PAGE_CHANGES", 3)
    documents, end = lines(worker, "from=2023-01-01")
    assert [str(n) for n in range(7)] == [each["change_image"]["note"] for each in documents]
    assert {"note": "3", "total": None} == documents[3]["post_image"]
    assert ["safe_until"] == list(end)
    select = "SELECT JSON FROM h WHERE CDC_TIME() >= '2023-01-01' LIMIT 1"
    answer = worker.client("POST", "/api/v1/statements", {"statement": select}).json
    assert documents[0] == json.loads(answer["rows"][0][0])


def test_what_is_wanted_can_be_said(worker: RestWorker) -> None:
    """Times, keys, operations, images, order, a limit, and where to continue."""
    begin = 1_700_000_003_000
    assert ["1", "2"] == notes(worker, f"from={begin}&to={begin + 2_000}")
    assert ["1", "3", "5"] == notes(worker, 'from=0&key={"id":1}')
    assert ["6", "5"] == notes(worker, "from=0&order=desc&limit=2")
    assert [] == notes(worker, "from=0&op=delete,ttl_delete")
    assert ["0", "1"] == notes(worker, "from=0&op=insert,ttl_delete&limit=2")
    first, end = lines(worker, "from=0&limit=4&include=pre")
    assert "change_image" not in first[0]
    assert ["4", "5", "6"] == notes(worker, f"from=0&after={end['next_token']}".replace(">", "%3E"))
    parts = [len(lines(worker, f"from=0&partitions={number}")[0]) for number in range(8)]
    assert 7 == sum(parts)


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ("", 400, "the time is not bounded below"),
        ("from=x", 400, "expected a time"),
        ("from=0&include=past", 400, "image past is unknown"),
        ("from=0&partitions=a", 400, "expected numbers of buckets"),
        ("from=0&key=1", 400, "expected a JSON object"),
        ('from=0&key={"id":[1]}', 400, "has no text, number or boolean"),
        ('from=0&key={"note":"x"}', 400, "note: cannot be compared"),
        ("from=0&limit=0", 400, "limit"),
        ("from=0&limt=1", 400, "limt: is not a parameter (there are from, to, include,"),
        ("from=0&partitions=9", 400, "partition_id: bucket 9 does not exist"),
        ("from=0&order=up", 400, "order"),
        ("from=0&latest=table", 400, "latest"),
        ("from=0&latest=source&level=TWO", 400, "level"),
        ("from=0&latest=source", 400, "job h has never run on this state"),
    ],
)
def test_what_is_wrong_is_said(worker: RestWorker, query: str, status: int, message: str) -> None:
    """As a JSON error, before anything is sent."""
    found = worker.client("GET", f"{PATH}?{query}")
    assert status == found.status
    assert message in found.json["message"]


def test_what_is_not_there(served: RestWorker) -> None:
    """An unknown history is 404; one that no worker has filled yet is 503."""
    assert 404 == served.client("GET", f"{PATH}?from=0").status
    served.client("POST", "/api/v1/statements", {"statement": CREATE})
    found = served.client("GET", f"{PATH}?from=0")
    assert 503 == found.status
    assert "history_missing" in found.json["message"]
