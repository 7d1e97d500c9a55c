"""Closed calls in every format, and what each reader makes of them when they end too early."""

from __future__ import annotations

import ast
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from plait.core import Call, ToolSpec
from plait.core.call_check import place_arguments
from plait.loops.codeact.format import CodeFormat
from plait.loops.compiler.format import NumberedCalls
from plait.loops.format import Turn, Unreadable
from plait.loops.json.format import JsonTurn
from plait.loops.phased import action_list
from plait.loops.plan_text import read_plan, with_llm
from plait.loops.react.dialects import DialectName
from plait.loops.react.format import react_format
from plait.loops.tool_calling.format import CallObjects, arguments_of

Given = dict[str, Any]
Calls = list[tuple[str, Given]]


def _takes(**kinds: str) -> Given:
    return {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in kinds.items()},
        "required": [*kinds],
    }


ONE = ToolSpec("execute", "Runs a statement.", _takes(sql="string"))
# One parameter may be left out, so that half of the arguments could be taken for all of them.
TWO = ToolSpec("send", "Sends a text.", _takes(to="string", text="string") | {"required": ["to"]})
TOOLS = (ONE, TWO)

TEXTS = (
    "DELETE FROM users\nWHERE id = 3",
    "DELETE FROM users WHERE name LIKE '%[a-c]%' AND f(x) = 3",
    'UPDATE t SET a[1] = "it\'s [ok] (so)" WHERE b IN (1, 2)',
    "What's the capital of [Lyon (France)]",
    'a 5" nail, and 6" more',
    "the array [1, [2, 3]] and {so: 1}",
    "f(g(x), [y]) and more",
    "Zoë said: “no” … 漢字",
    "a: b, c = d; e",
    "C:\\dir\\new",
)
WORDS = (
    "DELETE",
    "users",
    "it's",
    'a "b"',
    "[x]",
    "(y, z)",
    "{k: 1}",
    "\n",
    ", ",
    "= 3",
    "'q'",
    "é",
    "f(x)",
    "5",
    "\\n",
)


def some_text(chance: random.Random) -> str:
    """Return an input: one of the list, or words in any order, with brackets that match."""
    if chance.random() < 0.4:
        return chance.choice(TEXTS)
    return " ".join(chance.choices(WORDS, k=chance.randint(1, 8))).strip() or "x"


# -- the calls of a reply


def _turn(format: Any) -> Callable[[str], Calls]:
    def read(text: str) -> Calls:
        turn: Turn = format.read(text, 1, TOOLS)
        return [("", {"answer": turn.answer})] if turn.call is None else _placed([turn.call])

    return read


def _placed(calls: Sequence[Call]) -> Calls:
    """Return the calls as tools would get them; a call that binding refuses is not made."""
    made: Calls = []
    for call in calls:
        tool = next((tool for tool in TOOLS if tool.name == call.tool), None)
        if tool is not None:
            placed, faults = place_arguments(tool.parameters, call.input)
            made += [] if faults else [(call.tool, placed)]
    return made


def _plan(text: str) -> Calls:
    return _placed(
        [Call(step.tool, step.input) for step in read_plan(text, with_llm(TOOLS), in_words=False).plan.calls]
    )


def _numbered(text: str) -> Calls:
    return _placed([Call(step.tool, step.input) for step in NumberedCalls().read(text, tools=TOOLS)[0].calls])


def _listed(text: str) -> Calls:
    return _placed([Call(step.tool, step.input) for step in action_list.ACTIONS.read(text, tools=TOOLS).steps])


def _objects(text: str) -> Calls:
    turn = CallObjects().read(text, tools=TOOLS)
    return [("", {"answer": turn.answer})] if turn.answered else _placed(turn.calls)


def _native(text: str) -> Calls:
    """A native call whose arguments arrive as this text, as the wires hand them on."""
    try:
        given = json.loads(text) if text.strip() else None
    except ValueError:
        given = text
    return _placed([Call("send", arguments_of(given, []))])


def _code(text: str) -> Calls:
    """The calls in the code of a reply: code that is no Python runs nothing."""
    turn = CodeFormat().read(text, 1, TOOLS)
    if turn.call is None:
        return [("", {"answer": turn.answer})]
    try:
        tree = ast.parse(str(turn.call.input))
    except SyntaxError:
        return []
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        (ast.unparse(call.func), {"code": [ast.literal_eval(each.value) for each in call.keywords]}) for call in calls
    ]


# -- the forms


@dataclass(frozen=True)
class Form:
    """A way to write one call: `write` returns the text before its input, the input, and what closes it. `read` returns
    the calls of a reply; an answer is a call of "". `one`: the call is of `execute`, which takes one text."""

    write: Callable[[Any], tuple[str, str, str]]
    read: Callable[[str], Calls]
    one: bool = False
    plain: bool = False
    """Whether the input is free text, whose brackets have to match."""


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _python(given: Given) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in given.items())


def _by_name(given: Given) -> str:
    return ", ".join(f"{name}={_dump(value)}" for name, value in given.items())


def _bracket(dialect: DialectName) -> Iterator[tuple[str, Form]]:
    read = _turn(react_format(dialect))
    head = "Thought 1: I do it.\nAction 1: "
    yield f"{dialect}, text", Form(lambda text: (f"{head}execute[", text, "]"), read, one=True, plain=True)
    yield f"{dialect}, string", Form(lambda text: (f"{head}execute[", _dump(text), "]"), read, one=True)
    yield f"{dialect}, object", Form(lambda given: (f"{head}send[", _dump(given), "]"), read)
    yield f"{dialect}, no label", Form(lambda given: ("send[", _dump(given), "]"), read)


def forms() -> dict[str, Form]:
    """Return every form by its name."""
    blob, lines, turn = react_format("blob"), react_format("lines"), JsonTurn()
    head, fence = "Thought: I do it.\nAction:", "\n```"

    def act(given: Given) -> str:
        return _dump({"action": "send", "action_input": given})

    def part(text: str, given: str) -> tuple[str, str, str]:
        before, _, after = text.partition(given)
        return before, given, after

    made: dict[str, Form] = {
        "blob": Form(lambda given: part(f"{head}\n```json\n{act(given)}{fence}", _dump(given)), _turn(blob)),
        "blob, no fence": Form(lambda given: part(f"{head} {act(given)}", _dump(given)), _turn(blob)),
        "blob, no label": Form(
            lambda given: part(f"I do it.\n```json\n{act(given)}{fence}", _dump(given)), _turn(blob)
        ),
        "blob, name and input": Form(lambda given: (f"{head} send ", _dump(given), ""), _turn(blob)),
        "blob, parentheses": Form(lambda given: (f"{head} send(", _python(given), ")"), _turn(blob)),
        "lines, object": Form(lambda given: (f"{head} send\nAction Input: ", _dump(given), ""), _turn(lines)),
        "lines, fence": Form(
            lambda given: (f"{head} send\nAction Input:\n```json\n", _dump(given), fence), _turn(lines)
        ),
        "lines, string": Form(
            lambda text: (f"{head} execute\nAction Input: ", _dump(text), ""), _turn(lines), one=True
        ),
        "lines, other labels": Form(lambda given: ("Tool: send\nTool Input: ", _dump(given), ""), _turn(lines)),
        **dict(_bracket("numbered")),
        **dict(_bracket("original")),
        "json": Form(
            lambda given: part(_dump({"thought": "t", "tool": "send", "tool_input": given}), _dump(given)), _turn(turn)
        ),
        "json, Python": Form(
            lambda given: part(f"{{'thought': 't', 'tool': 'send', 'tool_input': {given!r}}}", repr(given)), _turn(turn)
        ),
        "json, words around": Form(
            lambda given: part(
                f"I do it.\n```json\n{_dump({'tool': 'send', 'tool_input': given, 'thought': 't'})}{fence}",
                _dump(given),
            ),
            _turn(turn),
        ),
        "plan, text": Form(lambda text: ("Plan: do it\n#E1 = execute[", text, "]"), _plan, one=True, plain=True),
        "plan, string": Form(lambda text: ("Plan: do it\n#E1 = execute[", _dump(text), "]"), _plan, one=True),
        "plan, object": Form(lambda given: ("Plan: do it\n#E1 = send[", _dump(given), "]"), _plan),
        "plan, round": Form(lambda text: ("#E1 = execute(", _dump(text), ")"), _plan, one=True),
        "numbered calls": Form(lambda given: ("1. send(", _by_name(given), ")\n2. join()"), _numbered),
        "numbered calls, Python": Form(lambda given: ("1. send(", _python(given), ")\n2. join()"), _numbered),
        "numbered calls, one": Form(lambda text: ("1. execute(", _dump(text), ")\n2. join()"), _numbered, one=True),
        "action list": Form(
            lambda given: part(_dump([{"ACTION": "send", "ARGUMENTS": [*given.values()]}]), _dump([*given.values()])),
            _listed,
        ),
        "action list, by name": Form(
            lambda given: part(f"```json\n{_dump([{'ACTION': 'send', 'ARGUMENTS': given}])}{fence}", _dump(given)),
            _listed,
        ),
        "native": Form(lambda given: ("", _dump(given), ""), _native),
        "code": Form(lambda given: ("THOUGHT 1:\nt\nACTION 1:\n```python\nsend(", _python(given), f"){fence}"), _code),
    }
    texts: dict[str, Callable[[Given], tuple[str, str, str]]] = {
        "object": lambda given: ('{"name": "send", "arguments": ', _dump(given), "}"),
        "hermes": lambda given: ('<tool_call>\n{"name": "send", "arguments": ', _dump(given), "}\n</tool_call>"),
        "in a list": lambda given: ('[{"name": "send", "arguments": ', _dump(given), "}]"),
        "arguments in a string": lambda given: ('{"name": "send", "arguments": ', _dump(_dump(given)), "}"),
        "nested": lambda given: (
            '{"tool": "send", "tool_input": ',
            _dump({"to": "x", "text": {"name": "execute", "arguments": {"sql": given["text"]}}}),
            "}",
        ),
        "name as key": lambda given: ('{"send": ', _dump(given), "}"),
        "name before": lambda given: ("send ", _dump(given), ""),
        "mistral": lambda given: ("[TOOL_CALLS]send[ARGS]", _dump(given), ""),
        "function tag": lambda given: ("<function=send>", _dump(given), "</function>"),
        "parameter tags": lambda given: (
            "<tool_call>\n<function=send>\n",
            "\n".join(f"<parameter={name}>\n{value}\n</parameter>" for name, value in given.items()),
            "\n</function>\n</tool_call>",
        ),
        "pairs": lambda given: (
            "<tool_call>send\n",
            "\n".join(f"<arg_key>{name}</arg_key>\n<arg_value>{value}</arg_value>" for name, value in given.items()),
            "\n</tool_call>",
        ),
        "own tag": lambda given: (
            "<send>\n",
            "\n".join(f"<{name}>{value}</{name}>" for name, value in given.items()),
            "\n</send>",
        ),
        "tags with names": lambda given: ("<tool_name>send</tool_name>\n<parameters>", _dump(given), "</parameters>"),
        "python": lambda given: ("send(", _python(given), ")"),
        "python, in a list": lambda given: ("[send(", _python(given), ")]"),
        "python, double quotes": lambda given: ("```tool_code\nsend(", _by_name(given), ")\n```"),
    }
    return made | {f"text, {name}": Form(write, _objects) for name, write in texts.items()}


def closed_calls(chance: random.Random, form: Form) -> tuple[str, int, int, Any]:
    """Return a whole reply with one call, where its input begins and ends, and the input."""
    given: Any = some_text(chance) if form.one else {"to": some_text(chance), "text": some_text(chance)}
    if form.plain and given[0] in "{[\"'(":
        given = f"x {given}"  # it would be read as JSON
    before, inside, after = form.write(given)
    return before + inside + after, len(before), len(before + inside), given


def calls_made(form: Form, text: str) -> Calls:
    """Return the calls that a reply makes; none if the model is asked again."""
    try:
        return form.read(text)
    except Unreadable:
        return []
