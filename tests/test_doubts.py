"""What a model made up is told to it, struck out of what it is shown of its own words, and kept out of plans."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import plait
from conftest import for_each
from journal_rows import is_request
from plait.core import Observation
from plait.core import events as ev
from plait.journal.records import NoteRecord
from plait.loops.format import Turn
from plait.loops.grounding import strike_from_turn, strike_values
from plait.loops.react.loop import ReAct
from plait.runtime import known_values as computing
from plait.runtime.grounding import Sources
from plait.runtime.known_values import can_be_computed

TABLE = {"mayor of Brek": "Una Falk", "birth year of Una Falk": 1961, "people of Brek": 4821, "people of Dun": 3310}
ASKED = "How old does the mayor of Brek get in the year 2020?"


def agent(loop: Any, script: list[str], journal: Path | bool, policy: Any = "refuse", **more: Any) -> plait.Agent:
    return plait.Agent(
        loop,
        model=plait.Scripted(script, by_turn=False),
        tools=[plait.toolkits.lookup(TABLE), "calculator"],
        grounding=policy,
        journal=journal,  # type: ignore[arg-type]
        can_ask=False,
        **more,
    )


def sent(run: plait.Run) -> list[str]:
    """Each request's messages, as text."""
    bodies = [row.body for row in run.trace if is_request(row.record) and row.body]
    return ["\n".join(message["content"] for message in json.loads(body)["messages"]) for body in bodies]


def called(run: plait.Run) -> list[Any]:
    return [each.planned.input for each in run.timeline.tool_calls]


def blob(thought: str, tool: str, given: str) -> str:
    return f'Thought: {thought}\nAction:\n```json\n{{"action": "{tool}", "action_input": "{given}"}}\n```'


FINAL = "Thought: That is all.\nFinal Answer: "


def turn(thought: str, tool: str, given: str) -> str:
    return json.dumps({"thought": thought, "tool": tool, "tool_input": given})


def code(n: int, thought: str, *lines: str) -> str:
    return f"THOUGHT {n}:\n{thought}\nACTION {n}:\n```python\n{chr(10).join(lines)}\n```"


# -- a turn's thought, call and answer


@for_each(
    ("text", "found", "left"),
    [
        ("She was born in 1948.", ["1948"], "She was born in (unknown)."),
        ('{"year": 1948, "of": [1948], "sum": "2020 - 1948"}', ["1948"], None),
        ("THOUGHT 12:\nIt has 12 of 112, or 12.5", ["12"], "THOUGHT 12:\nIt has (unknown) of 112, or 12.5"),
        ("about 2,134 of 12,134", ["2,134"], "about (unknown) of 12,134"),
        ("Write to A@b.example", ["a@b.example"], "Write to (unknown)"),
        ("nothing of it", [], "nothing of it"),
    ],
)
def test_only_the_value_itself_is_struck_out(text: str, found: list[str], left: str | None) -> None:
    if left is None:  # JSON stays JSON
        assert json.loads(strike_values(text, found)) == {"year": None, "of": [None], "sum": "2020 - (unknown)"}
    else:
        assert strike_values(text, found) == left


LOOPS: dict[str, list[str]] = {
    "react": [
        blob("The mayor first.", "lookup", "mayor of Brek"),
        blob("Una Falk was born in 1948.", "lookup", "people of Brek"),
        blob("So it is 2020 - 1948.", "calculator", "2020 - 1948"),
        blob("Her birth year.", "lookup", "birth year of Una Falk"),
        "Thought: That is all.\nFinal Answer: 59",
    ],
    "json": [
        turn("The mayor first.", "lookup", "mayor of Brek"),
        turn("Una Falk was born in 1948.", "lookup", "people of Brek"),
        turn("So it is 2020 - 1948.", "calculator", "2020 - 1948"),
        turn("Her birth year.", "lookup", "birth year of Una Falk"),
        turn("That is all.", "final_answer", "59"),
    ],
}


@pytest.mark.parametrize("loop", LOOPS)
def test_a_value_made_up_in_a_thought_is_told_and_never_shown_again(loop: str, journal: Path) -> None:
    its = agent(loop, LOOPS[loop], journal)
    run = its.run(ASKED)
    assert (run.status, run.answer) == ("answered", "59")  # 2020 - 1961, which the model worked out itself
    requests = sent(run)
    assert "born in (unknown)" in requests[2]
    assert "Struck out of what you wrote, as nothing has given it: 1948. Look it up by name." in requests[2]
    # The refused call says so itself; nowhere else does the number stand.
    assert requests[3].count("1948") == requests[2].count("1948") + 1 and "2020 - (unknown)" in requests[3]
    assert its.replay(run.id).whole


@pytest.mark.parametrize("policy", ["off", "note"])
def test_where_made_up_values_are_let_pass_nothing_is_struck_out(policy: str, journal: Path) -> None:
    run = agent("react", LOOPS["react"], journal, policy).run(ASKED)
    assert run.answer == "59" and not any("unknown" in request or "Struck" in request for request in sent(run))


@pytest.mark.parametrize("policy", ["warn", "refuse"])
def test_a_number_that_code_made_up_is_told_and_one_that_it_computed_is_not(policy: str, journal: Path) -> None:
    script = [
        code(1, "Her age.", "print(2020 - 1948)"),
        code(2, "No: her year.", 'year = lookup("birth year of Una Falk")', "print(2020 - year)"),
        code(3, "There it is.", 'stop("59")'),
    ]
    its = agent("codeact", script, journal, policy)
    run = its.run(ASKED)
    assert run.answer == "59"
    second, third = sent(run)[1:]
    assert "print(2020 - (unknown))" in second
    if policy == "warn":
        assert "OBSERVATION 1:\n72\n(Struck out of what you wrote, as nothing has given it: 1948." in second
    else:
        assert "OBSERVATION 1:\nThis code was not run: 1948 stands neither in the task nor in any observation" in second
    assert its.replay(run.id).whole
    assert third.count("(unknown)") == second.count("(unknown)")


@pytest.mark.parametrize("answer", ["She was born in (unknown).", "(unknown)"])
def test_what_was_struck_out_is_no_answer(answer: str, journal: Path) -> None:
    script = [FINAL + answer, blob("Her year.", "lookup", "birth year of Una Falk"), FINAL + "1961"]
    run = agent("react", script, journal).run("When was Una Falk born?")
    assert run.answer == "1961" and "That can't be the answer: (unknown) stands neither" in sent(run)[1]


# -- plans


def actions(*each: tuple[str, str]) -> str:
    return json.dumps([{"ACTION": name, "ARGUMENTS": [given], "EXPLANATION": "needed"} for name, given in each])


PEOPLE = "How many people live in Brek and Dun together?"
BOTH = [("lookup", "people of Brek"), ("lookup", "people of Dun")]


def test_a_list_of_actions_with_a_made_up_value_is_asked_for_again_before_anything_is_done(journal: Path) -> None:
    wrong, right = actions(*BOTH, ("calculator", "5000 + 3500")), actions(*BOTH, ("calculator", "$1 + $2"))
    run = agent("phased", ["Brek has 5000.", wrong, right, "8131"], journal).run(PEOPLE)
    assert (run.status, run.answer) == ("answered", "8131")
    assert called(run) == [["people of Brek"], ["people of Dun"], ["4821 + 3310"]]
    again = sent(run)[2]
    assert "Brek has (unknown)." in again and "(unknown) + (unknown)" in again
    assert "In action 3 is made up what no result has given: 5000, 3500." in again
    notes = [row.record for row in run.trace if isinstance(row.record, NoteRecord)]
    assert [note.kind for note in notes] == ["unreadable"]


def test_the_second_time_such_a_list_is_carried_out_as_far_as_it_goes(journal: Path) -> None:
    wrong = actions(*BOTH, ("calculator", "5000 + 3500"))
    run = agent("phased", ["Both.", wrong, wrong, "8131"], journal).run(PEOPLE)
    assert run.answer == "8131"  # which is the sum of what was seen
    assert "This call was not made: expression: 5000, expression: 3500" in sent(run)[-1]


def test_a_plan_with_a_made_up_value_is_asked_for_again(journal: Path) -> None:
    plan = "Plan: Brek.\n#E1 = lookup[people of Brek]\nPlan: Both.\n#E2 = calculator[{}]"
    run = agent("rewoo", [plan.format("#E1 + 3500"), plan.format("#E1 + #E1"), "9642"], journal).run(PEOPLE)
    assert run.answer == "9642" and called(run) == ["people of Brek", "4821 + 4821"]
    assert "In #E2 is made up what nothing has given: 3500." in sent(run)[1]
    assert "#E2 = calculator[#E1 + (unknown)]" in sent(run)[1]


def test_a_plan_with_words_in_a_formula_is_asked_for_again(journal: Path) -> None:
    plan = "Plan: Brek.\n#E1 = lookup[people of Brek]\nPlan: Both.\n#E2 = calculator[{}]"
    run = agent("rewoo", [plan.format("#E1 + people of Dun"), plan.format("#E1 + #E1"), "9642"], journal).run(PEOPLE)
    assert run.answer == "9642" and called(run) == ["people of Brek", "4821 + 4821"]
    assert "In #E2 words stand in a formula: people of Dun." in sent(run)[1]


def test_a_list_with_words_in_a_formula_is_asked_for_again(journal: Path) -> None:
    wrong = actions(BOTH[0], ("calculator", "$1 + people of Dun"))
    run = agent("phased", ["Both.", wrong, actions(*BOTH, ("calculator", "$1 + $2")), "8131"], journal).run(PEOPLE)
    assert run.answer == "8131" and "In action 2 words stand in a formula: people of Dun." in sent(run)[2]


# -- a run that goes in circles


def circling(last: str) -> list[str]:
    return [*[blob("Once more.", "lookup", "mayor of Brek")] * 5, last]


@pytest.mark.parametrize(
    ("policy", "last", "ended"),
    [
        ("refuse", "Una Falk", ("answered", "Una Falk")),
        ("warn", "Una Falk", ("answered", "Una Falk")),
        ("refuse", "She was born in 1948.", ("stopped", "She was born in 1948.")),
        ("note", "Una Falk", ("stopped", "Una Falk")),
        ("off", "Una Falk", ("stopped", "Una Falk")),
    ],
)
def test_the_answer_to_circles_counts_where_it_is_looked_at_and_nothing_in_it_is_made_up(
    policy: str, last: str, ended: tuple[str, str], journal: Path
) -> None:
    its = agent("react", circling(last), journal, policy)
    run = its.run("Who is the mayor of Brek?")
    assert (run.status, run.answer) == ended
    assert [row.record.kind for row in run.trace if isinstance(row.record, NoteRecord)].count("limit") <= 1
    assert its.replay(run.id).outcome == run.outcome


@pytest.mark.parametrize("how", [{"transcript": each} for each in ("chat", "user", "completion")] + [{}])
def test_a_turn_that_only_repeated_a_call_is_not_shown_to_the_model(how: dict[str, Any], journal: Path) -> None:
    if how:
        loop: Any = ReAct(**how)
        script = [blob(each, "lookup", "mayor of Brek") for each in ("First.", "Second.", "Third.")]
        script.append("Thought: So.\nFinal Answer: Una Falk")
    else:
        loop = "json"
        script = [turn(each, "lookup", "mayor of Brek") for each in ("First.", "Second.", "Third.")]
        script.append(turn("So.", "final_answer", "Una Falk"))
    run = agent(loop, script, journal, "off").run("Who is the mayor of Brek?")
    assert run.answer == "Una Falk" and len(called(run)) == 3
    bodies = [row.body.decode() for row in run.trace if is_request(row.record) and row.body]
    assert "First." in bodies[3] and "Second." not in bodies[3] and "Third." not in bodies[3]
    assert "once more" not in bodies[1]
    for body in bodies[2:]:
        assert body.count("You then called lookup once more with") == 1 and "exactly this call before" in body


def test_a_call_with_effects_that_was_repeated_stays(journal: Path) -> None:
    @plait.tool
    def knock(door: str) -> str:
        """Knock."""
        return "knocked"

    script = [blob(each, "knock", "front") for each in ("First.", "Second.")] + ["Thought: So.\nFinal Answer: twice"]
    its = plait.Agent("react", model=plait.Scripted(script, by_turn=False), tools=[knock], journal=journal)
    assert "Second." in sent(its.run("Knock twice."))[2]


def test_calls_in_turn_that_bring_nothing_new_are_circles_too(journal: Path) -> None:
    keys = ["people of Brek", "people of Dun", "mayor of Brek"]
    script = [blob("Next.", "lookup", key) for key in keys * 5]
    run = agent("react", [*script[:8], "Final Answer: 8131"], journal, "off").run(PEOPLE)
    assert (run.status, len(called(run))) == ("stopped", 7)
    assert "4 calls in a row were made before and brought the same results" in str(run.reason)


@pytest.mark.parametrize(("last", "ended"), [("1961", ("answered", "1961")), ("In 1948.", ("stopped", "In 1948."))])
def test_an_answer_that_is_not_taken_four_times_ends_the_run(last: str, ended: Any, journal: Path) -> None:
    script = [blob("Her year.", "lookup", "birth year of Una Falk"), *[FINAL + "She was born in 1948."] * 4, last]
    its = agent("react", script, journal)
    run = its.run("When was Una Falk born?")
    assert (run.status, run.answer) == ended and run.steps == 5
    notes = [(each.kind, each.text) for each in run.events if isinstance(each, ev.Noted)]
    assert notes[-1] == ("loop", "The same answer was not taken 4 times.")
    assert its.replay(run.id).whole


def test_a_new_call_after_old_ones_is_no_circle(journal: Path) -> None:
    keys = ["people of Brek", "people of Dun", "mayor of Brek"]
    script = [blob("Next.", "lookup", key) for key in (*keys, *keys, keys[0])]
    script += [blob("New.", "lookup", "birth year of Una Falk"), "Thought: That is all.\nFinal Answer: 1961"]
    run = agent("react", script, journal, "off").run(ASKED)
    assert (run.status, run.answer) == ("answered", "1961")


def test_a_value_that_only_stands_within_another_in_the_observation_is_struck_out() -> None:
    turn_, seen = strike_from_turn(["96"], Turn("It is 96.", kept="It is 96."), Observation("1961"))
    assert turn_.kept == "It is (unknown)." and "nothing has given it: 96" in seen.note
    assert (
        strike_from_turn(["1961"], Turn("It is 1961.", kept="It is 1961."), Observation("1961"))[0].kept
        == "It is 1961."
    )


# -- what counts as computed


def test_what_can_be_computed_is_computed_once_for_a_page_of_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = []
    once = computing._results

    def counted(known: tuple[float, ...], decimals: int, *, rounded: bool) -> Iterator[float]:
        rounds.append(known)
        return once(known, decimals, rounded=rounded)

    monkeypatch.setattr(computing, "_results", counted)
    Sources([" ".join(str(n * n + 1000.5) for n in range(28))]).in_answer(" ".join(str(n) for n in range(5000, 6000)))
    assert len(rounds) == 1  # for each number anew, 10,000 numbers take 20 s


@for_each(
    ("value", "decimals", "known"),
    [
        (107, 0, [67, 40]),
        (39, 0, [1991, 1952]),
        (1087.75, 2, [57.25, 19]),
        (1474.3, 1, [144485, 98]),
        (301319, 0, [141379, 144485, 15455]),
        (0.8, 1, [57.25, 20]),
        (80, 0, [20]),
        (37.04, 2, [12.345, 3]),
    ],
)
def test_what_simple_arithmetic_gives_is_computed(value: float, decimals: int, known: list[float]) -> None:
    assert can_be_computed(value, decimals, known)
    assert not can_be_computed(value, decimals, [])


@for_each(
    ("value", "decimals", "known"),
    [
        (70, 0, [1991, 1952]),  # wrong
        (415039, 0, [141379, 144485, 15455]),  # wrong
        (26, 0, [13.1, 0.5]),  # 26.2, and rounded to too few digits
        (8908082, 0, [8908081, 0.51]),  # a sum is not rounded
        (15, 0, [7, 8, 22, 9, 31, 12]),  # right, and so are too many others
        (5, 0, range(2, 60)),
        (301319, 0, [*range(1000, 1040), 141379, 144485, 15455]),  # too many to tell
    ],
)
def test_what_is_wrong_or_could_be_hit_by_chance_is_not(value: float, decimals: int, known: Any) -> None:
    assert not can_be_computed(value, decimals, known)


@for_each(
    ("code", "found"),
    [
        ("crew = 179", ("179",)),
        ("prices = {'lamp': 100, 'desk': 57.25}", ("100",)),
        ("prices = [100, 57.25]", ("100",)),
        ("total += -99", ("99",)),
        ("total = 7 * 100", ("100",)),
        ("share = 7 / 57 * 100", ()),
        ("age = 2028 - 1948", ("1948",)),
        ("print(f'{57.25 * 365.25} in all')", ("365.25",)),
        ("seconds = 57.25 * 60 / 1000", ()),
        ("some = text[:100]", ()),
        ("print('-' * 40, f'{57.25:>20}')", ()),
        ("for i in range(50): pass", ()),
        ("done = True", ()),
        ("n = 1e999", ()),
        ("x = (", ()),
    ],
)
def test_of_code_the_numbers_that_it_computes_with_or_names_are_looked_at(code: str, found: tuple[str, ...]) -> None:
    assert Sources(["It is 2028, and a lamp costs 57.25."]).in_code(code) == found
