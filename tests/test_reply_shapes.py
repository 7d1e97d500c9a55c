"""Shapes in which models write calls and answers: what each reader makes of the first thing that counts.

The shapes are those of model families (Llama, Qwen, Mistral, DeepSeek, GLM, Kimi, Gemma, Granite, Phi, Command,
Functionary, MiniMax, gpt-oss) and of models that were asked for one format and write another.
"""

from __future__ import annotations

import pytest

from conftest import for_each
from plait.core import Call, ToolSpec
from plait.loops.format import Unreadable
from plait.loops.json.format import JsonTurn
from plait.loops.react.format import react_format
from plait.loops.tool_calling.format import CallObjects

TOOLS = (
    ToolSpec("get_weather", "Tells.", {"properties": {"city": {"type": "string"}}, "required": ["city"]}),
    ToolSpec(
        "forecast",
        "Foretells.",
        {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]},
    ),
    ToolSpec("search", "Finds.", {"properties": {"query": {"type": "string"}}, "required": ["query"]}, read_only=True),
    ToolSpec("today", "Tells the date.", {"properties": {}}),
)
PARIS = {"city": "Paris"}
WEATHER = Call("get_weather", PARIS)
NATIVE = CallObjects()

CALLS = {
    "json": '{"name": "get_weather", "arguments": {"city": "Paris"}}',
    "json with parameters": '{"name": "get_weather", "parameters": {"city": "Paris"}}',
    "json with params": '{"name": "get_weather", "params": {"city": "Paris"}}',
    "json, escaped underscore": r'{"name": "get\_weather", "arguments": {"city": "Paris"}}',
    "json, type and function": '{"type": "function", "name": "get_weather", "parameters": {"city": "Paris"}}',
    "llama python tag": '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}<|eom_id|>',
    "llama python tag, call": '<|python_tag|>get_weather.call(city="Paris")<|eom_id|>',
    "llama pythonic": '[get_weather(city="Paris")]',
    "llama function tag": '<function=get_weather>{"city": "Paris"}</function>',
    "hermes": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
    "hermes, not closed": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n',
    "qwen3 coder": "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n"
    "</tool_call>",
    "qwen3 coder, not closed": "<function=get_weather>\n<parameter=city>\nParis\n</parameter>",
    "mistral": '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}}]</s>',
    "mistral, newer": '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}',
    "mistral, no mark": '[TOOL_CALLS]get_weather{"city": "Paris"}',
    "deepseek v3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
    '{"city": "Paris"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>',
    "deepseek v3.1": '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Paris"}'
    "<｜tool▁call▁end｜>",
    "glm": "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>",
    "kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
    '{"city": "Paris"}<|tool_call_end|><|tool_calls_section_end|>',
    "gemma": '```tool_code\nget_weather(city="Paris")\n```',
    "gemma, printed": "```tool_code\nprint(get_weather(city='Paris'))\n```",
    "gemini": 'print(default_api.get_weather(city="Paris"))',
    "granite": '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]',
    "granite 4": '<tool_call>[{"name": "get_weather", "arguments": {"city": "Paris"}}]</tool_call>',
    "phi": 'functools[{"name": "get_weather", "arguments": {"city": "Paris"}}]',
    "phi, tokens": '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]<|/tool_call|>',
    "command": 'Action: ```json\n[\n    {\n        "tool_name": "get_weather",\n        "parameters": {"city": '
    '"Paris"}\n    }\n]```',
    "command, newer": '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": '
    '{"city": "Paris"}}\n]<|END_ACTION|>',
    "functionary": '>>>get_weather\n{"city": "Paris"}',
    "functionary, older": '<|recipient|>get_weather\n<|content|>{"city": "Paris"}',
    "minimax": '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n</invoke>\n'
    "</minimax:tool_call>",
    "invoke": '<function_calls>\n<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n</invoke>\n'
    "</function_calls>",
    "gpt-oss": '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>',
    "gpt-oss with its analysis": "<|channel|>analysis<|message|>The user asks for it. Use get_weather.<|end|>"
    '<|start|>assistant<|channel|>commentary to=functions.get_weather<|message|>{"city":"Paris"}<|call|>',
    "liquid": '<|tool_call_start|>[get_weather(city="Paris")]<|tool_call_end|>',
    "nemotron": '<TOOLCALL>[{"name": "get_weather", "arguments": {"city": "Paris"}}]</TOOLCALL>',
    "the name, then json": 'get_weather\n{"city": "Paris"}',
    "the name and json": 'get_weather {"city": "Paris"}',
    "the name with a colon": 'get_weather: {"city": "Paris"}',
    "the name as a key": '[{"get_weather": {"city": "Paris"}}]',
    "the name as a key, alone": '{"get_weather": {"city": "Paris"}}',
    "python": 'get_weather(city="Paris")',
    "python, positional": "get_weather('Paris')",
    "python in a fence": '```python\nget_weather(city="Paris")\n```',
    "python, assigned": 'weather = get_weather(city="Paris")',
    "python, in backticks": '`get_weather(city="Paris")`',
    "xml of its own": "<get_weather>\n<city>Paris</city>\n</get_weather>",
    "xml with names": "<tool_name>get_weather</tool_name>\n<parameters>\n<city>Paris</city>\n</parameters>",
    "xml action": '<action>get_weather</action>\n<action_input>{"city": "Paris"}</action_input>',
    "another case": '{"name": "Get_Weather", "arguments": {"city": "Paris"}}',
    "action in an object": '{"action": {"name": "get_weather", "arguments": {"city": "Paris"}}}',
    "tool_calls": '{"tool_calls": [{"id": "a1", "type": "function", "function": {"name": "get_weather", "arguments": '
    '"{\\"city\\": \\"Paris\\"}"}}]}',
}
INVENTED = [
    "",
    "\nResult: 22 degrees\nFinal Answer: 22",
    "\n<tool_response>\n22 degrees\n</tool_response>\nIt is 22 degrees.",
    "\n\nOutput: 22\n\nFinal Answer: 22",
]


@for_each("behind", INVENTED)
@for_each("text", CALLS.values())
def test_tool_calling_reads_a_call_in_every_notation_and_never_takes_it_for_the_answer(text: str, behind: str) -> None:
    for before in ("", "I look it up.\n\n"):
        turn = NATIVE.read(before + text + behind, tools=TOOLS)
        assert (turn.calls, turn.answered) == ((WEATHER,), False)
        assert turn.remarks or text == CALLS["json"]


SEVERAL = [
    '[get_weather(city="Paris"), forecast(city="Lyon", days=2)]',
    'get_weather(city="Paris")\nforecast("Lyon", 2)',
    '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>\n'
    '<tool_call>{"name": "forecast", "arguments": {"city": "Lyon", "days": 2}}</tool_call>',
    '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]forecast[ARGS]{"city": "Lyon", "days": 2}',
    '<function=get_weather>{"city": "Paris"}</function>\n<function=forecast>{"city": "Lyon", "days": 2}</function>',
    '[{"get_weather": {"city": "Paris"}}, {"forecast": {"city": "Lyon", "days": 2}}]',
]


@for_each("text", SEVERAL)
def test_tool_calling_reads_all_calls_of_a_turn(text: str) -> None:
    assert NATIVE.read(text, tools=TOOLS).calls == (WEATHER, Call("forecast", {"city": "Lyon", "days": 2}))


@for_each(
    "text",
    [
        'get_weather(city="Paris',
        'get_weather\n{"city": "Par',
        '<function=get_weather>{"city": "Par</function>',
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Par</tool_call>',
        "<tool_call>\nget_weather\n</tool_call>",
        '[get_weather(city="Paris", city="Lyon")]',
    ],
)
def test_tool_calling_refuses_a_call_that_can_not_be_read_and_never_answers_with_it(text: str) -> None:
    with pytest.raises(Unreadable):
        NATIVE.read(text, tools=TOOLS)


@for_each(
    "text",
    [
        '{"name": "get_weather", "description": "Tells.", "parameters": {"type": "object", "properties": {}}}',
        '{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": '
        '{"city": {"type": "string"}}}}}',
        '[{"name": "Lyon", "input": "a river", "population": 522250}]',
        '{"people": [{"name": "Ann", "arguments": "none"}]}',
        '{"arguments_for": {"name": "search", "args": 1}}',
        "I asked get_weather(city) and it is 22 degrees in Paris.",
        "The function get_weather takes a city.",
        "Use `today` for the date.",
        "search",
        "Paris: {22 degrees}",
    ],
)
def test_tool_calling_takes_data_definitions_and_prose_for_what_they_are(text: str) -> None:
    turn = NATIVE.read(text, tools=TOOLS)
    assert (turn.answered, turn.answer, turn.calls) == (True, text, ())


def test_an_argument_that_looks_like_a_call_is_a_part_of_the_input() -> None:
    inner = {"name": "search", "arguments": {"query": "x"}}
    turn = NATIVE.read(
        'create_user\n{"name": "search", "arguments": {"query": "x"}}', tools=(ToolSpec("create_user", ""), *TOOLS)
    )
    assert turn.calls == (Call("create_user", inner),)


# -- text ReAct and JSON turns

TEXTS = [react_format(name) for name in ("blob", "lines", "numbered")]


@for_each("behind", INVENTED)
@for_each("text", CALLS.values())
def test_react_reads_a_call_in_every_notation_and_never_an_invented_result(text: str, behind: str) -> None:
    for form in TEXTS:
        turn = form.read(f"Thought: I look it up.\n{text}{behind}", 1, TOOLS)
        assert turn.call is not None and turn.call.tool == "get_weather", form.name
        assert turn.call.input in (PARIS, "Paris"), form.name


@for_each("behind", ["", "\nResult: 22\n" + '{"thought": "t", "tool": "final_answer", "tool_input": "22"}'])
@for_each("text", CALLS.values())
def test_json_reads_a_call_in_every_notation_and_never_an_invented_result(text: str, behind: str) -> None:
    turn = JsonTurn().read(text + behind, 1, TOOLS)
    assert turn.call == WEATHER


LYON = Call("search", "Lyon")
ACTIONS = {
    "bold labels": "**Thought:** I look.\n**Action:** search\n**Action Input:** Lyon",
    "bold, colon outside": "**Thought**: I look.\n**Action**: search\n**Action Input**: Lyon",
    "headings": "### Thought:\nI look.\n### Action:\nsearch\n### Action Input:\nLyon",
    "headings without a colon": "### Thought\nI look.\n### Action\nsearch\n### Action Input\nLyon",
    "capitals": "THOUGHT: I look.\nACTION: search\nACTION INPUT: Lyon",
    "small letters": "thought: I look.\naction: search\naction input: Lyon",
    "underscore": "Thought: I look.\nAction: search\nAction_Input: Lyon",
    "one word": "Thought: I look.\nAction: search\nActionInput: Lyon",
    "hyphen": "Thought: I look.\nAction: search\nAction-Input: Lyon",
    "full-width colon": "Thought： I look.\nAction： search\nAction Input： Lyon",
    "windows line ends": "Thought: I look.\r\nAction: search\r\nAction Input: Lyon\r\n",
    "no-break spaces": "Thought:\u00a0I look.\nAction:\u00a0search\nAction Input:\u00a0Lyon",
    "zero-width spaces": "\u200bThought: I look.\n\u200bAction: search\u200b\n\u200bAction Input: Lyon\u200b",
    "numbers": "Thought 1: I look.\nAction 1: search\nAction Input 1: Lyon",
    "numbered list": "1. Thought: I look.\n2. Action: search\n3. Action Input: Lyon",
    "bullets": "- Thought: I look.\n- Action: search\n- Action Input: Lyon",
    "steps": "Step 1: Thought: I look.\nAction: search\nAction Input: Lyon",
    "input": "Thought: I look.\nAction: search\nInput: Lyon",
    "tool input": "Thought: I look.\nAction: search\nTool Input: Lyon",
    "arguments": "Thought: I look.\nAction: search\nArguments: Lyon",
    "parameters": 'Thought: I look.\nAction: search\nParameters: {"query": "Lyon"}',
    "tool and input": "Thought: I look.\nTool: search\nInput: Lyon",
    "function and arguments": 'I look.\nFunction: search\nArguments: {"query": "Lyon"}',
    "tool name and tool input": "I look.\nTool Name: search\nTool Input: Lyon",
    "python call": 'Thought: I look.\nAction: search("Lyon")',
    "python call, keyword": 'Thought: I look.\nAction: search(query="Lyon")',
    "python call, no quotes": "Thought: I look.\nAction: search(Lyon)",
    "python call in backticks": 'Thought: I look.\nAction: `search("Lyon")`',
    "bracket": "Thought: I look.\nAction: search[Lyon]",
    "bracket, quotes": 'Thought: I look.\nAction: search["Lyon"]',
    "bracket, spaces": "Thought: I look.\nAction: search [Lyon]",
    "bracket, another case": "Thought: I look.\nAction: Search[Lyon]",
    "object beside the name": 'Thought: I look.\nAction: search {"query": "Lyon"}',
    "object below the name": 'Thought: I look.\nAction: search\n{"query": "Lyon"}',
    "fenced object below the name": 'Thought: I look.\nAction: search\n```json\n{"query": "Lyon"}\n```',
    "colon": "Thought: I look.\nAction: search: Lyon",
    "quotes beside the name": 'Thought: I look.\nAction: search "Lyon"',
    "name in brackets": "Thought: I look.\nAction: [search]\nAction Input: Lyon",
    "name in angle brackets": "Thought: I look.\nAction: <search>\nAction Input: Lyon",
    "name in quotes": 'Thought: I look.\nAction: "search"\nAction Input: "Lyon"',
    "name with a full stop": "Thought: I look.\nAction: search.\nAction Input: Lyon",
    "name with parentheses": "Thought: I look.\nAction: search()\nAction Input: Lyon",
    "name with words": "Thought: I look.\nAction: Use the search tool\nAction Input: Lyon",
    "name with a bracket": "Thought: I look.\nAction: search [web]\nAction Input: Lyon",
    "a prefix": "Thought: I look.\nAction: functions.search\nAction Input: Lyon",
    "input with its name": "Thought: I look.\nAction: search\nAction Input: query: Lyon",
    "input with its keyword": 'Thought: I look.\nAction: search\nAction Input: query="Lyon"',
    "input in a fence": "Thought: I look.\nAction: search\nAction Input:\n```\nLyon\n```",
    "input in single quotes": "Thought: I look.\nAction: search\nAction Input: 'Lyon'",
    "input in backticks": "Thought: I look.\nAction: search\nAction Input: `Lyon`",
    "json input": 'Thought: I look.\nAction: search\nAction Input: {"query": "Lyon"}',
    "json input and a fence": 'Thought: I look.\nAction: search\nAction Input: {"query": "Lyon"}\n```',
    "json input and prose": 'Thought: I look.\nAction: search\nAction Input: {"query": "Lyon"} This finds it.',
    "python object": "Thought: I look.\nAction: search\nAction Input: {'query': 'Lyon',}",
    "name and input in one line": "Thought: I look. Action: search Action Input: Lyon",
    "action name": 'Thought: I look.\nAction:\n```json\n{"name": "search", "arguments": {"query": "Lyon"}}\n```',
    "params": 'Thought: I look.\nAction: {"action": "search", "params": {"query": "Lyon"}}',
    "no label": 'I look.\n```json\n{"action": "search", "action_input": "Lyon"}\n```',
    "no label, bracket": "I look.\nsearch[Lyon]",
    "thinking before": "<think>\nAction: today\n</think>\nThought: I look.\nAction: search\nAction Input: Lyon",
    "thinking, not opened": "Action: today\n</think>\n\nThought: I look.\nAction: search\nAction Input: Lyon",
    "thinking in the thought": "Thought: <think>Final Answer: 5</think>\nI look.\nAction: search\nAction Input: Lyon",
    "end of turn": "Thought: I look.\nAction: search\nAction Input: Lyon<|im_end|>\n<|im_start|>user\nObservation: 5",
    "end of text": "Thought: I look.\nAction: search\nAction Input: Lyon</s>",
    "observation": "Thought: I look.\nAction: search\nAction Input: Lyon\nObservation: 5\nFinal Answer: 5",
    "observation in the line": "Thought: I look.\nAction: search\nAction Input: Lyon Observation: 5\nFinal Answer: 5",
    "result": "Thought: I look.\nAction: search\nAction Input: Lyon\nResult: 5\nFinal Answer: 5",
    "pause": "Thought: I look.\nAction: search\nAction Input: Lyon\nPAUSE",
    "waiting": "Thought: I look.\nAction: search\nAction Input: Lyon\n\nI will wait for the result.",
    "an afterword": "Thought: I look.\nAction: search\nAction Input: Lyon\n\nThis tells how many live there.",
    "words beside the name": "Thought: I look.\nAction: search Lyon",
    "for": "Thought: I look.\nAction: Search for Lyon",
    "fenced python call": 'Thought: I look.\nAction:\n```\nsearch("Lyon")\n```',
    "a list of actions": 'Action:\n```json\n[{"action": "search", "action_input": "Lyon"}, {"action": "today"}]\n```',
    "two objects": 'Action:\n```json\n{"action": "search", "action_input": "Lyon"}\n{"action": "today"}\n```',
    "a bracket too many": 'Action:\n```json\n{"action": "search", "action_input": "Lyon"}}\n```',
    "several turns": "Thought: I look.\nAction: search[Lyon]\nObservation: 5\nThought: a\nAction: Finish[5]",
    "none first": "Thought: I look.\nAction: None\nThought: No.\nAction: search\nAction Input: Lyon",
    "search result": "Thought: I look.\nAction: search\nAction Input: Lyon\n\nSearch result: 5 million",
}


@for_each("text", ACTIONS.values())
def test_react_reads_an_action_in_every_usual_spelling(text: str) -> None:
    for form in TEXTS:
        turn = form.read(text, 1, TOOLS)
        assert turn.call in (LYON, Call("search", {"query": "Lyon"})), form.name
        assert "million" not in turn.kept and "Observation" not in turn.kept.replace("Observation: 5\nFinal", "")


NO_INPUT = [
    "today", "today()", "today{}", "today[]", "`today`", "Today", "today\nAction Input:", "today\nAction Input: None",
    'today\nAction Input: ""', "today\nAction Input: {}",
]  # fmt: skip


@for_each("text", NO_INPUT)
def test_an_action_without_input_calls_the_tool(text: str) -> None:
    for form in TEXTS:
        turn = form.read(f"Thought: I look.\nAction: {text}", 1, TOOLS)
        assert turn.call is not None and turn.call.tool == "today"
        assert turn.call.input in (None, "", {}, "None")


ESSAY = "Lyon lies on two rivers, the Rhone and the Saone, and is known for its silk. It was founded by the Romans."
ANSWERS = {
    "usual": ("Thought: I know.\nFinal Answer: 42", "42"),
    "bold": ("**Final Answer:** 42", "42"),
    "one word": ("FinalAnswer: 42", "42"),
    "heading": ("## Final Answer\n42", "42"),
    "inside a line": ("Thought: I now know it. Final Answer: 42", "42"),
    "the final answer is": ("I know it. The final answer is: 42", "42"),
    "answer": ("Thought: I know.\nAnswer: 42", "42"),
    "an observation in the line": (
        "Final Answer: A lab report has a Hypothesis, an Observation: what you saw, and a Conclusion.",
        "A lab report has a Hypothesis, an Observation: what you saw, and a Conclusion.",
    ),
    "the last one is empty": (f"Thought: I write.\nFinal Answer: {ESSAY}\n\nFinal Answer:", ESSAY),
    "the last one refers back": (
        f"Thought: I write.\nFinal Answer: {ESSAY}\n\nFinal Answer: These paragraphs encapsulate the city.",
        ESSAY,
    ),
    "it refers to the text above": (
        f"Thought: I write about Lyon.\n\n{ESSAY}\n\n{ESSAY}\n\nFinal Answer: The paragraphs above describe the city.",
        f"{ESSAY}\n\n{ESSAY}",
    ),
    "no action": ("Thought: I know.\nAction: None\nFinal Answer: 42", "42"),
    "no action needed": ("Thought: I know.\nAction: No action needed.\nFinal Answer: 42", "42"),
    "an action named so": ("Thought: I know.\nAction: Final Answer\nAction Input: 42", "42"),
    "finish with a bracket": ("Thought: I know.\nAction: Finish[42]", "42"),
    "finish with an input": ("Thought: I know.\nAction: finish\nAction Input: 42", "42"),
    "finish as an object": ('Thought: I know.\nAction: {"action": "finish", "action_input": "42"}', "42"),
    "of two the last": ("Final Answer: 41\nFinal Answer: 42", "42"),
    "thinking": ("<think>Final Answer: 5</think>\nFinal Answer: 42", "42"),
    "end of turn": ("Final Answer: 42<|eot_id|>", "42"),
    "channel": ("<|channel|>analysis<|message|>Action: search<|end|><|start|>assistant<|channel|>final<|message|>"
                "Final Answer: 42<|return|>", "42"),
}  # fmt: skip


@for_each(("text", "answer"), ANSWERS.values())
def test_react_reads_an_answer_in_every_usual_spelling(text: str, answer: str) -> None:
    for form in TEXTS:
        turn = form.read(text, 1, TOOLS)
        assert (turn.answered, turn.answer, turn.call) == (True, answer, None), form.name


@for_each(
    "text",
    [
        "hi there", "I will look that up", "I need the search tool.", "<think>Final Answer: 5",
        "Thought: Observation: 5", "Thought: I search. Observation: 5. Final Answer: 5", "Conclusion", "",
    ],
)  # fmt: skip
def test_react_does_not_guess(text: str) -> None:
    for form in TEXTS:
        with pytest.raises(Unreadable):
            form.read(text, 1, TOOLS)


@for_each(
    "text",
    [
        '{"thought": "t", "final_answer": "42"}', '{"name": "final_answer", "arguments": {"answer": "42"}}',
        '{"thought": "t", "tool": "final_answer", "tool_input": "42", "observation": "x"}',
        '<think>{"tool": "today"}</think>{"thought": "t", "tool": "final_answer", "tool_input": "42"}',
        '{"thought": "t", "action": "final_answer", "action_input": "42"}', 'final_answer("42")',
    ],
)  # fmt: skip
def test_json_reads_an_answer_in_every_usual_spelling(text: str) -> None:
    turn = JsonTurn().read(text, 1, TOOLS)
    assert (turn.answered, turn.answer) in ((True, "42"), (True, {"answer": "42"}))
