"""Claims about what a caller says of a run: user, tags, metadata and label, in Python."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import plait
from conftest import for_each
from plait.core.errors import ConfigError
from plait.journal.store import Journal

FINAL = "Thought: I know it.\nFinal Answer: 4"


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def make(journal: Path | bool, *replies: Any, **options: Any) -> plait.Agent[str]:
    return plait.Agent("react", model=plait.Scripted([*replies] or [FINAL] * 9), journal=journal, **options)  # type: ignore[arg-type]


def said_of(run: Any) -> tuple[Any, ...]:
    return run.user, run.tags, run.metadata, run.label


ABOUT: dict[str, Any] = {"user": "ada", "tags": ["web", "web", "beta"], "metadata": {"order": 17}, "label": "mine"}
STORED = ("ada", ("web", "beta"), {"order": 17}, "mine")


@pytest.mark.parametrize("way", ["run", "arun", "stream", "astream"])
@pytest.mark.parametrize("stored", [True, False])
def test_each_way_to_run_takes_them_and_calls_on_event(journal: Path, way: str, stored: bool) -> None:
    agent, heard = make(journal if stored else False), list[Any]()

    async def follow() -> Any:
        return [event async for event in agent.stream("?", on_event=heard.append, **ABOUT)][-1].run

    match way:
        case "run":
            run = agent.run("?", on_event=heard.append, **ABOUT)
        case "arun":
            run = asyncio.run(agent.arun("?", on_event=heard.append, **ABOUT))
        case "stream":
            *_, last = agent.stream("?", on_event=heard.append, **ABOUT)
            run = last.run  # type: ignore[attr-defined]
        case _:
            run = asyncio.run(follow())
    assert said_of(run) == STORED and heard[-1].run is run
    assert run.json()["user"] == "ada" and run.json()["metadata"] == {"order": 17}
    if stored:
        assert said_of(Journal(journal).head(run.id)) == STORED


def test_a_resume_keeps_them_and_a_fork_keeps_what_is_not_given(journal: Path) -> None:
    asks = make(
        journal,
        "Thought: I add.\nAction: calculator\nAction Input: 2 + 2",
        FINAL,
        tools=["calculator"],
        approve="always",
    )
    waiting = asks.run("?", **ABOUT)
    assert waiting.status == "waiting" and said_of(waiting) == STORED
    assert said_of(asks.resume(waiting, "yes")) == STORED
    agent = make(journal)
    run = agent.run("?", **ABOUT)
    assert said_of(agent.fork(run, at=1)) == ("ada", ("web", "beta"), {"order": 17}, "")
    assert said_of(agent.fork(run, at=1, tags=[], label="other")) == ("ada", (), {"order": 17}, "other")


def test_child_runs_have_the_user_and_the_tags_of_the_run_that_started_them(journal: Path) -> None:
    below = make(journal).as_tool("helper", "Helps.")
    asks = "Thought: I ask.\nAction: helper\nAction Input: ?"
    middle = make(journal, asks, FINAL, tools=[below]).as_tool("middle", "Helps.")
    run = make(journal, asks.replace("helper", "middle"), FINAL, tools=[middle]).run("?", **ABOUT)
    (child,) = run.children
    (grandchild,) = child.children
    assert said_of(child) == said_of(grandchild) == ("ada", ("web", "beta"), {}, "")


def test_secrets_are_in_none_of_them(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from plait.journal.redaction import redact_with

    redact_with(lambda text: text.replace("key-1234", "[out]"))
    try:
        make(journal).run("?", user="u key-1234", tags=["key-1234"], metadata={"k": ["key-1234"]})
    finally:
        redact_with(None)
    assert b"key-1234" not in b"".join(each.read_bytes() for each in journal.parent.iterdir())
    (row,) = Journal(journal).runs()
    assert said_of(row.head)[:3] == ("u [out]", ("[out]",), {"k": ["[out]"]})


LOOP: dict[str, Any] = {}
LOOP["loop"] = LOOP


@for_each(
    "wrong",
    [
        {"user": 7},
        {"user": "two\nlines"},
        {"user": "\x1b[31m"},
        {"user": "\ud800"},
        {"user": "u" * 257},
        {"tags": "one"},
        {"tags": [1]},
        {"tags": [""]},
        {"tags": ["t" * 65]},
        {"tags": [str(n) for n in range(33)]},
        {"tags": 5},
        {"metadata": []},
        {"metadata": {1: 2}},
        {"metadata": {"x": object()}},
        {"metadata": {"x": "\ud800"}},
        {"metadata": {"x": "y" * 16_000}},
        {"metadata": LOOP},
        {"metadata": {"x": [[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]}},
        {"label": 7},
    ],
)
def test_what_does_not_fit_is_refused_before_the_run_begins(journal: Path, wrong: Any) -> None:
    (name,) = wrong
    for call in (make(journal).run, lambda question, **about: make(journal).fork("last", 1, **about)):
        with pytest.raises(ConfigError, match=name.removesuffix("s") if name == "tags" else name) as why:
            call("?", **wrong)
        assert why.value.hint
    assert not journal.exists()


def test_an_on_event_that_fails_or_is_async_ends_a_stream_with_the_error(journal: Path) -> None:
    async def hear(event: Any) -> None: ...

    with pytest.raises(ConfigError, match="on_event"):
        make(journal).stream("?", on_event=hear)  # type: ignore[arg-type]

    def fail(event: Any) -> None:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        list(make(journal).stream("?", on_event=fail))


def test_tools_hooks_and_guards_know_the_user_in_child_runs_and_after_a_resume_too(journal: Path) -> None:
    seen: list[tuple[str, str]] = []

    @plait.tool
    def send(ctx: plait.Context, text: str) -> str:
        """Send a text."""
        seen.append(("tool", ctx.user))
        return text

    class Watch(plait.Hook):
        def before_tool(self, context: plait.Context[Any], call: Any) -> None:
            seen.append(("hook", context.user))

    class Count(plait.Guard):
        def start(self, context: plait.Context[Any]) -> plait.Guard:
            seen.append(("guard", context.user))
            return self

    script = plait.Scripted([{"calls": [{"name": "send", "input": {"text": "x"}}]}, {"answer": "done"}])
    child = plait.Agent("react", model=script, tools=[send], hooks=[Watch(), Count()], approve="effects")
    ask = plait.Scripted([{"calls": [{"name": "ask", "input": {"question": "x"}}]}, {"answer": "done"}])
    agent = plait.Agent("react", model=ask, tools=[child.as_tool("ask")], hooks=[Count()], journal=journal)
    waiting = agent.run("Send x.", user="ada")
    assert waiting.status == "waiting" and agent.resume(waiting, "yes").answer == "done"
    assert {kind for kind, _ in seen} == {"tool", "hook", "guard"} and {user for _, user in seen} == {"ada"}
    seen.clear()
    child.using(approve="never", journal=False).run("Send x.")
    assert seen == [("guard", ""), ("hook", ""), ("tool", "")]
