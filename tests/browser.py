"""A browser for tests: Debian's chromium without a window, driven through the DevTools protocol.

    async with Browser.started() as browser:
        page = await browser.page(width=390, dark=True)
        await page.goto("file:///tmp/page.html")
        assert page.problems == []

Everything waits for at most `TIMEOUT` seconds and then raises `TimeoutError` that says what was waited for. The browser
is killed with all its processes when the block is left, however that happens. Without chromium the test is skipped.
"""

from __future__ import annotations

import asyncio
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


class Browser:
    """A running chromium with a profile of its own, which is thrown away."""

    def __init__(self, process: subprocess.Popen[bytes], socket: aiohttp.ClientWebSocketResponse) -> None:
        self.process, self._socket = process, socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[str, asyncio.Future[dict[str, Any]]]] = {}
        self._pages: dict[str, Page] = {}
        self._reader = asyncio.create_task(self._read())

    @classmethod
    @contextlib.asynccontextmanager
    async def started(cls, *flags: str) -> AsyncIterator[Browser]:
        """Start it; killed at the end. Skips the test where there is no chromium."""
        program = needed()
        profile = Path(tempfile.mkdtemp(prefix="plait-browser-"))
        process = None
        try:
            with (profile / "log").open("wb") as log:
                process = subprocess.Popen(
                    [program, *FLAGS, f"--user-data-dir={profile}", *flags, "about:blank"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=_die_with_parent,
                )
            address = await _address(process, profile)
            async with (
                aiohttp.ClientSession() as session,
                session.ws_connect(address, max_msg_size=0, heartbeat=None) as socket,
            ):
                browser = cls(process, socket)
                try:
                    yield browser
                finally:
                    await browser._end()
        finally:
            await asyncio.to_thread(_kill, process, profile)

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

    async def _end(self) -> None:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(5):
                await self.send("Browser.close")
        self._reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reader


def _die_with_parent() -> None:
    """The kernel kills chromium when the tests are killed, so that none is left over (PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


async def _address(process: subprocess.Popen[bytes], profile: Path) -> str:
    """Where DevTools listens, from the file that chromium writes when it does."""
    file, until = profile / "DevToolsActivePort", time.monotonic() + TIMEOUT
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError, ValueError):
            port, path = file.read_text().split("\n", 1)
            return f"ws://127.0.0.1:{int(port)}{path.strip()}"
        await asyncio.sleep(0.05)
    log = (profile / "log").read_text(errors="replace")[-2000:]
    raise TimeoutError(f"chromium did not start (exit {process.poll()}): {log}")


def _kill(process: subprocess.Popen[bytes] | None, profile: Path) -> None:
    if process is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        with contextlib.suppress(ProcessLookupError):  # Debian's program is a script, whose children end a moment later
            for _ in range(100):
                os.killpg(process.pid, 0)
                time.sleep(0.02)
    for _ in range(20):  # a process that is just being killed may still write
        shutil.rmtree(profile, ignore_errors=True)
        if not profile.exists():
            return
        time.sleep(0.1)
