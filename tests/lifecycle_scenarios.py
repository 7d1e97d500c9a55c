"""Short runs in which everything is opened and closed: dependencies, objects, holds of guards; their tools return files
and have a `verify`. See `step_scenarios.py`.

Each thing that a process opens has a name of its own. It adds a line to the tally when it is opened, used and closed;
`find_lifecycle_faults` reads them.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from itertools import count
from typing import Any

import plait
from cli_support import action
from plait.core import Call
from plait.runtime.guard import Finish, StartChild
from step_parts import about, consult, delegate, echo, model, read_tally, tally
from step_scenarios import (
    EDIT,
    FETCH,
    ONE,
    OVER,
    SEND,
    Make,
    Scenario,
    ask_in_session,
    ask_once,
    fork_at_second_step,
    loop,
    native,
)
from step_stories import Steps

NUMBERS = count()


class Opened:
    """Something that is opened, used and closed."""

    def __init__(self, name: str) -> None:
        self.label = f"{name}-{os.getpid()}-{next(NUMBERS)}"

    def tell(self, what: str) -> None:
        tally(f"{what} {self.label}")


class Desk(Opened):
    """The dependencies of a run."""

    def use(self) -> None:
        self.tell("use")

    async def __aenter__(self) -> Desk:
        self.tell("open")
        return self

    async def __aexit__(self, *why: object) -> None:
        self.tell("close")


def open_in_thread() -> Desk:
    """Make dependencies that are closed at the end, with a plain function."""
    return Desk("desk")


async def open_async() -> AsyncIterator[Desk]:
    """Make dependencies with a generator."""
    async with Desk("desk") as desk:
        yield desk


@contextlib.asynccontextmanager
async def open_managed() -> AsyncIterator[Desk]:
    """Make the dependencies of a child run."""
    async with Desk("child-desk") as desk:
        yield desk


async def open_flaky() -> AsyncIterator[Desk]:
    """Make the dependencies of a child run; this fails once, when the child has begun."""
    lines = read_tally()
    if "fetch a" in lines and "failed" not in lines:
        tally("failed")
        raise OSError("no desk today")
    async with Desk("child-desk") as desk:
        yield desk


def content_of(name: str) -> bytes:
    """Return what a file of this name has in it."""
    return random.Random(name).randbytes(20_000)


def make_file(text: str) -> plait.File:
    return plait.File("application/x-thing", content_of(text), f"{text}.bin")


@plait.tool(idempotent=True)
def fetch(ctx: plait.Context[Desk], key: str) -> Any:
    """Fetch a value, as a file. It does no harm to fetch it again."""
    ctx.deps.use()
    tally(f"fetch {key}")
    return {"value": f"value of {key}", "file": make_file(key)}


def sent(text: str) -> Any:
    return {"value": f"sent {text}", "file": make_file(text)}


def was_sent(ctx: plait.Context[Desk], text: str) -> plait.TookEffect | plait.NoEffect:
    """Look for the call's key in what happened."""
    ctx.deps.use()
    tally(f"verify {ctx.idempotency_key}")
    made = f"do {text}#{ctx.idempotency_key}" in read_tally()
    return plait.TookEffect(sent(text)) if made else plait.NoEffect()


async def was_sent_or_close(ctx: plait.Context[Desk], text: str) -> plait.TookEffect | plait.NoEffect:
    """Look for the call's key, and close it."""
    if isinstance(found := was_sent(ctx, text), plait.TookEffect):
        return found
    tally(f"closed {ctx.idempotency_key}")
    return plait.NoEffect(closed=True)


def is_unknown(ctx: plait.Context[Desk], text: str) -> None:
    """Say that it is not known."""
    ctx.deps.use()
    tally(f"verify {ctx.idempotency_key}")


def make_send(verify: Any = was_sent) -> plait.Tool:
    """Return a tool that sends a text, and returns a file."""

    @plait.tool(verify=verify)
    def send(ctx: plait.Context[Desk], text: str) -> Any:
        """Send a text. Nobody can take it back."""
        ctx.deps.use()
        if f"closed {ctx.idempotency_key}" in read_tally():
            raise plait.ToolError("The key is closed.")
        tally(f"do {text}#{ctx.idempotency_key}")
        ctx.deps.use()
        return sent(text)

    return send


class Office(Opened):
    """Posts texts. Each run has one."""

    def __init__(self) -> None:
        super().__init__("office")

    async def __aenter__(self) -> Office:
        self.tell("open")
        return self

    async def __aexit__(self, *why: object) -> None:
        self.tell("close")

    def was_posted(self, ctx: plait.Context[Desk], text: str) -> plait.TookEffect | plait.NoEffect:
        """Look for the call's key in what happened."""
        self.tell("use")
        return was_sent(ctx, text)

    @plait.tool(verify=was_posted)
    def post(self, ctx: plait.Context[Desk], text: str) -> Any:
        """Post a text. Nobody can take it back."""
        self.tell("use")
        ctx.deps.use()
        tally(f"do {text}#{ctx.idempotency_key}")
        return sent(text)


def was_closed(ctx: plait.Context[Desk], text: str) -> Any:
    """Look for the call's key in what happened; the result ends the run, as the call does."""
    found = was_sent(ctx, text)
    return plait.TookEffect(plait.EndRun(f"closed {text}")) if isinstance(found, plait.TookEffect) else found


@plait.tool(verify=was_closed)
def close_case(ctx: plait.Context[Desk], text: str) -> Any:
    """End the run with an answer."""
    ctx.deps.use()
    tally(f"do {text}#{ctx.idempotency_key}")
    return plait.EndRun(f"closed {text}")


class Holding(plait.Guard[Desk]):
    """Holds something for each call, child run and end, from its `before` or `restore` on."""

    points = (Call, StartChild, Finish)
    desk: Desk
    held: dict[Any, Opened]

    def start(self, context: plait.Context[Desk]) -> Holding:
        made = Holding()
        made.desk, made.held = context.deps, {}
        return made

    def _hold(self, entry: plait.Entry) -> None:
        self.desk.use()
        if entry.id not in self.held:
            self.held[entry.id] = Opened("hold")
            self.held[entry.id].tell("open")

    async def before(self, entry: plait.Entry) -> Any:
        self._hold(entry)
        return entry.effect

    def restore(self, entry: plait.Entry, decision: Any) -> None:
        self._hold(entry)

    async def after(self, entry: plait.Entry, result: Any, fresh: bool) -> Any:
        self.release(entry)
        return result

    def release(self, entry: plait.Entry) -> None:
        self.desk.use()
        if entry.id in self.held:
            self.held.pop(entry.id).tell("close")


class Looking(plait.Hook):
    """Uses the dependencies of its run at each point, also about the calls of child runs, which have others."""

    def _look(self, context: Any) -> None:
        assert context.deps.label.startswith("desk"), context.deps.label
        context.deps.use()

    async def before_model(self, context: Any, request: Any) -> None:
        self._look(context)

    def before_tool(self, context: Any, call: Call) -> None:
        self._look(context)

    def after_tool(self, context: Any, call: Call, seen: Any) -> None:
        self._look(context)
        tally(f"read {call.tool}")

    def before_answer(self, context: Any, answer: Any) -> None:
        self._look(context)


TOOLS: tuple[Any, ...] = (fetch, make_send(), Office, close_case)
GUARDS: dict[str, Any] = {"hooks": [Holding(), Looking()]}


def steps(story: str, *helpers: Any, **fields: Any) -> Make:
    """Return what makes an agent with dependencies whose loop performs a story."""
    given = {"model": echo(), "tools": [*TOOLS, *helpers], "make_deps": open_async, **fields}
    return lambda journal: plait.Agent(Steps(story), deps=Desk, journal=journal, **given)


def agent_of(story: str, *helpers: Any, **fields: Any) -> plait.Agent[Any]:
    """Return an agent for a child run, which makes its own dependencies."""
    given = {"model": echo(name="child"), "tools": [*TOOLS, *helpers], "make_deps": open_managed, **fields}
    return plait.Agent(Steps(story), deps=Desk, journal=False, **given)


def helper(story: str, *helpers: Any, **fields: Any) -> plait.Tool:
    return agent_of(story, *helpers, **fields).as_tool("helper", "Helps.")


def opening(name: str, *replies: Any, **fields: Any) -> Make:
    """Return what makes an agent of a loop of Plait with dependencies."""
    return loop(name, *replies, **{"tools": TOOLS, "deps": Desk, "make_deps": open_in_thread, **fields})


FETCHED, SENT = "~value of a", "~sent one"
FILES = ("a", "one", "two", "b")
PARALLEL = [FETCHED, SENT, "~sent two", "~value of b"]
TURNS = [FETCHED, SENT, "~value of b", "~sent two", "~sent three"]
BOTH = ("one", "two")
CODE = [FETCHED, SENT, FETCHED, "~value of b", "~sent two"]

LIFECYCLES: dict[str, Scenario] = {
    "open, one effect": Scenario(steps("one effect"), [SENT], ONE, requests=1, sure=True, files=ONE),
    "open, turns": Scenario(
        steps("turns", make_deps=open_in_thread),
        TURNS,
        ("one", "two", "three"),
        requests=1,
        sure=True,
        files=("a", "one", "b", "two", "three"),
    ),
    "open, parallel, with guards": Scenario(
        steps("parallel", **GUARDS), PARALLEL, BOTH, requests=1, sure=True, files=FILES
    ),
    "open, parallel, all approved": Scenario(
        steps("parallel", approve="effects", **GUARDS), PARALLEL, BOTH, asked=4, requests=1, sure=True, files=FILES
    ),
    "open, edited": Scenario(
        steps("one effect", approve="effects"),
        ["~sent other"],
        ("other",),
        says=EDIT,
        asked=1,
        requests=1,
        sure=True,
        files=("other",),
    ),
    "open, its key is closed": Scenario(
        steps("the same twice", tools=[make_send(was_sent_or_close)]),
        [SENT, SENT],
        ("one", "one"),
        requests=1,
        sure=True,
        files=("one", "one"),
    ),
    "open, nothing is known": Scenario(
        steps("one effect", tools=[make_send(is_unknown)], **GUARDS), [SENT], ONE, requests=1, files=ONE
    ),
    "open, the tool ends the run": Scenario(
        opening("react", FETCH, action("close_case", {"text": "one"}), OVER),
        "closed one",
        ONE,
        requests=2,
        sure=True,
        files=("a",),
    ),
    "open, react": Scenario(
        opening("react", FETCH, SEND, OVER, **GUARDS), effects=ONE, requests=3, sure=True, files=("a", "one")
    ),
    "open, tool_calling": Scenario(
        opening(
            "tool_calling",
            native(("fetch", {"key": "a"}), ("send", {"text": "one"}), ("post", {"text": "two"})),
            "over",
            **GUARDS,
        ),
        effects=BOTH,
        requests=2,
        sure=True,
        files=("a", "one", "two"),
    ),
    "open, start and wait": Scenario(
        steps("run ahead", **GUARDS),
        ["re: meanwhile", SENT, FETCHED, "~sent two", "re: b"],
        BOTH,
        requests=2,
        beside=2,
        sure=True,
        files=("one", "a", "two"),
    ),
    "open, start and wait, approved": Scenario(
        steps("run ahead", approve=about("one")),
        ["re: meanwhile", SENT, FETCHED, "~sent two", "re: b"],
        BOTH,
        asked=1,
        requests=2,
        beside=2,
        sure=True,
        files=("one", "a", "two"),
    ),
    "open, code": Scenario(
        steps("run code", sandbox="monty", **GUARDS), CODE, BOTH, sure=True, files=("a", "one", "b", "two")
    ),
    "open, a child": Scenario(
        steps("fetch, helper, send", helper("answer as asked"), **GUARDS),
        [FETCHED, "~sent one", "~sent two"],
        BOTH,
        requests=2,
        sure=True,
        files=("a", "one", "two"),
    ),
    "open, a child that asks": Scenario(
        steps("fetch, helper, send", helper("parallel", approve="effects"), approve=about("one")),
        [FETCHED, "~sent one", "~sent two"],
        ("one", "two", "two"),
        asked=4,
        requests=2,
        sure=True,
        files=("a", "a", "one", "two", "b", "two"),
    ),
    "open, a child whose dependencies fail when it goes on": Scenario(
        steps("helper", helper("turns", approve=about("two"), make_deps=open_flaky)),
        ["~sent three"],
        ("one", "two", "three"),
        asked=1,
        requests=2,
        sure=True,
        files=("a", "one", "b", "two", "three"),
    ),
    "open, a child of a child whose dependencies fail when it goes on": Scenario(
        steps("helper", helper("helper", helper("turns", approve=about("two"), make_deps=open_flaky))),
        ["~sent three"],
        ("one", "two", "three"),
        asked=1,
        requests=3,
        sure=True,
        files=("a", "one", "b", "two", "three"),
    ),
    "open, two children of two calls": Scenario(
        steps("two helpers", helper("answer as asked"), **GUARDS),
        [SENT, "~sent two"],
        BOTH,
        requests=3,
        beside=2,
        sure=True,
        files=BOTH,
    ),
    "open, two children of one call that ask": Scenario(
        steps("delegate", delegate(agent_of("ask and send"), agent_of("ask and send"))),
        ["~sent text 0 a"],
        ("text 0 a", "text 1 b"),
        asked=2,
        says={"text 0": "a", "text 1": "b"},
        requests=1,
        sure=True,
        files=("text 0 a", "text 1 b"),
    ),
    "open, a child of a child": Scenario(
        steps("fetch, helper, send", helper("fetch, helper, send", helper("answer as asked")), **GUARDS),
        [FETCHED, "~sent one", "~sent two"],
        ("one", "two", "two"),
        requests=3,
        sure=True,
        files=("a", "a", "one", "two", "two"),
    ),
    "open, a hand-off": Scenario(
        opening(
            "react",
            FETCH,
            action("helper", {"question": "one"}),
            tools=[fetch, agent_of("answer as asked").as_tool("helper", "Helps.", hand_off=True)],
        ),
        "~sent one",
        ONE,
        requests=3,
        sure=True,
        files=("a", "one"),
    ),
    "open, a tool asks a model": Scenario(
        steps("consult and send", consult),
        ["re: x | re: y", SENT],
        ONE,
        requests=3,
        beside=2,
        sure=True,
        files=ONE,
    ),
    "open, a second turn of a session": Scenario(
        opening("react", SEND, OVER, **GUARDS),
        begin=(ask_in_session, ask_in_session),
        effects=("one", "one"),
        requests=4,
        sure=True,
        files=("one", "one"),
    ),
    "open, a fork, approved": Scenario(
        opening("react", FETCH, SEND, OVER, approve=about("one")),
        begin=(ask_once, fork_at_second_step),
        effects=("one", "one"),
        asked=2,
        requests=5,
        copied=1,
        sure=True,
        files=("a", "a", "one", "one"),
    ),
    "open, streamed": Scenario(
        opening("react", FETCH, SEND, OVER, model=model(FETCH, SEND, OVER, chunk=5), **GUARDS),
        effects=ONE,
        requests=3,
        sure=True,
        files=("a", "one"),
        streams=True,
    ),
}


def name_file(name: str, data: bytes) -> str:
    """Return of which text a file is, and whether it is whole."""
    text = name.removesuffix(".bin")
    return text if data == content_of(text) else f"{text}: not what its tool returned"


def find_lifecycle_faults(lines: Sequence[str]) -> list[str]:
    """Return what is wrong with how the processes opened, used and closed things.

    A thing is used while it is open. A process that ends by itself closes each thing that it opened once.
    """
    is_open: dict[str, bool] = {}
    faults: list[str] = []
    whole = {line.removeprefix("ended ") for line in lines if line.startswith("ended ")}
    for line in lines:
        what, _, label = line.partition(" ")
        if what not in ("open", "use", "close"):
            continue
        if what == "open":
            faults += [f"opened twice: {label}"] if label in is_open else []
            is_open[label] = True
        elif not is_open.get(label):
            faults.append(f"{what} of {label}, which is not open")
        if what == "close":
            is_open[label] = False
    return faults + [f"left open: {each}" for each, still in is_open.items() if still and each.split("-")[-2] in whole]


def find_needless_verify(lines: Sequence[str], in_doubt: Counter[str]) -> list[str]:
    """Return the keys about which a process asked more often than calls with this key were in doubt before it."""
    asked = Counter(line.removeprefix("verify ") for line in lines if line.startswith("verify "))
    return sorted((asked - in_doubt).elements())


def find_unrecorded(lines: Sequence[str], in_doubt: Counter[str]) -> list[str]:
    """Return the keys of calls that are in doubt, though a model or hook has read something after their effect."""
    made = {key: at for at, line in enumerate(lines) if line.startswith("do ") and (key := line.partition("#")[2])}
    reads = [at for at, line in enumerate(lines) if line.startswith(("ask ", "read "))]
    return [key for key in in_doubt if key in made and reads and reads[-1] > made[key]]
