"""The pages with which people improve agents, in a real browser: fork and compare, a change over runs, review."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import plait
import window_axe
from browser import Browser, Page
from conftest import CAMPAIGN
from lazily import skip_without
from plait.core import Think
from test_forks import add, make_agent
from test_window_pages import opened, shot, to
from window_support import HOSTILE, react

skip_without("server", "starlette", "uvicorn", "prometheus_client")

from window_server import ALICE, BOB, FULL, USERS, serving  # noqa: E402

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def is_fine(page: Page, name: str) -> None:
    """Nothing went wrong, axe has nothing against the page, and nothing is wider than it."""
    assert page.problems == []
    assert await window_axe.found(page) == []
    assert await page.poor_contrast() == []
    await page.media(dark=True)
    assert await page.poor_contrast() == []
    await shot(page, f"improve-{name}-dark")
    await page.media(dark=False)
    for width in (390, 768, 1600) if CAMPAIGN else (390, 1280):
        await page.viewport(width, 900)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        await shot(page, f"improve-{name}-{width}")


async def test_improve_leads_each_role_to_the_pages_that_it_may_open(
    browser: Browser, journal: Path, tmp_path: Path
) -> None:
    places = {ALICE: "Comparisons", BOB: "Review Changes Data sets", FULL: "Review Changes Data sets Comparisons"}
    roles = {"alice": ["view"], "bob": ["use", "change"]}
    agent = make_agent("tool_calling", journal, name="plait")
    with serving(agent, users=USERS, roles=roles, tokens=(FULL,), datasets=str(tmp_path / "sets")) as server:
        for token, tabs in places.items():
            page = await browser.page()
            await page.goto(server.url)
            await page.wait_for_selector("#token")
            await page.type(token, "#token")
            await page.press("Enter")
            await page.wait_for_selector(".list-head")
            await page.click("nav.pages a[href='#/improve']")
            await page.wait_for_selector(".tabs a")
            assert " ".join((await page.text(".tabs")).split()) == tabs
            assert tabs.startswith(await page.text("h1")) and tabs.startswith(await page.text(".tabs [aria-current]"))
            assert await page.text("nav.pages [aria-current]") == "Improve" and page.problems == []
            await page.close()


async def test_a_result_is_edited_and_the_fork_is_seen_beside_the_original(browser: Browser, journal: Path) -> None:
    agent = make_agent("tool_calling", journal, name="plait", instructions="Be kind.")
    run = agent.run("What is 2 + 3?")
    with serving(agent) as server:
        page = await opened(browser, server, f"runs/{run.id}")
        await page.click(".observation button.act")
        await page.wait_for_selector("dialog[open] #fork-at")
        assert await page.evaluate("document.activeElement.value") == "5"
        assert await page.evaluate("document.querySelector('#fork-at').value") == "2"
        await shot(page, "fork-dialog")
        await page.evaluate(f"document.activeElement.value = {HOSTILE!r}")
        await page.evaluate("document.querySelector('#fork-instructions').value = 'Be brief.'")
        await page.evaluate("document.querySelector('dialog[open]').scrollTo(0, 0)")
        assert await window_axe.found(page) == []
        await page.click("dialog[open] .main-act")
        await page.wait_for("location.hash.startsWith('#/sides/')")
        await page.wait_for("!!document.querySelector('.took-table')")
        head = await page.text(".run-head")
        assert "Changed: the result of call 1.0" in head and "instructions:" in head, head
        assert "This was a trial: the agent plait itself is unchanged." in head
        assert await page.text(".run-head pre del") == "kind" and await page.text(".run-head pre ins") == "brief"
        assert "edited by the user of this fork" in await page.text(".side:last-child")
        await page.click(".side:last-child .step[data-step='2'] button.act")
        await page.wait_for_selector("dialog[open] ins")
        assert "kind" in await page.text("dialog[open] pre del") and await page.evaluate("window.ran") is None
        await shot(page, "requests")
        await page.evaluate("document.querySelector('dialog[open]').close()")
        await is_fine(page, "sides")
        await page.close()


async def test_a_change_is_run_over_runs_and_its_page_says_what_got_worse(
    browser: Browser, journal: Path, tmp_path: Path
) -> None:
    def reply(think: Think) -> str:
        asked = " ".join(each.content for each in think.messages)
        n = re.findall(r"Question (\d)", asked)[-1]
        return f"Thought: x\nFinal Answer: {9 if n == '3' and 'Think twice' in asked else n}"

    agent = react(journal, tools=(add,), name="plait", model=plait.Scripted(reply))
    for n in (1, 2, 3):
        agent.run(f"Question {n}?", user="ada")
    with serving(agent, datasets=str(tmp_path / "sets")) as server:
        for n in (1, 2, 3):
            server.ask("POST", "/api/datasets/numbers", {"question": f"Question {n}?", "answer": str(n)})
        page = await opened(browser, server, "?user=ada")
        await page.click("thead .pick input")
        assert await page.count(".list-head .buttons[hidden]") == 1  # one "Run a change": that of the selected runs
        await shot(page, "improve-selection")
        await page.click(".selection a.main-act")
        await page.wait_for("document.querySelector('.change')")
        assert "Run a change over 3 runs" in await page.text("h1")
        await page.evaluate("document.querySelector('#fork-instructions').value = 'Think twice.'")
        await is_fine(page, "change-new")
        assert (await page.text(".change .main-act")).startswith("Run 3 forks, ")
        await page.click(".change .main-act")
        await page.wait_for("document.body.innerText.includes('3 of 3 runs done')")
        await page.wait_for("document.body.innerText.includes('1 got worse, 0 better; too few to be sure.')")
        assert await page.text("h1") == "Change: instructions"
        text = await page.text("main")
        assert (
            "100 % before, 67 % after" in text and text.count("same") == 2 and "worse" in await page.text(".is-worse")
        )
        await is_fine(page, "change")
        await page.click(".is-worse a")
        await page.wait_for("document.body.innerText.includes('This change / side by side')")
        assert "They first differ" in await page.text("main") and "pair" in await page.text(".crumbs")
        await is_fine(page, "pair")
        await page.click(".first .buttons > a")
        await page.wait_for("document.querySelector('h1')?.innerText === 'Run a change over 3 runs'")
        assert await page.evaluate("document.querySelector('#fork-instructions').value") == "Think twice."
        await page.close()


async def test_answers_of_a_change_are_judged_on_its_page_and_kept_as_tests(
    browser: Browser, journal: Path, tmp_path: Path
) -> None:
    def reply(think: Think) -> str:
        asked = " ".join(each.content for each in think.messages)
        return f"Thought: x\nFinal Answer: The capital is {'Sydney' if 'Think twice' in asked else 'Canberra'}."

    agent = react(journal, tools=(add,), name="capitals", model=plait.Scripted(reply))
    runs = [agent.run(f"Question {n}? What is the capital of Australia?").id for n in (1, 2, 3)]
    with serving(agent, datasets=str(tmp_path / "sets")) as server:
        server.ask("POST", f"/api/runs/{runs[1]}/rating", {"good": False})
        body = {"change": {"instructions": "Think twice."}, "runs": runs}
        name = server.ask("POST", "/api/changes", body)[2]["name"]
        page = await opened(browser, server, f"changes/{name}")
        await page.wait_for("document.body.innerText.includes('3 of 3 runs done')")
        text = await page.text("main")
        assert "3 of 3 answered, 0 judged." in text and "Success" not in text
        assert text.count("different answer, not judged") == 2 and "was bad, not judged yet" in text
        assert await page.text(".pairs tr del") == "Canberra" and await page.text(".pairs tr ins") == "Sydney"
        assert "The agent capitals itself is unchanged" in text.replace("the agent", "The agent")
        await page.click(".pairs tbody tr:first-child td[data-side='Before'] .rate.good")
        await page.wait_for("document.querySelector('.chip')?.innerText.includes('rated good')")
        await page.click(".pairs tbody tr:first-child td[data-side='After'] .rate.bad")
        await page.wait_for("document.body.innerText.includes('1 got worse, 0 better; too few to be sure.')")
        await page.click(".run-head .buttons button:last-child")
        await page.wait_for_selector("dialog[open] #task-grader")
        await page.evaluate("document.querySelector('#task-grader').value = 'has'")
        assert await window_axe.found(page) == []
        await page.click("dialog[open] .main-act")
        await page.wait_for("document.querySelector('dialog[open]').innerText.includes('has 1 more question')")
        await page.press("Enter")
        await page.click(".pairs tbody tr:nth-child(2) .sign button")
        await page.wait_for_selector("dialog[open] #task-answer")
        assert await page.evaluate("document.querySelector('#task-answer').value") == ""  # it was rated bad
        assert await page.evaluate("document.querySelector('#task-grader').value") == "has"
        await page.evaluate("document.querySelector('dialog[open]').close()")
        (task,) = server.ask("GET", "/api/datasets/tests")[2]["tasks"]
        assert (task["answer"], task["grader"]) == ("The capital is Canberra.", "has")
        await is_fine(page, "judged")
        await page.close()


async def test_runs_are_reviewed_by_keys_and_kept_in_a_data_set(
    browser: Browser, journal: Path, tmp_path: Path
) -> None:
    agent = make_agent("tool_calling", journal, name="plait")
    for n in (1, 2, 3):
        agent.run(f"Question {n}? {HOSTILE if n == 1 else ''}")
    with serving(agent, datasets=str(tmp_path / "sets")) as server:
        page = await opened(browser, server, "review")
        await is_fine(page, "review")
        await page.press("g")
        await page.wait_for("document.body.innerText.includes('1 of 3 runs rated')")
        await page.press("a")
        await page.wait_for_selector("dialog[open] #task-answer")
        assert await page.evaluate("document.activeElement.value") == "Done."
        await page.type(" Really.")
        assert await window_axe.found(page) == []
        await page.click("dialog[open] .main-act")
        await page.wait_for("document.querySelector('dialog[open]').innerText.includes('has 1 more question')")
        await page.press("Enter")
        await page.type("It is wrong", "#review-comment")
        await page.click(".review-b")
        await page.wait_for("document.body.innerText.includes('2 of 3 runs rated')")
        await page.click("h2")
        await page.press("s")
        await page.wait_for("document.body.innerText.includes('Only skipped runs are left')")
        ratings = {each.rating for each in server.manager.journal.runs()}
        assert ratings == {"good", "bad", ""}
        await to(page, "datasets/tests")
        assert "Done. Really." in await page.evaluate("document.querySelector('.task textarea').value")
        assert "plait compare" in await page.text("header.run-head pre") and await page.evaluate("window.ran") is None
        await page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text }")
        await page.click("header.run-head .buttons button")
        assert await page.evaluate("window.copied === document.querySelector('header.run-head pre').innerText")
        await page.type("!", ".task textarea")
        await page.click(".task .buttons button")
        await page.wait_for("document.querySelector('.task textarea').value.endsWith('!')")
        await is_fine(page, "dataset")
        bad = next(each.head.run for each in server.manager.journal.runs() if each.rating == "bad")
        await to(page, f"runs/{bad}")
        await page.wait_for("document.querySelector('.rating')?.innerText.includes('It is wrong')")
        await page.click(".rate.good")
        await page.wait_for("document.querySelector('.rate.good').getAttribute('aria-pressed') === 'true'")
        await page.click(".rating summary")
        await page.type(", or not", ".rating textarea")
        assert await window_axe.found(page) == []
        await page.click(".rating form button")
        await page.wait_for("document.querySelector('.rated')?.innerText === 'It is wrong, or not'")
        assert not await page.evaluate("document.querySelector('.comment').open")
        await is_fine(page, "rated")
        await page.close()
