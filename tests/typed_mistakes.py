"""Mistakes of users, for `check_typing.py`. Each marked line must be reported by mypy and by pyright, with those rules.

No other line may be reported. Nobody runs this file.
"""

from dataclasses import dataclass
from typing import assert_type

import plait
from plait.core import Call


@dataclass
class Db:
    """What the tools need."""

    rows: list[str]


@dataclass
class Cache:
    """Something else."""

    size: int


@dataclass
class Trip:
    """A typed answer."""

    city: str
    days: int


@plait.tool
def save(ctx: plait.Context[Db], text: str) -> int:
    """Save a text."""
    print(ctx.deps.size)  # wrong: attr-defined, reportAttributeAccessIssue
    return len(ctx.deps.rows)


@plait.tool(read_only=True)
async def find(ctx: plait.Context[Db], word: str) -> list[str]:
    """Find rows."""
    return [row for row in ctx.deps.rows if word in row]


Other = plait.Context[Cache]


class Shop:
    """Has a tool as a method."""

    @plait.tool
    def sell(self, ctx: plait.Context[Db], item: str) -> str:
        """Sell."""
        return f"{item} {ctx.deps.rows}"


class Watch(plait.Hook[Db]):
    """A hook for a Db."""

    def before_tool(self, context: Other, call: Call) -> None:  # wrong: override, reportIncompatibleMethodOverride
        print(context.deps)


class Spend(plait.Guard[Db]):
    """A guard for a Db."""


def instruct(db: Db) -> str:
    """Return instructions."""
    return str(db.rows)


def ask(agent: plait.Agent[Db, Trip]) -> int:
    """Use an agent for a Db that gives trips."""
    return agent.run("?", deps=Db([])).output.days


db, cache = Db([]), Cache(1)
agent = plait.Agent(deps=Db, output=Trip, tools=[save, find])
other = plait.Agent(deps=Cache)

# Fields
plait.Agent(loops="react")  # wrong: call-arg, reportCallIssue
plait.Agent(limits={"steps": 3})  # wrong: arg-type, reportArgumentType
plait.Agent(deps=db)  # wrong: arg-type, reportArgumentType
plait.Agent(output=3)  # wrong: arg-type, reportArgumentType
plait.Agent(tools=save)  # wrong: arg-type, reportArgumentType
plait.Agent(journal=True)  # wrong: arg-type, reportArgumentType
plait.Agent(approve="sometimes")  # wrong: arg-type, reportArgumentType
plait.Agent(approve=lambda call: call.tools == "x")  # wrong: attr-defined, reportAttributeAccessIssue
plait.ReAct(dialect="xx")  # wrong: arg-type, reportArgumentType
plait.Limits(steps="3")  # wrong: arg-type, reportArgumentType
print(plait.Runs)  # wrong: attr-defined, reportAttributeAccessIssue
print(plait.Agent().run("?").run)  # wrong: attr-defined, reportAttributeAccessIssue
print(plait.Agent(output=list[int]).run("?").output.days)  # wrong: attr-defined, reportAttributeAccessIssue
print(plait.Agent().run("?").output.days)  # wrong: attr-defined, reportAttributeAccessIssue
print(agent.run("?", deps=db).output.day)  # wrong: attr-defined, reportAttributeAccessIssue

# Dependencies of a run
agent.run("?", deps=cache)  # wrong: arg-type, reportArgumentType
agent.run("?", deps=Db)  # wrong: arg-type, reportArgumentType
agent.run("?", depps=db)  # wrong: call-arg, reportCallIssue
agent.stream("?", deps=cache)  # wrong: arg-type, reportArgumentType
agent.resume("last", "yes", deps=cache)  # wrong: arg-type, reportArgumentType
agent.fork("last", 2, deps=cache)  # wrong: arg-type, reportArgumentType
agent.fork("last", "2", deps=db)  # wrong: arg-type, reportArgumentType


async def run_all() -> None:
    """Use the asynchronous methods."""
    await agent.arun("?", deps=cache)  # wrong: arg-type, reportArgumentType
    await agent.aresume("last", deps=cache)  # wrong: arg-type, reportArgumentType
    await agent.afork("last", 2, deps=cache)  # wrong: arg-type, reportArgumentType
    print((await agent.arun("?", deps=db)).output.name)  # wrong: attr-defined, reportAttributeAccessIssue
    for event in agent.stream("?", deps=db):
        print(event.nothing)  # wrong: union-attr, reportAttributeAccessIssue


# Tools for other dependencies
plait.Agent(deps=Cache, tools=[save])  # wrong: misc, reportArgumentType
plait.Agent(deps=Cache, tools=[find, "calculator", len])  # wrong: list-item, reportArgumentType
plait.Agent(tools=["calculator", save], deps=Cache)  # wrong: list-item, reportArgumentType
plait.Agent(deps=Cache, tools=[agent.as_tool()])  # wrong: misc, reportArgumentType
plait.Agent(deps=Cache, tools=(save,), model="local")  # wrong: misc, reportArgumentType
tools = [save]
plait.Agent(deps=Cache, tools=tools)  # wrong: misc, reportArgumentType
plait.Agent(deps=Cache, tools=[Shop().sell])  # wrong: misc, reportArgumentType
plait.Agent[Cache, str](tools=[save])  # wrong: list-item, reportArgumentType
save(plait.Context(cache), "x")  # wrong: arg-type, reportArgumentType
save(plait.Context(db), 3)  # wrong: arg-type, reportArgumentType

# `using`
agent.using(step=3)  # wrong: call-overload, reportCallIssue
agent.using(limits=3)  # wrong: call-overload, reportArgumentType
agent.using(model=None)  # wrong: call-overload, reportArgumentType
agent.using(can_ask="no", output=str)  # wrong: call-overload, reportArgumentType
agent.using(deps=Cache, journal=3)  # wrong: call-overload, reportArgumentType
agent.using(deps=Cache, output=str, hook=[])  # wrong: call-overload, reportCallIssue
other.using(tools=[save])  # wrong: list-item, reportArgumentType
agent.using(deps=Cache, tools=["calculator", save])  # wrong: list-item, reportArgumentType
agent.using(deps=Cache).run("?", deps=db)  # wrong: arg-type, reportArgumentType
print(agent.using(output=str).run("?").output.days)  # wrong: attr-defined, reportAttributeAccessIssue
agent.using(limits=plait.Limits()).run("?", deps=cache)  # wrong: arg-type, reportArgumentType

# Hooks, guards and instructions for other dependencies
plait.Agent(deps=Cache, hooks=[Watch()])  # wrong: misc, reportArgumentType
plait.Agent(deps=Cache, hooks=["redact", Spend()])  # wrong: list-item, reportArgumentType
plait.Agent(hooks=[save])  # wrong: list-item, reportArgumentType
other.using(hooks=[Watch()])  # wrong: list-item, reportArgumentType
plait.Agent(deps=Cache, instructions=instruct)  # wrong: arg-type, reportArgumentType
other.using(instructions=instruct)  # wrong: arg-type, reportArgumentType
plait.Agent(instructions=lambda: 3)  # wrong: arg-type, reportArgumentType

# Agents of another type
ask(other.using(output=Trip))  # wrong: arg-type, reportArgumentType
ask(plait.Agent(deps=Db, output=int))  # wrong: arg-type, reportArgumentType
one: plait.Agent[Cache, Trip] = agent  # wrong: assignment, reportAssignmentType
many: list[plait.Agent[Db, Trip]] = [agent, other]  # wrong: list-item, reportAssignmentType
assert_type(agent, plait.Agent[Db, str])  # wrong: assert-type, reportAssertTypeFailure
