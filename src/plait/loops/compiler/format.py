"""A plan as numbered calls, after LLMCompiler: calls name earlier results, and `join()` ends the plan.

    Thought: Both heights, then the difference.
    1. lookup("height of Garnet Tower")
    2. lookup("height of Ferris Tower")
    3. calculator("$1 - $2")
    4. join()

Source: Kim et al. 2023, arXiv:2312.04511.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from plait.core import JSON, Call, Plan, Step, ToolSpec
from plait.core.arguments import KEYWORD, parameter_names
from plait.loops import gbnf
from plait.loops.call_escape import escape_calls
from plait.loops.compiler.joiner import JOINER
from plait.loops.compiler.reader import JOIN, CallReader, NumberedCall, escape_numbered
from plait.loops.format import Codec, Remark, Stream, Unreadable, write_json
from plait.loops.label_scan import cut
from plait.loops.tool_descriptions import argument_types, as_sentence, flat_description, type_word

SHAPE = 'Write each call on a line of its own, such as `1. tool("text")`, and `join()` on the last line.'

_NAME = re.compile(r"[^\W\d][\w.-]{0,99}")


Read: TypeAlias = tuple[Plan, tuple[Remark, ...]]
"""A plan, and what was repaired or cut."""


class NumberedCallStream(Stream[Read]):
    """A plan that streams in, in whole lines: calls, and lines of thought."""

    def __init__(self, codec: Codec[Read], n: int, tools: Sequence[ToolSpec]) -> None:
        super().__init__(codec, n, tools)
        self._reader, self._calls = CallReader(tools), list[NumberedCall]()
        self._began = False

    def split(self, text: str, *, last: bool) -> None:
        self._calls += self._reader.close() if last else self._reader.feed(text)
        for kind, said in self._reader.written():
            # Line breaks separate calls, as they separate lines of thought.
            self.show(kind, ("\n" if self._began else "") + said)
            self._began = True

    def result(self) -> Read:
        if not self._calls and not self._reader.ended:
            raise Unreadable(f"There is no call in your plan. {SHAPE}")
        lost = [cut(f"call {call.step.id}: {call.problem}") for call in self._calls if call.problem]
        return Plan(tuple(call.step for call in self._calls if not call.problem)), (*self._reader.remarks, *lost)


@dataclass(frozen=True)
class NumberedCalls(Codec[Read]):
    """Plans of numbered calls.

    The reader accepts text with any quotes or none, numbers written `1)`, `1:`, `Step 1.` or `$1 =`, missing numbers,
    Markdown around names, several calls on a line, arguments over several lines, lists in brackets, assignments. Lines
    between calls are the next call's `why`. Ids are the numbers.

    `write` puts a `why` on one line and arguments as JSON. An input is None, a scalar for a tool of one parameter, or
    an object by parameter name, as the reader returns them. It raises ValueError for a list, for a name or key that a
    call cannot hold, and for input that JSON cannot hold.
    """

    name: ClassVar[str] = "numbered_calls"
    stream_kind = NumberedCallStream

    def reader(self, tools: Sequence[ToolSpec] = ()) -> CallReader:
        """Return a reader for a plan that is still being written."""
        return CallReader(tools)

    def read(self, text: str, n: int = 1, tools: Sequence[ToolSpec] = ()) -> Read:
        """Return the plan in a whole text, and what was repaired or cut. An unreadable call is dropped, with a remark.
        Raises `Unreadable` if there is neither a call nor `join()`."""
        stream = self.stream(tools=tools)
        stream.feed(text)
        stream.close()
        return stream.result()

    def write(self, reading: Read | Plan, n: int = 1) -> str:
        return _write(reading if isinstance(reading, Plan) else reading[0], self.call)

    def write_calls(self, calls: Sequence[Call], thought: str = "", n: int = 1) -> str:
        return self.write(Plan(tuple(Step(str(i), call.tool, call.input) for i, call in enumerate(calls, 1))))

    def show(self, plan: Plan) -> str:
        """Return a plan's text for people and prompts: as `write` if possible, else an approximation."""
        return _write(plan, self.line)

    def line(self, step: Step) -> str:
        """Return one call's line for a prompt; never raises."""
        try:
            return self.call(step)
        except ValueError:
            given = step.input if isinstance(step.input, list) else [step.input]
            said = ", ".join(json.dumps(each, ensure_ascii=False, default=str) for each in given)
            return f"{step.id}. {step.tool}({said})"

    def call(self, step: Step) -> str:
        """Return one call's line. Raises ValueError as the class says."""
        if not re.fullmatch(r"[1-9]\d{0,5}", step.id, re.A):
            raise ValueError(f"The id {step.id!r} is no number from 1 to 999999.")
        if not _NAME.fullmatch(step.tool) or step.tool.lower() == JOIN:
            raise ValueError(f"A tool named {step.tool!r} can't be written as a numbered call.")
        return f"{step.id}. {step.tool}({_arguments(step.input)})"

    def escape(self, text: str, tools: Sequence[ToolSpec] = (), inline: bool = False) -> str:
        """Put a backslash into anything that would read as a call, the plan's end, or one of the joiner's labels."""
        return JOINER.escape(escape_numbered(escape_calls(text, tools), tools))

    def describe(self, tools: Sequence[ToolSpec]) -> str:
        lines = []
        for tool in tools:
            named = argument_types(tool)
            told = [as_sentence(f"{name}: {words}") for name in named if (words := flat_description(tool, name))]
            returns = [f"Returns: {as_sentence(tool.returns)}"] if tool.returns else []
            inside = ", ".join(f"{name}: {kind}" for name, kind in named.items())
            lines.append(" ".join([f"{tool.name}({inside}):", as_sentence(tool.description), *told, *returns]))
        return "\n".join(lines)

    def grammar(self, tools: Sequence[ToolSpec], n: int = 1, *, opened: bool = False, most: int = 20) -> str:
        """Return GBNF of plans as `write` makes them, at most `most` calls; references may be unquoted."""
        calls = [tool for tool in tools if _NAME.fullmatch(tool.name) and tool.name.lower() != JOIN]
        rules = [
            f'root ::= {f"( thought? call ){{0,{most}}} " if calls else ""}id "{JOIN}()"',
            'id ::= [1-9] [0-9]{0,2} ". "',
            r'thought ::= "Thought: " [^ \t\r\n] [^\r\n]{0,400} "\n"',
        ]
        if calls:
            rules.append("call ::= id ( " + " | ".join(f"call{i}" for i in range(len(calls))) + r' ) "\n"')
        rules += [f"call{i} ::= {_call_rule(tool)}" for i, tool in enumerate(calls)]
        return "\n".join([*rules, r'ref ::= "$" [1-9] [0-9]{0,2}', gbnf.JSON_RULES])


FORM = NumberedCalls()


def _write(plan: Plan, write_call: Callable[[Step], str]) -> str:
    lines = [
        f"Thought: {' '.join(step.why.split())}\n" * bool(step.why.strip()) + write_call(step) for step in plan.calls
    ]
    return "\n".join([*lines, f"{max((int(step.id) for step in plan.calls), default=0) + 1}. {JOIN}()"])


def _arguments(given: JSON) -> str:
    if given is None:
        return ""
    if isinstance(given, list | tuple):
        raise ValueError("Input that is a list can't be written: give an object by the parameters' names.")
    if not isinstance(given, dict):
        return write_json(given, "An argument")
    if not given:
        raise ValueError("Input that is an empty object can't be written: give none.")
    for key in given:
        if not isinstance(key, str) or not (match := KEYWORD.match(f"{key}=")) or match[1] != key:
            raise ValueError(f"The key {key!r} can't be written as an argument's name.")
    return ", ".join(f"{key}={write_json(value, 'An argument')}" for key, value in given.items())


def _call_rule(tool: ToolSpec) -> str:
    names = parameter_names(tool.parameters)
    if not names:
        return gbnf.literal(f"{tool.name}()")
    required = [name for name in names if name in tool.parameters.get("required", [])]
    head = f"{gbnf.literal(f'{tool.name}(')} "
    if len(names) == 1:
        body = _value_rule(tool, names[0])
        return f'{head}{body if required else f"( {body} )?"} ")"'
    rules = {name: f"{gbnf.literal(f'{name}=')} {_value_rule(tool, name)}" for name in names}
    first = ' ", " '.join(rules[name] for name in required)
    optional = [rules[name] for name in names if name not in required]
    if required:
        more = " ".join(f'( ", " {rule} )?' for rule in optional)
        return f'{head}{first} {more} ")"'
    # All are optional: one or none, so that no comma is left over.
    return f'{head}( {" | ".join(optional)} )? ")"'


def _value_rule(tool: ToolSpec, name: str) -> str:
    schema = tool.parameters["properties"][name]
    kind = type_word(schema) if isinstance(schema, dict) else "any"
    return {"string": "( string | ref )", "number": "( number | ref )", "integer": "( number | ref )"}.get(
        kind, "( value | ref )"
    )
