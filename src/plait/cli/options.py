"""Options that several commands share, and the choice of the journal."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from plait.core.errors import ConfigError

if TYPE_CHECKING:
    from plait.config import RunDefaults

F = TypeVar("F", bound=Callable[..., Any])


class NumberType(click.ParamType[Any]):
    """A number from `low` to `high`, integer or not. `above`: it must be more than `low`."""

    def __init__(
        self, low: float = -math.inf, high: float = math.inf, *, whole: bool = False, above: bool = False
    ) -> None:
        self.low, self.high, self.whole, self.above = low, high, whole, above
        self.name = "whole number" if whole else "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | float:
        """Return the number, or fail with the expected range."""
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


class ShareType(click.ParamType[Any]):
    """A share from 0 to 1, also as a percentage: 0.8 or 80%."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the share, or fail with the expected form."""
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            share = math.nan
        if not 0 <= share <= 1:
            self.fail(f"{value!r} is not a share from 0 to 1, such as 0.8 or 80%.", param, ctx)
        return share


WHOLE, NUMBER = NumberType(0, whole=True, above=True), NumberType(0, above=True)


def combine(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return one decorator for several options, in the order of the help text."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def flag(name: str, variable: str | None = None, **attributes: Any) -> Callable[[F], F]:
    return click.option(name, *([variable] if variable else []), is_flag=True, **attributes)


def repeatable(name: str, variable: str, metavar: str, help: str) -> Callable[[F], F]:
    """Return an option that may be given several times."""
    return click.option(name, variable, metavar=metavar, multiple=True, help=help)


def _set_config(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    # The library reads this variable wherever it needs endpoints or prices.
    if value is not None:
        os.environ["PLAIT_CONFIG"] = value


config = click.option(
    "--config", metavar="FILE", callback=_set_config, expose_value=False, help="Configuration instead of ./plait.toml."
)
journal = combine(
    click.option("--journal", metavar="FILE", help="The journal to use instead of the default one."), config
)
as_object = flag("--json", "as_object", help="Print one JSON object on stdout.")
as_list = flag("--json", "as_object", help="Print one JSON list on stdout.")
quiet = flag("--quiet", help="Do not show the steps, only how the run ended.")
no_progress = flag("--quiet", help="Do not show the progress.")
loop = click.option("--loop", metavar="NAME", help="The loop (see `plait loops list`). Default auto: by the model.")
at_least = click.option(
    "--at-least", type=ShareType(), metavar="SHARE", help="Minimum share of tasks done right (default 80%)."
)
settings = repeatable("--set", "settings", "K=V", "An option of the loop.")
models = repeatable(
    "--model", "models", "[PHASE=]SPEC", "The model, for all phases or for one: local, local:NAME, openai:NAME, ..."
)
model_settings = repeatable(
    "--model-setting",
    "model_settings",
    "[PHASE.]K=V",
    "A setting of the requests, for all phases or for one: effort=low, act.temperature=0 (docs/models.md).",
)
tools = repeatable("--tools", "tools", "WORD", "Tools: calculator, lookup:FILE, file.py, module:name. Can be repeated.")
load_tools = flag(
    "--load-tools",
    help="Load the tools that the journal names, even if it is not your default journal. They may run code, read "
    "files and use the network.",
)
max_tools = click.option(
    "--max-tools",
    type=NumberType(0, whole=True),
    metavar="N",
    help="Show the model the N tools that fit the task and a search tool that finds the others.",
)
prompts = click.option("--prompts", metavar="DIR", help="Prompts that replace the built-in ones, file by file.")
limits = combine(
    click.option("--max-steps", type=WHOLE, metavar="N", help="Maximum turns of the loop (default 25)."),
    click.option("--max-calls", type=WHOLE, metavar="N", help="Maximum requests to models, including retries."),
    click.option("--max-tokens", type=WHOLE, metavar="N", help="Maximum tokens, in and out together."),
    click.option("--max-cost", type=NUMBER, metavar="USD", help="Maximum cost."),
    click.option("--max-seconds", type=NUMBER, metavar="S", help="Maximum wall time."),
)
approve = click.option(
    "--approve",
    type=click.Choice(["never", "effects", "always", "plan"]),
    help="Which tool calls need the user's approval (default never), or `plan` for the plan as a whole.",
)
grounding = click.option(
    "--grounding",
    type=click.Choice(["off", "note", "warn", "ask", "refuse"]),
    help="What to do about argument values that the model made up (default off).",
)
taint = click.option(
    "--taint",
    type=click.Choice(["off", "ask"]),
    help="Ask before calls with effects once the model has read content from outside (default off).",
)
hooks = repeatable(
    "--hook", "hooks", "WORD", "A hook: redact, hosts:HOST,... rate:TOOL=CALLS,... retry:ATTEMPTS. Can be repeated."
)
code = combine(
    click.option("--sandbox", metavar="NAME", help="Where a loop's code runs: auto (default), process or monty."),
    repeatable(
        "--code-limit",
        "code_limit",
        "K=V",
        "A limit for one piece of code: seconds, memory_mb, recursion, output_chars, calls.",
    ),
)
system = click.option(
    "--system", metavar="FILE", help="A system prompt instead of the built-in one, sent byte for byte."
)
instructions = click.option(
    "--instructions",
    metavar="TEXT|@FILE",
    help="Instructions for the model, beside the built-in prompts or --system.",
)
schema = click.option("--schema", metavar="FILE", help="A JSON Schema that the answer has to fit.")
agent = combine(
    loop,
    settings,
    models,
    model_settings,
    tools,
    max_tools,
    limits,
    grounding,
    taint,
    hooks,
    code,
    prompts,
    system,
    instructions,
    schema,
)
"""The options that describe an agent."""
session = click.option("--session", metavar="NAME", help="The conversation that this turn starts or continues.")
embedder = click.option(
    "--embedder", metavar="SPEC", help="The embedder that searches a session: local (default), openai:NAME, ..."
)
evidence = click.option(
    "--evidence", metavar="RUN", help="With --plan: reuse what RUN found for the steps that did not change."
)
attach = repeatable(
    "--attach", "files", "FILE", "An image, a PDF file or a text file of the question. Repeat it for several."
)
no_ask = flag("--no-ask", help="The model may not ask the user.")
repeat_finished = flag("--again", help="Run finished tasks again.")
jobs = click.option("--jobs", type=WHOLE, default=1, metavar="N", help="Maximum runs at the same time (default 1).")
budget = click.option(
    "--budget",
    type=NUMBER,
    metavar="USD",
    help="Stop starting runs when the budget is spent, or when the average run would exceed it.",
)
hardware = click.option(
    "--hardware",
    type=NUMBER,
    metavar="USD",
    help="Break-even: the number of runs after which hardware at this price is cheaper than the first row.",
)


text_formats = combine(
    flag("--markdown", "as_markdown", help="Print Markdown."),
    flag("--csv", "as_csv", help="Print the rows as comma-separated values."),
    flag("--json", "as_object", help="Print one JSON object on stdout, with every digit."),
)


def check_one_format(**given: bool) -> None:
    """Raise `ConfigError` if more than one of these output formats is given."""
    if sum(given.values()) > 1:
        *others, last = (f"--{name}" for name in given)
        raise ConfigError(f"{', '.join(others)} and {last} exclude each other.", hint="Choose one.")


def journal_path(given: str | None, defaults: RunDefaults | None = None) -> str | None:
    """Return the journal that the option, the environment or `plait.toml` names; None for the default one.

    Raises `ConfigError` if its folder does not exist: only the folder of the default journal is created.
    """
    named = given or os.environ.get("PLAIT_JOURNAL")
    if not named:
        if defaults is None:
            from plait.config import load

            defaults = load().run
        named = defaults.journal
    if named:
        folder = Path(named) if named.endswith(("/", os.sep)) else Path(named).parent
        if not folder.expanduser().exists():
            hint = "Create the folder, or correct --journal (PLAIT_JOURNAL, or `journal` in plait.toml)."
            raise ConfigError(f"The journal {named} can't be opened: there is no folder {folder}.", hint=hint)
    return named


def journal_words(given: str | None) -> tuple[str, ...]:
    """Return the words that make a printed command use the same journal."""
    import shlex

    return ("--journal", shlex.quote(given)) if given else ()
