"""The order of texts, as a rule that holds for every loop and for whatever happens to a reply."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import plait
from conftest import for_each
from loop_scripts import LOOPS, QUESTION, SCRIPTS, TRIP, reply_of, write_action
from models_server import Asked, Server, delta, event
from plait.core import Call, Reply, Think
from plait.core import events as ev
from plait.models.base import Response
from plait.server.reply_pieces import ReplyPieces

Texts = dict[str, list[str]]
PIECES = (ev.Thought, ev.Action, ev.Answer, ev.Text)
LYON = "Lyon has 522,250 people."


@plait.tool(idempotent=True)
def fetch(key: str) -> str:
    """Fetch a value."""
    return f"value of {key}"


@plait.tool
def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


def read_texts(events: Iterable[Any]) -> Texts:
    """Return the texts by the kind of their mark. Asserts that each has its pieces first and one mark behind them."""
    texts: defaultdict[int, str] = defaultdict(str)
    marks: dict[int, str] = {}
    for each in events:
        if isinstance(each, PIECES):
            assert each.part > 0 and each.part not in marks and each.text, each
            texts[each.part] += each.text
        elif isinstance(each, ev.Marked):
            assert each.part in texts and each.part not in marks, each
            marks[each.part] = each.kind
    assert texts.keys() == marks.keys(), "a text without a mark"
    found: Texts = {"thought": [], "action": [], "answer": [], "dropped": []}
    for part, kind in marks.items():
        found[kind].append(texts[part])
    return found


def check_order(events: list[Any], run: plait.Run, *, before: Iterable[Any] = ()) -> Texts:
    """Assert the whole rule for the events of a run: those of one process, after those of `before`."""
    own = [each for each in events if not isinstance(each, ev.ChildEvent)]
    assert isinstance(own[0], ev.Began) and own[-1] is events[-1] and isinstance(own[-1], ev.Ended)
    live, recorded = read_texts(own), read_texts(run.events)
    whole = [run.answer] if isinstance(run.answer, str) else [json.dumps(run.answer)] if run.answer is not None else []
    for found in (live, recorded):
        same = found["answer"] == whole or [*map(json.loads, found["answer"])] == [*map(json.loads, whole)]
        assert same, (found["answer"], run.answer)
    first = read_texts(before)
    for kind in ("thought", "action"):
        assert sorted(first[kind] + live[kind]) == sorted(recorded[kind])
    assert not recorded["dropped"]
    for child in {each.run for each in events if isinstance(each, ev.ChildEvent)}:
        inner = [each.event for each in events if isinstance(each, ev.ChildEvent) and each.run == child]
        assert inner[-1].run.id == inner[0].run == child
        check_order(inner, inner[-1].run)
    return live


def watch(events: Iterable[Any], **more: Any) -> tuple[plait.Run, Texts]:
    seen = list(events)
    return seen[-1].run, check_order(seen, seen[-1].run, **more)


def native(text: str, *calls: tuple[str, Any]) -> Reply:
    return Reply(text, "calls", calls=tuple(Call(tool, given, f"c{i}") for i, (tool, given) in enumerate(calls)))


@pytest.mark.parametrize("chunk", [1, 7, 0])
@pytest.mark.parametrize("loop", LOOPS)
def test_every_loop_sends_each_text_once_and_then_its_mark(loop: str, chunk: int, tmp_path: Path) -> None:
    replies = {phase: [*map(reply_of, turns)] for phase, turns in SCRIPTS[loop].items()}
    model = plait.Scripted(replies, chunk=chunk)
    agent = plait.Agent(loop, model=model, tools=[fetch, send], journal=tmp_path / "j.db")
    events = list(agent.stream(QUESTION))
    run, texts = watch(events)
    pieces = [each.text for each in events if isinstance(each, ev.Answer | ev.Text)]
    assert pieces[-2:] == ["n", "t"] if chunk == 1 and loop != "codeact" else pieces
    assert (run.answer, texts["answer"], texts["dropped"]) == ("all is sent", ["all is sent"], [])
    forked, _ = watch(agent.stream_fork(run, 1, label="again"))
    assert forked.answer == run.answer
    assert list(agent.stream_resume(run)) == [], "a run that is over has no events"


class OwnModel(plait.Scripted):
    """A model of a user, which decodes its replies itself."""

    def decode(self, response: Response, think: Think) -> Reply:
        reply = super().decode(response, think)
        return structs.replace(reply, text=reply.text.replace("\ufffd", "\ud800"))


@pytest.mark.parametrize("kind", [plait.Scripted, OwnModel])
@pytest.mark.parametrize("loop", LOOPS)
def test_half_a_character_of_a_reply_ends_no_run(loop: str, kind: type[plait.Scripted], tmp_path: Path) -> None:
    def halve(turn: Any) -> str | Reply:
        if isinstance(turn, str):
            return turn.replace("all is", "all \ud800 is").replace("three", "three \udfff")
        return reply_of(turn)

    replies = {phase: [*map(halve, turns)] for phase, turns in SCRIPTS[loop].items()}
    if loop == "tool_calling":  # a native call that is damaged is asked for again
        damaged = Reply("", "calls", calls=(Call("send", {"text": "\ud800"}),))
        replies["act"] = [damaged, *replies["act"]]
    agent = plait.Agent(loop, model=kind(replies, chunk=1), tools=[fetch, send], journal=tmp_path / "j.db")
    run, _ = watch(agent.stream(QUESTION))
    assert run.answer == "all \ufffd is sent"
    assert agent.replay(run.id).outcome == run.outcome


FINAL = {"thought": "done", "tool": "final_answer", "tool_input": TRIP}
ANSWERS: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "json": ("json", [json.dumps(FINAL)], {}),
    "json, typed": ("json", [json.dumps(FINAL)], {"output": dict[str, Any]}),
    "code": ("codeact", [f" So.\nACTION 1:\n```python\nstop({TRIP})\n```"], {}),
    "a tool": ("tool_calling", [native("Here.", ("final_answer", TRIP))], {"output": dict[str, Any], "tools": [send]}),
    "schema": ("tool_calling", [json.dumps(TRIP)], {"output": dict[str, Any]}),
    "spaced JSON": ("tool_calling", [json.dumps(TRIP, indent=2)], {"output": dict[str, Any]}),
    "in a fence": ("react", [f"Final Answer:\n```json\n{json.dumps(TRIP)}\n```"], {"output": dict[str, Any]}),
    "a list": ("tool_calling", ['{"value": [1, 2]}'], {"output": list[int]}),
    "a thought and the answer": ("react", ["Thought: so\nFinal Answer:   7  \n"], {}),
    "blanks": ("tool_calling", ["  Hello.\n\n"], {}),
    "two answers": ("react", ["Final Answer: 6\nThought: no\nFinal Answer: 7"], {}),
    "an action wins": ("react", [f"Final Answer: 7\n{write_action('send', 'x')}", "Final Answer: 8"], {}),
    "refused in the format": ("tool_calling", ['I look: {"name": "send", "arguments": {', "It is 7."], {}),
    "a call in the text": ("tool_calling", ['I send.\n{"name": "send", "arguments": {"text": "x"}}', "It is 7."], {}),
    "rejected": ("react", ["Final Answer: soon", "Final Answer: 7"], {"output": int}),
    "rejected text": ("tool_calling", ["soon", "7"], {"output": int}),
    "never right": ("react", ["Final Answer: soon"] * 4, {"output": int}),
    "cut": ("tool_calling", [Reply("Lyon has", "length")], {}),
    "no answer": ("react", [RuntimeError("broken")], {}),
}  # fmt: skip


@pytest.mark.parametrize("chunk", [1, 0])
@pytest.mark.parametrize("case", ANSWERS)
def test_the_rule_holds_for_every_form_of_answer(case: str, chunk: int, tmp_path: Path) -> None:
    loop, replies, fields = ANSWERS[case]
    fields = {"tools": [send], "limits": plait.Limits(retries=0)} | fields
    agent = plait.Agent(loop, model=plait.Scripted(replies, chunk=chunk), journal=tmp_path / "j.db", **fields)
    watch(agent.stream("q?"))


def test_a_plan_that_is_asked_for_is_the_answer(tmp_path: Path) -> None:
    seen: list[Any] = []
    agent = plait.Agent(
        "rewoo", model=plait.Scripted(["Plan: so\n#E1 = send[a]"], chunk=3), tools=[send], journal=False
    )
    plan = asyncio.run(agent.aplan("q?", on_event=seen.append))
    check_order(seen, plan.run)


class Replace(plait.Hook):
    """Replaces what it is made for."""

    def __init__(self, at: str) -> None:
        self.at = at

    def after_model(self, context: Any, reply: Reply) -> Reply:
        return structs.replace(reply, text=reply.text.replace("hidden", "other")) if self.at == "model" else reply

    def after_answer(self, context: Any, answer: Any) -> Any:
        return "other" if self.at == "answer" else answer


@pytest.mark.parametrize("at", ["model", "answer"])
@pytest.mark.parametrize("loop", ["react", "tool_calling", "phased"])
def test_of_what_a_hook_replaces_nothing_is_sent(at: str, loop: str, tmp_path: Path) -> None:
    secret = "Final Answer: hidden" if loop == "react" else "hidden"
    model = plait.Scripted({"": [secret], "reason": ["Think."], "reply": [secret]}, chunk=2)
    agent = plait.Agent(loop, model=model, hooks=[Replace(at)], journal=tmp_path / "j.db")
    seen = list(agent.stream("q?"))
    own = read_texts(seen)
    assert own["answer"] == ["other"] == [seen[-1].run.answer]
    assert "hidden" not in str(own)


def stream_of(*parts: str, whole: bool = True) -> bytes:
    return b"".join(map(delta, parts)) + (delta("", "stop") + event(b"[DONE]") if whole else b"")


async def test_what_an_attempt_wrote_that_broke_off_is_dropped(tmp_path: Path) -> None:
    replies = [stream_of("Lyon ", "has tw", whole=False), stream_of("Lyon has ", "522,250 people.")]

    async def handle(asked: Asked) -> None:
        await asked.stream(replies.pop(0))

    async with Server(handle) as server:
        agent = plait.Agent("tool_calling", model=server.model(), journal=tmp_path / "j.db")
        seen = [each async for each in agent.stream("q?")]
    assert check_order(seen, seen[-1].run) == {
        "thought": [],
        "action": [],
        "answer": [LYON],
        "dropped": ["Lyon has tw"],
    }


async def test_a_cancelled_run_drops_what_it_was_writing_and_a_resume_sends_the_rest_once(tmp_path: Path) -> None:
    before: list[Any] = []
    model = plait.Scripted([native("I send.", ("send", {"text": "x"})), LYON], chunk=4)
    agent = plait.Agent("tool_calling", model=model, tools=[send], journal=tmp_path / "j.db", approve="always")
    first = await agent.arun("q?", on_event=before.append)
    assert first.status == "waiting"
    after = [each async for each in agent.stream_resume(first, "yes")]
    assert check_order(after, after[-1].run, before=before)["answer"] == [LYON]

    seen: list[Any] = []

    def cancel(each: Any) -> None:
        seen.append(each)
        if isinstance(each, ev.Text):
            running.cancel()

    slow = agent.using(model=plait.Scripted([LYON], chunk=4), tools=())
    running = asyncio.ensure_future(slow.arun("q?", on_event=cancel))
    with pytest.raises(asyncio.CancelledError):
        await running
    assert isinstance(seen[-1], ev.Ended) and not read_texts(seen)["answer"]


def test_child_runs_of_any_depth_tell_their_events_with_their_ids(tmp_path: Path) -> None:
    inner = plait.Agent("react", model=plait.Scripted(["Thought: deep\nFinal Answer: 3"], chunk=2))
    middle = plait.Agent(
        "tool_calling",
        model=plait.Scripted([native("I ask.", ("inner", {"question": "i"})), "the child says 3"], chunk=2),
        tools=[inner.as_tool("inner")],
    )
    outer = plait.Agent(
        "tool_calling",
        model=plait.Scripted([native("", ("middle", {"question": "m"})), "all in all 3"], chunk=2),
        tools=[middle.as_tool("middle")],
        journal=tmp_path / "j.db",
    )
    seen = list(outer.stream("q?"))
    run, texts = watch(seen)
    [child] = run.children
    [grandchild] = child.children
    parents = {each.run: each.parent for each in seen if isinstance(each, ev.ChildEvent)}
    assert parents == {child.id: run.id, grandchild.id: child.id}
    assert texts["answer"] == ["all in all 3"]
    pieces = ReplyPieces(outer, thoughts=True)
    sent = [pieces.add(each) for each in seen]
    content = "".join(text for _, text in sent) + pieces.rest(run.answer)
    assert (content, "child" in str(sent)) == ("all in all 3", False), "a chat has no text of a child run"


def test_an_error_of_on_event_at_a_childs_event_is_the_callers_and_all_runs_end(tmp_path: Path) -> None:
    child = plait.Agent("react", model=plait.Scripted(["Thought: deep\nFinal Answer: 3"]))
    model = plait.Scripted([native("", ("ask", {"question": "m"})), "3"])
    agent = plait.Agent("tool_calling", model=model, tools=[child.as_tool("ask")], journal=tmp_path / "j.db")
    error = ValueError("mine")

    def fail(each: Any) -> None:
        if isinstance(each, ev.ChildEvent) and isinstance(each.event, ev.Thought):
            raise error

    with pytest.raises(ValueError) as raised:
        asyncio.run(agent.arun("q?", on_event=fail))
    assert raised.value is error
    statuses = {each.status for each in plait.journal.store.Journal(tmp_path / "j.db").runs(-1, children=True)}  # type: ignore[attr-defined]
    assert statuses == {"cancelled"}


@for_each(
    ("data", "is_json"),
    [({"done": 3, "of": [1.5, None]}, True), ("x", True), ((1, 2), True), (float("nan"), False), ({1, 2}, False),
     (b"x", False), ("half \ud83d", True), ([], True)],
)  # fmt: skip
def test_progress_carries_json_and_nothing_else(data: Any, is_json: bool) -> None:
    kept: list[Any] = []

    @plait.tool(read_only=True)
    def work(ctx: plait.Context[None]) -> str:
        """Work."""
        given = {"data": data}
        ctx.report_progress("half", given)
        given["data"] = "changed later"
        return "done"

    script = [native("", ("work", {})), "7"]
    agent = plait.Agent("tool_calling", model=plait.Scripted(script), tools=[work], journal=False)
    kept = [each for each in agent.stream("q?") if isinstance(each, ev.Noted) and each.kind == "progress"]
    assert [(each.text, json.dumps(each.data)) for each in kept] == (
        [("work: half", json.dumps({"data": data if data != "half \ud83d" else "half ?"}))] if is_json else []
    )


def test_progress_that_holds_itself_is_an_error() -> None:
    endless: list[Any] = []
    endless.append(endless)
    context: plait.Context[None] = plait.Context(None)
    with pytest.raises(plait.ConfigError, match=r"report_progress\(data=...\) is not JSON"):
        context.report_progress(data=endless)
