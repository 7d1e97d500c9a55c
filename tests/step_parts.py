"""What the scenarios of `step_scenarios.py` are made of: a tally of what happened, tools, models and hooks.

Many processes perform one run, one after the other. So what happened is counted in a file, a line for each request to
a model (`ask`), each effect of a tool that must not be repeated (`do`) or may be (`fetch`), and each call of another
function of the user (`user`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import structs

import plait
from plait.core import Call, Observation, Reply, Think
from plait.core.errors import ModelMissing, ServerFailed, Unsupported
from plait.journal.store import Journal
from plait.models.base import OnText, Request, Response
from plait.runtime import inbox

TALLY = "PLAIT_STEPS_TALLY"
"""The environment variable that names the file."""


def tally(line: str) -> None:
    """Add a line to what happened."""
    with Path(os.environ[TALLY]).open("a") as file:
        file.write(line + "\n")


def read_tally() -> list[str]:
    """Return what happened, in order."""
    path = Path(os.environ[TALLY])
    return path.read_text().splitlines() if path.exists() else []


@plait.tool(idempotent=True)
def fetch(key: str) -> str:
    """Fetch a value. It does no harm to fetch it again."""
    tally(f"fetch {key}")
    return f"value of {key}"


@plait.tool(read_only=True, open_world=True)
def read_page(key: str) -> str:
    """Read a page that a stranger wrote."""
    return f"page of {key}"


@plait.tool
def send(text: str) -> str:
    """Send a text. Nobody can take it back."""
    tally(f"do {text}")
    return f"sent {text}"


@plait.tool
async def post(text: str) -> str:
    """Post a text, which takes a moment."""
    tally(f"do {text}")
    await asyncio.sleep(0.005)
    return f"posted {text}"


@plait.tool(background=True)
async def mail(text: str) -> str:
    """Mail a text, which takes longer than a model call."""
    tally(f"do {text}")
    await asyncio.sleep(0.2)
    return f"mailed {text}"


@plait.tool(idempotent=True)
async def nudge(ctx: plait.Context[None], text: str) -> str:
    """Send a message to this run, as its user does meanwhile."""
    store = Journal(ctx.services.engine.store.place).store if ctx.services else None
    await inbox.send(store, ctx.run_id, inbox.Sent(text))
    return "nudged"


@plait.tool
def pay(to: str, amount: int) -> str:
    """Pay an amount."""
    tally(f"do {to} {amount}")
    return f"paid {amount}"


def was_made(ctx: plait.Context[None], text: str) -> plait.TookEffect | plait.NoEffect:
    """Look for the call's key in what happened."""
    tally(f"verify {ctx.idempotency_key}")
    made = f"do {text}#{ctx.idempotency_key}" in read_tally()
    return plait.TookEffect(f"sent {text}") if made else plait.NoEffect()


async def close_key(ctx: plait.Context[None], text: str) -> plait.TookEffect | plait.NoEffect:
    """Look for the call's key, and close it: the call is refused when it comes later."""
    if isinstance(found := was_made(ctx, text), plait.TookEffect):
        return found
    tally(f"closed {ctx.idempotency_key}")
    return plait.NoEffect(closed=True)


def know_nothing(text: str) -> None:
    """Say that it is not known."""


def make_verified(verify: Any, **options: Any) -> plait.Tool:
    """Return the tool `send` with a `verify`."""

    @plait.tool(name="send", verify=verify, **options)
    async def send_with_key(ctx: plait.Context[None], text: str) -> str:
        """Send a text with the call's key. Nobody can take it back."""
        await asyncio.sleep(0.002)
        if f"closed {ctx.idempotency_key}" in read_tally():
            raise plait.ToolError("The key is closed.")
        tally(f"do {text}#{ctx.idempotency_key}")
        return f"sent {text}"

    return send_with_key


@plait.tool(idempotent=True)
def flaky(key: str) -> str:
    """Fetch a value. The first call of all fails."""
    tally(f"fetch {key}")
    if read_tally().count(f"fetch {key}") == 1:
        raise RuntimeError("busy")
    return f"value of {key}"


@plait.tool
def close_case(text: str) -> str:
    """End the run with an answer."""
    tally(f"do {text}")
    raise plait.EndRun(f"closed {text}")


@plait.tool
def give_up(text: str) -> Any:
    """End the run as failed."""
    tally(f"do {text}")
    return plait.EndRun(failure=f"cannot {text}")


@plait.tool(idempotent=True)
async def consult(ctx: plait.Context[None], one: str, other: str) -> str:
    """Ask a model two questions at once."""
    return " | ".join(await asyncio.gather(ctx.aask_model(one), ctx.aask_model(other)))


@plait.tool(idempotent=True)
async def consult_in_turn(ctx: plait.Context[None], one: str, other: str, last: str) -> str:
    """Ask a model three questions, one after the other."""
    return " | ".join([await ctx.aask_model(each) for each in (one, other, last)])


EFFECTS = ("send", "mail", "post", "pay", "close_case", "give_up")
"""The tools whose calls must not be repeated."""


def delegate(*agents: plait.Agent[Any]) -> plait.Tool:
    """Return a tool that runs these agents at once, each as a child run."""

    @plait.tool(idempotent=True)
    async def delegate(ctx: plait.Context[None], what: str) -> str:
        """Let agents work at once."""
        runs = await asyncio.gather(*(ctx.arun(each, f"{what} {i}") for i, each in enumerate(agents)))
        return " | ".join(str(run.answer) for run in runs)

    return delegate


class Model(plait.Scripted):
    """A scripted model that counts its requests. The first `fails` requests of all fail; a `dead` one always fails.

    `rejects` is an ability whose requests the endpoint rejects.
    """

    fails: int = 0
    dead: bool = False
    rejects: str = ""

    async def send(self, request: Request, think: Think, on_text: OnText | None = None) -> Response:
        tally(f"ask {self.name}")
        if self.dead:
            raise ModelMissing(f"There is no {self.name}.")
        if self.rejects and getattr(self.abilities, self.rejects):
            raise Unsupported(f"{self.name} takes no {self.rejects}", self.rejects, f"no {self.rejects}")
        if read_tally().count(f"ask {self.name}") <= self.fails:
            why = ServerFailed(f"{self.name} does not answer (500).")
            why.after = 0.001
            raise why
        return await super().send(request, think, on_text)


def model(*replies: Any, fails: int = 0, dead: bool = False, rejects: str = "", **options: Any) -> Model:
    """Return a model that says these replies, one a turn."""
    made = Model(replies[0] if replies and isinstance(replies[0], dict) else replies, **options)
    made.fails, made.dead, made.rejects = fails, dead, rejects
    return made


def echo(**options: Any) -> Model:
    """Return a model whose reply repeats the user's last message."""
    return model(lambda asked: f"re: {asked.messages[-1].content}", **options)


def hook(point: str, decide: Callable[[Any], Any]) -> plait.Hook:
    """Return a hook at one point, which decides about its subject: the request, the reply, the call, and so on."""

    def method(self: plait.Hook, context: Any, *subject: Any) -> Any:
        tally(f"user {point}")
        return decide(subject[-1])

    made: plait.Hook = type(f"At_{point}", (plait.Hook,), {point: method})()
    return made


def shout(subject: Any) -> Any:
    """Change a subject so that everybody can see it."""
    match subject:
        case Think():
            *earlier, last = subject.messages
            return structs.replace(subject, messages=(*earlier, structs.replace(last, content=last.content + "!")))
        case Reply():
            return structs.replace(subject, text=subject.text.replace("one", "ONE").replace("over", "OVER"))
        case Call():
            given = {name: value.upper() for name, value in subject.input.items() if isinstance(value, str)}
            return structs.replace(subject, input={**subject.input, **given})
        case Observation():
            return structs.replace(subject, text=subject.text.upper(), value=None)
    return str(subject).upper()


def number(subject: Any) -> Any:
    """Change a call or a result, each time otherwise: a resumed run must take the decision that it has on record."""
    mark = f"#{len(read_tally())}"
    if isinstance(subject, Call):
        given = {name: value + mark for name, value in subject.input.items() if isinstance(value, str)}
        return structs.replace(subject, input={**subject.input, **given})
    return structs.replace(subject, text=subject.text + mark, value=None)


def refuse(subject: Any) -> plait.Refuse | None:
    """Refuse a subject, but let a second answer pass."""
    return None if subject == "second" else plait.Refuse("not so")


def ask_about(subject: Any) -> plait.AskApproval:
    """Let the user decide."""
    return plait.AskApproval(f"May this {type(subject).__name__} pass?")


def to(tool: str, decide: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a decision about the calls of one tool."""
    return lambda call: decide(call) if call.tool == tool else None


def about(*texts: str) -> Callable[[Call], bool]:
    """Return a policy that asks the user about calls with these texts."""

    def approve(call: Call) -> bool:
        tally("user approve")
        return isinstance(call.input, dict) and call.input.get("text") in texts

    return approve


def is_small(value: int) -> str | None:
    """Object to a large answer."""
    tally("user is_small")
    return None if value < 100 else "Give a number below 100."
