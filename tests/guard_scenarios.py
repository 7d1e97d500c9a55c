"""Short runs with every guard, and how each of them ends if nobody disturbs it: see `step_scenarios.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import plait
from cli_support import action, final
from step_parts import ask_about, hook, is_small, model, number, refuse, send, shout, to
from step_scenarios import (
    EDIT,
    FETCH,
    NO,
    ONE,
    OVER,
    SEND,
    Make,
    Scenario,
    ask_in_session,
    ask_once,
    fork_at_second_step,
    helper,
    loop,
    native,
    steps,
    tokens,
)

PAY = action("pay", {"to": "Ada", "amount": 4321})
READ = action("read_page", {"key": "a"})


def guarded(point: str, decide: Callable[[Any], Any], **fields: Any) -> Make:
    """Return what makes an agent with a hook at one point, which sends a text and answers twice."""
    return loop("react", SEND, OVER, final("second"), tools=[send], hooks=[hook(point, decide)], **fields)


HOOKS: dict[str, Scenario] = {
    "before_model changes": Scenario(guarded("before_model", shout), effects=ONE, requests=2),
    "before_model refuses": Scenario(guarded("before_model", refuse), None, status="failed"),
    "before_model asks": Scenario(guarded("before_model", ask_about), effects=ONE, asked=2, requests=2),
    "after_model changes": Scenario(guarded("after_model", shout), "OVER", effects=("ONE",), requests=2),
    "after_model refuses": Scenario(guarded("after_model", refuse), None, status="failed", requests=1),
    "after_model asks": Scenario(guarded("after_model", ask_about), effects=ONE, asked=2, requests=2),
    "before_tool changes": Scenario(guarded("before_tool", shout), effects=("ONE",), requests=2),
    "before_tool changes, each time otherwise": Scenario(guarded("before_tool", number), effects=ONE, requests=2),
    "after_tool changes, each time otherwise": Scenario(guarded("after_tool", number), effects=ONE, requests=2),
    "before_tool refuses": Scenario(guarded("before_tool", refuse), requests=2),
    "before_tool asks": Scenario(guarded("before_tool", ask_about), effects=ONE, asked=1, requests=2),
    "before_tool asks, edited": Scenario(
        guarded("before_tool", ask_about), effects=("other",), asked=1, says=EDIT, requests=2
    ),
    "before_tool asks, refused": Scenario(guarded("before_tool", ask_about), asked=1, says=NO, requests=2),
    "before_tool asks, the policy too": Scenario(
        guarded("before_tool", ask_about, approve="effects"), effects=ONE, asked=2, requests=2
    ),
    "after_tool changes": Scenario(guarded("after_tool", shout), effects=ONE, requests=2),
    "after_tool refuses": Scenario(guarded("after_tool", refuse), effects=ONE, requests=2),
    "after_tool asks": Scenario(guarded("after_tool", ask_about), effects=ONE, asked=1, requests=2),
    "after_tool asks, refused": Scenario(guarded("after_tool", ask_about), effects=ONE, asked=1, says=NO, requests=2),
    "before_answer changes": Scenario(guarded("before_answer", shout), "OVER", effects=ONE, requests=2),
    "before_answer refuses": Scenario(guarded("before_answer", refuse), "second", effects=ONE, requests=3),
    "before_answer asks": Scenario(guarded("before_answer", ask_about), effects=ONE, asked=1, requests=2),
    "after_answer changes": Scenario(guarded("after_answer", shout), "OVER", effects=ONE, requests=2),
    "after_answer refuses": Scenario(guarded("after_answer", refuse), None, effects=ONE, status="failed", requests=2),
    "after_answer asks": Scenario(guarded("after_answer", ask_about), effects=ONE, asked=1, requests=2),
    "a hook decides about a child": Scenario(
        steps("helper", helper("answer as asked"), hooks=[hook("before_tool", lambda call: None)]),
        ["re: done? sent one"],
        ONE,
        requests=2,
    ),
}

PARALLEL = ["value of a", "sent one", "posted two", "value of b"]
AHEAD = ["re: meanwhile", "sent one", "value of a", "posted two", "re: b"]
CODE = ["value of a", "sent one", "value of a", "value of b", "sent two"]
BOTH = ("one", "two")
WITHHELD = "~is withheld. Not so"


def hooked(story: str, point: str, decide: Callable[[Any], Any], *helpers: plait.Tool, **fields: Any) -> Make:
    """Return what makes an agent that performs a story, with a hook at one point."""
    return steps(story, *helpers, hooks=[hook(point, decide)], **fields)


HOOKS_ELSEWHERE: dict[str, Scenario] = {
    "parallel, before_tool refuses one": Scenario(
        hooked("parallel", "before_tool", to("post", refuse)),
        ["value of a", "sent one", "~refused: not so", "value of b"],
        ("one",),
        requests=1,
    ),
    "parallel, before_tool changes, each time otherwise": Scenario(
        hooked("parallel", "before_tool", number),
        ["~value of a#", "~sent one#", "~posted two#", "~value of b#"],
        BOTH,
        requests=1,
    ),
    "parallel, after_tool changes, each time otherwise": Scenario(
        hooked("parallel", "after_tool", number),
        ["~value of a#", "~sent one#", "~posted two#", "~value of b#"],
        BOTH,
        requests=1,
    ),
    "parallel, before_tool asks about one": Scenario(
        hooked("parallel", "before_tool", to("post", ask_about)), PARALLEL, BOTH, asked=1, requests=1
    ),
    "parallel, before_tool asks about each": Scenario(
        hooked("parallel", "before_tool", ask_about), PARALLEL, BOTH, asked=4, requests=1
    ),
    "parallel, after_tool asks about one": Scenario(
        hooked("parallel", "after_tool", ask_about), PARALLEL, BOTH, asked=4, requests=1
    ),
    "parallel, after_tool refuses": Scenario(
        hooked("parallel", "after_tool", refuse), [WITHHELD] * 4, BOTH, requests=1
    ),
    "started, before_tool refuses": Scenario(
        hooked("run ahead", "before_tool", to("send", refuse)),
        ["re: meanwhile", "~refused: not so", "value of a", "posted two", "re: b"],
        ("two",),
        requests=2,
        beside=2,
    ),
    "started, before_tool asks": Scenario(
        hooked("run ahead", "before_tool", to("send", ask_about)), AHEAD, BOTH, asked=1, requests=2, beside=2
    ),
    "started, after_tool asks": Scenario(
        hooked("run ahead", "after_tool", ask_about), AHEAD, BOTH, asked=3, requests=2, beside=2
    ),
    "started, after_tool refuses": Scenario(
        hooked("run ahead", "after_tool", refuse),
        ["re: meanwhile", WITHHELD, WITHHELD, WITHHELD, "re: b"],
        BOTH,
        requests=2,
        beside=2,
    ),
    "started, before_model asks": Scenario(
        hooked("run ahead", "before_model", ask_about), AHEAD, BOTH, asked=2, requests=2, beside=2
    ),
    "started, after_model changes": Scenario(
        hooked("run ahead", "after_model", shout), AHEAD, BOTH, requests=2, beside=2
    ),
    "code, before_tool refuses": Scenario(
        hooked("run code", "before_tool", to("send", refuse), sandbox="monty"),
        ["value of a", "~refused: not so", "value of a", "~refused: not so", "~refused: not so"],
    ),
    "code, before_tool asks": Scenario(
        hooked("run code", "before_tool", to("send", ask_about), sandbox="monty"), CODE, BOTH, asked=2
    ),
    "code, after_tool changes": Scenario(
        hooked("run code", "after_tool", shout, sandbox="monty"), [each.upper() for each in CODE], BOTH
    ),
    "a child, before_tool refuses": Scenario(
        hooked("helper", "before_tool", to("send", refuse), helper("answer as asked")), ["~refused: not so"], requests=2
    ),
    "a child, before_tool asks": Scenario(
        hooked("helper", "before_tool", to("send", ask_about), helper("answer as asked")),
        ["re: done? sent one"],
        ONE,
        asked=1,
        requests=2,
    ),
    "a child, after_model changes": Scenario(
        hooked("helper", "after_model", shout, helper("answer as asked")), ["re: dONE? sent one"], ONE, requests=2
    ),
    "a child, before_model asks": Scenario(
        hooked("helper", "before_model", ask_about, helper("answer as asked")),
        ["re: done? sent one"],
        ONE,
        asked=2,
        requests=2,
    ),
    "a tool's question, before_model changes": Scenario(
        hooked("consult", "before_model", shout), ["re: x! | re: y!"], requests=3, beside=2
    ),
    "a tool's question, before_model refuses": Scenario(
        hooked("consult", "before_model", refuse), None, requests=0, status="failed"
    ),
    "the user is asked, a hook too": Scenario(
        hooked("ask user", "before_tool", ask_about), ["Lyon", "sent Lyon"], ("Lyon",), asked=2, says={"city": "Lyon"}
    ),
    "two hooks ask": Scenario(
        loop("react", SEND, OVER, hooks=[hook("before_tool", ask_about), hook("before_answer", ask_about)]),
        effects=ONE,
        asked=2,
        requests=2,
    ),
    "streamed, after_model changes": Scenario(
        guarded("after_model", shout, model=model(SEND, OVER, chunk=5)), "OVER", ("ONE",), requests=2, streams=True
    ),
    "a fork with a hook that asks": Scenario(
        loop("react", FETCH, SEND, OVER, hooks=[hook("before_tool", to("send", ask_about))]),
        begin=(ask_once, fork_at_second_step),
        effects=("one", "one"),
        asked=2,
        requests=5,
        copied=1,
    ),
    "a session with a hook that asks": Scenario(
        loop("react", SEND, OVER, hooks=[hook("after_answer", ask_about)]),
        begin=(ask_in_session, ask_in_session),
        effects=("one", "one"),
        asked=2,
        requests=4,
    ),
}

LIMITS_AND_POLICIES: dict[str, Scenario] = {
    "a limit of steps": Scenario(
        loop("react", FETCH, SEND, OVER, limits=plait.Limits(steps=2)), "over", ONE, requests=3, status="stopped"
    ),
    "a limit of requests": Scenario(
        steps("think on and on", limits=plait.Limits(calls=4)),
        "re: conclude",
        requests=4,
        status="stopped",
        limit=4,
        instead=(("stopped", None),),
    ),
    "a limit of tokens": Scenario(
        steps("think on and on", model=model(lambda asked: tokens("more", 60)), limits=plait.Limits(tokens=400)),
        "more",
        requests=3,
        status="stopped",
        instead=(("stopped", None),),
    ),
    "the loop breaker": Scenario(
        steps("call on and on", limits=plait.Limits(repeats=3)), "re: conclude", requests=1, status="stopped"
    ),
    "the loop breaker, with effects": Scenario(
        steps("send on and on", limits=plait.Limits(repeats=3)),
        "re: conclude",
        ("one", "one", "one"),
        requests=1,
        status="stopped",
    ),
    "a limit of requests, spent by children": Scenario(
        steps("helper and think on and on", helper("repeatable"), limits=plait.Limits(calls=4)),
        "re: conclude",
        requests=4,
        status="stopped",
        limit=4,
        instead=(("stopped", None),),
    ),
    "a limit of children": Scenario(
        steps("two helpers", helper("answer as asked"), limits=plait.Limits(children=1)),
        ["re: done? sent one", "~limit"],
        ONE,
        requests=2,
    ),
    "taint asks about two calls": Scenario(
        steps("pages", taint="ask"), ["page of a", "sent one", "value of a"], ONE, asked=2, requests=1
    ),
    "taint asks in a child": Scenario(
        steps("helper", helper("pages"), taint="ask"),
        ['["page of a", "sent one", "value of a"]'],
        ONE,
        asked=2,
        requests=2,
    ),
    "taint asks because of a child": Scenario(
        loop(
            "react",
            action("helper", {"question": "read"}),
            SEND,
            OVER,
            tools=[send, helper("page")],
            taint="ask",
        ),
        effects=ONE,
        asked=1,
        requests=4,
    ),
    "taint asks a fork": Scenario(
        loop("react", READ, SEND, OVER, taint="ask"),
        begin=(ask_once, fork_at_second_step),
        effects=("one", "one"),
        asked=2,
        requests=5,
        copied=1,
    ),
    "taint asks in the next turn": Scenario(
        loop("react", READ, SEND, OVER, taint="ask"),
        begin=(ask_in_session, ask_in_session),
        effects=("one", "one"),
        asked=2,
        requests=6,
    ),
    "grounding asks about two calls": Scenario(
        loop(
            "tool_calling",
            native(("pay", {"to": "Ada", "amount": 4321}), ("fetch", {"key": "a"})),
            "over",
            grounding="ask",
        ),
        effects=("Ada 4321",),
        asked=2,
        requests=2,
    ),
    "an output type, native": Scenario(
        loop(
            "tool_calling",
            native(("send", {"text": "one"})),
            "many",
            "42",
            output=plait.OutputType(int, method="prompt"),
        ),
        42,
        ONE,
        requests=3,
    ),
    "grounding notes": Scenario(loop("react", PAY, OVER, grounding="note"), effects=("Ada 4321",), requests=2),
    "grounding warns": Scenario(loop("react", PAY, OVER, grounding="warn"), effects=("Ada 4321",), requests=2),
    "grounding asks": Scenario(loop("react", PAY, OVER, grounding="ask"), effects=("Ada 4321",), asked=1, requests=2),
    "grounding asks, refused": Scenario(loop("react", PAY, OVER, grounding="ask"), asked=1, says=NO, requests=2),
    "grounding refuses": Scenario(loop("react", PAY, OVER, grounding="refuse"), requests=2),
    "taint asks": Scenario(loop("react", READ, SEND, OVER, taint="ask"), effects=ONE, asked=1, requests=3),
    "taint asks, refused": Scenario(loop("react", READ, SEND, OVER, taint="ask"), asked=1, says=NO, requests=3),
    "an output type": Scenario(loop("react", SEND, final("many"), final("42"), output=int), 42, ONE, requests=3),
    "an output check": Scenario(
        loop("react", SEND, final("500"), final("42"), output=plait.OutputType(int, checks=[is_small])),
        42,
        ONE,
        requests=3,
    ),
}

GUARDS = {**HOOKS, **HOOKS_ELSEWHERE, **LIMITS_AND_POLICIES}
