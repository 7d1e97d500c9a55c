"""The guard of limits by itself: entries made by hand, no engine, no model that is asked."""

from __future__ import annotations

import itertools
import random
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import plait
from conftest import for_each
from plait.core import (
    Act,
    Answered,
    Call,
    CheckAnswer,
    Continue,
    Crashed,
    Execute,
    Failed,
    LimitNear,
    Outcome,
    Reply,
    Stopped,
    Think,
    Usage,
)
from plait.core.errors import ContextOverflow, Unsupported
from plait.journal.records import ChildEnd, Decision, ResponseRecord
from plait.models.base import Model
from plait.models.prices import Rate
from plait.runtime.clock import RunClock
from plait.runtime.guard import Attempt, Entry, Finish, LimitReached, StartChild
from plait.runtime.guards.limits import LimitGuard
from plait.runtime.limits import Limits
from plait.runtime.spent import Spent, spent_in
from plait.runtime.tally import LENGTH_FIELD, Tally, TokenEstimate

BODY = b"x" * (400 - LENGTH_FIELD)
"""A request of 100 tokens, by the estimate."""
PRICED = Rate("tokens", input=1.0, output=2.0)


class Walked:
    """One run, as its engine would take it: it counts what the performers count, and tells the guard what is raised."""

    def __init__(
        self, limits: Limits, *, above: Walked | None = None, run: str = "run", rate: Rate = PRICED, **past: Any
    ) -> None:
        self.run, self.model = run, plait.Scripted([], rate=rate)
        self.tally = Tally(**past)
        self.now = 0.0
        self.clock = RunClock(limits.seconds, now=lambda: self.now)
        self.guard = LimitGuard(limits, self.tally, self.clock, lambda phase: self.model)
        if above is not None:
            above.tally.children[run] = self.tally
            assert above.guard.for_child(self.guard) is self.guard
        self.numbers, self.steps = itertools.count(), 0

    def entry(self, effect: Any, key: str = "", **how: Any) -> Entry:
        step = self.steps + (isinstance(effect, Think) and not effect.repair)
        return Entry(self.run, key or str(next(self.numbers)), step, effect, effect, **how)

    async def told(self, work: Awaitable[Any], entry: Entry) -> Any:
        """Await the guard, and tell it the signal that the loop receives."""
        try:
            return await work
        except (LimitNear, LimitReached) as why:
            if not entry.by_tool:
                await self.guard.after(self.entry(entry.effect, entry.key), why, False)
            raise

    async def think(self, *, repair: bool = False, **how: Any) -> Entry:
        """Admit a model call."""
        entry = self.entry(Think("act", repair=repair), **how)
        await self.told(self.guard.before(entry), entry)
        self.steps += not (repair or entry.by_tool)
        return entry

    async def attempt(self, think: Entry, wanted: int | None = None, body: bytes = BODY, number: int = 0) -> Entry:
        """Admit an attempt of a model call. If its reply is to be shorter, the request is encoded again."""
        effect = Attempt(think.effect, self.model, body, wanted, number)
        entry = self.entry(effect, f"{think.key}a{number}")
        for _ in range(4):
            made = await self.told(self.guard.before(entry), think)
            if made is entry.effect:
                return entry
            assert made.max_tokens < (entry.effect.max_tokens or 10**9)
            entry.decided["limits"] = Decision("change", made)
            field = f',"generationConfig":{{"maxOutputTokens":{made.max_tokens}}}'.encode()
            entry.effect = replace(made, body=body + field)
        raise AssertionError("the attempt changes again and again")

    def send(self, attempt: Entry) -> None:
        attempt.begun = True
        self.tally.own += Spent(requests=1)

    async def fail(self, attempt: Entry, usage: Usage | None = None) -> None:
        """Let an attempt be sent, and fail."""
        self.send(attempt)
        if usage is not None:
            self.tally.own += Spent(usage=usage, cost_usd=self.model.rate.cost(usage))
        await self.guard.after(attempt, ResponseRecord(500, 0.1, "ServerFailed: out"), True)

    async def reply(self, think: Entry, attempt: Entry | None, tokens: tuple[int, int] = (100, 20)) -> None:
        """Let an attempt be sent, and bring a reply."""
        if attempt is not None:
            self.send(attempt)
            await self.guard.after(attempt, ResponseRecord(200, 1.0), True)
        else:
            self.tally.own += Spent(requests=1)
        usage = Usage(*tokens)
        reply = Reply("so", usage=usage, cost=self.model.rate.cost(usage), seconds=1.0)
        self.tally.own += Spent(calls=1, usage=reply.usage, cost_usd=reply.cost)
        await self.guard.after(think, reply, True)

    async def ask(self, tokens: tuple[int, int] = (100, 20), **how: Any) -> int | None:
        """Take a model call all the way; return the length of its reply that the guard allowed."""
        think = await self.think(**how)
        attempt = await self.attempt(think)
        await self.reply(think, attempt, tokens)
        allowed: int | None = attempt.effect.max_tokens
        return allowed

    async def start_child(self, run: str) -> Entry:
        entry = self.entry(StartChild(None, "?", run))
        await self.guard.before(entry)
        return entry

    @property
    def held(self) -> dict[Any, Any]:
        return self.guard._held


async def near_of(work: Awaitable[Any]) -> tuple[str, str]:
    with pytest.raises(LimitNear) as raised:
        await work
    return raised.value.limit, raised.value.detail


async def reached_of(work: Awaitable[Any]) -> tuple[str, str]:
    with pytest.raises(LimitReached) as raised:
        await work
    return raised.value.limit, raised.value.detail


# --- near, the reserve, reached


async def test_after_a_limit_is_near_one_model_call_is_left_and_then_the_limit_is_reached() -> None:
    run = Walked(Limits(steps=2))
    await run.ask()
    await run.ask()
    near = ("steps", "the limit of 2 steps is reached")
    assert await near_of(run.think()) == near
    think = await run.think()
    await run.reply(think, None)
    assert await reached_of(run.think()) == near
    assert await reached_of(run.think(repair=True)) == near
    assert not run.held


async def test_one_step_is_a_step_and_a_repair_is_none() -> None:
    run = Walked(Limits(steps=1))
    await run.ask()
    await run.ask(repair=True)
    assert await near_of(run.think()) == ("steps", "the limit of 1 step is reached")


async def test_what_the_guard_raises_changes_nothing_until_the_loop_has_received_it() -> None:
    run = Walked(Limits(calls=1))
    for _ in range(2):
        entry = run.entry(Think("act"))
        assert await near_of(run.guard.before(entry)) == ("calls", "one of 1 model calls is left")
    await run.guard.before(run.entry(Act((Call("look", {}),))))
    await run.guard.before(run.entry(Call("look", {})))


@pytest.mark.parametrize("effect", [Call("look", {}), Execute("x"), Continue(())])
async def test_a_loop_that_acts_although_it_must_conclude_is_stopped(effect: Any) -> None:
    run = Walked(Limits(steps=1))
    await run.guard.before(run.entry(effect))
    await run.ask()
    await near_of(run.think())
    assert await reached_of(run.guard.before(run.entry(effect))) == ("steps", "the limit of 1 step is reached")


@pytest.mark.parametrize("effect", [Act((Call("look", {}),)), CheckAnswer("42"), Think("act"), Execute("x")])
async def test_the_signal_of_another_guard_makes_the_run_conclude(effect: Any) -> None:
    run = Walked(Limits())
    await run.guard.after(run.entry(effect), LimitNear("loop", "it goes round"), False)
    assert await reached_of(run.guard.before(run.entry(Call("look", {})))) == ("loop", "it goes round")
    await run.think()
    assert await reached_of(run.think()) == ("loop", "it goes round")


async def test_the_first_signal_says_why_the_run_ends() -> None:
    run = Walked(Limits(steps=1))
    await run.ask()
    await near_of(run.think())
    await run.guard.after(run.entry(Act((Call("look", {}),))), LimitNear("loop", "it goes round"), False)
    assert await reached_of(run.guard.before(run.entry(Call("look", {})))) == (
        "steps",
        "the limit of 1 step is reached",
    )


async def test_a_started_call_never_gets_the_one_in_reserve() -> None:
    run = Walked(Limits(calls=2))
    await run.ask(started=True)
    assert await near_of(run.think(started=True)) == ("calls", "one of 2 model calls is left")
    assert await near_of(run.think(started=True)) == ("calls", "one of 2 model calls is left")
    await run.ask()
    assert (run.tally.own.requests, run.tally.own.calls) == (2, 2)


@pytest.mark.parametrize(
    "why", [Unsupported("no tools", "tools"), ContextOverflow("too long"), LimitNear("loop", "x"), None]
)
async def test_the_reserve_is_there_again_if_the_model_was_not_asked(why: Exception | None) -> None:
    run = Walked(Limits(steps=1))
    await run.ask()
    await near_of(run.think())
    think = await run.think()
    if why is None:  # a guard behind this one asks the user
        run.guard.release(think)
    else:
        await run.guard.after(run.entry(think.effect, think.key), why, False)
        run.guard.release(think)
    think = await run.think()
    await run.reply(think, None)
    await reached_of(run.think())
    assert not run.held


async def test_a_recorded_conclusion_uses_the_reserve_as_the_live_one_did() -> None:
    run = Walked(Limits(steps=1), spent=Spent(1, 2, 2))
    for key, effect, result in [
        ("0", Think("act"), Reply("look")),
        ("1", Think("act"), LimitNear("steps", "the limit of 1 step is reached")),
        ("2", Think("act"), Reply("so")),
    ]:
        entry = run.entry(effect, key, recorded=True, begun=True)
        if isinstance(result, Reply):
            run.guard.restore(entry, None)
        await run.guard.after(entry, result, False)
    assert await reached_of(run.think()) == ("steps", "the limit of 1 step is reached")
    assert run.tally.json() == {**Tally().json(), "calls": 2, "requests": 2}


async def test_an_interrupted_conclusion_goes_on_with_the_call_in_reserve() -> None:
    run = Walked(Limits(calls=3), spent=Spent(1, 2, 1))
    await run.guard.after(run.entry(Think("act"), "1"), LimitNear("calls", "one of 3 model calls is left"), False)
    think = run.entry(Think("act"), "2", begun=True)
    run.guard.restore(think, None)
    lost = run.entry(Attempt(think.effect, run.model, BODY, None), "2a0", begun=True)
    run.guard.restore(lost, None)
    await run.guard.after(lost, ResponseRecord(0, 0.0, "interrupted"), False)
    attempt = await run.attempt(think, number=1)
    await run.reply(think, attempt)
    assert run.tally.own.requests == 3 and not run.held


# --- model calls: requests


@pytest.mark.parametrize("failures", [0, 1, 3])
async def test_each_attempt_counts_and_the_reserve_is_for_the_answer(failures: int) -> None:
    run = Walked(Limits(calls=4))
    think = await run.think()
    for number in range(failures):
        await run.fail(await run.attempt(think, number=number))
    if failures == 3:
        why = "3 of 4 requests were sent, and the last failed"
        assert await near_of(run.attempt(think, number=3)) == ("calls", why)
        run.guard.release(think)
        think = await run.think()
        await run.fail(await run.attempt(think))
        assert await reached_of(run.attempt(think, number=1)) == ("calls", why)
        run.guard.release(think)
    else:
        await run.reply(think, await run.attempt(think, number=failures))
    assert run.tally.own.requests == (4 if failures == 3 else failures + 1) and not run.held


async def test_calls_that_begin_together_each_hold_their_request() -> None:
    run = Walked(Limits(calls=4))
    thinks = [await run.think(started=True, beside=2 - i) for i in range(3)]
    assert await near_of(run.think(started=True)) == ("calls", "one of 4 model calls is left")
    attempts = [await run.attempt(think) for think in thinks]
    run.send(attempts[0])  # a request that is being sent is in the tally, and no longer held
    assert run.guard._find_use()[0].requests == 3
    attempts[0].begun, run.tally.own = False, Spent(1)
    for think, attempt in zip(thinks, attempts, strict=True):
        await run.reply(think, attempt)
    assert run.tally.own.requests == 3 and not run.held


async def test_an_attempt_whose_request_another_call_took_meanwhile_is_not_sent() -> None:
    run = Walked(Limits(calls=3))
    think = await run.think()  # a hook looks at its request
    tool = await run.think(by_tool=True)
    await run.reply(tool, None)
    run.tally.own += Spent(requests=1)
    assert await near_of(run.attempt(think)) == ("calls", "one of 3 model calls is left")


async def test_without_limits_for_them_attempts_are_not_looked_at() -> None:
    assert Attempt not in Walked(Limits(seconds=3)).guard.points
    for limits in (Limits(calls=1), Limits(tokens=1), Limits(usd=1.0)):
        above = Walked(limits)
        assert Attempt in above.guard.points
        assert Attempt in Walked(Limits(), above=above, run="child").guard.points
    assert set(Walked(Limits()).guard.points_after or ()) == {Finish}, "whole replies need not be waited for"


# --- model calls: tokens, USD, seconds


async def test_a_call_like_the_last_must_leave_room_for_the_answer() -> None:
    run = Walked(Limits(tokens=1000))
    assert await run.ask((100, 50)) == 400  # half of the rest, without the two prompts
    assert await run.ask((300, 50)) == 300  # and without another reply like the last
    assert await near_of(run.think()) == ("tokens", "500 of 1,000 tokens are used")
    assert await run.ask() == 400  # the last call may take the rest
    await reached_of(run.think())
    assert not run.held


async def test_a_limit_in_usd_counts_in_the_price_of_the_model() -> None:
    run = Walked(Limits(usd=0.001))
    assert await run.ask((300, 100)) == 200
    assert await near_of(run.think()) == ("usd", "0.00050 of 0.00100 USD are used")
    assert await run.ask() == 200


async def test_a_limit_in_usd_needs_a_price_here_and_in_the_runs_above() -> None:
    why = ("usd", "a limit in USD is set, but the price of scripted:scripted is not known")
    above = Walked(Limits(usd=1.0), rate=Rate())
    below = Walked(Limits(), above=above, run="child", rate=Rate())
    for run in (above, below):
        assert await reached_of(run.think()) == why
    tool = await below.think(by_tool=True)
    assert await reached_of(below.attempt(tool)) == why
    await Walked(Limits(tokens=9999), rate=Rate()).ask()


async def test_a_cost_that_is_not_known_leaves_no_room() -> None:
    run = Walked(Limits(usd=1.0))
    await run.ask()
    run.tally.own += Spent(usage=Usage(1, 1), cost_usd=None)
    why = "a limit in USD is set, but the price of this model is not known"
    assert await near_of(run.think()) == ("usd", why)


async def test_a_model_that_costs_nothing_has_all_room() -> None:
    run = Walked(Limits(usd=1.0), rate=Rate("tokens", 0.0, 0.0))
    assert await run.ask() is None


async def test_the_usual_time_of_a_call_must_be_left_twice() -> None:
    run = Walked(Limits(seconds=10))
    for seconds in (0, 5, 1, 1):
        run.now += seconds
        await run.ask()
    entry = run.entry(Think("act"), "0", recorded=True)
    await run.guard.after(entry, Reply("so", seconds=9.0), False)  # told again: it is no further call
    run.now += 1.5
    near = "8.5 of 10 seconds are used, and a model call takes about 1.0 s"
    assert await near_of(run.think()) == ("seconds", near)


async def test_the_length_that_is_wanted_stays_if_there_is_room() -> None:
    run = Walked(Limits(tokens=10_000))
    attempt = await run.attempt(await run.think(), wanted=50)
    assert attempt.effect.max_tokens == 50 and attempt.effect.body == BODY
    assert [(each.tokens, each.usd) for each in run.held.values() if each.tokens] == [(150, 0.0)]


@pytest.mark.parametrize(
    "limits, why",
    [
        (Limits(tokens=90), "the rest of the limit, 90 tokens, does not cover another call (about 116)"),
        (Limits(usd=0.00005), "the rest of the budget, 0.00005 USD, does not cover another call (about 0.00013)"),
    ],
)
async def test_a_prompt_that_does_not_fit_is_not_sent(limits: Limits, why: str) -> None:
    run = Walked(limits)
    think = await run.think()
    limit = "tokens" if limits.tokens else "usd"
    assert await near_of(run.attempt(think)) == (limit, why)
    run.guard.release(think)
    think = await run.think()
    assert await reached_of(run.attempt(think)) == (limit, why)
    run.guard.release(think)
    assert not run.held


async def test_the_words_say_what_the_answer_takes_as_well() -> None:
    run = Walked(Limits(tokens=500))
    await run.ask((100, 20))
    think = await run.think()
    why = "the rest of the limit, 380 tokens, does not cover another call and the final answer (about 852)"
    assert await near_of(run.attempt(think, body=b"x" * (1600 - LENGTH_FIELD))) == ("tokens", why)


async def test_calls_that_begin_together_each_get_a_part_of_what_is_left() -> None:
    run = Walked(Limits(tokens=3000))
    await run.ask((100, 20))
    thinks = [await run.think(started=True, beside=2 - i) for i in range(3)]
    attempts = [await run.attempt(think) for think in thinks]
    # half of a third of the 2,880 that are left, of a half of what then is left, of all that then is left
    assert [each.effect.max_tokens for each in attempts] == [410, 512, 769]
    assert run.guard._find_use()[1] == 3 * 100 + 410 + 512 + 769
    for think, attempt in zip(thinks, attempts, strict=True):
        await run.reply(think, attempt, (100, attempt.effect.max_tokens))
    assert run.tally.own.usage.tokens == 120 + 3 * 100 + 410 + 512 + 769 and not run.held


async def test_a_further_attempt_is_no_longer_together_with_others() -> None:
    run = Walked(Limits(tokens=3000))
    await run.ask((100, 20))
    think = await run.think(started=True, beside=2)
    await run.fail(await run.attempt(think), Usage(100, 0))
    assert (await run.attempt(think, number=1)).effect.max_tokens == 1280


async def test_what_is_held_ends_with_after_and_with_release() -> None:
    above = Walked(Limits(tokens=9000, usd=1.0, calls=20))
    run = Walked(Limits(tokens=9000), above=above, run="child")
    for way in ("reply", "fail", "release"):
        think = await run.think()
        attempt = await run.attempt(think)
        assert len(run.held) == len(above.held) == 2
        spent, tokens, usd = above.guard._find_use()
        assert (tokens, usd > 0) == (100 + attempt.effect.max_tokens, True)
        assert spent.requests == above.tally.tree_total.requests + 1
        if way == "reply":
            await run.reply(think, attempt)
        else:
            await run.fail(attempt) if way == "fail" else run.guard.release(attempt)
            run.guard.release(think)
        assert not run.held and not above.held


async def test_a_denser_text_is_learned_for_its_model_alone() -> None:
    estimate = TokenEstimate()
    model, other = plait.Scripted([], name="a"), plait.Scripted([], name="b")
    assert estimate.prompt_tokens(model, BODY) == 100
    estimate.learn(model, BODY, Usage(2 * len(BODY), 5))
    estimate.learn(model, BODY, Usage(9, 5, estimated=True))
    assert (estimate.prompt_tokens(model, BODY), estimate.prompt_tokens(other, BODY)) == (800, 100)


# --- what tools ask


async def test_a_tool_gets_no_call_that_the_run_needs_and_does_not_end_it() -> None:
    run = Walked(Limits(calls=3))
    await run.ask()
    await run.ask(by_tool=True)
    for _ in range(2):
        assert await near_of(run.think(by_tool=True)) == ("calls", "one of 3 model calls is left")
    assert run.guard.near is None
    await near_of(run.think())
    assert await near_of(run.think(by_tool=True)) == ("calls", "one of 3 model calls is left")
    await run.ask()
    assert run.tally.own.requests == 3


async def test_the_reply_to_a_tool_says_nothing_about_the_calls_of_the_loop() -> None:
    run = Walked(Limits(tokens=2000))
    await run.ask((100, 20))
    await run.ask((900, 200), by_tool=True)
    await run.ask((100, 20))
    assert run.guard._last is not None and run.guard._last.usage.tokens == 120


async def test_a_question_of_a_tool_has_no_room_in_tokens() -> None:
    run = Walked(Limits(tokens=300))
    await run.ask((100, 20))
    assert await near_of(run.think(by_tool=True)) == ("tokens", "120 of 300 tokens are used")
    run = Walked(Limits(tokens=365))
    await run.ask((100, 20))
    tool = await run.think(by_tool=True)
    why = "the rest of the limit, 245 tokens, does not cover another call and the final answer (about 252)"
    assert await near_of(run.attempt(tool)) == ("tokens", why)
    assert run.guard.near is None


# --- trees


async def test_a_child_leaves_each_run_above_it_a_call() -> None:
    above = Walked(Limits(calls=5))
    await above.ask()
    child = Walked(Limits(), above=above, run="child")
    await child.ask()
    await child.ask()
    why = "2 of 5 model calls are left, in the run whose tool this is"
    assert await near_of(child.think()) == ("calls", why)
    await child.ask()
    await near_of(above.think())
    await above.ask()
    assert above.tally.tree_total.requests == 5


async def test_a_child_never_takes_the_last_call_of_a_run_above() -> None:
    above = Walked(Limits(calls=3))
    await above.ask()
    child = Walked(Limits(), above=above, run="child")
    await near_of(child.think())
    think = await child.think()
    above.tally.own += Spent(requests=1)
    why = "the run whose tool this is has no model call left for it: one of 3 model calls is left"
    assert await reached_of(child.attempt(think)) == ("calls", why)


async def test_the_tokens_of_a_run_above_are_shared_among_its_children() -> None:
    above = Walked(Limits(tokens=5000))
    await above.ask((100, 20))
    children = [Walked(Limits(), above=above, run=f"child{i}") for i in range(4)]
    first = await children[0].attempt(await children[0].think())
    assert first.effect.max_tokens == 532  # of the 5,000 less 120, and 120 for the answer of the run above: a quarter
    second = await children[1].attempt(await children[1].think())
    assert second.effect.max_tokens == 453  # the first one holds its part
    for attempt in (first, second):
        children[0].guard.release(attempt)
        children[1].guard.release(attempt)
    for each in children[1:]:
        each.tally.is_over = True
    assert (await children[0].attempt(await children[0].think())).effect.max_tokens == 2280


async def test_a_limit_of_a_run_above_is_near_for_its_child_and_says_whose_it_is() -> None:
    above = Walked(Limits(tokens=700, usd=1.0, seconds=9))
    child = Walked(Limits(), above=above, run="child")
    await child.ask((200, 100))
    where = ", in the run whose tool this is"
    assert await near_of(child.think()) == ("tokens", f"300 of 700 tokens are used{where}")
    above = Walked(Limits(seconds=9))
    child = Walked(Limits(), above=above, run="child")
    await child.ask()
    above.now = 8.5
    near = f"8.5 of 9 seconds are used, and a model call takes about 0.5 s{where}"
    assert await near_of(child.think()) == ("seconds", near)
    above = Walked(Limits(usd=0.001))
    child = Walked(Limits(), above=above, run="child")
    await child.ask((300, 100))
    assert await near_of(child.think()) == ("usd", f"0.00050 of 0.00100 USD are used{where}")


async def test_a_child_concludes_for_itself() -> None:
    above = Walked(Limits(calls=9))
    child = Walked(Limits(steps=1), above=above, run="child")
    await child.ask()
    await near_of(child.think())
    await above.ask()
    assert above.guard.near is None


@for_each("seed", range(40))
async def test_a_tree_of_runs_stays_within_all_its_limits_and_holds_nothing_in_the_end(seed: int) -> None:
    chance = random.Random(seed)
    runs: list[Walked] = []
    for i in range(4):
        limits = Limits(
            steps=chance.choice([None, 3]),
            calls=chance.choice([None, chance.randint(1, 12)]),
            tokens=chance.choice([None, chance.randint(300, 6000)]),
            usd=chance.choice([None, chance.randint(300, 6000) * 1e-6]),
        )
        runs.append(Walked(limits, above=chance.choice(runs) if runs else None, run=f"run{i}"))
    ended: set[str] = set()
    for _ in range(60):
        run = chance.choice(runs)
        if run.run in ended:
            continue
        count, by_tool = chance.choice([(1, False), (1, True), (3, False)])
        begun: list[tuple[Entry, Entry]] = []
        for beside in reversed(range(count)):
            think: Entry | None = None
            try:
                think = await run.think(started=count > 1, beside=beside, by_tool=by_tool)
                begun.append((think, await run.attempt(think)))
                if chance.random() < 0.3:
                    await run.fail(begun[-1][1], Usage(100, 0))
                    begun[-1] = (think, await run.attempt(think, number=1))
            except (LimitNear, LimitReached) as why:
                begun = [each for each in begun if each[0] is not think]
                if think is not None:
                    run.guard.release(think)
                if isinstance(why, LimitReached) and not by_tool:
                    ended.add(run.run)
        for think, attempt in begun:
            most = attempt.effect.max_tokens
            await run.reply(think, attempt, (100, chance.randint(1, min(most or 200, 200))))
    for run in runs:
        limits, spent = run.guard.limits, run.tally.tree_total
        assert not run.held
        assert limits.calls is None or spent.requests <= limits.calls
        assert limits.tokens is None or spent.usage.tokens <= limits.tokens
        assert limits.usd is None or (spent.cost_usd is not None and spent.cost_usd <= limits.usd)


# --- child runs


async def test_the_limit_of_children_counts_those_that_are_about_to_begin() -> None:
    run = Walked(Limits(children=2))
    first, second = await run.start_child("a"), await run.start_child("b")
    assert await near_of(run.start_child("c")) == ("children", "the run has its 2 child runs")
    Walked(Limits(), above=run, run="a")  # it has begun: it is in the tally, and not counted twice
    await near_of(run.start_child("c"))
    run.guard.release(second)  # it could not be prepared
    third = await run.start_child("c")
    await run.guard.after(first, ChildEnd("answered"), True)
    await near_of(run.start_child("d"))
    run.guard.release(third)
    assert not run.held
    await run.start_child("d")


async def test_depth_and_children_hold_for_the_tree() -> None:
    top = Walked(Limits(depth=2, children=3))
    middle = Walked(Limits(), above=top, run="a")
    low = Walked(Limits(depth=0), above=middle, run="b")
    assert await near_of(low.start_child("c")) == ("depth", "0 levels of child runs are allowed")
    low = Walked(Limits(), above=middle, run="b")
    assert await near_of(low.start_child("c")) == ("depth", "2 levels of child runs are allowed")
    entry = await middle.start_child("c")
    assert await near_of(top.start_child("d")) == ("children", "the run has its 3 child runs")
    middle.guard.release(entry)
    await top.start_child("d")
    assert await near_of(Walked(Limits(depth=1), above=Walked(Limits(depth=1)), run="x").start_child("y")) == (
        "depth",
        "1 level of child runs are allowed",
    )


async def test_a_child_on_record_is_counted_once_and_goes_on_at_the_limit() -> None:
    run = Walked(Limits(children=1), children={"a": Spent(1, 3, 2, Usage(10, 10))})
    await near_of(run.start_child("b"))
    entry = await run.start_child("a")  # its row is there, that of its entry is not
    run.guard.release(entry)
    run.guard.restore(run.entry(StartChild(None, "?", "a"), begun=True), None)
    assert run.guard._find_use()[0] == Spent(2, 3, 2, Usage(10, 10))
    begun = Walked(Limits(children=1))
    begun.guard.restore(begun.entry(StartChild(None, "?", "a"), begun=True), None)
    await near_of(begun.start_child("b"))


# --- the end


@pytest.mark.parametrize(
    "outcome, stopped",
    [
        (Answered("42"), Stopped("tokens", "WORDS", "42")),
        (Failed("No reply fits.", kind="format"), Stopped("tokens", "WORDS No reply fits.")),
        (Stopped("steps", "the end", "42"), Stopped("steps", "The end. WORDS", "42")),
        (Crashed("broken", error="E"), Crashed("broken", error="E")),
    ],
)
async def test_a_run_over_its_limit_says_by_how_much(outcome: Outcome, stopped: Outcome) -> None:
    run = Walked(Limits(tokens=1000))
    finish = run.entry(Finish(), "")
    assert await run.guard.after(finish, outcome, True) is outcome
    run.tally.own += Spent(usage=Usage(1000, 234, estimated=True), cost_usd=0.0)
    words = "The run used about 1,234 tokens, 234 more than its limit of 1,000."
    found = await run.guard.after(finish, outcome, True)
    if isinstance(stopped, Stopped):
        stopped = Stopped(stopped.limit, stopped.reason.replace("WORDS", words), stopped.answer)
    assert found == stopped


async def test_child_runs_count_in_the_excess() -> None:
    run = Walked(Limits(usd=0.001))
    run.tally.children["a"] = Spent(1, 1, 1, Usage(10, 10), 0.0015)
    found = await run.guard.after(run.entry(Finish(), ""), Answered("42"), True)
    assert found == Stopped("usd", "The run cost 0.00150 USD, 0.00050 more than its limit of 0.00100.", "42")
    run.tally.own += Spent(usage=Usage(1, 1), cost_usd=None)
    assert (await run.guard.after(run.entry(Finish(), ""), Answered("42"), True)) == Answered("42")


# --- the tally


def test_a_tally_begins_with_the_record_and_sums_its_tree() -> None:
    past = Spent(1, 3, 2, Usage(100, 10), 0.5, 4)
    tally = Tally(past, {"a": Spent(2, 5, 4, Usage(50, 5), 0.25, 7)})
    child = Tally()
    tally.children["b"] = child
    for each in (tally, child):
        each.own += Spent(requests=1)
        each.own += Spent(requests=1)
        each.own += Spent(usage=Usage(1, 0), cost_usd=0.001)
        each.own += Spent(calls=1, usage=Usage(10, 1), cost_usd=0.1)
        each.own += Spent(tool_calls=1)
    assert tally.tree_total == Spent(4, 12, 8, Usage(172, 17), 0.952, 13)
    own = tally.json()
    assert list(own)[:4] == ["calls", "requests", "tool_calls", "input_tokens"] and list(own)[-1] == "cost_usd"
    assert (own["calls"], own["requests"], own["input_tokens"], own["cost_usd"]) == (3, 5, 111, 0.601)
    assert spent_in(own) == Spent(1, 5, 3, Usage(111, 11), 0.601, 5)
    assert spent_in({**own, "tree": tally.tree_total.json()}) == tally.tree_total
    child.own += Spent(usage=Usage(), cost_usd=None)
    assert tally.own.cost_usd == 0.601 and tally.tree_total.cost_usd is None


def test_costs_add_up_exactly() -> None:
    tally = Tally()
    for _ in range(1000):
        tally.own += Spent(usage=Usage(), cost_usd=0.1)
    assert tally.own.cost_usd == 100.0


async def test_the_model_of_a_phase_is_looked_up_for_its_price_alone() -> None:
    asked: list[str] = []

    def model_of(phase: str) -> Model:
        asked.append(phase)
        return plait.Scripted([], rate=PRICED)

    for limits in (Limits(), Limits(usd=1.0)):
        entry = Entry("run", "0", 1, Think("solve"), Think("solve"))
        await LimitGuard(limits, Tally(), RunClock(), model_of).before(entry)
    assert asked == ["solve"]


def test_a_fork_counts_the_child_runs_of_its_kept_steps(tmp_path: Path) -> None:
    journal = tmp_path / "runs.db"
    child = plait.Agent("tool_calling", model=plait.Scripted(["child"]), journal=journal)
    ask = [Reply("", calls=(Call("ask_agent", {"question": each}, "c"),)) for each in "xyz"]
    agent = plait.Agent("tool_calling", model=plait.Scripted([*ask, "end"]), tools=[child.as_tool()], journal=journal)
    run = agent.run("q")
    fork = agent.using(limits=plait.Limits(children=2)).fork(run, 2)
    refused = ["run has its 2 child runs" in call.observation.text for call in fork.timeline.tool_calls]
    assert refused == [False, False, True]
    fork = agent.using(limits=plait.Limits(calls=4)).fork(run, 2)  # one of the run and one of its child are kept
    assert (fork.status, fork.tree.calls) == ("stopped", 4)
