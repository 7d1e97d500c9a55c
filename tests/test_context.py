"""The context of a tool call: dependencies, keys, a logger, and models that a tool asks."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import plait
from cli_support import action, final, run_in_process
from plait.core import events as ev
from plait.core.errors import ConfigError
from plait.journal.store import Journal


@dataclass
class Db:
    rows: list[str] = field(default_factory=list)


class Other: ...


@plait.tool
def save(ctx: plait.Context[Db], text: str, times: int = 1) -> str:
    """Save a text.

    Args:
        text: what to save
    """
    ctx.deps.rows += [text] * times
    return f"{len(ctx.deps.rows)} rows"


def agent(*turns: Any, tools: Any = (save,), **options: Any) -> plait.Agent:
    model = plait.Scripted([*turns, final("done")], by_turn=False)
    return plait.Agent(model=model, tools=list(tools), **{"deps": Db, "journal": False, **options})


def seen(run: plait.Run) -> list[str]:
    return [observation.text for _, observation in run.timeline.results]


def test_a_tool_gets_the_dependencies_of_its_run_and_the_model_does_not_see_the_parameter() -> None:
    first, second = Db(), Db()
    one = agent(action("save", {"text": "a", "times": 2}))
    assert seen(one.run("q", deps=first)) == ["2 rows"] and first.rows == ["a", "a"] and second.rows == []
    assert list(save.spec.parameters["properties"]) == ["text", "times"]


def test_methods_classes_positional_and_sync_or_async_functions_take_a_context() -> None:
    class Shop:
        """Methods as tools."""

        def __init__(self) -> None:
            self.sold = 0

        async def sell(self, ctx: plait.Context[Db], item: str) -> str:
            """Sell an item."""
            self.sold += 1
            ctx.deps.rows.append(item)
            return f"{self.sold}"

    def positional(ctx: plait.Context[Db], /, text: str, *more: str) -> str:
        """Count words."""
        return f"{len(ctx.deps.rows)} {text} {len(more)}"

    def plain(ctx: plait.Context) -> str:  # type: ignore[type-arg]
        """Name the run."""
        return ctx.run_id

    db = Db()
    turns = [action("sell", "tea"), action("sell", "jam"), action("positional", ["a", "b", "c"]), action("plain")]
    run = agent(*turns, tools=[Shop, positional, plain]).run("q", deps=db)
    assert seen(run) == ["1", "2", "2 a 2", run.id] and db.rows == ["tea", "jam"]


def test_code_in_a_sandbox_calls_tools_with_a_context(journal: Path) -> None:
    code = 'ACTION 2:\n```python\nprint(save("x"))\nstop(save(text="y"))\n```'
    model = plait.Scripted({"decompose": ["1. Save"], "act": ["", code]})
    db = Db()
    run = plait.Agent("codeact", model=model, tools=[save], deps=Db, journal=journal).run("q", deps=db)
    assert (run.status, db.rows) == ("answered", ["x", "y"]), run


def test_missing_or_wrong_dependencies_are_reported_before_a_run() -> None:
    with pytest.raises(ConfigError, match=r"needs dependencies: Db.*agent.run\(question, deps=Db"):
        agent().run("q")
    with pytest.raises(ConfigError, match="The dependencies are Other"):
        agent().run("q", deps=Other())
    with pytest.raises(ConfigError, match=r"takes Context\[Db\]. Declare it: Agent\(deps=Db\)"):
        agent(deps=None)
    with pytest.raises(ConfigError, match="and the agent has deps=Other"):
        agent(deps=Other)
    with pytest.raises(ConfigError, match="deps=3"):
        agent(deps=3)

    def last(text: str, ctx: plait.Context[Db]) -> str:
        """Wrong order."""
        return text

    with pytest.raises(ConfigError, match=r"context as the parameter 'ctx'\. Make it the first"):
        agent(tools=[last])


def test_the_dependencies_of_an_agent_tool_are_checked_when_its_parent_is_made() -> None:
    tool = agent(action("save", "x")).as_tool("reader")
    with pytest.raises(ConfigError, match=r"takes Context\[Db\]. Declare it: Agent\(deps=Db\)"):
        agent(tools=[tool], deps=None)
    with pytest.raises(ConfigError, match="and the agent has deps=Other"):
        agent(tools=[tool], deps=Other)
    db = Db()
    run = agent(action("reader", "q"), tools=[tool]).run("q", deps=db)
    assert (seen(run), db.rows) == (["done"], ["x"])


def test_missing_dependencies_of_instructions_are_those_of_the_agent() -> None:
    with pytest.raises(ConfigError, match="This agent needs dependencies: Db"):
        agent(tools=[], instructions=lambda db: f"{len(db.rows)} rows").run("q")


def test_a_tool_s_test_makes_a_context_itself() -> None:
    db = Db()
    assert save(plait.Context(db), "x") == "1 rows"
    with pytest.raises(ConfigError, match="belongs to no run"):
        plait.Context(db).ask_model("?")


def test_the_key_of_a_call_is_the_same_after_a_resume_and_another_for_other_calls_and_forks(journal: Path) -> None:
    keys: list[str] = []

    async def interrupt() -> None:
        task = asyncio.ensure_future(one.arun("q", deps=Db()))
        while len(keys) < 2:
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.wait([task])

    @plait.tool(idempotent=True, name="pay")
    async def pay_slowly(ctx: plait.Context[Db], amount: int) -> str:
        """Pay."""
        keys.append(ctx.idempotency_key)
        if len(keys) == 2:
            await asyncio.sleep(60)
        return "paid"

    one = agent(action("pay", 1), action("pay", 1), tools=[pay_slowly], journal=journal)
    asyncio.run(interrupt())
    run = one.resume("last", deps=Db())
    assert run.status == "answered" and len(keys) == 3
    assert keys[0] != keys[1] == keys[2]
    again = agent(action("pay", 1), tools=[pay_slowly], journal=journal)
    assert again.fork(run.id, 2, deps=Db()).status == "answered"
    assert keys[3] not in keys[:3]


def test_a_resume_needs_the_dependencies_again(journal: Path) -> None:
    run = agent(action("save", "x"), journal=journal, approve="always").run("q", deps=Db())
    assert run.status == "waiting"
    with pytest.raises(ConfigError, match="needs dependencies: Db"):
        agent(journal=journal).resume(run, "yes")
    with pytest.raises(ConfigError, match="needs dependencies: Db"):
        agent(journal=journal).fork(run.id, 1)
    db = Db()
    assert agent(journal=journal).resume(run, "yes", deps=db).status == "answered" and db.rows == ["x"]


def test_the_logger_names_run_step_and_tool_and_progress_is_an_event(caplog: pytest.LogCaptureFixture) -> None:
    @plait.tool
    def work(ctx: plait.Context[Db]) -> int:
        """Work."""
        ctx.logger.info("half of %s", "it")
        ctx.report_progress("50 %")
        return ctx.usage.tokens

    events: list[Any] = []
    with caplog.at_level(logging.INFO, "plait.tools"):
        run = asyncio.run(agent(action("work"), tools=[work]).arun("q", deps=Db(), on_event=events.append))
    [record] = [each for each in caplog.records if each.name == "plait.tools"]
    assert (record.getMessage(), record.run, record.step, record.tool) == ("half of it", run.id, 1, "work")  # type: ignore[attr-defined]
    assert ev.Noted(1, "progress", "work: 50 %") in events
    assert 0 < int(seen(run)[0]) < run.usage.tokens


@plait.tool(idempotent=True)
async def judge(ctx: plait.Context[Db], text: str) -> str:
    """Ask a model."""
    return await ctx.aask_model(f"Is this good? {text}", system="Say yes or no.")


@plait.tool(name="judge", idempotent=True)
def judge_blocking(ctx: plait.Context[Db], text: str) -> str:
    """Ask a model."""
    return ctx.ask_model(f"Is this good? {text}", system="Say yes or no.")


@pytest.mark.parametrize("tool", [judge, judge_blocking])
def test_a_tool_asks_the_run_s_model_and_request_and_response_stand_in_the_journal(tool: Any, journal: Path) -> None:
    run = agent(action("judge", "tea"), "yes", tools=[tool], journal=journal).run("q", deps=Db())
    assert (run.status, seen(run), run.calls) == ("answered", ["yes"], 3)
    [asked] = [each for each in run.timeline.model_calls if each.i >= 0]
    [call] = run.timeline.tool_calls
    assert (asked.n, asked.i, asked.phase) == (call.n, call.i, "tool:judge")
    messages = json.loads(asked.request)["messages"]
    assert [each["content"] for each in messages] == ["Say yes or no.", "Is this good? tea"]
    assert asked.reply is not None and asked.last.response is not None and asked.last.response.body
    assert sum(part.calls for part in run.phases if part.model) == run.calls
    assert sum((part.usage.tokens for part in run.phases), 0) == run.usage.tokens
    assert any(each == ev.Noted(1, "tool_model", "yes") for each in run.events)
    again = agent(tools=[tool], journal=journal)
    assert again.replay(run.id).whole


def test_a_blocking_question_in_an_async_tool_is_an_error_and_blocks_nothing() -> None:
    @plait.tool
    async def wrong(ctx: plait.Context[Db]) -> str:
        """Ask."""
        return ctx.ask_model("?")

    assert "Await the async method" in seen(agent(action("wrong"), tools=[wrong]).run("q", deps=Db()))[0]


def test_a_repeated_call_gets_the_recorded_reply_to_the_same_question(journal: Path) -> None:
    hangs = [True]

    @plait.tool(idempotent=True)
    async def ask_two(ctx: plait.Context[None]) -> str:
        """Ask two questions."""
        first = await ctx.aask_model("one?")
        if hangs.pop() if hangs else False:
            started.set()
            await asyncio.sleep(60)
        return f"{first} {await ctx.aask_model('two?')}"

    model = plait.Scripted([action("ask_two"), "first", "second", final("done")], by_turn=False)
    one = plait.Agent(model=model, tools=[ask_two], journal=journal)
    started = asyncio.Event()

    async def interrupt() -> None:
        task = asyncio.ensure_future(one.arun("q"))
        await started.wait()
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(interrupt())
    run = one.resume("last")
    assert (run.status, seen(run), model.sent) == ("answered", ["first second"], 4)
    assert run.calls == 4 and run.usage.tokens == sum(part.usage.tokens for part in run.phases)


def test_questions_of_tools_stop_at_the_limits_of_the_run() -> None:
    @plait.tool
    async def ask_often(ctx: plait.Context[None]) -> str:
        """Ask fifty questions."""
        got = await asyncio.gather(*(ctx.aask_model(f"{n}?") for n in range(50)), return_exceptions=True)
        errors = {str(each) for each in got if isinstance(each, Exception)}
        return f"{sum(isinstance(each, str) for each in got)} {errors}"

    model = plait.Scripted([action("ask_often"), *["so"] * 50, final("done")], by_turn=False)
    run = plait.Agent(model=model, tools=[ask_often], limits=plait.Limits(calls=5), journal=False).run("q")
    assert model.sent == run.calls == 5
    assert seen(run)[0].startswith("3 ") and "one of 5 model calls is left" in seen(run)[0]


def test_a_failing_model_is_an_error_that_the_loop_s_model_reads() -> None:
    @plait.tool
    async def ask(ctx: plait.Context[Db]) -> str:
        """Ask a model that is not there."""
        return await ctx.aask_model("?", model="nosuch:model")

    assert "'nosuch'" in seen(agent(action("ask"), tools=[ask]).run("q", deps=Db()))[0]


def test_plait_show_and_costs_name_the_tool_that_asked(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = agent(action("judge", "tea"), "yes", tools=[judge], journal=journal).run("q", deps=Db())
    run_in_process(["show", run.id, "--journal", str(journal)])
    shown = capsys.readouterr().out
    assert "tool:judge" in shown and "yes" in shown
    run_in_process(["costs", run.id, "--journal", str(journal)])
    assert "tool:judge" in capsys.readouterr().out
    assert Journal(journal).run("last").totals["calls"] == 3


def test_instructions_and_output_checks_get_the_dependencies() -> None:
    def rules(db: Db) -> str:
        return f"There are {len(db.rows)} rows."

    def is_known(ctx: plait.Context[Db], value: int) -> str | None:
        return None if value == len(ctx.deps.rows) and ctx.run_id else f"There are {len(ctx.deps.rows)} rows."

    model = plait.Scripted([final("3"), final("0")], by_turn=False)
    output = plait.OutputType(int, checks=[is_known])
    made = plait.Agent("react", model=model, deps=Db, output=output, instructions=rules, journal=False)
    run = made.run("How many rows?", deps=Db())
    assert run.output == 0 and run.calls == 2
    assert "There are 0 rows." in run.timeline.model_calls[0].request.decode()


def test_a_state_is_that_of_the_run_at_the_top_and_is_on_record(journal: Path) -> None:
    @plait.tool(read_only=True)
    async def move(ctx: plait.Context, city: str) -> str:
        """Move."""
        ctx.set_state({"city": city})
        assert isinstance(ctx.state, dict)
        ctx.state["city"] = "a copy"
        with pytest.raises(ConfigError, match="bytes"):
            ctx.set_state("x" * 20_000)
        with pytest.raises(ConfigError, match="not JSON"):
            ctx.set_state(object())  # type: ignore[arg-type]
        return str(ctx.state)

    inner = agent(action("move", "Nice"), final("Moved."), tools=[move], deps=None)
    above = agent(action("ask_agent", "Move."), final("Done."), tools=[inner.as_tool()], journal=journal, deps=None)
    noted: list[Any] = []
    run = above.run("q", metadata={"state": {"city": "Lyon"}}, on_event=noted.append)
    assert run.answer == "Done." and above.replay(run).whole
    assert [each.data for each in noted if isinstance(each, ev.Noted) and each.kind == "state"] == [{"city": "Nice"}]
    notes = [
        each.entry for each in Journal(journal).timeline(run.id).moments if getattr(each.entry, "kind", "") == "state"
    ]
    assert [each.value for each in notes] == [{"city": "Nice"}]
    assert plait.Context(None).state is None and run.metadata == {"state": {"city": "Lyon"}}
