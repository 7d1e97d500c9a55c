"""A program that uses the library, for `check_typing.py`: mypy must accept it. No output in it may be Any."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, assert_type

import plait
from plait.core import Call, Event, Outcome, Status, Usage, Waiting
from plait.journal.records import Row


@plait.tool(read_only=True)
def population(city: str) -> int:
    """People living in a city."""
    return {"Lyon": 522250}[city]


assert_type(population("Lyon"), int)
agent = plait.Agent(
    plait.ReAct(dialect="lines"),
    model=plait.Scripted(["Final Answer: x"]),
    tools=[population, "calculator"],
    limits=plait.Limits(steps=3, code=plait.CodeLimits(seconds=1.0)),
    history=plait.History(share=0.5),
    journal=False,
)


mixed = [{"calls": [{"name": "population", "input": {"city": "Lyon"}}]}, {"answer": "x"}]
by_phase = {"plan": mixed, "solve": ["x"]}
scripts = [plait.Scripted(mixed), plait.Scripted(by_phase), plait.Scripted([*mixed, "text"])]


class Db:
    """What a tool needs."""

    rows: list[str]


@plait.tool
async def delegate(ctx: plait.Context[Db], question: str) -> int:
    """Ask another agent."""
    assert_type(await ctx.arun(agent, question), plait.Run[str])
    assert_type((await ctx.arun(typed, question)).output, Trip)
    return len(ctx.deps.rows)


served = plait.Agent(tools=[delegate, agent.as_tool()], deps=Db)
assert_type(served, plait.Agent[Db, str])


@dataclass
class Trip:
    """A typed answer."""

    city: str
    days: int


class Careful(plait.Hook):
    """Plain and async methods, each with a narrower result than that of the base class."""

    def before_tool(self, context: plait.Context[Db], call: Call) -> Call | plait.Refuse | None:
        assert_type(context.deps, Db)
        return plait.Refuse("not now") if call.tool == "pay" else None

    async def after_answer(self, context: plait.Context[Db], answer: object) -> plait.AskApproval:
        return plait.AskApproval("Is that right?")


typed = plait.Agent("tool_calling", output=Trip, instructions="Be kind.", hooks=[Careful()], taint="ask")
assert_type(typed, plait.Agent[Any, Trip])
assert_type(typed.using(limits=plait.Limits(steps=3)), plait.Agent[Any, Trip])
assert_type(typed.using(output=list[int]), plait.Agent[Any, list[int]])
assert_type(agent, plait.Agent[Any, str])
checked = plait.Agent(output=plait.OutputType(Trip, checks=[lambda trip: None], retries=1))
assert_type(checked, plait.Agent[Any, Trip])
either = plait.Agent[None, int | str](output=int | str)
size = plait.Agent[None, Literal["small", "large"]](output=Literal["small", "large"])


def show_typed() -> None:
    """Uses the outputs of typed agents."""
    assert_type(typed.run("?"), plait.Run[Trip])
    assert_type(typed.run("?").output.days, int)
    assert_type(agent.run("?").output, str)
    assert_type(either.run("?").output, int | str)
    assert_type(size.run("?").output, Literal["small", "large"])
    assert_type(typed.resume("last").output, Trip)


async def on_wait(waiting: Waiting) -> str | None:
    """Answers for the user."""
    return "yes" if waiting.kind == "approval" else None


def on_event(event: Event) -> None:
    """Shows an event."""
    print(event)


def show(run: plait.Run) -> None:
    """Uses each field of a run."""
    assert_type(run.id, str)
    assert_type(run.status, Status)
    assert_type(run.outcome, Outcome)
    assert_type(run.usage, Usage)
    assert_type(run.cost_usd, float | None)
    assert_type(run.trace, tuple[Row, ...])
    assert_type(run.events, list[Event])


def recommended(rows: str, words: Iterable[str]) -> plait.Agent:
    """The agent of a recommendation."""
    recommendation = plait.recommend(rows, plait.Demand(at_least=0.9, usd=0.01))
    assert_type(recommendation, plait.Recommendation)
    return recommendation.agent.using(tools=tuple(words))


async def main() -> None:
    """Runs the agent."""
    show(await agent.arun("?", on_event=on_event, on_wait=on_wait, now=0.0))
    show(await agent.arun(["Which day?", plait.attach(b"It is Monday.", "notes.md")]))
    async for event in agent.stream("?"):
        assert_type(event, Event)


if __name__ == "__main__":
    asyncio.run(main())
