"""A browser for tests: Debian's chromium without a window, driven through the DevTools protocol.

    async with Browser.shared() as browser:
        page = await browser.page(width=390, dark=True)
        await page.goto("file:///tmp/page.html")
        assert page.problems == []

The fixture `browser` of `conftest.py` is such a browser. All tests of a process share one chromium, as its start costs
a second. The pages of a test have their own contexts, which are closed when the block is left. Everything waits for at
most `TIMEOUT` seconds and then raises `TimeoutError` that says what was waited for. Chromium is killed with all its
processes when the tests end, however that happens. Without chromium the test is skipped.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ctypes
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from browser_page import TIMEOUT, Page, ProtocolError

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""The first is there where chromium is packaged by Debian: the same browser without the windows around its pages."""
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--metrics-recording-only",
    "--mute-audio",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-port=0",
)


def found() -> str | None:
    """The path of the browser, None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def needed() -> str:
    """The path of the browser; skips the test, loudly, where there is none."""
    path = found()
    if path is None:
        pytest.skip("NOT CHECKED: there is no chromium (apt-get install chromium)")
    return path


class Chromium:
    """A process of chromium with a profile of its own, which is thrown away. Skips the test where there is none."""

    def __init__(self, *flags: str) -> None:
        program = needed()
        self.profile = Path(tempfile.mkdtemp(prefix="plait-browser-"))
        try:
            with (self.profile / "log").open("wb") as log:
                self.process = subprocess.Popen(
                    [program, *FLAGS, f"--user-data-dir={self.profile}", *flags, "about:blank"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=_die_with_parent,
                )
        except BaseException:
            shutil.rmtree(self.profile, ignore_errors=True)
            raise

    async def address(self) -> str:
        """Where DevTools listens, from the file that chromium writes when it does."""
        file, until = self.profile / "DevToolsActivePort", time.monotonic() + TIMEOUT
        while time.monotonic() < until:
            if self.process.poll() is not None:
                break
            with contextlib.suppress(OSError, ValueError):
                port, path = file.read_text().split("\n", 1)
                return f"ws://127.0.0.1:{int(port)}{path.strip()}"
            await asyncio.sleep(0.05)
        log = (self.profile / "log").read_text(errors="replace")[-2000:]
        raise TimeoutError(f"chromium did not start (exit {self.process.poll()}): {log}")

    def kill(self) -> None:
        """End all its processes and delete its profile."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        with contextlib.suppress(ProcessLookupError):  # Debian's program is a script, whose children end a moment later
            for _ in range(100):
                os.killpg(self.process.pid, 0)
                time.sleep(0.02)
        for _ in range(20):  # a process that is just being killed may still write
            shutil.rmtree(self.profile, ignore_errors=True)
            if not self.profile.exists():
                return
            time.sleep(0.1)


_shared: list[Chromium] = []
"""The chromium of this process, once a test has asked for one."""


def _share() -> Chromium:
    """The chromium of this process; a new one where that has ended."""
    if not _shared or _shared[-1].process.poll() is not None:
        _shared.append(Chromium())
        atexit.register(_shared[-1].kill)
    return _shared[-1]


class Browser:
    """A connection to a running chromium."""

    def __init__(self, process: subprocess.Popen[bytes], socket: aiohttp.ClientWebSocketResponse) -> None:
        self.process, self._socket = process, socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[str, asyncio.Future[dict[str, Any]]]] = {}
        self._pages: dict[str, Page] = {}
        self._reader = asyncio.create_task(self._read())

    @classmethod
    @contextlib.asynccontextmanager
    async def started(cls, *flags: str) -> AsyncIterator[Browser]:
        """Start a chromium; killed at the end."""
        chromium = Chromium(*flags)
        try:
            async with cls._connected(chromium) as browser:
                try:
                    yield browser
                finally:
                    with contextlib.suppress(Exception):
                        async with asyncio.timeout(5):
                            await browser.send("Browser.close")
        finally:
            await asyncio.to_thread(chromium.kill)

    @classmethod
    @contextlib.asynccontextmanager
    async def shared(cls) -> AsyncIterator[Browser]:
        """Connect to the chromium of this process; the pages are closed at the end."""
        async with cls._connected(_share()) as browser:
            try:
                yield browser
            finally:
                for page in browser._pages.values():
                    with contextlib.suppress(ProtocolError, ConnectionError):  # closed by the test, or dead
                        await page.close()

    @classmethod
    @contextlib.asynccontextmanager
    async def _connected(cls, chromium: Chromium) -> AsyncIterator[Browser]:
        address = await chromium.address()
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(address, max_msg_size=0, heartbeat=None) as socket,
        ):
            browser = cls(chromium.process, socket)
            try:
                yield browser
            finally:
                browser._reader.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await browser._reader

    async def page(self, *, width: int = 1440, height: int = 900, dark: bool = False, touch: bool = False) -> Page:
        """A new page in a context of its own: no cookies or storage are shared with other pages."""
        context = (await self.send("Target.createBrowserContext"))["browserContextId"]
        target = await self.send("Target.createTarget", url="about:blank", browserContextId=context)
        attached = await self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        page = self._pages[attached["sessionId"]] = Page(self, attached["sessionId"], context)
        for domain in ("Page", "Runtime", "Log", "Network", "DOM", "Accessibility"):
            await page.send(f"{domain}.enable")
        await page.viewport(width, height)
        await page.media(dark=dark)
        if touch:
            await page.send("Emulation.setTouchEmulationEnabled", enabled=True)
        return page

    async def send(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """One command of the protocol and what came of it."""
        number = next(self._numbers)
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (method, future)
        message = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        try:
            async with asyncio.timeout(TIMEOUT):
                await self._socket.send_str(json.dumps(message))
                return await future
        except TimeoutError:
            raise TimeoutError(f"{method} did not end within {TIMEOUT:.0f} s") from None
        finally:
            self._waiting.pop(number, None)

    async def _read(self) -> None:
        try:
            async for message in self._socket:
                if message.type is aiohttp.WSMsgType.TEXT:
                    self._take(json.loads(message.data))
        finally:
            for method, future in self._waiting.values():
                if not future.done():
                    future.set_exception(ProtocolError(f"the browser ended while it did {method}"))

    def _take(self, message: dict[str, Any]) -> None:
        if "id" not in message:
            page = self._pages.get(message.get("sessionId", ""))
            if page is not None:
                page._happened(message["method"], message["params"])
            return
        method, future = self._waiting.get(message["id"], ("", None))
        if future is None or future.done():
            return
        if "error" in message:
            future.set_exception(ProtocolError(f"{method}: {message['error'].get('message', message['error'])}"))
        else:
            future.set_result(message["result"])


def _die_with_parent() -> None:
    """The kernel kills chromium when the tests are killed, so that none is left over (PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
