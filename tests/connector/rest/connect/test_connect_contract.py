"""What a real Connect worker answered is what this one answers, to any names and in any order.

The recorded connector reads a file into a topic; here a toy source "reads" a table. Requests are
translated key by key, answers back. What differs on purpose is in `DIFFERENT`, with the reason.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import pytest

from helpers.recordings.corpora import recording
from helpers.servers.rest_server import Answer, RestWorker, eventually
from helpers.settings.filled import filled

CLASS: Final = "org.apache.kafka.connect.file.FileStreamSourceConnector"
OURS: Final = "com.example.BrookBrookSourceConnector"
SINK_CLASS: Final = "org.apache.kafka.connect.file.FileStreamSinkConnector"
OUR_SINK: Final = "com.example.PondSinkConnector"
OTHERS: Final = ("k", "feeder")  # Which are always there, and which feeds a recorded sink.
KEYS: Final = {"topic": "table", "position": "offset"}
SINK_KEYS: Final = {"topics": "topic", "file": "path"}
LEFT_OUT: Final = ("file", "batch.size")

WORKERS: Final = ("version", "worker_id", "commit", "kafka_cluster_id", "last_modified")

SERVERS_FAULT: Final = "a bad request is the client's mistake: 400, not 500"
STRICT: Final = "an unknown key is a mistake, and has no effect afterwards"
RENAMED: Final = "a connector keeps its name"
SLASH: Final = "a name that no path can hold is refused"
ONE_EACH: Final = "a wrong value is one mistake, not two"
NOT_OURS: Final = "sinks, converters and transforms are not those of Java"
NO_REBALANCE: Final = "there is no leader to wait for: the task is not there"
NO_OFFSETS: Final = "a sink writes what sources read: the positions are theirs"
RETRIED: Final = "a sink that cannot be opened holds up its whole job, which is tried again"
SOON: Final = "it may have restarted already"
DIFFERENT: Final[Mapping[str, tuple[str, int, str]]] = {
    "create-errors 1": (SERVERS_FAULT, 400, "a connector config must be an object, found null"),
    "create-errors 7": (ONE_EACH, 400, "following 2 error.*tasks.max.*Missing required"),
    "create-errors 8": (ONE_EACH, 400, "Invalid value 0 for configuration tasks.max: Must be at"),
    "create-errors 9": (SERVERS_FAULT, 400, "the body is not JSON: .*line: 1, column: 2"),
    "create-errors 10": (SERVERS_FAULT, 400, "the body is not JSON"),
    "create-errors 11": (SERVERS_FAULT, 400, "must be an object, found an array"),
    "create-errors 13": (SERVERS_FAULT, 400, "Unrecognized field .*surprise"),
    "create-errors 14": (SERVERS_FAULT, 400, "initial_state must be one of RUNNING, PAUSED"),
    "config 5": (STRICT, 400, "unknown.key: Is not an option"),
    "config 6": (STRICT, 200, ""),
    "config 7": (STRICT, 200, ""),
    "config 8": (STRICT, 200, ""),
    "config 10": (RENAMED, 400, r"configuration \(zzz\) doesn't match .* \(cfg\)"),
    "config 11": (RENAMED, 200, ""),
    "config 12": (SERVERS_FAULT, 400, "must be an object, found null"),
    "config 13": (SERVERS_FAULT, 400, "must be an object, found null"),
    "config 16": (SERVERS_FAULT, 400, "the value of 'nested' must be a text, found an object"),
    "initial-state 5": ("a paused connector has tasks", 200, ""),
    "lifecycle 26": (SOON, 200, ""),
    "lifecycle 39": (NO_REBALANCE, 404, "Unknown task: src-0"),
    "odd-names 1": (SLASH, 400, "'a/b' is not a connector name"),
    "odd-names 2": (SLASH, 404, "Connector a/b not found"),
    "odd-names 3": (SLASH, 404, "Connector a/b not found"),
    "odd-names 6": (SLASH, 200, ""),
    "odd-names 8": (SLASH, 200, ""),
    "offsets-source 11": (SERVERS_FAULT, 400, "the body is not JSON"),
    "offsets-source 12": (SERVERS_FAULT, 400, "offsets.0..partition.split"),
    "offsets-source 13": (SERVERS_FAULT, 400, "expected a whole number"),
    "offsets-source 14": (SERVERS_FAULT, 400, "Partition objects cannot be null"),
    "failed-task 1": (RETRIED, 200, "RESTARTING.*Is a directory.*attempt .*next at"),
    "failed-task 2": (RETRIED, 200, "UNASSIGNED"),
    "failed-task 3": (RETRIED, 200, "RESTARTING.*Is a directory"),
    "failed-task 4": (RETRIED, 202, "RESTARTING.*Is a directory"),
    "offsets-sink 3": (NO_OFFSETS, 200, '{"offsets": ..}'),
    "offsets-sink 5": (NO_OFFSETS, 400, "a data sink has no offsets"),
    "offsets-sink 6": (NO_OFFSETS, 200, '{"offsets": ..}'),
    "offsets-sink 7": (NO_OFFSETS, 400, "a data sink has no offsets"),
    "offsets-sink 8": (NO_OFFSETS, 400, "a data sink has no offsets"),
    "plugins 1": (NOT_OURS, 200, ""),
    "plugins 2": (NOT_OURS, 200, ""),
    "plugins 3": (NOT_OURS, 200, ""),
    "plugins 4": (NOT_OURS, 404, "Unknown plugin"),
    "validate 2": (ONE_EACH, 200, ""),
    "validate 3": (SERVERS_FAULT, 400, "contains no connector type"),
    "validate 5": (SERVERS_FAULT, 404, "Unknown plugin Nope."),
    "validate 6": (NOT_OURS, 200, ""),
    "validate 7": (NOT_OURS, 200, ""),
    "validate 8": (SERVERS_FAULT, 400, "the body is not JSON"),
    "validate 9": (SERVERS_FAULT, 400, "the body is not JSON"),
    "validate 10": (SERVERS_FAULT, 400, "must be an object, found an array"),
}
RECORDED: Final = {"config": "cfg", "lifecycle": "src", "offsets-source": "os"}
SINK_FILES: Final = ("offsets-sink", "failed-task")
FILES: Final = (
    *SINK_FILES,
    *("root", "create-errors", "config", "initial-state", "lifecycle", "odd-names"),
    *("offsets-source", "restart-unknown-task", "plugins", "validate", "loggers"),
)


class Names:
    """The same conversation about another connector and another table."""

    def __init__(self, connector: str = "", table: str = "") -> None:
        """Keep the recorded names where nothing is given."""
        self.connector = connector
        self.table = table

    def there(self, text: str, recorded: str) -> str:
        """Translate what is sent; *recorded* is the recorded connector's name."""
        if self.connector:
            name = quote(self.connector) if text.startswith("/") else self.connector
            text = re.sub(rf'(?<=["/]){recorded}(?=["/?]|$)', name, text)
        return re.sub('"lines"', f'"{self.table}"', text) if self.table else text

    def back(self, text: str, recorded: str) -> str:
        """Translate what is answered."""
        if self.connector:
            text = text.replace(self.connector, recorded).replace(quote(self.connector), recorded)
        return text.replace(f'"{self.table}"', '"lines"') if self.table else text


def exchanges(name: str) -> list[dict[str, Any]]:
    """Return the recorded exchanges of one file."""
    found = json.loads((recording("connect-rest") / f"{name}.json").read_text())
    return list(filled(found["exchanges"]))


def ours(document: Any) -> Any:  # noqa: ANN401 (JSON)
    """Translate what a request says of a connector."""
    if isinstance(document, list):
        return [ours(item) for item in document]
    if not isinstance(document, dict):
        if not isinstance(document, str):
            return document
        document = document.replace("${WORK}/", "").replace("${WORK}", ".")
        return document.replace(SINK_CLASS, OUR_SINK).replace(CLASS, OURS)
    if "filename" in document:
        return {"split": "in.jsonl"}
    if document.get("connector.class") == SINK_CLASS:
        return {SINK_KEYS.get(key, key): ours(value) for key, value in document.items()}
    made = {
        KEYS.get(key, key): ours(value) for key, value in document.items() if key not in LEFT_OUT
    }
    if "connector.class" in made:
        made |= {"keyspace": "s", "sink": "k"}
    return made


def plain(document: Any) -> Any:  # noqa: ANN401 (JSON)
    """Leave out what no two workers share, and say all else in the recorded words."""
    back = {value: key for key, value in KEYS.items() if key != "position"}
    if isinstance(document, list):
        return [plain(item) for item in document]
    if isinstance(document, str):
        return _plain_text(document)
    if not isinstance(document, dict):
        return document
    if "filename" in document or ("split" in document and len(document) == 1):
        return {"filename": ""}
    if set(document) in ({"offset"}, {"position"}):
        return {"position": next(iter(document.values()))}
    left_out: tuple[str, ...] = (*LEFT_OUT, *WORKERS)
    if document.get("connector.class") in (OUR_SINK, SINK_CLASS):
        back, left_out = {value: key for key, value in SINK_KEYS.items()}, WORKERS
    made = {back.get(k, k): plain(v) for k, v in document.items() if k not in left_out}
    if made.get("connector.class") == CLASS:
        for key in ("keyspace", "sink", "task.class", "split"):
            made.pop(key, None)
    return made


def _plain_text(text: str) -> str:
    text = text.replace("${WORK}/", "").replace("${WORK}", ".").replace(OUR_SINK, SINK_CLASS)
    return text.replace(OURS, CLASS).replace('"table"', '"topic"')


def same(expected: Mapping[str, Any], got: Answer, text: str) -> bool:
    """Say whether an answer is the recorded one; of lists of names and forms, the shape."""
    if expected["status"] != got.status:
        return False
    want = plain(expected.get("json"))
    found: Any = plain(json.loads(text)) if text else None
    rough = _roughly(want, found)
    return bool(want == found or want is None) if rough is None else rough


def _roughly(  # noqa: PLR0911 (a table of cases)
    want: Any,  # noqa: ANN401 (JSON)
    found: Any,  # noqa: ANN401 (JSON)
) -> bool | None:
    """Compare what names plugins, loggers and forms, which are not the same; else None."""
    if isinstance(want, dict):
        message = str(want.get("message", ""))
        if "configs" in want:
            return bool(
                want["error_count"] == found["error_count"] and _shape(want) == _shape(found)
            )
        if message.startswith("org.apache.kafka.connect."):
            return "available connectors are" in found["message"]
        if message.startswith("Included connector type"):
            return "does not match request type" in found["message"]
        if set(want) == {"level"} or any("KafkaRaftServer" in key for key in want):
            return bool(found)
    elif isinstance(want, list) and want and isinstance(want[0], dict) and "class" in want[0]:
        return set(want[0]) == set(found[0])
    elif isinstance(want, list) and "org.apache.kafka.connect.runtime" in want:
        return "no.such.logger" in found or want[0] == found[0]
    return None


def _shape(form: Mapping[str, Any]) -> tuple[int, set[str], set[str], set[str]]:
    first = form["configs"][0]
    return form["error_count"], set(form), set(first["definition"]) - {"order"}, set(first["value"])


def replay(worker: RestWorker, name: str, names: Names | None = None) -> list[str]:
    """Send what was sent, and return what was answered otherwise than it should be."""
    names = names or Names()
    wrong = []
    for number, exchange in enumerate(exchanges(name)):
        request = exchange["request"]
        of_sink = "FileStreamSink" in json.dumps(request.get("json"))
        if name not in SINK_FILES and of_sink and request["method"] == "POST":
            continue
        if name in SINK_FILES and request["method"] == "DELETE" and request["path"].count("/") == 2:
            assert worker.client("DELETE", "/connectors/feeder").status == 204
        for _ in eventually():
            got, text = _ask(worker, request, RECORDED.get(name, "gh"), names)
            good = _is_right(f"{name} {number}", exchange["response"], got, text)
            # What workers do takes its time.
            again = "still stopping" in text or request["path"].partition("?")[0].endswith(
                "restart"
            )
            if good or not (again or request["method"] in ("GET", "PUT")):
                break
        if name in SINK_FILES and number == 0:
            feeder = {"connector.class": OURS, "keyspace": "s", "table": "t"}
            sink = request["json"]["name"]
            made = {"name": "feeder", "config": {**feeder, "sink": sink}}
            assert worker.client("POST", "/connectors", made).status == 201
        if not good:
            wrong.append(f"{name} {number} {request['path']}: {got.status} {text}")
    return wrong


def _ask(
    worker: RestWorker, request: Mapping[str, Any], recorded: str, names: Names
) -> tuple[Answer, str]:
    body = json.dumps(ours(request["json"])) if "json" in request else request.get("text")
    path = request["path"].replace(CLASS, OURS).replace("FileStreamSource", "BrookBrookSource")
    sent = {key.replace("-", "_"): value for key, value in request["headers"].items()}
    if body is not None:
        sent["body"] = names.there(body, recorded).encode()
    got = worker.client(request["method"], names.there(path, recorded), None, **sent)
    text = got.body.decode()
    if request["method"] == "GET" and re.fullmatch(r"/connectors/?(\?.*)?", path):
        text = json.dumps(_without_others(got.json), ensure_ascii=False)
    return got, names.back(text, recorded)


def _without_others(listed: Any) -> Any:  # noqa: ANN401 (JSON)
    if isinstance(listed, dict):
        return {name: found for name, found in listed.items() if name not in OTHERS}
    return [name for name in listed if name not in OTHERS]


def _is_right(number: str, expected: Mapping[str, Any], got: Answer, text: str) -> bool:
    if got.body and "application/json" != got.headers["content-type"]:
        return False
    if number in DIFFERENT:
        _, status, pattern = DIFFERENT[number]
        return status == got.status and re.search(pattern, text, re.DOTALL) is not None
    location = got.headers.get("location", "")
    at_home = location.startswith("http://127.0.0.1:") or "location" not in expected["headers"]
    return at_home and same(expected, got, text)


@pytest.mark.parametrize("name", FILES)
def test_recorded(worker: RestWorker, name: str) -> None:
    """Each recorded exchange has the same status, headers and body, but for what differs."""
    assert "" == "\n".join(replay(worker, name))


@pytest.mark.parametrize("name", ["config", "lifecycle", "offsets-source"])
def test_other_names(worker: RestWorker, name: str) -> None:
    """No answer depends on the recorded names."""
    assert [] == replay(worker, name, Names("-> orders é", "orders_2"))


def test_other_order(worker: RestWorker) -> None:
    """A conversation may be held again, after others, by another connector."""
    assert [] == replay(worker, "offsets-source")
    assert [] == replay(worker, "lifecycle")
    assert [] == replay(worker, "offsets-source", Names("other", "t2"))


def test_nobody_waits_for_a_leader(worker: RestWorker) -> None:
    """Where a group of workers was between leaders, and answered 409, one process just answers."""
    config = {"connector.class": OURS, "keyspace": "s", "table": "t", "sink": "k"}
    made = {"name": "src", "config": config}
    recorded = exchanges("rebalance")
    assert worker.client("POST", "/connectors", made).status == 201
    met = []
    for number, exchange in enumerate(recorded):
        verb = ("stop", "resume", "pause", "resume")[number % 4]  # Each was a rebalance there.
        assert worker.client("PUT", f"/connectors/src/{verb}").status in (202, 204)
        request = exchange["request"]
        met.append(worker.client(request["method"], request["path"]).status)
    for _ in eventually():
        if met[-1] == 204:
            break
        met.append(worker.client(request["method"], request["path"]).status)

    assert {409} == {exchange["response"]["status"] for exchange in recorded}
    assert {204, 404} >= set(met)
    assert 204 == met[-1]


def test_differences_are_few() -> None:
    """Every difference is one of a recorded exchange, and most exchanges have none."""
    known = {f"{name} {number}" for name in FILES for number in range(len(exchanges(name)))}

    assert set(DIFFERENT) <= known
    assert len(DIFFERENT) * 3 < len(known)
