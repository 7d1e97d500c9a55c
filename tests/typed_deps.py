"""Right programs with `Agent[Deps, Output]`, for `check_typing.py`: mypy --strict and pyright must accept each line."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Literal, Protocol, TypeVar, assert_type

import plait
from plait.core import Call
from plait.tools import FunctionTool

D = TypeVar("D")
O = TypeVar("O")  # noqa: E741


@dataclass
class Db:
    """What tools need."""

    rows: list[str]


class Postgres(Db):
    """A kind of it."""


@dataclass
class Cache:
    """Something else."""

    size: int


class Clock(Protocol):
    """A protocol as dependencies."""

    def now(self) -> float: ...


class Sun:
    """Has it."""

    def now(self) -> float:
        return 12.0


@dataclass
class Trip:
    """A typed answer."""

    city: str
    days: int


# 1. Tools: functions with and without the decorator, with each kind of context; methods, objects, classes, words.
@plait.tool
def save(ctx: plait.Context[Db], text: str, times: int = 1) -> int:
    """Save a text."""
    ctx.deps.rows.extend([text] * times)
    return len(ctx.deps.rows)


@plait.tool(read_only=True)
async def find(ctx: plait.Context[Db], word: str) -> list[str]:
    """Find rows."""
    return [row for row in ctx.deps.rows if word in row]


@plait.tool
def show_all(ctx: plait.Context[Db]) -> dict[str, Any]:
    """Show it all."""
    return {"rows": ctx.deps.rows}


@plait.tool
def add(left: int, right: int = 0) -> int:
    """Add."""
    return left + right


@plait.tool
def report(ctx: plait.Context[None], text: str) -> str:
    """Needs no dependencies."""
    ctx.report_progress(text)
    return text


@plait.tool
def peek(ctx: plait.Context[Any], text: str) -> str:
    """Takes all dependencies."""
    return f"{ctx.deps} {text}"


@plait.tool
def look(ctx: plait.Context, text: str) -> str:
    """Does not say."""
    return text


@plait.tool
def tell_time(ctx: plait.Context[Clock]) -> float:
    """Tell the time."""
    return ctx.deps.now()


@plait.tool
def choose(size: Literal["small", "large"], trip: Trip | None = None) -> str:
    """Has special parameters."""
    return size


def plain(ctx: plait.Context[Db], text: str) -> str:
    """No decorator."""
    return text


class Shop:
    """An object whose methods are tools."""

    def buy(self, item: str) -> str:
        """Buy."""
        return item

    @plait.tool
    def sell(self, ctx: plait.Context[Db], item: str) -> str:
        """Sell."""
        return f"{item} {ctx.deps.rows}"

    @plait.tool(read_only=True)
    def price(self, item: str) -> float:
        """Needs no context."""
        return len(item)


assert_type(save(plait.Context(Db([])), "x", times=2), int)
assert_type(add(left=1, right=2), int)
assert_type(report(plait.Context(None), "x"), str)
print(Shop().price("x"), Shop().sell(plait.Context(Db([])), item="x"), Shop().sell.name, Shop.sell)
print(save.name, add.spec, find.timeout)

many = [save, find, show_all, add, report, peek, look, choose]
agent = plait.Agent(deps=Db, tools=[plain, Shop(), Shop, Shop().buy, Shop().sell, Shop().price, *many])
mixed = plait.Agent(
    "react", tools=[save, "calculator", Shop(), Shop, len, plain, lambda text: text, partial(plain)], deps=Db
)
assert_type(mixed, plait.Agent[Db, str])

# 2. Both types are inferred; without deps= none is needed.
typed = plait.Agent(deps=Db, output=Trip, tools=[save, find])
assert_type(typed, plait.Agent[Db, Trip])
assert_type(typed.run("?", deps=Db([])), plait.Run[Trip])
assert_type(typed.run("?", deps=Db([])).output.days, int)
assert_type(plait.Agent(), plait.Agent[Any, str])
assert_type(plait.Agent(output=list[int]), plait.Agent[Any, list[int]])
assert_type(plait.Agent(deps=None), plait.Agent[Any, str])
plait.Agent(deps=None, tools=[report, add]).run("?", deps=None)
plait.Agent(instructions=lambda deps: f"Serve {deps}.").run("?", deps="Ann")

# 3. A subclass as dependencies, of a run and of an agent; a protocol; a generic type; a word.
typed.run("?", deps=Postgres([]))
assert_type(plait.Agent(deps=Postgres, tools=[save, find]), plait.Agent[Postgres, str])
plait.Agent(deps=Sun, tools=[tell_time]).run("?", deps=Sun())
plait.Agent(deps=Clock, tools=[tell_time]).run("?", deps=Sun())
plait.Agent(deps=dict[str, int]).run("?", deps={"a": 1})
plait.Agent(deps=str).run("?", deps="ada")

# 4. Unions and literals as output, with type arguments.
either = plait.Agent[None, int | str](output=int | str)
assert_type(either.run("?").output, int | str)
sized = plait.Agent[Db, Literal["a", "b"]](output=Literal["a", "b"], deps=Db, tools=[save])
assert_type(sized.run("?", deps=Db([])).output, Literal["a", "b"])
schema: plait.Agent[Any, Any] = plait.Agent(output={"type": "object"})
checked = plait.Agent(deps=Db, output=plait.OutputType(Trip, checks=[lambda trip: None]))
assert_type(checked, plait.Agent[Db, Trip])

# 5. `using` keeps both types, or changes one of them or both.
assert_type(typed.using(limits=plait.Limits(steps=3), journal=False), plait.Agent[Db, Trip])
assert_type(typed.using(output=list[int], model="local"), plait.Agent[Db, list[int]])
assert_type(plait.Agent(output=Trip).using(deps=Cache, can_ask=False), plait.Agent[Cache, Trip])
assert_type(plait.Agent().using(deps=Db, output=Trip, tools=[save, "calculator"]), plait.Agent[Db, Trip])
assert_type(typed.using(tools=[*typed.tools, add, save]), plait.Agent[Db, Trip])
assert_type(typed.using(deps=None, tools=[]), plait.Agent[Any, Trip])
settings: dict[str, Any] = {"model": "local", "approve": "effects"}
plait.Agent(**settings).using(**settings)


# 6. Helper functions over agents.
def run_twice(agent: plait.Agent[D, O], question: str, deps: D) -> tuple[O, O]:
    """For all agents."""
    return agent.run(question, deps=deps).output, agent.run(question, deps=deps).output


def make_careful(agent: plait.Agent[D, O]) -> plait.Agent[D, O]:
    """Return a changed copy."""
    return agent.using(approve="always", tools=[*agent.tools, "calculator"])


def ask(agent: plait.Agent[Db, Any]) -> str:
    """For agents that work with a Db."""
    return str(agent.run("?", deps=Db([])).answer)


def count_steps(agent: plait.Agent, question: str) -> int:
    """For all agents with text."""
    return agent.run(question).steps


def extract(agent: plait.Agent[Any, Trip]) -> Trip:
    """For all agents with trips."""
    return agent.run("?", deps=Db([])).output


assert_type(run_twice(typed, "?", Db([])), tuple[Trip, Trip])
assert_type(make_careful(typed), plait.Agent[Db, Trip])
ask(typed)
ask(plait.Agent(output=Trip))
count_steps(agent, "?")
extract(typed)
extract(plait.Agent(output=Trip))


# 7. A subclass of an agent, and a generic class with one.
class Support(plait.Agent[Db, Trip]):
    """An agent of its own."""

    def plan_trip(self, city: str, db: Db) -> Trip:
        return self.run(city, deps=db).output


@dataclass
class Service(Generic[D, O]):
    """Runs an agent with its dependencies."""

    agent: plait.Agent[D, O]
    deps: D

    def answer(self, question: str) -> O:
        return self.agent.run(question, deps=self.deps).output


assert_type(Support(deps=Db, output=Trip).plan_trip("Lyon", Db([])), Trip)
assert_type(Service(typed, Db([])).answer("?"), Trip)

# 8. Lists and tables of agents of several types.
several: list[plait.Agent[Any, Any]] = [agent, typed, either, plait.Agent()]
for each in several:
    print(each.run("?", deps=Db([])).answer)
by_name: dict[str, plait.Agent[Db, Trip]] = {"typed": typed, "checked": checked, "any": plait.Agent(output=Trip)}
assert_type(by_name["typed"].run("?", deps=Db([])).output, Trip)
rows: Sequence[plait.Agent] = [agent, mixed, plait.Agent()]

# 9. Agents as tools: with the same dependencies, with none, and in a tool.
plait.Agent(deps=Db, tools=[agent.as_tool(), typed.as_tool("trip", "Plans."), plait.Agent().as_tool("other")])
plait.Agent(deps=Postgres, tools=[agent.as_tool()])
plait.Agent(deps=Db, tools=[either.as_tool(), plait.Agent(deps=None).as_tool("none")])


@plait.tool
async def delegate(ctx: plait.Context[Db], question: str) -> int:
    """Ask another agent."""
    assert_type((await ctx.arun(typed, question)).output, Trip)
    return len((await ctx.arun(agent, question, deps=ctx.deps)).id)


# 10. Tools in variables and from functions.
tools = [save, find]
plait.Agent(deps=Db, tools=tools)
unsorted: list[object] = [save, "calculator"]
plait.Agent(deps=Db, tools=unsorted)
named: tuple[plait.Tool, ...] = (save, add, agent.as_tool())
plait.Agent(deps=Postgres, tools=named)


def make_tools(words: Iterable[str]) -> list[plait.Tool | str | Callable[..., Any]]:
    """Return tools of all kinds."""
    return [save, add, len, *words]


plait.Agent(deps=Db, tools=make_tools(["calculator"]))


def make_tool(table: str) -> FunctionTool[..., str]:
    """Return a tool of an inner function."""

    @plait.tool(name=f"read_{table}", read_only=True)
    def read(ctx: plait.Context[Db], row: int) -> str:
        return ctx.deps.rows[row]

    return read


plait.Agent(deps=Db, tools=[make_tool("users"), make_tool("orders")])


# 11. Hooks and guards: for all dependencies, or for some.
class Quiet(plait.Hook):
    """Does not say for which."""

    def before_tool(self, context: plait.Context[Any], call: Call) -> None:
        print(context.deps)


class Watch(plait.Hook[Db]):
    """For a Db."""

    async def before_tool(self, context: plait.Context[Db], call: Call) -> plait.Refuse | None:
        return plait.Refuse("full") if len(context.deps.rows) > 9 else None


class Spend(plait.Guard[Db]):
    """For a Db, too."""

    def start(self, context: plait.Context[Db]) -> "Spend":
        print(context.deps.rows)
        return self


plait.Agent(deps=Db, hooks=[Quiet(), Watch(), Spend(), "redact", plait.hooks.RetryTools()])
plait.Agent(deps=Postgres, hooks=[Watch()]).using(hooks=[Spend(), Quiet()])
hooks: list[plait.Hook] = [Quiet(), Watch()]
plait.Agent(deps=Cache, hooks=hooks)


# 12. Instructions and approvals.
def instruct(db: Db) -> str:
    """Return instructions."""
    return f"{len(db.rows)} rows"


class Instructor:
    """Has a method for them."""

    def instruct(self, db: Db, polite: bool = True) -> str:
        return "Please." if polite else ""


plait.Agent(deps=Db, instructions=instruct)
plait.Agent(deps=Postgres, instructions=instruct)
plait.Agent(deps=Db, instructions=Instructor().instruct)
plait.Agent(deps=Db, instructions=lambda db: str(len(db.rows)))
plait.Agent(deps=Db, instructions=lambda: "Be kind.")
plait.Agent(deps=Db, instructions="Be kind.", approve=lambda call: call.tool == "save").using(instructions=instruct)


# 13. All ways to run.
async def run_all(run: plait.Run[Trip]) -> None:
    """Use each method with dependencies."""
    db = Db([])
    assert_type(await typed.arun("?", deps=db, label="x"), plait.Run[Trip])
    async for event in typed.stream("?", deps=db):
        print(event)
    assert_type(typed.resume("last", "yes", deps=db), plait.Run[Trip])
    assert_type(await typed.aresume(run, deps=db), plait.Run[Trip])
    assert_type(typed.fork(run, 2, deps=db), plait.Run[Trip])
    assert_type(await typed.afork(run.id, 2, deps=None), plait.Run[Trip])
    assert_type(typed.with_plan("..."), plait.Agent[Db, Trip])


# 14. Dependencies from an async context manager.
@asynccontextmanager
async def open_db() -> AsyncIterator[Db]:
    """Open it for one run."""
    yield Db([])


async def serve() -> str:
    """Use it."""
    async with open_db() as db:
        return str((await agent.arun("?", deps=db)).answer)


# 15. Dependencies that may be None, and a union.
def run_maybe(db: Db | None) -> None:
    """Pass on what there is."""
    agent.run("?", deps=db)


wide = plait.Agent[Db | Cache, str](tools=[report])
wide.run("?", deps=Db([]))
wide.run("?", deps=Cache(1))
narrow: plait.Agent[Db, str] = wide


# 16. Unannotated code.
@plait.tool
def loose(first, text="x"):  # type: ignore[no-untyped-def]
    """Says nothing."""
    return text


@plait.tool
def half(first: int, second=2):  # type: ignore[no-untyped-def]
    """Says little."""
    return first + second


@plait.tool
def hold(first: int, second: Any, third: dict[str, Any]) -> int:
    """Says little, too."""
    return first


@plait.tool(read_only=True)
def keep(value: object, text: str = "") -> str:
    """Takes all."""
    return f"{value} {text}"


@plait.tool
def count(*values: Any, **named: Any) -> int:
    """Takes all."""
    return len(values) + len(named)


plait.Agent(deps=Db, tools=[loose, half, hold, keep, count])
half(first=1, second=3)
hold(first=1, second=2, third={})
loose(first=1, text="y")
assert_type(keep(value=1, text="y"), str)
print(count(1, 2, a=3), count(), count(b=3))
