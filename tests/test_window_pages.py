"""The window in a real browser: runs seen live, answered, forked, compared; narrow and wide, dark and light."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import plait
import window_axe
from browser import Browser, Page
from conftest import CAMPAIGN, LOOKS
from lazily import skip_without
from plait import Scripted
from plait.core.effects import Think
from plait.core.outcomes import Failed
from plait.journal.store import Journal
from plait.lab import acompare, load_comparison
from plait.lab.page import render_page
from plait.models.base import OnText, Request, Response
from window_support import HIDDEN, HOSTILE, Held, action, answer, codeact, population, react, rewoo, send, turn, written

skip_without("server", "starlette", "uvicorn", "prometheus_client")

from window_server import FULL, Here, serving  # noqa: E402

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHOTS = Path(os.environ["PLAIT_SHOTS"]) if "PLAIT_SHOTS" in os.environ else None
"""A folder to keep the screenshots in, for a person to look at."""
QUESTION = "How many people live in Lyon and Nice?"


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What a tool of the run waits for; opened at the end, so that no thread is left behind."""
    event = threading.Event()
    yield event
    event.set()


def gated(journal: Path, gate: threading.Event, **fields: Any) -> plait.Agent:
    """An agent whose second call does not come back before the gate is open."""

    @plait.tool(read_only=True)
    def look(town: str) -> str:
        "Looks at a town."
        assert gate.wait(300)
        return f"{town} is there"

    script = [
        action("population", {"town": "Lyon"}, "I need the first."),
        action("look", {"town": "Nice"}, "I look at the other."),
        answer("both are there"),
    ]
    return react(journal, script, tools=(population, look, send), **fields)


async def opened(browser: Browser, server: Here, at: str = "", **look: Any) -> Page:
    """A page of the server, filled."""
    page = await browser.page(**look)
    await page.goto(f"{server.url}/#/{at}")
    await page.wait_for("document.querySelector('main')?.hasAttribute('aria-busy') === false")
    return page


async def to(page: Page, at: str) -> None:
    """Another page, by its address."""
    await page.evaluate(f"location.hash = '#/{at}'")
    await asyncio.sleep(0.05)
    await page.wait_for("document.querySelector('main')?.hasAttribute('aria-busy') === false")


async def shot(page: Page, name: str) -> None:
    if SHOTS is not None:
        await page.screenshot(SHOTS / f"{name}.png")


async def begun(server: Here, question: str = QUESTION, **more: Any) -> str:
    """Start a run by the pages' own route; its id."""
    status, _, body = await asyncio.to_thread(
        server.ask, "POST", "/v1/runs", {"agent": "plait", "question": question, **more}
    )
    assert status == 202, body
    return str(body["run"])


async def ended(journal: Path, run: str) -> str:
    """Wait until the run has ended or waits; how."""
    for _ in range(2400):
        if (status := Journal.at(journal).run(run).status) != "running":
            return status
        await asyncio.sleep(0.05)
    raise TimeoutError(run)


async def test_a_run_is_seen_to_grow_step_by_step(browser: Browser, journal: Path, gate: threading.Event) -> None:
    with serving(gated(journal, gate)) as server:
        run = await begun(server)
        page = await opened(browser, server, f"runs/{run}")
        await page.wait_for("document.querySelectorAll('.step').length === 2")
        await page.wait_for("document.body.innerText.includes('look works')")
        assert "522250" in await page.text("#step-1")
        assert "running" in await page.text(".state")
        await shot(page, "running")
        await page.evaluate(
            """(window.drawn = 0, new MutationObserver((seen) => {
                drawn += seen.filter((each) => [...each.addedNodes].some((n) => n.querySelector(".cancel"))).length;
            }).observe(document.querySelector(".run-acts"), { childList: true }))"""
        )
        gate.set()
        await page.wait_for("document.querySelectorAll('.step').length === 3")
        await page.wait_for("document.querySelector('.state').innerText.includes('answered')")
        assert await page.text(".outcome") == "both are there"
        await page.wait_for("document.querySelector('#step-3').innerText.includes('The answer above')")
        assert (await page.text("main")).count("both are there") == 1
        assert await page.evaluate("drawn") == 0  # whoever presses a button meanwhile presses it, not one before it
        assert "Nice is there" in await page.text("#step-2")
        await page.wait_for("document.querySelector('#said').textContent.includes('answered')")
        assert page.problems == []
        await page.close()


class Late(Scripted):
    """Says nothing until somebody says `go`."""

    go = threading.Event()

    async def send(self, request: Request, think: Think, on_text: OnText | None = None) -> Response:
        await asyncio.to_thread(self.go.wait, 300)
        return await super().send(request, think, on_text)


async def test_before_a_models_first_word_its_seconds_are_counted(browser: Browser, journal: Path) -> None:
    model = Late([answer("522250")])
    with serving(react(journal, model=model)) as server:
        run = await begun(server)
        page = await opened(browser, server, f"runs/{run}")
        await page.wait_for("/no text yet · [1-9]\\d* s/.test(document.querySelector('#step-1')?.innerText)")
        model.go.set()
        await page.wait_for("document.querySelector('.state').innerText.includes('answered')")
        assert "no text yet" not in await page.text("main")
        assert page.problems == []
        await page.close()


async def test_what_a_tool_reports_of_its_progress_is_seen_while_it_works(browser: Browser, journal: Path) -> None:
    go = threading.Event()

    @plait.tool(read_only=True)
    def work(ctx: plait.Context[None]) -> str:
        """Work."""
        ctx.report_progress(f"half {HOSTILE}", {"done": 1})
        go.wait(300)
        return "worked"

    model = Scripted([action("work", {}), answer("over")])
    with serving(react(journal, model=model, tools=[work])) as server:
        run = await begun(server)
        page = await opened(browser, server, f"runs/{run}")
        await page.wait_for("document.querySelector('#step-1 .writing')?.innerText.includes('work: half <script>')")
        go.set()
        await page.wait_for("document.querySelector('.state').innerText.includes('answered')")
        assert await page.evaluate("document.querySelectorAll('.writing').length") == 0
        assert await page.evaluate("window.ran === undefined") and page.problems == []
        await page.close()


async def test_what_a_model_writes_is_seen_before_its_reply_is_whole(browser: Browser, journal: Path) -> None:
    thought = f"I look at Lyon. {HOSTILE} And then, when all that is done, I look at Nice, which I must not forget."
    model = Held([action("population", {"town": "Lyon"}, thought), answer("522250")])
    with serving(react(journal, model=model)) as server:
        run = await begun(server)
        page = await opened(browser, server, f"runs/{run}")
        await page.wait_for(
            "document.querySelector('#step-1 .writing')?.innerText.includes('I look at Lyon. <script>')"
        )
        assert "is writing" in await page.text("#step-1")
        assert "must not forget" not in await page.text("#step-1")
        await shot(page, "writing")
        model.go.set()
        await page.wait_for("document.querySelector('#step-1').innerText.includes('must not forget')")
        await page.wait_for("document.querySelector('#step-1 .writing') === null")
        await page.wait_for("document.querySelector('#step-2 .writing') !== null")
        model.go.set()
        await page.wait_for("document.querySelector('.state').innerText.includes('answered')")
        assert await page.evaluate("document.querySelectorAll('.writing').length") == 0
        assert await page.evaluate("window.ran === undefined")
        assert page.problems == []
        await page.close()


async def test_a_run_graded_wrong_does_not_look_right(browser: Browser, journal: Path) -> None:
    tasks = [{"question": f"How many live in {town}?", "answer": n} for town, n in (("Lyon", 522250), ("Nice", 348085))]
    await acompare(tasks, loops="react", models=[Scripted([answer("522250")] * 2)], journal=journal)
    with serving(react(journal)) as server:
        page = await opened(browser, server)
        for end, mark in (("answered", "right"), ("wrong", "wrong")):
            assert await page.count(f"tr.run .chip.is-{end}:first-child") == 1
            assert await page.count(f"tr.run:has(.is-{end}) .chip[aria-label='graded {mark}']") == 1
        await page.click("tr.run:has(.is-wrong) a")
        await page.wait_for("document.querySelector('.outcome.is-wrong') !== null")
        assert "answered, graded wrong" in await page.text(".state") and "348085" in await page.text(".outcome")
        assert await window_axe.found(page) == []
        assert page.problems == []
        await page.close()


@pytest.mark.parametrize("loop", ["tool_calling", "react", "json"])
async def test_every_loop_streams_its_answer_to_the_page(browser: Browser, journal: Path, loop: str) -> None:
    text = "Lyon has 522,250 people, which is more than Nice has; and that is all there is to say."
    written = {"react": answer(text), "json": json.dumps({"thought": "", "tool": "final_answer", "tool_input": text})}
    model = Held([written.get(loop, text)])
    with serving(react(journal, loop=loop, model=model)) as server:
        page = await opened(browser, server, f"runs/{await begun(server)}")
        await page.wait_for("document.querySelector('#step-1 .writing')?.innerText.includes('Lyon has')")
        shown = await page.text("#step-1")
        assert "is writing" in shown and "no text yet" not in shown and "to say" not in shown
        model.go.set()
        await page.wait_for("document.querySelector('.state').innerText.includes('answered')")
        assert (await page.text("main")).count("Lyon has") == 1
        assert page.problems == []
        await page.close()


async def test_the_list_has_live_runs_on_top_and_hears_of_their_end(
    browser: Browser, journal: Path, gate: threading.Event
) -> None:
    await react(journal).arun("An earlier question")
    with serving(gated(journal, gate)) as server:
        page = await opened(browser, server)
        await page.wait_for("document.querySelectorAll('tr.run').length === 1")
        run = await begun(server)  # the list is told of it
        await page.wait_for("document.querySelectorAll('tbody.live tr.run').length === 1")
        gate.set()
        await ended(journal, run)
        await page.wait_for("document.querySelectorAll('tbody.all tr.run').length === 2")
        assert await page.count("tbody.live tr.run") == 0
        assert page.problems == []
        await page.close()


async def test_a_run_of_another_process_is_seen_as_well(browser: Browser, journal: Path) -> None:
    """Nothing of the run passes the server: it is performed beside it and only written to the journal."""
    hold = asyncio.Event()

    @plait.tool(read_only=True)
    async def look() -> str:
        "Waits."
        await hold.wait()
        return "seen"

    with serving(react(journal)) as server:
        other = react(journal, [action("look"), answer("done")], tools=(look,))
        task = asyncio.ensure_future(other.arun("Another's?"))
        while not journal.exists() or not Journal.at(journal).runs(1):
            await asyncio.sleep(0.02)
        page = await opened(browser, server, f"runs/{Journal.at(journal).run('last').head.run}")
        await page.wait_for("document.body.innerText.includes('look works')")
        hold.set()
        await page.wait_for("document.querySelector('.outcome').innerText === 'done'")
        await task
        assert page.problems == []
        await page.close()


async def test_a_waiting_call_is_approved_and_refused_with_a_reason(browser: Browser, journal: Path) -> None:
    script = [action("send", {"text": "hello"}), action("send", {"text": "again"}), answer("one was sent")]
    with serving(react(journal, script, approve="effects")) as server:
        run = await begun(server)
        assert await ended(journal, run) == "waiting"
        page = await opened(browser, server, f"runs/{run}")
        await shot(page, "waiting")
        await page.wait_for_selector("form.answer .approve")
        await page.click("form.answer .approve")
        await page.wait_for("document.body.innerText.includes('sent: hello')")
        await page.wait_for("document.querySelectorAll('#step-2 form.answer').length === 1")
        assert await page.count("#step-2 form.answer textarea") == 0  # nothing that "Approve" could leave out
        await page.click("#step-2 form.answer .refuse")
        await page.type("Not twice, please.", "#step-2 form.answer textarea")
        await shot(page, "refusing")
        await page.click("#step-2 form.answer .refuse")
        await page.wait_for("document.querySelector('.outcome').innerText === 'one was sent'")
        assert "Not twice, please." in await page.text("#step-2")
        assert "sent: again" not in await page.text()
        assert page.problems == []
        await page.close()


async def test_inputs_are_changed_field_by_field_and_old_and_new_stay_visible(browser: Browser, journal: Path) -> None:
    @plait.tool
    def refund(order: str, amount: float, notify: bool, lines: list[str]) -> str:
        """Pays money back."""
        return f"{amount} for {order}, {notify}, {lines}"

    given = {"order": "A-1", "amount": 49.9, "notify": False, "lines": ["hat"]}
    script = [action("refund", given), answer("it was **paid**")]
    with serving(react(journal, script, tools=[refund], approve="effects")) as server:
        run = await begun(server, user="Ada", tags=["shop"])
        assert await ended(journal, run) == "waiting"
        page = await opened(browser, server, f"runs/{run}", width=390)
        await page.wait_for_selector("form.answer .approve")
        assert "refund: Pays money back." in (asked := await page.text(".is-wait")) and "by Ada" in asked
        await page.evaluate("document.querySelector('.run-acts .main-act').click()")  # "Answer it"
        head, bar = [f"document.querySelector('{each}').getBoundingClientRect()" for each in ("#step-1 h3", ".top")]
        assert await page.evaluate(f"{head}.top >= {bar}.bottom")
        await shot(page, "approval-390")
        await page.evaluate(press_in_form("Change"))
        await page.evaluate("document.querySelector('form.answer input').value = ''")
        await page.type("1,000", "form.answer input")
        await page.press("Enter")
        await page.wait_for("document.querySelector('form.answer .problem')?.innerText.includes('write 1000 or 1.0')")
        await shot(page, "fields-390")
        assert await window_axe.found(page) == []
        await page.evaluate("document.querySelector('form.answer input').value = ''")
        await page.type("39,9", "form.answer input")
        assert await page.count("form.answer .problem") == 0
        await page.evaluate("document.querySelector('form.answer select').value = 'true'")
        await page.evaluate(press_in_form("As JSON"))
        area = "document.querySelector('form.answer textarea').value"
        changed = given | {"amount": 39.9, "notify": True}
        assert json.loads(await page.evaluate(area)) == changed
        await page.evaluate(f"{area} = '{{amount: 1}}'")
        await page.click("form.answer .main-act")
        await page.wait_for("document.querySelector('form.answer .problem')?.innerText.includes('must be JSON')")
        await page.evaluate(f"{area} = {json.dumps(json.dumps(changed))}")
        await page.click("form.answer .main-act")
        await page.wait_for("document.querySelector('.outcome strong')?.innerText === 'paid'")
        await page.wait_for("document.querySelector('#step-1').innerText.includes('39.9 for A-1, True')")
        again = await opened(browser, server, f"runs/{run}", dark=True)
        for each in (page, again):  # the same when it is drawn at once
            shown = await each.text("#step-1")
            assert "was approved with changes" in shown and "Changed by the user" in shown
            assert [await each.text(f".fields {tag}") for tag in ("del", "ins")] == ["49.9", "39.9"]
            assert shown.index("was approved with changes") < shown.index("39.9 for A-1")
        assert "Ada" in (about := await again.text(".beside")) and "shop" in about
        assert "approve\neffects" in about and "more with the default value" in about and "can_ask" not in about
        await again.evaluate("document.querySelector('.beside dd > details:has(.settings) summary').click()")
        assert "can_ask\ntrue" in await again.text(".beside")
        await again.evaluate("document.querySelector('.outcome .act').click()")
        assert "**paid**" in await again.text(".outcome")
        await again.click(".rate.bad")
        await again.wait_for("document.querySelector('.state .chip').innerText.includes('rated bad')")
        await shot(again, "approved-dark")
        assert await window_axe.found(again) == []
        await again.close()
        assert page.problems == []
        await page.close()


def press_in_form(words: str) -> str:
    return f"[...document.querySelectorAll('form.answer button')].find((b) => b.textContent === {words!r}).click()"


async def test_a_question_is_replied_to_by_the_keyboard(browser: Browser, journal: Path) -> None:
    script = [turn("ask_user", "Which town?"), turn("final_answer", {"answer": "Lyon it is"})]
    with serving(react(journal, script, loop="json")) as server:
        run = await begun(server)
        assert await ended(journal, run) == "waiting"
        page = await opened(browser, server, f"runs/{run}")
        await page.wait_for_selector("form.answer")
        await page.press("a")
        assert await page.evaluate("!!document.activeElement.closest('form.answer')")
        await page.type("Lyon")
        await asyncio.sleep(1)  # events that come meanwhile leave what is being written
        assert await page.evaluate("document.querySelector('form.answer textarea').value") == "Lyon"
        await page.press("Tab")
        await page.press("Enter")
        await page.wait_for("document.querySelector('.outcome').innerText === 'Lyon it is'")
        await page.close()


async def test_a_plan_is_edited_before_it_is_carried_out(browser: Browser, journal: Path) -> None:
    with serving(rewoo(journal).using(approve="plan")) as server:
        run = await begun(server)
        assert await ended(journal, run) == "waiting"
        page = await opened(browser, server, f"runs/{run}")
        await page.wait_for_selector("form.answer .approve")
        await page.evaluate(press_in_form("Change"))
        text = await page.evaluate("document.querySelector('form.answer textarea').value")
        assert '"Lyon"' in text
        edited = text.replace('"Lyon"', '"Nice"')
        await page.evaluate(f"document.querySelector('form.answer textarea').value = {edited!r}")
        await page.click("form.answer .main-act")
        await page.wait_for("document.querySelector('.state').innerText.includes('answered')")
        assert "522250" not in await page.text(".steps")
        assert await page.count(".plan svg rect") == 3
        assert page.problems == []
        await page.close()


async def test_a_fork_begins_from_the_step_that_was_chosen(browser: Browser, journal: Path) -> None:
    with serving(react(journal)) as server:
        run = await begun(server)
        await ended(journal, run)
        page = await opened(browser, server, f"runs/{run}")
        await page.click("#step-2 .step-acts button")
        await page.wait_for_selector("dialog[open] #fork-at")
        assert await page.evaluate("document.querySelector('#fork-at').value") == "2"
        await shot(page, "fork")
        await page.click("dialog[open] .main-act")
        await page.wait_for(f"location.hash.startsWith('#/sides/{run}/')")
        await page.wait_for("document.querySelector('.side:last-child')?.innerText.includes('answered')")
        child = Journal.at(journal).run("last").head
        assert (child.parent, child.fork_at) == (run, 2)
        await to(page, f"runs/{child.run}")
        assert "side by side" in await page.text(".beside")
        assert page.problems == []
        await page.close()


async def test_a_fork_may_have_other_models_for_single_phases(browser: Browser, journal: Path, tmp_path: Path) -> None:
    script = tmp_path / "other.json"
    script.write_text(json.dumps(["The other one says 7."]))
    with serving(rewoo(journal)) as server:
        run = await begun(server)
        assert await ended(journal, run) == "answered"
        page = await opened(browser, server, f"runs/{run}")
        await page.click(".step .step-acts button")
        await page.wait_for_selector("dialog[open] #fork-models")
        await page.click("dialog[open] details:has(#fork-models) > summary")
        await page.type("nonsense", "#fork-models")
        await page.click("dialog[open] .main-act")
        await page.wait_for_selector("dialog[open] .problem")
        assert "written as phase=model" in await page.text("dialog .problem")
        await page.evaluate(f"document.querySelector('#fork-models').value = 'solve=scripted:{script}'")
        await page.click("dialog[open] .main-act")
        await page.wait_for("document.querySelector('.side:last-child')?.innerText.includes('says 7')")
        child = Journal.at(journal).run("last").head
        assert child.models["solve"]["spec"].endswith("other.json")
        assert child.models[""]["spec"] == "scripted:scripted"
        await page.close()


async def test_a_fork_that_cannot_be_is_told_in_the_dialog(browser: Browser, journal: Path) -> None:
    with serving(react(journal)) as server:
        run = await begun(server)
        await ended(journal, run)
        page = await opened(browser, server, f"runs/{run}")
        await page.click("#step-2 .step-acts button")
        await page.wait_for_selector("dialog[open] #fork-at")
        await page.evaluate("document.querySelector('#fork-at').value = 99")
        await page.click("dialog[open] .main-act")
        await page.wait_for_selector("dialog[open] .problem")
        assert "no step 99" in await page.text("dialog .problem")
        await page.close()


async def test_the_wire_of_a_step_shows_what_is_new(browser: Browser, journal: Path) -> None:
    run = await react(journal).arun(QUESTION)
    with serving(react(journal)) as server:
        page = await opened(browser, server, f"runs/{run.id}")
        await page.click("#step-2 .step-acts a")
        await page.wait_for_selector(".exchange")
        marks = await page.evaluate("[...document.querySelectorAll('.message .mark')].map((each) => each.textContent)")
        assert marks == ["as before", "as before", "new", "new"]
        assert "Headers are not on record" in await page.text(".run-head")
        await shot(page, "wire")
        await page.click(".tabs button[data-view=whole]")
        new = await page.evaluate(
            "[...document.querySelectorAll('.exact ins')].map((each) => each.textContent).join('')"
        )
        assert "522250" in new and "system" not in new
        await page.evaluate("document.querySelectorAll('.fold').forEach((each) => each.click())")
        sent = next(row.body for row in run.trace if row.seq == 5)
        assert sent is not None
        whole = await page.evaluate(
            "[...document.querySelector('.exact').querySelectorAll('del')].forEach((each) => each.remove()),"
            "document.querySelector('.exact').textContent"
        )
        assert whole == sent.decode()
        status, _, raw = await asyncio.to_thread(server.ask, "GET", f"/api/runs/{run.id}/wire/5")
        assert (status, raw) == (200, sent.decode())
        assert page.problems == []
        await page.close()


async def test_two_runs_are_chosen_and_their_first_difference_is_marked(browser: Browser, journal: Path) -> None:
    await react(journal).arun(QUESTION)
    other = [action("population", {"town": "Lyon"}, "I need both towns."), answer("about half a million")]
    await react(journal, other).arun(QUESTION)
    with serving(react(journal)) as server:
        page = await opened(browser, server)
        await page.click("tr.run:nth-child(1) .pick input")
        await page.click("tr.run:nth-child(2) .pick input")
        await page.click(".selection a")
        await page.wait_for_selector(".sides .differs")
        assert "in step 2, what the model said" in await page.text("[aria-label='First difference']")
        assert await page.count(".differs") == 2
        assert await page.evaluate("[...document.querySelectorAll('.alike')].map((each) => each.dataset.step)") == [
            "1",
            "1",
        ]
        await shot(page, "sides")
        assert page.problems == []
        await page.close()


async def test_runs_are_searched_and_filtered(browser: Browser, journal: Path) -> None:
    await react(journal).arun("Where is the Ärmelkanal?")
    await rewoo(journal).arun("How many people live there?")
    with serving(react(journal)) as server:
        page = await opened(browser, server)
        await page.press("/")
        await page.wait_for("document.activeElement.id === 'search'")
        await page.send("Input.insertText", text="ärmelKANAL where")
        await page.press("Enter")
        await page.wait_for("document.querySelectorAll('tr.run').length === 1")
        assert "Ärmelkanal" in await page.text("tr.run")
        await to(page, "?loop=rewoo")
        await page.wait_for("document.querySelectorAll('tr.run').length === 1")
        assert "rewoo" in await page.text("tr.run")
        await page.click(".filter-button")
        await page.wait_for_selector("#filter-loop")
        await page.evaluate("document.querySelector('#filter-loop').focus()")
        for wanted in ("?loop=react", ""):  # each key chooses at once; whoever chooses so goes on at the same place
            await page.press("ArrowUp")
            drawn = f"location.hash === '#/{wanted}' && !document.querySelector('#main[aria-busy]')"
            # The list of before stands until the new one is there, and a key pressed then goes with it.
            items = "[...document.querySelectorAll('tr.run')]"
            names = f"{items}.map((each) => each.innerText.match(/react|rewoo/)[0]).sort().join()"
            await page.wait_for(f"{drawn} && {names} === '{'react' if wanted else 'react,rewoo'}'")
            await page.wait_for("document.activeElement.id === 'filter-loop'")
        assert await page.evaluate("!document.querySelector('#filters').hidden")
        await to(page, "?words=870335")  # the answer is searched as well
        await page.wait_for("document.querySelectorAll('tr.run').length === 2")
        await page.close()


async def test_a_run_is_cancelled_and_gone_on_with(browser: Browser, journal: Path, gate: threading.Event) -> None:
    with serving(gated(journal, gate)) as server:
        page = await opened(browser, server, f"runs/{await begun(server)}")
        await page.wait_for_selector(".cancel")
        await page.wait_for("document.body.innerText.includes('look works')")
        await page.click(".cancel")
        await page.wait_for("document.querySelector('.state').innerText.includes('cancelled')")
        gate.set()
        await page.click(".resume")
        await page.wait_for("document.querySelector('.outcome').innerText === 'both are there'")
        assert page.problems == []
        await page.close()


async def test_hostile_texts_are_text_and_run_nothing(browser: Browser, journal: Path) -> None:
    @plait.tool(read_only=True)
    def hostile(x: str) -> str:
        "Says terrible things."
        return f"{HOSTILE}\n{HIDDEN}"

    script = [action("hostile", {"x": HOSTILE}, f"thought {HOSTILE}"), answer(f"answer {HOSTILE}")]
    agent = react(journal, script, tools=(hostile,), model=Scripted(script, name=f"m{HOSTILE}"))
    await agent.arun(f"question {HOSTILE}\u202e")
    await written(
        journal, 1, observation="x" + HIDDEN, outcome=Failed(HOSTILE), question=HOSTILE, run=f"r'{HOSTILE[:40]}"
    )
    with serving(react(journal)) as server:
        run = Journal.at(journal).runs(9)[-1].head.run
        page = await opened(browser, server)
        assert HOSTILE[:40] in await page.text("tr.run .asked")
        for at in (f"runs/{run}", f"runs/{run}/wire/2", f"sides/{run}/{run}"):
            await to(page, at)
            assert "<script>window.ran" in await page.text("main")
        await to(page, f"runs/{run}")
        assert "U+202E" in await page.text("#step-1") and "U+001B" in await page.text("#step-1")
        assert await page.evaluate("window.ran") is None
        assert await page.count("main script, main img, main a[href^=javascript]") == 0
        assert page.dialogs == [] and page.problems == []
        assert all(each.startswith(server.url) for each in page.requests if not each.startswith("data:"))
        await page.close()


async def test_a_long_run_and_a_large_result_do_not_hold_the_page_up(browser: Browser, journal: Path) -> None:
    steps, characters = (500, 10_000_000) if CAMPAIGN else (100, 1_000_000)
    line = "0123456789" * (characters // 10)
    long = await written(journal, steps, observation="word " * 200)
    huge = await written(journal, 1, observation=line, run="20260101-000001-hugeee")
    with serving(react(journal)) as server:
        page = await browser.page()
        await page.goto(f"{server.url}/#/")
        # The longest that the page did not answer, told by a clock of its own.
        await page.evaluate(
            "(() => { let last = performance.now(); window.held = 0; setInterval(() => { const now = performance.now();"
            " window.held = Math.max(window.held, now - last); last = now; }, 10); })()"
        )
        await to(page, f"runs/{long}")
        await page.wait_for(f"document.querySelectorAll('.step').length === {steps}")
        await page.press("e")
        assert await page.evaluate("document.activeElement.closest('.step').id") == f"step-{steps}"
        await to(page, f"runs/{huge}")
        assert len(await page.text("#step-1")) < 5_000
        await page.evaluate("[...document.querySelectorAll('.observation .more button')].at(-1).click()")
        await page.wait_for(f"document.querySelector('.observation .whole')?.textContent.length >= {characters}")
        shown = await page.evaluate("document.querySelector('.observation .whole pre').textContent")
        assert shown == line
        held = await page.evaluate("window.held")
        print(f"the page was held up for {held:.0f} ms at most")
        assert held < 5_000  # on a busy machine; alone it is some hundred
        assert page.problems == []
        await page.close()


async def test_no_character_is_lost_where_a_long_text_is_read_on(browser: Browser, journal: Path) -> None:
    whole = "\N{SLIGHTLY SMILING FACE}" * 6_000 + "the end"
    run = await written(journal, 1, observation=whole)
    with serving(react(journal)) as server:
        page = await opened(browser, server, f"runs/{run}")
        await page.evaluate("[...document.querySelectorAll('.observation .more button')].at(-1).click()")
        await page.wait_for("document.querySelector('.observation .whole')?.textContent.includes('the end')")
        assert await page.evaluate("document.querySelector('.observation .whole pre').textContent") == whole
        assert page.problems == []
        await page.close()


async def test_a_page_that_was_left_listens_to_nothing_more(
    browser: Browser, journal: Path, gate: threading.Event
) -> None:
    with serving(gated(journal, gate)) as server:
        run = await begun(server)
        page = await opened(browser, server, "costs")
        await page.evaluate(
            """(() => {
                const asked = fetch, Source = EventSource;
                Object.assign(window, { held: [], sources: [], holds: false });
                window.fetch = async (path, options) => {
                    const reads = !options.method && /^api[/]runs[/][^/?]+$/.test(path);
                    if (holds && reads) await new Promise((go) => held.push(go));
                    return asked(path, options);
                };
                window.EventSource = class extends Source { constructor(at) { super(at); sources.push(this); } };
            })()"""
        )
        await to(page, f"runs/{run}")
        await page.wait_for_selector("button.cancel")
        await page.evaluate("window.holds = true")
        await page.click("button.cancel")
        await page.wait_for("held.length === 1")
        await to(page, "")  # while the run's page still waits to be told how it is now
        await page.evaluate("held.forEach((go) => go())")
        await page.evaluate("new Promise((done) => setTimeout(done, 700))")
        assert await page.evaluate("sources.filter((each) => each.readyState < 2).map((each) => each.url)") == [
            f"{server.url}/api/events"
        ]
        assert await page.evaluate("document.title") == "Runs \u00b7 Plait"
        await page.close()


async def test_a_connection_that_was_refused_is_tried_again(browser: Browser, journal: Path) -> None:
    with serving(react(journal)) as server:
        page = await opened(browser, server, "costs")
        await page.evaluate(
            """(() => {
                const Source = EventSource;
                let made = 0;
                window.EventSource = class extends Source { constructor(at) { super(made++ ? at : "/api/none"); } };
            })()"""
        )
        await to(page, "")
        await page.wait_for("document.querySelector('.lost').textContent !== ''")
        await page.wait_for("document.querySelector('.lost').textContent === ''")
        await begun(server, "Is it heard of?")
        await page.wait_for("document.querySelector('tr.run')?.innerText.includes('Is it heard of?')")
        await page.close()


async def test_a_comparison_is_the_page_of_its_report_with_a_way_to_each_run(browser: Browser, journal: Path) -> None:
    pytest.importorskip("altair", reason="NOT CHECKED: plait[report] is not installed")
    tasks = [{"question": f"How many live in {town}?", "answer": 522250} for town in ("Lyon", "Nice", HOSTILE)]
    model = Scripted([answer("522250")] * 3)
    await acompare(tasks, loops="react,json", models=[model], journal=journal, name="mine/50% of it")
    report = render_page(load_comparison("mine/50% of it", journal), record=lambda run: None)
    with serving(react(journal)) as server:
        for width, dark in ((1440, False), (390, True)):
            page = await opened(browser, server, "comparisons", width=width, dark=dark)
            assert "6 of 6 runs" in await page.text("main")
            await page.click(".plain-list a")
            await page.wait_for("document.querySelector('html[data-drawn=all]') !== null")
            assert await page.text("h1") == "Comparison mine/50% of it" and await page.count("nav.pages a") > 2
            assert await page.text("nav.pages [aria-current]") == "Improve"
            await shot(page, f"comparison-{width}")
            assert await page.count(".plot svg") == 4
            for part in ("table", "pairs", "grid"):
                rows = await page.evaluate(f"document.querySelectorAll('#{part} tbody tr').length")
                assert rows == len(
                    re.findall("<tr>", report.split(f'id="{part}"')[1].split("<tbody>")[1].split("</tbody>")[0])
                )
            assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
            assert await window_axe.found(page) == []
            await page.click("button.cell.right")
            assert "Right is" in await page.text("dialog")
            await page.click("dialog a")
            await page.wait_for("document.querySelector('.outcome')?.innerText === '522250'")
            assert page.problems == []
            await page.close()


async def test_single_keys_do_what_the_list_says_and_can_be_turned_off(browser: Browser, journal: Path) -> None:
    run = await react(journal).arun(QUESTION)
    with serving(react(journal)) as server:
        page = await opened(browser, server)
        await page.press("j")
        await page.press("Enter")
        await page.wait_for_selector(".step")
        await page.wait_for("document.querySelector('main').hasAttribute('aria-busy') === false")
        await page.press("j")
        await page.press("j")
        assert await page.evaluate("document.activeElement.closest('.step').id") == "step-2"
        await page.press("w")
        await page.wait_for_selector(".exchange")
        await page.press("b")
        await page.wait_for_selector("#step-2")
        await page.wait_for("document.activeElement.closest?.('.step')?.id === 'step-2'")
        await page.press("?")
        await page.wait_for_selector("dialog[open] .keys")
        assert await page.count("dialog[open] kbd") == 16
        assert "the exact requests to the model" in await page.text("dialog[open] dl")
        assert await page.evaluate("document.querySelector('.observation .label').title") != ""
        await shot(page, "keys")
        await page.click("#keys-on")
        await page.press("Escape")
        await page.press("r")
        await asyncio.sleep(0.2)
        assert run.id in await page.evaluate("location.hash")
        await page.close()


async def test_light_and_dark_can_be_chosen_and_stay(browser: Browser, journal: Path) -> None:
    with serving(react(journal)) as server:
        page = await opened(browser, server)
        light = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        await page.click(".theme")
        dark = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert light != dark
        await page.goto(f"{server.url}/")
        assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
        await page.close()


async def test_with_a_token_one_logs_in_first(browser: Browser, journal: Path) -> None:
    with serving(react(journal), tokens=(FULL,)) as server:
        page = await browser.page()
        await page.goto(server.url)
        await page.wait_for_selector("#token")
        await page.wait_for("document.activeElement.id === 'token'")
        await page.type("a token that is none", "#token")
        await page.press("Enter")
        await page.wait_for("!document.querySelector('#wrong').hidden")
        assert await window_axe.found(page) == []
        page.problems.clear()
        await page.evaluate("document.querySelector('#token').value = ''")
        await page.type(FULL, "#token")
        await page.press("Enter")
        await page.wait_for_selector(".list-head")
        assert FULL not in str(await page.evaluate("document.cookie + JSON.stringify(localStorage) + location.href"))
        assert page.problems == []
        await page.close()


@pytest.mark.parametrize(("width", "dark"), LOOKS)
async def test_every_page_fits_is_legible_and_accessible(
    browser: Browser, journal: Path, width: int, dark: bool
) -> None:
    runs = [(await make(journal).arun(QUESTION)).id for make in (react, rewoo, codeact)]
    waits = await react(journal, [action("send", {"text": "hello"})], approve="effects").arun(
        f"Send it. {'long ' * 40}"
    )
    trouble = [action("population", {"town": "Atlantis"}), "nonsense", answer("There is no such town.")]
    failed = await react(journal, trouble).arun("How many people live in Atlantis?")
    runs += [waits.id, failed.id]
    with serving(react(journal, approve="effects")) as server:
        page = await opened(browser, server, width=width, dark=dark)
        places = [
            "",
            "comparisons",
            "costs?by=user",
            "review",
            "datasets",
            "changes",
            *(f"runs/{run}" for run in runs),
            f"runs/{runs[0]}/time",
            f"runs/{runs[0]}/wire/2",
            f"sides/{runs[0]}/{failed.id}",
        ]
        for number, at in enumerate(places):
            await to(page, at)
            await asyncio.sleep(0.2)
            await shot(page, f"page{number}-{width}-{'dark' if dark else 'light'}")
            wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, at
            if at.startswith("costs"):
                assert "No price is known of these runs: the picture shows their tokens." in await page.text("main")
                assert await page.count(".chart rect") == 1
            assert await page.poor_contrast() == [], at
            assert await window_axe.found(page) == [], at
        assert page.problems == []
        await page.close()
