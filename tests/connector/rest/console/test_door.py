"""The console: pages for people, the same as JSON, and nothing changed without being asked."""

import contextlib
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlencode

import pytest

from headrace.connector.commands.health.screen import screen_of
from headrace.connector.commands.health.status import look
from headrace.connector.control.access.permission import Role
from headrace.connector.control.health.document import document_of
from headrace.connector.foundation.catch_up import Looks
from headrace.connector.rest.auth import Authenticator, hash_password
from headrace.connector.rest.console.pages import TITLES, static_files
from headrace.connector.rest.server import RestServer
from headrace.connector.rest.users import User
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins.testing.doubles import context
from helpers.servers.console_state import LOST, a_ring, ask
from helpers.servers.rest_server import (
    Answer,
    Client,
    RestWorker,
    answers_here,
    basic,
    serving,
    until_read,
)

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
JAVA = "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2"
FORM = "application/x-www-form-urlencoded"
RUN = {
    "run": "replay-1",
    "kind": "replay",
    "made": "2026-01-01T00:00:00Z",
    "target": "a folder",
    "states": {"PASS": 1, "FAIL": 1},
    "changes": 7,
    "shards": [
        {"number": n, "split": "a", "state": s, "attempt": 1, "changes": 7, "problem": p}
        for n, s, p in ((0, "PASS", ""), (1, "FAIL", "torn"))
    ],
}
PATHS = ["/", "/console", *(f"/console/{name}" for name in TITLES)]
PAUSE = "PAUSE DATA_SOURCE cdc ON TABLE shop.orders;"


class Elements(HTMLParser):
    """Counts the elements of a page, and keeps what could act without being ours."""

    def __init__(self, page: bytes) -> None:
        """Read it."""
        super().__init__()
        self.inline: list[str] = []
        self.tags: list[str] = []
        self._text = ""
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note it."""
        self.tags.append(tag)
        self.inline += [name for name, _ in attrs if name == "style" or name.startswith("on")]
        if tag == "style" or (tag == "script" and "src" not in dict(attrs)):
            self.inline.append(tag)


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Return a client of a worker whose ring has 500 splits and is broken."""
    state = a_ring(tmp_path_factory.mktemp("ring"))
    with pytest.MonkeyPatch.context() as monkeypatch:
        answers_here(monkeypatch, ask)
        server = RestServer(state, log=context().log, runs=lambda: [RUN])
        with serving(server) as address:
            yield Client(address.port)


def page(client: Client, path: str, **headers: str) -> Answer:
    """Return a page as a browser asks for it."""
    return client("GET", path, None, Accept=BROWSER, **headers)


def field(answer: Answer, name: str) -> str:
    """Return the value of a hidden field of a page."""
    found = re.search(rf'name="{name}" value="([^"]*)"', answer.body.decode())
    assert found is not None, name
    return found[1]


def post(client: Client, **fields: str) -> Answer:
    """Submit a form."""
    return client("POST", "/console/statements", None, body=urlencode(fields), Content_Type=FORM)


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        (BROWSER, "text/html"),
        ("text/html", None),
        (JAVA, "application/json"),
        ("*/*", "application/json"),
        ("application/json", "application/json"),
        ("application/json, text/html", "application/json"),
        ("image/png", None),
    ],
)
def test_the_root_is_a_page_for_browsers_alone(
    broken: Client, accept: str, media_type: str | None
) -> None:
    """Clients of Kafka Connect get at `/` what they got before there was a console."""
    answer = broken("GET", "/", None, Accept=accept)

    if media_type is None:
        assert 406 == answer.status
        return
    assert 200 == answer.status
    assert answer.headers["content-type"].startswith(media_type)
    if media_type == "application/json":
        assert {"version", "commit", "kafka_cluster_id"} == answer.json.keys()


@pytest.mark.parametrize("path", PATHS)
def test_every_page_is_safe_and_bounded(broken: Client, path: str) -> None:
    """A page has a strict policy and obeys it, shows no content, and is small with 500 splits."""
    answer = page(broken, path)
    found = Elements(answer.body)

    assert 200 == answer.status, answer.body.decode()
    policy = dict(
        part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; ")
    )
    assert ("'none'", "'self'", "'self'") == tuple(
        policy[name] for name in ("default-src", "script-src", "style-src")
    )
    assert ("'none'", "'self'", "'none'") == tuple(
        policy[name] for name in ("frame-ancestors", "form-action", "base-uri")
    )
    assert ("nosniff", "no-store") == tuple(
        answer.headers[name] for name in ("x-content-type-options", "cache-control")
    )
    assert [] == found.inline
    assert {"main", "nav", "h1"} <= set(found.tags)
    assert "b" not in found.tags  # A message of a dead letter has one.
    assert b"canary-in-a-row" not in answer.body
    assert len(answer.body) < 64_000
    assert found.tags.count("tr") < 140


@pytest.mark.parametrize("name", TITLES)
def test_every_page_is_also_json(broken: Client, name: str) -> None:
    """The document of a page is as bounded as the page."""
    answer = broken("GET", f"/console/{name}.json")

    assert 200 == answer.status
    assert isinstance(answer.json, dict)
    assert len(answer.body) < 64_000
    assert b"canary-in-a-row" not in answer.body


def test_the_overview_says_what_status_says(
    broken: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The console and `headrace status` have the same sources, logs, errors and words."""
    answers_here(monkeypatch, ask)
    overview = look(a_ring(tmp_path), Looks(), may_wait=False)
    expected = document_of(overview)
    found = broken("GET", "/console/overview.json").json

    assert screen_of(overview, "x").startswith(f"x: {found['said']}\n")
    assert expected["troubles"] == found["troubles"]
    kept = [
        {k: each[k] for k in expected["sources"][0] if k != "lag_seconds"}
        for each in found["sources"]["rows"]
    ]
    assert kept == [
        {k: v for k, v in each.items() if k != "lag_seconds"} for each in expected["sources"]
    ]
    assert list(expected["errors"][:5]) == found["errors"]["rows"]
    assert 121 == found["errors"]["count"]
    assert list(expected["logs"]) == broken("GET", "/console/logs.json").json["logs"]["rows"]
    body = page(broken, "/").body.decode()
    assert "log_gap: node2 lost segment 12" in body
    assert "headrace gaps worker.yaml --job orders" in body


def test_the_ring_and_its_table_have_the_same(broken: Client) -> None:
    """The picture has an arc for each row of the table, and shows what is not covered."""
    body = page(broken, "/").body.decode()
    ring = broken("GET", "/console/overview.json").json["ring"]

    assert 64 >= len(ring["arcs"]) == body.count("<path ")
    assert 496 == ring["splits"]
    assert 0.98 < ring["read_share"] < 0.995
    assert 1 == body.count("<title>NOT COVERED")
    for arc in ring["arcs"]:
        assert str(arc["from"]) in body


def test_long_tables_have_pages(broken: Client) -> None:
    """All splits and dead letters are on some page, and a page that does not exist is the last."""
    for path, key, count in (("splits", "splits", 496), ("dead-letters", "letters", LOST)):
        first = broken("GET", f"/console/{path}.json").json[key]
        rows = [
            row[next(iter(row))] if key == "splits" else row["number"]
            for number in range(1, first["pages"] + 1)
            for row in broken("GET", f"/console/{path}.json?page={number}").json[key]["rows"]
        ]
        assert count == first["count"] == len(set(rows)) == len(rows)
        if key == "splits":
            assert "FAILED" == first["rows"][0]["state"]  # What needs a hand comes first.
        last = broken("GET", f"/console/{path}.json?page=999999").json[key]
        assert first["pages"] == last["page"]
    assert 400 > broken("GET", "/console/splits.json?page=-1&page=x").status


def test_nodes_have_their_limit_and_time_to_full(broken: Client) -> None:
    """A log shows its size against its limit, when that is reached, or why it cannot be read."""
    body = page(broken, "/console/logs").body.decode()

    assert "3.0 GiB of 4.0 GiB (75 %)" in body
    assert "1.5 h" in body
    assert "node_unreachable: cdc_raw cannot be listed" in body


def test_dead_letters_are_sent_again_by_a_statement(broken: Client) -> None:
    """There is a button for all and one for each; the command that shows one names the job."""
    found = page(broken, "/console/dead-letters").body.decode()

    assert re.search(r"headrace dlq show \S+worker.yaml --job orders NUMBER", found)
    for which in ("DEAD_LETTERS", f"DEAD_LETTER {LOST}"):
        assert f'value="REDRIVE {which} FOR JOB &#39;orders&#39;;"' in found


def test_runs_have_a_cell_for_each_shard(broken: Client) -> None:
    """A cell says the state of its shard, and a problem is shown below."""
    body = page(broken, "/console/runs").body.decode()

    assert "Shard 0: PASS" in body
    assert "Shard 1: FAIL" in body
    assert "torn" in body


@pytest.mark.parametrize("path", ["/console/none", "/console/splits?job=none"])
def test_errors_are_pages(broken: Client, path: str) -> None:
    """What does not exist is said on a page."""
    answer = page(broken, path)

    assert 404 == answer.status
    assert answer.headers["content-type"].startswith("text/html")
    assert b'role="alert"' in answer.body


def test_files_are_kept_by_their_content(broken: Client) -> None:
    """What pages load is there, with its type, and may be kept, since its address has its hash."""
    addresses = set(
        re.findall(r"/console/static/[^\"]+", page(broken, "/console/plots").body.decode())
    )

    assert len(static_files()) - 2 == len(addresses)  # All but a licence and a list.
    for address in addresses:
        answer = broken("GET", address)
        assert 200 == answer.status
        assert "immutable" in answer.headers["cache-control"]
    assert 404 == broken("GET", "/console/static/none.js").status


def test_a_change_is_confirmed(served: RestWorker) -> None:
    """What changes something is done only when the form that repeats it is sent, too."""
    client = served.client
    created = "CREATE DATA_SOURCE brook ON TABLE s.t WITH k;"
    token = field(page(client, "/console/statements"), "token")
    asked = post(client, statement=created, token=token)

    assert b"Execute this?" in asked.body
    assert [] == client("GET", "/api/v1/sources").json["sources"]
    other = post(client, statement="DROP DATA_SINK k;", token=token)
    wrong = post(client, statement=created, token=token, confirmed=field(other, "confirmed"))
    assert b"Execute this?" in wrong.body
    assert [] == client("GET", "/api/v1/sources").json["sources"]
    done = post(client, statement=created, token=token, confirmed=field(asked, "confirmed"))
    assert 200 == done.status
    assert ["brook.s.t"] == [s["name"] for s in client("GET", "/api/v1/sources").json["sources"]]


def test_a_change_is_seen_at_once(served: RestWorker) -> None:
    """Pages do not show the state of before a statement that this server executed."""
    client = served.client
    assert 0 == client("GET", "/console/sources.json").json["sources"]["count"]
    created = "CREATE DATA_SOURCE brook ON TABLE s.t WITH k;"
    token = field(page(client, "/console/statements"), "token")
    confirmed = field(post(client, statement=created, token=token), "confirmed")
    post(client, statement=created, token=token, confirmed=confirmed)

    assert 1 == client("GET", "/console/sources.json").json["sources"]["count"]


def test_a_question_is_answered_at_once(broken: Client) -> None:
    """What changes nothing needs no confirmation, and its rows are a table of bounded length."""
    token = field(page(broken, "/console/statements"), "token")
    answer = post(broken, statement="SHOW SPLITS", token=token)

    assert 200 == answer.status
    assert b"200 of 992 rows" in answer.body
    wrong = post(broken, statement="SHOW SPLATS", token=token)
    assert (400, True) == (wrong.status, b"SPLATS" in wrong.body)


@pytest.mark.parametrize("token", ["", "0" * 64, "é"])
def test_forms_of_others_change_nothing(broken: Client, token: str) -> None:
    """A form without the token of a page of this server is refused, also for a question."""
    for statement in ("SHOW STATUS", PAUSE):
        assert 403 == post(broken, statement=statement, token=token).status


def test_forms_of_other_sites_are_refused(broken: Client) -> None:
    """A page of another site cannot send a form, even with a token."""
    token = field(page(broken, "/console/statements"), "token")
    body = urlencode({"statement": PAUSE, "token": token})
    sent = {"body": body, "Content_Type": FORM, "Origin": "http://evil.example"}

    assert 403 == broken("POST", "/console/statements", None, **sent).status
    fields = "&".join(f"f{n}=1" for n in range(9))
    assert 400 == broken("POST", "/console/statements", None, body=fields, Content_Type=FORM).status
    assert 415 == broken("POST", "/console/statements", {"statement": PAUSE}).status


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Return a client of a worker with users."""
    with _guarding(a_ring(tmp_path_factory.mktemp("guarded"), splits=8, broken=False)) as client:
        yield client


@pytest.fixture(scope="module")
def harmed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Return a client of such a worker, whose ring has a gap and dead letters."""
    with _guarding(a_ring(tmp_path_factory.mktemp("harmed"))) as client:
        yield client


@contextlib.contextmanager
def _guarding(state: Path) -> Iterator[Client]:
    users = {r: User(hash_password(r), Role[r.upper()]) for r in ("viewer", "operator", "admin")}
    with pytest.MonkeyPatch.context() as monkeypatch:
        answers_here(monkeypatch, ask)
        server = RestServer(state, log=context().log, authenticator=Authenticator(users=users))
        with serving(server) as address:
            yield Client(address.port)


def test_pages_need_a_login(guarded: Client) -> None:
    """Who is not known sees no page and no file, and is asked to log in."""
    for path in (*PATHS, "/console/static/console.js", "/console/overview.json"):
        answer = page(guarded, path)
        assert 401 == answer.status
        assert "www-authenticate" in answer.headers


@pytest.mark.parametrize(
    ("role", "is_steered", "audit"),
    [("viewer", False, 403), ("operator", True, 403), ("admin", True, 200)],
)
def test_roles(guarded: Client, role: str, *, is_steered: bool, audit: int) -> None:
    """A viewer has no buttons and may not change anything; the audit is for admins."""
    login = basic(role, role)
    sources = page(guarded, "/console/sources", **login)
    guarded.headers = login
    try:
        token = field(page(guarded, "/console/statements"), "token")
        asked = post(guarded, statement=PAUSE, token=token)
        done = post(guarded, statement=PAUSE, token=token, confirmed=field(asked, "confirmed"))
    finally:
        guarded.headers = {}

    assert is_steered == (b">Pause<" in sources.body)
    assert (200 if is_steered else 403) == done.status
    assert audit == page(guarded, "/console/audit", **login).status


@pytest.mark.parametrize(
    ("path", "role", "buttons"),
    [
        ("gaps", "operator", []),
        ("gaps", "admin", ["Expire", "Assume"]),
        ("dead-letters", "viewer", []),
        ("dead-letters", "operator", ["Send all again", *["Send again"] * 50]),
    ],
)
def test_who_may_mend(harmed: Client, path: str, role: str, buttons: list[str]) -> None:
    """Gaps are accepted by admins, dead letters sent again by operators too."""
    body = page(harmed, f"/console/{path}", **basic(role, role)).body.decode()

    assert buttons == re.findall(r"<button>([^<]+)<", body)


def test_a_gap_is_accepted(harmed: Client) -> None:
    """After its form was confirmed the gap is accepted, and the audit says by whom."""
    login = basic("admin", "admin")
    (gap,) = page(harmed, "/console/gaps.json", **login).json["gaps"]["rows"]
    statement = gap["accept"]["ASSUME"]
    harmed.headers = login
    try:
        token = field(page(harmed, "/console/gaps"), "token")
        asked = post(harmed, statement=statement, token=token)
        assert "open" == harmed("GET", "/console/gaps.json").json["gaps"]["rows"][0]["state"]
        post(harmed, statement=statement, token=token, confirmed=field(asked, "confirmed"))
        (after,) = harmed("GET", "/console/gaps.json").json["gaps"]["rows"]
        line = harmed("GET", "/console/audit.json").json["lines"]["rows"][0]
    finally:
        harmed.headers = {}

    assert ("accepted", "assume", {}) == (after["state"], after["policy"], after["accept"])
    assert ("accept_gaps", "admin") == (line["verb"], line["actor"])


def test_a_token_is_of_one_user(guarded: Client) -> None:
    """The token of another user's page is refused."""
    token = field(page(guarded, "/console/statements", **basic("viewer", "viewer")), "token")
    body = urlencode({"statement": PAUSE, "token": token})
    sent = {"body": body, "Content_Type": FORM, **basic("admin", "admin")}

    assert 403 == guarded("POST", "/console/statements", None, **sent).status


def test_what_is_missing(tmp_path: Path) -> None:
    """Without sinks and sources the overview has the statement that makes each."""
    state = tmp_path / "state.db"
    with contextlib.closing(open_notes(state)):
        pass
    with serving(RestServer(state, log=context().log)) as address:
        client = Client(address.port)
        body = page(client, "/").body.decode()
        assert "no data sink is defined" in body
        assert "CREATE DATA_SINK name WITH" in body
        for name in TITLES:
            assert 200 == page(client, f"/console/{name}").status


def test_many_jobs_and_sources(served: RestWorker) -> None:
    """With 120 jobs of 240 sources that do not run no page and no document is huge."""
    for n in range(240):
        entry = {"name": f"s{n:03}", "connector.class": "BrookBrookSource", "sink": "k"}
        table = {"keyspace": "s", "table": f"t{n}", "job": f"j{n // 2}"}
        served.commands.create_source({**entry, **table})
    for name in TITLES:
        for path in (f"/console/{name}", f"/console/{name}.json"):
            answer = page(served.client, path)
            assert 200 == answer.status
            assert len(answer.body) < 100_000, path
    found = served.client("GET", "/console/overview.json").json
    assert (240, 120, 50) == (
        found["sources"]["count"],
        found["jobs"]["count"],
        len(found["troubles"]),
    )
    assert found["said"].endswith("; and 230 more")


def test_changes_published(worker: RestWorker) -> None:
    """The figures of a job that ran are those of its books."""
    client = worker.client
    client(
        "POST", "/api/v1/statements", {"statement": "CREATE DATA_SOURCE brook ON TABLE s.t WITH k"}
    )
    until_read(client, "brook.s.t", 14)
    (job,) = client("GET", "/console/books.json").json["jobs"]["rows"]

    assert "1 change, each once; 0 lost" == job["headline"]
    assert {"what": "changes published", "count": 1, "note": ""} in job["figures"]
    assert job["balance"]
