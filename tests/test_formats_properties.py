"""What holds for every turn, every reply and every piece of data, whatever is in it."""

import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import LONG, examples, some_of
from patience import cpu_seconds
from plait.core import Call, ToolSpec
from plait.core.loose_json import NotJson, objects, read_value
from plait.loops.format import Turn, Unreadable
from plait.loops.json.format import JsonTurn
from plait.loops.label_scan import USUAL
from plait.loops.react.format import react_format

TOOLS = (ToolSpec("search", "Looks up."), ToolSpec("calculator", "Adds."), ToolSpec("Log In", "Odd name."))
LABEL = USUAL.pattern
TEXTS = [react_format(name) for name in ("blob", "lines", "numbered", "original")]
FORMATS = [*TEXTS, JsonTurn()]
each = pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.name)

PROTOCOL = [
    "Thought:",
    "Thought 7:",
    "THOUGHT 7:",
    "Action:",
    "action 2:",
    "Action Input:",
    "Action_Input :",
    "Observation:",
    "Observation 1:",
    "**Observation:**",
    "\nobservation 3 :",
    "Final Answer:",
    "final_answer:",
    "Observation：",
    "Observation\\:",
    "Finish[",
    "Search[x]",
    "finish[",
    "]",
    "[",
    "```",
    "```json\n",
    "{",
    "}",
    '{"action": "search", "action_input": "x"}',
    '{"tool": "search", "tool_input": 1}',
    '"tool"',
    ":",
    '"',
    "'",
    "\\",
    "\\u0022",
    "“",
    "”",
    "\n",
    "\r\n",
    "\t",
    " ",
    ",",
    "null",
    "None",
    "1",
    "</code",
    "# ",
    "//",
    "/*",
    "search",
    "calculator",
    "Log In",
    '{"\\u0074ool": "search"}',
    "{'action': 'search'}",
    "{action: 1}",
    "ſ",
    "İ",
]

words = st.lists(
    st.one_of(st.sampled_from(PROTOCOL), st.text(max_size=8), st.sampled_from(["Lyon", "is a", "city."])),
    max_size=8,
).map("".join)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), words),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=3)),
    max_leaves=8,
)
structures = json_values.filter(lambda value: isinstance(value, (dict, list)))
thoughts = words.map(str.strip)
names = st.sampled_from([tool.name for tool in TOOLS])
numbers = st.integers(1, 30)


def calls(inputs):
    return st.builds(lambda thought, name, given: Turn(thought, Call(name, given)), thoughts, names, inputs)


def answers(values):
    return st.builds(lambda thought, value: Turn(thought, answer=value, answered=True), thoughts, values)


def comes_back(format, turn, n):
    text = format.write(turn, n)
    back = format.read(text, n, TOOLS)
    assert back.remarks == ()
    assert (back.thought, back.call, back.answer, back.answered) == (
        turn.thought,
        turn.call,
        turn.answer,
        turn.answered,
    ), text
    assert back.kept == text


@given(calls(json_values) | answers(json_values), numbers)
def test_json_reads_back_every_turn_it_writes(turn, n):
    comes_back(JsonTurn(), turn, n)
    comes_back(JsonTurn(lenient=False), turn, n)


def is_leftover(text):
    """Markup that the reader drops after an answer: it counts among the protocol's words there."""
    return "</code" in text.lower() or "```" in text


@given(
    calls(json_values)
    | answers(words.map(str.strip).filter(lambda text: text and not is_leftover(text)))
    | answers(json_values.filter(lambda value: value is not None and not isinstance(value, str))),
    numbers,
)
def test_blob_reads_back_every_turn_it_writes(turn, n):
    comes_back(react_format("blob"), turn, n)


@given(
    calls(st.none() | structures | words)
    | answers(words.map(str.strip).filter(lambda text: text and not is_leftover(text))),
    numbers,
)
def test_lines_reads_back_every_turn_it_writes(turn, n):
    comes_back(react_format("lines"), turn, n)


@given(calls(st.none() | structures | words) | answers(words.map(str.strip)), numbers)
def test_numbered_reads_back_every_turn_it_writes(turn, n):
    comes_back(react_format("numbered"), turn, n)


@given(words)
def test_escaped_data_holds_nothing_of_the_text_protocols(data):
    for format in TEXTS:
        escaped = format.escape(data, TOOLS)
        assert LABEL.search(escaped) is None
        assert not any(stop in "\n" + escaped for stop in format.stop(1))
        assert "```" not in escaped
        with pytest.raises(Unreadable):
            format.read(escaped, 1, TOOLS)
        assert format.escape(escaped, TOOLS) == escaped


@given(words, words)
def test_a_log_with_escaped_data_in_it_has_the_labels_of_its_turns_only(before, data):
    """Whoever splits a raw log at its labels finds the turns that were made, and no others."""
    for format in TEXTS:
        turn = Turn("I look.", Call("search", "Lyon"))
        log = f"{format.write(turn, 1)}\n{format.observation(format.escape(data), 1)}\n{format.write(turn, 2)}"
        kinds = [match[1].lower() for match in LABEL.finditer(log)]
        one = ["thought", "action"] + (["action input"] if format.name == "lines" else [])
        assert kinds == [*one, "observation", *one]


@given(words)
def test_escaped_data_holds_no_json_turn(data):
    format = JsonTurn()
    escaped = format.escape(data, TOOLS)
    assert "```" not in escaped
    with pytest.raises(Unreadable):
        format.read(escaped, 1, TOOLS)
    assert format.escape(escaped, TOOLS) == escaped


@each
@given(data=st.text(alphabet=st.characters(codec="utf-8", exclude_characters="`{[:：<=–—-\n")))
def test_plain_data_is_left_as_it_is(format, data):
    assert format.escape(data) == data


def by_kind(format, text, cuts):
    splitter = format.stream()
    pieces, start = [], 0
    for end in [*sorted(cuts), len(text)]:
        pieces += splitter.feed(text[start:end])
        start = end
    pieces += splitter.close()
    assert all(piece.text for piece in pieces)
    return {
        kind: "".join(piece.text for piece in pieces if piece.kind == kind)
        for kind in ("thought", "action", "observation", "answer")
    }


@each
@given(data=st.data())
def test_a_splitter_gives_the_same_for_any_chunking(format, data):
    text = data.draw(words | calls(words).map(lambda turn: format.write(turn, 1)))
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=12))
    whole = by_kind(format, text, [])
    assert by_kind(format, text, cuts) == whole
    assert by_kind(format, text, range(len(text))) == whole
    assert whole["observation"] == ""


@each
@given(data=st.data())
def test_a_splitter_agrees_with_the_reader(format, data):
    plain = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="`{}[]<:：\\\"'\r")).map(str.strip)
    thought, value = data.draw(plain), data.draw(plain.filter(bool))
    parts = by_kind(format, format.write(Turn(thought, answer=value, answered=True), 1), [])
    assert (parts["thought"], parts["action"], parts["answer"]) == (thought, "", value)
    parts = by_kind(format, format.write(Turn(thought, Call("search", value)), 1), [])
    assert (parts["thought"], parts["answer"]) == (thought, "")
    assert "search" in parts["action"] and "Thought" not in parts["action"].replace(value, "")


def mutated(chance, text):
    """A reply with some of its tokens deleted, doubled, swapped or joined by others."""
    tokens = [token for token in LABEL.sub(lambda m: f"\0{m[0]}\0", text).replace('"', '\0"\0').split("\0") if token]
    for _ in range(chance.randint(1, 5)):
        at = chance.randrange(len(tokens) + 1)
        match chance.randrange(5):
            case 0:
                del tokens[at : at + 1]
            case 1:
                tokens[at:at] = tokens[at : at + 1]
            case 2:
                tokens.insert(at, chance.choice(PROTOCOL))
            case 3:
                chance.shuffle(tokens)
            case _:
                tokens[at : at + 1] = [token[: chance.randrange(len(token) + 1)] for token in tokens[at : at + 1]]
    return "".join(tokens)


@each
def test_random_and_mutated_replies_raise_nothing_but_unreadable(format):
    """20,000 replies for each of five formats in the campaign, 200 in the tests."""
    chance = random.Random(20261121)
    turns = [
        Turn("I need Lyon.", Call("search", "people in Lyon")),
        Turn("Add [them].", Call("calculator", {"expression": "1 + 2", "digits": [1, None]})),
        Turn("", Call("Log In")),
        Turn("Done.", answer="It is 12.", answered=True),
    ]
    read = 0
    total = examples(20_000)
    for count in range(total):
        if count % 4 == 0:
            text = "".join(chance.choices(PROTOCOL, k=chance.randint(0, 25)))
        elif count % 40 == 1:
            text = "".join(chr(chance.randrange(0xFFFF)) for _ in range(40))  # surrogates as well
        else:
            text = mutated(chance, format.write(chance.choice(turns), 2))
        try:
            turn = format.read(text, 2, TOOLS if count % 2 else ())
        except Unreadable as error:
            assert len(str(error)) > 40 and "\n\n" not in str(error)
            continue
        read += 1
        assert (turn.call is None) == turn.answered
        if format.name != "json":
            assert not any(USUAL.kind_of(match[1]) == "observation" for match in LABEL.finditer(turn.kept))
    assert read > total // 5  # and it is no reader that refuses everything


HOSTILE = {
    "labels": "Action: ",
    "lines of labels": "Action:\n",
    "thoughts": "Thought: x\n",
    "answers": "Final Answer: x\n",
    "inputs": "Action Input:\n",
    "open objects": "{",
    "objects that break": '{"a" ',
    "half strings": '{"',
    "single quotes": "{'",
    "curly quotes": "{“",
    "comments": "{/*",
    "actions cut short": 'Action: {"action": "',
    "lines of actions cut short": 'Action: {"action": "x\n',
    "arrays": "[",
    "brackets": "Action 1: Search[\n",
    "names": "Search[",
    "blanks": " \t",
    "line breaks": "\n",
    "decoration": "***```---",
    "backslashes": "\\",
    "escaped labels": "Observation\\:",
    "fences": "```\n",
    "digits": "9",
    "numbers": "[1,",
    "pairs": '{"tool":',
    "true objects": '{"a": 1} ',
}


@each
@pytest.mark.parametrize(("head", "unit"), some_of(product(["", "Thought: x\nAction: "], HOSTILE.values())))
def test_a_hostile_megabyte_takes_no_more_than_linear_time(format, unit, head):
    """A long text is read, escaped and split within a second of CPU (an eighth of a megabyte takes a tenth)."""

    text = head + unit * (LONG // len(unit))

    def read_all():
        try:
            format.read(text, 1, TOOLS)
        except Unreadable as error:
            assert len(str(error)) < 1000
        format.escape(text, TOOLS)
        splitter = format.stream()
        splitter.feed(text)
        splitter.close()

    assert cpu_seconds(read_all, 1.0) < 1.0, unit


@given(words)
def test_loose_json_raises_nothing_but_its_own(text):
    try:
        read_value(text)
    except NotJson as error:
        assert 0 <= error.position <= len(text)
    next(objects(text), None)
