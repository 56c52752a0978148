"""In a real browser gaps are accepted and dead letters sent again, by those who may.

With HEADRACE_SCREENSHOTS=FOLDER the pages are kept as pictures.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from headrace.connector.control.access.permission import Role
from headrace.connector.control.service import ControlService
from headrace.connector.language.parser import parse_script
from headrace.connector.rest.auth import Authenticator, hash_password
from headrace.connector.rest.server import RestServer
from headrace.connector.rest.users import User
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins.testing.doubles import context
from helpers.servers.console_state import a_ring
from helpers.servers.rest_server import basic, serving
from helpers.stores.letters import keep_letters
from real.console.chromium import Browser, Page

pytestmark = pytest.mark.real

JOB = "lines"
MADE = """
CREATE DATA_SINK out WITH 'file://{folder}/out.jsonl';
CREATE DATA_SOURCE lines WITH out AND plugin = 'files' AND path = 'in.jsonl' AND job = 'lines';
"""
BUTTONS = "[...document.querySelectorAll('#live button')].map((each) => each.firstChild.data)"
SEEN = (
    "[...document.querySelectorAll('#live button')]"
    ".map((each) => [each, each.closest('.wide, #live')])"
    ".map((parts) => parts.map((part) => part.getBoundingClientRect().right))"
    ".map(([button, frame]) => button <= frame)"
)
ASKED = "document.querySelector('#live pre').textContent"
NUMBERS = "[...document.querySelectorAll('#live tbody th')].map((each) => each.textContent)"
SHOWN = "document.querySelector('#live').textContent"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Run a browser."""
    with Browser() as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder whose state has a ring with a gap, and a job with three dead letters."""
    made = tmp_path_factory.mktemp("harmed")
    (made / "lines.yaml").write_text("state: state.db\nsink.files.roots: [.]\n")
    (made / "in.jsonl").write_text('{"n": 0}\n')
    with contextlib.closing(open_notes(a_ring(made))) as notes:
        service = ControlService(notes)
        for parsed in parse_script(MADE.format(folder=made)):
            service.execute(parsed.statement)
        notes.store(JOB).begin_run(str(made / "lines.yaml"))
        keep_letters(notes, JOB, 3)
    return made


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """Return the address of a console with a user for each role; statements ask real processes."""
    users = {r: User(hash_password(r), Role[r.upper()]) for r in ("viewer", "operator", "admin")}
    authenticator = Authenticator(users=users)
    server = RestServer(folder / "state.db", log=context().log, authenticator=authenticator)
    with serving(server) as where:
        yield f"http://127.0.0.1:{where.port}"


def as_user(browser: Browser, name: str, width: int = 1280) -> Page:
    """Return a page whose requests have the login of a user."""
    page = browser.page(width)
    page.call("Network.enable")
    page.call("Network.setExtraHTTPHeaders", headers=basic(name, name))
    return page


def press(page: Page, text: str) -> None:
    """Press the first button with a text, by its key, and wait for the page that comes."""
    found = page.run(
        "(() => { const found = [...document.querySelectorAll('#live button')]"
        f".find((each) => each.firstChild.data === '{text}'); found?.focus(); return !!found; }})()"
    )
    assert found, (text, page.run(BUTTONS))
    page.press("Enter")
    page.loaded()


def keep(page: Page, name: str) -> None:
    """Keep a picture of a page, if that is asked for."""
    if folder := os.environ.get("HEADRACE_SCREENSHOTS"):
        (Path(folder) / f"{name}.png").write_bytes(page.picture())


def document(page: Page, name: str) -> Mapping[str, list[Mapping[str, object]]]:
    """Return the rows of a document that the page may read, by the name of their table."""
    found = page.run(f"fetch('/console/{name}').then((found) => found.json())")
    return {key: part["rows"] for key, part in found.items() if isinstance(part, dict)}


@pytest.mark.parametrize(
    ("role", "gaps", "letters"),
    [
        ("viewer", set(), set()),
        ("operator", set(), {"Send all again", "Send again"}),
        ("admin", {"Expire", "Assume"}, {"Send all again", "Send again"}),
    ],
)
def test_buttons_are_for_those_who_may(
    browser: Browser, address: str, role: str, gaps: set[str], letters: set[str]
) -> None:
    """A viewer sees no button; an operator those of dead letters; an admin those of gaps too.

    In a narrow window they are seen without scrolling.
    """
    page = as_user(browser, role, 360)
    page.open(f"{address}/console/gaps")
    keep(page, f"mend-gaps-{role}")
    assert gaps == set(page.run(BUTTONS))
    assert all(page.run(SEEN))
    page.open(f"{address}/console/dead-letters?job={JOB}")
    keep(page, f"mend-letters-{role}")
    assert letters == set(page.run(BUTTONS))
    assert all(page.run(SEEN))
    assert "the disk was full" in page.run(SHOWN)


def test_a_gap_is_accepted(browser: Browser, address: str) -> None:
    """The button asks first; nothing is accepted before Execute, and then the gap is."""
    page = as_user(browser, "admin")
    page.open(f"{address}/console/gaps")
    press(page, "Assume")
    asked = page.run(ASKED)
    keep(page, "mend-gap-asked")
    assert "ACCEPT GAP 'node2:12:0' FOR JOB 'orders' ASSUME;" == asked
    assert ["open"] == [gap["state"] for gap in document(page, "gaps.json")["gaps"]]
    press(page, "Execute")
    keep(page, "mend-gap-done")

    assert "1 of 1 rows" in page.run(SHOWN)
    (gap,) = document(page, "gaps.json")["gaps"]
    assert ("accepted", "assume") == (gap["state"], gap["policy"])
    page.open(f"{address}/console/gaps")
    assert [] == page.run(BUTTONS)
    assert [] == page.complaints()


def test_dead_letters_are_sent_again(browser: Browser, address: str, folder: Path) -> None:
    """One and then all, after Execute: they are in the sink, and the page has none left."""
    page = as_user(browser, "operator")
    page.open(f"{address}/console/dead-letters?job={JOB}")
    newest = page.run(NUMBERS)[0]
    press(page, "Send again")
    keep(page, "mend-letter-asked")
    assert f"REDRIVE DEAD_LETTER {newest} FOR JOB 'lines';" == page.run(ASKED)
    assert not (folder / "out.jsonl").exists()
    press(page, "Execute")
    keep(page, "mend-letter-done")
    assert "delivered" in page.run(SHOWN)
    assert ['{"n": 2}'] == (folder / "out.jsonl").read_text().splitlines()
    page.open(f"{address}/console/dead-letters?job={JOB}")
    press(page, "Send all again")
    press(page, "Execute")
    page.open(f"{address}/console/dead-letters?job={JOB}")

    assert "no dead letters" in page.run(SHOWN)
    assert [2, 0, 1] == [int(line[6]) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert [] == page.complaints()


def test_a_form_of_another_user_does_nothing(browser: Browser, address: str) -> None:
    """A form whose token is not of this user's page is refused, confirmed or not."""
    page = as_user(browser, "admin")
    page.open(f"{address}/console/statements")
    own = page.run("document.querySelector('[name=token]').value")
    page.call("Network.setExtraHTTPHeaders", headers=basic("viewer", "viewer"))
    page.open(f"{address}/console/statements")
    page.run("document.querySelector('#statement').value = 'DROP DATA_SINK lake'")
    page.run(f"document.querySelector('[name=token]').value = '{own}'")
    press(page, "Execute")
    keep(page, "mend-refused")

    assert "was not made by this server for you" in page.run(SHOWN)
