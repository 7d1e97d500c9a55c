"""The page of notes, and the plan that a run shows while it goes on: who sees what, in a real browser."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import plait
import window_axe
from browser import Browser, Page
from conftest import CAMPAIGN
from lazily import skip_without
from plait.journal.notes import Memory, MemoryNote, Notes
from plait.journal.store import open_store, wait_for
from test_window_pages import begun, opened, shot, to
from window_support import HIDDEN, HOSTILE, action, answer

skip_without("server", "starlette", "uvicorn", "prometheus_client", "markdown_it", "nh3", "pygments")

from window_server import FULL, ONE, USERS, Here, serving  # noqa: E402

ALICE, BOB = (token for _, token in USERS[:2])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with Browser.started() as started:
        yield started


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def keep(journal: Path, owner: str, id: str, text: str, **more: Any) -> None:
    notes = Notes(open_store(journal))
    wait_for(notes.write(Memory(owner, "notes"), MemoryNote(id, text, **more), is_new=True))


def made(journal: Path, *script: str, **more: Any) -> plait.Agent[Any]:
    tools = {"tools": ["memory", "todo"], **more}
    return plait.Agent("react", model=plait.Scripted([*script], by_turn=False), journal=journal, **tools)


def told(here: Here, token: str, method: str = "GET", body: Any = None) -> tuple[int, Any]:
    status, _, found = here.ask(method, "/api/notes", body, token=token)
    return status, found


def texts(found: Any) -> list[str]:
    return [note["text"] for each in found["memories"] for note in each["notes"]]


def test_each_user_sees_and_changes_the_users_own_notes(journal: Path) -> None:
    write, search = action("write_note", {"text": "I like tea."}), action("search_notes", {})
    agent = made(journal, *[write, answer("x")] * 3, search, answer("x"))
    with serving(agent, tokens=(FULL,), clients=(ONE,), users=USERS) as here:
        for token in (ALICE, FULL, ONE, BOB):
            status, _, found = here.ask("POST", "/v1/runs", {"agent": "plait", "question": "?"}, token=token)
            assert status == 202
            wait_for_end(journal, found["run"])
        owners = [each.owner for each in wait_for(Notes(open_store(journal)).list_memories())]
        assert owners[0] == USERS[0][0] and all(each.startswith("@") for each in owners[1:]) and len({*owners}) == 3
        assert texts(told(here, ALICE)[1]) == ["I like tea."] and texts(told(here, BOB)[1]) == []
        assert texts(told(here, FULL)[1]) == ["I like tea."] * 3
        assert told(here, ONE)[0] == 403
        (note,) = told(here, ALICE)[1]["memories"][0]["notes"]
        mine = {"memory": "notes", "id": note["id"], "was": "I like tea.", "text": "I like coffee."}
        for body in (mine, {**mine, "owner": USERS[0][0]}):
            assert told(here, BOB, "POST", body)[0] == 404
        assert told(here, ALICE, "POST", {**mine, "was": "I like milk."})[0] == 409
        assert told(here, ALICE, "POST", {**mine, "text": " "})[0] == 400
        assert texts(told(here, ALICE, "POST", mine)[1]) == ["I like coffee."]
        gone = {**mine, "was": "I like coffee.", "text": None}
        assert texts(told(here, FULL, "POST", {**gone, "owner": USERS[0][0]})[1]) == ["I like tea."] * 2


def wait_for_end(journal: Path, run: str) -> None:
    store = open_store(journal)
    while wait_for(store.find_run(run)).status not in ("answered", "failed", "crashed"):
        threading.Event().wait(0.02)


async def is_fine(page: Page, name: str) -> None:
    assert page.problems == []
    assert await window_axe.found(page) == []
    for dark in (False, True):
        await page.media(dark=dark)
        assert await page.poor_contrast() == []
    await shot(page, f"{name}-dark")
    await page.media(dark=False)
    for width in (390, 768, 1600) if CAMPAIGN else (390, 1280):
        await page.viewport(width, 900)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        await shot(page, f"{name}-{width}")


@pytest.mark.asyncio(loop_scope="module")
async def test_notes_are_shown_changed_and_removed_and_never_markup(browser: Browser, journal: Path) -> None:
    keep(journal, "", "one", HOSTILE + HIDDEN[:-1], outside=True)
    keep(journal, HOSTILE[:40], "two", "Ada likes tea.")
    with serving(made(journal)) as here:
        page = await opened(browser, here, "memory")
        shown = await page.evaluate("document.querySelector('main').innerText")
        assert "<script>window.ran = 1</script>" in shown and "U+202E" in shown and "from outside" in shown
        assert await page.evaluate("window.ran") is None
        await is_fine(page, "memory")
        await page.click("[aria-label='Edit Ada likes tea.']")
        await page.evaluate("document.querySelector('textarea').value = 'Ada likes coffee.'")
        await page.click(".main-act")
        await page.wait_for("document.querySelector('main').innerText.includes('Ada likes coffee.')")
        for _ in range(2):
            await page.click("[aria-label='Forget Ada likes coffee.']")
        await page.wait_for("!document.querySelector('main').innerText.includes('coffee')")
        assert page.problems == []
    assert not wait_for(Notes(open_store(journal)).list(Memory(HOSTILE[:40], "notes")))


@pytest.mark.asyncio(loop_scope="module")
async def test_the_plan_is_shown_while_the_run_goes_on(browser: Browser, journal: Path, gate: threading.Event) -> None:
    @plait.tool(read_only=True)
    def look() -> str:
        "Looks."
        assert gate.wait(300)
        return "there"

    plan = [(HOSTILE[:90], "completed"), ("Read all letters", "in_progress"), ("Write the answer", "pending")]
    script = [
        action("write_todos", {"tasks": [{"task": task, "state": state} for task, state in each]})
        for each in (plan, [*plan[:1], (plan[1][0], "completed"), plan[2]])
    ]
    agent = made(journal, script[0], action("look", {}), script[1], answer("Done."), tools=["todo", look])
    with serving(agent) as here:
        run = await begun(here, "Answer my letters.")
        page = await opened(browser, here, f"runs/{run}")
        await page.wait_for("document.querySelector('.todo-box')?.innerText.includes('1 of 3 done')")
        assert await page.evaluate("document.querySelector('.todo-box .is-in-progress bdi').innerText") == plan[1][0]
        await is_fine(page, "todo")
        gate.set()
        await page.wait_for("document.querySelector('.todo-box').innerText.includes('2 of 3 done')")
        await page.wait_for("document.querySelector('.outcome').innerText.includes('Done.')")
        assert await page.evaluate("document.querySelectorAll('.todo').length") == 3
        assert await page.evaluate("window.ran") is None
        await to(page, "memory")
        assert page.problems == []


@pytest.mark.asyncio(loop_scope="module")
async def test_the_chat_shows_the_plan_while_the_agent_works(
    browser: Browser, journal: Path, gate: threading.Event
) -> None:
    @plait.tool(read_only=True)
    def look() -> str:
        "Looks."
        assert gate.wait(300)
        return "there"

    tasks = [{"task": "Read all letters", "state": "in_progress"}]
    agent = made(
        journal, action("write_todos", {"tasks": tasks}), action("look", {}), answer("x"), tools=["todo", look]
    )
    with serving(agent) as here:
        page = await browser.page()
        await page.goto(f"{here.url}/chat")
        await page.wait_for("document.querySelector('#message') !== null && !document.querySelector('main[aria-busy]')")
        await page.type("Answer my letters.", "#message")
        await page.press("Enter")
        await page.wait_for("document.querySelector('.turn .todo-box')?.innerText.includes('Read all letters')")
        await is_fine(page, "todo-chat")
        await page.evaluate("location.reload()")
        await page.wait_for("document.querySelector('.turn') !== null && !document.querySelector('main[aria-busy]')")
        await page.wait_for("document.querySelector('.turn .todo-box')?.innerText.includes('Read all letters')")
        gate.set()
        await page.wait_for("document.querySelector('.turn .md')?.innerText.includes('x')")
        assert page.problems == []
