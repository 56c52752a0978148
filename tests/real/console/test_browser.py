"""The console in a real browser: at three widths, light and dark, by keyboard, without scripts.

With HEADRACE_SCREENSHOTS=FOLDER the pages are kept as pictures.
"""

import contextlib
import math
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.connector.control.commands import Commands
from headrace.connector.rest.console import streams
from headrace.connector.rest.console.pages import TITLES
from headrace.connector.rest.console.samples import SAMPLES_MAX
from headrace.connector.rest.server import RestServer
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins.metrics import Kind, Measure, Timing, counter, families, gauge
from headrace.plugins.testing.doubles import context
from helpers.servers.console_state import a_ring, ask
from helpers.servers.rest_server import answers_here, eventually, serving
from real.console.chromium import Browser, Page

if TYPE_CHECKING:
    from headrace.plugins.metrics import Families

pytestmark = pytest.mark.real

WIDTHS = (360, 768, 1280)
RUN = {
    "run": "replay-20260101T000000-1a2b",
    "kind": "replay",
    "made": "2026-01-01T00:00:00Z",
    "target": "Parquet files in /data/replay",
    "states": {"PASS": 430, "FAIL": 2, "STARTED": 8, "NOT_STARTED": 60},
    "changes": 1_234_567,
    "shards": [
        {
            "number": n,
            "split": f"{n + 1}-of-500",
            "state": "FAIL"
            if n in (33, 200)
            else "PASS"
            if n < 432
            else "STARTED"
            if n < 440
            else "NOT_STARTED",
            "attempt": 1,
            "changes": 2_871,
            "problem": "log_short: node2 has no segment 12" if n in (33, 200) else "",
        }
        for n in range(500)
    ],
}
# The least contrast of any text with what is behind it; transparent parts show their parent.
CONTRAST = """(() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = numbers(colour).map((each) => {
      const part = each / 255;
      return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if (numbers(colour).length < 4 || numbers(colour)[3] > 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  let least = [99, ""];
  for (const element of document.querySelectorAll("body *:not(svg *, script, .hidden)")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.checkVisibility()) continue;
    const [ink, ground] = [light(getComputedStyle(element).color), light(behind(element))];
    const found = (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
    if (found < least[0]) least = [found, element.outerHTML.slice(0, 80)];
  }
  return least;
})()"""
NAMELESS = """[...document.querySelectorAll(
  "a, button, input:not([type=hidden]), textarea, svg[role], [tabindex='0']")]
  .filter((each) => !(each.textContent.trim() || each.ariaLabel || each.labels?.length))
  .map((each) => each.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Run a browser."""
    with Browser() as running:
        yield running


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the state of a broken ring of 500 splits."""
    return a_ring(tmp_path_factory.mktemp("ring"))


@pytest.fixture(scope="module")
def address(state: Path) -> Iterator[str]:
    """Return the address of a console of that state."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        answers_here(monkeypatch, ask)
        more = partial(measured, SAMPLES_MAX)
        server = RestServer(state, log=context().log, runs=lambda: [RUN], metrics=more)
        for number in range(SAMPLES_MAX):
            server.samples.add(measured(number), time.time() - 15 * (SAMPLES_MAX - number))
        with serving(server) as where:
            yield f"http://127.0.0.1:{where.port}"


def measured(number: int) -> "Families":
    """Return sample *number* of the metrics of a job that publishes more and more."""
    timing = Timing()
    for ms in range(1, 40):
        timing.observe(ms * 3, times=number)
    published = 9_000.0 * number + 20_000 * math.sin(number / 9)
    return families(
        [
            counter("headrace_changes_total", "", [({"fate": "delivered"}, published)]),
            Measure("headrace_publish_seconds", "", Kind.HISTOGRAM, [({}, timing)]),
            gauge("headrace_lag_seconds", "", [({}, 1.5 + math.sin(number / 20))]),
            gauge("headrace_backlog_bytes", "", [({}, 4e6 + 1e6 * math.cos(number / 15))]),
        ]
    )


def path_of(name: str) -> str:
    """Return the path of a page."""
    return "/" if name == "overview" else f"/console/{name}"


def until(page: Page, condition: str) -> None:
    """Wait until something is so."""
    for _ in eventually():
        if page.run(condition):
            return
    raise AssertionError(condition)


def keep(page: Page, name: str) -> None:
    """Keep a picture of a page, if that is asked for."""
    if folder := os.environ.get("HEADRACE_SCREENSHOTS"):
        (Path(folder) / f"{name}.png").write_bytes(page.picture())


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pages_fit_and_can_be_read(
    browser: Browser, address: str, width: int, *, dark: bool
) -> None:
    """No page is wider than the window, all text has contrast, and nothing is forbidden."""
    page = browser.page(width, dark=dark)
    for name in TITLES:
        page.open(address + path_of(name))
        if name == "plots":
            until(page, "document.querySelectorAll('#plots canvas').length === 4")
        keep(page, f"{name}-{width}-{'dark' if dark else 'light'}")
        assert width >= page.run("document.scrollingElement.scrollWidth"), name
        least, element = page.run(CONTRAST)
        assert least >= 4.5, (name, element)
        assert [] == page.run(NAMELESS)
    assert [] == page.complaints()


def test_the_ring_is_drawn(browser: Browser, address: str) -> None:
    """What is not covered is where its tokens are, clockwise from the lowest one at the top."""
    page = browser.page(1280)
    page.open(f"{address}/")
    ring = page.run("fetch('/console/overview.json').then((found) => found.json())")["ring"]
    (hole,) = (arc for arc in ring["arcs"] if arc["state"] == "NOT COVERED")
    x, y = page.run(
        "(({x, y, width, height}) => [x + width / 2, y + height / 2])"
        "(document.querySelector('.hole').getBBox())"
    )

    middle = ((hole["from"] + hole["to"]) / 2 + 2**63) / 2**64
    assert middle == pytest.approx(math.atan2(x, -y) / math.tau % 1, abs=0.01)
    assert "NOT COVERED" in page.run("document.querySelector('#ring-table').textContent")


def test_by_keyboard(browser: Browser, address: str) -> None:
    """The first key leads to the content; a change is asked for, confirmed and done by keys."""
    page = browser.page(768)
    page.open(f"{address}/console/sources")
    page.press("Tab")
    assert "Skip to the content" == page.run("document.activeElement.textContent")
    page.press("Enter")
    assert "content" == page.run("document.activeElement.id")
    page.run("document.querySelector('.actions button').focus()")
    page.press("Enter")
    page.loaded()
    assert "Execute" == page.run("document.activeElement.textContent")
    keep(page, "confirm-768-light")
    page.press("Enter")
    page.loaded()
    assert "done" == page.run("document.querySelector('#live [role=status]').textContent.trim()")


def test_without_scripts(browser: Browser, address: str) -> None:
    """Pages have everything, and a statement is executed."""
    page = browser.page(768, scripts=False)
    page.open(f"{address}/console/plots")
    assert "Changes published" in text_of(page)
    page.open(f"{address}/console/statements?statement=SHOW%20STATUS")
    page.call("DOM.enable")
    root = page.call("DOM.getDocument")["root"]["nodeId"]
    button = page.call("DOM.querySelector", nodeId=root, selector="#live button.main")["nodeId"]
    page.call("DOM.focus", nodeId=button)
    page.press("Enter")
    page.loaded()
    assert "cdc.shop.orders" in text_of(page)


def text_of(page: Page) -> str:
    """Return the text of a page whose scripts do not run."""
    root = page.call("DOM.getDocument")["root"]["nodeId"]
    found: str = page.call("DOM.getOuterHTML", nodeId=root)["outerHTML"]
    return found


@pytest.mark.parametrize("width", WIDTHS)
def test_a_page_is_loaded_again_only_for_news(browser: Browser, state: Path, width: int) -> None:
    """It follows one stream, also after the server was away, and says so meanwhile."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        answers_here(monkeypatch, ask)
        monkeypatch.setattr(streams, "EVERY_SECONDS", 0.05)
        with serving(RestServer(state, log=context().log)) as where:
            page = browser.page(width)
            page.call("Page.bringToFront")
            page.open(f"http://127.0.0.1:{where.port}/console/configuration")
            page.run("window.before = document.querySelector('#live').firstElementChild; 1")
            until(page, "stream.readyState === 1")
            loads = (
                "performance.getEntriesByType('resource')"
                ".filter((each) => each.initiatorType === 'fetch').length"
            )
            asked = page.run(loads)
            assert page.run("window.before.isConnected")
        until(page, "document.querySelector('#fresh').textContent.startsWith('No answer since')")
        keep(page, f"away-{width}-light")
        assert 0 == asked == page.run(loads)


def test_it_stays_fresh(browser: Browser, address: str, state: Path) -> None:
    """What changes is shown and said soon, and what was opened and focused stays so."""
    overview = browser.page(768)
    overview.open(f"{address}/")
    page = browser.page(768)
    page.open(f"{address}/console/sources")
    page.run("document.querySelectorAll('details')[1].open = true")
    page.run("document.querySelector('dd a').focus()")
    focused = page.run("document.activeElement.getAttribute('href')")
    with contextlib.closing(open_notes(state)) as notes:
        commands = Commands(notes)
        commands.stop("cdc.shop.customers")
        until(page, "document.querySelector('.card').textContent.includes('Resume')")
        assert page.run("document.querySelectorAll('details')[1].open")
        assert focused == page.run("document.activeElement.getAttribute('href')")
        commands.drop_source("cdc.shop.customers")
    overview.call("Page.bringToFront")  # What is not visible is not kept fresh.
    until(overview, "document.querySelector('#news').textContent.startsWith('2 to look at')")
