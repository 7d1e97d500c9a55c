"""The plans of ReWOO as text: read leniently, written strictly, refused with all that is wrong, data escaped."""

from __future__ import annotations

import json
import random
import time
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import LONG, examples, for_each, some_of
from plait.core import Plan, Step, ToolSpec
from plait.loops.format import Unreadable
from plait.loops.plan_scan import HEAD, lines_of
from plait.loops.plan_text import (
    LLM,
    PLANS,
    EvidencePlans,
    check_plan,
    read_plan,
    read_plan_file,
    reads_as_plan,
    with_llm,
    write_plan,
    write_step,
    written_input,
)
from plait.loops.references import EVIDENCE


def tool(name: str, *parameters: str) -> ToolSpec:
    properties = {each: {"type": "string"} for each in parameters}
    return ToolSpec(
        name, f"The tool {name}.", {"type": "object", "properties": properties, "required": list(parameters)}
    )


TOOLS = with_llm((tool("Search", "query"), tool("calculator", "expression"), tool("weather", "city", "days")))


def calls(text: str) -> list[tuple[str, str, Any]]:
    return [(step.id, step.tool, step.input) for step in read_plan(text, TOOLS).plan.calls]


def refusal(text: str) -> str:
    with pytest.raises(Unreadable) as refused:
        read_plan(text, TOOLS)
    return str(refused.value)


# ---- reading


def test_a_plan_in_its_canonical_form_is_read_with_no_remark() -> None:
    read = read_plan("Plan: Who made it.\n#E1 = Search[the maker]\nPlan: Ask.\n#E2 = LLM[Is #E1 alive?]", TOOLS)
    assert read.remarks == ()
    assert read.plan == Plan(
        (
            Step("E1", "Search", "the maker", "Who made it."),
            Step("E2", "LLM", "Is #E1 alive?", "Ask.", ("E1",)),
        )
    )


@for_each(
    ("text", "expected"),
    [
        ("Plan 1: a\n#E1 = Search[x]\nPlan 2: b\n#E2 = Search[y]", ["x", "y"]),
        ("**Plan 1:** a\n**#E1** = `Search[x]`", ["x"]),
        ("### Plan: a\n- #E1 = Search[x]\n2. #E2 = Search[y]", ["x", "y"]),
        ("Plan: a #E1 = Search[x] Plan b; #E2 = Search[y]", ["x", "y"]),
        ("```\nPlan: a\n#E1 = Search[x]\n```", ["x"]),
        ("Here is my plan:\n\nPlan: a\n#E1: Search[x]", ["x"]),
        ("E1 = Search[x]\n#e2 = Search[y]", ["x", "y"]),
        ("#E1=Search[x]\n#E2   =   Search [y]\n#E03 =\nSearch[z]", ["x", "y", "z"]),
        ("#E1 = search[x]\n#E2 = SEARCH[y]\n#E3 = `Search`[z]", ["x", "y", "z"]),
        ("#E1 = Search(x)\n#E2 = Search: y\n#E3 = Search y z", ["x", "y", "y z"]),
        ("#E1 = Search[]\n#E2 = Search", [None, None]),
        ("#E1 = Search[\"x\"]\n#E2 = Search['y']\n#E3 = Search[“z”]", ["x", "y", "z"]),
        ('#E1 = Search[query="x"]\n#E2 = Search[query: y, z]\n#E3 = Search[query=#E1]', ["x", "y, z", "#E1"]),
        ("#E1 = Search[x] # the first one\n#E2 = Search[y].", ["x", "y"]),
    ],
)
def test_the_ways_in_which_models_write_a_step(text: str, expected: list[Any]) -> None:
    assert [given for _, _, given in calls(text)] == expected
    assert [id for id, _, _ in calls(text)] == [f"E{n}" for n in range(1, len(expected) + 1)]


@for_each(
    "given",
    [
        "one\ntwo [2]\nthree",
        "a [b [c] d] e",
        'what "a]b" means',
        'text = "["',
        "x = ']' + '['",
        "Ann's [dog] and it's [cat]",
        'a 5" pipe [steel]',
        "re[\\[a]",
        '{not json} "x"',
    ],
)
def test_brackets_in_brackets_and_in_strings_and_inputs_over_lines(given: str) -> None:
    text = f"Plan: a\n#E1 = LLM[{given}]\nPlan: b\n#E2 = Search[after]"
    assert calls(text) == [("E1", "LLM", given), ("E2", "Search", "after")]
    assert all(remark.kind != "cut" for remark in read_plan(text, TOOLS).remarks)


def test_an_input_that_is_json_is_that_value_and_its_bare_references_count() -> None:
    text = (
        "#E1 = Search[Lyon]\n"
        '#E2 = weather[{"city": #E1, "days": [#E1, "#E1 #E2x", 3]}]\n'
        '#E3 = weather["#E1", 3]\n'
        '#E4 = weather[#E1, 3]\n#E5 = weather[city="#E1 [1]", days=3]\n#E6 = Search[3, 4]\n#E7 = Search[0.5]'
    )
    assert [given for _, _, given in calls(text)] == [
        "Lyon",
        {"city": "#E1", "days": ["#E1", "#E1 #E2x", 3]},
        ["#E1", 3],
        ["#E1", 3],
        {"city": "#E1 [1]", "days": 3},
        "3, 4",
        "0.5",
    ]
    assert [step.needs for step in read_plan(text, TOOLS).plan.calls][1:5] == [("E1",)] * 4


def test_e1_is_not_the_head_of_e10() -> None:
    lines = [f"#E{n} = Search[{n}]" for n in range(1, 12)]
    plan = read_plan("\n".join([*lines, "#E12 = LLM[#E10, #E11 but #E1]"]), TOOLS).plan
    assert plan.steps[-1].needs == ("E10", "E11", "E1")


def test_twelve_steps_and_steps_that_are_only_a_thought() -> None:
    text = "\n".join(f"Plan {n}: think\nPlan: why {n}\n#E{n} = Search[{n} #E{n - 1}]" for n in range(1, 13))
    plan = read_plan(text.replace(" #E0", ""), TOOLS).plan
    assert len(plan.calls) == 12 and len(plan.steps) == 24
    assert plan.steps[0] == Step("", why="think") and plan.steps[23].id == "E12"
    assert plan.steps[23].needs == ("E11",)


def test_a_users_tool_called_llm_is_not_doubled() -> None:
    own = tool("LLM", "prompt")
    assert with_llm([own]) == (own,)
    assert [each.name for each in TOOLS] == ["Search", "calculator", "weather", LLM]


def test_evidence_that_the_model_makes_up_does_not_count_nor_does_a_step_written_twice() -> None:
    read = read_plan("Plan: a\n#E1 = Search[x]\n#E1 = 120\n#E2 = calculator[#E1]\n#E2 = calculator[#E1]", TOOLS)
    assert [(step.id, step.input) for step in read.plan.steps] == [("E1", "x"), ("E2", "#E1")]
    assert [remark.text for remark in read.remarks] == [
        "evidence E1 that the model wrote itself",
        "step E2, which was written before",
    ]


def test_an_input_is_kept_as_it_was_written_until_it_is_changed() -> None:
    (step,) = read_plan('#E1 = Search["the [old] fort"]', TOOLS).plan.calls
    assert (step.input, step.written) == ("the [old] fort", '"the [old] fort"')
    assert written_input(step, TOOLS[0]) == '"the [old] fort"'
    changed = msgspec.structs.replace(step, input="the new fort")
    assert written_input(changed, TOOLS[0]) == "the new fort"
    assert read_plan("#E1 = Search[a fort]", TOOLS).plan.calls[0].written == ""


# ---- refusing


@for_each(
    ("text", "said"),
    [
        ("", "Your reply is empty"),
        ("Plan: I just know it.", "no call in your plan"),
        ("I can't plan.", "no call in your plan"),
        ("#E1 = Search[x]\n#E1 = Search[y]", "Step E1 is given twice."),
        ("#E1 = Search[#E2]\n#E2 = Search[x]", "Step E1 names E2, which comes only later."),
        ("#E1 = Search[#E7]", "Step E1 names E7, which no step gives."),
        ("#E1 = Search[#E2]\n#E2 = Search[#E1]", "These steps wait for each other: E"),
        ("#E1 = Search[#E1]", "These steps wait for each other: E1 -> E1."),
        ("#E1 = Telephone[x]", "Step E1 uses 'Telephone', which is no tool. There are: LLM, Search, calculator"),
        ("#E1 = Search[x] * 4", "Step E1 goes on after its call. A step is one call"),
        ("#E1 = 3 * 4", "Step E1 calls no tool: write `#E1 = Tool[input]`."),
        ("\n".join(f"#E{n} = Search[x]" for n in range(1, 102)), "more than 100 steps"),
    ],
)
def test_a_plan_that_can_not_be_run_is_refused_in_words_for_whoever_wrote_it(text: str, said: str) -> None:
    assert said in refusal(text)


def test_all_that_is_wrong_is_said_at_once() -> None:
    said = refusal("#E1 = Search[#E9]\n#E2 = Nope[x]\n#E2 = Search[x]\n#E3 = 3 * #E1")
    for part in ("Step E3 calls no tool", "Step E2 is given twice", "names E9", "'Nope', which is no tool"):
        assert part in said


# ---- a person's file


def test_a_persons_plan_as_text_with_comments_or_as_json() -> None:
    text = "# my plan\n\nPlan: a\n# a remark\n#E1 = Search[x]\n# another\n#E2 = Search[y #E1]\n"
    plan = read_plan_file(text, TOOLS)
    assert [step.input for step in plan.steps] == ["x", "y #E1"] and plan.steps[0].why == "a"
    assert read_plan_file(msgspec.json.encode(plan).decode(), TOOLS) == plan
    bare = {"steps": [{"id": "#e1", "tool": "Search", "input": "x"}, {"id": "2", "tool": "LLM", "input": "#E1"}]}
    with pytest.raises(Unreadable, match="'2' is no name for a step"):
        read_plan_file(json.dumps(bare), TOOLS)
    bare["steps"][1]["id"] = "E2"
    kept = read_plan_file(json.dumps({"plan": {**bare, "evidence": {"#E1": "known"}}}), TOOLS)
    assert kept == Plan((Step("E1", "Search", "x"), Step("E2", "LLM", "#E1", "", ("E1",))), {"E1": "known"})


@for_each(
    ("text", "said"),
    [
        ("Search for it.\n#E1 = Search[x]", "would not count: 14 characters before the plan"),
        ("#E1 = Search[x]\nand then look again", "would not count: 19 characters after the call of E1"),
        ('{"steps": 1}', "This is no plan: Expected `array`, got `int` - at `$.steps`"),
        ('{"steps": [', "This is no plan|can't be read|no step"),
        (
            '{"steps": [{"id": "E1", "tool": "Search", "input": "#E2"}]} x',
            "JSON can't be read: Extra data: line 1 column 61",
        ),
        ('{"steps": [{"id": "E1", "tool": "Nope", "input": "#E2"}], "evidence": {"E5": ""}}', "E5, which is no step"),
        ('{"evidence": {"E1": "x"}}', "no step that calls anything"),
        ('{"stepz": []}', "unknown field `stepz`. It is {"),
        (
            '{"steps": [{"id": "E1", "tool": "Search"}, {"id": "E2", "tol": "Search"}]}',
            "unknown field `tol` - at `$.steps[1]`.",
        ),
    ],
)
def test_a_persons_plan_with_an_error_is_refused(text: str, said: str) -> None:
    with pytest.raises(Unreadable) as refused:
        read_plan_file(text, TOOLS)
    assert any(part in str(refused.value) for part in said.split("|"))


def test_words_are_told_from_a_plan() -> None:
    assert reads_as_plan("#E1 = Search[") and reads_as_plan(' {"steps": 1') and reads_as_plan("Plan: a\n#E2 = x")
    assert not reads_as_plan("Use the calculator for #E2, please.") and not reads_as_plan("My plan: none")


def test_needs_are_read_off_the_inputs_of_a_plan_made_by_hand() -> None:
    plan = check_plan(Plan((Step("E1", "Search", "x"), Step("e02", "weather", {"city": "#E1"}, needs=("E9",)))), TOOLS)
    assert [step.needs for step in plan.steps] == [(), ("E1",)] and plan.steps[1].id == "E2"


# ---- writing

PIECES = [
    "Plan:",
    "Plan 2:",
    "\nPlan: ",
    "**Plan:**",
    "Step 3:",
    "\nEvidence: ",
    "#E1",
    "#E2 = Search[x]",
    " #E1 = Search[",
    "\n#E2 =",
    "\nE3 = LLM[",
    "#E10",
    "#e1 =",
    "#E1\\ = x",
    "# ",
    "[",
    "]",
    "(",
    ")",
    "{",
    "}",
    '"',
    "'",
    "“",
    "”",
    "\\",
    "\n",
    "\r\n",
    "\t",
    " ",
    ",",
    ":",
    "=",
    "query=",
    "city: ",
    "null",
    "3",
    "```",
    "Search",
    "LLM",
    "\x85",
    "\u2028",
    "\ud800",
    "ſ",
]
words = st.lists(
    st.one_of(st.sampled_from([p for p in PIECES if p != "\ud800"]), st.text(max_size=6), st.just("Lyon ")), max_size=9
).map("".join)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
inputs = st.none() | words | st.lists(values, max_size=3) | st.dictionaries(words, values, max_size=3)
whys = words.map(lambda text: " ".join(lines_of(text)))


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Plans that can be run: references only to what comes before."""
    steps: list[Step] = []
    for n in range(1, draw(st.integers(1, 5)) + 1):
        if thought := draw(whys):
            steps.append(Step("", why=thought))
        name = draw(st.sampled_from(["Search", "calculator", "weather", "LLM"]))
        before = {f"E{earlier}" for earlier in range(1, n)}
        value = draw(inputs.filter(lambda value, before=before: before.issuperset(EVIDENCE.find_ids(value))))
        steps.append(Step(f"E{n}", name, value, draw(whys), EVIDENCE.find_ids(value)))
    return Plan(tuple(steps))


@given(plans())
def test_every_plan_that_is_written_is_read_back(plan: Plan) -> None:
    text = write_plan(plan)
    read = read_plan(text, TOOLS, in_words=False)
    assert read.remarks == (), text
    assert read.plan == plan, text
    assert write_plan(read.plan) == text
    assert read_plan_file(text, TOOLS) == plan
    assert read_plan_file(msgspec.json.encode(plan).decode(), TOOLS) == plan


def test_simple_inputs_are_written_as_they_are() -> None:
    for text in ("people in Lyon", "#E1 / 3", "a [b] c", "5 + (#E1 - 2)", 'say "x"'):
        assert write_step(Step("E2", "Search", text)) == f"#E2 = Search[{text}]"
    assert write_step(Step("E2", "Search", "a ] b")) == '#E2 = Search["a ] b"]'
    assert write_step(Step("E2", "Search")) == "#E2 = Search[]"


@pytest.mark.parametrize(
    "step",
    [
        Step("E1", "a[b", "x"),
        Step("E1", "f(x)", "x"),
        Step("one", "Search", "x"),
        Step("E1", "Search", float("nan")),
        Step("E1", "Search", {1, 2}),
    ],
)
def test_what_can_not_be_written_is_a_value_error(step: Step) -> None:
    with pytest.raises(ValueError, match=r"can't|can not"):
        write_step(step)


# ---- data


@given(words)
def test_no_step_of_a_plan_is_read_in_escaped_data(data: str) -> None:
    safe = PLANS.escape(data)
    assert HEAD.search(safe) is None and EVIDENCE.find_ids(safe) == ()
    assert "\nEvidence:" not in safe
    assert PLANS.escape(safe) == safe


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="#:：=")))
def test_plain_data_is_left_as_it_is(data: str) -> None:
    assert PLANS.escape(data) == data


def test_data_that_looks_like_a_plan_is_shown_harmless() -> None:
    data = "It is 3.\nPlan: none\n#E1 = Search[x]\nE2 = LLM[y]\nEvidence: 4, see #E3 (#E1x, C#E: no)."
    assert PLANS.escape(data) == (
        "It is 3.\nPlan\\: none\n#\\E1 = Search[x]\nE2 \\= LLM[y]\nEvidence\\: 4, see #\\E3 (#E1x, C#E: no)."
    )


# ---- grammar, tools, streaming


def test_the_tools_as_a_prompt_lists_them() -> None:
    assert PLANS.describe(TOOLS[1:2]) == "(1) calculator[input]: The tool calculator. Input: the expression (string)."
    assert PLANS.describe([ToolSpec("now", "Says the time", {}, "the time")]) == (
        "(1) now[]: Says the time. Input: none. Returns: the time."
    )


def test_the_grammar_numbers_the_steps_and_knows_the_tools() -> None:
    rules = EvidencePlans(2).grammar(TOOLS).splitlines()
    assert rules[:3] == [
        "root ::= s1",
        's1 ::= "Plan: " thought "\\n#E1 = " name "[" input "]" ( "\\n" s2 )?',
        's2 ::= "Plan: " thought "\\n#E2 = " name "[" input "]"',
    ]
    assert 'name ::= "Search" | "calculator" | "weather" | "LLM"' in rules


def by_kind(text: str, cuts: list[int]) -> dict[str, str]:
    splitter = PLANS.stream()
    pieces, start = [], 0
    for end in [*sorted(cuts), len(text)]:
        pieces += splitter.feed(text[start:end])
        start = end
    pieces += splitter.close()
    assert all(piece.text for piece in pieces)
    return {kind: "".join(piece.text for piece in pieces if piece.kind == kind) for kind in ("thought", "action")}


def test_thoughts_and_calls_are_told_apart_while_they_stream() -> None:
    text = "Plan: a\n#E1 = Search[x\ny]\nPlan: b #E2 = LLM[z]"
    assert by_kind(text, []) == {"thought": "a\nb ", "action": "#E1 = Search[x\ny]\n#E2 = LLM[z]"}


@given(words, st.lists(st.integers(0, 60), max_size=8))
def test_the_splitter_gives_the_same_for_any_chunking(text: str, cuts: list[int]) -> None:
    whole = by_kind(text, [])
    assert by_kind(text, [cut for cut in cuts if cut <= len(text)]) == whole
    assert by_kind(text, list(range(len(text)))) == whole


# ---- whatever the text


def test_random_and_mutated_plans_raise_nothing_but_unreadable() -> None:
    chance = random.Random(20261121)
    seeds = [
        "Plan: a\n#E1 = Search[x]\nPlan 2: b\n#E2 = calculator[#E1 * [2]]",
        'Plan: a\n#E1 = weather[{"city": "Lyon", "days": 3}]\n#E2 = LLM["Say [#E1]\\n"]',
        '{"steps": [{"id": "E1", "tool": "Search", "input": "x"}], "evidence": {"E1": "y"}}',
        "#E1 = Search(x)\n#E2 = weather[city='#E1', days=2]",
    ]
    read = 0
    total = examples(8_000)
    for count in range(total):
        if count % 4 == 0:
            text = "".join(chance.choices(PIECES, k=chance.randint(0, 25)))
        elif count % 40 == 1:
            text = "".join(chr(chance.randrange(0xFFFF)) for _ in range(40))
        else:
            text = chance.choice(seeds)
            for _ in range(chance.randint(0, 4)):
                at, to = sorted((chance.randrange(len(text) + 1), chance.randrange(len(text) + 1)))
                match chance.randrange(3):
                    case 0:
                        text = text[:at] + text[min(to, at + 5) :]
                    case 1:
                        text = text[:at] + chance.choice(PIECES) + text[at:]
                    case _:
                        text = text[:to] + text[at:]
        PLANS.escape(text)
        reads_as_plan(text)
        for reader in (read_plan, read_plan_file):
            try:
                found = reader(text, TOOLS if count % 3 else with_llm(()))
            except Unreadable as error:
                assert len(str(error)) > 20 and "\n\n" not in str(error)
                continue
            plan = found if isinstance(found, Plan) else found.plan
            read += 1
            assert plan.calls and not plan.problems(TOOLS if count % 3 else with_llm(()))
            assert check_plan(plan, TOOLS if count % 3 else with_llm(())) == plan
    assert read > total // 6  # and it is no reader that refuses everything


HOSTILE = {
    "steps": "#E1 = Search[\n",
    "steps on one line": "#E1 = Search[ ",
    "steps closed": "#E1 = Search[x] ",
    "strings begun in steps": '#E1 = Search["] ',
    "objects begun in steps": '#E1 = Search[{"a] ',
    "plans": "Plan: x\n",
    "plans on one line": "Plan: ",
    "brackets": "[",
    "closing brackets": "]",
    "quotes": '"',
    "apostrophes": " '",
    "escaped quotes": '\\"',
    "references": "#E1 ",
    "assignments": "#E1 = ",
    "names": "query=",
    "objects": '{"a": ',
    "blanks": " \t",
    "line breaks": "\n",
    "decoration": "***```---",
    "digits": "9",
    "commas": "a, ",
    "numbered steps": "1. **#E1** = ",
}


@for_each(
    ("head", "unit"),
    some_of(
        product(
            ["", "Plan: x\n#E1 = Search[", "#E1 = weather[city=", '#E1 = weather["', '{"steps": ['], HOSTILE.values()
        )
    ),
)
def test_a_hostile_text_takes_linear_time(unit: str, head: str) -> None:
    """A long text is read, escaped and split within two seconds of CPU (an eighth of a megabyte takes a fifth)."""
    text = head + unit * (LONG // len(unit))
    began = time.process_time()
    for reader in (read_plan, read_plan_file):
        try:
            reader(text, TOOLS)
        except Unreadable as error:
            assert len(str(error)) < 5_000
    PLANS.escape(text)
    splitter = PLANS.stream()
    splitter.feed(text)
    splitter.close()
    assert time.process_time() - began < 2.0, unit


@for_each(
    "text",
    [
        "Plan: a\n#E1 = Search[Lyon], Search[Nice]",
        "Plan: a\n#E1 = Search[Lyon] and Search[Nice]",
        "Plan: a\n#E1 = Search[Search[mayor of Lyon]]",
        "Plan: a\nSearch[Lyon]\nPlan: b\n#E2 = Search[Nice]",
        "Plan: a\n#E1 = Search[Lyon]\nPlan: b\n2. Search[Nice]",
        "Plan: a\n#E1 = Search[Lyon]\nPlan: b\nAction: Search[Nice]",
        "Plan: a\n#E1 = Search[Lyon]\nPlan: b\nx = Search(Nice)",
        "- Search[Lyon]\nPlan: b\n#E1 = Search[Nice]",
    ],
)
def test_a_plan_of_which_a_call_would_be_lost_is_refused(text: str) -> None:
    with pytest.raises(Unreadable, match=r"of Search|goes on after its call"):
        read_plan(text, TOOLS)


@pytest.mark.parametrize(
    "text",
    [
        "Plan: Use Search[Lyon] to find it.\n#E1 = Search[Lyon]",
        "Search[Lyon]\nPlan: a\n#E1 = Search[Lyon]",
        "(1) Search[input]\nPlan: a\n#E1 = Search[Lyon]",
        "Plan: a\n#E1 = Search[Lyon] # one call of Search\nPlan: b\n#E2 = Search[#E1 and [1] of it]",
        "Plan: a\n#E1 = LLM[What does Search[x] mean?]",
    ],
)
def test_a_call_that_is_only_spoken_of_costs_nothing(text: str) -> None:
    assert read_plan(text, TOOLS).plan.calls
