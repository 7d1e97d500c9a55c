"""The list of actions of the phased loop: what its reader takes, what its writer writes, what data may not say."""

from __future__ import annotations

import contextlib
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import examples, for_each
from patience import cpu_seconds
from plait.core import Step, ToolSpec
from plait.loops.format import Unreadable
from plait.loops.phased import action_list

TEXT = {"type": "string"}


def takes(*names: str) -> dict[str, object]:
    return {"type": "object", "properties": dict.fromkeys(names, TEXT), "required": list(names)}


TOOLS = (
    ToolSpec("lookup", "Finds an entry.", takes("name")),
    ToolSpec("route", "From here to there", takes("start", "end"), returns="kilometres"),
    ToolSpec("total", "Adds.", {"type": "object", "properties": {"numbers": {"type": "array"}}}),
)
LYON = '{"ACTION": "lookup", "ARGUMENTS": ["Lyon"], "EXPLANATION": "why"}'


def read(text: str, most: int = 8) -> action_list.Actions:
    return action_list.ActionList(most).read(text, tools=TOOLS)


def steps(text: str) -> list[tuple[str, object]]:
    return [(step.tool, step.input) for step in read(text).steps]


def remarks(text: str) -> str:
    return "; ".join(f"{remark.kind}: {remark.text}" for remark in read(text).remarks)


# -- what is read


def test_the_list_as_it_should_be_has_no_remarks_and_is_kept_as_written() -> None:
    text = f"[{LYON},  {LYON.replace('Lyon', 'Nice')}]"
    found = read(text)
    assert found.steps == (
        Step("1", "lookup", ["Lyon"], "why"),
        Step("2", "lookup", ["Nice"], "why"),
    )
    assert (found.kept, found.remarks) == (text, ())


@for_each(
    ("text", "expected"),
    [
        # the misspelling of the published form, small letters, a single object
        ('[{"ACTION": "lookup", "ARGUMENTS": ["Lyon"], "EXPLAINATION": "why"}]', [("lookup", ["Lyon"])]),
        ('[{"action": "lookup", "arguments": ["Lyon"], "explanation": "why"}]', [("lookup", ["Lyon"])]),
        (LYON, [("lookup", ["Lyon"])]),
        # arguments: missing, null, one value, by name, JSON in a text, by name inside the list
        ('[{"ACTION": "lookup"}]', [("lookup", None)]),
        ('[{"ACTION": "lookup", "ARGUMENTS": null}]', [("lookup", None)]),
        ('[{"ACTION": "lookup", "ARGUMENTS": []}]', [("lookup", None)]),
        ('[{"ACTION": "lookup", "ARGUMENTS": {}}]', [("lookup", None)]),
        ('[{"ACTION": "lookup", "ARGUMENTS": "Lyon"}]', [("lookup", ["Lyon"])]),
        ('[{"ACTION": "lookup", "ARGUMENTS": 5}]', [("lookup", [5])]),
        ('[{"ACTION": "lookup", "ARGUMENTS": 0}]', [("lookup", [0])]),
        ('[{"ACTION": "route", "ARGUMENTS": {"start": "A", "end": "B"}}]', [("route", {"start": "A", "end": "B"})]),
        ('[{"ACTION": "route", "ARGUMENTS": "[\\"A\\", \\"B\\"]"}]', [("route", ["A", "B"])]),
        ('[{"ACTION": "route", "ARGUMENTS": [{"start": "A", "end": "B"}]}]', [("route", {"start": "A", "end": "B"})]),
        ('[{"ACTION": "route", "start": "A", "end": "B"}]', [("route", {"start": "A", "end": "B"})]),
        ('[{"ACTION": "total", "ARGUMENTS": [{"numbers": 1}]}]', [("total", [{"numbers": 1}])]),
        # around it
        (f"```json\n[{LYON}]\n```", [("lookup", ["Lyon"])]),
        (f"I will do this:\n\n[{LYON}]\n\nThen I'll know [sic].", [("lookup", ["Lyon"])]),
        (f"First {LYON}\nand then {LYON.replace('Lyon', 'Nice')}", [("lookup", ["Lyon"]), ("lookup", ["Nice"])]),
        (f'{{"ACTIONS": [{LYON}]}}', [("lookup", ["Lyon"])]),
        (f'{{"thought": "so", "list": [{LYON}]}}', [("lookup", ["Lyon"])]),
        # JSON in need of repair
        ("[{'ACTION': 'lookup', 'ARGUMENTS': ['Lyon',],},]", [("lookup", ["Lyon"])]),
        ('[{"ACTION": "LOOKUP", "ARGUMENTS": ["Lyon"]}]', [("lookup", ["Lyon"])]),
        # no tool of ours: for the runtime to say
        ('[{"ACTION": "teleport", "ARGUMENTS": ["Lyon"], "EXPLANATION": ""}]', [("teleport", ["Lyon"])]),
        # nothing needed
        ("[]", []),
        ("Nothing is needed: []", []),
        ("```json\n[ ]\n```", []),
        ('[{"ACTION": "Basic", "ARGUMENTS": [], "EXPLANATION": "a greeting"}]', []),
        ('{"ACTION": "basic"}', []),
        (f'[{{"ACTION": "Basic"}}, {LYON}]', [("lookup", ["Lyon"])]),
    ],
)
def test_the_reader_takes(text: str, expected: list[tuple[str, object]]) -> None:
    assert steps(text) == expected


@for_each(
    ("text", "word"),
    [
        ('[{"ACTION": "lookup", "ARGUMENTS": ["x"], "EXPLAINATION": "w"}]', "from the key 'EXPLAINATION'"),
        ('[{"action": "lookup", "ARGUMENTS": ["x"], "EXPLANATION": "w"}]', "from the key 'action'"),
        (LYON, "an action without a list around"),
        ('[{"ACTION": "lookup", "EXPLANATION": "w"}]', "ARGUMENTS is missing"),
        ('[{"ACTION": "lookup", "ARGUMENTS": "x", "EXPLANATION": "w"}]', "ARGUMENTS was one value"),
        (f"```json\n[{LYON}]\n```", "a code fence"),
        (f"So: [{LYON}]", "3 characters of text before the list"),
        (f"[{LYON}] Done", "cut: 4 characters after the list"),
        (LYON.replace('"why"', '["w"]'), "an EXPLANATION was not text"),
        (f'[{LYON[:-1]}, "COLOUR": 1}}]', "cut: the keys COLOUR"),
    ],
)
def test_what_was_repaired_is_named_and_what_is_kept_reads_as_the_same_actions(text: str, word: str) -> None:
    assert word in remarks(text)
    assert read(read(text).kept).steps == read(text).steps


@pytest.mark.parametrize(
    "text",
    [
        '[{"ACTION": "lookup", "ARGUMENTS": ["x"], "EXPLAINATION": "w"}]',
        '[{"action": "lookup", "args": ["x"], "reason": "w"}]',
        "[{'ACTION': 'lookup', 'ARGUMENTS': ['x'], 'EXPLANATION': 'w'},]",
        '[{ACTION: "Lookup", ARGUMENTS: "x", EXPLANATION: None}]',
        LYON,
    ],
)
def test_the_models_own_text_is_kept_where_only_spelling_or_punctuation_was_repaired(text: str) -> None:
    assert read(text).kept == text


@pytest.mark.parametrize(
    "text",
    [
        f'[{LYON[:-1]}, "RESULT": "522250"}}]',
        f"{LYON} and {LYON.replace('Lyon', 'Paris')}",
    ],
)
def test_the_canonical_list_is_kept_where_the_list_or_something_else_was_cut(text: str) -> None:
    again = read(read(text).kept)
    assert (again.steps, again.remarks) == (read(text).steps, ())
    assert "RESULT" not in read(text).kept


MALFORMED = '{"ACTION": "lookup" "ARGUMENTS": []}'


@pytest.mark.parametrize(
    "text",
    [
        "The list x = [] is empty in Python.",
        "I would call lookup(Lyon), then there is nothing left: []",
        f"{MALFORMED}\n[]",
        f"[]\n{MALFORMED}",
        "`[]` means that no action is needed, but one is.",
    ],
)
def test_an_empty_list_in_prose_or_beside_a_malformed_action_does_not_mean_that_nothing_is_needed(text: str) -> None:
    with pytest.raises(Unreadable):
        read(text)


@for_each(
    "text",
    [
        "[]",
        "```json\n[]\n```",
        "No action is needed: []",
        "No action is needed. []",
        "Actions:\n[]\nIt is a greeting.",
        "`[]`",
    ],
)
def test_an_empty_list_that_stands_alone_means_that_nothing_is_needed(text: str) -> None:
    assert read(text).steps == ()


@for_each(
    "text",
    [
        f"{LYON}\n{MALFORMED}",
        f"{MALFORMED}\n{LYON}",
        f"[{LYON}]\n{MALFORMED}",
        f"{MALFORMED}\n[{LYON}]",
        f'[{LYON}]\nThen:\n[{{"ACTION": "lookup", "ARGUMENTS": ["Paris"]}}]',
        f'[{LYON}]\nThen: {{"ACTION": "lookup", "ARGUMENTS": ["Paris"]}}',
        '[lookup("Lyon"), lookup("Par]',
    ],
)
def test_a_reply_with_an_action_that_would_be_lost_is_refused(text: str) -> None:
    with pytest.raises(Unreadable):
        read(text)


@pytest.mark.parametrize("between", ["\n", ",\n", "\n```\n```json\n", "\n- "])
def test_lists_right_behind_each_other_are_read_as_one(between: str) -> None:
    found = steps(f"[{LYON}]{between}[{LYON.replace('Lyon', 'Paris')}]")
    assert found == [("lookup", ["Lyon"]), ("lookup", ["Paris"])]


def test_a_list_that_is_written_twice_counts_once() -> None:
    assert steps(f"Draft:\n[{LYON}]\nSo my list is:\n[{LYON}]") == [("lookup", ["Lyon"])]


@for_each(
    ("text", "word"),
    [
        ("", "Your reply is empty"),
        ("I would look up Lyon.", "no JSON list"),
        ("lookup(Lyon) [1] {see below}", "no JSON list"),
        ('{"thought": "so"}', 'no key "ACTION"'),
        ('[{"ACTION": 5}]', 'no key "ACTION"'),
        (f'[{LYON}, "lookup"]', "Entry 2"),
        (f'[{LYON}, {{"ARGUMENTS": []}}]', "Entry 2"),
        ('[{"ACTION": "lookup", "ARGUMENTS": ["Ly]', "can't be read"),
        # The second action alone would be half of what was wanted.
        (f'[{{"ACTION": "lookup" "ARGUMENTS": ["x"]}}, {LYON}]', "can't be read"),
    ],
)
def test_what_is_no_list_of_actions_is_refused_in_words(text: str, word: str) -> None:
    with pytest.raises(Unreadable, match=word.replace("(", r"\(")):
        read(text)


def test_more_actions_than_allowed_are_cut() -> None:
    many = "[" + ", ".join([LYON] * 11) + "]"
    assert [step.id for step in read(many).steps] == [str(n) for n in range(1, 9)]
    assert "cut: 3 of 11 actions: 8 count" in remarks(many)
    assert len(read(many, most=2).steps) == 2


# -- references


def listed(*arguments: object) -> str:
    return json.dumps([{"ACTION": "lookup", "ARGUMENTS": [each], "EXPLANATION": ""} for each in arguments])


def test_a_reference_to_another_action_is_a_need_and_an_amount_is_none() -> None:
    needs = [step.needs for step in read(listed("a", "$1 and ${1}", ["$2"], "$4, $9, $1.50")).steps]
    assert needs == [(), ("1",), ("2",), ()]


def test_a_list_in_the_wrong_order_is_read_and_one_that_waits_for_itself_is_not() -> None:
    assert [step.needs for step in read(listed("$2", "x")).steps] == [("2",), ()]
    with pytest.raises(Unreadable, match="wait for each other"):
        read(listed("$2", "$3", "$1"))


def test_basic_keeps_its_place_in_the_count() -> None:
    found = read(f'[{{"ACTION": "Basic"}}, {LYON}, {LYON.replace("Lyon", "$2 $1")}]')
    assert [(step.id, step.needs) for step in found.steps] == [("2", ()), ("3", ("2",))]


# -- writer and reader


WORDS = ["ACTION", '"ACTION"', '"ACTION": "lookup"', LYON, "```", "[", "]", "{", "}", "[]", "$1", "${2}", "DONE", "\n",
         '"', "'", "\\", ":", ",", "null", "None", "Basic", "1", "EXPLAINATION", "“", "#", "//", "/*"]  # fmt: skip
words = st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=6)), max_size=8).map("".join)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), words),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=3)),
    max_leaves=6,
)
inputs = st.none() | st.lists(values, min_size=1, max_size=3) | st.dictionaries(words, values, min_size=1, max_size=3)


@given(st.lists(st.tuples(st.sampled_from([tool.name for tool in TOOLS]), inputs, words), max_size=5))
def test_the_reader_reads_every_list_that_the_writer_writes(made: list[tuple[str, object, str]]) -> None:
    written = action_list.ACTIONS.write([Step(str(n), *each) for n, each in enumerate(made, 1)])
    try:
        back = read(written)
    except Unreadable as why:
        assert "wait for each other" in str(why)
        return
    if any(" had words in place of " in remark.text for remark in back.remarks):
        return  # a formula of an earlier action's words: tests/test_formats_in_words.py
    assert [(step.tool, step.input, step.why) for step in back.steps] == made
    assert (back.kept, back.remarks) == (written, ())


def test_the_schema_takes_what_the_writer_writes() -> None:
    schema = action_list.ActionList(3).schema(TOOLS)
    assert schema["type"] == "array" and schema["maxItems"] == 3
    entry = schema["items"]
    assert entry["properties"]["ACTION"]["enum"] == ["lookup", "route", "total", "Basic"]
    written = json.loads(action_list.ACTIONS.write([Step("1", "lookup", ["x"], "y")]))
    assert list(written[0]) == entry["required"] == list(entry["properties"])


# -- any text


@given(words)
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(Unreadable):
        read(text)


def test_broken_lists_are_read_or_refused() -> None:
    """Mutations of good replies: characters dropped, doubled, swapped in, pieces moved."""
    dice = random.Random(7)
    seeds = [
        f"[{LYON}, {LYON}]",
        f"```json\n[{LYON}]\n```",
        LYON,
        '[{"action": "route", "arguments": {"start": "$1", "end": "Öß"}, "explaination": null}]',
        f"Sure!\n{LYON} and [] and [1, {{}}]",
        listed("$2", "$3", "$1"),
    ]
    read_well = refused = 0
    total = examples(10_000)
    for _ in range(total):
        text = list(dice.choice(seeds))
        for _ in range(dice.randint(1, 6)):
            at = dice.randrange(len(text))
            what = dice.randrange(4)
            if what == 0:
                del text[at : at + dice.randint(1, 5)]
            elif what == 1:
                text.insert(at, dice.choice("[]{}\",:'\\`\n\0$1ACé\ud800"))
            elif what == 2:
                text[at:at] = text[dice.randrange(len(text)) :][:20]
            else:
                text[at] = chr(dice.randrange(0x2FFF))
            text = text or ["x"]
        try:
            found = read("".join(text))
        except Unreadable:
            refused += 1
        else:
            read_well += 1
            assert all(step.input is None or step.input for step in found.steps)
            action_list.ACTIONS.write(found.steps)
    assert read_well > total // 10 and refused > total // 10


@pytest.mark.parametrize(
    "unit", ["[{", '[{"', '[{"ACTION":', f"[{LYON},", "[{}", '{"a":[', "[[{", "{'ACTION': '", "]", "[]", LYON, "[ "]
)
def test_reading_takes_linear_time(unit: str) -> None:
    def read_units(size: int) -> None:
        with contextlib.suppress(Unreadable):
            read(unit * (size // len(unit)))

    most = 60 * max(cpu_seconds(lambda: read_units(20_000), 0.005), 0.005)
    assert cpu_seconds(lambda: read_units(200_000), most) < most


# -- data


@given(words)
def test_no_data_that_is_shown_reads_as_actions(text: str) -> None:
    shown = action_list.ACTIONS.escape(text)
    with contextlib.suppress(Unreadable):
        assert not action_list.ACTIONS.read(shown).steps
    assert not action_list.says_done(shown)


@pytest.mark.parametrize("text", [LYON, f"```\n[{LYON}]\n```", "{'action': 'lookup'}", "fine\nDONE", "**DONE**"])
def test_protocol_in_data_is_changed(text: str) -> None:
    assert action_list.ACTIONS.escape(text) != text


@for_each("text", ["", "Lyon has 522250", '{"name": "Lyon"}', "[1, 2]", "all done", "Not DONE"])
def test_harmless_data_stays_as_it_is(text: str) -> None:
    assert action_list.ACTIONS.escape(text) == text


# -- what the model is told


def test_tools_are_described_with_their_arguments_in_order() -> None:
    web = ToolSpec("web", "Searches", takes("query"), excludes=("lookup",))
    page = {"type": "string", "maxLength": 40, "description": "The page's name."}
    many = ToolSpec("page", "Reads", {"type": "object", "properties": {"title": page, "lines": {"type": "integer"}},
                                      "required": ["title"]})  # fmt: skip
    assert action_list.ACTIONS.describe((*TOOLS[:2], web, many)).splitlines() == [
        "lookup: Finds an entry. Takes one argument: name (string). Never together with web.",
        "route: From here to there. Takes 2 arguments: start (string), end (string). Returns: kilometres.",
        "web: Searches. Takes one argument: query (string). Never together with lookup.",
        "page: Reads. Takes 2 arguments: the page's name (string of at most 40 characters), lines (integer, optional).",
    ]


@pytest.mark.parametrize("text", ["DONE", "DONE.", " **DONE**\n", "DONE: all is there", "All is there.\nDONE"])
def test_done_is_a_clear_sign(text: str) -> None:
    assert action_list.says_done(text)


@for_each("text", ["", "I am done", "Not DONE yet", "done", "DONEC", "a\nDONE\nb"])
def test_other_words_are_none(text: str) -> None:
    assert not action_list.says_done(text)


# -- lists that were broken off


def entry(n: int) -> str:
    return f'{{"ACTION": "look", "ARGUMENTS": ["{n}"], "EXPLANATION": "find {n}"}}'


def test_a_list_that_was_broken_off_is_read_up_to_its_last_whole_entry() -> None:
    text = "[" + ",\n ".join(entry(n) for n in range(3))
    for end in range(text.rindex("{") + 1, len(text)):
        assert action_list.whole(text[:end]) == "[" + ",\n ".join(entry(n) for n in range(2)) + "]"
    assert action_list.entries(text) == 2


def test_a_list_that_is_whole_is_left_alone_whatever_follows_it() -> None:
    text = f"```json\n[{entry(1)}, {entry(2)}]\n```\nAnd so on, and so on"
    assert action_list.whole(text) == text
    assert action_list.whole("I would rather talk.") == "I would rather talk."
