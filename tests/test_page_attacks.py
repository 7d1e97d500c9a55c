"""Texts of models, tools, files and users run no script in any page, and make the browser ask nobody else."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio

import plait
from browser import Browser, Page
from hosted_blocks import FOUND, SAID, SEARCH
from lazily import skip_without
from mcp_support import HERE
from page_attacks import make_attacks
from plait.core import Think
from plait.journal.notes import Memory, MemoryNote, Notes
from plait.journal.results import Results
from plait.journal.store import Journal
from plait.view.html_file import render_html
from test_hosted_runs import Blocks, played
from window_support import action, answer, written

skip_without("server", "starlette", "uvicorn", "prometheus_client", "markdown_it", "nh3", "pygments")

from window_server import serving  # noqa: E402

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Attacker:
    """A server that counts who asks it."""

    def __init__(self) -> None:
        self.asked = 0

    async def listen(self) -> str:
        self._server = await asyncio.start_server(self._hear, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked += 1
        writer.close()

    def close(self) -> None:
        self._server.close()


@pytest_asyncio.fixture(loop_scope="module")
async def attacker() -> AsyncIterator[Attacker]:
    listening = Attacker()
    yield listening
    listening.close()


def hostile_agent(journal: Path, attacks: list[str]) -> plait.Agent:
    """An agent whose model writes each attack as a thought, a call and an answer, and whose tool returns it."""

    @plait.tool(read_only=True)
    def look(text: str, more: Any = None) -> str:
        "Looks."
        if len(text) % 3 == 0:
            raise plait.ToolError(text)
        return text

    def call(text: str) -> str:
        given = json.dumps({"action": "look", "action_input": {"text": text, "more": {text: [text]}}})
        return f"Thought: {text}\nAction:\n```json\n{given}\n```\n"

    script = [*map(call, attacks), answer("\n\n".join(attacks))]
    model = plait.Scripted(script, name=attacks[0])
    limits = plait.Limits(steps=2 * len(script))
    return plait.Agent("react", model=model, tools=(look,), journal=journal, limits=limits, name="plait")


def meddled_agent(journal: Path, attacks: list[str]) -> plait.Agent:
    """An agent whose plan has each attack as a task, and which gets each as a message while it works."""

    @plait.tool(read_only=True)
    async def look(ctx: plait.Context[None]) -> str:
        "Looks."
        for text in attacks:
            await agent.asend(ctx.run_id, text, by="".join(filter(str.isprintable, text))[:60])
        return "there"

    half = len(attacks) // 2
    tasks = [{"task": text, "state": "in_progress"} for text in attacks]
    plans = [{"name": "write_todos", "input": {"tasks": each}} for each in (tasks[:half], tasks[half:])]
    turns = [{"calls": [each]} for each in ({"name": "look", "input": {}}, *plans)]
    model = plait.Scripted([*turns, {"answer": "Done."}])
    agent = plait.Agent("tool_calling", model=model, tools=(look, "todo"), journal=journal)
    return agent


def hosting_agent(journal: Path, attacks: list[str]) -> plait.Agent:
    """An agent whose provider calls a tool with each attack, finds it as a page's title and address, and cites it."""

    def play(think: Think) -> tuple[Blocks, str]:
        blocks: Blocks = []
        for n, text in enumerate(attacks):
            pages = [{"type": "web_search_result", "url": url, "title": text} for url in (text, "https://a.example")]
            cited = [{"url": text, "title": text, "cited_text": text}]
            blocks += [{**SEARCH, "id": f"s{n}", "input": {"query": text, text: text}}]
            blocks += [{**FOUND, "tool_use_id": f"s{n}", "content": pages}, {**SAID, "text": text, "citations": cited}]
        return blocks, "end_turn"

    return plait.Agent("tool_calling", model=played(play), tools=["hosted:web_search"], journal=journal)


def asking_agent(journal: Path, attacks: list[str], folder: Path) -> plait.Agent:
    """An agent that calls a tool of an MCP server whose name is an attack, and which asks the user with all of them."""
    named = f"A={attacks[0]}"
    word = {"command": shlex.join(["env", named, sys.executable, str(HERE / "mcp_asks.py"), "log"]), "cwd": str(folder)}
    model = plait.Scripted([action("book", {"city": " ".join(attacks)}), answer("Booked.")])
    return plait.Agent("react", model=model, tools=[f"mcp:{json.dumps(word)}"], journal=journal)


async def assert_harmless(page: Page, url: str, attacker: Attacker, at: str) -> None:
    await asyncio.sleep(0.3)  # what a text may have begun
    assert await page.evaluate("window.ran") is None, at
    assert page.dialogs == [], at
    asked = [each for each in page.requests if not each.startswith((url, "data:image/", "about:blank"))]
    assert asked == [], at
    assert not any("logout" in each or "cancel" in each for each in page.requests), at
    live = ("script", "iframe", "object", "embed", "form[action]", "base", "meta", "link", "style", "video", "audio")
    assert await page.count(", ".join(f"main {each}" for each in live)) == 0, at
    marked = "[...document.querySelectorAll('*')].flatMap((each) => [...each.attributes]).filter((each) =>"
    assert await page.evaluate(f"{marked} each.name.startsWith('on')).length") == 0, at
    links = "[...document.links].map((each) => new URL(each.href).protocol)"
    assert set(await page.evaluate(links)) <= {"http:", "https:", "mailto:", "blob:", "file:"}, at
    assert attacker.asked == 0, at


async def test_no_text_runs_or_asks_in_any_view(
    browser: Browser, attacker: Attacker, journal: Path, tmp_path: Path
) -> None:
    host = await attacker.listen()
    attacks = list(make_attacks(host, "http://127.0.0.1:1").values())
    assert len(attacks) >= 60
    agent = hostile_agent(journal, attacks)
    run = (await agent.arun("\n".join(attacks))).id
    for n, text in enumerate(attacks):
        line = "".join(each for each in text if each.isprintable())
        one = plait.Agent("react", model=plait.Scripted([answer(text)], name=line), journal=journal)
        about: dict[str, Any] = {"user": line[:256], "tags": [line[:64]], "metadata": {line: text}}
        done = await one.arun(text, session=line if n % 2 else None, **about)
        await Results(Journal.at(journal).store).rate(done.id, good=False, why=text)
    notes = Notes(Journal.at(journal).store)
    for n, text in enumerate(attacks):
        note = MemoryNote(f"{n} {text}", text, outside=bool(n % 2))
        await notes.write(Memory(text if n % 3 else "", text), note, is_new=True)
    (meddled, hosted) = [
        await each.arun("Go.", session=name)
        for name, each in (("meddled", meddled_agent(journal, attacks)), ("hosted", hosting_agent(journal, attacks)))
    ]
    asked = await asking_agent(journal, attacks, tmp_path).arun("Go.", session="asked")
    assert asked.status == "waiting" and meddled.answer == "Done." and hosted.status == "answered"
    other = await written(journal, 2, observation=attacks[9], question=attacks[2], thought=attacks[3], run="other-run")
    with serving(agent, datasets=str(tmp_path / "datasets")) as server:
        for text in attacks:
            task = {"run": run, "question": text, "answer": text, "note": text}
            await asyncio.to_thread(server.ask, "POST", "/api/datasets/attacks", task)
        change = {"runs": [run, other], "change": {"instructions": "\n".join(attacks[:9])}}
        status, _, began = await asyncio.to_thread(server.ask, "POST", "/api/changes", change)
        assert status == 201, began
        _, _, found = await asyncio.to_thread(server.ask, "GET", "/api/conversations")
        sessions = [quote(each["session"], safe="") for each in found["conversations"]]
        assert len(sessions) > 10 and {"meddled", "hosted"} <= {*sessions}
        page = await browser.page()
        for at in (
            *("#/", "#/?words=window", f"#/?user={quote(attacks[0])}"),
            *(f"#/runs/{run}{view}" for view in ("", "/time", "/wire/2", "/wire/3")),
            *(f"#/runs/{other}", f"#/sides/{run}/{other}", "#/costs?by=user", "#/costs?by=tag", "#/comparisons"),
            *("#/review?words=window.ran", "#/datasets", "#/datasets/attacks", f"#/changes/{began['name']}"),
            "#/changes/new?user=x",
            *("#/memory", f"#/runs/{meddled.id}/wire/2", f"#/runs/{hosted.id}/wire/1"),
            *(f"#/runs/{each.id}{view}" for each in (meddled, hosted) for view in ("", "/time")),
            f"#/runs/{asked.id}",
            *("chat", *(f"chat#/{session}" for session in ("meddled", "hosted", "asked", *sessions[:5]))),
        ):
            await page.goto("about:blank")
            await page.goto(f"{server.url}/{at}")
            await page.wait_for("!!document.querySelector('main') && !document.querySelector('main[aria-busy]')")
            await assert_harmless(page, server.url, attacker, at)
            if "asked" in at or asked.id in at:
                await page.wait_for("document.querySelector('form.answer') !== null")
                assert "The MCP server env 'A=<script>window.ran=1</script>'" in await page.text("main")
            if at == f"#/runs/{meddled.id}":
                await page.wait_for(f"document.querySelectorAll('.meanwhile li').length === {len(attacks)}")
                await assert_harmless(page, server.url, attacker, at)
            shows = "window.ran" in await page.text("main")
            assert shows or at in ("#/comparisons", "#/datasets", "#/changes/new?user=x") or at.startswith("chat"), at
        await page.type("\n".join(attacks[:20]), "textarea")
        await page.press("Enter")
        await page.wait_for("!!document.querySelector('.turn:last-of-type .md')?.innerText")
        await assert_harmless(page, server.url, attacker, "the chat while it is written")
        await page.close()
    file = tmp_path / "run.html"
    file.write_text(render_html(Journal.at(journal).run(run), Journal.at(journal)), "utf-8", "surrogatepass")
    page = await browser.page()
    await page.goto(file.as_uri())
    await page.wait_for_selector(".step")
    await assert_harmless(page, file.as_uri(), attacker, "the file")
    await page.close()
