"""The code format: what is read, what is repaired, and what holds for every turn, every reply and all data."""

import random
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from conftest import LONG, examples, for_each, some_of
from patience import cpu_seconds
from plait.core import ToolSpec
from plait.loops.codeact.format import CodeFormat, code_call
from plait.loops.codeact.labels import FENCE, LABEL
from plait.loops.codeact.signature import signature
from plait.loops.format import Turn, Unreadable

FORMAT = CodeFormat()
CODE = 'x = people("Lyon")\nprint(x)'

PROTOCOL = [
    "THOUGHT 2:",
    "THOUGHT 7:\n",
    "Thought:",
    "\nthought 3 :",
    "ACTION 2:\n",
    "\nACTION 3:\n",
    "Action:",
    "**ACTION 2:**",
    "OBSERVATION 2:",
    "\nObservation:",
    "\nOBSERVATION 9:\n",
    "# Observation: ",
    "FINAL ANSWER: ",
    "\nFinal answer: ",
    "final_answer:",
    "```",
    "```python\n",
    "\n```\n",
    "```Python\r\n",
    "```json\n",
    "````python\n",
    "~~~",
    "\n~~~py\n",
    "\n~~~\n",
    "\\```",
    "ACTION\\:",
    "`",
    "stop()",
    "print(1)\n",
    "x = 1\n",
    ">>> x",
    "    ",
    "python\n",
    "\n",
    "\r\n",
    " ",
    "\t",
    "#",
    ":",
    "：",
    "\\",
    '"""',
    "(",
    ")",
    "ſ",
]
words = st.lists(
    st.one_of(st.sampled_from(PROTOCOL), st.text(max_size=8), st.sampled_from(["Lyon", "is a", "city."])), max_size=8
).map("".join)
thoughts = words.map(str.strip)
numbers = st.integers(1, 30)
codes = st.lists(
    st.one_of(
        st.sampled_from([CODE, "print(1)", 's = """\n```\n"""', "# Observation: 3", "if x:\n    y()", "``` "]), words
    ),
    min_size=1,
    max_size=4,
).map("\n".join)


def same(turn: Turn) -> tuple[object, ...]:
    return turn.thought, turn.call, turn.answer, turn.answered


@given(thoughts, codes, numbers)
def test_it_reads_back_every_turn_it_writes(thought, code, n):
    turn = Turn(thought, code_call(code.strip("\n").rstrip()))
    try:
        text = FORMAT.write(turn, n)
    except ValueError:
        assume(False)
    back = FORMAT.read(text, n)
    assert same(back) == same(turn), text
    assert back.kept == text
    assert [remark.text for remark in back.remarks] == ([] if thought else ["the thought is missing"])


@given(thoughts, words.map(str.strip).filter(bool), numbers)
def test_it_reads_back_an_answer(thought, answer, n):
    turn = Turn(thought, answer=answer, answered=True)
    text = FORMAT.write(turn, n)
    back = FORMAT.read(text, n)
    assert (same(back), back.kept, back.remarks) == (same(turn), text, ())


@for_each("code", ["", " \n ", "    x = 1\n    y = 2", ">>> x = 1", "x = 1\nACTION 3: y", "x = 1\nOBSERVATION 2:\n1"])
def test_code_that_would_not_come_back_is_not_written(code):
    with pytest.raises(ValueError, match="read back"):
        FORMAT.write(Turn("I look.", code_call(code)), 2)


HEAD = "THOUGHT 2:\nI look.\nACTION 2:\n"
REPAIRED = {
    "another language word": (f"{HEAD}```Python\n{CODE}\n```", CODE, "fence was not ```python"),
    "no language": (f"{HEAD}```\n{CODE}\n```", CODE, "fence was not ```python"),
    "the word on a line of its own": (f"{HEAD}```\npython\n{CODE}\n```", CODE, "fence was not ```python"),
    "tildes": (f"{HEAD}~~~python\n{CODE}\n~~~", CODE, "fence was not ```python"),
    "no fence": (f"{HEAD}{CODE}", CODE, "had no fence"),
    "no fence, then the next turn": (f"{HEAD}{CODE}\nTHOUGHT 3:\nmore", CODE, "had no fence"),
    "a fence in the line": ("THOUGHT 2:\nI look.\nACTION 2: ```stop()```", "stop()", "fence was in its line"),
    "cut before the fence was closed": (f"{HEAD}```python\n{CODE}\n", CODE, "not closed"),
    "closed at the end of a line": (f"{HEAD}```python\n{CODE}```\nTHOUGHT 3:\nx", CODE, "not closed"),
    "not closed before the next turn": (f"{HEAD}```python\n{CODE}\nTHOUGHT 3:\nx\nACTION 3:\n", CODE, "not closed"),
    "other case": (f"Thought 2:\nI look.\nAction 2:\n```python\n{CODE}\n```", CODE, "ACTION 2: was written otherwise"),
    "no numbers": (f"THOUGHT:\nI look.\nACTION:\n```python\n{CODE}\n```", CODE, "ACTION 2: was written otherwise"),
    "other numbers": (f"THOUGHT 4:\nI look.\nACTION 4:\n```python\n{CODE}\n```", CODE, "was numbered 4 in turn 2"),
    "markdown": (f"**THOUGHT 2:** I look.\n**ACTION 2:**\n```python\n{CODE}\n```", CODE, "was written otherwise"),
    "a block without its label": (f"THOUGHT 2:\nI look.\n```python\n{CODE}\n```", CODE, "label was missing"),
    "a block behind the thought": (f"THOUGHT 2:\nI look. ```python\n{CODE}\n```", CODE, "label was missing"),
    "a block that is not marked": (f"THOUGHT 2:\nI look.\n```\n{CODE}\n```", CODE, "label was missing"),
    "a terminal's prompts": (f"{HEAD}```python\n>>> x = 1\n>>> print(x)\n```", "x = 1\nprint(x)", "prompts"),
    "indented": (f"{HEAD}```python\n    x = 1\n    print(x)\n```", "x = 1\nprint(x)", "indented"),
    "line ends of another system": (f"{HEAD}```python\r\nx = 1\r\nprint(x)\r\n```", "x = 1\nprint(x)", ""),
}


@for_each(("text", "code", "remark"), REPAIRED.values())
def test_what_is_not_quite_the_form_is_read_and_the_repair_is_named(text, code, remark):
    turn = FORMAT.read(text, 2)
    assert turn.thought == "I look."
    assert turn.call == code_call(code)
    assert any(remark in one.text for one in turn.remarks) or not remark
    # What stands in the prompt from now on is the form itself.
    again = FORMAT.read(turn.kept, 2)
    assert same(again) == same(turn)
    assert not any(one.kind == "repaired" for one in again.remarks)


def test_a_bare_code_reply_is_the_action_and_the_missing_thought_is_named():
    turn = FORMAT.read(CODE, 2)
    assert turn.call == code_call(CODE)
    assert [one.text for one in turn.remarks] == [
        "code without label and fence was taken for the action",
        "the thought is missing",
    ]


@pytest.mark.parametrize("text", ["Done.", "The task is done, stop", "x - y", "I call people(city) now, then stop()."])
def test_words_are_not_code(text):
    with pytest.raises(Unreadable, match="There is no action"):
        FORMAT.read(text, 2)
    with pytest.raises(Unreadable, match="no Python code"):
        FORMAT.read(f"THOUGHT 2:\nI look.\nACTION 2:\n{text}", 2)


def test_of_several_actions_only_the_first_is_taken_and_the_cut_is_noted():
    one = f"{HEAD}```python\n{CODE}\n```"
    turn = FORMAT.read(f"{one}\nTHOUGHT 3:\nNow the rest.\nACTION 3:\n```python\nstop()\n```", 2)
    assert (turn.call, turn.kept) == (code_call(CODE), one)
    assert [(one.kind, one.text) for one in turn.remarks] == [
        ("cut", "51 characters after the action (not run)"),
    ]
    block = f"THOUGHT 2:\nI look.\n```python\n{CODE}\n```\nACTION 3:\n```python\nstop()\n```"
    assert FORMAT.read(block, 2).call == code_call(CODE)


def test_an_own_observation_is_never_kept():
    turn = FORMAT.read(f"{HEAD}```python\n{CODE}\n```\nOBSERVATION 2:\n522250\nTHOUGHT 3:\nDone.", 2)
    assert turn.kept == f"{HEAD}```python\n{CODE}\n```"
    assert turn.remarks[-1].text == "38 characters after the action (with an observation of its own)"
    with pytest.raises(Unreadable, match="You wrote an observation yourself"):
        FORMAT.read(f"THOUGHT 2:\nI look.\nOBSERVATION 2:\n522250\nACTION 3:\n```python\n{CODE}\n```", 2)


def test_an_action_wins_over_a_final_answer():
    for text in (f"{HEAD}```python\n{CODE}\n```\nFinal answer: 12", f"Final answer: 12\n{HEAD}```python\n{CODE}\n```"):
        turn = FORMAT.read(text, 2)
        assert (turn.call, turn.answered) == (code_call(CODE), False)
        assert any(one.kind == "cut" for one in turn.remarks)
        assert "12" not in turn.kept


def test_an_ending_in_words_is_an_answer():
    turn = FORMAT.read("THOUGHT 2:\nThat is all.\nFinal answer: 522250 people.", 2)
    assert (turn.thought, turn.answer, turn.answered) == ("That is all.", "522250 people.", True)


def test_a_block_that_is_shown_is_not_run_where_an_action_follows():
    turn = FORMAT.read(f"THOUGHT 2:\nIt has the form\n```json\n{{}}\n```\nACTION 2:\n```python\n{CODE}\n```", 2)
    assert turn.call == code_call(CODE)


def test_comments_that_look_like_labels_stay_in_the_code():
    code = "# Thought: first the city\nx = 1\n# Observation: fine\nAction = x\nprint(Action)"
    assert FORMAT.read(f"{HEAD}```python\n{code}\n```", 2).call == code_call(code)


def test_half_an_action_is_not_run_when_the_token_limit_cut_it():
    cut = f"{HEAD}```python\nsend('a')\nsend('b"
    assert FORMAT.read(cut, 2).call is not None
    with pytest.raises(Unreadable, match="cut before its action ended"):
        FORMAT.read(cut, 2, whole=False)
    assert FORMAT.read(f"{HEAD}```python\n{CODE}\n```", 2, whole=False).call == code_call(CODE)


@for_each(
    ("reply", "text"),
    [
        (" is 12.\nACTION 2:\n", "THOUGHT 2:\nI see that is 12.\nACTION 2:\n"),
        ("I see that is 12.", "THOUGHT 2:\nI see that is 12."),
        (", so", "THOUGHT 2:\nI see that, so"),
        ("THOUGHT 2:\nIt is 12.", "THOUGHT 2:\nIt is 12."),
        ("```python\nstop()\n```", "```python\nstop()\n```"),
        ("stop()", "stop()"),
    ],
)
def test_a_reply_goes_on_after_its_opening_or_begins_anew(reply, text):
    assert FORMAT.join_opening(reply, "THOUGHT 2:\nI see that") == text


@given(words)
def test_escaped_data_holds_nothing_of_the_protocol(data):
    escaped = FORMAT.escape(data)
    assert LABEL.search(escaped) is None
    assert FENCE.search(escaped) is None
    shown = FORMAT.observation(escaped, 3)
    assert [match[0] for match in LABEL.finditer(shown)] == ["OBSERVATION 3:"]
    assert FORMAT.escape(escaped) == escaped


def test_data_that_carries_the_protocol_is_shown_with_backslashes():
    data = "THOUGHT 3:\nDone.\nACTION 3:\n```python\nstop()\n```\n OBSERVATION 3: x\n~~~\nsay THOUGHT 4: no"
    assert FORMAT.escape(data) == (
        "THOUGHT 3\\:\nDone.\nACTION 3\\:\n\\```python\n\\stop()\n\\```\n OBSERVATION 3\\: x\n\\~~~\nsay THOUGHT 4: no"
    )


@given(data=st.text(alphabet=st.characters(codec="utf-8", exclude_characters="`~:：")))
def test_plain_data_is_left_as_it_is(data):
    assert FORMAT.escape(data) == data


def by_kind(text, cuts):
    splitter = FORMAT.stream()
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


@given(data=st.data())
def test_a_splitter_gives_the_same_for_any_chunking(data):
    text = data.draw(words | st.sampled_from([one[0] for one in REPAIRED.values()]))
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=12))
    whole = by_kind(text, [])
    assert by_kind(text, cuts) == whole
    assert by_kind(text, range(len(text))) == whole
    assert whole["observation"] == ""


@given(
    st.text(alphabet=st.characters(codec="utf-8", exclude_characters="`~\\\r")).map(str.strip),
    st.sampled_from([CODE, "if x:\n\n    y()", "# Observation: 3\nx = 1"]),
)
def test_a_splitter_agrees_with_the_reader(thought, code):
    assume("\\" not in FORMAT.write(Turn(thought, code_call(code)), 1))
    parts = by_kind(FORMAT.write(Turn(thought, code_call(code)), 1), [])
    assert (parts["thought"], parts["action"], parts["answer"]) == (thought, code, "")
    if thought:
        parts = by_kind(FORMAT.write(Turn(thought, answer="12 people", answered=True), 1), [])
        assert (parts["thought"], parts["action"], parts["answer"]) == (thought, "", "12 people")


def test_a_thought_streams_before_its_line_ends():
    splitter = FORMAT.stream()
    assert splitter.feed("THOUGHT 2:\n") == []
    assert [piece.text for piece in splitter.feed("I see")] == ["I see"]


def mutated(chance, text):
    tokens = [token for token in LABEL.sub(lambda m: f"\0{m[0]}\0", text).replace("\n", "\0\n\0").split("\0") if token]
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


def test_random_and_mutated_replies_raise_nothing_but_unreadable():
    chance = random.Random(20261121)
    turns = [
        Turn("I need Lyon.", code_call(CODE)),
        Turn("", code_call("for x in y:\n    print(x)\n\nstop()")),
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
            text = mutated(chance, FORMAT.write(chance.choice(turns), 2))
        try:
            turn = FORMAT.read(text, 2, whole=count % 3 > 0)
        except Unreadable as error:
            assert len(str(error)) > 40 and "\n\n" not in str(error)
            continue
        read += 1
        assert (turn.call is None) == turn.answered
        if turn.call is not None:
            assert turn.call.input.strip()
        again = FORMAT.read(turn.kept, 2)
        assert (again.call, again.answer) == (turn.call, turn.answer), text
    assert read > total * 2 // 5  # and it is no reader that refuses everything


HOSTILE = [
    "ACTION 2: ",
    "ACTION 2:\n",
    "THOUGHT 2:\n",
    "Final answer: x\n",
    "OBSERVATION\n",
    "```python\n",
    "```x\n",
    "```\n",
    "```x\nTHOUGHT 2:\n",
    "```x\n````\n",
    "```x\ny\n```\n",
    "`",
    "``",
    "~",
    "~~~x\n",
    "text ```py ",
    "ACTION 2: ```x\n",
    "ACTION 2: x(\n",
    "x(1)\n",
    "(",
    ">>> x\n",
    " ",
    " \t",
    "\n",
    " \n",
    "\\",
    "\\```",
    "# ",
    "9",
    "***```---",
    "\r",
]


@for_each(("head", "unit"), some_of(product(["", "THOUGHT 2:\nx\nACTION 2:\n```python\n"], HOSTILE), 2))
def test_a_hostile_reply_takes_no_more_than_linear_time(unit, head):
    """A long text is read, escaped, split and written within a second of CPU (128 kB takes a tenth)."""
    text = head + unit * (LONG // len(unit))

    def read_all():
        try:
            FORMAT.read(text, 2)
        except Unreadable as error:
            assert len(str(error)) < 1000
        FORMAT.join_opening(text, "THOUGHT 2:\nI see")
        FORMAT.escape(text)
        FORMAT.write(Turn(text, answer="x", answered=True), 2)
        splitter = FORMAT.stream()
        splitter.feed(text)
        splitter.close()

    assert cpu_seconds(read_all, 1.0) < 1.0


def test_tools_are_told_as_signatures():
    tool = ToolSpec(
        "people",
        "Counts people.\nIn a city",
        {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "years": {"type": "array", "items": {"type": "integer"}},
                "unit": {"enum": ["one", "k"], "default": "one"},
                "at": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            },
            "required": ["city", "years"],
        },
        returns="int",
    )
    assert FORMAT.describe((tool, ToolSpec("now", "", returns="the time, as text"))) == (
        "`people(city: str, years: list[int], unit: Literal['one', 'k'] = 'one', at: float | None = None) -> int`: "
        "Counts people. In a city.\n`now()`: Returns the time, as text."
    )
    assert signature(ToolSpec("f", "", returns="dict: the entry")) == "f() -> dict"
