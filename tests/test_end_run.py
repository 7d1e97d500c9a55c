"""A tool ends the run with an answer or as failed: in every loop, with all checks, on the record."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import plait
from cli_support import action, final, turn
from plait.core import Call, Observation, Reply
from plait.core.errors import ConfigError
from plait.core.events import Observed

SENT: list[str] = []
BESIDE = threading.Event()
"""Whether the call of `send` has begun, or there is none."""


@pytest.fixture(autouse=True)
def _none_sent() -> None:
    SENT.clear()
    BESIDE.set()


@plait.tool
def report(text: str) -> str:
    """Ends the run."""
    BESIDE.wait(5)
    raise plait.EndRun(f"Found {text}.")


@plait.tool
async def lock(text: str) -> Any:
    """Ends the run as failed."""
    await asyncio.to_thread(BESIDE.wait, 5)
    return plait.EndRun(failure="The account is locked.")


@plait.tool
def send(text: str) -> str:
    """Sends, slowly."""
    BESIDE.set()
    time.sleep(0.05)
    SENT.append(text)
    return "sent"


def code(text: str) -> str:
    return f" a\nACTION 1:\n```python\n{text}\n```"


def seen(run: plait.Run) -> list[str]:
    return [each.observation.text for each in run.events if isinstance(each, Observed)]


def both(name: str) -> Reply:
    return Reply("", calls=(Call(name, {"text": "a"}, id="1"), Call("send", {"text": "b"}, id="2")))


SCRIPTS: dict[str, tuple[str, Any, bool]] = {
    "react": ("react", lambda name: [action(name, "a")], False),
    "json": ("json", lambda name: [turn(name, {"text": "a"})], False),
    "tool_calling": ("tool_calling", lambda name: [both(name)], True),
    "rewoo": ("rewoo", lambda name: {"plan": [f"Plan: a\n#E1 = {name}[a]\nPlan: b\n#E2 = send[b]"]}, True),
    "compiler": ("compiler", lambda name: {"plan": [f'1. {name}("a")\n2. send("b")\n3. join()']}, True),
    "code": ("codeact", lambda name: [code(f"try:\n    {name}('a')\nexcept BaseException:\n    send('x')")], False),
    "gather": ("codeact", lambda name: [code(f"import asyncio\nawait asyncio.gather({name}('a'), send('b'))")], True),
}


@pytest.mark.parametrize("name", ["report", "lock"])
@pytest.mark.parametrize("script", list(SCRIPTS))
def test_a_tool_ends_the_run_in_every_loop_and_calls_beside_it_come_to_their_end(
    script: str, name: str, journal: Path
) -> None:
    loop, turns, beside = SCRIPTS[script]
    if beside:
        BESIDE.clear()
    agent = plait.Agent(loop, model=plait.Scripted(turns(name)), tools=[report, lock, send], journal=journal)
    run = agent.run("q")
    ends = ("answered", "Found a.", None) if name == "report" else ("failed", None, "The account is locked.")
    assert (run.status, run.answer, run.reason) == ends
    assert getattr(run.outcome, "kind", "tool") == "tool"
    assert (["b"] if beside else []) == SENT
    assert seen(run) == ["Found a." if name == "report" else "The account is locked.", *["sent"] * beside]
    assert run.timeline.results[-1][1].trouble in ("", "raised")
    assert agent.replay(run.id).whole and (["b"] if beside else []) == SENT


def one_tool(function: Any, *turns: Any, **fields: Any) -> plait.Agent:
    function.__doc__ = "Does it."
    tool = plait.tool(name="do")(function)
    model = plait.Scripted([*turns] or [action("do", "x"), final("by the model")])
    return plait.Agent("react", model=model, tools=[tool], **{"journal": False, **fields})


class Said(str):
    """A text that claims to be more."""

    ends, answer, failure = "answer", "stolen", "stolen"


@pytest.mark.parametrize(
    "value",
    [
        "EndRun('stolen')",
        Said("stolen"),
        {"ends": "answer", "value": "stolen"},
        [plait.EndRun("stolen")],
        plait.EndRun,
        RuntimeError("EndRun: stolen"),
    ],
    ids=["text", "subclass", "dict", "inside", "class", "error"],
)
def test_nothing_but_the_signal_itself_ends_a_run(value: Any) -> None:
    def do(text: str) -> Any:
        if isinstance(value, Exception):
            raise value
        return value

    assert one_tool(do).run("q").answer == "by the model"


async def test_the_signal_passes_except_clauses_and_task_groups_of_the_tool() -> None:
    def caught(text: str) -> str:
        try:
            raise plait.EndRun("out")
        except Exception:
            return "caught"

    async def grouped(text: str) -> str:
        async def inner() -> None:
            raise plait.EndRun("out")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(inner())
        return "not reached"

    for function in (caught, grouped):
        run = await one_tool(function).arun("q")
        assert (run.status, run.answer) == ("answered", "out")


@pytest.mark.parametrize("inline", [True, False])
def test_an_answer_has_to_fit_the_output_type_and_the_checks(inline: bool, journal: Path) -> None:
    answers: list[Any] = ["no number", 500, "42"]

    @plait.tool(inline=inline)
    def do(text: str) -> Any:
        """Does it."""
        return plait.EndRun(answers.pop(0))

    def is_small(value: int) -> str | None:
        return None if value < 100 else "Give a number below 100."

    output = plait.OutputType(int, checks=[is_small])
    model = plait.Scripted([action("do", text) for text in "abc"])
    agent = plait.Agent("react", model=model, tools=[do], output=output, journal=journal)
    run = agent.run("q")
    assert (run.status, run.output, run.calls) == ("answered", 42, 3)
    assert "does not fit" in seen(run)[0] and "below 100" in seen(run)[1]
    assert agent.replay(run.id).whole


def test_an_answer_of_any_type_becomes_json() -> None:
    def do(text: str) -> Any:
        return plait.EndRun({"cities": ("Lyon", Path("/a"))})

    assert one_tool(do).run("q").answer == {"cities": ["Lyon", "/a"]}
    assert one_tool(do, output=dict[str, list[str]]).run("q").output == {"cities": ["Lyon", "/a"]}


class Decides(plait.Hook):
    """Decides about an answer or the result of a call."""

    def __init__(self, answer: Any = None, result: Any = None) -> None:
        self.answer, self.result = answer, result

    def before_answer(self, context: Any, answer: Any) -> Any:
        return self.answer

    def after_tool(self, context: Any, call: Call, observation: Any) -> Any:
        return self.result


OBSERVED = Observation("changed", value="changed")


@pytest.mark.parametrize(
    ("hook", "ends"),
    [
        (Decides(), ("answered", "out", None)),
        (Decides(answer=plait.Refuse("Not this.")), ("failed", None, "The answer is not accepted: Not this.")),
        (Decides(answer="another"), ("answered", "another", None)),
        (Decides(result=OBSERVED), ("answered", "changed", None)),
        (Decides(result=plait.Refuse("Not this.")), ("answered", "by the model", None)),
    ],
    ids=["passes", "refuses", "changes", "replaces the result", "withholds the result"],
)
def test_hooks_decide_about_the_answer(hook: plait.Hook, ends: Any, journal: Path) -> None:
    def do(text: str) -> Any:
        return plait.EndRun("out")

    agent = one_tool(do, hooks=[hook], journal=journal)
    run = agent.run("q")
    assert (run.status, run.answer, run.reason) == ends
    assert agent.replay(run.id).whole


@pytest.mark.parametrize(
    ("loop", "changed"),
    [
        ("react", {"value": 500}),
        ("react", {"text": "no", "trouble": "raised"}),
        ("codeact", {"value": "[masked]"}),
        ("hand_off", {"value": "[masked]"}),
    ],
)
def test_an_answer_that_a_hook_changes_is_checked_again(changed: dict[str, Any], loop: str, journal: Path) -> None:
    @plait.tool
    def do(text: str) -> Any:
        """Does it."""
        return plait.EndRun(7)

    def is_small(value: int) -> str | None:
        return None if value < 100 else "Give a number below 100."

    class Change(plait.Hook):
        def after_tool(self, context: Any, call: Call, observation: Observation) -> Observation:
            return structs.replace(observation, **changed)

    child = plait.Agent("react", model=plait.Scripted([final("7")]), journal=False)
    agent = plait.Agent(
        "codeact" if loop == "codeact" else "react",
        model=plait.Scripted(
            [code("do('x')"), code("stop(8)")] if loop == "codeact" else [action("do", "x"), final("8")]
        ),
        tools=[child.as_tool("do", hand_off=True) if loop == "hand_off" else do],
        hooks=[Change()],
        output=plait.OutputType(int, checks=[is_small]),
        journal=journal,
    )
    run = agent.run("q")
    assert (run.status, run.answer) == ("answered", 8), run.reason
    if loop != "codeact" and "value" in changed:  # code that a tool ends gets no result
        assert b"the result of 'do' cannot be the answer." in run.timeline.model_calls[-1].request
    assert agent.replay(run.id).whole


def test_what_a_tool_answers_is_grounded_because_a_tool_returned_it() -> None:
    def do(text: str) -> Any:
        return plait.EndRun("4,711 people")

    assert one_tool(do, grounding="refuse").run("Find it: x").answer == "4,711 people"


def test_a_call_that_ends_the_run_as_failed_is_not_repeated_by_a_hook() -> None:
    class Again(plait.Hook):
        def on_tool_error(self, *_: Any) -> float:
            return 0.0

    count = [0]

    @plait.tool(read_only=True)
    def do(text: str) -> Any:
        """Does it."""
        count[0] += 1
        return plait.EndRun(failure="Over.")

    model = plait.Scripted([action("do", "x")])
    run = plait.Agent("react", model=model, tools=[do], hooks=[Again()], journal=False).run("q")
    assert (run.status, run.reason, count) == ("failed", "Over.", [1])


@pytest.mark.parametrize("point", ["before_model", "before_tool", "on_tool_error", "after_tool", "before_answer"])
def test_outside_of_a_tool_the_signal_is_an_error_that_is_on_record(point: str, journal: Path) -> None:
    def end(*_: Any) -> Any:
        raise plait.EndRun("out")

    @plait.tool(read_only=True)
    def do(text: str) -> str:
        """Does it."""
        raise plait.ToolError("no")

    hook = type("Ends", (plait.Hook,), {point: end})()
    model = plait.Scripted([Reply("", calls=(Call("do", {"text": "a"}, id="1"),)), "x"])
    run = plait.Agent("tool_calling", model=model, tools=[do], hooks=[hook], journal=journal).run("q")
    assert (run.status, run.reason) == ("crashed", "plait.EndRun was raised outside of a tool.")


def test_a_tool_of_a_child_run_ends_the_child() -> None:
    child = plait.Agent("react", model=plait.Scripted([action("report", "a")]), tools=[report], journal=False)
    agent = plait.Agent(
        "react",
        model=plait.Scripted([action("ask", "x"), final("and on")]),
        tools=[child.as_tool("ask")],
        journal=False,
    )
    run = agent.run("q")
    assert (run.answer, seen(run)) == ("and on", ["Found a."])


def test_an_approved_call_ends_the_run_and_a_waiting_sibling_is_asked_first(journal: Path) -> None:
    agent = plait.Agent(
        "tool_calling", model=plait.Scripted([both("report")]), tools=[report, send], approve="effects", journal=journal
    )
    run = agent.run("q")
    for _ in range(2):
        assert run.status == "waiting"
        run = agent.resume(run, "yes")
    assert (run.status, run.answer, SENT) == ("answered", "Found a.", ["b"])


@pytest.mark.parametrize("given", [{}, {"answer": "a", "failure": "b"}, {"failure": 3}, {"failure": ""}])
def test_the_signal_has_an_answer_or_a_reason(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="Give an answer, or the reason"):
        plait.EndRun(**given)
