"""A prompt that is too long is asked again with less: it is no step of its own. The concluding call recovers, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import plait
from plait.core import Stopped, Think
from plait.core.errors import ContextOverflow
from plait.core.events import Ended, Noted

ROOM = 9000
"""Characters that the model of these tests takes."""
LONG = "a fact. " * 1500


@plait.tool(read_only=True)
def look(key: str) -> str:
    """Looks something up."""
    return f"{key}: {LONG}"


ACTS = {
    "react": 'Thought: more.\nAction:\n```json\n{"action": "look", "action_input": "KEY"}\n```',
    "json": '{"thought": "more", "tool": "look", "tool_input": "KEY"}',
    "codeact": 'THOUGHT N:\nMore.\nACTION N:\n```python\nprint(look("KEY"))\n```',
}
ENDS = {
    "react": " 42",
    "json": '{"thought": "enough", "tool": "final_answer", "tool_input": "42"}',
    "codeact": " 42",
    "compiler": "Finish: 42",
}
PLANS = {
    "rewoo": "Plan: look\n#E1 = look[a]\nPlan: look\n#E2 = look[b]",
    "compiler": '1. look("a")\n2. look("b")\n3. join()',
}


def model_of(loop: str, asked: list[bool]) -> plait.Scripted:
    """A model with little room, that acts until it is told to conclude. `asked` says which prompts fitted."""

    def reply(think: Think) -> str:
        text = think.prompt + "".join(message.content for message in think.messages)
        asked.append(len(text) <= ROOM)
        if len(text) > ROOM:
            raise ContextOverflow("the prompt is too long", tokens=len(text) // 4, room=ROOM // 4)
        if think.phase == "plan":
            return PLANS[loop]
        if loop not in ACTS or think.prefill == "FINAL ANSWER:" or "no room" in text:
            return ENDS.get(loop, "42")
        turn = str(len(asked))
        return ACTS[loop].replace("KEY", f"k{turn}").replace(" N", f" {turn}")

    return plait.Scripted([reply] * 40, by_turn=False)


@pytest.mark.parametrize("loop", ACTS)
def test_a_prompt_that_is_too_long_is_no_step(loop: str) -> None:
    asked: list[bool] = []
    agent = plait.Agent(loop, model=model_of(loop, asked), tools=[look], limits=plait.Limits(steps=3, calls=20))
    run = agent.run("What is it?")
    assert False in asked
    assert run.steps == 3 and asked.count(True) == 4  # three turns, and the call in reserve


def test_the_record_tells_the_same_of_a_prompt_that_is_too_long(tmp_path: Path) -> None:
    agent = plait.Agent("react", model=model_of("react", []), tools=[look], journal=tmp_path / "runs.db")
    *events, ended = agent.stream("What is it?")
    assert isinstance(ended, Ended)
    both = events, ended.run.events
    live, recorded = ([each for each in some if isinstance(each, Noted) and each.kind == "limit"] for some in both)
    assert recorded == live and any("too long" in each.text for each in live)


@pytest.mark.parametrize("loop", ACTS)
def test_a_turn_whose_prompt_never_fits_counts_once(loop: str) -> None:
    model = plait.Scripted([ContextOverflow("the prompt is too long", tokens=9, room=8)] * 9, by_turn=False)
    run = plait.Agent(loop, model=model, tools=[look]).run("What is it?")
    assert isinstance(run.outcome, Stopped) and (run.outcome.limit, run.steps) == ("context", 1)


@pytest.mark.parametrize("loop", [*ACTS, *PLANS])
def test_the_concluding_call_recovers_from_a_prompt_that_is_too_long(loop: str) -> None:
    asked: list[bool] = []
    limits: dict[str, Any] = {"calls": 20, "steps": 1}
    agent = plait.Agent(loop, model=model_of(loop, asked), tools=[look], limits=plait.Limits(**limits))
    run = agent.run("What is it?")
    assert asked[-2:] == [False, True]
    assert (run.status, run.answer) == ("stopped", "42")
