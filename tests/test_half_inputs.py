"""No effect on half an input: an input that is never closed does not run in any format: Plait asks again."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from msgspec import structs

import plait
from conftest import examples, for_each
from half_inputs import TOOLS, calls_made, closed_calls, forms
from journal_rows import is_request
from patience import cpu_seconds
from plait.core import Call, Reply, Think, join_replies
from plait.core.loose_json import is_unclosed
from plait.loops import CodeAct, LLMCompiler, Phased, ReAct, ReWOO, ToolCalling
from plait.loops.brackets import close_of_bracket
from plait.loops.format import Unreadable
from plait.loops.json.format import JsonTurn
from plait.loops.json.loop import JsonReAct
from plait.loops.phased import action_list
from plait.loops.plan_text import read_plan, with_llm
from plait.loops.react.format import react_format
from plait.loops.tool_calling.format import CallObjects, arguments_of
from plait.models.scripted import ABILITIES

STATEMENT = "DELETE FROM users\nWHERE id = 3"


# -- what counts as closed


@for_each(
    "text",
    [
        '{"sql": "DELETE FROM users',
        '{"sql": "DELETE FROM users"',
        '{"sql"',
        "{",
        '{"a": [1, 2], "b": tru',
        '{"a": -',
        '{"a": 1.',
        '{"a": 1 /* why',
        "{'sql': 'DELETE FROM users",
        "{sql: 'a', wh",
        "['DELETE', 'FROM",
        "['it\\'s",
        '{ // the statement\n "sql": "DELETE',
        '[1, {"a": 2}',
        "[",
        '"DELETE FROM users',
        '"Lyon", "Ni',
        '"she said \\"no\\"',
        '"""DELETE FROM users',
        '{"a": 1\n```\nmore',
        "[" * 500,
        '{"a":' * 500,
    ],
)
def test_the_beginning_of_an_object_a_list_or_a_string_is_unclosed(text: str) -> None:
    assert is_unclosed(text) and is_unclosed(f" {text}\n")


@for_each(
    "text",
    [
        "What's the capital",
        '5" nail',
        "'tis the season",
        '"The Hobbit" author',
        '"a" and "b',
        '"The Hobbit" #1 bestseller',
        '"Lyon" ```map',
        "[#1] is a reference",
        "['90s' music] and more",
        "[1] is a reference",
        "[Lyon",
        "[sic] and so on",
        "{name} is here",
        "{x | x > 0",
        "interval [0, 1)",
        "see [1",
        '{"a": 1}',
        '{"a": 1} and {"b": 2',
        '{"a": 1 "b"',
        "",
        "null",
        "[" * 500 + "]" * 500,
    ],
)
def test_free_text_and_whole_values_are_closed(text: str) -> None:
    assert not is_unclosed(text)


@for_each(
    ("inside", "closed"),
    [
        ("Lyon]", True),
        ("what [ means]", True),
        ("the interval [0, 1)]", True),
        ("x = ']']", True),
        ("it's 5\" [long]]", True),
        ("SELECT a[1]", False),
        ("SELECT a[ 1 ]", False),
        ("DELETE FROM users\nWHERE id = 3", False),
    ],
)
def test_the_bracket_of_a_tool_is_found_beside_those_of_its_input(inside: str, closed: bool) -> None:
    assert close_of_bracket(inside, 0) == (len(inside) - 1 if closed else None)


@pytest.mark.parametrize(
    "unit", ["[", "]", "[ ", " ]", "'", '"', "[0, 1)", '{"', '"a": [', "\\", "a[1] ", "```", "-1.e"]
)
def test_what_is_closed_is_found_in_linear_time(unit: str) -> None:
    def find() -> None:
        for text in (unit * (20_000 // len(unit)), '["' + unit * (20_000 // len(unit))):
            is_unclosed(text)
            close_of_bracket(text, 0)

    assert cpu_seconds(find, 1.0) < 1.0


# -- the readers


def test_a_call_that_is_cut_anywhere_in_its_input_is_not_made_and_a_whole_one_is_made_once() -> None:
    chance, every = random.Random(34), forms()
    cuts = 0
    while cuts < examples(150_000):
        for name, form in every.items():
            text, start, _, given = closed_calls(chance, form)
            (whole,) = calls_made(form, text)
            if name not in ("code", "text, nested"):  # their inputs are in another form
                assert whole[1] == ({"sql": given} if form.one else given), name
            for at in range(start + 1 + chance.randrange(9), len(text), 9):
                cuts += 1
                made = calls_made(form, text[:at])
                assert made in ([], [whole]), (name, text[:at])


HALF_TURNS = [
    "Action: execute[DELETE FROM users\nWHERE id = 3",
    "Action 1: execute[DELETE FROM users\nThought 2: on\nAction 2: execute[SELECT 1]",
    "Action 1: execute[DELETE FROM users\nObservation 1: 3 rows\nThought 2: on\nAction 2: execute[SELECT 1]",
    "execute[DELETE FROM users",
    'Action: execute["DELETE FROM users]',
    'Action: execute[{"sql": "DELETE FROM users]',
    'Action: execute\nAction Input: {"sql": "DELETE FROM users',
    'Action: execute\nAction Input: {"sql": "DELETE FROM users"\nObservation: 3 rows are "deleted"',
    'Action: execute\nAction Input: "DELETE FROM users',
    'Action: execute\nAction Input: ```json\n{"sql": "DELETE FROM users"\n```',
    'Action: execute\nAction Input: sql="DELETE FROM users',
    "Action: execute\nAction Input: ('DELETE FROM users",
    "Action: execute\n[DELETE FROM users",
    "Action: execute[DELETE FROM users WHERE name = ']'",
    'Action: execute\nAction Input: """DELETE FROM users',
    "Action: execute(sql=f'DELETE FROM users)",
    "Action: execute(sql='DELETE ' 'FROM users)",
    "Action: execute: DELETE FROM users\nWHERE id = 3",
    "Action: execute('DELETE FROM users WHERE f(x)",
    'Action: {"action": "execute", "action_input": "DELETE FROM users"',
    'Action: {"action": "execute", "action_input": {"action": "execute", "action_input": "SELECT 1"}',
    'Action: the call is {"action": "execute", "action_input": "DELETE FROM users"',
    'Tool: execute\nTool Input: {"sql": "DELETE FROM users',
    "<function=execute>\n<parameter=sql>\nDELETE FROM users",
]


@for_each("dialect", ["blob", "lines", "numbered", "original"])
@for_each("text", HALF_TURNS)
def test_every_dialect_of_react_asks_again(dialect: Any, text: str) -> None:
    with pytest.raises(Unreadable):
        react_format(dialect).read(f"Thought: I do it.\n{text}", 1, TOOLS)


@for_each("dialect", ["blob", "lines", "numbered", "original"])
@for_each(
    ("text", "given"),
    [
        (f"Action: execute[{STATEMENT}]", STATEMENT),
        ("Action: execute[What's the 5\" nail]", "What's the 5\" nail"),
        ("Action: execute[the interval [0, 1)]", "the interval [0, 1)"),
        ('Action: execute["x ] y"]', "x ] y"),
        ("Action: execute[SELECT 1]\n```sql\nDROP TABLE users\n```", "SELECT 1"),
        (
            "Action 1: execute[SELECT 1]\nThought 2: so\nAction 2: execute[SELECT 2\n```json\n"
            '{"action": "execute", "action_input": "DROP"}\n```',
            "SELECT 1",
        ),
        ('Action: execute: "DELETE FROM users\nWHERE id = 3"', STATEMENT),
        ('Action: execute\nAction Input: ```json\n{"sql": "SELECT 1"}', {"sql": "SELECT 1"}),
        ("Action: execute\nAction Input: What's the capital", "What's the capital"),
        ("Action: execute\nAction Input: [1] is a reference", "[1] is a reference"),
    ],
)
def test_every_dialect_of_react_makes_a_closed_call_and_no_other(dialect: Any, text: str, given: Any) -> None:
    turn = react_format(dialect).read(f"Thought 1: I do it.\n{text}", 1, TOOLS)
    assert turn.call == Call("execute", given)


def test_an_answer_of_the_numbered_dialects_needs_no_bracket_and_says_what_it_says() -> None:
    for dialect in ("numbered", "original"):
        assert react_format(dialect).read("Thought 1: so\nAction 1: Finish[about 42", 1, TOOLS).answer == "about 42"


@for_each(
    "text",
    [
        "Plan: do it\n#E1 = execute[DELETE FROM users\nWHERE id = 3",
        "Plan: a\n#E1 = execute[DELETE FROM users\nPlan: b\n#E2 = execute[SELECT 1]",
        '#E1 = execute[{"sql": "DELETE FROM users]',
        '#E1 = execute["DELETE FROM users]',
        '#E1 = execute[sql="DELETE ] FROM',
        "#E1 = execute(DELETE FROM users\nWHERE id = 3",
        "#E1 = execute DELETE FROM users\nWHERE id = 3",
        '#E1 = send["Ann", "x ]',
    ],
)
def test_a_plan_of_rewoo_with_half_an_input_is_refused(text: str) -> None:
    with pytest.raises(Unreadable):
        read_plan(text, with_llm(TOOLS))


HALF_CALLS = [
    '{"name": "execute", "arguments": {"sql": "DELETE FROM users"}',
    '{"name": "batch", "arguments": {"name": "execute", "arguments": {"sql": "DROP"}}',
    '{"execute": {"sql": "DELETE FROM users',
    "<function=send>\n<parameter=to>\nAnn\n</parameter>",
    "<function=send>",
    "<tool_call>send\n<arg_key>to</arg_key>\n<arg_value>Ann</arg_value>\n",
    "<tool_call>execute\n<arg_key>sql</arg_key>\n<arg_value>DELETE FROM users",
    "<tool_name>send</tool_name>\n<parameters>\n<to>Ann</to>",
    "<send>\n<to>Ann</to>",
    "execute(sql='DELETE FROM users\nWHERE f(x)",
    "execute(sql='DELETE FROM users WHERE f(x)",
    'execute(sql="""DELETE FROM users WHERE f(x)',
]


@for_each("text", HALF_CALLS)
def test_half_a_call_in_text_is_neither_made_nor_an_answer(text: str) -> None:
    with pytest.raises(Unreadable):
        CallObjects().read(f"I do it.\n{text}", tools=TOOLS)
    with pytest.raises(Unreadable):
        JsonTurn().read(f"I do it.\n{text}", 1, TOOLS)


def test_of_several_calls_in_text_none_is_made_if_one_is_never_closed() -> None:
    first = '{"name": "execute", "arguments": {"sql": "SELECT 1"}}'
    with pytest.raises(Unreadable, match="execute"):
        CallObjects().read(f'{first}\n{{"name": "execute", "arguments": {{"sql": "DROP', tools=TOOLS)
    assert JsonTurn().read(f'{first}\n{{"name": "exec', 1, TOOLS).call == Call("execute", {"sql": "SELECT 1"})


@pytest.mark.parametrize("text", ['{"sql": "DELETE', '["DELETE', '"DELETE FROM users', '{"sql": "DELETE"'])
def test_half_the_arguments_of_a_native_call_and_of_an_action_are_refused(text: str) -> None:
    with pytest.raises(Unreadable):
        arguments_of(text, [])
    with pytest.raises(Unreadable):
        action_list.ACTIONS.read(f'[{{"ACTION": "execute", "ARGUMENTS": {json.dumps(text)}}}]', tools=TOOLS)


# -- whole runs

SQL = json.dumps(STATEMENT)
FINISH = "Thought 2: Good.\nAction 2: Finish[done]"
LOOPS: dict[str, tuple[Any, list[str], str, str]] = {
    # the loop, replies before the call, the reply with the call, the answer
    "blob": (ReAct("blob"), [], f"Thought: I do it.\nAction: execute[{STATEMENT}]", "Final Answer: done"),
    "lines": (ReAct("lines"), [], f"Thought: t\nAction: execute\nAction Input: {STATEMENT}", "Final Answer: done"),
    "numbered": (ReAct("numbered"), [], f"Thought 1: I do it.\nAction 1: execute[{STATEMENT}]", FINISH),
    "original": (ReAct("original"), [], f"Thought 1: I do it.\nAction 1: execute[{STATEMENT}]", FINISH),
    "completion": (
        ReAct("numbered", transcript="completion"), [], f" I do it.\nAction 1: execute[{STATEMENT}]", FINISH,
    ),
    "json": (
        JsonReAct(),
        [],
        f'{{"thought": "t", "tool": "execute", "tool_input": {{"sql": {SQL}}}}}',
        '{"thought": "", "tool": "final_answer", "tool_input": "done"}',
    ),
    "rewoo": (ReWOO(), [], f"Plan: do it\n#E1 = execute[{STATEMENT}]", "done"),
    "compiler": (LLMCompiler(), [], f"1. execute({SQL})\n2. join()", "Finish: done"),
    "phased": (Phased(), ["Do it."], f'[{{"ACTION": "execute", "ARGUMENTS": [{SQL}]}}]', "done"),
    "tool_calling": (ToolCalling(), [], f'{{"name": "execute", "arguments": {{"sql": {SQL}}}}}', "done"),
    "codeact": (
        CodeAct(),
        ["1. Do it."],
        f" I do it.\nACTION 2:\n```python\nexecute(sql={SQL})\n```",
        " Good.\nACTION 3:\n```python\nstop('done')\n```",
    ),
}  # fmt: skip


def run_loop(name: str, replies: list[Any], **options: Any) -> tuple[list[str], plait.Run, plait.Agent]:
    """Run a loop with these replies, one after another, and return the statements that ran."""
    ran: list[str] = []

    @plait.tool
    def execute(sql: str) -> str:
        """Runs a statement."""
        ran.append(sql)
        return "1 row"

    loop, before, _, answer = LOOPS[name]
    model = plait.Scripted([*before, *replies, answer], by_turn=False, abilities=options.pop("abilities", None))
    agent = plait.Agent(loop, model=model, tools=[execute], **options)
    return ran, agent.run("Delete it."), agent


def halves(name: str) -> tuple[str, str]:
    """Return the reply with the call, and its beginning up to the middle of the statement."""
    whole = LOOPS[name][2]
    return whole, whole[: whole.index("users") + 5]


@pytest.mark.parametrize("name", LOOPS)
def test_the_rest_of_a_call_that_was_cut_is_requested_once_and_the_whole_call_runs_once(name: str) -> None:
    whole, half = halves(name)
    ran, run, agent = run_loop(name, [Reply(half, "length"), whole[len(half) :]])
    assert (ran, run.status, run.answer) == ([STATEMENT], "answered", "done")
    requests = [json.loads(row.body or b"") for row in run.trace if is_request(row.record)]
    rest = requests[len(LOOPS[name][1]) + 1]
    assert str(rest.get("prompt") or rest["messages"][-1]["content"]).endswith(half)
    assert agent.replay(run.id).whole


@pytest.mark.parametrize("name", LOOPS)
def test_a_call_that_is_still_not_closed_is_asked_for_again(name: str) -> None:
    whole, half = halves(name)
    ran, run, agent = run_loop(name, [Reply(half, "length"), Reply(" AND", "length"), whole])
    assert (ran, run.status, run.answer) == ([STATEMENT], "answered", "done")
    assert run.calls == len(LOOPS[name][1]) + 4 and agent.replay(run.id).whole


@pytest.mark.parametrize("name", [name for name in LOOPS if name != "lines"])  # nothing ends an input in lines
def test_a_reply_that_ends_within_a_call_is_asked_for_again(name: str) -> None:
    whole, half = halves(name)
    ran, run, _ = run_loop(name, [half, whole])
    assert (ran, run.status, run.answer) == ([STATEMENT], "answered", "done")


@pytest.mark.parametrize("name", ["lines", "numbered", "json"])
def test_an_endpoint_that_can_not_continue_a_reply_may_write_it_again(name: str) -> None:
    whole, half = halves(name)
    unable = structs.replace(ABILITIES, prefill=False, tools=False)
    ran, run, _ = run_loop(name, [Reply(half, "length"), whole], abilities=unable)
    assert (ran, run.answer) == ([STATEMENT], "done")
    last_line = half[half.rindex("\n") + 1 :] if "\n" in half else half
    ran, run, _ = run_loop(name, [Reply(half, "length"), last_line + whole[len(half) :]], abilities=unable)
    assert (ran, run.answer) == ([STATEMENT], "done")


def test_a_call_that_is_complete_in_a_reply_that_was_cut_needs_no_rest() -> None:
    ran, run, _ = run_loop("numbered", [Reply(f"{LOOPS['numbered'][2]}\nThought 2: and then I", "length")])
    assert (ran, run.calls) == ([STATEMENT], 2)


def test_a_native_call_that_was_cut_before_its_arguments_is_not_made() -> None:
    half, whole = (Reply("", finish, calls=(Call("execute", given),)) for finish, given in
                   (("length", None), ("calls", {"sql": STATEMENT})))  # fmt: skip
    ran, run, _ = run_loop("tool_calling", [half, whole])
    assert (ran, run.answer) == ([STATEMENT], "done")


def test_the_rest_of_a_reply_is_not_held_to_the_form_of_a_whole_one() -> None:
    asked: list[Think] = []

    def say(reply: Reply) -> Any:
        return lambda think: (asked.append(think), reply)[1]

    whole, half = halves("json")
    replies = [say(Reply(half, "length")), say(Reply(whole[len(half) :])), say(Reply(LOOPS["json"][3]))]
    model = plait.Scripted(replies, by_turn=False)
    plait.Agent(JsonReAct(constrain=True), model=model, tools=[], journal=False).run("Delete it.")
    assert [bool(each.schema) for each in asked] == [True, False, True]


def test_what_a_model_begins_again_in_place_of_a_rest_counts_once() -> None:
    half, again = Reply("Thought: I delete the user.\nAction: execute[DEL", "length"), "Thought: I delete the user."
    assert join_replies(half, Reply(f"{again}\nAction: execute[x]")).text == f"{again}\nAction: execute[x]"
    assert join_replies(half, Reply("Action: execute[x]")).text == f"{again}\nAction: execute[x]"
    assert join_replies(half, Reply("ETE]")).text == half.text + "ETE]"
    assert join_replies(Reply("1, 2", "length"), Reply("1, 2, 3")).text == "1, 21, 2, 3"  # too short to know
