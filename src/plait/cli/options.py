"""Options that several commands share, each with its one line of help."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class Number(click.ParamType[Any]):
    """A number from `low` to `high`, whole or not. `above`: it must be more than `low`."""

    def __init__(
        self, low: float = -math.inf, high: float = math.inf, *, whole: bool = False, above: bool = False
    ) -> None:
        self.low, self.high, self.whole, self.above = low, high, whole, above
        self.name = "whole number" if whole else "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | float:
        """The number, or an error that says what is wanted."""
        try:
            number = int(value) if self.whole else float(value)
        except ValueError:
            self.fail(f"{value!r} is not a {self.name}.", param, ctx)
        if self.above and not (math.isfinite(number) and number > self.low):
            self.fail(f"{value} is not above {'zero' if self.low == 0 else self.low}.", param, ctx)
        if number < self.low or number > self.high:
            wanted = f"from {self.low:g} to {self.high:g}" if math.isfinite(self.high) else f"{self.low:g} or more"
            self.fail(f"{value} is not a {self.name} {wanted}.", param, ctx)
        return number


class Share(click.ParamType[Any]):
    """A share from 0 to 1, also in per cent: 0.8 or 80%."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The share, or an error that says what is wanted."""
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            share = math.nan
        if not 0 <= share <= 1:
            self.fail(f"{value!r} is no share from 0 to 1, such as 0.8 or 80%.", param, ctx)
        return share


WHOLE, NUMBER = Number(0, whole=True, above=True), Number(0, above=True)


def _config(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    # The library reads this variable wherever it needs endpoints or prices.
    if value is not None:
        os.environ["PLAIT_CONFIG"] = value
    return value


config = click.option(
    "--config",
    metavar="FILE",
    callback=_config,
    expose_value=False,
    help="Configuration instead of ./plait.toml.",
)
journal = click.option("--journal", metavar="FILE", help="The record's file instead of the default one.")
as_object = click.option("--json", "as_object", is_flag=True, help="Print one JSON object on stdout.")
quiet = click.option("--quiet", is_flag=True, help="Do not show the steps, only how it ended.")
strategy = click.option("--strategy", metavar="NAME", help="The loop (see `plait strategies list`).")
at_least = click.option(
    "--at-least", "at_least", type=Share(), metavar="SHARE", help="The least share of tasks done right (default 80%)."
)
settings = click.option("--set", "settings", metavar="K=V", multiple=True, help="An option of the loop.")
models = click.option(
    "--model",
    "models",
    metavar="[PHASE=]SPEC",
    multiple=True,
    help="The model, for all phases or for one: local, local:NAME, openai:NAME, ...",
)
tools = click.option(
    "--tools",
    "tools",
    metavar="WORD",
    multiple=True,
    help="Tools: calculator, lookup:FILE, file.py, module:name. Can be repeated.",
)
load_tools = click.option(
    "--load-tools",
    is_flag=True,
    help="Load the tools that the journal names, though it is not your default one: this runs their code.",
)
show_tools = click.option(
    "--show-tools",
    type=Number(0, whole=True),
    metavar="N",
    help="Of more tools show the N that fit the task, and a search for the others.",
)
prompts = click.option("--prompts", metavar="DIR", help="Prompts that replace ours, file by file.")


def combine(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator, in the order in which help shows them."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


limits = combine(
    click.option("--max-steps", type=WHOLE, metavar="N", help="Turns of the loop (default 25)."),
    click.option("--max-calls", type=WHOLE, metavar="N", help="Requests to models, retries included."),
    click.option("--max-tokens", type=WHOLE, metavar="N", help="Tokens, in and out together."),
    click.option("--max-cost", type=NUMBER, metavar="USD", help="Money."),
    click.option("--max-seconds", type=NUMBER, metavar="S", help="Wall time."),
)
approve = click.option(
    "--approve",
    type=click.Choice(["never", "effects", "always", "plan"]),
    help="Which tool calls need a person's leave (default never), or the plan as a whole.",
)
system = click.option("--system", metavar="FILE", help="A system prompt in place of ours, sent byte for byte.")
provenance = click.option(
    "--provenance",
    type=click.Choice(["off", "note", "warn", "ask", "refuse"]),
    help="What is done about arguments that the model made up (default off).",
)
code = combine(
    click.option("--sandbox", metavar="NAME", help="Where a loop's code runs: auto (default), process or monty."),
    click.option(
        "--code-limit",
        "code_limit",
        metavar="K=V",
        multiple=True,
        help="What one piece of code may use: seconds, memory_mb, recursion, output_chars, calls.",
    ),
)
chosen = combine(
    click.option("--results", metavar="FILE", help="With --strategy auto: what loop and models are chosen from."),
    at_least,
)
agent = combine(strategy, chosen, settings, models, tools, show_tools, limits, provenance, code, prompts, system)
"""What describes an agent, in the order in which the help shows it."""
session = click.option(
    "--session", metavar="NAME", help="The conversation this is a turn of: a new one, or one to go on with."
)
embedder = click.option(
    "--embedder", metavar="SPEC", help="What searches a session by meaning: local (default), openai:NAME, ..."
)
plan = click.option("--plan", "plan", metavar="FILE", help="A plan to carry out (rewoo), text or JSON; - is stdin.")
evidence = click.option(
    "--evidence", metavar="RUN", help="With --plan: keep what RUN found for the steps that are as they were there."
)
no_ask = click.option("--no-ask", is_flag=True, help="The model may not ask the person.")


def existing(name: str) -> Path:
    """A file that must be there. Raises `UsageError`."""
    from plait.core.errors import UsageError

    path = Path(name).expanduser()
    if path.is_dir():
        raise UsageError(f"{name} is a folder.", hint="Name a file in it.")
    if not path.exists():
        raise UsageError(f"There is no file {name}.", hint=f"Looked for {path.absolute()}.")
    return path
