"""The readers of all loops as a fuzzer of the escape uses them, and random texts made of the readers' own pieces.

A part of a text *reads* as something if its loop would take it for more than words:

- `react` (all dialects), `json`: any turn. Their readers refuse words, so each turn is a call or an answer by a label.
- `tool_calling`: calls, or an answer that is not the part itself (it was taken out of a call, or something was cut).
- `phased`: a list with at least one action. An empty list and prose are no calls.
- `rewoo`, and the plans of `compiler`: at least one call that can be made. A plan that only ends calls nothing.
- the joiner of `compiler`: an answer by a label. A text without a label is an answer in words.
- `codeact`: an answer by a label, and code that calls a function of the run. Other code computes and calls nothing.
"""

from __future__ import annotations

import ast
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from plait.core import LoopContext, ToolSpec
from plait.loops.call_escape import escape_calls
from plait.loops.codeact.format import FORMAT as CODE
from plait.loops.compiler.format import FORM as NUMBERED
from plait.loops.compiler.joiner import JOINER
from plait.loops.escape import Escape, EscapeSyntax, escape_of
from plait.loops.format import Unreadable
from plait.loops.json.format import JsonTurn
from plait.loops.phased import action_list
from plait.loops.plan_text import PLANS, read_plan, with_llm
from plait.loops.react.format import react_format
from plait.loops.tool_calling.format import CallObjects
from plait.runtime.templates.prompts import PromptBook


def takes(*names: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}}


TOOLS = (
    ToolSpec("search", "Looks up.", takes("q"), read_only=True),
    ToolSpec("get_weather", "Tells the weather.", takes("city", "days")),
    ToolSpec("send", "Sends.", takes("to", "text")),
    ToolSpec("Log In", "An odd name."),
    ToolSpec("functions.run", "An odd name.", takes("x")),
    ToolSpec("shop-buy", "An odd name.", takes("x")),
)
FUNCTIONS = {"search", "get_weather", "send", "stop", "method_search"}


class Form(NamedTuple):
    """A reader with the escape of its loop. `read` describes what a text reads as; "" if it is only words."""

    read: Callable[[str], str]
    escape: Escape
    own: str


def _turn(read: Callable[..., Any]) -> Callable[[str], str]:
    return lambda text: repr((turn := read(text, 2, TOOLS)).call or turn.answer)


def _calls(text: str) -> str:
    turn, words = CallObjects().read(text, tools=TOOLS), text.strip()
    if turn.calls:
        return repr(turn.calls)
    return "" if turn.answer in (words, words.removesuffix("</s>").rstrip()) else f"the answer {turn.answer!r}"


def _list(text: str) -> str:
    return repr(read.steps) if (read := action_list.ACTIONS.read(text, tools=TOOLS)).steps else ""


def _plan(text: str) -> str:
    return repr(calls) if (calls := read_plan(text, with_llm(TOOLS)).plan.calls) else ""


def _numbered(text: str) -> str:
    reader = NUMBERED.reader(TOOLS)
    made = [call.step for call in (*reader.feed(text), *reader.close()) if not call.problem]
    return repr(made) if made else ""


def _decision(text: str) -> str:
    verdict = JOINER.read(text)
    in_words = any("without a label was taken for the answer" in remark.text for remark in verdict.remarks)
    return repr(verdict) if verdict.kind == "finish" and not in_words else ""


def _code(text: str) -> str:
    turn = CODE.read(text, 2, TOOLS)
    if turn.call is None:
        return repr(turn.answer)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(turn.call.input)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = {getattr(x, "id", getattr(x, "attr", "")) for call in calls for x in ast.walk(call)}
    return repr(turn.call) if named & FUNCTIONS else ""


def _form(read: Callable[[str], str], loop: str, escape: EscapeSyntax, own: str) -> Form:
    return Form(read, escape_of(LoopContext(TOOLS, PromptBook(loop)), escape), own)


def forms() -> dict[str, Form]:
    """All readers, by name."""
    made = {}
    for name in ("blob", "lines", "numbered", "original"):
        dialect = react_format(name)  # type: ignore[arg-type]
        made[f"react, {name}"] = _form(_turn(dialect.read), "react", dialect.escape, "labels names objects tags")
    return made | {
        "json": _form(_turn(JsonTurn().read), "json", JsonTurn().escape, "keys names objects tags"),
        "tool_calling": _form(_calls, "tool_calling", escape_calls, "keys names objects tags"),
        "phased": _form(_list, "phased", action_list.ACTIONS.escape, "keys objects names"),
        "rewoo": _form(_plan, "rewoo", PLANS.escape, "plans names signs"),
        "compiler": _form(_numbered, "compiler", NUMBERED.escape, "plans names objects signs"),
        "joiner": _form(_decision, "compiler", NUMBERED.escape, "decisions labels signs"),
        "codeact": _form(_code, "codeact", CODE.escape, "code code labels objects"),
    }


EXAMPLES = [
    "Answer: 42",
    "2. Answer: 42",
    "answer = 42",
    "Conclusion: 42",
    "### Final Answer\n42",
    "search()",
    'db.search(q="x")',
    'search {"q": "x"}',
    '<tool_call>{"name":"search"}',
    '{"name":"search","":""',
    '{"name": """search""", "input": 1}',
    '{"name": r"search", "kwargs": {}}',
    '{"tool_calls": [b"search {}"]}',
    '{"recipient_name": "functions.search"}',
    '**search**(q="x")',
    "search (q=1)",
    "<answer>search(q=1)</answer>",
    '**Function:** `search`\n**Arguments:** {"q": "x"}',
]
"""Results of tools that were read as answers or calls when a model copied them."""


def _split(*lines: str) -> list[str]:
    """Return the pieces between the signs `¦`, at which a line may end too."""
    return [piece for line in lines for piece in line.split("¦")]


PIECES: dict[str, list[str]] = {
    "names": _split(
        "search¦get_weather¦get\\_weather¦send¦Log In¦functions.run¦shop-buy¦db.search¦functions.search¦Search¦other",
        "final_answer¦fail_task¦finish¦Finish¦LLM¦to=functions.search¦search.call¦print¦stop",
    ),
    "labels": _split(
        "Answer:¦Final Answer:¦answer =¦Conclusion:¦### Final Answer¦final response¦The answer is:",
        "the final answer is:¦2. Answer:¦Action:¦Action¦Act -¦Next action:¦Tool:¦Tool name:¦Function call ->",
        "Action Input:¦Input:¦Args =",
        "Thought:¦Reasoning -¦Observation:¦ACTION 2:¦THOUGHT 2:¦OBSERVATION 2:¦FINAL ANSWER:¦DONE",
    ),
    "decisions": _split(
        "Finish:¦Finish¦finish(¦Finish[¦Replan:¦Replan¦Action: Finish¦Answer:¦Thought:¦Final Answer:¦$1"
    ),
    "plans": _split(
        "#E1 =¦E1 =¦#E2:¦Plan:¦Step 1:¦Evidence 1:¦#E1 = search[x]¦E1 = send[y]¦1.¦2)¦Step 3.¦$1 =¦x = ¦join()¦join",
        '1. search("x")¦search("x")¦2. send(¦await ¦- search(¦[x]¦("x")¦]¦\n#E1 = search[x]¦\nE2 = send[y]',
    ),
    "code": _split(
        "```python\n¦```\n¦~~~\n¦<code>¦</code>¦search(1)¦x = search¦stop('z')¦map(search, y)¦print(¦(¦)¦[¦]¦, ¦'¦\"",
        '"""¦f"{¦}"¦#¦if x: ¦return ¦lambda: ¦>>> ¦... ¦\\¦; ¦+ ¦.¦await ¦for a in ¦:¦\nsearch(1)\n¦\nx = search(y)\n',
        "\nstop(z)\n¦\nFINAL ANSWER: 42\n¦\nACTION 2:\n",
    ),
    "signs": [*":：()[]{},;.\\\"'`*#|$/•“”‘’", " - ", " – ", " -> ", " => ", " = ", "()", "\\:", "```", "**"],
    "beginnings": _split("```json\n¦### ¦- ¦> ¦1. ¦Step 2: ¦//¦/*¦*/¦>>> ¦print(¦x = ¦await ¦[[¦null"),
    "blanks": ["", " ", "  ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u200b", "\ufeff", "\u2028", "\\n"],
    "values": _split(
        "42¦x¦Lyon¦\"Lyon\"¦'Oslo'¦q=\"x\"¦city='Oslo'¦null¦None¦true¦is¦the¦https://x.org/a(b)¦12:30¦a=1¦2 + 3",
        "(1, 2)¦1/6¦50_000¦Lyon is a city.",
    ),
    "tags": _split(
        "<tool_call>¦</tool_call>¦<function=search>¦</function>¦<function_call>¦<parameter=q>¦</parameter>",
        '<invoke name="search">¦</invoke>¦<tool_name>search</tool_name>¦<name>search</name>¦<name>x</name>¦<action>',
        "<search>¦</search>¦<input>¦<parameters>¦</parameters>¦<arg_key>q</arg_key>¦<arg_value>x</arg_value>¦[ARGS]",
        "[TOOL_CALLS]¦[TOOL_REQUEST]¦[WARNING]¦<|tool_call|>¦<|im_end|>¦</s>¦<think>¦</think>¦[THINK]¦[/THINK]",
        "<|channel|>¦<|message|>¦<|channel|>analysis<|message|>¦<|channel|>final<|message|>¦<|start|>assistant¦<answer>",
        '</answer>¦<|python_tag|>¦functools[¦<end_of_turn>¦<<function>>¦<｜DSML｜invoke name="search">¦<escape>',
        "<|tool_call>call:search{",
    ),
    "objects": [
        *EXAMPLES,
        *('{"name": "x", "arguments": {}}', '{"tool": "search", "tool_input": "x"}', "{'name': 'search'}"),
        *('{"action": "search", "action_input": "x"}', '[{"ACTION": "search", "ARGUMENTS": ["x"]}]'),
        *('{"search": {"q": "x"}}', '{"function": {"name": "search", "arguments": "{}"}}', '{"final_answer": 42}'),
        *("[\"search(q='x')\"]", '["{\\"name\\": \\"search\\"}"]', "\"{'name': 'search'}\"", '{"name": ("search")}'),
        *('search(q="x")', "[get\\_weather(city='Oslo')]", "search(q=1); send(to=2)", "tools call: [search(q=1)]"),
        *('{"tool_calls": [b"search\\n{}"]}', "{'tool_uses': [r'search {}']}", '{"name": u"search"}'),
        *('{"search": [1]}', '{"search": null}', '{"tool": "hammer"}', "<search><q>x</q></search>", '{"city": "Lyon"}'),
        *('{"calls": ["{\\"name\\": \\"search\\"}"]}', "\"search\\n{'q': 1}\"", '{"tool_calls": ["search(q=1)"]}'),
        *('print(search("x"))', "Finish[42]", "search[x]", "<code>search(1)</code>"),
    ],
}
KEYS = _split(
    "name¦tool¦tool_name¦action¦function¦arguments¦args¦parameters¦input¦tool_input¦action_input¦ACTION¦ARGUMENTS",
    "Tool¦thought¦tool_calls¦tool_uses",
    "function_name¦api_name¦recipient_name¦kwargs¦functionCall¦final_answer¦search¦x¦type¦action input¦t\\u006fol",
)


def _piece(chance: random.Random, kind: str) -> str:
    if kind != "keys":
        return chance.choice(PIECES[kind])
    quote = chance.choice(['"', '"', '"', "'", "", "“", '\\"'])
    colon = chance.choice(
        [":", ": ", " : ", "\n:", "/**/:", " #x\n: ", ': "search"', ": 'x'", ': r"search"', ": b'x'", ': """search"""']
    )
    return f"{chance.choice(['', '', '{', ','])}{quote}{chance.choice(KEYS)}{quote.replace('“', '”')}{colon}"


def random_text(chance: random.Random, own: str) -> str:
    """Return a text of up to 14 pieces, most of the kinds that a reader knows as its `own`."""
    kinds, mine = [*PIECES, "keys"], own.split()
    pieces = []
    for _ in range(chance.randint(1, 14)):
        pieces.append(_piece(chance, chance.choice(mine if chance.random() < 0.6 else kinds)))
        pieces.append(chance.choice(PIECES["blanks"]) if chance.random() < 0.5 else "")
    return "".join(pieces)


def parts(text: str, chance: random.Random) -> Iterator[str]:
    """Yield parts of a text that begin at the start of a line: to the end, to the end of a line, and to any place."""
    starts = [0, *(place + 1 for place, sign in enumerate(text) if sign == "\n")]
    for start in chance.sample(starts, min(3, len(starts))):
        yield text[start:]
        yield text[start : chance.choice([*(end - 1 for end in starts if end > start), len(text)])]
        yield text[start : chance.randint(start, len(text))]


def what_reads(form: Form, text: str, chance: random.Random) -> str:
    """Return a part of a text that reads as something, and as what; "" if no part does."""
    for part in parts(text, chance):
        try:
            if found := form.read(part):
                return f"{part!r} reads as {found}"
        except Unreadable:
            continue
    return ""
