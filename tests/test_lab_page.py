"""The page of a comparison, looked at in a real browser."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from browser import Browser, Page
from conftest import LOOKS, only_in_campaign
from fork_server import run_forked
from lazily import skip_without
from plait import Agent, ReAct, Scripted
from plait.core import Call, Event, Observation, Ran, Usage
from plait.core import events as ev
from plait.core.errors import ConfigError, JournalError
from plait.installation import install_hint
from plait.journal.store import Journal
from plait.lab import CellResult, Comparison, Contender, Grade, Suite, SuiteTask
from plait.lab.page import check_report_extra, render_page
from plait.lab.page.charts import drawing_script, find_frontier
from plait.lab.page.records import make_record, show_hidden
from plait.lab.results import make_result
from plait.runtime.recorded_events import make_events

skip_without("report", "altair", "vl_convert")

SHOTS = Path(os.environ["PLAIT_SHOTS"]) if "PLAIT_SHOTS" in os.environ else None
"""A folder to keep the screenshots in, for a person to look at."""

HOSTILE = (
    "<script>window.ran = 1</script><img src=x onerror='window.ran = 2'>"
    "</script><script>window.ran = 3</script><!-- <a href='javascript:window.ran=4'>x</a> & &lt;b&gt; \"quoted\" 👩‍🔬"
)
"""Stays as it is; what follows has characters that must be made visible."""
HIDDEN = "\x1b[31mred\x1b[0m \u202etxt.exe\u2066 nul\x00 bell\x07 \u2028 tag\U000e0041 zero\u200bwidth \ud800"


in_the_browser = pytest.mark.asyncio(loop_scope="module")


def contenders(count: int) -> tuple[Contender, ...]:
    loops = ("react", "react(dialect=lines)", "json", "phased", "rewoo", "compiler", "codeact", "tool_calling")
    models = ("local", "qwen2.5-0.5b")
    pairs = [(loop, model) for model in models for loop in loops][:count]
    return tuple(Contender(f"{loop} @ {model}", loop, model, {"": model}) for loop, model in pairs)


def result(contender: Contender, task: SuiteTask, repeat: int, index: int, **changes: Any) -> CellResult:
    """A result like a real one; every fifth is not right, in one way or another."""
    statuses = ("answered", "answered", "stopped", "failed", "crashed")
    status = statuses[index % 5] if index % 3 == 0 else "answered"
    right = index % 3 != 0
    steps = 1 + index % 4
    values: dict[str, Any] = {
        "cell": f"cell{index}",
        "variant": contender.key,
        "task": task.id,
        "repeat": repeat,
        "run": f"r{index:05d}",
        "status": status,
        "grade": Grade(success=right, score=float(right), mark="right" if right else "wrong"),
        "steps": steps,
        "calls": steps,
        "usage": Usage(700 * steps + 13 * index % 97, 40 * steps, 300),
        "cost_usd": 0.0004 * steps * (1 + len(contender.key) % 5),
        "seconds": 0.4 * steps + (len(contender.key) % 7) / 3,
        "answer": task.answer if right else None if status != "answered" else 17,
        "reason": None if status == "answered" else "the limit of 8 steps was reached",
        "by_step": tuple((600 + 220 * step, 38 + index % 9) for step in range(steps)),
    }
    return CellResult(**(values | changes))


def comparison(
    rows: int = 3, tasks: int = 5, repeat: int = 1, *, leave: int = 0, hostile: bool = False, **changes: Any
) -> Comparison:
    """Of that size, with the last `leave` cells not finished; `hostile` puts such texts wherever texts go."""
    who = contenders(rows)
    if hostile:
        who = (*who[:-1], Contender(f"evil {HOSTILE} {HIDDEN}", f"evil {HOSTILE}", HIDDEN, {"": HIDDEN}))
    what = tuple(
        SuiteTask(id=f"report-{i % 4 + 1}-{i // 4 + 1}", question=f"How many people live in town {i}?", answer=1000 + i)
        for i in range(tasks)
    )
    if hostile:
        what = (*what[:-1], SuiteTask(id=f"id {HOSTILE}{HIDDEN}", question=HOSTILE + HIDDEN, answer=[HOSTILE, HIDDEN]))
    cells = [(c, t, r) for c in who for t in what for r in range(repeat)]
    results = []
    for index, (c, t, r) in enumerate(cells[: len(cells) - leave]):
        more = changes
        if hostile and index % 4 == 0:
            more = changes | {"answer": HOSTILE + HIDDEN, "reason": HOSTILE, "run": f"r{index}\"'<>{HOSTILE}"}
            grade = Grade(success=False, score=0.0, mark="wrong", why=HOSTILE + HIDDEN)
            more |= {"grade": grade, "status": "answered"}
        results.append(result(c, t, r, index, **more))
    return Comparison(
        name="c7f3" if not hostile else HOSTILE,
        suite=Suite(word="basics:report", about="tasks of one to four steps", tasks=what, grader="has"),
        contenders=who,
        repeat=repeat,
        results=tuple(results),
        journal="/home/someone/plait.db",
        unfinished="the budget of 1 USD is spent" if leave else "",
    )


def recorded(run: str = "", observation: str = "people: 1000") -> list[Event]:
    call = Call("lookup", {"name": "town"})
    usage = Usage(812, 40, 600)
    return [
        ev.Began(run, "?", "react"),
        ev.Asked(1, "act", "local"),
        ev.Thought(1, f"I must look it up. {HOSTILE}"),
        ev.Action(1, 'Action: lookup\nAction Input: "town"'),
        ev.Replied(1, "act", "local", "...", usage, 1.25, 0.0),
        ev.Called(1, call),
        ev.Observed(1, call, Observation(observation, seconds=0.02)),
        ev.Noted(1, "repaired", f"a brace was missing {HIDDEN}"),
        ev.Executing(2, "print(1)\nx = 2"),
        ev.Executed(2, Ran(output="1\n", seconds=0.1)),
        ev.Asked(3, "act", "local"),
        ev.Answer(3, "1000"),
        ev.Replied(3, "act", "local", "Final Answer: 1000", usage, 0.5, 0.0),
    ]


async def opened(browser: Browser, folder: Path, text: str, **look: Any) -> Page:
    """The page in a browser, from a file, drawn to its end."""
    file = folder / "page.html"
    file.write_text(text, "utf-8")
    tab = await browser.page(**look)
    await tab.goto(file.as_uri())
    await tab.wait_for("document.documentElement.dataset.drawn === 'all'")
    return tab


async def shot(tab: Page, name: str, **options: Any) -> None:
    if SHOTS is not None:
        SHOTS.mkdir(parents=True, exist_ok=True)
        await tab.screenshot(SHOTS / f"{name}.png", **options)


async def quiet(tab: Page) -> None:
    """Nothing went wrong, nothing was fetched, nothing of what others wrote ran, nothing sticks out sideways."""
    assert tab.problems == []
    assert [address for address in tab.requests if not address.startswith("file:")] == []
    assert len(tab.requests) == 1
    assert tab.dialogs == []
    assert await tab.evaluate("window.ran === undefined")
    assert await tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


MARKS = {
    "price": ".mark-symbol.role-mark path",
    "time": ".mark-symbol.role-mark path",
    "tokens-in": ".mark-rect.role-mark path",
    "tokens-out": ".mark-rect.role-mark path",
}


async def marks(tab: Page) -> dict[str, int]:
    """How many marks of data with a size above zero each picture has."""
    return {
        name: await tab.evaluate(
            f"[...document.querySelectorAll('#{name} {mark}')].filter(m => m.getBBox().width > 0"
            " && m.getBBox().height > 0 && getComputedStyle(m).fill !== 'none').length"
        )
        for name, mark in MARKS.items()
    }


@pytest.mark.parametrize(("width", "dark"), LOOKS)
@in_the_browser
async def test_every_picture_is_drawn_and_nothing_hostile_runs(
    browser: Browser, tmp_path: Path, width: int, dark: bool
) -> None:
    made = comparison(5, 7, 2, leave=4, hostile=True)
    tab = await opened(browser, tmp_path, render_page(made, record=recorded), width=width, dark=dark)
    await shot(tab, f"hostile-{width}-{'dark' if dark else 'light'}", full=True)
    await quiet(tab)
    drawn = await marks(tab)
    assert drawn["price"] == drawn["time"] == 5  # the circle of each row
    steps = [{s for r in made.of(each) for s in range(len(r.by_step))} for each in made.contenders]
    assert drawn["tokens-in"] == drawn["tokens-out"] == sum(map(len, steps))
    assert await tab.count("#price .mark-rule.role-mark line") == 5
    assert await tab.count("#price .mark-line.role-mark path") == 1
    assert await tab.count("#grid button.cell") == 35
    assert await tab.count("script:not([type])") == 2  # ours: none came with a text
    assert "4 of 70 runs are not finished. the budget of 1 USD is spent" in await tab.text("#unfinished")
    assert HOSTILE in await tab.text("#table")


@in_the_browser
async def test_a_cell_opens_its_record_and_the_texts_are_told_as_they_are(browser: Browser, tmp_path: Path) -> None:
    made = comparison(3, 5, hostile=True)
    tab = await opened(browser, tmp_path, render_page(made, record=recorded))
    await tab.click('#grid button[data-t="4"][data-c="2"]')
    assert await tab.evaluate("document.getElementById('record').open")
    await shot(tab, "record")
    shown = await tab.evaluate("document.getElementById('record').textContent")
    assert shown.count(HOSTILE) >= 4  # in the title, the question, the right answer, the thought
    assert "I must look it up. " + HOSTILE in shown
    assert "[U+001B][31mred[U+001B][0m [U+202E]txt.exe[U+2066] nul[U+0000] bell[U+0007] [U+2028]" in shown
    assert "tag[U+E0041] zero[U+200B]width [U+D800]" in shown
    kinds = await tab.evaluate("[...document.querySelectorAll('.part')].map(p => p.className.split(' ')[1])")
    assert kinds == ["thought", "action", "observation", "note", "code", "output", "answer"]
    assert "812 tokens in, 40 out · 1.25 s" in await tab.text("#record-body h3")
    await quiet(tab)


@in_the_browser
async def test_the_grid_is_walked_and_a_record_opened_and_closed_by_keyboard(browser: Browser, tmp_path: Path) -> None:
    tab = await opened(browser, tmp_path, render_page(comparison(3, 5), record=recorded))
    where = "(a => a.dataset.t + ',' + a.dataset.c)(document.activeElement)"
    for _ in range(12):
        await tab.press("Tab")
        if await tab.evaluate("document.activeElement.matches('#grid button')"):
            break
    assert await tab.evaluate(where) == "0,0"
    for key, there in (
        ("ArrowRight", "0,1"),
        ("ArrowDown", "1,1"),
        ("ArrowLeft", "1,0"),
        ("ArrowLeft", "1,0"),
        ("End", "1,2"),
        ("Control+End", "4,2"),
        ("ArrowDown", "4,2"),
        ("ArrowUp", "3,2"),
    ):
        await tab.press(key)
        assert await tab.evaluate(where) == there
    await tab.wait_for("document.getElementById('tip').textContent.startsWith('report-4-1 · json @ local')")
    assert "right is: 1003" in await tab.text("#tip")
    await tab.press("Enter")
    assert await tab.evaluate("document.getElementById('record').open")
    assert await tab.text("#record-title") == "report-4-1 · json @ local"
    await tab.press("Escape")
    assert not await tab.evaluate("document.getElementById('record').open")
    assert await tab.evaluate(where) == "3,2"
    await tab.press("Shift+Tab")
    assert not await tab.evaluate("document.activeElement.matches('#grid button')")
    await quiet(tab)


@in_the_browser
async def test_pointing_tells_the_answer_and_the_right_one(browser: Browser, tmp_path: Path) -> None:
    tab = await opened(browser, tmp_path, render_page(comparison(3, 5), record=recorded))
    await tab.hover('#grid button[data-t="0"][data-c="0"]')
    told = await tab.text("#tip")
    assert told == "report-1-1 · react @ local\nwrong\n  answer: 17\nright is: 1000"
    await shot(tab, "tip")
    await tab.hover("#price .mark-symbol.role-mark path")
    assert re.search(r"% right \(\d+% to \d+%\), 5 runs", await tab.text("#tip"))


@in_the_browser
async def test_each_repeat_has_its_record(browser: Browser, tmp_path: Path) -> None:
    def record(run: str) -> list[Event]:
        return [ev.Thought(1, f"this is {run}")]

    made = comparison(3, 4, 3)
    tab = await opened(browser, tmp_path, render_page(made, record=record))
    assert await tab.text('#grid button[data-t="0"][data-c="0"]') == "2/3"
    await tab.click('#grid button[data-t="0"][data-c="0"]')
    for number, one in enumerate(made.results[:3], 1):
        await tab.click(f".tabs button:nth-child({number})")
        assert await tab.text(".part pre") == f"this is {one.run}"
        assert await tab.count('.tabs button[aria-pressed="true"]') == 1
    await shot(tab, "repeats")
    await quiet(tab)


@in_the_browser
async def test_a_long_text_is_cut_and_says_so(browser: Browser, tmp_path: Path) -> None:
    text = render_page(comparison(1, 1), record=lambda run: recorded(run, "x" * 10_000_000))
    assert len(text) < 1_500_000
    tab = await opened(browser, tmp_path, text)
    await tab.click("#grid button")
    assert "Cut here: 9,996,000 more characters. All of it: plait show r00000" in await tab.text(".part.observation")


@in_the_browser
async def test_records_that_are_missing_are_said_to_be(browser: Browser, tmp_path: Path) -> None:
    def record(run: str) -> Sequence[Event] | None:
        if run == "r00001":
            return None
        if run == "r00002":
            raise JournalError("The journal is gone.")
        return recorded(run)

    made = comparison(2, 3)
    tab = await opened(browser, tmp_path, render_page(made, record=record))
    for task in (1, 2):
        await tab.click(f'#grid button[data-t="{task}"][data-c="0"]')
        assert "could not be read" in await tab.text("#record-body")
        assert await tab.count(".part") == 0
        await tab.press("Escape")
    assert "The records of 2 runs could not be read." in await tab.text("main")
    await quiet(tab)


@in_the_browser
async def test_right_answers_records_are_left_out_first_where_the_page_gets_too_large(
    browser: Browser, tmp_path: Path
) -> None:
    made = comparison(4, 6)
    long = [ev.Thought(step, "word " * 700) for step in range(1, 12)]

    def record(run: str) -> list[Event]:
        return list(long)

    whole = len(render_page(made, record=record).encode())
    most = whole - 100_000  # a record has about 39,000 bytes
    text = render_page(made, record=record, most=most)
    assert len(text.encode()) <= most
    held = set(re.findall(r'id="record-(r\d+)"', text))
    right = [one.run for one in made.results if one.grade.success]
    wrong = [one.run for one in made.results if not one.grade.success]
    assert set(wrong) <= held
    kept = [run in held for run in right]
    assert 0 < sum(kept) < len(right)
    assert kept == sorted(kept, reverse=True)  # the last are left out first
    tab = await opened(browser, tmp_path, text)
    out = next(one for one in made.results if one.run == right[-1])
    task = next(i for i, each in enumerate(made.suite.tasks) if each.id == out.task)
    who = next(i for i, each in enumerate(made.contenders) if each.key == out.variant)
    await tab.click(f'#grid button[data-t="{task}"][data-c="{who}"]')
    assert f"plait show {out.run}" in await tab.text("#record-body")
    assert f"The records of {len(right) - sum(kept)} runs are left out" in await tab.text("main")


@in_the_browser
async def test_the_records_of_real_runs_are_shown(browser: Browser, tmp_path: Path, journal: Path) -> None:
    def price(of: str) -> str:
        """The price of a thing."""
        return f"{of}: 12 dollars"

    said = ['Thought: Look it up.\nAction: price\nAction Input: "lamp"', "Thought: I know.\nFinal Answer: 12 dollars"]
    agent = Agent(ReAct(dialect="lines"), model=Scripted(said), tools=[price], journal=journal)
    run = agent.run("What does a lamp cost?")
    assert run.status == "answered"
    task = SuiteTask(id="one", question="What does a lamp cost?", answer="12 dollars")
    who = Contender("react @ scripted", "react", "scripted", {"": "scripted"})
    grade = Grade(success=True, score=1.0, mark="right")
    made = Comparison(
        name="real",
        suite=Suite(word="lamps", about="", tasks=(task,)),
        contenders=(who,),
        repeat=1,
        results=(make_result(run, grade, cell="c", variant=who.key, task="one", repeat=0),),
    )

    def record(id: str) -> list[Event]:
        return make_events(Journal.at(journal).timeline(id), ReAct(dialect="lines"))

    tab = await opened(browser, tmp_path, render_page(made, record=record))
    await tab.click("#grid button")
    parts = await tab.evaluate("[...document.querySelectorAll('.part')].map(p => [p.className, p.innerText])")
    assert [name for name, _ in parts] == [
        "part thought",
        "part action",
        "part observation",
        "part thought",
        "part answer",
    ]
    assert "Look it up." in parts[0][1]
    assert parts[2][1].startswith("observation · price(lamp)")
    assert parts[2][1].endswith("lamp: 12 dollars")
    assert parts[4][1].endswith("12 dollars")
    await shot(tab, "real")
    await quiet(tab)


@pytest.mark.parametrize(
    ("rows", "tasks", "repeat", "leave"),
    [(0, 0, 1, 0), (3, 4, 1, 12), (1, 6, 2, 0), pytest.param(16, 12, 1, 3, marks=only_in_campaign)],
)
@in_the_browser
async def test_a_page_of_any_size_is_drawn(
    browser: Browser, tmp_path: Path, rows: int, tasks: int, repeat: int, leave: int
) -> None:
    made = comparison(rows, tasks, repeat, leave=leave)
    text = render_page(made, record=recorded)
    for width in (1440, 390) if rows == 16 else (390,):
        tab = await opened(browser, tmp_path, text, width=width, dark=width == 390)
        await shot(tab, f"size-{rows}x{tasks}-{width}", full=True)
        await quiet(tab)
        drawn = await marks(tab)
        assert drawn["price"] == drawn["time"] == len({one.variant for one in made.results})
        assert (drawn["tokens-in"] > 0) == bool(made.results)
        assert await tab.count("#grid button.cell") == rows * tasks
        await tab.close()


@in_the_browser
async def test_pictures_fit_when_the_window_changes_and_the_colours_follow(browser: Browser, tmp_path: Path) -> None:
    tab = await opened(browser, tmp_path, render_page(comparison(5, 8), record=recorded))
    drawn = "document.documentElement.dataset.drawn === 'all'"
    fits = (
        "[...document.querySelectorAll('.plot')]"
        ".every(p => p.querySelector('svg').getBoundingClientRect().width <= p.clientWidth + 1)"
    )
    assert await tab.evaluate(fits)
    light = await tab.evaluate("getComputedStyle(document.querySelector('#price .mark-symbol.role-mark path')).fill")
    await tab.viewport(390, 800)
    await tab.wait_for(f"{drawn} && document.querySelector('#time svg').getBoundingClientRect().width < 390")
    assert await tab.evaluate(fits)
    await tab.media(dark=True)
    await tab.wait_for(
        f"{drawn} && getComputedStyle(document.querySelector('#price .mark-symbol.role-mark path')).fill !== '{light}'"
    )
    await quiet(tab)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@in_the_browser
async def test_all_text_can_be_read_and_all_is_named(browser: Browser, tmp_path: Path, dark: bool) -> None:
    made = comparison(5, 10, leave=2)
    tab = await opened(browser, tmp_path, render_page(made, record=recorded), dark=dark)
    assert await tab.poor_contrast() == []
    nodes = await tab.accessible()
    names = [node["name"] for node in nodes if node["role"] in ("button", "image", "img", "dialog", "region", "table")]
    assert all(names)
    assert "react @ local, report-1-1: wrong" in names
    headings = [node["name"] for node in nodes if node["role"] == "heading"]
    assert headings[0] == "Comparison of basics:report"
    assert headings[1:3] == ["The table", "Pictures"]
    await tab.click("#grid button")
    assert await tab.poor_contrast() == []


def test_the_same_comparison_gives_the_same_bytes() -> None:
    made = comparison(4, 6, 2, leave=3, hostile=True)
    first = render_page(made, record=recorded)
    assert render_page(made, record=recorded) == first


def test_the_days_of_its_runs_are_told() -> None:
    made = comparison(2, 2, 1)
    assert made.when == ""
    named = [structs.replace(each, run=f"2026112{i % 3}-031500-abcde{i}") for i, each in enumerate(made.results)]
    made = structs.replace(made, results=tuple(named))
    assert made.when == "2026-11-20 to 2026-11-22"
    assert "2026-11-20 to 2026-11-22" in render_page(made, record=recorded)


def test_all_graders_that_judged_are_told() -> None:
    made = comparison(1, 2, 1)
    assert "<dt>Grader</dt><dd><bdi>has</bdi></dd>" in render_page(made, record=recorded)
    tasks = (made.suite.tasks[0], structs.replace(made.suite.tasks[1], grader="number"))
    shown = render_page(structs.replace(made, suite=structs.replace(made.suite, tasks=tasks)), record=recorded)
    assert "<dt>Graders</dt><dd><bdi>has, number</bdi></dd>" in shown


def test_another_process_gives_the_same_bytes() -> None:
    code = (
        "import hashlib, sys; sys.path.insert(0, 'tests'); import test_lab_page as t; "
        "print(hashlib.sha256(t.render_page(t.comparison(4, 6), record=t.recorded).encode()).hexdigest())"
    )
    root = Path(__file__).parent.parent
    told = run_forked(["-c", code], cwd=root)  # its hashes have another seed
    assert told.stdout.strip() == hashlib.sha256(render_page(comparison(4, 6), record=recorded).encode()).hexdigest()


def test_where_no_price_is_known_tokens_stand_for_it_and_that_is_said() -> None:
    for cost in (0.0, None):
        text = render_page(comparison(3, 4, cost_usd=cost), record=recorded)
        assert "Success against tokens" in text
        assert "no run has a known cost above 0 USD" in text
    assert "Success against cost" in render_page(comparison(3, 4), record=recorded)


def test_the_frontier_is_what_nothing_as_cheap_beats() -> None:
    points = [(3.0, 0.9), (1.0, 0.5), (2.0, 0.5), (1.0, 0.4), (4.0, 0.9), (2.5, 0.7)]
    assert find_frontier(points) == [1, 5, 0]
    assert find_frontier([]) == []


def test_nothing_but_two_scripts_may_run_and_nothing_be_fetched() -> None:
    text = render_page(comparison(3, 4, hostile=True), record=recorded)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy[1]
    assert not re.search(r"<(?:link|img|iframe|object|embed|base)\b|<script src=", text.replace(drawing_script(), ""))
    assert len(re.findall(r"<script>", text.replace(drawing_script(), ""))) == 2


def test_hidden_characters_are_shown_and_others_left() -> None:
    assert show_hidden("a\x00\x1b\x7f\x9b") == "a[U+0000][U+001B][U+007F][U+009B]"
    assert show_hidden("\u200e\u202e\u2066\ufeff") == "[U+200E][U+202E][U+2066][U+FEFF]"
    same = "tab\tline\nשלום 👩\u200d🔬 <b>"
    assert show_hidden(same) == same


def test_a_call_that_is_not_told_elsewhere_is_told() -> None:
    call = Call("send", {"body": "long " * 50})
    events: Iterable[Event] = [ev.Called(1, call), ev.Observed(1, call, Observation("sent"))]
    assert [part[0] for part in make_record(events)["steps"][0]["parts"]] == ["call", "observation"]
    events = [ev.Called(1, call)]  # no observation came: the run was killed
    assert [part[0] for part in make_record(events)["steps"][0]["parts"]] == ["call"]
    assert json.dumps(call.input) == make_record(events)["steps"][0]["parts"][0][2]


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("altair", "vl_convert"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, name, None)
            drawing_script.cache_clear()
            for ask in (check_report_extra, lambda: render_page(comparison(2, 2), record=recorded)):
                with pytest.raises(ConfigError, match=re.escape(install_hint("report"))):
                    ask()
    drawing_script.cache_clear()
    check_report_extra()
