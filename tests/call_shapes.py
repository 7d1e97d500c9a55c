"""Replies with calls, in the shapes in which models write them. Each comes with the calls that it means.

A shape is a wrapper (a list, strings, a fence, tags ...) around calls in one form (Python, JSON objects ...), whose
values also have a form (tuples, fractions ...). `replies` combines them at random.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from plait.core import Call, ToolSpec
from plait.core.arguments import named_input
from plait.core.call_check import repair_value
from plait.loops.compiler.format import NumberedCalls
from plait.loops.format import Unreadable
from plait.loops.json.format import JsonTurn
from plait.loops.phased import action_list
from plait.loops.react.dialects import DIALECTS
from plait.loops.react.format import react_format
from plait.loops.tool_calling.format import CallObjects


def takes(**types: str) -> dict[str, Any]:
    """The parameters of a tool, by type."""
    return {"type": "object", "properties": {name: {"type": kind} for name, kind in types.items()}}


TOOLS = (
    ToolSpec("get_weather", "Tells.", takes(city="string", days="integer", unit_system="string")),
    ToolSpec("math.factorial", "Computes.", takes(number="integer")),
    ToolSpec("functions.lookup", "Finds.", takes(key_word="string", limit="integer")),
    ToolSpec("distance", "Measures.", takes(a="array", b="array", exact="boolean")),
    ToolSpec("binomial", "Computes.", takes(n="integer", p="number")),
    ToolSpec("plan_trip", "Plans.", takes(stops="array", options="object", note="string")),
)
WORDS = ["Oslo", "it's cold", 'a "big" one', "x, y (z)", "a\nb", "Åre", "", "50_000", "1/6", "C# and [b]", "k=v", "{x}"]


class Spelt(NamedTuple):
    """A value, and how Python code and JSON write it."""

    value: Any
    python: str
    json: str


def plain(value: Any) -> Spelt:
    return Spelt(value, repr(value), json.dumps(value, ensure_ascii=False))


def number(chance: random.Random, whole: bool) -> Spelt:
    """A number, often as constant arithmetic."""
    n, m = chance.randint(1, 60), chance.randint(2, 9)
    if whole:
        found = chance.choice(
            [
                (n, f"{n}"),
                (-n, f"-{n}"),
                (n * m, f"{n} * {m}"),
                (10**m, f"10**{m}"),
                (n * 1000, f"{n}_000"),
                (n, f"+{n}"),
            ]
        )
    else:
        found = chance.choice(
            [(n / m, f"{n}/{m}"), (n / 8, f"{n / 8}"), (-n / m, f"-{n}/{m}"), (0.5, ".5"), (1e-3, "1e-3")]
        )
    return Spelt(found[0], found[1], found[1])


def some_list(chance: random.Random, depth: int = 0) -> Spelt:
    """A list, often as a tuple, of numbers, words or lists."""
    inner = chance.choice(
        [lambda: number(chance, True), lambda: number(chance, False), lambda: plain(chance.choice(WORDS))]
    )
    items = [
        some_list(chance, 1) if not depth and chance.random() < 0.3 else inner() for _ in range(chance.randint(1, 3))
    ]
    left, right = chance.choice(["[]", "()"])
    comma = "," if left == "(" and len(items) == 1 else ""

    def spelt(texts: Iterator[str]) -> str:
        return f"{left}{', '.join(texts)}{comma}{right}"

    return Spelt(
        [item.value for item in items], spelt(item.python for item in items), spelt(item.json for item in items)
    )


def of_type(chance: random.Random, kind: str) -> Spelt:
    match kind:
        case "integer" | "number":
            return number(chance, kind == "integer")
        case "boolean":
            return plain(chance.random() < 0.5)
        case "array":
            return some_list(chance)
        case "object":
            inner = {
                "from": number(chance, True),
                "seats": some_list(chance),
                "quiet": plain(None),
                "by": plain(chance.choice(WORDS)),
            }
            texts = [
                ", ".join(f"{quote(key)}: {text}" for key, text in texts)
                for quote, texts in (
                    (repr, [(key, each.python) for key, each in inner.items()]),
                    (json.dumps, [(key, each.json) for key, each in inner.items()]),
                )
            ]
            return Spelt({key: each.value for key, each in inner.items()}, f"{{{texts[0]}}}", f"{{{texts[1]}}}")
    return plain(chance.choice(WORDS))


class Made(NamedTuple):
    """A call as meant, with its values as they are spelt."""

    tool: str
    given: dict[str, Spelt]

    @property
    def call(self) -> Call:
        return Call(self.tool, {key: each.value for key, each in self.given.items()})


def some_call(chance: random.Random) -> Made:
    tool = chance.choice(TOOLS)
    types = {name: schema["type"] for name, schema in tool.parameters["properties"].items()}
    names = list(types)[: chance.randint(1, len(types))]
    return Made(tool.name, {name: of_type(chance, types[name]) for name in names})


# -- the forms of one call


def in_python(made: Made, chance: random.Random) -> str:
    """`get_weather(city='Oslo', days=2)`, with what models do to names, blanks and line ends."""
    name, sign = made.tool, chance.choice(["=", "=", " = "])
    keys = {key: key for key in made.given}
    if chance.random() < 0.25 and "_" not in "".join(each.python for each in made.given.values()):
        name, keys = name.replace("_", "\\_"), {key: key.replace("_", "\\_") for key in keys}
    elif chance.random() < 0.1 and not name.startswith("functions."):
        name = f"functions.{name}"
    between = chance.choice([", ", ", ", ",", ",\n    ", ",  # the first, as asked\n    "])
    inside = between.join(f"{keys[key]}{sign}{each.python}" for key, each in made.given.items())
    if "\n" in between:
        return f"{name}(\n    {inside}\n)"
    return f"{name}({inside})"


def in_json(made: Made, chance: random.Random) -> str:
    """An object with the tool's name and its arguments, or with the name as its key."""
    name = made.tool.replace("_", "\\_") if chance.random() < 0.1 else made.tool
    inside = "{" + ", ".join(f'"{key}": {each.json}' for key, each in made.given.items()) + "}"
    return chance.choice(
        [
            f'{{"name": "{name}", "arguments": {inside}}}',
            f'{{"name": "{name}", "arguments": {inside}}}',
            f'{{"tool": "{name}", "parameters": {inside}}}',
            f'{{"{name}": {inside}}}',
            f'{{"type": "function", "function": {{"name": "{name}", "arguments": {inside}}}}}',
        ]
    )


# -- what stands around calls. Each takes texts in Python or in JSON.


def in_strings(texts: list[str], chance: random.Random) -> str:
    quotes = [quote for quote in "\"'" if not any(quote in text or "\\" in text or "\n" in text for text in texts)]
    if quotes and chance.random() < 0.7:
        quote = chance.choice(quotes)
        return "[" + ", ".join(f"{quote}{text}{quote}" for text in texts) + "]"
    return json.dumps(texts, ensure_ascii=chance.random() < 0.5)


def in_lines(texts: list[str], chance: random.Random) -> str:
    mark = chance.choice(["", "", "- ", "* ", "{n}. ", "{n}) "])
    return "\n".join(mark.format(n=n) + text for n, text in enumerate(texts, 1))


ANNOUNCED = ["tools call", "Function calls", "The tool calls are", "Here is the function call"]
Wrapper = Callable[[list[str], random.Random], str]
PYTHON: dict[str, Wrapper] = {
    "list": lambda texts, _: f"[{', '.join(texts)}]",
    "list over lines": lambda texts, _: "[\n    " + ",\n    ".join(texts) + "\n]",
    "strings": in_strings,
    "semicolons": lambda texts, _: "; ".join(texts),
    "lines": in_lines,
    "words before": lambda texts, chance: f"{chance.choice(ANNOUNCED)}: [{', '.join(texts)}]",
    "link": lambda texts, _: f"[{', '.join(texts)}]()",
    "comment": lambda texts, _: "\n".join(f"{text}  # what was asked, (here)" for text in texts),
    "fence": lambda texts, chance: f"```{chance.choice(['python', 'tool_code', '', 'py'])}\n{chr(10).join(texts)}\n```",
    "list in a fence": lambda texts, chance: f"```{chance.choice(['python', 'json', ''])}\n[{', '.join(texts)}]\n```",
    "printed": lambda texts, _: "\n".join(f"print({text})" for text in texts),
    "variables": lambda texts, _: "\n".join(f"result_{n} = {text}" for n, text in enumerate(texts)),
    "a list as a variable": lambda texts, _: f"calls = [{', '.join(texts)}]",
    "backticks": lambda texts, _: "\n".join(f"`{text}`" for text in texts),
    "sentence between": lambda texts, _: "\n\nThen I call the next tool:\n".join(texts),
    "tokens": lambda texts, _: f"<|tool_call_start|>[{', '.join(texts)}]<|tool_call_end|>",
    "a token between": lambda texts, _: "<|sep|>".join(f"[{text}]" for text in texts),
    "python tag": lambda texts, _: f"<|python_tag|>{'; '.join(texts)}<|eom_id|>",
    "tags": lambda texts, _: "\n".join(f"<tool_call>\n{text}\n</tool_call>" for text in texts),
    "function_calls": lambda texts, _: "<function_calls>\n" + "\n".join(texts) + "\n</function_calls>",
    "gorilla": lambda texts, _: "".join(f"<<function>>{text}" for text in texts),
    "brackets of Markdown": lambda texts, _: f"\\[{', '.join(texts)}\\]",
}  # fmt: skip
JSON: dict[str, Wrapper] = {
    "list": lambda texts, _: f"[{', '.join(texts)}]",
    "strings": lambda texts, _: json.dumps(texts),
    "lines": lambda texts, _: "\n".join(texts),
    "semicolons": lambda texts, _: "; ".join(texts),
    "fence": lambda texts, chance: f"```{chance.choice(['json', '', 'tool_call'])}\n[{', '.join(texts)}]\n```",
    "tags": lambda texts, _: "\n".join(f"<tool_call>\n{text}\n</tool_call>" for text in texts),
    "a list in tags": lambda texts, _: f"<tool_calls>[{', '.join(texts)}]</tool_calls>",
    "mistral": lambda texts, _: f"[TOOL_CALLS][{', '.join(texts)}]",
    "granite": lambda texts, _: f"<|tool_call|>[{', '.join(texts)}]",
    "nemotron": lambda texts, _: f"<TOOLCALL>[{', '.join(texts)}]</TOOLCALL>",
    "cohere": lambda texts, _: f"<|START_ACTION|>[\n{', '.join(texts)}\n]<|END_ACTION|>",
    "tool_calls": lambda texts, _: f'{{"tool_calls": [{", ".join(texts)}]}}',
    "functools": lambda texts, _: f"functools[{', '.join(texts)}]",
    "words before": lambda texts, _: f"tools call: [{', '.join(texts)}]",
    "words above": lambda texts, _: f"I make these calls.\n\n[{', '.join(texts)}]",
}


# -- notations of model families that write parameters one by one


def dsml(calls: list[Made], chance: random.Random) -> str:
    bar, outer = chance.choice("｜|"), chance.choice(["tool_calls", "function_calls"])

    def parameter(key: str, each: Spelt) -> str:
        text = isinstance(each.value, str)
        value = each.value if text else each.json
        return f'<{bar}DSML{bar}parameter name="{key}" string="{json.dumps(text)}">{value}</{bar}DSML{bar}parameter>'

    def one(made: Made) -> str:
        inside = "\n".join(parameter(key, each) for key, each in made.given.items())
        return f'<{bar}DSML{bar}invoke name="{made.tool}">\n{inside}\n</{bar}DSML{bar}invoke>'

    return f"<{bar}DSML{bar}{outer}>\n" + "\n".join(map(one, calls)) + f"\n</{bar}DSML{bar}{outer}>"


def marked(value: Any, mark: str) -> str:
    """A value as Gemma writes it."""
    if isinstance(value, str):
        return f"{mark}{value}{mark}"
    if isinstance(value, list):
        return f"[{','.join(marked(each, mark) for each in value)}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{marked(each, mark)}" for key, each in value.items()) + "}"
    return json.dumps(value)


def gemma(calls: list[Made], chance: random.Random) -> str:
    start, end, mark = chance.choice(
        [("<|tool_call>", "<tool_call|>", '<|"|>'), ("<start_function_call>", "<end_function_call>", "<escape>")]
    )
    return "".join(f"{start}call:{made.tool}{marked(made.call.input, mark)}{end}" for made in calls)


def tagged(call: str, parameter: str, between: str = "\n") -> Callable[[list[Made], random.Random], str]:
    """The notation that writes each call, and each parameter of it, by these templates."""

    def write(calls: list[Made], chance: random.Random) -> str:
        texts = []
        for made in calls:
            items = [
                (key, each.value if isinstance(each.value, str) else each.json) for key, each in made.given.items()
            ]
            inside = "".join(parameter.replace("KEY", key).replace("VALUE", value) for key, value in items)
            texts.append(call.replace("NAME", made.tool).replace("INSIDE", inside))
        return between.join(texts)

    return write


def named(template: str, between: str = "") -> Callable[[list[Made], random.Random], str]:
    """The notation that writes the arguments of each call as one JSON object."""

    def write(calls: list[Made], chance: random.Random) -> str:
        given = [json.dumps(made.call.input, ensure_ascii=False) for made in calls]
        return between.join(
            template.replace("NAME", made.tool).replace("GIVEN", args) for made, args in zip(calls, given, strict=True)
        )

    return write


PAIR = "<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n"
FAMILIES: dict[str, Callable[[list[Made], random.Random], str]] = {
    "deepseek dsml": dsml,
    "gemma": gemma,
    "deepseek v3": named(
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\nGIVEN\n```<｜tool▁call▁end｜>", "\n"
    ),
    "deepseek v3.1": named("<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>GIVEN<｜tool▁call▁end｜>"),
    "kimi": named("<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>GIVEN<|tool_call_end|>"),
    "mistral": named("[TOOL_CALLS]NAME[ARGS]GIVEN"),
    "mistral with ids": named("[TOOL_CALLS]NAME[CALL_ID]a1b2c3d4e[ARGS]GIVEN"),
    "harmony": named(
        "<|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>GIVEN<|call|>"
    ),
    "harmony, turned": named("<|start|>assistant to=functions.NAME<|channel|>commentary json<|message|>GIVEN<|call|>"),
    "functionary": named(">>>NAME\nGIVEN", "\n"),
    "llama": named("<function=NAME>GIVEN</function>", "\n"),
    "solar": named("<|tool_call:begin|>a1<|tool_call:name|>NAME<|tool_call:args|>GIVEN<|tool_call:end|>"),
    "lm studio": named('[TOOL_REQUEST]{"name": "NAME", "arguments": GIVEN}[END_TOOL_REQUEST]'),
    "internlm": named('<|action_start|><|plugin|>{"name": "NAME", "parameters": GIVEN}<|action_end|>'),
    "the name above": named("NAME\nGIVEN", "\n\n"),
    "glm": tagged("<tool_call>NAME\nINSIDE</tool_call>", PAIR),
    "hunyuan": tagged("<tool_call>NAME<tool_sep>\nINSIDE</tool_call>", PAIR),
    "longcat": tagged("<longcat_tool_call>NAME\nINSIDE</longcat_tool_call>", PAIR.replace("arg_", "longcat_arg_")),
    "qwen coder": tagged(
        "<tool_call>\n<function=NAME>\nINSIDE</function>\n</tool_call>", "<parameter=KEY>\nVALUE\n</parameter>\n"
    ),
    "seed": tagged(
        "<seed:tool_call>\n<function=NAME>\nINSIDE</function>\n</seed:tool_call>", "<parameter=KEY>VALUE</parameter>\n"
    ),
    "minimax": tagged(
        '<minimax:tool_call>\n<invoke name="NAME">\nINSIDE</invoke>\n</minimax:tool_call>',
        '<parameter name="KEY">VALUE</parameter>\n',
    ),
    "step": tagged(
        '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="NAME">INSIDE</steptml:invoke>'
        "<｜tool_call_end｜>",
        '<steptml:parameter name="KEY">VALUE</steptml:parameter>',
    ),
    "unknown tags": tagged('<api_call tool="NAME">\nINSIDE</api_call>', '<arg name="KEY">VALUE</arg>\n'),
}


OUTER: dict[str, Callable[[str], str]] = {
    "in a fence": lambda text: f"```python\n{text}\n```",
    "in a string": lambda text: json.dumps(text, ensure_ascii=False),
    "in tags": lambda text: f"<tool_call>\n{text}\n</tool_call>",
    "behind a token": lambda text: f"<|tool_calls|>{text}<|eom_id|>",
    "below words": lambda text: f"I need both, so I make these calls.\n\n{text}",
    "before words": lambda text: f"{text}\n\nI wait for the results.",
}
"""What may stand around all calls of a reply."""
ALONE = {"words before", "sentence between", "fence", "list in a fence", "backticks", "python tag", "tokens"}
"""Wrappers that nothing but words stands around."""


class Shape(NamedTuple):
    """A reply, the calls that it means, and how it was made."""

    name: str
    text: str
    calls: tuple[Call, ...]


def replies(chance: random.Random, count: int) -> Iterator[Shape]:
    """Make so many replies, of random shapes."""
    makers = [*(("python", *each) for each in PYTHON.items()), *(("json", *each) for each in JSON.items())]
    makers += [("family", *each) for each in FAMILIES.items()]
    for _ in range(count):
        kind, name, wrap = chance.choice(makers)
        made = [some_call(chance) for _ in range(chance.choice([1, 1, 2, 3]))]
        made = list({json.dumps([each.tool, each.call.input], sort_keys=True): each for each in made}.values())
        if kind == "family":
            text = wrap(made, chance)
        else:
            form = in_python if kind == "python" else in_json
            text = wrap([form(each, chance) for each in made], chance)
        outer = chance.choice([*OUTER] if kind == "python" and name not in ALONE else ["below words", "before words"])
        if chance.random() < 0.4:
            name, text = f"{name}, {outer}", OUTER[outer](text)
        yield Shape(f"{kind}, {name}", text, tuple(each.call for each in made))


# -- the readers


def meant(tool: str, given: Any) -> tuple[str, str]:
    """A call as the tool gets it, to compare: arguments by name, with the types of the parameters."""
    parameters = next((each.parameters for each in TOOLS if each.name == tool), {})
    with suppress(TypeError, ValueError):
        given = json.loads(given)
    given = repair_value(named_input(given or {}, parameters), parameters, parameters)
    return tool, json.dumps(given, sort_keys=True, ensure_ascii=False)


def turn_of(format: Any, before: str = "") -> Callable[[str], list[Call]]:
    """A reader that reads the first call."""

    def read(text: str) -> list[Call]:
        turn = format.read(before + text, 1, TOOLS)
        return [] if turn.call is None else [turn.call]

    return read


READERS: dict[str, Callable[[str], list[Call]]] = {
    "call objects": lambda text: list(CallObjects().read(text, tools=TOOLS).calls),
    "action list": lambda text: [
        Call(each.tool, each.input) for each in action_list.ACTIONS.read(text, tools=TOOLS).steps
    ],
    "numbered calls": lambda text: [
        Call(each.tool, each.input) for each in NumberedCalls().read(text, tools=TOOLS)[0].calls
    ],
    "json": turn_of(JsonTurn()),
    **{f"react {name}": turn_of(react_format(name), "Thought: I look.\n") for name in DIALECTS},
    **{f"react {name}, labelled": turn_of(react_format(name), "Thought: I look.\nAction: ") for name in DIALECTS},
}
"""The readers of calls in text. Those of one call a turn read the first one."""


def lost(reader: str, shape: Shape) -> str:
    """What is wrong with a reader's reading of a reply; "" if it reads the calls."""
    expected = [meant(call.tool, call.input) for call in shape.calls]
    try:
        found = [meant(call.tool, call.input) for call in READERS[reader](shape.text)]
    except Unreadable as why:
        return f"{reader}: {shape.name}: {shape.text!r} is refused: {why}"
    expected = expected[:1] if "react" in reader or reader == "json" else expected
    return "" if found == expected else f"{reader}: {shape.name}: {shape.text!r} reads as {found}, not {expected}"
