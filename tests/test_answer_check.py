"""An answer's numbers must come from somewhere, too: what each loop does when one does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import plait
from conftest import for_each
from plait.core.events import Noted
from plait.runtime.grounding import Sources

LOOK = {"Lyon": 522_250, "Nice": 348_085}
ASKED = "How many people live in Lyon, and not in Nice?"
WRONG, RIGHT = "About 600,000 people live there.", "522,250 people live in Lyon."


def blob(tool: str, given: str) -> str:
    return f'Thought: Let me see.\nAction:\n```json\n{{"action": "{tool}", "action_input": "{given}"}}\n```'


def turn(tool: str, given: str) -> str:
    return f'{{"thought": "so", "tool": "{tool}", "tool_input": "{given}"}}'


def code(line: str) -> str:
    return f"THOUGHT 1:\nSo.\nACTION 1:\n```python\n{line}\n```"


LISTED = '[{"ACTION": "lookup", "ARGUMENTS": ["Lyon"], "EXPLANATION": "it is missing"}]'
FINAL = "Thought: I know.\nFinal Answer: "

SCRIPTS: dict[str, list[str]] = {
    "react": [FINAL + WRONG, blob("lookup", "Lyon"), FINAL + RIGHT],
    "json": [turn("final_answer", WRONG), turn("lookup", "Lyon"), turn("final_answer", RIGHT)],
    "tool_calling": [WRONG, '{"tool": "lookup", "input": "Lyon"}', RIGHT],
    "codeact": [code(f'stop("{WRONG}")'), code('print(lookup("Lyon"))'), code(f'stop("{RIGHT}")')],
    "compiler": [
        'Thought: So.\n1. lookup("Nice")\n2. join()',
        f"Thought: So.\nFinish: {WRONG}",
        'Thought: So.\n2. lookup("Lyon")\n3. join()',
        f"Thought: So.\nFinish: {RIGHT}",
    ],
    "phased": ["I think.", "[]", WRONG, "Lyon is missing.", LISTED, RIGHT],
    "rewoo": ["Plan: So.\n#E1 = lookup[Nice]", WRONG, blob("lookup", "Lyon"), FINAL + RIGHT],
}
"""Replies of each loop: an answer with a number that nothing gave, then what it takes, then the right one."""


def agent(loop: str, policy: Any, journal: Path | bool = False, script: list[str] | None = None) -> plait.Agent:
    return plait.Agent(
        loop,
        model=plait.Scripted(script or SCRIPTS[loop], by_turn=False),
        tools=[plait.toolkits.lookup(LOOK)],
        grounding=policy,
        journal=journal,  # type: ignore[arg-type]
        can_ask=False,
    )


@pytest.mark.parametrize("loop", SCRIPTS)
@pytest.mark.parametrize("policy", ["warn", "refuse"])
def test_a_made_up_number_in_an_answer_is_told_and_the_loop_goes_on(loop: str, policy: str, tmp_path: Path) -> None:
    run = agent(loop, policy, tmp_path / "j.db").run(ASKED)
    assert (run.status, run.answer) == ("answered", RIGHT), run.reason
    notes = [event.text for event in run.events if isinstance(event, Noted) and event.kind == "unfounded"]
    assert notes == ["the answer has what stands neither in the task nor in any observation: 600,000"]
    assert agent(loop, policy, tmp_path / "j.db").replay(run.id).whole


@pytest.mark.parametrize("loop", SCRIPTS)
def test_off_and_note_take_the_answer_as_it_is(loop: str) -> None:
    assert agent(loop, "off").run(ASKED).answer == WRONG
    noted = agent(loop, "note").run(ASKED)
    assert noted.answer == WRONG
    assert [event.kind for event in noted.events if isinstance(event, Noted)].count("unfounded") == 1


@pytest.mark.parametrize("loop", SCRIPTS)
def test_refuse_never_ends_with_a_made_up_number_and_warn_says_it_once(loop: str) -> None:
    only = {
        "react": [FINAL + WRONG] * 9,
        "json": [turn("final_answer", WRONG)] * 9,
        "tool_calling": [WRONG] * 9,
        "codeact": [code(f'stop("{WRONG}")')] * 9,
        "compiler": SCRIPTS["compiler"][:2] * 9,
        "phased": ["I think.", "[]", WRONG] * 9,
        "rewoo": [*SCRIPTS["rewoo"][:2], *[FINAL + WRONG] * 9],
    }[loop]
    limits = plait.Limits(steps=8)
    warned = agent(loop, "warn", script=only).using(limits=limits).run(ASKED)
    assert (warned.status, warned.answer) == ("answered", WRONG)
    refused = agent(loop, "refuse", script=only).using(limits=limits).run(ASKED)
    assert refused.status in ("failed", "stopped"), refused.answer


@for_each(
    ("answer", "found"),
    [
        ("Lyon", ()),
        ("It has 522,250 people, which is 48 % more.", ("48",)),
        ("522.25 thousand", ("522.25",)),
        ("Two of them, on 2024-03-01.", ("2024-03-01",)),
        ({"people": 522250, "area": 47.87}, ("47.87",)),
        ("See https://example.org/lyon", ("https://example.org/lyon",)),
        ("3 of 10", ()),
    ],
)
def test_numbers_dates_and_addresses_of_an_answer_are_looked_at(answer: Any, found: tuple[str, ...]) -> None:
    assert Sources(["How many people live in Lyon?", "522250"]).in_answer(answer) == found


def test_what_code_computed_may_be_answered() -> None:
    script = [code('print(lookup("Lyon"))'), code('stop(f"{round(522250 * 7 / 13)} people")')]
    run = agent("codeact", "refuse", script=script).run("How many are 7/13 of the people of Lyon?")
    assert (run.status, run.answer) == ("answered", f"{round(522250 * 7 / 13)} people")
