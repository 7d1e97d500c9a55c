"""Models that tools ask count against the limits of the run, and stand in its journal."""

from __future__ import annotations

import asyncio
from pathlib import Path

import plait
from cli_support import action, final
from journal_rows import is_result
from plait.core import Reply, Usage
from plait.models.prices import Rate
from plait.toolkits.questions import ask_model


def second(calls: int = 60) -> plait.Scripted:
    """A model for tools; each reply has 100 + 10 tokens, at a price."""
    said = [Reply("it is so", usage=Usage(100, 10))] * calls
    return plait.Scripted(said, by_turn=False, spec="scripted:second", rate=Rate(10.0, 100.0))


def loop(times: int) -> plait.Scripted:
    """A loop's model that asks the other so many times."""
    return plait.Scripted([*(action("ask_model", f"question {n}") for n in range(times)), final("done")])


def test_calls_of_a_tool_s_model_are_counted_and_recorded(tmp_path: Path) -> None:
    model = second()
    run = plait.Agent("react", model=loop(2), tools=ask_model(model), journal=tmp_path / "j.db").run("q")
    assert (run.status, run.calls, model.sent) == ("answered", 5, 2)
    assert run.usage.tokens >= 220
    asked = [call for call in run.timeline.model_calls if call.phase == "tool:ask_model"]
    assert [call.reply.usage.tokens for call in asked if call.reply is not None] == [110, 110]
    assert plait.Agent("react", model=loop(2), tools=ask_model(model), journal=tmp_path / "j.db").replay("last").whole


def test_a_run_limited_to_five_calls_sends_five_whoever_asks(tmp_path: Path) -> None:
    @plait.tool
    async def ask_model_often(ctx: plait.Context[None], text: str) -> str:
        """Ask a model fifty times."""
        asked = ask_model(model)[0].function
        got = await asyncio.gather(*(asked(ctx, f"{text} {n}") for n in range(50)), return_exceptions=True)
        return str(sum(isinstance(each, str) for each in got))

    model, asks = second(), plait.Scripted([action("ask_model_often", "x"), final("done")])
    limits = plait.Limits(calls=5)
    run = plait.Agent("react", model=asks, tools=[ask_model_often], limits=limits, journal=tmp_path / "j.db").run("q")
    assert model.sent + asks.sent <= 5 and model.sent == 3
    assert run.calls == model.sent + asks.sent
    assert run.status == "stopped" and run.outcome.limit == "calls"  # type: ignore[union-attr]


def test_tokens_of_a_tool_s_model_count_against_the_limit(tmp_path: Path) -> None:
    model = second()
    limits = plait.Limits(tokens=3000)
    run = plait.Agent("react", model=loop(50), tools=ask_model(model), limits=limits, journal=tmp_path / "j.db").run(
        "q"
    )
    assert run.status == "stopped" and run.usage.tokens <= 3000


def test_an_agent_that_a_tool_runs_counts_against_the_run_that_called_the_tool(tmp_path: Path) -> None:
    inner = plait.Scripted([action("calculator", "1+1")] * 20 + [final("2")], by_turn=False)

    @plait.tool
    def delegate(task: str) -> str:
        """Give a task to another agent."""
        run = plait.Agent("react", model=inner, tools=["calculator"], journal=tmp_path / "inner.db").run(task)
        return f"{run.status}: {run.reason or run.answer}"

    outer = plait.Scripted([action("delegate", "add"), final("done")])
    limits = plait.Limits(calls=6)
    run = plait.Agent("react", model=outer, tools=[delegate], limits=limits, journal=tmp_path / "j.db").run("q")
    assert outer.sent + inner.sent <= 6 and run.calls == outer.sent
    assert inner.sent >= 2
    [seen] = [row.record.value.text for row in run.trace if is_result(row.record)]
    assert "in the run whose tool this is" in seen
