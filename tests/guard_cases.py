"""Lenient inputs, guards and loops: does an amount above the limit get past a guard, and does each tool get what the
guards saw? For tests/test_guards.py and the campaign."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import structs
from pydantic import BaseModel, Field
from pydantic_core import core_schema

import plait
from plait.core import Call, Reply, Waiting

LIMIT = 1000
GOT: list[tuple[str, dict[str, Any]]] = []
"""What the tools got: the tool's name, and its arguments by name."""


class Order(BaseModel):
    to: str = Field("Ada", alias="Recipient")
    amount: float = Field(5000, alias="Sum", exclude=True)


@dataclass
class Parts:
    first: int = 0
    rest: list[float] = field(default_factory=lambda: [5000.0])


class Account:
    """A type of a user's, which no serializer knows."""

    def __init__(self, name: str) -> None:
        self.name, self.root = name, "constant"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Account) and other.name == self.name

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        return core_schema.no_info_after_validator_function(cls, core_schema.str_schema())


@plait.tool
def pay(to: str, amount: float) -> str:
    """Pays."""
    return took("pay", to=to, amount=amount)


@plait.tool
def pay_default(to: str, amount: int = 5000) -> str:
    """Pays."""
    return took("pay_default", to=to, amount=amount)


@plait.tool
def pay_order(order: Order) -> str:
    """Pays."""
    return took("pay_order", order=order)


@plait.tool
def pay_parts(to: str, parts: Parts) -> str:
    """Pays."""
    return took("pay_parts", to=to, parts=parts)


@plait.tool
def pay_all(to: str, *amounts: float) -> str:
    """Pays."""
    return took("pay_all", to=to, amounts=list(amounts))


@plait.tool
def pay_more(to: str, /, amount: float = 0, **more: float) -> str:
    """Pays."""
    return took("pay_more", to=to, amount=amount, **more)


@plait.tool
def pay_exactly(to: str, amount: Decimal | Literal["all"]) -> str:
    """Pays."""
    return took("pay_exactly", to=to, amount=amount)


@plait.tool
def pay_row(row: dict[str, Any]) -> str:
    """Pays."""
    return took("pay_row", row=row)


@plait.tool
def pay_typed(to: Account, amounts: Iterable[float], bill: Path = Path("/bill")) -> str:
    """Pays."""
    return took("pay_typed", to=to, amounts=amounts, bill=bill)


TOOLS = {
    each.name: each
    for each in (pay, pay_default, pay_order, pay_parts, pay_all, pay_more, pay_exactly, pay_row, pay_typed)
}


def took(tool: str, **given: Any) -> str:
    GOT.append((tool, given))
    return "paid"


def plain(value: Any) -> Any:
    """The JSON form of what a tool got."""
    match value:
        case BaseModel():
            return {name: plain(getattr(value, name)) for name in type(value).model_fields}
        case Parts():
            return {"first": plain(value.first), "rest": plain(value.rest)}
        case Account():
            return value.name
        case Path():
            return str(value)
        case Decimal():
            return int(value) if value == int(value) else float(value)
        case dict():
            return {str(name): plain(each) for name, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
    return value


def amounts_in(value: Any) -> list[float]:
    """Every number in a value. A row without types may have text, which stays text."""
    if isinstance(value, dict):
        return [each for name, inner in value.items() if name != "to" for each in amounts_in(inner)]
    if isinstance(value, list):
        return [each for inner in value for each in amounts_in(inner)]
    return [value] if isinstance(value, int | float) else []


def is_large(call: Call) -> bool:
    """A guard as a user would write it for these tools: it knows the parameters by name."""
    given = call.input if isinstance(call.input, dict) else {}
    match call.tool:
        case "pay" | "pay_default" | "pay_exactly":
            amount = given.get("amount", 0)
            return amount != "all" and amount > LIMIT
        case "pay_more":
            return any(each > LIMIT for name, each in given.items() if name != "to")
        case "pay_order":
            return given.get("order", {}).get("amount", 0) > LIMIT
        case "pay_parts":
            return any(each > LIMIT for each in amounts_in(given.get("parts", {})))
        case "pay_all" | "pay_typed":
            return any(each > LIMIT for each in given.get("amounts", []))
        case "pay_row":
            return any(each > LIMIT for each in amounts_in(given.get("row", {})))
    return False


def set_amount(call: Call, amount: float) -> Call:
    """The call with each number replaced."""

    def inside(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: each if name == "to" else inside(each) for name, each in value.items()}
        if isinstance(value, list):
            return [inside(each) for each in value]
        return amount if isinstance(value, int | float) else value

    return structs.replace(call, input=inside(call.input))


# -- inputs


def spellings(amount: int) -> list[Any]:
    """How a model may write a number."""
    texts = [f"{amount:,}", f" {amount}", f"{amount}.0", f"+{amount}", f"{amount / 10:g}e1", f"{amount:_}", str(amount)]
    return [amount, float(amount), *texts]


def inputs(tool: str, amount: int) -> list[Any]:
    """What a model may write for a call: by name, in order, as text, as JSON in a text, with other names."""
    found: list[Any] = []
    for number in spellings(amount):
        match tool:
            case "pay_order":
                inner = [{"Recipient": "Ada", "Sum": number}, {"to": "Ada", "amount": number}]
                inner += [{"Recipient": "Ada", "Sum": 1, "amount": number}, {"Recipient": "Ada", "sum": number}]
                found += [*inner, *({"order": each} for each in inner), *([each] for each in inner)]
                found += [{"Order": inner[0]}, {"order": json.dumps(inner[0])}, json.dumps(inner[0])]
            case "pay_parts":
                inner = [{"first": 1, "rest": [number]}, {"rest": number}, {"first": number, "rest": []}]
                found += [[{"to": "Ada", "parts": each}, ["Ada", each], {"TO": "Ada", "Parts": each}] for each in inner]
                found[-3:] = [each for three in found[-3:] for each in three]
            case "pay_all":
                found += [["Ada", number], ["Ada", 1, number], {"to": "Ada", "amounts": [number]}]
                found += [{"to": "Ada", "amounts": number}, {"to": "Ada", "Amounts": [1, number]}]
            case "pay_typed":
                found += [
                    ["Ada", [number]],
                    ["Ada", [1, number], "/x"],
                    {"TO": "Ada", "Amounts": [number], "bill": "a"},
                ]
                found += [{"to": "Ada", "amounts": json.dumps([number])}, {"to": "Ada", "amounts": number}]
            case "pay_row":
                found += [{"row": {"fee": number}}, {"fee": number}, [{"fee": number}], {"row": {"row": number}}]
                found += [json.dumps({"fee": number}), {"row": {"a": {"b": [number]}}}]
            case _:
                found += [{"to": "Ada", "amount": number}, ["Ada", number], {"To": "Ada", "AMOUNT": number}]
                found += [{"to": "Ada", "amount ": number}, {"to": "Ada", "amount": 1, "Amount": number}]
                found += [
                    {"to": "Ada", "fee": number},
                    {"pay": {"to": "Ada", "amount": number}},
                    {"args": ["Ada", number]},
                ]
                found += [json.dumps({"to": "Ada", "amount": number}), json.dumps(["Ada", number])]
                found += [f"to: Ada, amount: {number}", f'"Ada", {number}', f"to='Ada', amount={number}"]
    if amount > LIMIT:
        found += {"pay_default": ["Ada", ["Ada"], {"to": "Ada"}], "pay_order": [{}, {"order": {}}]}.get(tool, [])
        found += {"pay_parts": [["Ada", {}], {"to": "Ada", "parts": {}}]}.get(tool, [])
    return found


# -- loops


def action(tool: str, given: Any) -> str:
    return f"Thought: I pay.\nAction:\n```json\n{json.dumps({'action': tool, 'action_input': given})}\n```\n"


FINAL = "Thought: Done.\nFinal Answer: ok"


def as_code(tool: str, given: Any) -> str:
    """The call in Python."""
    match given:
        case dict() if all(map(str.isidentifier, given)):
            return f"{tool}({', '.join(f'{name}={value!r}' for name, value in given.items())})"
        case list():
            return f"{tool}({', '.join(map(repr, given))})"
    return f"{tool}({given!r})"


def code(text: str) -> str:
    return f"I pay.\nACTION 1:\n```python\ntry:\n    {text}\nexcept Exception as e:\n    print(e)\nstop('ok')\n```"


def phased_list(tool: str, given: Any) -> str:
    return json.dumps([{"ACTION": tool, "ARGUMENTS": given, "EXPLANATION": "x"}])


LOOPS: dict[str, Callable[[str, Any], Any]] = {
    "react": lambda tool, given: [action(tool, given), FINAL, FINAL],
    "json": lambda tool, given: [
        json.dumps({"thought": "t", "tool": tool, "tool_input": given}),
        *[json.dumps({"thought": "t", "tool": "final_answer", "tool_input": "ok"})] * 2,
    ],
    "tool_calling": lambda tool, given: [Reply("", calls=(Call(tool, given, "1"),)), "ok", "ok"],
    "phased": lambda tool, given: {"reason": ["r"] * 3, "react": [phased_list(tool, given)] * 3, "reply": ["ok"] * 3},
    "rewoo": lambda tool, given: {"plan": [f"Plan: a\n#E1 = {tool}[{json.dumps(given)}]\n"] * 3, "solve": ["ok"] * 3},
    "compiler": lambda tool, given: {
        "plan": [f"1. {as_code(tool, given)}\n2. join()\n"] * 3,
        "join": ["Thought: d\nFinish: ok"] * 3,
    },
    "codeact": lambda tool, given: {"decompose": ["1. x"], "act": [code(as_code(tool, given))] * 3},
}


# -- guards


class Watch(plait.Hook):
    """Sees every call and decides nothing."""

    def __init__(self) -> None:
        self.saw: list[tuple[str, Any]] = []

    def before_tool(self, context: plait.Context[Any], call: Call) -> None:
        self.saw.append((call.tool, msgspec.to_builtins(call.input)))


class Refuses(plait.Hook):
    def before_tool(self, context: plait.Context[Any], call: Call) -> plait.Refuse | None:
        return plait.Refuse("too large") if is_large(call) else None


class Asks(plait.Hook):
    def before_tool(self, context: plait.Context[Any], call: Call) -> plait.AskApproval | None:
        return plait.AskApproval("It is large.") if is_large(call) else None


class Lowers(plait.Hook):
    def before_tool(self, context: plait.Context[Any], call: Call) -> Call | None:
        return set_amount(call, LIMIT) if is_large(call) else None


class Raises(plait.Hook):
    """Makes each amount large, in words that a tool reads as a number."""

    def before_tool(self, context: plait.Context[Any], call: Call) -> Call | None:
        return None if is_large(call) or call.tool not in TOOLS else set_amount(call, 5000)


class Scribbles(plait.Hook):
    """Writes into the input that it was given, and returns nothing."""

    def before_tool(self, context: plait.Context[Any], call: Call) -> None:
        if isinstance(call.input, dict):
            call.input.update(set_amount(call, 5000).input)


def scribbles(call: Call) -> bool:
    if isinstance(call.input, dict):
        call.input.update(set_amount(call, 5000).input)
    return False


Case: TypeAlias = tuple[str, str, str, str, Any, Any]
"""A guard, a path, a loop, a tool, its input, and the input of an edit."""

GUARDS = ("refuse", "refuse last", "ask", "lower", "raise", "scribble", "approve", "question", "edit", "two edits")
PATHS = ("direct", "child", "resume")


@dataclass
class Tried:
    """What came of one try: whether a guard was passed, what differed, and whether the tool was reached."""

    fell: str = ""
    differs: str = ""
    reached: bool = False


def try_guard(case: Case, folder: Path) -> Tried:
    """Run a loop that makes one call under one guard."""
    guard, path, loop, tool, given, other = case
    GOT.clear()
    watch = Watch()
    hooks: dict[str, list[plait.Hook]] = {
        "refuse": [watch, Refuses()],
        "refuse last": [Lowers(), Raises(), Refuses(), watch],
        "ask": [Asks(), watch],
        "lower": [Lowers(), watch],
        "raise": [Refuses(), Raises(), watch],
        "scribble": [Scribbles(), Refuses(), watch],
        "edit": [Refuses(), watch],
        "two edits": [Refuses(), watch],
    }
    policy: Any = {"approve": is_large, "scribble": scribbles}.get(guard, "never")
    if guard in ("question", "edit", "two edits") or (path == "resume" and guard not in ("ask", "approve", "scribble")):
        policy = "effects"
    script = LOOPS[loop](tool, given)

    def make() -> plait.Agent[Any]:
        model = plait.Scripted(script)
        limits = plait.Limits(tools=0 if loop == "codeact" else None, steps=4)
        made: plait.Agent[Any] = plait.Agent(
            loop, model=model, tools=[TOOLS[tool]], limits=limits, journal=folder / "runs.db"
        )
        given: dict[str, Any] = {"hooks": hooks.get(guard, [watch]), "approve": policy}
        if path != "child":
            return made.using(**given)
        above = plait.Scripted([action("ask_agent", "pay"), FINAL, FINAL])
        return plait.Agent("react", model=above, tools=[made.as_tool()], journal=folder / "runs.db", **given)

    agent = make()
    run = agent.run("Pay Ada.")
    asked: list[Any] = []
    edits = {"edit": [other], "two edits": [{}, other]}.get(guard, [])
    for _ in range(8):
        if not isinstance(run.outcome, Waiting):
            break
        asked.append(run.outcome.input)
        shown = re.search(r"called with (\{.*?\})\?", run.reason or "", re.S)
        if run.outcome.tool == tool and (shown is None or json.loads(shown[1]) != run.outcome.input):
            return Tried(differs=f"the question is {run.reason}, and the outcome has {run.outcome.input}")
        answer = "no" if guard in ("ask", "approve") else "yes"
        if run.outcome.tool == tool and edits:
            answer = f"edit {json.dumps(edits.pop(0))}"
        if path == "resume":
            agent = make()
        try:
            run = agent.resume(run, answer)
        except plait.PlaitError:  # an edit that does not fit leaves the question open
            run = agent.resume(run, "yes")
    result = Tried(reached=bool(GOT))
    for name, arguments in GOT:
        got = plain(arguments)
        large = is_large(Call(name, got))
        if large and guard != "question":
            result.fell = f"{run.status} {run.reason}: the tool got {got}"
        saw = [each for each in watch.saw if each[0] == name][-1:] + [(name, each) for each in asked[-1:]]
        for _, seen in saw if "edit" not in guard else saw[:1]:
            if json.dumps(seen, sort_keys=True) != json.dumps(got, sort_keys=True):
                result.differs = f"the guard saw {seen}, and the tool got {got}"
    return result


def cases() -> list[Case]:
    """Every guard, path, loop, tool and input, in a fixed order."""
    found: list[Case] = []
    for guard, path, loop, tool in product(GUARDS, PATHS, LOOPS, TOOLS):
        large, small = inputs(tool, 5000), inputs(tool, 5)
        if guard in ("edit", "two edits"):
            found += [(guard, path, loop, tool, small[0], each) for each in large]
        elif guard in ("raise", "scribble"):
            found += [(guard, path, loop, tool, each, None) for each in small]
        else:
            found += [(guard, path, loop, tool, each, None) for each in (*large, *small)]
    return found
