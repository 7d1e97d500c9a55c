"""What reaches a run while it works, on its page and in the chat: messages of users, and questions of an MCP server."""

from __future__ import annotations

import json
import shlex
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import plait
import window_axe
from browser import Browser, Page
from conftest import LOOKS
from lazily import skip_without
from mcp_support import HERE
from window_support import HOSTILE, action, answer

skip_without("server", "starlette", "uvicorn", "prometheus_client", "markdown_it", "nh3", "pygments")

from test_chat_page import has, ready  # noqa: E402
from test_window_pages import begun, ended, gate, gated, journal, opened, shot  # noqa: E402, F401
from window_server import serving  # noqa: E402

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def is_fine(page: Page, name: str, width: int, dark: bool) -> None:
    await shot(page, f"{name}-{width}-{'dark' if dark else 'light'}")
    assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, name
    assert await page.poor_contrast() == [], name
    assert await window_axe.found(page) == [], name
    assert page.problems == [], name


@pytest.mark.parametrize(("width", "dark"), LOOKS)
async def test_a_message_is_sent_on_the_page_of_a_run(
    browser: Browser,
    journal: Path,  # noqa: F811
    gate: threading.Event,  # noqa: F811
    width: int,
    dark: bool,
) -> None:
    with serving(gated(journal, gate)) as server:
        run = await begun(server)
        page = await opened(browser, server, f"runs/{run}", width=width, dark=dark)
        await page.wait_for("document.body.innerText.includes('look works')")
        await page.type(f"Hurry up. {HOSTILE}", "#message")
        await page.press("Enter")
        await has(page, "read before the next step", ".meanwhile")
        assert HOSTILE in await page.text(".meanwhile") and await page.evaluate("message.value") == ""
        await is_fine(page, "message", width, dark)
        gate.set()
        await page.wait_for("document.querySelector('.meanwhile .quiet').innerText === 'read'")
        await page.wait_for("document.querySelector('.composer').hidden")
        assert await page.evaluate("window.ran") is None
        await page.goto("about:blank")
        await page.goto(f"{server.url}/#/runs/{run}")
        await has(page, "Hurry up.", ".meanwhile")
        await is_fine(page, "message-end", width, dark)
        await page.close()


@pytest.mark.parametrize(("width", "dark"), LOOKS)
async def test_the_question_of_an_mcp_server_names_the_server(
    browser: Browser,
    journal: Path,  # noqa: F811
    tmp_path: Path,
    width: int,
    dark: bool,
) -> None:
    # The name is the command. It is markup.
    start = shlex.join(["env", "A=<img src=x onerror=window.ran=1>", sys.executable, str(HERE / "mcp_asks.py"), "log"])
    word = "mcp:" + json.dumps({"command": start, "cwd": str(tmp_path)})
    script: list[Any] = [action("book", {"city": HOSTILE}), answer("booked")]
    made = plait.Agent("react", model=plait.Scripted(script), tools=[word], journal=journal)
    with serving(made) as server:
        run = await begun(server, "Book.", session="trip")
        assert await ended(journal, run) == "waiting"
        page = await opened(browser, server, f"runs/{run}", width=width, dark=dark)
        named = "The MCP server env 'A=<img src=x onerror=window.ran=1>'"
        assert named in await page.text(".note.is-wait strong")
        await is_fine(page, "mcp-asks", width, dark)
        await page.goto(f"{server.url}/chat#/trip")
        await ready(page)
        await has(page, named, ".ask h3")
        assert (await page.text(".ask h3")).endswith("asks") and "<script>window.ran" in await page.text(".ask")
        await is_fine(page, "mcp-asks-chat", width, dark)
        await page.type("3", ".ask textarea")
        await page.click(".ask .main-act")
        await has(page, "booked", ".md")
        assert await page.evaluate("window.ran") is None and await page.count("main img") == 0
        await page.close()
