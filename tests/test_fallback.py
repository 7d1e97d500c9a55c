"""One loop goes on as another: on the record, with its own prompts, phases, models and splitters."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

import plait
from cli_support import Shell
from journal_rows import is_request
from models_server import Server, completion
from plait.core import Answered, Exchange, LimitNear, LoopContext, LoopRun, OneKind, Splitter, Task, note, think, user
from plait.core import events as ev
from plait.journal.records import NoteRecord
from plait.loops import ToolCalling, fallback_of, phases_of, registry, splitter_of
from plait.loops.fallback import fall_back
from plait.models.scripted import ABILITIES
from plait.runtime.templates.prompts import PromptBook
from test_tool_calling import LOOK, LYON, NO_TOOLS, REFUSALS, Endpoint, calling

CALLS: list[str] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear()


@plait.tool(read_only=True)
def people(city: str) -> int:
    """People living in a city."""
    CALLS.append(city)
    return {"Lyon": 522250, "Nice": 348085}[city]


TURN = '{"thought": "I look.", "tool": "people", "tool_input": "Lyon"}'
DONE = '{"thought": "That is it.", "tool": "final_answer", "tool_input": "522250"}'
ACTION = 'Thought: I look.\nAction:\n```json\n{"action": "people", "action_input": "Lyon"}\n```'
FINAL = "Thought: That is it.\nFinal Answer: 522250"


@dataclass(frozen=True)
class Hesitant:
    """A loop of a user's: asks once, and goes on as another when the model does not know."""

    fallback: str = "react"

    name: ClassVar[str] = "hesitant"
    phases: ClassVar[tuple[str, ...]] = ("first",)
    prompts: ClassVar[dict[str, str]] = {"ask": "Do you know it? {{ question }}"}

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        reply = yield from think("first", [user(context.prompt("ask", question=task.question))])
        if not self.fallback or "no" not in reply.text.lower():
            return Answered(reply.text)
        return (yield from fall_back(self.fallback, task, context, "The model does not know."))

    def splitter(self, phase: str) -> Splitter:
        assert phase == "first"
        return OneKind("thought")


@dataclass(frozen=True)
class Twice(Hesitant):
    """One that falls back to a loop that falls back itself."""

    fallback: str = "hesitant"

    name: ClassVar[str] = "twice"


@dataclass(frozen=True)
class Endless(Hesitant):
    """One that falls back to itself."""

    fallback: str = "endless"

    name: ClassVar[str] = "endless"


class Point:
    """An entry point as an installed package would bring it."""

    def __init__(self, kind: type[Any]) -> None:
        self.name, self._kind = kind.name, kind

    def load(self) -> type[Any]:
        return self._kind


@pytest.fixture
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "plugins", lambda group: [Point(kind) for kind in (Hesitant, Twice, Endless)])


def requests(run: Any) -> list[tuple[str, str, dict[str, Any]]]:
    """(phase, model, body) of each request."""
    rows = [(row.record, row.body) for row in run.trace if is_request(row.record)]
    return [(record.asked.phase, record.asked.model, json.loads(body)) for record, body in rows]


def fallbacks(run: Any) -> list[str]:
    return [
        row.record.text for row in run.trace if isinstance(row.record, NoteRecord) and row.record.kind == "fallback"
    ]


def written(events: Any) -> list[tuple[str, int, str]]:
    return [(type(e).__name__, e.step, e.text) for e in events if isinstance(e, ev.Thought | ev.Action | ev.Answer)]


async def _streamed(agent: plait.Agent) -> list[Any]:
    return [each async for each in agent.stream("How many?")]


# -- tool_calling to json


def tool_calling_to_json(journal: Path, **options: Any) -> plait.Agent:
    model = plait.Scripted({"json.act": [TURN, DONE]}, abilities=NO_TOOLS, chunk=5)
    return plait.Agent(ToolCalling(fallback="json"), tools=[people], journal=journal, **{"model": model, **options})


def test_the_other_loop_goes_on_with_its_own_prompts_under_its_own_phase(journal: Path) -> None:
    agent = tool_calling_to_json(journal)
    run = agent.run("How many?")
    assert (run.status, run.answer, run.steps, CALLS) == ("answered", "522250", 2, ["Lyon"])
    assert [phase for phase, _, _ in requests(run)] == ["json.act", "json.act"]
    rules = requests(run)[0][2]["messages"][0]["content"]
    assert (
        rules.startswith("You are a careful assistant that solves the user's task by using tools")
        and "final_answer" in rules
    )
    assert fallbacks(run) == ["scripted:scripted takes no native tools. Going on with the loop 'json'."]
    replayed = agent.replay(run.id)
    assert (replayed.whole, replayed.requests, replayed.outcome) == (True, 2, run.outcome)


def test_its_replies_are_told_apart_by_its_own_splitter_live_and_later(journal: Path) -> None:
    seen = asyncio.run(_streamed(tool_calling_to_json(journal)))
    joined: dict[tuple[str, int], str] = {}
    for kind, step, text in written(seen):
        joined[kind, step] = joined.get((kind, step), "") + text
    later = {(kind, step): text for kind, step, text in written(seen[-1].run.events)}
    assert joined == later
    assert later["Thought", 1] == "I look." and later["Answer", 2] == "522250"


def test_its_phase_can_have_a_model_of_its_own(journal: Path) -> None:
    one = plait.Scripted([], abilities=NO_TOOLS, name="one")
    two = plait.Scripted([TURN, DONE], name="two")
    run = tool_calling_to_json(journal, model=one, models={"json.act": two}).run("How many?")
    assert run.answer == "522250"
    assert [(phase, model) for phase, model, _ in requests(run)] == [("json.act", "scripted:two")] * 2


def test_a_model_for_the_first_loops_phase_alone_serves_the_other_too(journal: Path) -> None:
    one = plait.Scripted([TURN, DONE], abilities=NO_TOOLS, name="one")
    agent = tool_calling_to_json(journal, model="local", models={"act": one})
    run = agent.run("How many?")
    assert run.answer == "522250"
    assert {model for _, model, _ in requests(run)} == {"scripted:one"}
    assert agent.replay(run.id).whole


def test_from_the_command_line_with_a_model_for_one_phase_and_shown_later(tmp_path: Path) -> None:
    """`--model act=...` alone, and a real endpoint that refuses tools."""
    shell = Shell(tmp_path)
    (tmp_path / "people.json").write_text('{"Lyon": 522250}')
    turn = TURN.replace("people", "lookup")
    run = ("run", "How many?", "--loop", "tool_calling", "--set", "fallback=json", "--model", "act=vllm:m")

    async def main() -> tuple[Any, list[Any]]:
        async with Server(Endpoint(REFUSALS[0], completion(turn), completion(DONE))) as server:
            env = {"VLLM_BASE_URL": server.url}
            ended = await asyncio.to_thread(shell, *run, "--tools", "lookup:people.json", env=env)
            return ended, [asked.body for asked in server.asked]

    ended, sent = asyncio.run(main())
    assert (ended.code, ended.out) == (0, "522250\n"), ended.err
    assert ["tools" in body for body in sent] == [True, False, False]
    note = "Note (fallback): vllm:m takes no native tools. Going on with the loop 'json'."
    for said in (ended.err, shell("show", "last").out):
        assert note in said and "Thought: I look." in said and "json.act" in said, said


def test_a_refusal_leads_to_the_other_loop_and_stays_on_the_record(journal: Path) -> None:
    async def main() -> Any:
        async with Server(Endpoint(REFUSALS[0], completion(TURN), completion(DONE))) as server:
            agent = plait.Agent(ToolCalling(fallback="json"), model=server.model(), tools=[people], journal=journal)
            run = await agent.arun("How many?")
            return agent, run, [asked.body for asked in server.asked]

    agent, run, sent = asyncio.run(main())
    assert (run.answer, run.steps, run.calls) == ("522250", 2, 2)
    assert ["tools" in body for body in sent] == [True, False, False]
    assert [phase for phase, _, _ in requests(run)] == ["act", "json.act", "json.act"]
    replayed = agent.replay(run.id)
    assert (replayed.whole, replayed.requests) == (True, 3)


def test_what_was_called_already_is_handed_on_and_not_called_again(journal: Path) -> None:
    async def main() -> Any:
        async with Server(Endpoint(calling(LYON), REFUSALS[0], completion(DONE))) as server:
            agent = plait.Agent(ToolCalling(fallback="json"), model=server.model(), tools=[people], journal=journal)
            return await agent.arun("How many?")

    run = asyncio.run(main())
    assert (run.answer, CALLS) == ("522250", ["Lyon"])
    task = requests(run)[2][2]["messages"][1]["content"]
    assert "How many?" in task and '- people {"city": "Lyon"}: 522250' in task


def test_misses_in_text_lead_to_the_other_loop_as_well(journal: Path) -> None:
    """Here the endpoint takes tools, and the model gives nothing at all."""
    model = plait.Scripted({"act": ["", ""], "json.act": [TURN, DONE]}, by_turn=True, abilities=ABILITIES)
    run = plait.Agent(
        ToolCalling(fallback="json", max_parse_errors=1), model=model, tools=[people], journal=journal
    ).run("How many?")
    assert run.answer == "522250"
    assert "1 replies in a row could not be read" in fallbacks(run)[0]


def test_the_users_system_prompt_is_not_sent_by_a_loop_it_was_not_written_for(journal: Path) -> None:
    run = tool_calling_to_json(journal, system="Use the tools you are given.").run("How many?")
    assert requests(run)[0][2]["messages"][0]["content"].startswith("You are a careful assistant that solves the user")


def test_prompts_of_both_loops_can_be_replaced(journal: Path, tmp_path: Path) -> None:
    (tmp_path / "mine" / "json").mkdir(parents=True)
    (tmp_path / "mine" / "json" / "question.j2").write_text("Mine: {{ question }}")
    run = tool_calling_to_json(journal, prompts=tmp_path / "mine").run("How many?")
    assert requests(run)[0][2]["messages"][1]["content"] == "Mine: How many?"


@pytest.mark.parametrize("at", [1, 2])
def test_a_fork_of_a_run_that_fell_back_shares_its_steps(journal: Path, at: int) -> None:
    agent = tool_calling_to_json(journal)
    run = agent.run("How many?")
    fork = agent.fork(run.id, at=at)
    assert (fork.answer, len(fallbacks(fork))) == ("522250", 1)
    assert len(CALLS) == (2 if at == 1 else 1)
    assert agent.replay(fork.id).whole


def test_a_limit_near_is_concluded_by_the_loop_that_is_running(journal: Path) -> None:
    agent = tool_calling_to_json(journal, limits=plait.Limits(steps=1))
    run = agent.run("How many?")
    assert (run.status, run.answer) == ("stopped", "522250")
    assert [phase for phase, _, _ in requests(run)] == ["json.act", "json.act"]


# -- loops of a user's own


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("word", [True, False])
def test_a_loop_of_ones_own_falls_back(journal: Path, word: bool) -> None:
    model = plait.Scripted({"first": ["No idea."], "react.act": [ACTION, FINAL]})
    agent = plait.Agent("hesitant" if word else Hesitant(), model=model, tools=[people], journal=journal)
    run = agent.run("How many?")
    assert (run.answer, CALLS) == ("522250", ["Lyon"])
    assert [phase for phase, _, _ in requests(run)] == ["first", "react.act", "react.act"]
    assert fallbacks(run) == ["The model does not know. Going on with the loop 'react'."]
    assert written(run.events)[:2] == [("Thought", 1, "No idea."), ("Thought", 2, "I look.")]
    assert agent.replay(run.id).whole


@pytest.mark.usefixtures("_installed")
def test_a_loop_that_falls_back_to_one_that_falls_back(journal: Path) -> None:
    model = plait.Scripted({"first": ["No."], "hesitant.first": ["No."], "hesitant.react.act": [ACTION, FINAL]})
    agent = plait.Agent(Twice(), model=model, tools=[people], journal=journal)
    assert phases_of(Twice()) == ("first", "hesitant.first", "hesitant.react.act")
    run = agent.run("How many?")
    assert run.answer == "522250", run.reason
    assert [phase for phase, _, _ in requests(run)] == [
        "first",
        "hesitant.first",
        "hesitant.react.act",
        "hesitant.react.act",
    ]
    assert fallbacks(run) == [
        "The model does not know. Going on with the loop 'hesitant'.",
        "The model does not know. Going on with the loop 'react'.",
    ]
    assert [kind for kind, _, _ in written(run.events)] == [
        "Thought",
        "Thought",
        "Thought",
        "Action",
        "Thought",
        "Answer",
    ]
    assert agent.replay(run.id).whole


@pytest.mark.usefixtures("_installed")
def test_a_loop_that_comes_from_a_package_is_fallen_back_to(journal: Path) -> None:
    model = plait.Scripted({"hesitant.first": ["522250"]}, abilities=NO_TOOLS)
    agent = plait.Agent(ToolCalling(fallback="hesitant"), model=model, tools=[people], journal=journal)
    run = agent.run("How many?")
    assert run.answer == "522250"
    assert requests(run)[0][2]["messages"][0]["content"] == "Do you know it? How many?"
    assert agent.replay(run.id).whole


@pytest.mark.usefixtures("_installed")
def test_loops_that_fall_back_to_each_other_without_end_are_refused() -> None:
    with pytest.raises(plait.ConfigError, match="fall back to each other: endless -> endless -> endless"):
        plait.Agent(Endless(), model=plait.Scripted([]))


def test_an_unknown_fallback_is_refused_when_the_agent_is_made() -> None:
    for loop in (ToolCalling, Hesitant):
        with pytest.raises(plait.ConfigError, match=r"There is no loop 'jsn'\. Did you mean json"):
            plait.Agent(loop(fallback="jsn"), model=plait.Scripted([]))


def test_a_phase_that_neither_loop_has_is_refused() -> None:
    with pytest.raises(plait.ConfigError, match=r"no phase 'json\.solve'\. Its phases: act, json\.act"):
        plait.Agent(ToolCalling(fallback="json"), models={"json.solve": plait.Scripted([])})
    with pytest.raises(plait.ConfigError, match=r"no phase 'json\.act'\. Its phases: act\."):
        plait.Agent(ToolCalling(), models={"json.act": plait.Scripted([])})


def test_a_loop_without_a_fallback_has_none() -> None:
    assert fallback_of(ToolCalling()) is None and fallback_of(plait.ReAct()) is None
    assert phases_of(plait.ReAct()) == ("act",)
    assert type(splitter_of(ToolCalling(fallback="json"), "json.act")) is type(plait.JsonReAct().splitter("act"))


# -- by hand


@pytest.mark.parametrize("loop", ["rewoo", "compiler"])
def test_where_plans_need_leave_nothing_is_called_by_a_loop_that_shows_none(journal: Path, loop: str) -> None:
    model = plait.Scripted({"plan": ["No.", "No."], "react.act": [ACTION, FINAL]})
    asking = plait.Agent(loop, model=model, tools=[people], journal=journal, approve="plan")
    run = asking.run("How many?")
    assert (run.status, CALLS) == ("failed", [])
    assert run.reason.endswith(
        "The loop 'react' was not begun: it shows no plan, and a plan needs the user's approval."
    )
    assert asking.replay(run.id).whole
    assert asking.using(approve="never").run("How many?").answer == "522250"
    # One that shows a plan is gone on with, and waits with it.
    planner = plait.Scripted({"plan": ["No.", "No."], "rewoo.plan": ["#E1 = people[Lyon]"], "rewoo.solve": ["522250"]})
    other = asking.using(loop=plait.LLMCompiler(fallback="rewoo"), model=planner)
    waiting = other.run("How many?")
    assert (waiting.status, waiting.reason) == ("waiting", "#E1 = people[Lyon]")
    assert other.resume(waiting, "yes").answer == "522250"


def test_the_conversation_is_handed_on_and_what_is_thrown_reaches_the_other_loop() -> None:
    seen: list[Any] = []

    @dataclass(frozen=True)
    class Below:
        name: ClassVar[str] = "below"
        phases: ClassVar[tuple[str, ...]] = ("act",)
        prompts: ClassVar[dict[str, str]] = {"none": "it renders none"}

        def run(self, task: Task, context: LoopContext) -> LoopRun:
            seen.extend([task, context.system])
            yield from note("hello", "from below")
            try:
                yield from think("act", [user("q")])
            except LimitNear as limit:
                return Answered(limit.limit)
            raise AssertionError

        def splitter(self, phase: str) -> Splitter:
            return OneKind("thought")

    task = Task("And Nice?", (Exchange("Lyon?", "522,250"),))
    context = LoopContext(
        (), PromptBook("tool_calling", None, None, (PromptBook("below", None, Below.prompts),)), system="mine"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "plugins", lambda group: [Point(Below)])
        loop = fall_back("below", task, context, "Why not.")
        assert next(loop).text == "Why not. Going on with the loop 'below'."  # type: ignore[union-attr]
        assert loop.send(None).text == "from below"  # type: ignore[union-attr]
        assert loop.send(None).phase == "below.act"  # type: ignore[union-attr]
        with pytest.raises(StopIteration) as end:
            loop.throw(LimitNear("steps", "enough"))
    assert end.value.value == Answered("steps")
    assert seen == [task, None]


def test_in_text_first_and_then_as_json_when_nothing_can_be_read(journal: Path) -> None:
    """`tool_calling` has no fallback by name on the way to text; with one, text is never tried."""
    model = plait.Scripted({"act": [LOOK], "json.act": [TURN, DONE]}, abilities=NO_TOOLS)
    run = plait.Agent(ToolCalling(fallback="json"), model=model, tools=[people], journal=journal).run("How many?")
    assert [phase for phase, _, _ in requests(run)] == ["json.act", "json.act"]
    run = plait.Agent(ToolCalling(), model=plait.Scripted([LOOK, "522250"], abilities=NO_TOOLS), tools=[people]).run(
        "Q"
    )
    assert (run.answer, [phase for phase, _, _ in requests(run)]) == ("522250", ["act", "act"])
