"""The plans of ReWOO as text: a line of thought, then a call whose result has a name.

    Plan: I need the number of people in Lyon.
    #E1 = lookup[Lyon]
    Plan: A third of it.
    #E2 = calculator[#E1 / 3]

A step's input may name the evidence of earlier steps. The brackets hold text, or a JSON object, list or string. The
model itself is a tool, `LLM[instruction]`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import msgspec
from msgspec import Struct, structs

from plait.core import JSON, Call, PieceKind, Plan, Step, ToolSpec
from plait.core.loose_json import read_float
from plait.core.tools import tool_named
from plait.loops import gbnf
from plait.loops.format import Codec, Remark, Stream, Unreadable, write_json
from plait.loops.label_scan import cut, is_plain_name, replace_halves, tool_name
from plait.loops.plan_scan import (
    HEAD,
    SHOWN,
    STEPS,
    Part,
    call_of,
    input_of,
    is_plain_input,
    lines_of,
    parts_of,
)
from plait.loops.references import EVIDENCE, refer_to_steps
from plait.loops.tool_descriptions import argument_types, describe_tool

LLM = "LLM"
"""The name by which a plan calls the model itself."""

SHAPE = "Write for each step a line `Plan: what it is for` and below it a line `#E1 = Tool[input]`, numbered from 1."
JSON_SHAPE = 'It is {"steps": [{"id": "E1", "tool": name, "input": value, "why": text}], "evidence": {"E1": text}}.'
MAX_STEPS = 100
"""Maximum number of calls in a plan from any source."""

_ID = re.compile(r"\s*+#?[Ee](\d{1,6})\s*+", re.A)
# `lookup[x] * 4`: dropping the rest would change the meaning of the step.
_GOES_ON = re.compile(r"[ \t]{0,9}(?:[-+*/×÷^%]|and\b|minus\b|plus\b|times\b)[ \t]{0,9}[\w#(.]")


# A line that is a call and has no name for its result.
_UNNAMED = re.compile(
    r"[ \t>*_`•+–-]{0,12}(?:\(?\d{1,3}[.):][ \t]{0,4})?(?:(?:action|call|tool|step)[ \t]{0,3}\d{0,3}[:：][ \t]{0,4})?"
    r"(?:[A-Za-z_]\w{0,40}[ \t]{0,3}=[ \t]{0,3})?[*`]{0,3}([A-Za-z_][\w.-]{0,63})[*`]{0,3}[\[(](.*)[\])]"
    r"[ \t.;,*`]{0,9}",
    re.I | re.A,
)
_CALLED = re.compile(r"(?<![\w.#])([A-Za-z_][\w.-]{0,63})\[", re.A)


class PlanRead(Struct, frozen=True):
    """A plan as read, with what was repaired or cut."""

    plan: Plan
    remarks: tuple[Remark, ...] = ()


def with_llm(tools: Iterable[ToolSpec], what_for: str = "") -> tuple[ToolSpec, ...]:
    """Return the tools a plan may call: the given ones, and the model itself unless a tool has its name."""
    tools = tuple(tools)
    if any(tool.name == LLM for tool in tools):
        return tools
    instruction = {"type": "object", "properties": {"instruction": {"type": "string"}}, "required": ["instruction"]}
    return (*tools, ToolSpec(LLM, what_for, instruction))


def read_plan(text: str, tools: Iterable[ToolSpec], most: int = MAX_STEPS, *, in_words: bool = True) -> PlanRead:
    """Read the plan in a reply leniently, with at most `most` calls. `tools` are all that it may call (`with_llm`).
    `in_words`: a formula may name earlier steps by their inputs.

    Accepts `Plan 1:`, surrounding text, bold labels, both lines of a step on one line, inputs over several lines,
    nested brackets and brackets in strings, round brackets or none, arguments by name, and unquoted references in JSON.
    Raises only `Unreadable`, with all errors because of which the plan cannot run.
    """
    listed = tuple(tools)
    remarks: list[Remark] = []
    text = replace_halves(text, remarks)
    before, parts = parts_of(text)
    if said := " ".join(lines_of(before)):
        remarks.append(cut(f"{len(said)} characters before the plan"))
    if sum(bool(part.id) for part in parts) > most:
        raise Unreadable(f"This plan has more than {most} steps. Write a shorter one, with only the steps it needs.")
    steps: list[Step] = []
    troubles: list[str] = []
    why = ""
    for part in parts:
        if part.id:
            earlier = next((step for step in steps if step.id == part.id), None)
            try:
                step = _step(part, why, listed, remarks)
                if in_words and step.tool != LLM:
                    step = refer_to_steps("step", step, (other for other in steps if other.tool), "#", remarks)
            except Unreadable as trouble:
                if earlier is not None:
                    # `#E1 = lookup[...]` and then `#E1 = 42`: only tools give evidence.
                    remarks.append(cut(f"evidence {part.id} that the model wrote itself"))
                else:
                    troubles.append(str(trouble))
                    steps.append(Step(part.id, listed[-1].name if listed else LLM, "?"))  # so that others may name it
            else:
                if earlier is not None and (earlier.tool, earlier.input) == (step.tool, step.input):
                    remarks.append(cut(f"step {part.id}, which was written before"))
                else:
                    steps.append(step)
            why = ""
        else:
            if why:
                steps.append(Step("", why=why))
            why = STEPS.remove(" ".join(lines_of(part.text)))
    if why:
        steps.append(Step("", why=why))
    troubles += _unnamed(before, parts, listed, steps)
    if not troubles and not any(step.tool for step in steps):
        raise Unreadable(f"{'Your reply is empty' if not text.strip() else 'There is no call in your plan'}. {SHAPE}")
    plan = check_plan(Plan(tuple(steps)), listed, troubles)
    return PlanRead(plan, tuple(dict.fromkeys(remarks)))


def read_plan_file(text: str, tools: Iterable[ToolSpec]) -> Plan:
    """Read a plan from a user's file: the written form (lines that begin with `# ` are comments), or a `Plan` as JSON.
    Raises `Unreadable` with all errors, including parts that would be ignored."""
    if text.lstrip()[:1] != "{":
        read = read_plan(text, tools, in_words=False)
        if lost := [remark.text for remark in read.remarks if remark.kind == "cut"]:
            raise Unreadable(f"This would not count: {'; '.join(lost)}. A comment begins with `# `.")
        return read.plan
    try:
        # A user's JSON is not repaired as a model's is: that would drop the rest of a file that was cut.
        given = json.loads(text, parse_float=read_float)
        return check_plan(msgspec.convert(given.get("plan", given), Plan), tools)
    except msgspec.ValidationError as why:
        raise Unreadable(f"This is no plan: {why}. {JSON_SHAPE}") from None
    except ValueError as why:
        raise Unreadable(f"Its JSON can't be read: {why}.") from None
    except RecursionError:
        raise Unreadable(f"Its JSON is nested too deep. {JSON_SHAPE}") from None


def reads_as_plan(text: str) -> bool:
    """Return whether a user's answer is meant as a plan: it has a step, or is an object."""
    return text.lstrip()[:1] == "{" or any(part.id for part in parts_of(text)[1])


def check_plan(
    plan: Plan, tools: Iterable[ToolSpec], troubles: Sequence[str] = (), *, check_inputs: bool = False
) -> Plan:
    """Return the plan with ids in one form, and the needs of each step read from its input.

    `tools` are all that it may call: those of a loop whose steps may ask the model include it (`with_llm`). Raises
    `Unreadable` with `troubles` and all errors because of which it cannot run with them. `check_inputs`: also reject
    inputs that a tool cannot take.
    """
    found, tools = list(troubles), tuple(tools)
    steps: list[Step] = []
    for step in plan.steps:
        if step.tool and not _ID.fullmatch(step.id):
            found.append(f"'{step.id}' is no name for a step: it is E and a number, such as E1.")
        needs = EVIDENCE.find_ids(step.input) if step.tool else ()
        steps.append(structs.replace(step, id=_one_way(step.id) if step.tool else "", needs=needs))
    evidence = {_one_way(id): text for id, text in plan.evidence.items()}
    plan = Plan(tuple(steps), evidence)
    if not plan.calls and not found:
        found.append("The plan has no step that calls anything.")
    found += plan.problems(tools, EVIDENCE.is_open if check_inputs else None)
    if any(step.tool == LLM for step in plan.calls) and not any(tool.name == LLM for tool in tools):
        found.append("This loop has no phase 'work', so its steps cannot ask the model.")
    for step in () if found else plan.calls:
        try:
            write_step(step)
        except ValueError as why:
            found.append(str(why))
    if found:
        raise Unreadable(" ".join(dict.fromkeys(found)))
    return plan


def write_plan(plan: Plan) -> str:
    """Return the canonical text of a plan, without evidence; `read_plan` reads the same steps back, with no remarks.
    Numbers and booleans are written as JSON and so read back as text. A step's purpose is written on one line; a step
    that is only a thought is dropped if it has none. Raises ValueError as `write_step` does."""
    lines: list[str] = []
    thought_only = False
    for step in plan.steps:
        why = STEPS.add(" ".join(lines_of(step.why)))
        if why or (step.tool and thought_only):
            lines.append(f"Plan: {why}".rstrip())
        if step.tool:
            lines.append(write_step(step))
        thought_only = not step.tool
    return "\n".join(lines)


def write_step(step: Step) -> str:
    """Return the line of a call: `#E1 = Tool[input]`. Raises ValueError for a tool's name or an id that the form cannot
    hold, and for input that JSON cannot hold."""
    if not is_plain_name(step.tool) or set(step.tool) & set("()="):
        raise ValueError(f"A tool named {step.tool!r} can't be written as `{step.tool}[...]`.")
    if not _ID.fullmatch(step.id):
        raise ValueError(f"A step can't be called {step.id!r}: it is E and a number, such as E1.")
    return f"#{_one_way(step.id)} = {step.tool}[{_input_text(step.tool, step.input)}]"


def written_input(step: Step, tool: ToolSpec | None) -> str:
    """Return the text in a step's brackets: as the planner wrote it, or as `write_step` does if that was changed."""
    with suppress(Unreadable):
        if step.written and input_of(step.written, tool, []) == step.input:
            return step.written
    return _input_text(step.tool, step.input)


class PlanStream(Stream[PlanRead]):
    """A plan that streams in: calls, and thoughts without labels. A line without a head belongs to the one above."""

    kind: PieceKind = "thought"

    def split(self, text: str, *, last: bool) -> None:
        *lines, rest = text.split("\n")
        if lines:
            lines[0], self._held = "".join((*self._held, lines[0])), []
        self._held.append(rest)
        for line in (*(f"{line}\n" for line in lines), *(["".join(self._held)] if last else [])):
            at = 0
            for head in HEAD.finditer(line):
                self.show(self.kind, line[at : head.start()])
                is_plan = head["plan"] is not None
                self.kind, at = ("thought", head.end()) if is_plan else ("action", head.start())
                while is_plan and line[at : at + 1] == " ":  # separates the label from the thought
                    at += 1
            self.show(self.kind, line[at:])


@dataclass(frozen=True)
class EvidencePlans(Codec[PlanRead]):
    """Plans of lines `Plan: why` and `#E1 = Tool[input]`, with at most `most` calls. `tools` come from `with_llm`."""

    most: int = MAX_STEPS

    name: ClassVar[str] = "evidence_plans"
    stream_kind = PlanStream

    def read(self, text: str, n: int = 1, tools: Sequence[ToolSpec] = ()) -> PlanRead:
        return read_plan(text, tools, self.most)

    def write_calls(self, calls: Sequence[Call], thought: str = "", n: int = 1) -> str:
        steps = [Step(f"E{i}", call.tool, call.input) for i, call in enumerate(calls, 1)]
        return write_plan(Plan((Step("", why=thought or "Do it."), *steps)))

    def write(self, reading: PlanRead, n: int = 1) -> str:
        return write_plan(reading.plan)

    def escape(self, text: str, tools: Sequence[ToolSpec] = (), inline: bool = False) -> str:
        """Put a backslash into anything that would read as part of a plan or as other evidence."""
        for pattern in SHOWN:
            text = pattern.sub(r"\1\\", text)
        return text

    def describe(self, tools: Iterable[ToolSpec]) -> str:
        """Return a line for each tool: `(1) Name[input]: what for. Input: ... Returns: ...`."""
        return "\n".join(
            f"({number}) {tool.name}[{'input' if argument_types(tool) else ''}]: {describe_tool(tool)}"
            for number, tool in enumerate(tools, 1)
        )

    def grammar(self, tools: Iterable[ToolSpec], n: int = 1, *, opened: bool = False) -> str:
        """Return GBNF of plans: numbered from 1, known tools, inputs on one line."""
        rules = ["root ::= s1"]
        for n in range(1, self.most + 1):
            more = f' ( "\\n" s{n + 1} )?' if n < self.most else ""
            rules.append(f's{n} ::= "Plan: " thought "\\n#E{n} = " name "[" input "]"{more}')
        rules += [
            f"name ::= {gbnf.one_of(tool.name for tool in tools)}",
            "input ::= inside{0,300}",
            r'inside ::= [^\[\]\r\n] | "[" inside* "]"',
            gbnf.THOUGHT_RULE,
        ]
        return "\n".join(rules)


PLANS = EvidencePlans()


def _step(part: Part, why: str, tools: Sequence[ToolSpec], remarks: list[Remark]) -> Step:
    called = call_of(part.text, tools, remarks)
    if called is None:
        raise Unreadable(f"Step {part.id} calls no tool: write `#{part.id} = Tool[input]`.")
    if _GOES_ON.match(called.rest):
        raise Unreadable(
            f"Step {part.id} goes on after its call. A step is one call and nothing more; compute in a tool."
        )
    name = tool_name(called.name, tools, remarks)
    tool = tool_named(name, tools)
    given = input_of(called.raw, tool, remarks)
    rest = " ".join(lines_of(called.rest))
    as_data = name == LLM or not isinstance(given, str) or called.raw.lstrip().startswith('"')
    inside = rest if as_data else f"{given}\n{rest}"
    if other := next((match[1] for match in _CALLED.finditer(inside) if any(t.name == match[1] for t in tools)), ""):
        raise Unreadable(f"Step {part.id} has a further call, of {other}. Give each call a step of its own.")
    if rest and any(char.isalnum() for char in rest):
        remarks.append(cut(f"{len(rest)} characters after the call of {part.id} (line {part.line})"))
    raw = called.raw.strip()
    with suppress(ValueError):
        raw = "" if raw == _input_text(name, given) else raw
    return Step(part.id, name, given, why, EVIDENCE.find_ids(given), raw)


def _unnamed(before: str, parts: Sequence[Part], tools: Sequence[ToolSpec], steps: Sequence[Step]) -> list[str]:
    """Return the errors for calls of known tools that do not name their result and would be lost."""
    names = {tool.name for tool in tools}
    made = {(step.tool, step.input) for step in steps if isinstance(step.input, str)}
    lines = [line for text in (before, *(part.text for part in parts if not part.id)) for line in text.split("\n")]
    found = [match for line in lines if (match := _UNNAMED.fullmatch(line.strip())) is not None and match[1] in names]
    return [
        f"A call of {match[1]} has no name for its result. Write `#E1 = {match[1]}[input]` with a number of its own."
        for match in found
        if match[2].strip() not in ("", "input") and (match[1], match[2].strip()) not in made
    ]


def _input_text(tool: str, given: JSON) -> str:
    if given is None:
        return ""
    if isinstance(given, str) and is_plain_input(given) and _comes_back(tool, given):
        return given
    dumped = write_json(given, f"The input of {tool!r}")
    return STEPS.armed.sub(lambda match: "\\u0023" + match[0][1:], dumped)


@lru_cache(maxsize=256)  # a run asks it of the same inputs, each time it shows its plan
def _comes_back(tool: str, text: str) -> bool:
    """Return whether the text reads back unchanged when written as it is."""
    if _CALLED.search(text) is not None:
        return False
    remarks: list[Remark] = []
    _, parts = parts_of(f"#E1 = {tool}[{text}]")
    if len(parts) != 1:
        return False
    try:
        called = call_of(parts[0].text, (), remarks)
        return called is not None and not remarks and not called.rest and input_of(called.raw, None, remarks) == text
    except Unreadable:
        return False


def _one_way(id: str) -> str:
    match = _ID.fullmatch(id)
    return f"E{int(match[1])}" if match else id
