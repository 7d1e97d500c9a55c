"""The chat page in a real browser: talk, stop, edit, retry, continue, files, approvals, and hostile answers."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

import plait
import window_axe
from browser import Browser, Page
from conftest import LOOKS
from lazily import skip_without
from plait.journal.store import Journal
from plait.models.base import Abilities
from window_support import HIDDEN, HOSTILE, Held, action, answer, population, react, rewoo

skip_without("server", "starlette", "uvicorn", "prometheus_client", "markdown_it", "nh3", "pygments")

from plait.config import ServeTable  # noqa: E402
from plait.server.agents import serve_agent  # noqa: E402
from window_server import FULL, Here, serving  # noqa: E402

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHOTS = Path(os.environ["PLAIT_SHOTS"]) if "PLAIT_SHOTS" in os.environ else None
MARKDOWN = """Lyon has **522,250** people and Nice has *348,085*. Together: `870335`.

| town | people |
|---|--:|
| Lyon | 522,250 |
| Nice | 348,085 |

```python
def add(a: int, b: int) -> int:
    # the people of two towns
    return a + b
```

1. The numbers are from [the statistics office](https://insee.example/towns).
2. There is also ![a map](https://evil.example/map.png?q=secret).
"""


async def opened(browser: Browser, server: Here, at: str = "", **look: Any) -> Page:
    page = await browser.page(**look)
    await page.goto(f"{server.url}/chat{at}")
    await ready(page)
    return page


async def ready(page: Page) -> None:
    await page.wait_for("document.querySelector('#message') !== null && !document.querySelector('main[aria-busy]')")


async def say(page: Page, text: str) -> None:
    await page.type(text, "#message")
    await page.press("Enter")


async def has(page: Page, text: str, where: str = "main") -> None:
    await page.wait_for(f"document.querySelector({json.dumps(where)})?.innerText.includes({json.dumps(text)}) === true")


async def press(page: Page, words: str, where: str = "main") -> None:
    """Press the last button or link with these words."""
    found = f"""[...document.querySelectorAll({json.dumps(where + " :is(button, a, summary)")})]
        .filter((each) => each.textContent.trim() === {json.dumps(words)} && !each.hidden).at(-1)"""
    await page.wait_for(f"{found} !== undefined && !{found}.disabled")
    await page.evaluate(f"{found}.click()")


async def shot(page: Page, name: str) -> None:
    if SHOTS is not None:
        await page.screenshot(SHOTS / f"{name}.png")


def one_by_one(journal: Path, *replies: Any, **fields: Any) -> plait.Agent:
    return react(journal, model=plait.Scripted(replies, by_turn=False), **fields)


async def test_an_answer_is_markdown_with_its_steps_below(browser: Browser, tmp_path: Path) -> None:
    script = [
        action("population", {"town": "Lyon"}, "I need both towns."),
        action("population", {"town": "Nice"}, "Now the other."),
        answer(MARKDOWN),
    ]
    with serving(one_by_one(tmp_path / "j.db", *script, answer("second"))) as server:
        page = await opened(browser, server)
        await say(page, "How many people live in Lyon and Nice?")
        await page.wait_for("document.querySelector('.md table td.right')?.innerText === '522,250'")
        await has(page, "3 steps · 2 calls")
        assert await page.count(".md strong") == 1 and await page.count(".md .hl-k") > 1
        assert await page.count("main img, main svg, .md script") == 0
        assert "#/chat-" in await page.evaluate("location.hash")
        await page.click(".trace > summary")
        await page.wait_for("document.querySelectorAll('.trace .step').length === 3")
        assert "I need both towns." in await page.text(".trace") and "522250" in await page.text(".trace")
        heads = "[...document.querySelectorAll('.md tr')].map((each) => each.getBoundingClientRect().top)"
        assert await page.evaluate(f"{heads}.every((top, i, all) => !i || top > all[i - 1])")
        await shot(page, "chat")
        await press(page, "Copy", ".code-block")
        await say(page, "And then?")
        await has(page, "second")
        await page.wait_for("document.querySelectorAll('.turn').length === 2")
        await page.wait_for("document.querySelectorAll('.talks li').length === 1")
        assert await page.evaluate("document.title") == "How many people live in Lyon and Nice? · Plait"
        here = await page.evaluate("location.href")
        await page.evaluate("document.activeElement.blur()")
        await page.press("n")
        await has(page, "Talk to plait")
        await has(page, "Loop react · scripted:")
        assert await page.evaluate("location.hash") == "#/"
        await page.type("a draft", "#message")
        await page.evaluate("history.back()")
        await page.wait_for(f"location.href === {json.dumps(here)}")
        await has(page, "second")
        await page.evaluate("history.forward()")
        await has(page, "Talk to plait")
        await page.wait_for("document.querySelector('#message').value === 'a draft'")
        await page.goto(f"{server.url}/chat")
        await page.wait_for("document.querySelector('#message')?.value === 'a draft'")
        assert page.problems == []
        await page.close()


async def test_an_answer_grows_while_it_is_written_and_is_stopped_and_retried(browser: Browser, tmp_path: Path) -> None:
    model = Held([answer("# Title\n\nThe **first** half.\n\n" + " ".join(map(str, range(60))) + "\n\n- the\n- end")])
    agent = plait.Agent(loop="react", model=model, tools=(population,), journal=tmp_path / "j.db")
    with serving(agent) as server:
        page = await opened(browser, server)
        await say(page, "Write.")
        await page.wait_for("document.querySelector('.md strong')?.innerText === 'first'")
        await has(page, "writes …", ".who")
        assert await page.count(".md h3") == 1 and "end" not in await page.text(".md")
        model.go.set()
        await page.wait_for("document.querySelectorAll('.md li').length === 2")
        await page.wait_for("document.querySelector('.turn').getAttribute('aria-busy') === 'false'")
        await press(page, "Retry")
        await page.wait_for("document.querySelector('.md strong')?.innerText === 'first'")
        await page.wait_for("!document.querySelector('.stop').hidden")
        await press(page, "Stop")
        await has(page, "Stopped.")
        model.go.set()
        assert "Resume" in await page.text(".end") and "Answer 2 of 2" in await page.text("main")
        await page.evaluate("document.querySelector('[aria-label=\"Earlier answer\"]').click()")
        await page.wait_for("document.querySelectorAll('.md li').length === 2")
        assert page.problems == []
        await page.close()


async def test_a_message_is_edited_as_a_branch_and_a_conversation_is_named_and_deleted(
    browser: Browser, tmp_path: Path
) -> None:
    with serving(one_by_one(tmp_path / "j.db", *(answer(each) for each in ("one", "two", "three")))) as server:
        page = await opened(browser, server)
        await say(page, "first")
        await has(page, "one", ".md")
        await say(page, "second")
        await has(page, "two", ".turn:last-child .md")
        before = await page.evaluate("location.hash")
        await press(page, "Edit", ".turn:first-child .you")
        await has(page, "Your later messages stay in the earlier version.")
        await press(page, "Cancel", ".you")
        await press(page, "Edit", ".turn:last-child .you")
        await page.type(", edited", "#edited")
        await page.press("Enter")
        await has(page, "three", ".turn:last-child .md")
        assert await page.evaluate("location.hash") != before
        assert "second, edited" in await page.text("main") and "first" in await page.text("main")
        await has(page, "Version 2 of 2", ".turn:last-child .you")
        await has(page, "edited version", ".side")
        assert await page.evaluate("document.querySelector('h1').getBoundingClientRect().top") > 56
        await shot(page, "chat-edited")
        await page.click("[aria-label='Version before']")
        await has(page, "two", ".turn:last-child .md")
        assert await page.evaluate("location.hash") == before
        await press(page, "Rename")
        await page.evaluate("document.querySelector('#title').value = 'My <b>towns</b>'")
        await press(page, "Rename", "dialog")
        await has(page, "My <b>towns</b>", ".side")
        await page.type("towns my", "#search")
        await page.wait_for("document.querySelectorAll('.talks li a').length === 1")
        await press(page, "Delete")
        await press(page, "Delete", "dialog")
        await page.wait_for("location.hash === '#/'")
        await has(page, "None has these words", ".side")
        assert await page.count(".recent li") == 1 and "second, edited" in await page.text(".recent")
        assert page.problems == []
        await page.close()


async def test_a_call_is_edited_approved_and_refused_inline_also_below_a_child(
    browser: Browser, tmp_path: Path
) -> None:
    journal = tmp_path / "j.db"
    inner = react(journal, [action("send", {"text": "Call Lyon."}), answer("it is sent")], approve="effects")
    inner = inner.using(name="mailer")
    outer = [action("ask_mailer", {"question": "Call Lyon"}), answer("done")]
    tool = inner.as_tool("ask_mailer", "Sends texts.")
    agents = [
        serve_agent("mailer", inner, ServeTable()),
        serve_agent("boss", react(journal, outer, tools=(tool,)), ServeTable()),
    ]
    with serving(*agents) as server:
        page = await opened(browser, server)
        await say(page, "Send it.")
        await page.wait_for("document.querySelector('.ask form') !== null")
        assert (await page.text(".ask")).startswith("Approve this call?\n\nsend: Sends a text.")
        assert await page.text(".ask .fields dl") == "text\nCall Lyon."
        assert (
            await page.evaluate("document.querySelector('#message').placeholder") == "Answer the question above first"
        )
        await shot(page, "chat-approval")
        await press(page, "Change", ".ask")
        await page.evaluate("document.querySelector('.ask textarea').value = 'Call Nice.'")
        await press(page, "Approve with these inputs", ".ask")
        await has(page, "it is sent")
        await page.wait_for("document.querySelector('.ask') === null")
        assert page.problems == []
        await page.close()
        page = await opened(browser, server, "#/?agent=boss")
        await say(page, "Let it be sent.")
        await page.wait_for("document.querySelector('.ask form') !== null")
        run = json.loads(await page.evaluate("fetch('api/runs').then((got) => got.text())"))["live"][0]["run"]
        (asked,) = (await asyncio.to_thread(server.ask, "GET", f"/api/runs/{run}"))[2]["waiting"]
        told = {"answer": 'edit {"text": "Call Nice."}', "question": asked["question"]}
        await asyncio.to_thread(server.ask, "POST", f"/v1/runs/{run}/answer", told)  # another user was faster
        await has(page, "done", ".turn:last-child .md")
        assert await page.count(".ask") == 0 and await page.text(".receipt") == "Approved with changes · send"
        await page.click(".receipt > summary")
        changed = '[...document.querySelectorAll("%s :is(del, ins)")].map((each) => each.innerText)'
        assert await page.evaluate(changed % ".receipt") == ["Call Lyon.", "Call Nice."]
        await page.click(".trace > summary")
        await page.wait_for("document.querySelector('.trace .is-wait') !== null")
        assert await page.evaluate(changed % ".trace .is-wait") == ["Call Lyon.", "Call Nice."]
        await page.wait_for("document.querySelector('.child summary') !== null")
        await page.evaluate("document.querySelector('.child summary').click()")
        await page.wait_for("document.querySelectorAll('.child .step').length === 2")
        assert await page.evaluate(changed % ".child .action") == ["Call Lyon.", "Call Nice."]
        assert page.problems == []
        await page.close()


async def test_a_run_goes_on_after_a_limit_and_a_plan_is_drawn(browser: Browser, tmp_path: Path) -> None:
    script = [action("population", {"town": "Lyon"}), answer("Lyon only"), answer("both")]
    limited = one_by_one(tmp_path / "j.db", *script, limits=plait.Limits(calls=2))
    agents = [
        serve_agent("limited", limited, ServeTable()),
        serve_agent("planner", rewoo(tmp_path / "j.db"), ServeTable()),
    ]
    with serving(*agents) as server:
        page = await opened(browser, server)
        await say(page, "Both?")
        await has(page, "Answered early")
        await press(page, "Continue")
        await has(page, "both", ".md")
        assert await page.count(".end") == 0
        await page.evaluate("document.querySelector('#agent').value = 'planner'")
        await say(page, "Plan it.")
        await has(page, "870335", ".turn:last-child .md")
        await page.evaluate("[...document.querySelectorAll('.trace > summary')].at(-1).click()")
        await page.wait_for("document.querySelector('.plan svg') !== null")
        assert page.problems == []
        await page.close()


async def test_files_are_chosen_pasted_dropped_and_removed(browser: Browser, tmp_path: Path) -> None:
    model = plait.Scripted([answer("I see.")], abilities=Abilities(images=True))
    with serving(react(tmp_path / "j.db", model=model)) as server:
        page = await opened(browser, server)
        await page.evaluate(
            """(async () => {
                const canvas = document.createElement("canvas");
                canvas.width = canvas.height = 9;
                canvas.getContext("2d").fillRect(0, 0, 9, 9);
                const blob = await new Promise((done) => canvas.toBlob(done));
                const put = (kind, name, ...files) => {
                    const data = new DataTransfer();
                    for (const file of files) data.items.add(file);
                    const made = kind === "paste"
                        ? new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true })
                        : new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true });
                    document.querySelector(name).dispatchEvent(made);
                };
                put("paste", "#message", new File([blob], "picture.png", { type: "image/png" }));
                await new Promise((done) => setTimeout(done, 100));
                put("drop", "main", new File(["a <b>text</b>"], "<img src=x>.txt"), new File(["no"], "wrong.txt"));
            })()"""
        )
        await page.wait_for("document.querySelectorAll('.attached li').length === 3")
        assert await page.count(".attached canvas") == 1
        await page.evaluate("document.querySelector('[aria-label=\"Remove wrong.txt\"]').click()")
        await say(page, "What is this?")
        await has(page, "I see.")
        await page.wait_for("document.querySelector('.said-by-you img')?.naturalWidth === 9")
        assert "_img src_x_.txt" in await page.text(".said-by-you")
        await press(page, "Edit")
        await page.wait_for("document.querySelectorAll('.you .attached li').length === 2")
        assert page.problems == []
        await page.close()


async def test_what_goes_wrong_is_said_at_the_message(browser: Browser, tmp_path: Path) -> None:
    with serving(one_by_one(tmp_path / "j.db", RuntimeError("the model broke"), answer("fine"))) as server:
        page = await opened(browser, server)
        server.manager.stopping = True
        await say(page, "Hello")
        await has(page, "The server is stopping.", ".turn.failed")
        server.manager.stopping = False
        await page.wait_for("document.querySelector('.failed .main-act').textContent.includes('Retry in')")
        await press(page, "Back to the text", ".failed")
        await page.press("Enter")
        await has(page, "the model broke", ".end")
        await press(page, "Retry", ".end")
        await has(page, "fine", ".md")
        assert page.problems == [] or all("503" in each for each in page.problems)
        await page.close()


async def test_hostile_texts_load_and_run_nothing(browser: Browser, tmp_path: Path) -> None:
    hostile = f"{HOSTILE}\n\n![x](https://evil.example/p.png) [x](javascript:window.ran=9)\n\n{HIDDEN[:-1]}"
    with serving(one_by_one(tmp_path / "j.db", answer(hostile)), tokens=(FULL,)) as server:
        page = await browser.page()
        await page.goto(f"{server.url}/chat")
        await page.type(FULL, "#token")
        await page.press("Enter")
        await ready(page)
        await say(page, f"{HOSTILE}\u202e")
        await page.wait_for("document.querySelector('.md p') !== null")
        assert await page.evaluate("window.ran === undefined && document.querySelector('main img') === null")
        assert "U+202E" in await page.text(".md") and "U+202E" in await page.text(".said-by-you")
        assert await page.evaluate(
            "[...document.querySelectorAll('.md a')].map((each) => [each.href, each.rel, each.target]).flat()"
        ) == ["https://evil.example/p.png", "noopener noreferrer nofollow", "_blank"]
        assert await page.evaluate(
            "performance.getEntriesByType('resource').every((each) => each.name.startsWith(location.origin))"
        )
        assert page.problems == []
        await page.close()


@pytest.mark.parametrize(("width", "dark"), LOOKS)
async def test_the_page_fits_is_accessible_and_readable(
    browser: Browser, tmp_path: Path, width: int, dark: bool
) -> None:
    script = [answer(MARKDOWN + "\n" + "w" * 300 + "\n\n```\n" + "x" * 300 + "\n```"), action("send", {"text": "Hi"})]
    agent = one_by_one(tmp_path / "j.db", *script, approve="effects")
    with serving(agent) as server:
        page = await opened(browser, server, width=width, dark=dark)
        assert await window_axe.found(page) == []
        await say(page, "How many people live in " + "Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch" * 2)
        await page.wait_for("document.querySelector('.md table') !== null")
        await say(page, "Send it.")
        await page.wait_for("document.querySelector('.ask form') !== null")
        wide = "[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > innerWidth)"
        outside = (
            f"{wide}.filter((each) => !each.closest('pre, .md-table')).map((each) => each.outerHTML.slice(0, 200))"
        )
        assert await page.evaluate(f"document.documentElement.scrollWidth <= innerWidth ? [] : {outside}") == []
        assert await window_axe.found(page) == []
        await shot(page, f"chat-{width}-{'dark' if dark else 'light'}")
        if width < 800:
            await page.click(".drawer")
            await page.wait_for("document.activeElement.matches('.closer')")
            await shot(page, f"chat-list-{width}-{'dark' if dark else 'light'}")
            assert await window_axe.found(page) == []
            here = await page.evaluate("location.href")
            for closes in ("document.activeElement.click()", "history.back()"):
                await page.evaluate(closes)
                await page.wait_for("document.activeElement.matches('.drawer')")
                assert await page.evaluate("location.href") == here
                await page.click(".drawer")
            await page.press("Escape")
            await page.wait_for("document.activeElement.matches('.drawer')")
        assert page.problems == []
        await page.close()


async def test_a_message_reaches_a_run_that_goes_on_and_one_call_is_cancelled(browser: Browser, tmp_path: Path) -> None:
    @plait.tool(read_only=True)
    async def dig(town: str) -> str:
        """Dig for a long time."""
        await asyncio.sleep(60)
        return "gold"

    script = [action("dig", {"town": "here"}), answer("No gold.")]
    with serving(one_by_one(tmp_path / "j.db", *script, tools=(dig,))) as server:
        page = await opened(browser, server)
        await say(page, "Find gold.")
        await page.wait_for("document.querySelector('#message').placeholder === 'Write to the agent while it works'")
        await has(page, "calls dig …", ".who")
        await say(page, "Hurry up.")
        await has(page, "Hurry up.\nread before the next step", ".meanwhile")
        await page.click(".trace > summary")
        await shot(page, "chat-steered")
        assert await window_axe.found(page) == []
        await press(page, "Cancel this call")
        await has(page, "No gold.")
        await has(page, "Hurry up.\nread", ".meanwhile")
        await has(page, "The user cancelled this call of 'dig': it has no result.")
        await shot(page, "chat-steered-end")
        (run,) = Journal(tmp_path / "j.db").runs()
        requests = Journal(tmp_path / "j.db").timeline(run.id).attempts
        assert b"Hurry up." in requests[-1][1].request
        assert page.problems == []
        await page.close()
