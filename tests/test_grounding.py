"""Values that a model made up are found, and what is done about them is what the policy says."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import plait
from conftest import for_each
from journal_rows import is_result
from plait.core import Call, Exchange, Task, ToolSpec
from plait.core.events import Noted, Observed
from plait.runtime.grounding import Sources, sources_of

TASK = "Send the current weather for London, UK to the #weather-team channel, half the picture's size."
SEEN = "{'temperature': 13.1, 'time': '2023-04-07T12:00', 'lat': 51.50853, 'lon': -0.12574, 'people': '8,908,081'}"


def invented(value: Any, spec: ToolSpec | None = None) -> tuple[str, ...]:
    return Sources([TASK, SEEN]).find_invented(Call("tool", value), spec)


@for_each(
    "value",
    [
        "London",
        "london, uk",
        "LONDON",
        "#weather-team",
        13.1,
        13,
        "13.1",
        51.51,
        51.5,
        0.12574,
        8908081,
        "8908081",
        "abs(-13.1)",
        "sqrt(13.1)/2",
        "2023-04-07",
        "7 April 2023",
        "Apr 7, 2023",
        "07.04.2023",
        "4/7/2023",
        0.5,
        1,
        True,
        None,
        "8908081 * 2 / 13.1",
        "8908081*2",
        "8908081 / 3 + 13.1",
        "(8908081 + 13.1) / 4",
        "round(8908081 / 7, 2)",
        "13.1 * 1000 / 60",
        "1 + 8908081",
        {"sum": " + "},
        "It is 13 degrees in London on April 7th, 2023.",
        "what people say about rain",
        {"$thing": "image-1", "is": "<Image 77x99>"},
    ],
)
def test_what_was_given_or_observed_is_not_flagged(value: Any) -> None:
    assert invented({"parameter": value}) == ()


@for_each(
    ("value", "found"),
    [
        (51.509865, "51.509865"),
        (-0.118092, "-0.118092"),
        (14, "14"),
        ("Paris", "Paris"),
        ("#general", "#general"),
        ("2023-04-08", "2023-04-08"),
        ("8908082", "8908082"),
        ("8908082 * 2", "8908082"),
        ("5 + 13.1", "5"),
        ("13.1 - 9", "9"),
        ("13.1 + 1000", "1000"),
        ("10000 - 13.1", "10000"),
        ("It is 15 degrees in London.", "15"),
        ("Write to someone@example.org about it", "someone@example.org"),
        ("see https://example.org/rain for more", "https://example.org/rain"),
        (["London", "Berlin"], "Berlin"),
        ({"city": "Berlin"}, "Berlin"),
    ],
)
def test_what_stands_nowhere_is_flagged(value: Any, found: str) -> None:
    assert invented({"parameter": value}) == (f"parameter: {found}",)


@for_each(
    ("task", "formula", "found"),
    [
        ("Someone buys 7 lamps.", "7 * 100", ("100",)),
        ("Someone buys 7 lamps.", "100*7", ("100",)),
        ("Someone buys 7 lamps.", "100", ("100",)),
        ("Someone buys 7 lamps.", "7 * 10", ("10",)),
        ("Someone buys 17 lamps.", "1000 * 17", ("1000",)),
        ("Someone buys 7 lamps.", "7 * 2", ()),
        ("How many mm are 7 cm?", "7 * 10", ()),
        ("How many metres are 7 kilometres?", "7 * 1000", ()),
        ("Someone buys 7 lamps.", "lookup('lamp')", ()),  # which the tool says is none of its functions
        ("How many cents are 7 euros?", "7 * 100", ()),
        ("How many % are 7 of 31?", "100 * 7 / 31", ()),
        ("Which share of 31 are 7?", "7 / 31 * 100", ()),
        ("The price of a lamp falls by 20 percent.", "20% of 100", ("100",)),
        ("How many live there per square kilometre?", "144485 / 100000", ("144485", "100000")),
        ("How much is one of a hundred, or two dozens?", "100 + 2 * 12", ()),
    ],
)
def test_round_numbers_are_units_only_where_something_is_converted(
    task: str, formula: str, found: tuple[str, ...]
) -> None:
    assert Sources([task]).find_invented(Call("calculator", formula), None) == found


@pytest.mark.parametrize("text", ["ab1" * 60_000, "see " + "a" * 200_000, "see " + "1" * 200_000 + "a1", "1" * 200_000])
def test_a_long_text_is_looked_through_once(text: str) -> None:
    began = time.process_time()
    Sources([TASK, text]).find_invented(Call("tool", {"page": text}), None)
    Sources([TASK]).find_invented(Call("tool", {"page": text}), None)
    assert time.process_time() - began < 20  # once for each character it would be hours


def test_numbers_beyond_all_bounds_are_numbers_like_others() -> None:
    assert invented({"n": 10**400}) == (f"n: {10**400}",)
    # A source that says infinity does not vouch for every number.
    assert Sources(["9e999"]).find_invented(Call("tool", {"n": 12345}), None) == ("n: 12345",)


def test_a_tools_own_defaults_and_choices_are_not_made_up() -> None:
    spec = ToolSpec("tool", "", {"properties": {"unit": {"enum": ["celsius", "kelvin"]}, "k": {"default": 25}}})
    assert invented({"unit": "kelvin", "k": 25}, spec) == ()
    assert invented({"unit": "rankine", "k": 26}, spec) == ("unit: rankine", "k: 26")


def test_the_conversation_before_is_a_source() -> None:
    task = Task("And there?", history=(Exchange("I live in Oslo, number 4711.", "Noted."),))
    assert sources_of(task).find_invented(Call("tool", {"city": "Oslo", "number": 4711}), None) == ()


def test_what_code_computed_or_took_from_a_result_is_no_literal_and_what_it_wrote_down_is() -> None:
    sources = Sources(["The weather in London"])
    sources.wrote(
        "latitude = 51.509865\nwhere = get_user_location()\ntext = f'It is {where} and 99 degrees'\nlow = -7.25"
    )
    assert sources.find_invented(Call("weather", {"latitude": 51.509865}), None) == ("latitude: 51.509865",)
    assert sources.find_invented(Call("weather", {"latitude": 48.85}), None) == ()
    assert sources.find_invented(Call("send", {"text": "It is 17.5 and 99 degrees"}), None) == ("text: 99",)
    assert sources.find_invented(Call("weather", {"latitude": -7.25}), None) == ("latitude: -7.25",)


# -- policies, in a run

REPLIES = [
    "Thought: a\nAction: lookup\nAction Input: Lyon",
    'Thought: b\nAction: pay\nAction Input: {"to": "Lyon", "amount": 4321}',
    "Thought: c\nFinal Answer: done",
]


def run(policy: Any, person: Any = None, **more: Any) -> tuple[plait.Run, list[int]]:
    paid: list[int] = []

    @plait.tool(read_only=True)
    def lookup(key: str) -> int:
        """Look up."""
        return 522250

    @plait.tool
    def pay(to: str, amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    agent = plait.Agent(
        "react", model=plait.Scripted(REPLIES, by_turn=False), tools=[lookup, pay], grounding=policy, **more
    )
    return agent.run("Pay Lyon what it is owed.", on_wait=person), paid


def said(run: plait.Run) -> list[str]:
    return [event.text for event in run.events if isinstance(event, Noted) and event.kind == "invented"]


def notes(run: plait.Run) -> list[str]:
    return [call.seen.note for call in run.timeline.tool_calls if call.seen is not None]


def test_off_says_nothing(tmp_path: Path) -> None:
    done, paid = run("off", journal=tmp_path / "j.db")
    assert (said(done), paid) == ([], [4321])


def test_note_puts_it_on_the_record_and_tells_the_model_nothing(tmp_path: Path) -> None:
    done, paid = run("note", journal=tmp_path / "j.db")
    assert said(done) == ["pay: stands neither in the task nor in any observation: amount: 4321"]
    assert notes(done) == ["", ""] and paid == [4321]


def test_warn_tells_the_model(tmp_path: Path) -> None:
    done, paid = run("warn", journal=tmp_path / "j.db")
    assert paid == [4321] and "amount: 4321" in notes(done)[1] and notes(done)[0] == ""


def test_refuse_does_not_make_the_call(tmp_path: Path) -> None:
    done, paid = run("refuse", journal=tmp_path / "j.db")
    observed = [row.record.value for row in done.trace if is_result(row.record)]
    assert paid == [] and observed[1].trouble == "refused" and "amount: 4321" in observed[1].text
    assert done.status == "answered"


@pytest.mark.parametrize(("answer", "paid"), [("yes", [4321]), ("no", [])])
def test_ask_asks_the_person_with_the_reason(tmp_path: Path, answer: str, paid: list[int]) -> None:
    questions = []

    async def person(waiting: plait.core.Waiting) -> str:
        questions.append(waiting.reason)
        return answer

    _, made = run("ask", person, journal=tmp_path / "j.db")
    assert made == paid and len(questions) == 1 and "amount: 4321" in questions[0]


def test_a_run_that_asked_waits_and_goes_on_with_the_answer(tmp_path: Path) -> None:
    done, paid = run("ask", journal=tmp_path / "j.db")
    assert done.status == "waiting" and paid == []
    assert not [each for each in done.timeline.tool_calls if each.n > 1 and each.begun]


@pytest.mark.parametrize("policy", ["note", "warn", "refuse"])
def test_a_run_with_a_policy_replays(tmp_path: Path, policy: Any) -> None:
    @plait.tool
    def pay(to: str, amount: int) -> str:
        """Pay."""
        return "paid"

    agent = plait.Agent(
        "react",
        model=plait.Scripted(REPLIES[1:], by_turn=False),
        tools=[pay],
        grounding=policy,
        journal=tmp_path / "j",
    )
    done = agent.run("Pay Lyon.")
    assert said(done) and agent.replay(done.id).whole


def test_an_error_that_repeats_a_made_up_value_is_no_source_for_it(tmp_path: Path) -> None:
    wrong = 'Thought: x\nAction:\n```json\n{"action": "calculator", "action_input": "7 / 144.485"}\n```'
    broken = wrong.replace("7 / 144.485", "7 / 144.485 +")
    script = plait.Scripted([wrong, wrong, broken, wrong, "Thought: x\nFinal Answer: no"], by_turn=False)
    agent = plait.Agent(
        "react", model=script, tools=["calculator"], grounding="refuse", journal=tmp_path / "j.db", can_ask=False
    )
    run = agent.run("What is 7?")
    seen = [event.observation for event in run.events if isinstance(event, Observed)]
    assert [observation.trouble for observation in seen] == ["refused"] * 4
    assert agent.replay(run.id).whole


def test_a_policy_that_there_is_not_is_refused() -> None:
    with pytest.raises(plait.ConfigError, match="off, note, warn, ask, refuse"):
        plait.Agent("react", grounding="never")  # type: ignore[arg-type]
