"""How a run ends whose last reply was cut, repeated itself or was refused: stopped, with the text it has."""

from __future__ import annotations

import json
from typing import Any

import pytest

import plait
from conftest import for_each
from plait.core import Call, Reply, Think
from plait.core.replies import Finish
from plait.models.config import ModelConfig
from plait.models.resolve import resolve

ROWS = "\n| Lyon | 522250 |" * 200
BEFORE: dict[str, dict[str, str]] = {
    "phased": {"reason": "I compute it.", "react": "[]"},
    "rewoo": {"plan": "Plan: compute\n#E1 = calculator[6*7]"},
    "compiler": {"plan": '1. calculator("6*7")\n2. join()'},
}
LAST = {
    "react": ("act", "Thought: I know.\nFinal Answer: 42"),
    "json": ("act", '{"thought": "I know", "tool": "final_answer", "tool_input": "42"}'),
    "tool_calling": ("act", "42"),
    "phased": ("reply", "42"),
    "rewoo": ("solve", "42"),
    "compiler": ("join", "Thought: I know.\nAction: Finish(42)"),
    "codeact": ("act", 'THOUGHT 1:\nI know.\nACTION 1:\n```python\nstop("42")\n```'),
}


def run_with(loop: str, finish: Finish, **options: Any) -> plait.Run:
    """A run whose last reply has that finish."""
    phase, text = LAST[loop]

    def last(think: Think) -> Reply:
        if finish == "circle":
            return Reply(text + ROWS)
        return Reply("\n" if text in think.prefill else text, finish)

    scripts: dict[str, list[Any]] = {name: [said] for name, said in BEFORE.get(loop, {}).items()}
    model = plait.Scripted({**scripts, phase: [last] * 9})
    return plait.Agent(loop, model=model, tools=["calculator"], **options).run("What is 6*7?")


@pytest.mark.parametrize("loop", LAST)
@pytest.mark.parametrize("finish", ["circle", "filter", "length"])
def test_a_cut_or_refused_last_reply_is_stopped_and_its_text_is_kept(loop: str, finish: Finish) -> None:
    run = run_with(loop, finish)
    assert run.status == "stopped" and run.outcome.limit == "reply"  # type: ignore[union-attr]
    how = {"circle": "repeated itself", "filter": "content filter", "length": "token limit"}[finish]
    assert how in str(run.reason)
    assert "42" in str(run.answer)


@pytest.mark.parametrize("loop", LAST)
def test_a_whole_last_reply_is_answered(loop: str) -> None:
    run = run_with(loop, "stop")
    assert (run.status, run.answer) == ("answered", "42")


def test_a_reply_that_was_cut_at_a_limit_says_both() -> None:
    model = plait.Scripted([lambda _: Reply("Final Answer: 42" + ROWS)] * 3)
    run = plait.Agent("react", model=model, tools=["calculator"], limits=plait.Limits(calls=1)).run("6*7?")
    assert run.outcome.limit == "calls" and "repeated itself" in str(run.reason)  # type: ignore[union-attr]


@for_each("loop", LAST)
def test_an_answer_with_the_reserved_call_is_kept_when_it_was_cut(loop: str) -> None:
    """No call is left for the rest of it."""
    text = {"json": LAST["json"][1], "compiler": LAST["compiler"][1]}.get(loop, "There are 42")
    model = plait.Scripted([lambda _: Reply(text, "length")] * 9)
    run = plait.Agent(loop, model=model, tools=["calculator"], limits=plait.Limits(calls=1)).run("6*7?")
    assert (run.status, run.outcome.limit) == ("stopped", "calls")  # type: ignore[union-attr]
    assert "42" in str(run.answer)


def test_a_refusal_that_no_loop_can_read_is_stopped_with_its_words() -> None:
    model = plait.Scripted([lambda _: Reply("I can't help with that.", "filter")] * 9)
    run = plait.Agent("json", model=model, tools=["calculator"]).run("6*7?")
    assert (run.status, run.answer) == ("stopped", "I can't help with that.")
    assert "content filter" in str(run.reason)


@plait.tool
def send(text: str) -> str:
    """Sends a text."""
    return f"sent {len(text)} characters"


@pytest.mark.parametrize(
    ("loop", "phase", "cut", "whole"),
    [
        ("react", "act", "Thought: I send.\nAction: send\nAction Input: Dear Ann" + ROWS, "Final Answer: no"),
        ("json", "act", '{"tool": "send", "tool_input": "Dear Ann' + ROWS, '{"tool": "final_answer", "tool_input": 1}'),
        (
            "rewoo",
            "plan",
            "Plan: send\n#E1 = send[Dear Ann" + ROWS.replace("\n", " "),
            "Plan: send\n#E1 = send[Dear Bob]",
        ),
    ],
)
def test_a_call_whose_input_was_cut_is_not_made(loop: str, phase: str, cut: str, whole: str) -> None:
    model = plait.Scripted({phase: [cut, whole], "solve": ["no"]})
    run = plait.Agent(loop, model=model, tools=[send]).run("Send a table.")
    made = [event.call.input for event in run.events if event.__class__.__name__ == "Called"]
    assert [each for each in made if "Ann" in str(each)] == []
    notes = " ".join(event.text for event in run.events if event.__class__.__name__ == "Noted")
    assert "Your reply repeated itself and was cut." in notes


def test_evidence_of_a_model_that_was_cut_says_so() -> None:
    plan = "Plan: ask\n#E1 = LLM[Write a table.]"
    asked: list[str] = []

    def solve(think: Think) -> str:
        asked.append(think.messages[-1].content)
        return "done"

    model = plait.Scripted({"plan": [plan], "work": [Reply("| Lyon |" + ROWS)], "solve": [solve]})
    plait.Agent("rewoo", model=model, tools=["calculator"]).run("Write a table.")
    assert "(This text repeated itself and was cut.)" in asked[0]


def test_a_native_call_whose_input_is_cut_at_the_token_limit_is_not_made() -> None:
    replies = [Reply("", "length", calls=(Call("send", '{"text": "Dear'),)), Reply("No.")]
    run = plait.Agent("tool_calling", model=plait.Scripted(replies), tools=[send]).run("Send.")
    assert run.status == "answered"
    assert not [event for event in run.events if event.__class__.__name__ == "Called"]


@pytest.mark.parametrize("loop", LAST)
def test_no_loop_sends_a_sampling_setting_to_a_hosted_model(loop: str) -> None:
    sampling = {"temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty"}
    asked: list[Think] = []

    def keep(text: str) -> Any:
        return lambda think: asked.append(think) or text

    phase, text = LAST[loop]
    scripts = {name: [keep(said)] for name, said in BEFORE.get(loop, {}).items()}
    plait.Agent(loop, model=plait.Scripted({**scripts, phase: [keep(text)]}), tools=["calculator"]).run("6*7?")
    assert asked
    for think in asked:
        hosted = resolve("openai:gpt-4o-mini", env={"OPENAI_API_KEY": "key"}).encode(think)
        assert not sampling & set(json.loads(hosted.body))
        config = ModelConfig.from_mapping({"params": {"temperature": 0.2}})
        chosen = resolve("openai:gpt-4o-mini", config, env={"OPENAI_API_KEY": "key"}).encode(think)
        assert json.loads(chosen.body)["temperature"] == 0.2
        for local in ("local", "ollama:qwen3"):
            assert json.loads(resolve(local, env={}).encode(think).body)["temperature"] == 0.0
