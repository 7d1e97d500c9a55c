"""Whatever the loop: the content of a stream is the answer, not a letter more, and never one that was refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import plait
from plait.core import Call, Reply
from plait.core.errors import Unreachable
from plait.journal.records import NoteRecord
from plait.models.base import Abilities
from test_answer_check import ASKED, RIGHT, SCRIPTS
from test_answer_check import agent as refusing
from window_server import asked, serving


@plait.tool(read_only=True)
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


def streamed(text: str) -> tuple[str, str, list[dict[str, Any]]]:
    """The content of a stream, why it ended, and its events."""
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    choices = [each["choices"][0] for each in events if each.get("choices")]
    finish = next((each["finish_reason"] for each in choices if each["finish_reason"]), "")
    return "".join(each["delta"].get("content") or "" for each in choices), finish, events


LOOPS: dict[str, Any] = {
    "react": [
        'Thought: x\nAction:\n```\n{"action": "add", "action_input": {"a": 2, "b": 3}}\n```',
        "Thought: y\nFinal Answer:  It is 5.\n\nReally: 5. \n",
    ],
    "json": [
        '{"thought": "x", "tool": "add", "tool_input": {"a": 2, "b": 3}}',
        '{"thought": "y", "tool": "final_answer", "tool_input": "It is \\u2135 5.\\n"}',
    ],
    "phased": [
        "I add.",
        '[{"ACTION": "add", "ARGUMENTS": [2, 3], "EXPLANATION": "to add"}]',
        "\n It is  5.\n\nAnd that is all.  \n",
    ],
    "rewoo": {
        "plan": ["Plan: add them.\n#E1 = add[2, 3]\n"],
        "solve": ["  It is 5,\nas   computed. \n"],
    },
    "compiler": {
        "plan": ["1. add(a=2, b=3)\n2. join()\n"],
        "join": ["Thought: done\nAction: Finish(It is 5.)"],
    },
    "tool_calling": [Reply("", calls=(Call("add", {"a": 2, "b": 3}, "c1"),)), "It is 5.\n"],
    "codeact": ["Thought: x\nCode:\n```python\nprint(add(2, 3))\n```", "Thought: y\nFinal Answer: It is 5."],
}


def scripted(loop: str) -> plait.Scripted:
    abilities = Abilities(schema=True, grammar=True, prefill=True, completion=True, tools=loop == "tool_calling")
    return plait.Scripted(LOOPS[loop], chunk=3, abilities=abilities, by_turn=isinstance(LOOPS[loop], dict))


@pytest.mark.parametrize("loop", LOOPS)
def test_the_stream_is_the_answer_for_every_loop(loop: str, journal: Path) -> None:
    with serving(plait.Agent(loop, model=scripted(loop), tools=[add], journal=journal)) as here:
        status, _, whole = here.ask("POST", "/v1/chat/completions", asked("What is 2 + 3?"))
        assert status == 200, whole
        content = whole["choices"][0]["message"]["content"]
        assert "5" in content and content == content.strip(" ")
    with serving(plait.Agent(loop, model=scripted(loop), tools=[add], journal=journal)) as here:
        _, _, text = here.ask("POST", "/v1/chat/completions", asked("What is 2 + 3?", stream=True))
        assert streamed(text)[:2] == (content, "stop")
        one, two = here.manager.journal.runs()
        assert content == one.outcome["answer"] == two.outcome["answer"]  # type: ignore[index]


def reasoning_of(text: str) -> str:
    deltas = [each["choices"][0]["delta"] for each in streamed(text)[2] if each.get("choices")]
    return "".join(delta.get("reasoning_content") or "" for delta in deltas)


@pytest.mark.parametrize(("loop", "said"), [("react", "x\n"), ("rewoo", "add them.\nso it is.\n"), ("compiler", "")])
def test_thoughts_are_told_without_the_blank_behind_their_label(loop: str, said: str, journal: Path) -> None:
    plan = {"plan": ["Plan: add them.\nPlan: so it is.\n#E1 = add[2, 3]\n"], "solve": ["5"]}
    replies = plan if loop == "rewoo" else LOOPS[loop]
    abilities = Abilities(schema=True, grammar=True, prefill=True, completion=True)
    told = []
    for stream in (False, True):
        model = plait.Scripted(replies, chunk=3, abilities=abilities, by_turn=isinstance(replies, dict))
        with serving(plait.Agent(loop, model=model, tools=[add], journal=journal)) as here:
            _, _, reply = here.ask("POST", "/v1/chat/completions", asked("What is 2 + 3?", stream=stream))
        told.append(reasoning_of(reply) if stream else reply["choices"][0]["message"]["reasoning_content"])
    assert told[0] == told[1] and told[0].startswith(said)
    assert not [line for line in told[0].split("\n") if line.startswith(" ")], told[0]


@pytest.mark.parametrize("loop", ["phased", "rewoo"])
def test_an_answer_is_told_while_it_is_written_where_it_is_sure(loop: str, journal: Path) -> None:
    with serving(plait.Agent(loop, model=scripted(loop), tools=[add], journal=journal)) as here:
        _, _, text = here.ask("POST", "/v1/chat/completions", asked("What is 2 + 3?", stream=True))
    pieces = [
        each["choices"][0]["delta"]["content"]
        for each in streamed(text)[2]
        if each["choices"][0]["delta"].get("content")
    ]
    assert len(pieces) > 3


@pytest.mark.parametrize("policy", ["warn", "refuse"])
@pytest.mark.parametrize("loop", SCRIPTS)
def test_an_answer_that_is_refused_is_not_told(loop: str, policy: str, journal: Path) -> None:
    with serving(refusing(loop, policy, journal)) as here:
        _, _, text = here.ask("POST", "/v1/chat/completions", asked(ASKED, stream=True))
        assert streamed(text)[:2] == (RIGHT, "stop")
        record = list(here.manager.journal.iter_rows("last"))
    assert any(isinstance(row.record, NoteRecord) and row.record.kind == "unfounded" for row in record)


class Breaks(plait.Scripted):
    """Its connection breaks in the middle of the first reply of a phase."""

    broken = ""

    async def send(self, request: Any, think: Any, on_text: Any = None) -> Any:
        if think.phase == self.broken and on_text is not None:
            self.broken = ""
            on_text("It is abso")
            raise Unreachable("The connection broke.")
        return await super().send(request, think, on_text)


@pytest.mark.parametrize(("reply", "whole"), [("It is absolutely 5.", True), ("Five.", False)])
def test_an_answer_that_began_anew_goes_on_or_is_an_error(reply: str, whole: bool, journal: Path) -> None:
    model = Breaks({"reason": ["Hm."], "react": ["[]"], "reply": [reply]}, chunk=3)
    model.broken = "reply"
    with serving(plait.Agent("phased", model=model, journal=journal)) as here:
        _, _, text = here.ask("POST", "/v1/chat/completions", asked("What is 2 + 3?", stream=True))
    content, finish, events = streamed(text)
    if whole:
        assert (content, finish) == (reply, "stop")
    else:
        assert events[-1]["error"]["code"] == "answer_changed" and not finish
        assert "[DONE]" not in text
