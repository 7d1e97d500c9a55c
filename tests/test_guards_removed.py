"""Each built-in guard can be removed from the chain: runs that it has nothing to decide about end the same without it.

The runs have many kinds of work. A run of `OWN` needs guards, by name, and ends otherwise without them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from msgspec import structs

import plait
from core_runs import (
    DELEGATE,
    HELP,
    LOOK,
    PAY,
    WORLD,
    Tried,
    agent_of,
    asker,
    asks_model,
    calls,
    did,
    payer,
    texts,
    tried,
    until_limit,
    with_child,
)
from loop_scripts import LOOPS, SCRIPTS, reply_of
from plait.core import Call, CheckAnswer, LoopRun
from plait.core.effects import Act, AskUser, Start, WaitNext
from without_guard import GUARDS, remove_guard


class Lowers(plait.Hook):
    """Lowers payments, and ends answers with a mark."""

    def before_tool(self, context: Any, call: Call) -> Any:
        return structs.replace(call, input={**call.input, "amount": 1}) if call.tool == "pay" else None


def starts() -> LoopRun:
    yield Start((Act((PAY,)), asks_model("q"), Act((Call("post", {"text": "a"}),))))
    found = {}
    for _ in range(3):
        taken = yield WaitNext()
        found[taken.ticket] = taken.reply.text if taken.reply is not None else texts(taken.observations)
    return [found[ticket] for ticket in sorted(found)]  # type: ignore[return-value]


def asks_and_checks() -> LoopRun:
    said = yield AskUser("Go on?")
    objection = yield CheckAnswer(said)
    return [said, objection]  # type: ignore[return-value]


def pays_after_reading() -> LoopRun:
    yield Act((Call("browse", {"page": "x"}),))
    return texts((yield Act((PAY,))))  # type: ignore[return-value]


def repeats() -> LoopRun:
    for _ in range(9):
        yield Act((LOOK,))
    return "done"  # type: ignore[return-value]


def thinks() -> LoopRun:
    for n in range(5):
        yield asks_model(f"{n}")
    return "done"  # type: ignore[return-value]


def answers_twice() -> LoopRun:
    objection = yield CheckAnswer("many")
    return "many" if objection == "" else 7  # type: ignore[return-value]


def of_loop(loop: str) -> Tried:
    """Return a run of one of Plait's loops, which fetches two values and sends three texts."""

    @plait.tool(idempotent=True)
    def fetch(key: str) -> str:
        """Fetch a value."""
        return f"value of {key}"

    @plait.tool
    def send(text: str) -> str:
        """Send a text."""
        WORLD.append((("", ""), text.split()[0]))
        return f"sent {text}"

    def make() -> plait.Agent[Any]:
        replies = {phase: [*map(reply_of, turns)] for phase, turns in SCRIPTS[loop].items()}
        return plait.Agent(loop, model=plait.Scripted(replies), tools=[fetch, send], journal=False)

    return Tried(make)


NEUTRAL: dict[str, Callable[[], Tried]] = {
    "calls": lambda: tried(calls(PAY, LOOK, Call("none", {}), Call("pay", {"amount": "much"}))),
    "started": lambda: tried(starts),
    "asks and checks": lambda: tried(asks_and_checks),
    "a child pays": lambda: with_child(calls(HELP, PAY), payer),
    "a child asks": lambda: with_child(calls(HELP, DELEGATE), asker),
    "a model is asked": lambda: tried(thinks),
    **{loop: (lambda loop=loop: of_loop(loop)) for loop in LOOPS if loop != "codeact"},  # type: ignore[misc]
}

OWN: dict[str, tuple[set[str], Callable[[], Tried]]] = {
    "approve effects": ({"approvals"}, lambda: tried(calls(PAY, LOOK), approve="effects")),
    "approve below": ({"approvals"}, lambda: with_child(calls(HELP), payer, approve="effects")),
    "taint": ({"taint", "approvals"}, lambda: tried(pays_after_reading, taint="ask")),
    "grounding": ({"grounding", "approvals"}, lambda: tried(calls(PAY), grounding="ask")),
    "hooks": ({"hooks"}, lambda: tried(calls(PAY), Lowers)),
    "hooks below": ({"hooks"}, lambda: with_child(calls(HELP), payer, Lowers)),
    "breaker": ({"breaker"}, lambda: tried(lambda: until_limit(repeats()))),
    "limits": ({"limits"}, lambda: tried(lambda: until_limit(thinks()), limits=plait.Limits(calls=3))),
    "spend": ({"spend"}, lambda: tried(thinks, spend=["runs=0"], journal=":memory:")),
    "output": ({"output"}, lambda: Tried(lambda: agent_of(answers_twice, output=int))),
}

RUNS = {name: (set[str](), make) for name, make in NEUTRAL.items()} | OWN


def take(make: Callable[[], Tried]) -> tuple[Any, list[str]]:
    """Take a run to its end, with "no" for each question. Returns its outcome, and what it did."""
    WORLD.clear()
    run = make().finish(["no"] * 9)
    return (run.outcome, [each.answer for each in run.children]), did()


@cache
def take_with_all(name: str) -> tuple[Any, list[str]]:
    """Take a run to its end, with all guards."""
    return take(RUNS[name][1])


@pytest.mark.parametrize("removed", GUARDS)
@pytest.mark.parametrize("name", RUNS)
def test_a_run_ends_the_same_without_a_guard_unless_that_guard_decides_about_it(
    removed: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners, make = RUNS[name]
    usual = take_with_all(name)
    remove_guard(removed, monkeypatch)
    assert (take(make) == usual) is (removed not in owners)
