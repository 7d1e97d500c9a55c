"""Limits: which one stopped a run, and the call that is kept in reserve."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

import plait
from patience import patience
from plait.core import Reply, Think, Usage

COUNT = itertools.count()


@plait.tool(read_only=True)
def look(key: str) -> str:
    """Look something up."""
    return f"{key} is {next(COUNT)}"


def action(value: str, tool: str = "look") -> str:
    return f'Thought: more.\nAction:\n```json\n{{"action": "{tool}", "action_input": "{value}"}}\n```'


def endless(conclusion: str = " as far as I know") -> plait.Scripted:
    """A model that always wants to look further, and answers only when told that there is no more room."""

    def reply(think: object) -> str:
        text = str(think)
        return conclusion if "no room for further actions" in text else action(f"k{len(text)}")

    return plait.Scripted([reply] * 50)


def agent(limits: plait.Limits, model: plait.Scripted | None = None) -> plait.Agent:
    return plait.Agent("react", model=model or endless(), tools=[look], limits=limits)


def test_the_step_limit_asks_for_the_answer_with_one_more_call() -> None:
    run = agent(plait.Limits(steps=3)).run("What is it?")
    assert (run.status, run.answer, run.steps, run.calls) == ("stopped", "as far as I know", 3, 4)
    assert run.reason == "the limit of 3 steps is reached"


def test_the_call_limit_keeps_its_last_call_for_the_answer() -> None:
    run = agent(plait.Limits(calls=4)).run("What is it?")
    assert (run.status, run.answer, run.calls) == ("stopped", "as far as I know", 4)


def test_a_model_that_has_nothing_to_say_is_stopped_without_an_answer() -> None:
    run = agent(plait.Limits(steps=2), endless(conclusion="")).run("What is it?")
    assert (run.status, run.answer) == ("stopped", None)


def test_the_token_limit_is_never_passed_by_calls_like_the_last() -> None:
    costly = Usage(100, 20)

    def reply(think: object) -> Reply:
        return Reply(" enough" if "no room" in str(think) else action(str(len(str(think)))), usage=costly)

    run = agent(plait.Limits(tokens=600), plait.Scripted([reply] * 50)).run("What is it?")
    assert run.status == "stopped" and run.answer == "enough"
    assert run.usage.tokens == 480  # another call like the last would leave too little for a longer prompt


def test_a_money_limit_needs_a_price() -> None:
    with pytest.raises(plait.ConfigError, match=r"\[prices\]"):
        agent(plait.Limits(usd=0.01)).run("What is it?")


def test_the_time_limit_ends_a_tool_that_works_too_long() -> None:
    @plait.tool
    async def slow(key: str) -> str:
        """Slow."""
        import asyncio

        await asyncio.sleep(30)
        return key

    model = plait.Scripted([action("a", "slow")])
    began = time.perf_counter()
    run = plait.Agent("react", model=model, tools=[slow], limits=plait.Limits(seconds=0.5)).run("Go")
    assert (run.status, run.outcome.limit) == ("stopped", "seconds")  # type: ignore[union-attr]
    assert time.perf_counter() - began < patience(5)


def test_the_same_call_with_the_same_result_is_said_and_then_stopped() -> None:
    @plait.tool(read_only=True)
    def same(key: str) -> str:
        """Always the same."""
        return "nothing new"

    def reply(think: object) -> str:
        return "I could not find it" if "no room" in str(think) else action("a", "same")

    run = plait.Agent("react", model=plait.Scripted([reply] * 50), tools=[same]).run("Go")
    assert run.status == "stopped" and run.outcome.limit == "loop"  # type: ignore[union-attr]
    assert run.answer == "I could not find it"
    notes = [call.seen.note for call in run.timeline.tool_calls if call.seen is not None]
    assert notes[0] == "" and "before" in notes[1] and "next repetition ends" in notes[-1]
    assert len(notes) == 4


@pytest.mark.parametrize("loop", ["react", "json", "codeact"])
def test_after_a_repetition_the_model_is_asked_for_another_reply(loop: str) -> None:
    @plait.tool(read_only=True)
    def same(key: str) -> str:
        """Always the same."""
        return "nothing new"

    heat: list[bool] = []

    def reply(think: Think) -> str:
        assert think.temperature is None
        heat.append(think.resample)
        key = "b" if len(heat) > 3 else "a"
        return {
            "react": action(key, "same"),
            "json": f'{{"thought": "more", "tool": "same", "tool_input": "{key}"}}',
            "codeact": f'THOUGHT 1:\nMore.\nACTION 1:\n```python\nprint(same("{key}"))\n```',
        }[loop]

    plait.Agent(loop, model=plait.Scripted([reply] * 9), tools=[same], limits=plait.Limits(steps=5)).run("Go")
    # a, a, a, b, b: the second, the third and the fifth repeat what was there.
    assert heat[:5] == [False, False, True, True, False]


def test_a_poll_whose_result_changes_is_no_loop() -> None:
    asked = []

    @plait.tool(read_only=True)
    def poll(key: str) -> str:
        """Changes each time."""
        asked.append(key)
        return f"state {len(asked)}"

    replies = [action("job", "poll")] * 7 + ["Final Answer: finished"]
    run = plait.Agent("react", model=plait.Scripted(replies), tools=[poll]).run("Go")
    assert (run.status, run.answer, len(asked)) == ("answered", "finished", 7)


def test_a_first_call_at_the_limit_still_answers() -> None:
    run = agent(plait.Limits(calls=1)).run("What is it?")
    assert run.status == "stopped" and run.calls == 1


def test_an_action_in_the_reserve_call_is_no_answer() -> None:
    run = agent(plait.Limits(steps=2), endless(conclusion=action("once more"))).run("What is it?")
    assert (run.status, run.answer) == ("stopped", None)


def test_the_time_a_person_takes_is_not_the_runs() -> None:
    import asyncio
    import json

    async def person(waiting: object) -> str:
        await asyncio.sleep(2.5)
        return "Lyon"

    turns = [("ask_user", "Which city?"), ("final_answer", "ok")]
    replies = [json.dumps({"thought": "on", "tool": tool, "tool_input": given}) for tool, given in turns]
    asking = plait.Agent("json", model=plait.Scripted(replies), limits=plait.Limits(seconds=2), journal=False)
    run = asking.run("Plan", on_wait=person)
    assert run.status == "answered" and run.seconds < 2


def test_a_reply_cut_by_its_token_limit_is_continued_unless_it_goes_round() -> None:
    from plait.core import Reply, Think

    def cut(text: str) -> object:
        return lambda think: Reply(text, finish="length") if not isinstance(think, Think) or not think.prefill else "6"

    whole = plait.Agent("react", model=plait.Scripted([cut("Thought: good.\nFinal Answer: 4")] * 3), journal=False)
    run = whole.run("What is it?")
    assert (run.answer, run.calls) == ("46", 2)
    around = "Thought: " + "I have to find the height of the mountain in feet, and then again I have to. " * 9
    looping = plait.Agent("react", model=plait.Scripted([cut(around)] * 9), journal=False)
    run = looping.run("What is it?")
    assert (run.status, run.outcome.limit, run.calls) == ("stopped", "reply", 3)  # type: ignore[union-attr]


def test_the_concluding_reply_of_react_is_words_and_not_held_to_the_form_of_a_turn() -> None:
    asked: list[Think] = []

    def reply(text: str) -> Any:
        return lambda think: (asked.append(think), text)[1]

    model = plait.Scripted([reply("Final Answer: it is 4")])
    loop = plait.ReAct(constrain=True)
    run = plait.Agent(loop, model=model, limits=plait.Limits(calls=1), journal=False).run("2+2?")
    assert (run.status, run.answer) == ("stopped", "it is 4")
    assert (asked[0].prefill, asked[0].grammar) == ("Final Answer:", None)
