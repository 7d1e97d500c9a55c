"""Short runs with every kind of step, and how each of them ends if nobody disturbs it.

A scenario is a name, an agent and the expected end. `guard_scenarios.py` has those with hooks, limits and other guards.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import plait
from cli_support import action, final
from loop_scripts import ANSWER, SCRIPTS, reply_of
from plait.core import Call, Reply, Usage
from plait.models.base import Abilities
from step_parts import (
    about,
    close_case,
    close_key,
    consult,
    consult_in_turn,
    delegate,
    echo,
    fetch,
    flaky,
    give_up,
    hook,
    know_nothing,
    mail,
    make_verified,
    model,
    nudge,
    pay,
    post,
    read_page,
    send,
    was_made,
)
from step_stories import Steps

Begin: TypeAlias = Callable[[plait.Agent[Any], dict[str, Any]], Awaitable[plait.Run[Any]]]


def ask_once(agent: plait.Agent[Any], options: dict[str, Any]) -> Awaitable[plait.Run[Any]]:
    return agent.arun("Go.", **options)


def ask_in_session(agent: plait.Agent[Any], options: dict[str, Any]) -> Awaitable[plait.Run[Any]]:
    return agent.arun("Go.", session="s", **options)


def fork_at_second_step(agent: plait.Agent[Any], options: dict[str, Any]) -> Awaitable[plait.Run[Any]]:
    return agent.afork("last", 2, **options)


@dataclass(frozen=True)
class Scenario:
    """A run, and how it ends.

    `make` gives the agent, with its journal. `answer`, `status`, `effects` (of tools that must not be repeated),
    `asked` (questions to the user) and `requests` (to models, of all runs of the scenario) are those of the undisturbed
    run. `says` maps words of a question to the user's answer, which is "yes" otherwise. `instead`: other ends, status
    and answer, that are right as well after a kill. `beside`: how many requests may be on their way at once. `limit`:
    the most requests that the runs may make. `copied`: how many requests a fork has from the run that it forks.
    `repeats`: calls that a kill interrupted are made again. `sure`: no call is in doubt. `files`: the texts of which
    the runs have files. `wrong`: what Plait does wrong in this run today. `begin`: one function for each run, which
    come one after the other.
    """

    make: Callable[[Path], plait.Agent[Any]]
    answer: Any = "over"
    effects: tuple[str, ...] = ()
    asked: int = 0
    requests: int = 0
    status: str = "answered"
    says: Mapping[str, str] = field(default_factory=dict)
    instead: tuple[tuple[str, Any], ...] = ()
    beside: int = 1
    limit: int = 1000
    copied: int = 0
    repeats: bool = False
    sure: bool = False
    files: tuple[str, ...] = ()
    wrong: str = ""
    begin: tuple[Begin, ...] = (ask_once,)
    on_wait: Any = None
    streams: bool = False


Make: TypeAlias = Callable[[Path], plait.Agent[Any]]

TOOLS = (fetch, send, post, flaky, pay, close_case, give_up, consult, consult_in_turn, read_page)


def steps(story: str, *helpers: plait.Tool, **fields: Any) -> Make:
    """Return what makes an agent whose loop performs a story."""
    given = {"model": echo(), "tools": [*TOOLS, *helpers], **fields}
    return lambda journal: plait.Agent(Steps(story), journal=journal, **given)


def loop(name: Any, *replies: Any, tools: Any = TOOLS, **fields: Any) -> Make:
    """Return what makes an agent of a loop of Plait, whose model says these replies."""
    given = {"model": model(*replies), "tools": tools, **fields}
    return lambda journal: plait.Agent(name, journal=journal, **given)


def helper(story: str, name: str = "helper", **fields: Any) -> plait.Tool:
    """Return a tool that performs a story as a child run."""
    return agent_of(story, **fields).as_tool(name, "Helps.")


def agent_of(story: str, *helpers: plait.Tool, **fields: Any) -> plait.Agent[Any]:
    return plait.Agent(Steps(story), model=echo(name="child"), tools=[*TOOLS, *helpers], journal=False, **fields)


def native(*calls: tuple[str, Any]) -> Reply:
    """Return a reply with native calls."""
    return Reply("", calls=tuple(Call(tool, given, f"{tool}-{i}") for i, (tool, given) in enumerate(calls)))


def tokens(text: str, count: int) -> Reply:
    return Reply(text, usage=Usage(count, count))


ABLE = Abilities(tools=True, schema=True)
SEND, OVER = action("send", {"text": "one"}), final("over")
PLAN = "Plan: get a value\n#E1 = fetch[a]\nPlan: send it\n#E2 = send[#E1]\nPlan: send another\n#E3 = send[two]\n"
EDITED = "Plan: send another\n#E1 = send[three]\n"
FETCH = action("fetch", {"key": "a"})
ONE = ("one",)
NO = {"May": "no"}
EDIT = {"May": 'edit {"text": "other"}'}
DEAD = plait.FallbackModels((model(dead=True, name="dead"), echo(name="alive")))

CANCELLED = (
    "The run waits because of another effect than a WaitNext, and cancels started calls, which are in doubt then."
)
"""A WaitNext lets the other started effects end before the run waits. Nothing does so for the loop's other effects."""

THINKING: dict[str, Scenario] = {
    "think": Scenario(steps("think twice"), ["re: a", "re: re: a"], requests=2),
    "think, the endpoint fails once": Scenario(
        steps("think twice", model=echo(fails=1)), ["re: a", "re: re: a"], requests=3
    ),
    "think, the endpoint fails twice": Scenario(
        steps("think twice", model=echo(fails=2)), ["re: a", "re: re: a"], requests=4
    ),
    "think, a fallback model": Scenario(steps("think twice", model=DEAD), ["re: a", "re: re: a"], requests=3),
    "think, a rejected ability": Scenario(
        loop("react", SEND, OVER, model=model(SEND, OVER, rejects="stop")), effects=ONE, requests=3
    ),
    "think, native tools rejected": Scenario(
        loop(plait.ToolCalling(fallback="react"), model=model(SEND, OVER, rejects="tools", abilities=ABLE)),
        effects=ONE,
        requests=3,
    ),
    "think, streamed": Scenario(loop("react", model=model(SEND, OVER, chunk=5)), effects=ONE, requests=2, streams=True),
}

CALLS: dict[str, Scenario] = {
    "act, repeatable": Scenario(steps("repeatable"), ["value of a"], requests=1),
    "act, one effect": Scenario(steps("one effect"), ["sent one"], ONE, requests=1),
    "act, several turns": Scenario(
        steps("turns"),
        ["value of a", "sent one", "value of b", "sent two", "sent three"],
        ("one", "two", "three"),
        requests=1,
    ),
    "act, parallel": Scenario(
        steps("parallel"), ["value of a", "sent one", "posted two", "value of b"], ("one", "two"), requests=1
    ),
    "act, a failing tool": Scenario(
        steps("flaky"), ["Error: RuntimeError: busy"], instead=(("answered", ["value of a"]),), requests=1
    ),
    "act, repeated by a hook": Scenario(
        steps("flaky", hooks=[hook("on_tool_error", lambda attempt: 0.001 if attempt < 3 else None)]),
        ["value of a"],
        requests=1,
    ),
    "act, approved": Scenario(steps("one effect", approve="effects"), ["sent one"], ONE, asked=1, requests=1),
    "act, refused": Scenario(
        steps("one effect", approve="effects"), ["The person refused this call."], says=NO, asked=1, requests=1
    ),
    "act, edited": Scenario(
        steps("one effect", approve="effects"), ["sent other"], ("other",), says=EDIT, asked=1, requests=1
    ),
    "act, approved beside others": Scenario(
        steps("parallel", approve=about("two")),
        ["value of a", "sent one", "posted two", "value of b"],
        ("one", "two"),
        asked=1,
        requests=1,
    ),
    "act, all approved": Scenario(
        steps("parallel", approve="effects"),
        ["value of a", "sent one", "posted two", "value of b"],
        ("one", "two"),
        asked=4,
        requests=1,
    ),
    "act, the same twice, approved": Scenario(
        steps("the same twice", approve="effects"), ["sent one", "sent one"], ("one", "one"), asked=2, requests=1
    ),
    "act, approved by on_wait": Scenario(
        steps("parallel", approve="effects"),
        ["value of a", "sent one", "posted two", "value of b"],
        ("one", "two"),
        requests=1,
        on_wait=lambda waiting: "yes",
    ),
    "act, in the loop tool_calling": Scenario(
        loop("tool_calling", native(("fetch", {"key": "a"}), ("send", {"text": "one"})), "over"),
        effects=ONE,
        requests=2,
    ),
    "act, the tool ends the run": Scenario(
        loop("react", action("close_case", {"text": "one"}), OVER),
        "closed one",
        ONE,
        requests=1,
        instead=(("answered", "over"),),  # the call is in doubt, so the model goes on
    ),
    "act, the tool gives up": Scenario(
        loop("react", action("give_up", {"text": "one"}), OVER),
        None,
        ONE,
        requests=1,
        status="failed",
        instead=(("answered", "over"),),
    ),
    "act, interrupted calls are repeated": Scenario(
        steps("parallel", on_interrupted_call="repeat"),
        ["value of a", "sent one", "posted two", "value of b"],
        ("one", "two"),
        requests=1,
        repeats=True,
    ),
    "act, a tool asks a model": Scenario(steps("consult"), ["re: x | re: y"], requests=3, beside=2),
    "act, a tool asks a model three times": Scenario(steps("consult in turn"), ["re: x | re: y | re: x"], requests=4),
    "act, a tool asks a model twice the same": Scenario(
        steps("consult equally"), ["re: x | re: x"], requests=3, beside=2
    ),
}

OTHER_STEPS: dict[str, Scenario] = {
    "ask the user": Scenario(steps("ask user"), ["Lyon", "sent Lyon"], ("Lyon",), asked=1, says={"city": "Lyon"}),
    "ask the user, answered by on_wait": Scenario(
        steps("ask user"), ["Lyon", "sent Lyon"], ("Lyon",), on_wait=lambda waiting: "Lyon"
    ),
    "start and wait": Scenario(
        steps("run ahead"),
        ["re: meanwhile", "sent one", "value of a", "posted two", "re: b"],
        ("one", "two"),
        requests=2,
        beside=2,
    ),
    "start and wait, approved": Scenario(
        steps("run ahead", approve=about("one")),
        ["re: meanwhile", "sent one", "value of a", "posted two", "re: b"],
        ("one", "two"),
        asked=1,
        requests=2,
        beside=2,
    ),
    "start and wait, all approved": Scenario(
        steps("run ahead", approve="effects"),
        ["re: meanwhile", "sent one", "value of a", "posted two", "re: b"],
        ("one", "two"),
        asked=3,
        requests=2,
        beside=2,
    ),
    "start, and ask the user": Scenario(
        steps("run ahead and ask"),
        ["Lyon", "posted one", "posted two"],
        ("one", "two"),
        asked=1,
        says={"city": "Lyon"},
    ),
    "code": Scenario(
        steps("run code", sandbox="monty"),
        ["value of a", "sent one", "value of a", "value of b", "sent two"],
        ("one", "two"),
    ),
    "code, approved": Scenario(
        steps("run code", sandbox="monty", approve="effects"),
        ["value of a", "sent one", "value of a", "value of b", "sent two"],
        ("one", "two"),
        asked=4,
    ),
    "a plan, approved": Scenario(
        loop("rewoo", {"plan": [PLAN], "solve": ["over"]}, approve="plan"),
        effects=("value of a", "two"),
        asked=1,
        requests=2,
    ),
    "a plan, edited": Scenario(
        loop("rewoo", {"plan": [PLAN], "solve": ["over"]}, approve="plan"),
        effects=("three",),
        says={"#E1": EDITED},
        asked=1,
        requests=2,
    ),
    "a plan, refused": Scenario(
        loop("rewoo", {"plan": [PLAN], "solve": ["over"]}, approve="plan"),
        None,
        says={"#E1": "no"},
        asked=1,
        requests=1,
        status="failed",
    ),
    "a second turn of a session": Scenario(
        loop("react", SEND, OVER), begin=(ask_in_session, ask_in_session), effects=("one", "one"), requests=4
    ),
    "a fork": Scenario(
        loop("react", FETCH, SEND, OVER),
        begin=(ask_once, fork_at_second_step),
        effects=("one", "one"),
        requests=5,
        copied=1,
    ),
    "a fork, approved": Scenario(
        loop("react", FETCH, SEND, OVER, approve="effects"),
        begin=(ask_once, fork_at_second_step),
        effects=("one", "one"),
        asked=3,
        requests=5,
        copied=1,
    ),
}


def verified(verify: Any = was_made) -> list[plait.Tool]:
    """Return the tools with a `send` that has a `verify`."""
    return [*(each for each in TOOLS if each.name not in ("send", "post")), make_verified(verify)]


def make_verified_helper() -> plait.Tool:
    return plait.Agent(
        Steps("one effect"), model=echo(name="child"), tools=verified(), approve="effects", journal=False
    ).as_tool("helper", "Helps.")


TWICE = ["sent one", "sent one"]

VERIFIED: dict[str, Scenario] = {
    "verified, one effect": Scenario(steps("one effect", tools=verified()), ["sent one"], ONE, requests=1, sure=True),
    "verified, approved": Scenario(
        steps("one effect", tools=verified(), approve="effects"), ["sent one"], ONE, asked=1, requests=1, sure=True
    ),
    "verified, edited": Scenario(
        steps("one effect", tools=verified(), approve="effects"),
        ["sent other"],
        ("other",),
        says=EDIT,
        asked=1,
        requests=1,
        sure=True,
    ),
    "verified, the same twice, approved": Scenario(
        steps("the same twice", tools=verified(), approve="effects"),
        TWICE,
        ("one", "one"),
        asked=2,
        requests=1,
        sure=True,
    ),
    "verified, turns": Scenario(
        steps("turns", tools=verified()),
        ["value of a", "sent one", "value of b", "sent two", "sent three"],
        ("one", "two", "three"),
        requests=1,
        sure=True,
    ),
    "verified, its key is closed": Scenario(
        steps("the same twice", tools=verified(close_key)), TWICE, ("one", "one"), requests=1, sure=True
    ),
    "verified, nothing is known": Scenario(
        steps("one effect", tools=verified(know_nothing)), ["sent one"], ONE, requests=1
    ),
    "verified, code": Scenario(
        steps("run code", tools=verified(), sandbox="monty"),
        ["value of a", "sent one", "value of a", "value of b", "sent two"],
        ("one", "two"),
        sure=True,
    ),
    "verified, a child that asks": Scenario(
        steps("helper", make_verified_helper(), approve=about("one")), ['["sent one"]'], ONE, 1, requests=2, sure=True
    ),
    "verified, a fork": Scenario(
        loop("react", FETCH, SEND, OVER, tools=verified()),
        begin=(ask_once, fork_at_second_step),
        effects=("one", "one"),
        requests=5,
        copied=1,
        sure=True,
    ),
    "verified, a second turn of a session": Scenario(
        loop("react", SEND, OVER, tools=verified()),
        begin=(ask_in_session, ask_in_session),
        effects=("one", "one"),
        requests=4,
        sure=True,
    ),
}

CHILDREN: dict[str, Scenario] = {
    "a child": Scenario(steps("helper", helper("answer as asked")), ["re: done? sent one"], ONE, requests=2),
    "a child that asks": Scenario(
        steps("helper", helper("ask and send")),
        ["sent one hello"],
        ("one hello",),
        asked=1,
        says={"What": "hello"},
        requests=1,
    ),
    "a child whose parent asks": Scenario(
        steps("helper", helper("answer as asked"), approve=about("one")), ["re: done? sent one"], ONE, 1, requests=2
    ),
    "a child whose parent and it ask": Scenario(
        steps("helper", helper("answer as asked", approve="effects"), approve=about("one")),
        ["re: done? sent one"],
        ONE,
        asked=1,
        requests=2,
    ),
    "two children of two calls": Scenario(
        steps("two helpers", helper("answer as asked")),
        ["re: done? sent one", "re: done? sent two"],
        ("one", "two"),
        requests=3,
        beside=2,
    ),
    "two children that ask": Scenario(
        steps("two helpers", helper("ask and send")),
        ["sent one a", "sent two b"],
        ("one a", "two b"),
        asked=2,
        says={"for one": "a", "for two": "b"},
        requests=1,
    ),
    "an approved effect beside a child that asks": Scenario(
        steps("helper and effect", helper("ask and send"), approve=about("pay")),
        ["sent pay", "sent one hello"],
        ("pay", "one hello"),
        asked=2,
        says={"What": "hello"},
        requests=1,
    ),
    "two children of one call": Scenario(
        steps("delegate", delegate(agent_of("answer as asked"), agent_of("answer as asked"))),
        ["re: done? sent text 0 | re: done? sent text 1"],
        ("text 0", "text 1"),
        requests=3,
        beside=2,
    ),
    "two children of one call that ask": Scenario(
        steps("delegate", delegate(agent_of("ask and send"), agent_of("ask and send"))),
        ["sent text 0 a | sent text 1 b"],
        ("text 0 a", "text 1 b"),
        asked=2,
        says={"text 0": "a", "text 1": "b"},
        requests=1,
    ),
    "a child of a child": Scenario(
        steps("helper", agent_of("helper", helper("answer as asked")).as_tool("helper", "Helps.")),
        ['["re: done? sent one"]'],
        ONE,
        requests=3,
    ),
    "a child of a child that asks, approved": Scenario(
        steps(
            "helper",
            agent_of("helper", helper("ask and send")).as_tool("helper", "Helps."),
            approve=about("one hello"),
        ),
        ['["sent one hello"]'],
        ("one hello",),
        asked=2,
        says={"What": "hello"},
        requests=2,
    ),
    "a hand-off": Scenario(
        loop(
            "react",
            action("helper", {"question": "one"}),
            tools=[agent_of("answer as asked").as_tool("helper", "Helps.", hand_off=True)],
        ),
        "re: done? sent one",
        ONE,
        requests=2,
    ),
}


def plait_loop(name: str, *effects: str, **fields: Any) -> Scenario:
    """Return the scenario of a loop of Plait that fetches two values and sends three texts, each with approval."""
    model_ = model({phase: [*map(reply_of, turns)] for phase, turns in SCRIPTS[name].items()}, chunk=20)
    limits = plait.Limits(tools=0 if name == "codeact" else None)
    make = loop(name, model=model_, tools=[fetch, send], limits=limits, approve=needs_approval, **fields)
    return Scenario(make, ANSWER, effects, asked=3, requests=REQUESTS[name], beside=2)


def needs_approval(call: Call) -> bool:
    return call.tool == "send"


REQUESTS = {"react": 6, "json": 6, "tool_calling": 3, "rewoo": 3, "compiler": 2, "phased": 3, "codeact": 4}
PLAIT_LOOPS: dict[str, Scenario] = {
    "react": plait_loop("react", "one", "two", "three"),
    "json": plait_loop("json", "one", "two", "three"),
    "tool_calling": plait_loop("tool_calling", "one", "two", "three"),
    "rewoo": plait_loop("rewoo", "one", "two value of a", "three it is b"),
    "compiler": plait_loop("compiler", "one", "two value of a", "three value of b"),
    "phased": plait_loop("phased", "one", "two value of a", "three"),
    "codeact": plait_loop("codeact", "one", "two value of a", "three value of a", sandbox="monty"),
}

BESIDE: dict[str, Scenario] = {
    "a call in the background": Scenario(
        loop("react", action("mail", {"text": "one"}), OVER, OVER, tools=[mail]), effects=ONE, requests=3
    ),
    "calls in the background, approved": Scenario(
        loop(
            "tool_calling",
            native(("mail", {"text": "one"}), ("send", {"text": "two"}), ("mail", {"text": "three"})),
            "over",
            "over",
            tools=[mail, send],
            approve="effects",
            model=model(
                native(("mail", {"text": "one"}), ("send", {"text": "two"}), ("mail", {"text": "three"})),
                "over",
                "over",
                abilities=ABLE,
            ),
        ),
        effects=("one", "two", "three"),
        asked=3,
        requests=3,
    ),
    "a child run in the background, approved": Scenario(
        loop(
            "react",
            action("helper", {"question": "now"}),
            OVER,
            OVER,
            tools=[agent_of("answer as asked", approve="effects").as_tool("helper", "Helps.", background=True)],
        ),
        effects=("now",),
        asked=1,
        requests=4,
    ),
    "a message of the user": Scenario(
        loop("react", action("nudge", {"text": "hurry"}), SEND, OVER, tools=[nudge, send]), effects=ONE, requests=3
    ),
}

STEPS = {
    **BESIDE,
    **THINKING,
    **CALLS,
    **OTHER_STEPS,
    **VERIFIED,
    **CHILDREN,
    **{f"the loop {name}": PLAIT_LOOPS[name] for name in PLAIT_LOOPS},
}
