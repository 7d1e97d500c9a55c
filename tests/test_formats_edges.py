"""Each way a model strays from its format, and what the reader makes of it."""

import pytest

from conftest import for_each
from plait.core import Call, ToolSpec
from plait.core.text import shorten
from plait.loops.format import Turn, Unreadable
from plait.loops.json.format import JsonTurn
from plait.loops.react.format import react_format

TOOLS = (
    ToolSpec(
        "search",
        "Looks a page up",
        {"properties": {"query": {"type": "string"}}, "required": ["query"]},
        returns="its first lines",
    ),
    ToolSpec(
        "weather",
        "The weather.",
        {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]},
    ),
    ToolSpec("today", "The date."),
)
FENCE = "```"
LYON = Call("search", "Lyon")


def kinds(turn: Turn) -> list[str]:
    return [remark.kind for remark in turn.remarks]


BLOBS = {
    "json fence": f'Action:\n{FENCE}json\n{{"action": "search", "action_input": "Lyon"}}\n{FENCE}',
    "plain fence": f'Action:\n{FENCE}\n{{"action": "search", "action_input": "Lyon"}}\n{FENCE}',
    "fence on the label's line": f'Action: {FENCE}json\n{{"action": "search", "action_input": "Lyon"}}\n{FENCE}',
    "no fence": 'Action:\n{"action": "search", "action_input": "Lyon"}',
    "inline": 'Action: {"action": "search", "action_input": "Lyon"}',
    "bold label": '**Action:** {"action": "search", "action_input": "Lyon"}',
    "lower-case label": 'action: {"action": "search", "action_input": "Lyon"}',
    "full-width colon": 'Action：{"action": "search", "action_input": "Lyon"}',
    "spread over lines": 'Action:\n{\n  "action": "search",\n  "action_input": "Lyon"\n}',
    "windows line ends": 'Action:\r\n```\r\n{"action": "search",\r\n"action_input": "Lyon"}\r\n```',
    "fence not closed": f'Action:\n{FENCE}json\n{{"action": "search", "action_input": "Lyon"}}\n',
}
REPAIRED_BLOBS = {
    "one-element list": 'Action: [{"action": "search", "action_input": "Lyon"}]',
    "curly quotes": "Action: {“action”: “search”, “action_input”: “Lyon”}",
    "trailing comma": 'Action: {"action": "search", "action_input": "Lyon",}',
    "single quotes": "Action: {'action': 'search', 'action_input': 'Lyon'}",
    "keys without quotes": 'Action: {action: "search", action_input: "Lyon"}',
    "comment": 'Action: {"action": "search", // the tool\n "action_input": "Lyon"}',
    "case of the tool": 'Action: {"action": "Search", "action_input": "Lyon"}',
    "other key for the input": 'Action: {"action": "search", "input": "Lyon"}',
    "other key for the tool": 'Action: {"tool": "search", "tool_input": "Lyon"}',
    "words before the object": 'Action: the call is {"action": "search", "action_input": "Lyon"}',
    "no label": f'{FENCE}json\n{{"action": "search", "action_input": "Lyon"}}\n{FENCE}',
    "label inside a line": 'So Action: {"action": "search", "action_input": "Lyon"}',
    "as lines": "Action: search\nAction Input: Lyon",
    "as a bracket": "Action: search[Lyon]",
}


@for_each("text", BLOBS.values())
def test_blob_takes_forms_that_need_no_repair(text):
    turn = react_format("blob").read("Thought: I look.\n" + text, 1, TOOLS)
    assert (turn.thought, turn.call, turn.remarks) == ("I look.", LYON, ())


@for_each("text", REPAIRED_BLOBS.values())
def test_blob_repairs_and_says_so(text):
    turn = react_format("blob").read("Thought: I look.\n" + text, 1, TOOLS)
    assert turn.call == LYON
    assert "repaired" in kinds(turn)
    assert turn.thought.startswith("I look.")


@for_each(
    ("given", "value"),
    [
        ('"x"', "x"), ("12", 12), ("-1.5e3", -1500.0), ("null", None), ("true", True), ("[1, [2]]", [1, [2]]),
        ('{"city": "Lyon", "days": 2}', {"city": "Lyon", "days": 2}), ('""', ""), ('"a\\nb {\\"c\\"}"', 'a\nb {"c"}'),
        ("True", True), ("None", None), ("'it's'", "it's"), ('"two\nlines"', "two\nlines"), ('"C:\\dir"', "C:\\dir"),
        ('"\\ud83d\\ude00 \\ud83d"', "😀 �"), ("123456789012345678901234567890", 123456789012345678901234567890),
    ],
)  # fmt: skip
def test_blob_input_may_be_any_json_value(given, value):
    turn = react_format("blob").read(f'Action: {{"action": "search", "action_input": {given}}}', 1, TOOLS)
    assert turn.call == Call("search", value)


def test_blob_missing_input_is_none():
    turn = react_format("blob").read('Action: {"action": "today"}', 1, TOOLS)
    assert turn.call == Call("today", None)
    assert "input is missing" in turn.remarks[0].text


def test_blob_keys_beside_the_name_are_the_input():
    turn = react_format("blob").read('Action: {"action": "weather", "city": "Lyon", "days": 2}', 1, TOOLS)
    assert turn.call == Call("weather", {"city": "Lyon", "days": 2})


def test_blob_final_answer_as_an_action():
    turn = react_format("blob").read(
        'Thought: t\nAction: {"action": "Final Answer", "action_input": {"km": 3}}', 1, TOOLS
    )
    assert (turn.answered, turn.answer, turn.call) == (True, {"km": 3}, None)


def two(first: str, second: str) -> str:
    return f"Thought: a\n{first}\nThought: b\n{second}"


@pytest.mark.parametrize(
    ("format", "first", "second"),
    [
        (react_format("blob"), BLOBS["json fence"], 'Action: {"action": "today"}'),
        (react_format("lines"), "Action: search\nAction Input: Lyon", "Action: today"),
        (react_format("numbered"), "Action 1: search[Lyon]", "Action 2: today[]"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_of_several_actions_the_first_counts_and_the_rest_is_cut(format, first, second):
    turn = format.read(two(first, second), 1, TOOLS)
    assert (turn.thought, turn.call, turn.kept) == ("a", LYON, f"Thought: a\n{first}")
    assert kinds(turn) == ["cut"]


@for_each("format", [react_format("blob"), react_format("lines"), react_format("numbered")])
@for_each("order", ["action first", "answer first"])
def test_an_action_wins_over_a_final_answer(format, order):
    action = format.write(Turn("", LYON), 1)
    parts = [action, "Final Answer: 12"]
    text = "Thought: a\n" + "\n".join(parts if order == "action first" else reversed(parts))
    turn = format.read(text, 1, TOOLS)
    assert (turn.call, turn.answered, turn.thought) == (LYON, False, "a")
    assert "Final Answer" not in turn.kept
    assert "cut" in kinds(turn)


def test_an_action_that_stands_in_an_answer_is_a_part_of_it():
    turn = react_format("blob").read("Final Answer: Three steps.\nAction: eat less\nReaction: none", 1, TOOLS)
    assert turn.answer == "Three steps.\nAction: eat less\nReaction: none"


def test_an_answer_without_a_thought_and_several_answers():
    assert react_format("blob").read("Final Answer: 12", 1).answer == "12"
    turn = react_format("blob").read("Thought: a\nFinal Answer: 11\nFinal Answer: 12 or\n13", 1)
    assert (turn.answer, turn.thought) == ("12 or\n13", "a")
    assert kinds(turn) == ["repaired"]


def test_a_missing_thought_label_serves_actions_and_answers_alike():
    for format in (react_format("blob"), react_format("lines"), react_format("numbered")):
        action = format.read("I look.\n" + format.write(Turn("", LYON), 1), 1, TOOLS)
        answer = format.read("I know.\nFinal Answer: 12", 1, TOOLS)
        assert (action.thought, action.call) == ("I look.", LYON)
        assert (answer.thought, answer.answer) == ("I know.", "12")
        assert "repaired" in kinds(action) and "repaired" in kinds(answer)


@for_each("label", ["Observation:", "\nObservation:", "**Observation:**", "observation 1:"])
@for_each("format", [react_format("blob"), react_format("lines"), react_format("numbered")])
def test_what_the_model_observes_itself_is_cut(format, label):
    action = format.write(Turn("I look.", LYON), 1)
    own = f"{action}\n{label} Lyon has 9 people.\nThought: good\nFinal Answer: 9"
    turn = format.read(own, 1, TOOLS)
    assert (turn.call, turn.answered, turn.kept) == (LYON, False, action)
    assert turn.remarks[0].kind == "cut" and "observation" in turn.remarks[0].text
    with pytest.raises(Unreadable, match="only from tools"):
        format.read(f"Thought: hm\n{label} Lyon has 9 people.\nFinal Answer: 9", 1, TOOLS)


def test_backticks_in_thoughts_and_markup_left_over():
    thought = f"I could run `x` or\n{FENCE}python\nx = 1\n{FENCE}\nbut I look it up."
    turn = react_format("blob").read(f"Thought: {thought}\n{BLOBS['json fence']}", 1, TOOLS)
    assert (turn.thought, turn.call, turn.remarks) == (thought, LYON, ())
    turn = react_format("blob").read("Thought: a\nFinal Answer: 12\n</code", 1, TOOLS)
    assert (turn.answer, kinds(turn)) == ("12", ["repaired"])
    turn = react_format("blob").read(f"{FENCE}\nThought: a\nFinal Answer: 12\n{FENCE}", 1, TOOLS)
    assert turn.answer == "12"
    code = f"Run\n{FENCE}\nx = 1\n{FENCE}"
    assert react_format("blob").read(f"Final Answer: {code}", 1).answer == code


@for_each(
    ("text", "says"),
    [
        ("", "empty"),
        ("I don't know.", "neither an action nor a final answer"),
        ("Thought: I'll use the tool.", "neither an action nor a final answer"),
        ("Action:\n$JSON_BLOB", None),
        ("Action:", "nothing that names a tool"),
        ('Action: {"action": "search", "action_input": "Ly', "a string is not closed"),
        ('Action: {"action": "search", "action_input": "Lyon"', "it ends before its last bracket"),
        (f'Action:\n{FENCE}\n{{"action": "search", "action_input": "Lyon"\n{FENCE}', "it ends before its last bracket"),
        ("Action: search[Lyon", "The input of search is never closed: end it with `]`"),
        ('Action: {"action": "search" "action_input": 1}', "line 1, column 22"),
        ("Final Answer:   ", "empty"),
    ],
)
def test_what_can_not_be_read_is_said_with_the_format(text, says):
    if says is None:
        assert react_format("blob").read(text, 1, TOOLS).call == Call("$JSON_BLOB")  # no such tool: the runtime says so
        return
    with pytest.raises(Unreadable, match=says) as caught:
        react_format("blob").read(text, 1, TOOLS)
    assert '"action_input"' in str(caught.value) or "Final Answer" in str(caught.value)


@for_each(
    ("text", "value", "remarks"),
    [
        ("Action: search\nAction Input: Lyon", "Lyon", 0),
        ('Action: search\nAction Input: "Lyon"', "Lyon", 0),
        ('Action: search\nAction Input: {"query": "Lyon"}', {"query": "Lyon"}, 0),
        ("Action: search\nAction Input: {'query': 'Lyon',}", {"query": "Lyon"}, 2),
        ("Action: search\nAction Input: [1, 2]", [1, 2], 0),
        ("Action: search\nAction Input: [1] is a note", "[1] is a note", 0),
        ("Action: search\nAction Input: 69001", "69001", 0),
        ("Action: search\nAction Input: null", "null", 0),
        ("Action: search\nAction Input: several\nlines", "several\nlines", 0),
        ("Action: search\nAction Input:\n```json\n{\"query\": 1}\n```", {"query": 1}, 1),
        ("Action: search\nAction Input:", None, 0),
        ("Action: search", None, 0),
        ("Action: `search`\nAction Input: Lyon", "Lyon", 1),
        ("Action: SEARCH\nAction Input: Lyon", "Lyon", 1),
        ("Action: search, Action Input: Lyon", "Lyon", 1),
        ("Action: search\nInput: Lyon", "Lyon", 1),
        ("Action: search[Lyon]", "Lyon", 1),
        ('Action: {"action": "search", "action_input": "Lyon"}', "Lyon", 1),
    ],
)  # fmt: skip
def test_lines(text, value, remarks):
    turn = react_format("lines").read(f"Thought: I look.\n{text}", 1, TOOLS)
    assert (turn.thought, turn.call) == ("I look.", Call("search", value))
    assert len(turn.remarks) == remarks


@for_each(
    ("text", "call", "remarks"),
    [
        ("Thought 2: t\nAction 2: Search[Lyon]", LYON, ["repaired"]),
        ("Thought: t\nAction: search[Lyon]", LYON, []),
        ("Thought 2: t\n\nAction 2:  search[Lyon]", LYON, []),
        ("Thought 2: t\nAction 2: \n\nsearch[Lyon]", LYON, []),
        ("Thought 2: t\nAction 2: search[Lyon (city [of France])]", Call("search", "Lyon (city [of France])"), []),
        ("Thought 2: t\nAction 2: search[Lyon] on the web", LYON, ["cut"]),
        ("Thought 2: t\nAction 7: search[Lyon]", LYON, ["repaired"]),
        ("Thought 2: t\nAction 2: search[Lyon]\nThought 3: u\nAction 3: today[]", LYON, ["cut"]),
        ("Thought 2: t\nsearch[Lyon]", LYON, ["repaired"]),
        ("Thought 2: t\nAction 2: today[]", Call("today"), []),
        ("Thought 2: t\nAction 2: Login", Call("Login"), ["repaired"]),
        ('Thought 2: t\nAction 2: weather[{"city": "Lyon"}]', Call("weather", {"city": "Lyon"}), []),
    ],
)  # fmt: skip
def test_numbered(text, call, remarks):
    turn = react_format("numbered").read(text, 2, TOOLS)
    assert (turn.thought, turn.call, kinds(turn)) == ("t", call, remarks)


@pytest.mark.parametrize("name", ["Finish", "finish", "FINISH"])
def test_finish_in_any_case_is_the_answer(name):
    turn = react_format("numbered").read(f"Thought 2: t\nAction 2: {name}[12 [km]]", 2, TOOLS)
    assert (turn.answered, turn.answer, turn.call, turn.remarks) == (True, "12 [km]", None, ())
    assert react_format("numbered").read(f"Action: {name}[]", 2, TOOLS).answer == ""
    later = f"Thought 2: t\nAction 2:\n\n{name}[12]"
    assert react_format("numbered").read(later, 2, TOOLS).answer == "12"
    assert react_format("original").read(later, 2, TOOLS).call == Call(name, "12")


@for_each(
    ("text", "remarks"),
    [
        ('{"thought": "t", "tool": "search", "tool_input": "Lyon"}', 0),
        ('  {"thought": "t", "tool": "search", "tool_input": "Lyon"}\n', 0),
        ('{"tool": "search", "thought": "t", "tool_input": "Lyon"}', 0),
        ('```json\n{"thought": "t", "tool": "search", "tool_input": "Lyon"}\n```', 1),
        ('Sure! Here: {"thought": "t", "tool": "search", "tool_input": "Lyon"} OK?', 2),
        ('{"thought": "t", "tool": "search", "tool_input": "Lyon",}', 1),
        ("{'thought': 't', 'tool': 'search', 'tool_input': 'Lyon'}", 1),
        ('{"thought": "t", "tool": "search", "tool_input": "Lyon", "sure": True}', 2),
        ('{"thought": "t", "tool": "Search", "tool_input": "Lyon"}', 1),
        ('[{"thought": "t", "tool": "search", "tool_input": "Lyon"}]', 1),
        ('{"thought": "t", "action": "search", "action_input": "Lyon"}', 2),
        ('{"a": 1} {"thought": "t", "tool": "search", "tool_input": "Lyon"}', 1),
    ],
)
def test_json_lenient(text, remarks):
    format = JsonTurn()
    turn = format.read(text, 1, TOOLS)
    assert (turn.thought, turn.call, len(turn.remarks)) == ("t", LYON, remarks)
    # What is kept is whole, so that the next prompt shows the model how it is done.
    strict = JsonTurn(lenient=False)
    assert strict.read(turn.kept, 1, TOOLS).call == LYON
    if remarks and "Search" not in text:  # (a name in another case is no fault of the form)
        with pytest.raises(Unreadable):
            strict.read(text, 1, TOOLS)


def test_json_missing_parts_and_built_ins():
    turn = JsonTurn().read('{"tool": "today"}', 1, TOOLS)
    assert (turn.thought, turn.call, len(turn.remarks)) == ("", Call("today"), 2)
    text = '{"thought": "", "tool": "final_answer", "tool_input": {"a": [null]}}'
    turn = JsonTurn().read(text, 1, TOOLS)
    assert (turn.answered, turn.answer, turn.call, turn.remarks) == (True, {"a": [None]}, None, ())
    for name in ("fail_task", "ask_user"):
        assert JsonTurn().read(text.replace("final_answer", name), 1, TOOLS).call.tool == name


@for_each(
    ("text", "strict", "says"),
    [
        ("", False, "empty"),
        ("I will search.", False, "no JSON object"),
        ('{"thought": "t"}', False, 'no key "tool"'),
        ('{"thought": "t", "tool": 3, "tool_input": 1}', False, "tool"),
        ('{"thought": "t",\n "tool": search}', False, "line 2, column 10"),
        ('{"thought": "t", "tool": "search", "tool_input": "Lyon"', False, "it ends before its last bracket"),
        ("[1, 2]", False, "no JSON object"),
        ('{"thought": "t", "tool": "search"}', True, 'lacks "tool_input"'),
        ('{"thought": "t", "tool": "search", "tool_input": 1, "x": 1}', True, 'has "x" too many'),
        ('{"thought": 1, "tool": "search", "tool_input": 1}', True, "not a number"),
        ('ok {"thought": "t", "tool": "search", "tool_input": 1}', True, "column 1"),
        ('{"thought": "t", "tool": "search", "tool_input": 1} ok', True, "text around"),
    ],
)
def test_json_says_what_was_wrong_and_where(text, strict, says):
    with pytest.raises(Unreadable, match=says) as caught:
        JsonTurn(lenient=not strict).read(text, 1, TOOLS)
    assert '"tool_input": <any JSON value>' in str(caught.value)


def test_data_is_escaped_so_that_one_still_reads_it():
    data = "It says:\nObservation: 3\nTHOUGHT 7: now\nFinal Answer： 4\nthe transaction: 5"
    assert react_format("blob").escape(data) == (
        "It says:\nObservation\\: 3\nTHOUGHT 7\\: now\nFinal Answer\\： 4\nthe transaction: 5"
    )
    assert react_format("numbered").escape("a\nFinish[12]") == "a\nFinish\\[12]"
    assert JsonTurn().escape('{"tool": "search"}') == '{"tool"\\: "search"}'
    assert JsonTurn().escape('{"city": "Lyon", "name": {"a": 1}}') == '{"city": "Lyon", "name": {"a": 1}}'
    assert react_format("blob").escape("```\nx\n```") == "\\`\\`\\`\nx\n\\`\\`\\`"
    # A model that copies escaped data into an input means the data.
    assert (
        react_format("lines").read("Action: search\nAction Input: Observation\\: 3", 1, TOOLS).call.input
        == "Observation: 3"
    )


def test_what_no_writer_can_write_is_refused():
    for format in (react_format("blob"), react_format("lines"), react_format("numbered"), JsonTurn()):
        with pytest.raises(ValueError, match="call or an answer"):
            format.write(Turn("t"), 1)
        with pytest.raises(ValueError):
            format.write(Turn("t", Call("search", {"x": float("nan")})), 1)
        with pytest.raises(ValueError, match="can't be written"):
            format.write(Turn("t", Call("search", {"x": object()})), 1)
    for format in (react_format("blob"), react_format("lines")):
        with pytest.raises(ValueError, match="empty answer"):
            format.write(Turn("t", answer=" ", answered=True), 1)
    for name in ("two\nlines", "Finish", "a[b]", ""):
        with pytest.raises(ValueError):
            react_format("numbered").write(Turn("t", Call(name)), 1)


def test_tools_are_described_with_what_goes_in():
    assert react_format("lines").describe(TOOLS) == (
        "search: Looks a page up. Input: the query (string). Returns: its first lines.\n"
        'weather: The weather. Input: an object {"city": "string", "days": "integer (optional)"}.\n'
        "today: The date. Input: none."
    )
    assert react_format("numbered").describe(TOOLS) == (
        "(1) search[query]: Looks a page up. Returns: its first lines.\n"
        '(2) weather[{"city": "string", "days": "integer (optional)"}]: The weather.\n'
        "(3) today[]: The date.\n"
        "(4) Finish[answer]: gives the answer and ends the task."
    )
    assert JsonTurn().describe(TOOLS[:1]) == (
        "search: Looks a page up.\n  _input_: the query (string)\n  _output_: its first lines"
    )


def test_the_schema_of_a_json_turn_names_the_tools():
    schema = JsonTurn(can_ask=False).schema(TOOLS)
    assert schema["required"] == ["thought", "tool", "tool_input"]
    assert schema["additionalProperties"] is False
    names = ["search", "weather", "today", "final_answer", "fail_task"]
    assert schema["properties"]["tool"]["enum"] == names
    assert JsonTurn().schema(TOOLS)["properties"]["tool"]["enum"] == [*names, "ask_user"]


def test_stops_and_dialects():
    assert react_format("blob").stop(3) == ("\nObservation:",)
    assert react_format("numbered").stop(3) == ("\nObservation 3:",)


@for_each("limit", [0, 1, 40, 60, 100, 999, 1000, 5000])
def test_shortened_text_fits_and_says_what_is_missing(limit):
    text = "".join(f"{number:04d}" for number in range(250))
    short, cut = shorten(text, limit)
    assert len(short) <= limit
    if limit >= 1000:
        assert (short, cut) == (text, 0)
    else:
        shown = short.partition("\n[...")[0], short.rpartition("...]\n")[2] if "...]" in short else ""
        assert text.startswith(shown[0]) and text.endswith(shown[1])
        assert cut == 1000 - len(shown[0]) - len(shown[1])
        assert limit < 60 or f" {cut} characters" in short


@pytest.mark.parametrize("around", ["{}", "\n{}", "```json\n{}\n```", "Here it is:\n{}", "{}\nThe result of search: 4"])
def test_no_stop_string_of_json_cuts_a_turn_that_can_be_read(around: str) -> None:
    text = around.format('{"thought": "I look.", "tool": "search", "tool_input": "x"}')
    for stop in JsonTurn().stop(1):
        text = text.partition(stop)[0]
    turn = JsonTurn().read(text, 1, TOOLS)
    assert turn.call is not None and turn.call.tool == "search"
