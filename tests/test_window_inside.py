"""The viewer's pages to look inside: the table of runs, a run over time, search in a run, costs, calls, child runs."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import plait
import window_axe
from browser import Browser, Page
from lazily import skip_without
from plait import Scripted
from plait.journal.store import Journal
from plait.view.html_file import render_html
from test_window_pages import opened, shot, to
from window_support import HOSTILE, action, answer, react, send

skip_without("server", "starlette", "uvicorn", "prometheus_client")

from window_server import Here, serving  # noqa: E402

pytestmark = pytest.mark.asyncio(loop_scope="module")
INPUT = {"town": "Lyon", "note": HOSTILE, "options": {"days": [1, 2]}}


def draw_png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress((b"\0" + b"\x40" * 24) * 8)) + chunk(b"IEND", b"")


@plait.tool(read_only=True)
async def weather(town: str, note: str = "", options: dict[str, Any] | None = None) -> str:
    "The weather."
    return f"Sunny in {town}. {HOSTILE}"


@plait.tool(read_only=True)
def draw() -> plait.File:
    "Draws a picture."
    return plait.File.from_bytes(draw_png(), "chart.png")


def traveller(journal: Path) -> plait.Agent:
    """Calls two tools and another agent at once, then draws, then sends, which needs approval."""
    towns = [{"name": "weather", "input": {"town": town}} for town in ("Nice", "Oslo")]
    model = Scripted([{"calls": towns}, "No umbrella."])
    child = plait.Agent("tool_calling", model=model, tools=[weather], journal=journal, name="packer")
    script = [
        {"calls": [{"name": "weather", "input": INPUT}, {"name": "packer", "input": {"question": "What do I pack?"}}]},
        {"calls": [{"name": "draw", "input": {}}]},
        {"calls": [{"name": "send", "input": {"text": "hello"}}]},
        "Pack light.",
    ]
    tools = [weather, draw, send, child.as_tool("packer", "Packs.")]
    return plait.Agent(
        "tool_calling", model=Scripted(script), tools=tools, journal=journal, name="traveller", approve="effects"
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A journal, and the id of the traveller's run in it, which was approved."""
    journal = tmp_path_factory.mktemp("inside") / "journal.db"
    agent = traveller(journal)
    waits = agent.run("What should I pack?", user=HOSTILE[:150], tags=["<img src=x onerror='window.ran=1'>"])
    done = agent.resume(waits, "yes")
    assert done.status == "answered", done.reason
    plait.open_journal(journal).rate(done, good=False, why="It forgot the shoes.")
    return journal, done.id


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal with 131 runs: run n cost n cents, by three users."""
    journal = tmp_path_factory.mktemp("many") / "journal.db"
    react(journal, [answer("yes")]).run("Question 1?", user="user 1")
    with sqlite3.connect(journal) as connection:
        row = connection.execute("SELECT * FROM runs")
        names = [each[0] for each in row.description]
        first = dict(zip(names, row.fetchone(), strict=True))
        for n in range(1, 132):
            totals = json.loads(first["totals"]) | {"cost_usd": n / 100, "steps": n % 5 + 1}
            about = {"question": f"Question {n}?", "user": f"user {n % 3}"}
            head = json.loads(first["head"]) | about | {"run": f"run-{n:03}"}
            made = about | {"n": n, "id": f"run-{n:03}"}
            made |= {"totals": json.dumps(totals), "head": json.dumps(head), "started": time.time() - 131 + n}
            values = [(first | made)[name] for name in names]
            connection.execute(f"INSERT OR REPLACE INTO runs VALUES ({','.join('?' * len(names))})", values)
    return journal


@pytest.fixture(scope="module")
def server(run: tuple[Path, str]) -> Iterator[Here]:
    with serving(traveller(run[0])) as started:
        yield started


async def questions(page: Page) -> list[str]:
    found: list[str] = await page.evaluate("[...document.querySelectorAll('tr.run .asked')].map((td) => td.innerText)")
    return found


async def test_the_table_has_30_runs_on_a_screen_and_is_sorted_and_filtered_by_its_address(
    browser: Browser, many: Path
) -> None:
    with serving(react(many)) as server:
        page = await browser.page(width=1280, height=900)
        await page.goto(f"{server.url}/")
        await page.wait_for("document.querySelectorAll('tr.run').length === 40")
        seen = "filter((each) => each.getBoundingClientRect().bottom <= innerHeight).length"
        assert await page.evaluate(f"[...document.querySelectorAll('tr.run')].{seen}") >= 30
        await shot(page, "table")
        sorted_by = "((th) => th?.innerText + th?.ariaSort)(document.querySelector('th[aria-sort]'))"
        await page.click("thead th:nth-child(12) button")
        await page.wait_for(f"{sorted_by} === 'USDdescending'")
        assert (await questions(page))[:2] == ["Question 131?", "Question 130?"]
        await page.click("thead [aria-sort] button")
        await page.wait_for(f"{sorted_by} === 'USDascending' && location.hash === '#/?sort=-cost'")
        for count in (80, 120, 131):
            await page.click(".more-runs")
            await page.wait_for(f"document.querySelectorAll('tr.run').length === {count}")
        assert await questions(page) == [f"Question {n}?" for n in range(1, 132)]  # each once, over all pages
        await to(page, "?user=user+2&sort=cost&min_cost=1&words=question")
        assert await questions(page) == [f"Question {n}?" for n in range(131, 99, -3)]
        assert await page.count(".filter-chip") == 3
        await page.click(".filter-chip:last-child")
        await page.wait_for("document.querySelectorAll('.filter-chip').length === 2")
        assert "min_cost" not in await page.evaluate("location.hash") and len(await questions(page)) == 40
        await page.click("tr.run:nth-child(1) .pick input")
        await page.click("tr.run:nth-child(3) .pick input")
        assert "run-131/run-125" in await page.evaluate("document.querySelector('.selection a').getAttribute('href')")
        assert "Run a change" not in await page.text(".list-head")
        await page.wait_for("document.querySelector('.summary').innerText.startsWith('44 runs · ')")
        await to(page, "?user=user+1&sort=cost")  # what is not shown any more is not selected any more
        assert await page.count(".selection[hidden]") == 1 and await page.count("tr.run input:checked") == 0
        await page.click("tr.run:nth-child(2) td:last-child")  # the whole row leads to its run
        await page.wait_for("location.hash.startsWith('#/runs/run-127')")
        assert page.problems == []
        await page.close()


async def test_the_most_expensive_user_of_the_week_is_two_clicks_away(browser: Browser, many: Path) -> None:
    with serving(react(many)) as server:
        page = await opened(browser, server)
        await page.click("nav.pages a[href='#/costs']")
        await page.wait_for_selector(".cost-bar button")
        await page.click(".cost-bar .tabs:first-child button:nth-child(3)")  # User
        await page.wait_for("document.querySelector('.box tbody th')?.innerText === 'user 2'")
        assert "29.26 USD" in (await page.text(".box tbody tr")).replace("29.2600", "29.26")
        await shot(page, "costs")
        assert await page.count(".chart rect") == 3 and await window_axe.found(page, "moderate") == []
        days = "document.querySelectorAll('.chart text[text-anchor=middle]').length"
        assert await page.evaluate(days) == 7 and "neither graded" in await page.text(".sums")
        await page.click(".box thead th:nth-child(4) button")  # a head sorts, the largest first
        order = "[...document.querySelectorAll('.box tbody')[0].rows].map((row) => Number(row.cells[3].textContent))"
        now = "document.querySelector('.box [aria-sort$=ending]').ariaSort"
        assert await page.evaluate(order) == [44, 44, 43] and await page.evaluate(now) == "descending"
        await page.evaluate("document.querySelector('.box thead th:nth-child(4) button').focus()")
        await page.press("Enter")
        assert await page.evaluate(order) == [43, 44, 44] and await page.evaluate(now) == "ascending"
        await page.click(".legend a")  # and its runs
        await page.wait_for("document.querySelectorAll('tr.run').length === 40")
        assert (await questions(page))[0] == "Question 131?"
        await page.wait_for("document.querySelector('.summary').innerText === '44 runs · 29.26 USD'")
        await page.click("nav.pages a[href='#/costs']")  # it is as it was left
        await page.wait_for("document.querySelector('.box tbody th')?.innerText === 'user 2'")
        await to(page, "costs?by=user&measure=success&over=week&since=7d")
        await page.click(".figures summary")
        assert await page.count(".chart polyline") == 3 and "100 %" in await page.text(".figures")
        assert page.problems == []
        await page.close()


async def test_of_many_users_the_largest_have_a_picture_of_their_own(
    browser: Browser, many: Path, tmp_path: Path
) -> None:
    shutil.copy(many, tmp_path / "journal.db")
    with sqlite3.connect(tmp_path / "journal.db") as connection:
        connection.execute("UPDATE runs SET user = 'user ' || n")
    with serving(react(tmp_path / "journal.db")) as server:
        page = await opened(browser, server, "costs?by=user")
        await page.wait_for_selector(".chart svg + p + svg")
        assert await page.count(".legend a") == 6 and await page.count(".chart rect") == 7
        assert "All 131" in await page.text(".chart") and "together 9 %" in await page.text(".chart")
        assert "<1 %" in await page.text(".box tbody tr:last-child") and page.problems == []
        await page.close()


async def test_a_run_over_time_shows_its_parts_and_leads_to_each_request(
    browser: Browser, server: Here, run: tuple[Path, str]
) -> None:
    page = await opened(browser, server, f"runs/{run[1]}")
    await page.press("t")
    await page.wait_for("document.querySelectorAll('.waterfall .is-child .is-call').length === 2")
    assert (await page.evaluate("location.hash")).endswith("/time")
    rows = await page.evaluate(
        "[...document.querySelectorAll('.waterfall li')].map((li) => [li.className.split(' ')[0].slice(3),"
        "li.querySelector('.w-name bdi').textContent, li.querySelector('.w-bar').style.width])"
    )
    assert [kind for kind, *_ in rows].count("model") == 6 and ["wait", "waits for the user: approval"] in [
        row[:2] for row in rows
    ]
    assert all(width.endswith("%") for *_, width in rows)
    assert "tokens" in await page.evaluate("document.querySelector('.is-child > .w-line').textContent")
    assert await window_axe.found(page, "moderate") == []
    await shot(page, "waterfall")
    links = "[...document.querySelectorAll('.waterfall > li > ol > li.is-model .w-links')]"
    await page.evaluate(f"{links}[1].lastElementChild.click()")  # the difference
    await page.wait_for_selector(".exchange")
    assert "hello" not in await page.text("ins") and await page.count(".exact ins") > 0
    await page.evaluate("history.back()")
    await page.wait_for_selector(".waterfall .w-links a")
    await page.evaluate(f"{links}[1].firstElementChild.click()")  # the request
    await page.wait_for_selector(".exchange .message.fresh")
    assert page.problems == []
    await page.close()


async def test_a_run_that_goes_on_grows_over_time(browser: Browser, tmp_path: Path) -> None:
    go = asyncio.Event()

    @plait.tool(read_only=True)
    async def look() -> str:
        "Waits."
        await go.wait()
        return "seen"

    journal = tmp_path / "journal.db"
    with serving(react(journal)) as server:
        agent = react(journal, [action("look"), answer("done")], tools=(look,))
        task = asyncio.ensure_future(agent.arun("Over time?"))
        while not journal.exists() or not Journal.at(journal).runs(1):
            await asyncio.sleep(0.02)
        page = await opened(browser, server, f"runs/{Journal.at(journal).run('last').id}/time")
        await page.wait_for("document.querySelector('.is-call.is-running')?.textContent.includes('goes on')")
        go.set()
        await task
        await page.wait_for("document.querySelectorAll('.waterfall .is-model.is-done').length === 2")
        assert await page.count(".waterfall .is-running") == 0 and page.problems == []
        await page.close()


async def test_words_are_found_in_a_run_and_the_keys_go_from_place_to_place(
    browser: Browser, server: Here, run: tuple[Path, str]
) -> None:
    page = await opened(browser, server, f"runs/{run[1]}")
    await page.press("/")
    await page.wait_for("document.activeElement.id === 'search'")
    await page.type("lyon")
    await page.press("Enter")
    await page.wait_for("document.querySelectorAll('.hits li').length === 2")
    assert "1 of 2" in await page.text(".find") and await page.text(".hits mark") == "Lyon"
    assert await page.evaluate("document.querySelector('.is-found').dataset.kind") == "call"
    await page.press("Escape")
    await page.press("n")
    await page.wait_for("document.querySelector('.find').innerText.includes('2 of 2')")
    await page.press("N")
    await page.wait_for("document.querySelector('.find').innerText.includes('1 of 2')")
    assert await window_axe.found(page, "moderate") == [] and page.problems == []
    await page.close()


async def test_names_of_users_and_tags_stay_text_in_every_table(
    browser: Browser, server: Here, run: tuple[Path, str]
) -> None:
    page = await opened(browser, server)
    for at, what in (("", "tr.run"), ("costs?by=user", ".box tbody"), ("costs?by=tag", ".legend")):
        await to(page, at)
        assert "<script>window.ran" in await page.text(what) or "<img src=x" in await page.text(what), at
    await to(page, "costs?by=user")
    await page.click(".box tbody th a")  # the name is a filter
    await page.wait_for("document.querySelectorAll('tr.run').length === 1")
    assert "<script>window.ran" in await page.text(".filter-chips")
    await page.click(".filter-button")
    await page.wait_for_selector("#filter-user")
    assert await window_axe.found(page, "moderate") == []
    assert await page.count("main script, main img") == 0 and await page.evaluate("window.ran") is None
    assert page.problems == [] and page.dialogs == []
    assert all(each.startswith(server.url) for each in page.requests)
    await page.close()


async def test_calls_have_tables_pictures_and_the_steps_of_child_runs(
    browser: Browser, server: Here, run: tuple[Path, str], tmp_path: Path
) -> None:
    """On the server, and in a file without one."""
    file = tmp_path / "run.html"
    file.write_text(render_html(Journal(run[0]).run(run[1]), Journal(run[0])))
    for at in (f"{server.url}/#/runs/{run[1]}", file.as_uri()):
        page = await browser.page()
        await page.goto(at)
        await page.wait_for("document.querySelectorAll('.step').length === 4")
        assert await page.evaluate("document.querySelector('#step-1 .fields').querySelectorAll('dt').length") == 3
        assert "<script>window.ran" in await page.text("#step-1 .fields")
        await page.click("#step-1 .exact-input")
        assert json.loads(await page.text("#step-1 .fields pre")) == INPUT
        await page.wait_for("document.querySelector('#step-2 .pictures img')?.naturalWidth === 8")
        await page.click("details.child summary")
        await page.wait_for("document.querySelectorAll('details.child .step').length === 2")
        assert "No umbrella." in await page.evaluate("document.querySelector('details.child').textContent")
        assert "rated bad" in await page.text(".state") and "forgot the shoes" in await page.text(".outcome")
        await page.press("t")
        await page.wait_for("document.querySelectorAll('.waterfall .is-child .is-call').length === 2")
        await page.evaluate("document.querySelector('#search').value = 'nice'")
        await page.evaluate("document.querySelector('.find').requestSubmit()")
        await page.wait_for("document.querySelector('.find').innerText.includes('Nothing found')")
        assert await page.evaluate("window.ran") is None and page.problems == [] and page.dialogs == []
        allowed = (server.url, "data:", file.as_uri()) if at.startswith("http") else (file.as_uri(), "data:")
        assert all(each.startswith(allowed) for each in page.requests)
        await page.close()
