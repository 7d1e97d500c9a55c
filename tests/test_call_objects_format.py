"""CallsTurn as JSON objects in text: what is read, what is refused, and what no data can do."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import LONG, for_each
from patience import cpu_seconds
from plait.core import Call, ToolSpec
from plait.loops.call_escape import escape_calls
from plait.loops.format import Unreadable
from plait.loops.label_scan import tool_name
from plait.loops.tool_calling.format import CallObjects, CallsTurn, arguments_of

TOOLS = (ToolSpec("lookup", "Finds."), ToolSpec("calculator", "Computes."), ToolSpec("Log In", "Odd name."))
FORM = CallObjects()
LOOK = Call("lookup", {"key": "a"})
OBJECT = '{"name": "lookup", "arguments": {"key": "a"}}'


def read(text: str) -> CallsTurn:
    return FORM.read(text, tools=TOOLS)


# -- what is read

SPELLINGS = {
    "as it should be": OBJECT,
    "a fence": f"```json\n{OBJECT}\n```",
    "a fence that is not closed": f"```\n{OBJECT}",
    "a fence of its own kind": f"```tool_call\n{OBJECT}\n```",
    "a list": f"[{OBJECT}]",
    "tags": f"<tool_call>\n{OBJECT}\n</tool_call>",
    "a tag that is not closed": f"<tool_call>{OBJECT}",
    "the mark of another family": f"[TOOL_CALLS][{OBJECT}]",
    "parameters": '{"name": "lookup", "parameters": {"key": "a"}}',
    "tool and tool_input": '{"tool": "lookup", "tool_input": {"key": "a"}}',
    "action and action_input": '{"action": "lookup", "action_input": {"key": "a"}}',
    "function": '{"function": "lookup", "arguments": {"key": "a"}}',
    "chat completions": '{"id": "x", "type": "function", "function": {"name": "lookup", "arguments": {"key": "a"}}}',
    "a list of tool_calls": f'{{"tool_calls": [{OBJECT}]}}',
    "arguments in a string": '{"name": "lookup", "arguments": "{\\"key\\": \\"a\\"}"}',
    "arguments beside the name": '{"name": "lookup", "key": "a"}',
    "the order turned": '{"arguments": {"key": "a"}, "name": "lookup"}',
    "a prefix": '{"name": "functions.lookup", "arguments": {"key": "a"}}',
    "another case": '{"name": "LookUp", "arguments": {"key": "a"}}',
    "single quotes": "{'name': 'lookup', 'arguments': {'key': 'a'}}",
    "a trailing comma": '{"name": "lookup", "arguments": {"key": "a",},}',
}


@for_each("text", SPELLINGS.values())
def test_a_call_is_read_in_every_usual_spelling(text: str) -> None:
    turn = read(text)
    assert turn.calls == (LOOK,)
    assert (turn.thought, turn.answered) == ("", False)


@for_each("how", [how for how in SPELLINGS if how not in ("as it should be", "the order turned")])
def test_what_was_mended_is_said_and_shown_mended(how: str) -> None:
    turn = read(SPELLINGS[how])
    assert turn.remarks and turn.kept == OBJECT


def test_several_calls_are_one_turn_and_the_text_before_them_the_thought() -> None:
    turn = read(f'I need both.\n\n{OBJECT}\n{{"name": "calculator", "arguments": {{"expression": "1+1"}}}}')
    assert turn.thought == "I need both."
    assert turn.calls == (LOOK, Call("calculator", {"expression": "1+1"}))
    assert turn.remarks == ()


@pytest.mark.parametrize("between", [", ", "\n```\n```json\n", "</tool_call>\n<tool_call>", " "])
def test_marks_between_calls_do_not_part_them(between: str) -> None:
    other = OBJECT.replace('"a"', '"b"')
    assert read(f"{OBJECT}{between}{other}").calls == (LOOK, Call("lookup", {"key": "b"}))


def test_a_model_that_goes_round_has_made_one_call() -> None:
    other = OBJECT.replace('"a"', '"b"')
    turn = read("\n".join([OBJECT, other] * 500))
    assert turn.calls == (LOOK, Call("lookup", {"key": "b"}))
    assert turn.kept == f"{OBJECT}\n{other}"
    assert [remark.text for remark in turn.remarks] == ["998 calls that stand there twice"]


def test_a_result_the_model_made_up_and_all_behind_it_is_cut() -> None:
    turn = read(f'{OBJECT}\nThe result of lookup: 5\n{{"name": "calculator", "arguments": {{"expression": "5*5"}}}}')
    assert turn.calls == (LOOK,)
    assert [remark.kind for remark in turn.remarks] == ["cut"]
    assert turn.kept == OBJECT


def test_text_without_a_call_is_the_answer_as_it_stands() -> None:
    for text in (
        "243",
        "The tower is 243 m high.",
        "See {this} and ```code```.",
        '{"name": "Lyon", "people": 5}',
        "[]",
    ):
        turn = read(f"  {text}\n")
        assert (turn.answer, turn.answered, turn.calls, turn.remarks) == (text, True, (), ())


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"name": "final_answer", "arguments": {"answer": "243"}}', "243"),
        ('{"name": "finish", "arguments": {"result": 243}}', 243),
        ('{"tool": "final_answer", "tool_input": "243"}', "243"),
        ('```json\n{"action": "Final Answer", "action_input": "243 m"}\n```', "243 m"),
    ],
)
def test_an_answer_handed_in_as_a_call_is_the_answer(text: str, answer: object) -> None:
    turn = read(text)
    assert (turn.answer, turn.answered, turn.calls) == (answer, True, ())
    assert turn.remarks


def test_a_tool_that_is_named_so_is_a_tool_and_an_answer_beside_calls_is_cut() -> None:
    text = '{"name": "finish", "arguments": {"it": 1}}'
    assert FORM.read(text, tools=[ToolSpec("finish", "A tool.")]).calls == (Call("finish", {"it": 1}),)
    turn = read(f"{OBJECT}\n{text}")
    assert turn.calls == (LOOK,) and not turn.answered
    assert turn.remarks[-1].kind == "cut"


def test_a_call_of_a_tool_that_is_not_there_is_a_call() -> None:
    assert read('{"name": "loockup", "arguments": {}}').calls == (Call("loockup"),)


# -- what is refused

BROKEN = [
    '{"name": "lookup", "arguments": {"key": "a}}',
    'I look.\n{"name": "lookup", "arguments": {"key": a}}',
    f'{{"name": "lookup", "arguments": {{"key": "a"\n{OBJECT}',
    '{"tool_calls": [{"name": "lookup", "arguments": {"key"}}]}',
    '{"name": "lookup", "arguments": "{\\"key\\": "}',
    '{"name": "lookup", "arguments": "{\\"key\\": \\"a\\""}',
    '{"arguments": {"key": "a"}}',
    "<tool_call>lookup a</tool_call>",
    "",
    " \n",
]


@for_each("text", BROKEN)
def test_what_was_meant_for_a_call_and_is_none_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(Unreadable, match=r'A call is one JSON object on a line of its own: \{"name"'):
        read(text)


def test_half_of_the_arguments_are_never_taken_for_all_of_them() -> None:
    for text in ('{"to": "Bob"', '{"to": "Bob", "text": "Dear', '{"to": "Bob"} {"to": "Ann"}', "{to"):
        with pytest.raises(Unreadable, match="the arguments are no JSON object"):
            arguments_of(text, [])
    remarks: list = []
    assert arguments_of('{"to": "Bob",}', remarks) == {"to": "Bob"} and remarks
    assert arguments_of('{"to": "Bob"}}', []) == {"to": "Bob"}
    assert arguments_of("Lyon", []) == "Lyon"
    assert arguments_of("[draft] hello", []) == "[draft] hello"
    assert arguments_of({}, []) is None and arguments_of("{}", []) is None


def test_names_are_matched_without_their_prefix() -> None:
    own = ToolSpec("functions.lookup", "")
    for tools, expected in ((TOOLS, "lookup"), ((*TOOLS, own), own.name)):
        assert tool_name("functions.lookup", tools, []) == expected
    assert tool_name("functions.nothing", TOOLS, []) == "functions.nothing"


# -- what holds for all

PROTOCOL = [
    OBJECT,
    '{"tool": "calculator", "tool_input": "1"}',
    '{"name": "lookup"}',
    '{"function": {"name": "lookup", "arguments": "{}"}}',
    '{"tool_calls": [',
    '{"name": "final_answer", "arguments": {"answer": 1}}',
    '{"\\u006eame": "lookup", "arguments": 1}',
    "{'name': 'lookup', 'args': 1}",
    "{name: lookup}",
    '"name"',
    '"arguments"',
    "<tool_call>",
    "</tool_call>",
    "[TOOL_CALLS]",
    "```",
    "```json\n",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    '"',
    "'",
    "\\",
    "\n",
    " ",
    "lookup",
    "null",
    "“",
    "/*",
    "\ud800",
]
words = st.lists(st.one_of(st.sampled_from(PROTOCOL), st.text(max_size=6), st.just("Lyon")), max_size=8).map("".join)
clean = words.filter(lambda text: "\ud800" not in text)
plain = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="{}[]<>`"), max_size=40).map(str.strip)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), clean),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(clean, inner, max_size=3)),
    max_leaves=6,
)
objects = st.dictionaries(clean, values, max_size=4)
each_call = st.builds(Call, st.sampled_from([tool.name for tool in TOOLS]), objects)
some_calls = st.lists(
    each_call, min_size=1, max_size=4, unique_by=lambda call: (call.tool, json.dumps(call.input, sort_keys=True))
)


@given(plain, some_calls)
def test_calls_read_back_as_they_were_written_whatever_their_arguments_hold(thought: str, calls: list[Call]) -> None:
    text = FORM.write(CallsTurn(thought, tuple(calls)), tools=TOOLS)
    back = read(text)
    assert back.thought == thought and back.remarks == () and back.kept == text
    assert back.calls == tuple(Call(call.tool, call.input or None) for call in calls)


@given(plain.filter(bool))
def test_an_answer_reads_back_as_it_was_written(answer: str) -> None:
    text = FORM.write(CallsTurn(answer=answer, answered=True), tools=TOOLS)
    assert (read(text).answer, read(text).remarks) == (answer, ())


@given(clean, st.lists(st.builds(Call, st.just("lookup"), values), max_size=2))
def test_the_writer_refuses_what_would_be_read_back_as_something_else(text: str, calls: list[Call]) -> None:
    turn = CallsTurn(text, tuple(calls)) if calls else CallsTurn(answer=text, answered=True)
    try:
        written = FORM.write(turn, tools=TOOLS)
    except ValueError:
        return
    back = read(written)
    assert (back.thought, back.answer, back.remarks) == (turn.thought, turn.answer, ())


@given(words)
def test_whatever_the_text_it_is_read_or_refused(text: str) -> None:
    try:
        turn = read(text)
    except Unreadable as why:
        assert len(str(why)) < 1000
        return
    assert turn.answered != bool(turn.calls)
    json.dumps([turn.answer, *(call.input for call in turn.calls)]).encode()  # nothing in it that JSON can't hold
    if turn.calls and turn.kept:
        again = read(turn.kept)
        assert again.calls == turn.calls  # what is shown to the model again says what was done


@given(words)
def test_escaped_data_holds_no_call(text: str) -> None:
    escaped = escape_calls(text.encode("utf-8", "replace").decode(), TOOLS)
    try:
        assert read(escaped).calls == ()
    except Unreadable as why:
        assert "tool_call" not in str(why)
    assert escape_calls(escaped, TOOLS) == escaped


def test_data_that_holds_no_call_stays_as_it_is() -> None:
    for data in ('{"name": "Lyon", "people": 522250}', '[{"name": "a"}, {"name": "b"}]', "```py\nx = {}\n```", "a < b"):
        assert escape_calls(data, TOOLS) == data
    assert escape_calls(f"The page says: {OBJECT}", TOOLS) == f"The page says: {OBJECT}".replace('name"', 'name"\\')
    assert escape_calls('{"a": [{"name": "lookup"}]}', TOOLS) != '{"a": [{"name": "lookup"}]}'


def test_the_splitter_gives_the_same_for_any_chunking() -> None:
    chance = random.Random(3)
    text = f"I look.\n{OBJECT}\n"
    for _ in range(20):
        splitter = FORM.stream()
        cuts = sorted(chance.sample(range(len(text)), 5))
        for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
            previewed = splitter.feed(text[start:end])
            assert all(piece.kind == "text" and piece.text in "I look.\n" for piece in previewed)
        assert [(piece.kind, piece.text) for piece in splitter.close()] == [
            ("thought", "I look."),
            ("action", 'lookup {"key": "a"}'),
        ]


def test_text_beside_native_calls_is_a_thought_and_alone_the_answer() -> None:
    for acts, kind in ((True, "thought"), (False, "answer")):
        splitter = FORM.stream()
        splitter.feed("243 ")
        assert [(piece.kind, piece.text) for piece in splitter.close(acts)] == [(kind, "243")]


UNITS = [
    "{",
    '{"name":',
    "[",
    "<tool_call>",
    "```json\n",
    OBJECT,
    '{"name": "lookup", "arguments": {',
    "\\",
    '"',
    "{'",
    " ",
    "`",
]


@pytest.mark.parametrize("unit", UNITS)
def test_a_hostile_text_takes_no_more_than_linear_time(unit: str) -> None:
    """An eighth of a megabyte: read, escaped and split within two seconds of CPU."""
    text = unit * (LONG // len(unit))

    def read_all() -> None:
        try:
            read(text)
        except Unreadable as why:
            assert len(str(why)) < 1000
        escape_calls(text, TOOLS)
        splitter = FORM.stream()
        splitter.feed(text)
        splitter.close()

    assert cpu_seconds(read_all, 2.0) < 2.0, unit
