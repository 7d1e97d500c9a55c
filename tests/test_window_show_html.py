"""`plait show RUN --html FILE`: one file with the run and its wire, in a real browser, loading nothing."""

from __future__ import annotations

import asyncio
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

import window_axe
from browser import Browser, Page
from cli_support import PLAIT
from fork_server import run_forked
from journal_rows import is_request
from plait.journal.store import Journal
from plait.view.html_file import bundle_script, render_html
from window_support import HIDDEN, HOSTILE, action, answer, codeact, react, rewoo, written

pytestmark = pytest.mark.asyncio(loop_scope="module")


def show(*args: str) -> subprocess.CompletedProcess[str]:
    return run_forked([PLAIT, "show", *args], timeout=300)


async def opened(browser: Browser, file: Path, **look: Any) -> Page:
    shown = await browser.page(**look)
    await shown.goto(file.as_uri())
    await shown.wait_for("document.querySelector('main').hasAttribute('aria-busy') === false")
    return shown


async def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    run = await react(tmp_path / "j.db").arun("How many people live in Lyon and Nice?")
    done = await asyncio.to_thread(show, run.id, "--journal", str(tmp_path / "j.db"), "--html", "/dev/full")
    assert done.returncode == 2 and done.stderr == "Error: /dev/full can't be written: No space left on device.\n"


async def to(page: Page, at: str) -> None:
    await page.evaluate(f"location.hash = {at!r}")
    await asyncio.sleep(0.05)
    await page.wait_for("document.querySelector('main').hasAttribute('aria-busy') === false")


async def test_the_file_tells_the_run_and_its_wire_and_loads_nothing(browser: Browser, tmp_path: Path) -> None:
    journal, file = tmp_path / "j.db", tmp_path / "run.html"
    run = await react(journal).arun("How many people live in Lyon and Nice?")
    done = await asyncio.to_thread(show, run.id, "--journal", str(journal), "--html", str(file))
    assert (done.returncode, done.stdout) == (0, "") and "Written" in done.stderr
    shown = await opened(browser, file, width=390, dark=True)
    assert await shown.count(".step") == 3
    assert "870335" in await shown.text(".outcome") and "522250" in await shown.text("#step-1")
    assert "The answer above" in await shown.text("#step-3")
    assert await shown.count("button.cancel, .resume, form:not(.find), nav.pages:not([hidden])") == 0
    await shown.click("#step-3 .step-acts a")
    await shown.wait_for_selector(".exchange")
    # What is shown was made again from the differences: the third request, through the second, from the first.
    await shown.click(".tabs button[data-view=whole]")
    await shown.evaluate("document.querySelectorAll('.fold').forEach((each) => each.click())")
    await shown.evaluate("document.querySelectorAll('.exact del').forEach((each) => each.remove())")
    sent = [row.body for row in run.trace if is_request(row.record)][2]
    assert sent is not None
    assert await shown.evaluate("document.querySelector('.exact').textContent") == sent.decode()
    for _ in range(2):
        assert await window_axe.found(shown) == []
        assert await shown.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        await to(shown, "#/")
    assert shown.problems == []
    assert [each for each in shown.requests if not each.startswith(("file:", "data:"))] == []
    await shown.close()


async def test_hostile_texts_in_the_file_run_nothing(browser: Browser, tmp_path: Path) -> None:
    journal, file = tmp_path / "j.db", tmp_path / "run.html"
    hidden = HIDDEN.removesuffix("\ud800")  # no request can hold half a pair
    script = [action("population", {"town": f"{HOSTILE}{hidden}"}, HOSTILE), answer(f"{HOSTILE}{hidden}]]>--><!--")]
    run = await react(journal, script).arun(f"{HOSTILE}</script></style></title>{hidden}")
    row = Journal.at(journal).run(run.id)
    file.write_text(render_html(row, Journal.at(journal)), encoding="utf-8")
    shown = await opened(browser, file)
    assert await shown.count(".step") == 2
    await to(shown, f"#/runs/{run.id}/wire/2")
    assert await shown.count(".exchange") == 1
    assert await shown.evaluate("window.ran") is None
    assert shown.dialogs == [] and shown.problems == []
    # Nor may anything that got in after all: the policy holds against a script put in by hand.
    await shown.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 9'}))"
    )
    assert await shown.evaluate("window.ran") is None
    await shown.close()


async def test_plans_and_code_are_drawn_in_the_file(browser: Browser, tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    for make, selector in ((rewoo, ".plan svg rect"), (codeact, ".part.action .code")):
        run = await make(journal).arun("How many?")
        file = tmp_path / f"{run.loop}.html"
        file.write_text(render_html(Journal.at(journal).run(run.id), Journal.at(journal)), encoding="utf-8")
        shown = await opened(browser, file)
        assert await shown.count(selector) >= 2
        assert shown.problems == []
        await shown.close()


async def test_a_text_that_is_too_long_is_cut_and_says_where_it_stands_whole(browser: Browser, tmp_path: Path) -> None:
    journal, file = tmp_path / "j.db", tmp_path / "run.html"
    run = await written(journal, 1, observation="x" * 1_000_000)
    text = render_html(Journal.at(journal).run(run), Journal.at(journal))
    assert 200_000 < len(text) < 500_000
    assert len(render_html(Journal.at(journal).run(run), Journal.at(journal), max_text=None)) > 1_000_000
    file.write_text(text, encoding="utf-8")
    shown = await opened(browser, file)
    await shown.evaluate("[...document.querySelectorAll('.observation .more button')].at(-1).click()")
    assert "800,000 more characters are not in this file" in await shown.text(".observation .more")
    assert f"plait show {run} --full" in await shown.text(".observation .more")
    await shown.close()


async def test_a_file_of_a_long_run_does_not_grow_with_its_square(tmp_path: Path) -> None:
    sizes = []
    for steps, name in ((100, "20260101-000000-short1"), (200, "20260101-000001-longr1")):
        await written(tmp_path / "j.db", steps, run=name)
        row = Journal.at(tmp_path / "j.db").run(name)
        sizes.append(len(render_html(row, Journal.at(tmp_path / "j.db"))) - len(bundle_script("main.js")))
    assert sizes[1] < 2.2 * sizes[0]


async def test_the_bundle_has_each_module_once_and_no_import(tmp_path: Path) -> None:
    text = bundle_script("main.js")
    assert re.findall(r"^(?:import|export) ", text, re.MULTILINE) == []
    modules = re.findall(r"^const (module_\w+) = ", text, re.MULTILINE)
    assert len(modules) == len(set(modules)) > 8 and modules[-1] == "module_main"


async def test_flags_that_do_not_go_together_and_places_that_are_none(tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    await react(journal).arun("?")
    base = ("last", "--journal", str(journal), "--html")
    for more, said in (
        ((str(tmp_path / "a.html"), "--wire"), "Leave out --wire"),
        ((str(tmp_path / "none" / "a.html"),), "can't be written"),
        ((str(tmp_path),), "is a folder. Name a file in it."),
    ):
        done = await asyncio.to_thread(show, *base, *more)
        assert done.returncode == 2 and said in done.stderr
