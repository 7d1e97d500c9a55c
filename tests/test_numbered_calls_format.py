"""Plans of numbered calls, and the joiner's decisions: read whole or in pieces, and never read out of data."""

from __future__ import annotations

import random
import re
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from conftest import LONG, examples, for_each, some_of
from patience import cpu_seconds
from plait.core import Plan, Step, ToolSpec
from plait.loops.compiler.format import NumberedCalls
from plait.loops.compiler.joiner import Joiner, Verdict
from plait.loops.format import Unreadable
from plait.loops.references import RESULTS

FORM, JOINER = NumberedCalls(), Joiner()


def spec(name: str, *, required: int | None = None, **parameters: str) -> ToolSpec:
    return ToolSpec(
        name,
        f"Does {name}.",
        {
            "type": "object",
            "properties": {key: {"type": kind} for key, kind in parameters.items()},
            "required": list(parameters)[:required],
        },
    )


TOOLS = (
    spec("lookup", key="string"),
    spec("calculator", expression="string"),
    spec("send", to="string", text="string", copies="integer", required=2),
    spec("total", numbers="array"),
    spec("now"),
)


def read(text: str) -> list[tuple[str, str, object]]:
    plan, _ = FORM.read(text, tools=TOOLS)
    return [(step.id, step.tool, step.input) for step in plan.steps]


def first(text: str) -> object:
    return read(text)[0][2]


# ---- what is read


def test_the_form_of_the_paper() -> None:
    plan, remarks = FORM.read(
        'Thought: Both, then the difference.\n1. lookup("Lyon")\n2. lookup("Nice")\n'
        'Thought: Subtract.\n3. calculator("$1 - ${2}")\n4. join()',
        tools=TOOLS,
    )
    assert plan.steps == (
        Step("1", "lookup", "Lyon", "Both, then the difference."),
        Step("2", "lookup", "Nice"),
        Step("3", "calculator", "$1 - ${2}", "Subtract.", ("1", "2")),
    )
    assert remarks == ()


@for_each(
    ("written", "given"),
    [
        ("lookup('Lyon')", "Lyon"),
        ("lookup(“Lyon”)", "Lyon"),
        ("lookup(Lyon)", "Lyon"),
        ("lookup(Lyon, France)", "Lyon, France"),
        ('lookup(key="Lyon")', {"key": "Lyon"}),
        ("lookup(key=Lyon)", "Lyon"),
        ('lookup(city="Lyon")', "Lyon"),
        ('lookup("it\'s")', "it's"),
        ("lookup('it's')", "it's"),
        ("lookup(Ana's age)", "Ana's age"),
        ('lookup("the "big" one")', 'the "big" one'),
        ('lookup("""Lyon""")', "Lyon"),
        ('lookup("a) b ( [c")', "a) b ( [c"),
        ('lookup("a\\"b")', 'a"b'),
        ("lookup($1)", "$1"),
        ("lookup(${1})", "${1}"),
        ("lookup()", None),
        ("lookup(12)", 12),
        ("lookup(None)", {"key": None}),
        ("calculator($1 - $2)", "$1 - $2"),
        ("calculator(max(1, 2) * (3 + 4))", "max(1, 2) * (3 + 4)"),
        ("calculator(1,200 * 3)", "1,200 * 3"),
        ('send("a", "b")', {"to": "a", "text": "b"}),
        ('send("a", text="b", copies=2)', {"to": "a", "text": "b", "copies": 2}),
        ('send(\n  "a",\n  text="b",\n)', {"to": "a", "text": "b"}),
        ('send("a,b", $1)', {"to": "a,b", "text": "$1"}),
        ('send("a", true)', {"to": "a", "text": True}),
        ('send({"to": "a", "text": "b"})', {"to": "a", "text": "b"}),
        ('send("a", "b", 2, 3)', ["a", "b", 2, 3]),
        ("total([1, $1, {'a': None}])", {"numbers": [1, "$1", {"a": None}]}),
        ("total(1, $1)", {"numbers": [1, "$1"]}),
        ("now()", None),
        ('unknown("a", 2)', ["a", 2]),
        ("LOOKUP('Lyon')", "Lyon"),
        ("functions.lookup('Lyon')", "Lyon"),
        ("`lookup`('Lyon')", "Lyon"),
    ],
)
def test_arguments(written: str, given: object) -> None:
    assert first(f"1. {written}\n2. join()") == given


@for_each("head", ["1. ", "1) ", "1: ", "$1 = ", "${1}: ", "Step 1: ", "- 1. ", "**1.** ", "  1.", "[1] = "])
def test_ways_to_number(head: str) -> None:
    assert read(f'{head}lookup("Lyon")') == [("1", "lookup", "Lyon")]


def test_several_calls_on_a_line_and_calls_without_a_number() -> None:
    assert [step[0] for step in read('1. lookup("a"), 2. lookup("b"); 3. join()')] == ["1", "2"]
    assert read('```\nlookup("a")\nAction: lookup("b")\n```') == [("1", "lookup", "a"), ("2", "lookup", "b")]


def test_a_call_that_is_never_closed_does_not_swallow_the_next_one() -> None:
    half = ('1. lookup("Lyon)', '1. lookup("Lyon"', "1. lookup(Lyon", "1. calculator((1 + 2", '1. send("a", "b')
    for broken in half:  # what it should have held is not known: it is not made
        plan, remarks = FORM.read(f'{broken}\n2. lookup("Nice")', tools=TOOLS)
        assert [step.id for step in plan.steps] == ["2"]
        assert "never closed" in remarks[-1].text


def test_half_a_call_at_the_end_is_no_call() -> None:
    for end in ('2. lookup("Ni', "2. calculator((1 + 2) * ", '2. lookup("Nice"', "2. lookup(Nice", "2. look", "2."):
        assert read(f'1. lookup("Lyon")\n{end}') == [("1", "lookup", "Lyon")], end


def test_what_follows_join_is_cut() -> None:
    plan, remarks = FORM.read('1. lookup("a")\n2. join()\nObservation: 5\n3. lookup("b")', tools=TOOLS)
    assert len(plan.steps) == 1
    assert [remark.kind for remark in remarks] == ["cut"]
    reader = FORM.reader(TOOLS)
    reader.feed('1. lookup("a")\n2. join() Then more.')
    reader.close()
    assert reader.kept_text == '1. lookup("a")\n2. join()'


@pytest.mark.parametrize(
    "text", ["", "Lyon has 5 people.", "1. Lyon\n2. Nice", "Thought: (none)", "I call lookup(Lyon)."]
)
def test_no_plan_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable, match="no call"):
        FORM.read(text, tools=TOOLS)


@pytest.mark.parametrize("text", ["join()", "Thought: none is needed.\n1. join()", "join", "**1. join()**"])
def test_a_plan_without_calls(text: str) -> None:
    assert FORM.read(text, tools=TOOLS)[0] == Plan()


def test_an_amount_of_money_is_no_reference() -> None:
    plan, _ = FORM.read('1. calculator("$1,200 + $2.50")', tools=TOOLS)
    assert plan.steps[0].needs == ()


# ---- reader and writer

WORDS = [
    *(
        "1. ",
        "2. lookup(",
        "join()",
        "3. join()",
        "lookup(",
        ")",
        "(",
        "[",
        "]",
        "{",
        "}",
        '"',
        "'",
        "“",
        "”",
        ",",
        "=",
    ),
    *(
        "\n",
        "\r\n",
        " ",
        "\t",
        "\\",
        "\\n",
        "$1",
        "${2}",
        "$10",
        "Thought:",
        "Finish:",
        "Replan: ",
        "Action: Finish(x)",
    ),
    *(
        "Finish[",
        "Final Answer:",
        "Result 2: ",
        "Replan",
        "key=",
        "send(",
        "None",
        "true",
        "1.5",
        "-",
        "**",
        "`",
        "```\n",
    ),
    *("Step 4: ", "$5 = ", "#", "Lyon", "it's", "ſ", "：", "Result of $2:", "now()", '""', ")\n", "zzz("),
]
words = st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=6)), max_size=9).map("".join)
scalars = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), words)
values = st.recursive(
    st.none() | scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
inputs = st.one_of(
    st.tuples(st.sampled_from(["lookup", "calculator", "total"]), st.none() | scalars),
    st.tuples(st.sampled_from(["lookup", "zzz"]), st.fixed_dictionaries({"key": values})),
    st.tuples(st.just("now"), st.none()),
    st.tuples(
        st.just("send"),
        st.fixed_dictionaries({"to": values}, optional={"text": values, "copies": values, "ünter_1": values}),
    ),
)
steps = st.builds(
    lambda given, why: Step("0", given[0], given[1], " ".join(why.split()), RESULTS.find_ids(given[1])), inputs, words
)
plans = st.lists(steps, max_size=5).map(
    lambda made: Plan(tuple(Step(str(n), s.tool, s.input, s.why, s.needs) for n, s in enumerate(made, 1)))
)


@given(plans)
def test_every_plan_that_is_written_reads_back(plan: Plan) -> None:
    # An expression that calls a tool is refused: the tool would not be called.
    assume(not any(step.tool == "calculator" and re.search(r"\w\(", str(step.input)) for step in plan.steps))
    text = FORM.write(plan)
    back, remarks = FORM.read(text, tools=TOOLS)
    assert back == plan, text
    assert remarks == ()


@for_each(
    "step",
    [
        Step("1", "lookup", ["a"]),
        Step("1", "lookup", {}),
        Step("1", "lookup", {"a b": 1}),
        Step("1", "lookup", float("nan")),
        Step("1", "join", "a"),
        Step("1", "Log In", "a"),
        Step("E1", "lookup", "a"),
        Step("0", "lookup", "a"),
    ],
)
def test_what_can_not_be_written(step: Step) -> None:
    with pytest.raises(ValueError, match=r"can't be written|no number"):
        FORM.write(Plan((step,)))
    assert FORM.line(step)  # for a prompt there is always something


def in_pieces(text: str, cuts: list[int]) -> tuple[object, ...]:
    reader = FORM.reader(TOOLS)
    calls = []
    start = 0
    for end in [*sorted(cuts), len(text)]:
        calls += reader.feed(text[start:end])
        start = end
    calls += reader.close()
    return calls, reader.ended, reader.remarks, reader.kept_text, reader.thought


plan_texts = (
    words
    | plans.map(FORM.write)
    | st.tuples(plans.map(FORM.write), words, st.integers(0, 200)).map(
        lambda parts: parts[0][: parts[2]] + parts[1] + parts[0][parts[2] :]
    )
)


usual_lines = st.tuples(
    st.sampled_from(["1. ", "2. ", "10. ", "02. ", "3.", "1) ", "٣. ", "  4. ", "Step 5. ", "1234567. ", ""]),
    st.sampled_from(
        ["lookup", "LOOKUP", "Lookup", "calculator", "now", "send", "join", "__lookup", "x.lookup", "nope"]
    ),
    st.sampled_from(['("', '( "', "('", "(", '(key="', '("""', ' ("']),
    st.text("ab $1{}(),.:;\\'“”\"\t#E-", max_size=8) | st.sampled_from(["$1", "${2} - $1", "x\ty", "", "a\u2028b"]),
    st.sampled_from(['")', '" )', '")  ', '"), lookup("b")', '") # so', '"', '"),', '").', ""]),
    st.sampled_from(["\n", "\n", "\n\n", "\r\n", " ", ""]),
).map("".join)


@given(st.lists(usual_lines | st.just("Thought: next.\n"), max_size=6).map("".join))
def test_usual_lines_read_the_same_one_character_at_a_time(text: str) -> None:
    whole, slow = FORM.reader(TOOLS), FORM.reader(TOOLS)
    slowly = [call for character in text for call in slow.feed(character)]
    assert [*whole.feed(text), *whole.close()] == [*slowly, *slow.close()]
    assert (whole.ended, whole.remarks, whole.kept_text, whole.thought) == (
        slow.ended,
        slow.remarks,
        slow.kept_text,
        slow.thought,
    )
    assert whole.written() == slow.written()


@given(plan_texts, st.data())
def test_however_a_plan_is_cut_the_same_calls_are_read(text: str, data: st.DataObject) -> None:
    whole = in_pieces(text, [])
    assert in_pieces(text, data.draw(st.lists(st.integers(0, len(text)), max_size=8))) == whole
    assert in_pieces(text, list(range(len(text)))) == whole


@given(plans.filter(lambda plan: bool(plan.steps)))
def test_a_call_is_given_with_the_end_of_its_line(plan: Plan) -> None:
    reader = FORM.reader(TOOLS)
    for step in plan.steps:
        assert reader.feed(FORM.call(step)) == []
        assert [call.step.id for call in reader.feed("\n")] == [step.id]


@given(plan_texts, st.data())
def test_a_splitter_gives_the_same_for_any_chunking(text: str, data: st.DataObject) -> None:
    def by_kind(splitter: object, cuts: list[int]) -> dict[str, str]:
        pieces, start = [], 0
        for end in [*sorted(cuts), len(text)]:
            pieces += splitter.feed(text[start:end])  # type: ignore[attr-defined]
            start = end
        pieces += splitter.close()  # type: ignore[attr-defined]
        return {
            kind: "".join(each.text for each in pieces if each.kind == kind) for kind in ("thought", "action", "answer")
        }

    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=8))
    for form in (FORM, JOINER):
        assert by_kind(form.stream(), list(range(len(text)))) == by_kind(form.stream(), [])
        assert by_kind(form.stream(), cuts) == by_kind(form.stream(), [])


def test_a_splitter_tells_calls_and_answers_from_thoughts() -> None:
    splitter = FORM.stream()
    pieces = [
        *splitter.feed('Thought: Go.\n1. lookup("a")\n2. lo'),
        *splitter.feed('okup("b")\nThought: On'),
        *splitter.close(),
    ]
    assert [(each.kind, each.text.strip()) for each in pieces] == [
        ("thought", "Go."),
        ("action", '1. lookup("a")'),
        ("action", '2. lookup("b")'),
        ("thought", "On"),
    ]
    splitter = JOINER.stream()
    pieces = [*splitter.feed("Thought: I see.\nFin"), *splitter.feed("ish: 5\nand 6"), *splitter.close()]
    assert [(each.kind, each.text) for each in pieces] == [
        ("thought", "I see."),
        ("answer", "5\nand 6"),
    ]
    splitter = JOINER.stream()
    parts = ("Finish: Ly", "on is", " in France\nand", " Lille, too", "\nThou", "gh it rains")
    fed = [splitter.feed(part) for part in parts]
    said = ["", "Lyon is", " in France", "\nand Lille, too", "", "\nThough it rains"]
    assert ["".join(each.text for each in pieces) for pieces in fed] == said


# ---- the joiner


@for_each(
    ("text", "kind", "said"),
    [
        ("Thought: so.\nFinish: 5 m", "finish", "5 m"),
        ("Thought: so.\nReplan: the age of Ana", "replan", "the age of Ana"),
        ("Finish: a\nb", "finish", "a\nb"),
        ("Action: Finish(5 (m))", "finish", "5 (m)"),
        ("**Finish**[5]", "finish", "5"),
        ('Action: Replan("the age")', "replan", "the age"),
        ("Final Answer: 5", "finish", "5"),
        ("Answer: 5", "finish", "5"),
        ("5 m", "finish", "5 m"),
        ("Replan: none\nFinish: 5", "finish", "5"),
        ("Finish: N/A\nReplan: the age", "replan", "the age"),
        ("Finish: 5\nReplan: none", "finish", "5"),
        ("Finish: no", "finish", "no"),
        ("Finish: Replan: the age", "replan", "the age"),
        ("Thought: the age is missing\nReplan", "replan", "the age is missing"),
    ],
)
def test_the_joiners_decisions(text: str, kind: str, said: str) -> None:
    verdict = JOINER.read(text)
    assert (verdict.kind, verdict.text) == (kind, said)
    canonical = text.startswith(("Thought: so.", "Finish: a", "Finish: no"))
    assert (verdict.remarks == ()) == (canonical or text.startswith(("Replan: none", "Finish: N")))


@for_each("text", ["", " \n", "Thought: it is 5", "Replan: none", "Finish:", "Action: lookup(x)"])
def test_a_reply_that_decides_nothing_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable, match="Finish"):
        JOINER.read(text)


@given(st.sampled_from(["finish", "replan"]), words.map(str.strip), words.map(str.strip))
def test_every_decision_that_is_written_reads_back(kind: str, text: str, thought: str) -> None:
    try:
        written = JOINER.write(Verdict(kind, text, thought))  # type: ignore[arg-type]
    except ValueError:
        assert len(text) < 20
        return
    assert JOINER.read(written) == Verdict(kind, text, thought), written  # type: ignore[arg-type]


# ---- data


@given(words)
def test_escaped_data_holds_no_call_and_no_decision(data: str) -> None:
    escaped = FORM.escape(data, TOOLS)
    for tools in (TOOLS, ()):
        with pytest.raises(Unreadable):
            FORM.read(escaped, tools=tools)
    if escaped.strip():
        verdict = JOINER.read(escaped)
        assert verdict.remarks[-1].text == "text without a label was taken for the answer"
    assert FORM.escape(escaped, TOOLS) == escaped


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="([:：<\n")))
def test_plain_data_is_left_as_it_is(data: str) -> None:
    if data.strip(" \t>*_#`.,;$-").lower() not in ("join", "finish", "replan"):
        assert FORM.escape(data) == data


# ---- whatever comes


def mutated(chance: random.Random, text: str) -> str:
    for _ in range(chance.randint(1, 6)):
        at, length = chance.randrange(len(text) + 1), chance.randrange(6)
        text = text[:at] + chance.choice([chance.choice(WORDS), text[at : at + length] * 2, ""]) + text[at + length :]
    return text


def test_random_and_mutated_replies_raise_nothing_but_unreadable() -> None:
    """20,000 plans and as many decisions in the campaign, 200 in the tests."""
    chance = random.Random(20261121)
    plan = 'Thought: both\n1. lookup("Lyon")\n2. send(to="a", text=$1)\n3. calculator($1 - (2 * $2))\n4. join()\n'
    calls = decisions = 0
    total = examples(20_000)
    for count in range(total):
        if count % 4 == 0:
            text = "".join(chance.choices(WORDS, k=chance.randint(0, 25)))
        elif count % 40 == 1:
            text = "".join(chr(chance.randrange(0xFFFF)) for _ in range(40))  # surrogates as well
        else:
            text = mutated(chance, plan if count % 2 else "Thought: I see\nFinish: 5\nReplan: none")
        try:
            read, _ = FORM.read(text, tools=TOOLS if count % 3 else ())
            calls += len(read.steps)
            assert all(1 <= len(step.id) <= 6 and step.tool for step in read.steps)
            assert FORM.show(read)
        except Unreadable as error:
            assert len(str(error)) > 40
        try:
            decisions += bool(JOINER.read(text).text)
        except Unreadable as error:
            assert len(str(error)) > 40
    assert calls > total // 2 and decisions > total // 2  # they refuse not everything


HOSTILE = {
    "openings": "1. lookup(\n",
    "openings on a line": "1. lookup(",
    "unknown openings": "1. zzz(\n",
    "calls": "1. lookup()\n",
    "quotes": '"',
    "single quotes": "'",
    "quotes and blanks": '" ' + " " * 40,
    "brackets": "[",
    "parentheses": "(",
    "commas": ",",
    "escaped quotes": '\\"',
    "backslashes": "\\",
    "line breaks": "\n",
    "blanks": " \t",
    "decoration": "***```---",
    "digits": "1",
    "references": "$1",
    "labels": "Thought: ",
    "decisions": "Finish: ",
    "lines of decisions": "Replan:\n",
    "keywords": "key=",
    "true calls": '1. lookup("a")',
    "joins": "join",
}


@for_each(("unit", "head"), some_of(product(HOSTILE.values(), ["", "1. lookup(", '1. send("a", ', '1. lookup("'])))
def test_hostile_text_takes_no_more_than_linear_time(unit: str, head: str) -> None:
    """A long text is read in lines, escaped and split within two seconds of CPU (an eighth of a megabyte: a tenth)."""
    text = head + unit * (LONG // len(unit))

    def read_all() -> None:
        reader = FORM.reader(TOOLS)
        for line in text.splitlines(keepends=True):
            reader.feed(line)
        reader.close()
        FORM.escape(text)
        for form in (FORM, JOINER):
            splitter = form.stream()
            splitter.feed(text)
            splitter.close()
        try:
            JOINER.read(text)
        except Unreadable as error:
            assert len(str(error)) < 1000

    assert cpu_seconds(read_all, 2.0) < 2.0


# ---- prompt and grammar


def test_tools_are_told_with_their_parameters() -> None:
    tool = ToolSpec(
        "send",
        "Sends a text",
        {
            "type": "object",
            "properties": {"to": {"type": "string", "description": "who gets it"}, "copies": {"type": "integer"}},
            "required": ["to"],
        },
        returns="a receipt",
    )
    assert FORM.describe([tool]) == (
        "send(to: string, copies: integer (optional)): Sends a text. to: who gets it. Returns: a receipt."
    )


def test_the_grammar_has_a_rule_for_each_tool_and_names_every_rule_once() -> None:
    grammar = FORM.grammar(TOOLS)
    rules = [line.split(" ::=")[0] for line in grammar.splitlines()]
    assert len(rules) == len(set(rules))
    assert all(f'"{tool.name}(' in grammar for tool in TOOLS)
    assert FORM.grammar([]).startswith('root ::= id "join()"')
