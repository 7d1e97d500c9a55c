"""A request for another reply never equals an earlier one of its turn: at temperature 0 the reply would be the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

import plait
from plait.core import Effects, Failed, Reply, Think, think
from plait.core.effects import Note
from plait.loops.asking import BadReply, Rejected, ask_until_read
from plait.loops.format import Unreadable
from plait.models.base import Abilities
from plait.models.chat import ChatModel
from plait.models.scripted import ABILITIES

WIRES = ("chat", "responses", "anthropic", "gemini")
ABLE = [
    Abilities(schema=True, grammar=True),
    Abilities(temperature=False),
    Abilities(temperature=False, tools=False, stream=False),
]
PLAN = "Plan: The product.\n#E1 = calculator[6*7]\n"
# By name: the loop with its options, the phase that is asked again and again, its reply, and replies of other phases.
UNREADABLE: dict[str, tuple[str, dict[str, Any], str, str, dict[str, str]]] = {
    "react": ("react", {"max_parse_errors": 5}, "act", 'Action: {"action": "calc', {}),
    "react numbered": ("react", {"dialect": "numbered", "max_parse_errors": 5}, "act", "Thought 1: Hm.\nAction 1:", {}),
    "react in one message": ("react", {"transcript": "user", "max_parse_errors": 5}, "act", 'Action: {"a', {}),
    "react raw": ("react", {"transcript": "completion", "max_parse_errors": 5}, "act", 'Action: {"a', {}),
    "json": ("json", {"max_parse_errors": 5}, "act", '{"thought": "I ', {}),
    "json silent": ("json", {"max_parse_errors": 5}, "act", "", {}),
    "codeact": ("codeact", {"max_parse_errors": 5}, "act", "THOUGHT 1:\nI compute.\nACTION 1:\n", {}),
    "codeact raw": ("codeact", {"transcript": "completion", "max_parse_errors": 5}, "act", "ACTION 1:\n", {}),
    "rewoo": ("rewoo", {"fallback": ""}, "plan", "I have no plan.", {}),
    "compiler": ("compiler", {"max_parse_errors": 5}, "plan", "I have no plan.", {}),
    "compiler, joiner": ("compiler", {"max_parse_errors": 5}, "join", "Action: Wait(1)", {"plan": "1. join()"}),
    "phased": ("phased", {"max_parse_errors": 5}, "react", "I think so.", {"reason": "I multiply.", "reply": "42"}),
    "tool_calling": ("tool_calling", {"max_parse_errors": 5}, "act", "", {}),
    "tool_calling in text": (
        "tool_calling",
        {"max_parse_errors": 5},
        "act",
        '{"name": "calculator", "arguments": {"',
        {},
    ),
}
UNFIT: dict[str, tuple[str, dict[str, Any], str, str, dict[str, str]]] = {
    "react": ("react", {}, "act", "Thought: I know.\nFinal Answer: forty-two", {}),
    "json": ("json", {}, "act", '{"thought": "I know", "tool": "final_answer", "tool_input": "forty-two"}', {}),
    "codeact": ("codeact", {}, "act", 'THOUGHT 1:\nI know.\nACTION 1:\n```python\nstop("forty-two")\n```', {}),
    "rewoo": ("rewoo", {}, "solve", "forty-two", {"plan": PLAN}),
    "compiler": ("compiler", {}, "join", "Thought: I know.\nFinish: forty-two", {"plan": "1. join()"}),
    "phased": ("phased", {}, "reply", "forty-two", {"reason": "I know.", "react": "[]"}),
    "tool_calling": ("tool_calling", {}, "act", "forty-two", {}),
}


def asked_of(
    loop: str, options: dict[str, Any], phase: str, reply: Reply, others: dict[str, str], **agent: Any
) -> list[Think]:
    """What a model that always gives the same reply is asked in this phase."""
    asked: list[Think] = []

    def say(think: Think) -> Reply:
        asked.append(think)
        return reply

    script: dict[str, Sequence[Any]] = {phase: [say] * 20, **{other: [text] * 20 for other, text in others.items()}}
    able = agent.pop("abilities", ABILITIES)
    made = plait.loops.make(loop, options)
    model = plait.Scripted(script, abilities=able, by_turn=False)
    plait.Agent(made, model=model, tools=["calculator"], limits=plait.Limits(steps=6), **agent).run("What is 6*7?")
    return asked


def bodies(asked: Sequence[Think], wire: str, able: Abilities) -> list[bytes]:
    model = ChatModel(spec="t:m", name="m", endpoint="http://h/v1", wire=wire, abilities=able, temperature=0.0)
    return [model.encode(think).body for think in asked]


@pytest.mark.parametrize("name", UNREADABLE)
def test_requests_for_another_reply_differ_on_every_wire(name: str) -> None:
    loop, options, phase, text, others = UNREADABLE[name]
    able = ABILITIES.without("tools") if name.endswith("in text") else ABILITIES
    asked = asked_of(loop, options, phase, Reply(text), others, abilities=able)
    assert len(asked) == (2 if loop == "rewoo" else 5)
    for wire in WIRES:
        for able in ABLE:
            sent = bodies(asked, wire, able)
            assert len(set(sent)) == len(sent), (wire, able)
    # First the prompt, with the bad reply; then the temperature, without it.
    assert [think.resample for think in asked] == [False, False, True, True, True][: len(asked)]
    shown = [sum(text in message.content for message in think.messages) for think in asked if text and think.messages]
    assert not shown[3:] or shown[2:] == [shown[0]] * 3, "it is not shown what it repeats"


@pytest.mark.parametrize("name", UNFIT)
def test_requests_for_an_answer_of_the_right_type_differ_too(name: str) -> None:
    loop, options, phase, text, others = UNFIT[name]
    asked = asked_of(loop, options, phase, Reply(text), others, output=plait.OutputType(int, retries=4))
    assert len(asked) >= 4
    for wire in WIRES:
        for able in ABLE:
            sent = bodies(asked, wire, able)
            assert len(set(sent)) == len(sent), (wire, able)
    assert max(str(think.messages).count("forty-two") for think in asked) <= 8, "the answers do not pile up"


@pytest.mark.parametrize("arguments", ['{"expression": "6*', '{"expression": ["6", '])
def test_calls_that_cannot_be_read_are_asked_for_in_words_at_last(arguments: str) -> None:
    reply = Reply("", calls=(plait.core.Call("calculator", arguments, "c1"),))
    asked = asked_of("tool_calling", {"max_parse_errors": 4}, "act", reply, {})
    assert len(asked) == 4
    for wire in WIRES:
        sent = bodies(asked, wire, ABLE[0])
        assert len(set(sent)) == 4
    assert [bool(think.tools) for think in asked] == [True, True, True, False]
    assert asked[-1].schema is not None and "calculator" in asked[-1].schema["properties"]["name"]["enum"]
    assert [think.resample for think in asked] == [False, False, True, True]


@pytest.mark.parametrize(
    ("last", "answer"),
    [
        ('{"name": "final_answer", "arguments": {"answer": "42"}}', "42"),
        ('{"name": "calculator", "arguments": {"expression": "6*7"}}', "It is 42."),
    ],
)
@pytest.mark.parametrize("native", [True, False])
def test_the_other_form_of_the_calls_is_read_and_the_run_goes_on(native: bool, last: str, answer: str) -> None:
    replies: list[Any] = ['{"name": "calculator", "arguments": {"'] * 2 + [last, "It is 42."]
    model = plait.Scripted(replies, abilities=ABILITIES if native else ABILITIES.without("tools"), by_turn=False)
    run = plait.Agent("tool_calling", model=model, tools=["calculator"]).run("What is 6*7?")
    assert (run.status, run.answer) == ("answered", answer)
    assert plait.Agent("tool_calling", model=model, tools=["calculator"]).replay(run.id).whole


def drive(
    replies: Sequence[str], troubles: Mapping[str, Unreadable], most: float
) -> tuple[Any, list[BadReply | None], list[str], list[int]]:
    """What comes of these replies, each unreadable for its reason or good: the result, the bad replies that the
    requests got, the notes, and the numbers of the reads."""
    asked: list[BadReply | None] = []
    numbers: list[int] = []

    def ask(bad: BadReply | None) -> Effects[Reply]:
        asked.append(bad)
        return think("act")

    def read(reply: Reply, miss: int) -> Effects[str]:
        numbers.append(miss)
        yield from ()
        if reply.text in troubles:
            raise troubles[reply.text]
        return reply.text

    run, given, notes, send = ask_until_read(ask, read, most), iter(replies), list[str](), None
    try:
        while True:
            effect = run.send(send)
            notes += [effect.text] if isinstance(effect, Note) else []
            send = Reply(next(given)) if isinstance(effect, Think) else None
    except StopIteration as end:
        return end.value, asked, notes, numbers


def test_a_reply_that_comes_again_is_not_shown_again() -> None:
    trouble = {"a": Unreadable("x"), "b": Unreadable("x")}
    failed, asked, notes, numbers = drive("abaa", trouble, 4)
    assert failed == Failed("4 replies in a row could not be read. The last complaint: x", kind="format")
    assert notes == [f"reply {n} of 4 can't be read: x" for n in numbers] and numbers == [1, 2, 3, 4]
    _, *made = drive("abaa!", trouble, 5)[1]
    bad = [each for each in made if each is not None]
    assert [each.note[13:27] for each in bad] == ["", "", "last 3 replies", "last 4 replies"]
    assert [(each.resample, each.reform) for each in bad] == [(False, False)] * 2 + [(True, False), (True, True)]
    assert [each.reform for each in asked if each] == [False, False, True], "the last request has the other format"
    requests: list[Callable[..., Any]] = [each.ask_again for each in bad]
    assert len({str(ask("Write it again.")) for ask in requests}) == 4
    assert all(str(each.ask_again("a")).count("'b'") == (each.text == "b") for each in bad)


def test_a_rejected_reply_is_not_noted_and_counts_only_if_it_says_so() -> None:
    trouble = {"a": Rejected("not so", "A", counts=False), "b": Rejected("nor so")}
    said, asked, notes, numbers = drive("abac", trouble, 2)
    assert (said, notes, numbers) == ("c", [], [1, 1, 2, 2])
    assert [(each.text, each.complaint, each.counts) for each in asked if each] == [
        ("A", "not so", False),
        ("b", "nor so", True),
        ("A", "not so", False),
    ]
    assert isinstance(drive("abab", trouble, 2)[0], Failed)


@pytest.mark.parametrize("most", [0, 1])
def test_one_reply_is_read_even_if_none_may_be_unreadable(most: int) -> None:
    assert drive("c", {}, most)[0] == "c"
    failed, asked, _, _ = drive("a", {"a": Unreadable("x")}, most)
    assert isinstance(failed, Failed) and asked == [None]
