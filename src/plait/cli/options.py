"""Options that several commands share, and the choice of the journal."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from plait.core.errors import ConfigError
from plait.journal.run_query import RATINGS, STATES
from plait.journal.store import is_address

if TYPE_CHECKING:
    from plait.runtime.agents.annotations import RunAnnotations
    from plait.runtime.agents.options import Option

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
        is_odd = math.isfinite(self.low) and not math.isfinite(number)
        if number < self.low or number > self.high or is_odd:
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
    if value is not None:  # the library reads this variable wherever it needs endpoints or prices
        os.environ["PLAIT_CONFIG"] = value


config = click.option(
    "--config", metavar="FILE", callback=_set_config, expose_value=False, help="Configuration instead of ./plait.toml."
)
journal = combine(
    click.option("--journal", metavar="PLACE", help="The journal to use: a file, or postgresql://USER@HOST/DATABASE."),
    config,
)
as_object = flag("--json", "as_object", help="Print one JSON object on stdout.")
as_list = flag("--json", "as_object", help="Print one JSON list on stdout.")
quiet = flag("--quiet", help="Do not show the steps, only how the run ended.")
no_progress = flag("--quiet", help="Do not show the progress.")
at_least = click.option(
    "--at-least", type=ShareType(), metavar="SHARE", help="Minimum share of tasks done right (default 80%)."
)
load_tools = flag(
    "--load-tools",
    help="Load the tools that the journal names, even if it is not your default journal. They may run code, read "
    "files and use the network.",
)


def agent(
    *, only: Sequence[str] = (), without: Sequence[str] = (), compared: Sequence[str] = (), recorded: bool = False
) -> Callable[[F], F]:
    """Return a decorator for the options of an agent, all or some: by the agent's field, or the key in plait.toml.

    The journal is not among them: every command that uses it has `options.journal`. Those that are `compared` can be
    repeated. `recorded`: the defaults are those of a recorded run.
    """
    from plait.runtime.agents.agent_fields import OPTIONS

    def is_named(each: Option, names: Sequence[str]) -> bool:
        return each.file_key in names or (each.within or each.name) in names

    return combine(
        *(
            make_option(each, recorded, is_named(each, compared))
            for each in OPTIONS
            if (not only or is_named(each, only)) and not is_named(each, ("journal", *without))
        )
    )


def make_option(option: Option, recorded: bool = False, is_compared: bool = False) -> Callable[[F], F]:
    """Return a decorator for the flag of an option; it does nothing if there is none."""
    if not option.flag:
        return lambda function: function
    name, _, metavar = option.flag.partition(" ")
    text, default = option.flag_help or option.help, option.default
    if recorded or not default or isinstance(default, bool) or not isinstance(default, str | int | float):
        text += " Can be repeated." * (option.many == "words")
    else:
        text = f"{text if text.endswith('...') else text.rstrip('.')} (default {default})."
    attributes: dict[str, Any] = {"help": text, "metavar": metavar or None}
    if option.switch is not None:
        attributes["is_flag"] = True
    elif option.many or "=" in metavar or is_compared:
        attributes["multiple"] = True
        attributes["help"] += " Several are compared." * is_compared
    elif option.choices:
        attributes["type"] = click.Choice(option.choices)
    elif option.number:
        low, is_above = option.above or 0, option.above is not None
        attributes["type"] = NumberType(low, option.most, whole=option.number is int, above=is_above)
    return click.option(name, option.parameter, **attributes)


_AGENT = "An agent: module:agent, file.py:agent, or NAME of [agents.NAME] in plait.toml. Other options change it."
named_agent = click.option("-a", "--agent", "agent", metavar="AGENT", help=_AGENT)
named_agents = click.option("-a", "--agent", "words", metavar="AGENT", multiple=True, help=f"{_AGENT} Can be repeated.")
_filters = (
    click.option("--status", type=click.Choice(STATES), help="Only runs with this status."),
    click.option("--grade", metavar="MARK", help="Only runs with this grade of a comparison, such as wrong."),
    click.option("--rated", type=click.Choice(RATINGS), help="Only runs that a user rated so."),
    click.option("--session", metavar="NAME", help="Only runs of this conversation."),
    click.option("--user", metavar="NAME", help="Only runs for this user."),
    repeatable("--tag", "tags", "TAG", "Only runs with this tag. If repeated: with all of them."),
    click.option("--since", metavar="TIME", help="Only runs that began then or later: 2026-11-20, or 7d (ago)."),
    click.option("--until", metavar="TIME", help="Only runs that began before; a day is included."),
    click.option("--min-cost", metavar="USD", help="Only runs that cost at least this, with their child runs."),
    click.option("--max-cost", metavar="USD", help="Only runs that cost at most this, with their child runs."),
)
filters = combine(*_filters, click.option("--agent", metavar="NAME", help="Only runs of this agent."))
"""Which recorded runs: the arguments of `make_query`."""
filters_of_agent = combine(*_filters, click.option("--made-by", metavar="NAME", help="Runs of another agent."))
"""The same for a command with an agent, of whose runs it uses some."""
about_run = combine(
    click.option("--user", metavar="NAME", help="For whom the run is made; the journal stores it."),
    repeatable("--tag", "tags", "TAG", "A word to find the run by. Can be repeated."),
    repeatable("--metadata", "metadata", "NAME=VALUE", "More about the run, for the journal. Can be repeated."),
)


def read_annotations(flags: dict[str, Any]) -> RunAnnotations:
    """Take the options of `about_run` out of all flags. None for those that are not given."""
    user, tags, pairs = (flags.pop(name) for name in ("user", "tags", "metadata"))
    if wrong := [each for each in pairs if "=" not in each]:
        raise ConfigError(f"--metadata {wrong[0]} has no value.", hint="Give NAME=VALUE.")
    metadata = dict(each.split("=", 1) for each in pairs)
    return {"user": user, "tags": tags or None, "metadata": metadata or None}


def describe_no_match(filters: Mapping[str, Any]) -> str:
    """Return what to try if no run matches, "" if nothing is known."""
    said = " A rating is not a grade: use --rated." if filters.get("grade") in RATINGS else ""
    of_name = " Runs of an agent with name= have this name, others module:agent or /WHOLE/PATH/file.py:agent."
    return said + of_name * (":" in (filters.get("agent") or ""))


session = click.option("--session", metavar="NAME", help="The conversation that this turn starts or continues.")
evidence = click.option(
    "--evidence", metavar="RUN", help="With --plan: reuse what RUN found for the steps that did not change."
)
attach = repeatable(
    "--attach", "files", "FILE", "An image, a PDF file or a text file of the question. Repeat it for several."
)
_SAVE = "Save the files that tools returned in this folder. Nothing is overwritten."
save_files = click.option("--save-files", "folder", metavar="DIR", help=_SAVE)
repeat_finished = flag("--again", help="Run finished tasks again.")
jobs = click.option("--jobs", type=WHOLE, default=1, metavar="N", help="Maximum runs at the same time (default 1).")
_FAIL_IF = "Exit with 1 if a run is wrong, or a row worse than the first one."
fail_if = click.option("--fail-if", type=click.Choice(["wrong", "worse"]), help=_FAIL_IF)
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


def check_hardware(price: float | None, rows: int, hint: str) -> None:
    """Raise `ConfigError` if a price of hardware is given and there is no second row to compare with the first."""
    if price is not None and rows < 2:
        raise ConfigError("--hardware compares rows with the first one, and there is only one row.", hint=hint)


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


def journal_path(given: str | None, table: Mapping[str, Any] | None = None) -> str | None:
    """Return the journal that the option, the environment or a table of plait.toml (None: `[run]`) names; None for the
    default one. Raises `ConfigError` if its folder does not exist: only the folder of the default journal is
    created."""
    named = given or os.environ.get("PLAIT_JOURNAL")
    if not named:
        from plait.config import load

        named = (load().run if table is None else table).get("journal")
    if named and not is_address(named):
        folder = Path(named) if named.endswith(("/", os.sep)) else Path(named).parent
        if not folder.expanduser().exists():
            hint = "Create the folder, or correct --journal (PLAIT_JOURNAL, or `journal` in plait.toml)."
            raise ConfigError(f"The journal {named} can't be opened: there is no folder {folder}.", hint=hint)
    return named


def journal_words(given: str | None, agent: str | None = None) -> tuple[str, ...]:
    """Return the words that make a printed command use the same journal, and the same agent if `-a` named one."""
    import shlex

    return (*(("-a", shlex.quote(agent)) if agent else ()), *(("--journal", shlex.quote(given)) if given else ()))
