"""Money and time by phase: who was asked what, and rows that add up to the run's totals to the last digit."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import plait
from journal_rows import is_request
from models_server import Asked, Server, completion
from plait.core import (
    Act,
    Answered,
    Call,
    LoopContext,
    LoopRun,
    OneKind,
    Reply,
    Splitter,
    Task,
    Think,
    Usage,
    act,
    ask,
    think,
    user,
)
from plait.core.effects import start, wait_next
from plait.core.errors import ConfigError, ServerFailed
from plait.journal.store import Journal
from plait.models import http
from plait.models.base import Abilities
from plait.models.prices import UNKNOWN, Rate, total
from plait.runtime.costs import TOOLS, PhaseSpending, in_all, in_units, merge_spending, runs_until, spending
from plait.runtime.run import Run

PLAIN = Abilities(stream=False)


@dataclass(frozen=True)
class Three:
    """Reasons, reacts with two calls at once, replies. `asks`: the person is asked before the reply."""

    asks: bool = False
    name: ClassVar[str] = "three"
    phases: ClassVar[tuple[str, ...]] = ("reason", "react", "reply")
    prompts: ClassVar[dict[str, str]] = {"none": "it renders none"}

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        said = yield from think("reason", (user(task.question),))
        yield from think("react", (user(f"{task.question} {said.text}"),))
        seen = yield from act(Call("look", "a"), Call("look", "b"))
        if self.asks:
            yield from ask("Go on?")
        reply = yield from think("reply", (user(f"{said.text} {seen[0].text} {seen[1].text}"),))
        return Answered(reply.text)

    def splitter(self, phase: str) -> Splitter:
        return OneKind("thought")


@plait.tool(read_only=True)
def look(key: str) -> str:
    """Look something up."""
    return f"{key} is known"


def reply(text: str, read: int, written: int, cached: int = 0) -> Reply:
    return Reply(text, usage=Usage(read, written, cached))


def scripted(name: str, price: Rate, *replies: Any) -> plait.Scripted:
    return plait.Scripted(list(replies), name=name, rate=price)


CHEAP, DEAR = Rate("tokens", 0.1, 0.4), Rate("tokens", 3.0, 15.0, 0.3)


def agent(journal: Path | bool, loop: Any = None, **models: Any) -> plait.Agent:
    made = {
        "reason": scripted("small", CHEAP, reply("I think.", 101, 7)),
        "react": scripted("middle", Rate("tokens", 1.0, 2.0), reply("I look.", 211, 11, 100)),
        "reply": scripted("great", DEAR, reply("It is so.", 307, 13, 200)),
    }
    kept: Any = journal
    return plait.Agent(loop or Three(), models={**made, **models}, tools=[look], journal=kept)


def row(run: Run, phase: str) -> PhaseSpending:
    (found,) = (each for each in run.phases if each.phase == phase)
    return found


def adds_up(run: Run) -> None:
    """The rows are the run, to the last digit."""
    models = [each for each in run.phases if not each.is_work]
    assert sum(each.calls for each in models) == run.calls
    assert sum((each.usage for each in models), Usage()) == run.usage
    assert total(each.cost_usd for each in run.phases) == run.cost_usd
    whole = in_all(run.phases)
    assert (whole.calls, whole.usage, whole.cost_usd) == (run.calls, run.usage, run.cost_usd)
    assert whole.micros == sum(each.micros for each in run.phases)


# --- what is in the rows


def test_each_phase_has_its_own_row_with_calls_tokens_seconds_and_usd(journal: Path) -> None:
    run = agent(journal).run("So?")
    assert run.status == "answered", run.reason
    assert [(each.phase, each.model) for each in run.phases] == [
        ("reason", "scripted:small"),
        ("react", "scripted:middle"),
        (TOOLS, ""),
        ("reply", "scripted:great"),
    ]
    assert row(run, "react").usage == Usage(211, 11, 100)
    assert row(run, "reason").cost_usd == (101 * 100 + 7 * 400) / 1e9
    assert row(run, "reply").cost_usd == (107 * 3000 + 200 * 300 + 13 * 15000) / 1e9
    tools = row(run, TOOLS)
    assert (tools.calls, tools.usage, tools.cost_usd, tools.is_work) == (2, Usage(), 0.0, True)
    assert all(each.retries == 0 for each in run.phases)
    adds_up(run)
    assert run.json()["phases"] == [each.json() for each in run.phases]


def test_the_seconds_are_those_of_the_calls(journal: Path) -> None:
    @plait.tool(read_only=True)
    def look(key: str) -> str:
        """Look something up, slowly."""
        import time

        time.sleep(0.05)
        return key

    slow = plait.Scripted([reply("I think.", 1, 1)], delay=0.2)
    run = agent(journal, reason=slow).using(tools=[look]).run("So?")
    assert 0.2 <= row(run, "reason").seconds < 10
    assert 0.1 <= row(run, TOOLS).seconds < 10, "two calls at once, each with its own time"
    assert row(run, "reply").seconds < row(run, "reason").seconds
    adds_up(run)


def test_a_price_that_is_not_known_leaves_only_its_own_row_without_a_cost(journal: Path) -> None:
    run = agent(journal, react=scripted("odd", UNKNOWN, reply("I look.", 5, 5))).run("So?")
    assert run.cost_usd is None and row(run, "react").cost_usd is None
    assert row(run, "reason").cost_usd is not None and row(run, "reply").cost_usd is not None
    adds_up(run)


def test_attempts_that_failed_count_as_retries_with_their_time_and_no_tokens(journal: Path) -> None:
    flaky = plait.Scripted([ServerFailed("down"), reply("I think.", 101, 7)], delay=0.1, rate=CHEAP)
    run = agent(journal, reason=flaky).run("So?")
    found = row(run, "reason")
    assert (found.calls, found.retries, found.usage) == (1, 1, Usage(101, 7))
    assert found.seconds >= 0.2, "both attempts"
    assert found.cost_usd == (101 * 100 + 7 * 400) / 1e9
    adds_up(run)


def test_a_phase_that_never_got_a_reply_is_told_of(journal: Path) -> None:
    dead = plait.Scripted([plait.core.errors.BadRequest("no")])
    run = agent(journal, react=dead).run("So?")
    assert run.status == "crashed"
    found = row(run, "react")
    assert (found.calls, found.retries, found.usage, found.cost_usd) == (0, 1, Usage(), 0.0)
    adds_up(run)


def test_estimated_tokens_are_marked_in_their_row_alone(journal: Path) -> None:
    run = agent(journal, reply=plait.Scripted(["It is so."])).run("So?")
    assert row(run, "reply").usage.estimated and not row(run, "reason").usage.estimated
    assert run.usage.estimated
    adds_up(run)


# --- wherever the run comes from


def test_without_a_journal_the_rows_are_the_same() -> None:
    run = agent(False).run("So?")
    assert [each.calls for each in run.phases] == [1, 1, 2, 1]
    adds_up(run)


def test_a_run_of_another_process_and_a_resumed_one_have_all_that_was_spent(journal: Path) -> None:
    waiting = agent(journal, Three(asks=True)).run("So?")
    assert waiting.status == "waiting"
    assert [each.phase for each in waiting.phases] == ["reason", "react", TOOLS]
    adds_up(waiting)
    before = waiting.phases
    run = agent(journal, Three(asks=True)).resume(waiting, "yes")
    assert run.status == "answered" and run.phases[:3] == before
    assert [each.phase for each in run.phases] == ["reason", "react", TOOLS, "reply"]
    adds_up(run)
    again = agent(journal, Three(asks=True)).resume(run.id)  # finished: as the journal has it
    assert again.phases == run.phases
    adds_up(again)
    assert spending(Journal(journal).timeline(run.id)) == run.phases


def test_a_call_that_was_cancelled_has_a_row_and_costs_nothing_until_it_is_made_again(journal: Path) -> None:
    async def cancelled() -> None:
        slow = plait.Scripted([reply("I look.", 211, 11)], delay=30, rate=CHEAP, name="middle")
        asking = asyncio.Event()

        def on_event(event: Any) -> None:
            if getattr(event, "phase", "") == "react":
                asking.set()

        task = asyncio.ensure_future(agent(journal, react=slow).arun("So?", on_event=on_event))
        await asking.wait()
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    kept = Journal(journal).run("last")
    rows = spending(Journal(journal).timeline(kept.head.run))
    assert [(each.phase, each.calls, each.cost_usd) for each in rows] == [
        ("reason", 1, CHEAP.cost(Usage(101, 7))),
        ("react", 0, 0.0),
    ]
    assert kept.totals["cost_usd"] == in_all(rows).cost_usd and kept.totals["calls"] == 1
    run = agent(journal).resume(kept.head.run)
    assert run.status == "answered" and row(run, "react").calls == 1
    adds_up(run)


def test_a_fork_has_what_its_shared_steps_cost_as_its_totals_have(journal: Path) -> None:
    run = agent(journal).run("So?")
    dear = scripted("other", DEAR, reply("It is otherwise.", 307, 13))
    fork = agent(journal, reply=dear).fork(run.id, at=3)
    assert fork.answer == "It is otherwise."
    assert fork.phases[:3] == run.phases[:3], "what it took from its parent, seconds and all"
    assert row(fork, "reply").model == "scripted:other"
    adds_up(fork)


def test_two_models_of_one_phase_are_two_rows(journal: Path) -> None:
    turns = [reply("Thought: look.\nAction: look[a]", 50, 9), reply("Final Answer: a", 70, 5)]
    first = plait.Agent("react", model=scripted("one", CHEAP, *turns), tools=[look], journal=journal)
    run = first.run("So?")
    fork = first.using(model=scripted("two", DEAR, *turns)).fork(run.id, at=2)
    assert fork.status == "answered", fork.reason
    assert [(each.phase, each.model, each.calls) for each in fork.phases] == [
        ("act", "scripted:one", 1),
        (TOOLS, "", 1),
        ("act", "scripted:two", 1),
    ]
    assert fork.phases[2].cost_usd == DEAR.cost(Usage(70, 5))
    adds_up(fork)


@dataclass(frozen=True)
class Beside:
    """Two thoughts and a call side by side."""

    name: ClassVar[str] = "beside"
    phases: ClassVar[tuple[str, ...]] = ("one", "two")
    prompts: ClassVar[dict[str, str]] = {"none": "it renders none"}

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        yield from start(Think("one", (user("1"),)), Think("two", (user("2"),)), Act((Call("look", "a"),)))
        for _ in range(3):
            yield from wait_next()
        return Answered("done")

    def splitter(self, phase: str) -> Splitter:
        return OneKind("thought")


def test_what_ran_side_by_side_counts_each_for_itself(journal: Path) -> None:
    models = {name: plait.Scripted([reply(name, 3, 2)], delay=0.3, rate=CHEAP, name=name) for name in ("one", "two")}
    run = plait.Agent(Beside(), models=models, tools=[look], journal=journal).run("So?")
    assert run.status == "answered", run.reason
    assert row(run, "one").seconds >= 0.3 and row(run, "two").seconds >= 0.3
    assert in_all(run.phases).seconds >= 0.6
    adds_up(run)


def test_a_journal_that_is_gone_takes_only_the_phases_from_the_json(journal: Path) -> None:
    one = agent(journal)
    run = one.run("So?")
    Journal.at(journal).close()
    for path in journal.parent.glob(f"{journal.name}*"):
        path.unlink()
    assert run.json()["phases"] is None and run.json()["calls"] == 3
    with pytest.raises(plait.core.errors.JournalError):
        _ = run.phases


# --- three endpoints, over HTTP


def saying(text: str, read: int, written: int, cached: int = 0) -> Callable[[Asked], Awaitable[None]]:
    async def handler(asked: Asked) -> None:
        usage = {
            "prompt_tokens": read,
            "completion_tokens": written,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        await asked.answer(200, {**completion(text), "usage": usage})

    return handler


async def with_endpoints(journal: Path, prices: dict[str, Rate], texts: dict[str, str]) -> tuple[Run, dict[str, list]]:
    """A run of the loop `phased`, each phase with an endpoint of its own; what each endpoint was asked."""
    async with AsyncExitStack() as stack:
        servers = {
            phase: await stack.enter_async_context(Server(saying(texts[phase], 100 * i + 7, 10 * i + 3, 50)))
            for i, phase in enumerate(("reason", "react", "reply"), 1)
        }
        models = {
            phase: server.model(spec=f"{phase}-host:m", rate=prices[phase], abilities=PLAIN)
            for phase, server in servers.items()
        }
        run = await plait.Agent(plait.Phased(), models=models, tools=[look], journal=journal).arun("What is so?")
        assert run.status == "answered", run.reason
        await http.close()
        return run, {phase: [asked.body for asked in server.asked] for phase, server in servers.items()}


PRICES = {
    "reason": Rate("tokens", 0.15, 0.6, 0.075),
    "react": Rate("tokens", 1.1, 4.4, 0.275),
    "reply": Rate("tokens", 3.0, 15.0, 0.3),
}
LIST = '[{"ACTION": "look", "ARGUMENTS": ["a"]}, {"ACTION": "look", "ARGUMENTS": ["b"]}]'
TEXTS = {"reason": "I look for a and b.", "react": LIST, "reply": "They are known."}


def test_three_endpoints_and_the_record_shows_who_was_asked_what(journal: Path) -> None:
    run, asked = asyncio.run(with_endpoints(journal, PRICES, TEXTS))
    recorded = {each.record.asked.phase: each for each in run.trace if is_request(each.record)}
    assert list(recorded) == ["reason", "react", "reply"]
    for phase, each in recorded.items():
        assert is_request(each.record) and each.record.asked.model == f"{phase}-host:m"
        assert each.body is not None and [json.loads(each.body)] == asked[phase]
    said = [message["content"] for message in asked["reply"][0]["messages"] if message["role"] == "assistant"]
    assert said[0] == TEXTS["reason"] and len(said) == 2, "one chat through all phases"
    assert "a is known" in asked["reply"][0]["messages"][-1]["content"]
    assert run.answer == "They are known." and row(run, TOOLS).calls == 2
    for i, phase in enumerate(recorded, 1):
        used = Usage(100 * i + 7, 10 * i + 3, 50)
        assert row(run, phase) == PhaseSpending(
            phase, f"{phase}-host:m", 1, 0, used, row(run, phase).seconds, PRICES[phase].cost(used)
        )
    adds_up(run)


def test_swapping_one_phase_s_model_changes_that_phase_s_column_alone(tmp_path: Path) -> None:
    first, _ = asyncio.run(with_endpoints(tmp_path / "1.db", PRICES, TEXTS))
    for swapped in PRICES:
        prices = {**PRICES, swapped: Rate("tokens", 40.0, 160.0)}
        second, _ = asyncio.run(with_endpoints(tmp_path / f"{swapped}.db", prices, TEXTS))
        for phase in PRICES:
            same = row(first, phase).cost_usd == row(second, phase).cost_usd
            assert same == (phase != swapped), phase
            assert row(first, phase).usage == row(second, phase).usage
        assert second.cost_usd is not None and first.cost_usd is not None
        changed = (row(second, swapped).nanos or 0) - (row(first, swapped).nanos or 0)
        assert round(second.cost_usd * 10**9) - round(first.cost_usd * 10**9) == changed
        adds_up(second)


def test_electricity_by_watts_is_what_the_seconds_of_the_phase_cost(journal: Path) -> None:
    async def slow(asked: Asked) -> None:
        await asyncio.sleep(0.2)
        await saying("I reason.", 10, 5)(asked)

    async def main() -> Run:
        async with Server(slow) as server:
            model = server.model(rate=Rate("watts", watts=3_600_000, tariff=0.5), abilities=PLAIN)
            run = await agent(journal, reason=model).arun("So?")
            await http.close()
            return run

    run = asyncio.run(main())
    found = row(run, "reason")
    # 3.6 MW are 1 kWh a second, at 0.50 USD
    assert found.cost_usd == pytest.approx(found.seconds * 0.5, abs=1e-6) and found.cost_usd > 0.1
    adds_up(run)


# --- numbers as they are shown


@given(st.lists(st.integers(0, 10**15), max_size=40), st.sampled_from([1, 7, 1000, 10_000]), st.integers(1, 9))
def test_shown_parts_add_up_to_the_shown_total_and_each_is_less_than_a_unit_off(
    parts: list[int], unit: int, count: int
) -> None:
    exact = [Fraction(part, count) for part in parts]
    shown, whole = in_units(exact, unit)
    assert sum(shown) == whole
    assert whole == round(sum(exact, Fraction(0)) / unit)
    for part, each in zip(exact, shown, strict=True):
        assert abs(each - part / unit) < 1


@given(st.integers(0, 10**12), st.sampled_from([1, 1000, 10_000]))
def test_one_part_is_shown_as_its_total(part: int, unit: int) -> None:
    assert in_units([part], unit) == ([round(Fraction(part, unit))], round(Fraction(part, unit)))


def test_a_unit_that_is_missing_goes_to_the_part_that_lost_most() -> None:
    assert in_units([14, 14, 12], 10) == ([2, 1, 1], 4)
    assert in_units([10, 14, 16], 10) == ([1, 1, 2], 4)
    assert in_units([], 10) == ([], 0)


COSTS = st.one_of(st.none(), st.integers(0, 10**13).map(lambda nano: nano / 10**9))
ROWS = st.lists(
    st.builds(
        PhaseSpending,
        st.sampled_from(["reason", "reply", TOOLS]),
        st.sampled_from(["", "a", "b"]),
        st.integers(0, 9),
        st.integers(0, 3),
        st.builds(Usage, st.integers(0, 10**7), st.integers(0, 10**6), st.integers(0, 10**7), st.booleans()),
        st.integers(0, 10**12).map(lambda micro: micro / 10**6),
        COSTS,
    ),
    max_size=30,
)


@given(ROWS)
def test_rows_put_together_in_any_way_sum_to_the_same(rows: list[PhaseSpending]) -> None:
    by_phase, whole = merge_spending(rows), in_all(rows)
    assert len({(each.phase, each.model) for each in by_phase}) == len(by_phase)
    assert in_all(by_phase) == whole == in_all(reversed(by_phase))
    assert whole.cost_usd == total(each.cost_usd for each in rows)
    assert whole.micros == sum(each.micros for each in rows)


# --- when hardware is paid


def test_hardware_is_paid_by_what_each_run_saves() -> None:
    assert runs_until(1500, Fraction(8_000_000)) == 187_500
    assert runs_until("0.3", Fraction(10**8)) == 3, "exact: in binary fractions it would be 4"
    assert runs_until(Decimal("0.1"), Fraction(10**8)) == 1
    assert runs_until(1, Fraction(3 * 10**8)) == 4, "the run that begins to pay does not count as paid"


def test_hardware_is_never_paid_by_runs_that_are_no_cheaper() -> None:
    assert runs_until(1500, Fraction(0)) is None
    assert runs_until(1500, Fraction(-1)) is None


@pytest.mark.parametrize("price", [0, -1, float("nan"), float("inf"), "much"])
def test_a_price_of_hardware_is_above_zero(price: Any) -> None:
    with pytest.raises(ConfigError, match="above 0"):
        runs_until(price, Fraction(10**8))


@given(st.integers(1, 10**7), st.integers(1, 10**9), st.integers(0, 10**9))
def test_it_is_the_first_run_at_which_the_savings_reach_the_price(hardware: int, before: int, after: int) -> None:
    saved = before - after
    runs = runs_until(hardware, Fraction(saved))
    if runs is None:
        assert saved <= 0
    else:
        assert (runs - 1) * saved < hardware * 10**9 <= runs * saved
        assert runs == math.ceil(Fraction(hardware * 10**9, saved))
