"""The run page shows the provider's calls, what the answer cites, and a broken prefix of the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import plait
import window_axe
from browser import Browser
from conftest import LOOKS
from hosted_blocks import FOUND, SAID, SEARCH
from lazily import skip_without
from plait.core import Think
from test_hosted_runs import Blocks, fetch, played

skip_without("server", "starlette", "uvicorn", "prometheus_client")

from test_window_pages import opened, shot  # noqa: E402
from window_server import serving  # noqa: E402

pytestmark = pytest.mark.asyncio(loop_scope="module")
PAGES = [
    {"type": "web_search_result", "url": "https://a.org/final", "title": "World Cup final 2026: <b>Spain</b> wins"},
    {"type": "web_search_result", "url": f"https://b.org/{'long/' * 40}", "title": "Match report"},
]


def play(think: Think) -> tuple[Blocks, str]:
    found = {**FOUND, "content": PAGES}
    if any(message.role == "tool" for message in think.messages):
        return [SEARCH, found, {**SAID, "text": "Spain won, **2 to 1**."}], "end_turn"
    call = {"type": "tool_use", "id": "t1", "name": "fetch", "input": {"key": "referee"}}
    return [{"type": "text", "text": "I look it up."}, SEARCH, found, call], "tool_use"


class Clock(plait.Hook):
    def before_model(self, context: Any, think: Think) -> Think:
        text = f"It is 10:{10 + len(think.messages)}. {think.messages[0].content}"
        return structs.replace(think, messages=(structs.replace(think.messages[0], content=text), *think.messages[1:]))


async def test_a_run_page_shows_hosted_calls_as_text_with_their_sources(browser: Browser, tmp_path: Path) -> None:
    tools = [fetch, "hosted:web_search"]
    agent = plait.Agent(
        "tool_calling", model=played(play, cached=5000), tools=tools, hooks=[Clock()], journal=tmp_path / "j.db"
    )
    run = await agent.arun("Who won the World Cup final?")
    assert run.answer == "Spain won, **2 to 1**."
    with serving(agent) as here:
        for width, dark in LOOKS:
            page = await opened(browser, here, f"runs/{run.id}", width=width, dark=dark)
            await page.wait_for('document.body.innerText.toLowerCase().includes("provider\'s call")')
            said = await page.text()
            assert "<b>Spain</b> wins" in said  # as text
            assert "breaks a prefix that the provider had cached" in said
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert await window_axe.found(page) == [] and await page.poor_contrast() == []
            assert page.problems == []
            await shot(page, f"hosted-{width}-{'dark' if dark else 'light'}")
            await page.close()
