"""How a run's end is told: the answer on stdout, a line on stderr, the exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

import click

from plait.cli.group import CANCELLED, CRASHED, leave, nowhere
from plait.cli.text import as_json, clean, count, duration, money, one_line, tokens
from plait.core import Crashed, Failed, Stopped, Waiting
from plait.runtime.run import Run

CODES = {"answered": 0, "failed": 3, "stopped": 4, "waiting": 5, "cancelled": CANCELLED, "crashed": CRASHED}
"""The exit code of each status."""


def tell(
    run: Run | None,
    *,
    as_object: bool = False,
    quiet: bool = False,
    again: tuple[str, ...] = (),
    kept: bool = True,
    page: Callable[[str], str] | None = None,
) -> NoReturn:
    """Print a run's end and leave with its code. `None` is a run that was cancelled before it began.

    `again` are the words that `plait resume` needs to find the run's journal; `kept` says that there is one.
    `page` is how a plan that a run waits with is shown.
    """
    if run is None:
        _say("Cancelled before the run began.")
        leave(CANCELLED)
    if not quiet or run.status != "answered":
        if page is not None and isinstance(run.outcome, Waiting) and run.outcome.kind == "plan":
            _say(page(run.outcome.reason) + "\n")
        colour = "green" if run.status == "answered" else "yellow"
        _say(click.style(summary(run, recorded=kept), fg=colour))
        for line in hints(run, again) if kept else ():
            _say(line)
    try:
        answer(run, as_object=as_object)
    except BrokenPipeError:
        nowhere()
    except OSError as why:
        where = f" `plait show {run.run}` has it." if kept else ""
        _say(f"Error: the answer can't be written to stdout: {why.strerror}.{where}")
        nowhere()
        leave(CRASHED)
    leave(CODES[run.status])


def answer(run: Run, *, as_object: bool = False) -> None:
    """The answer alone on stdout, text as it is and anything else as JSON; or the whole run as one object."""
    if as_object:
        click.echo(as_json(run.json()))
    elif run.answer is not None:
        text = run.answer if isinstance(run.answer, str) else as_json(run.answer)
        # In a pipe the answer is what the model wrote; in a terminal it must not be able to draw.
        click.echo(clean(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def summary(run: Run, *, recorded: bool = True) -> str:
    """`answered · 3 steps · 3 calls · 812 + 45 tokens · 2.1 s · 0.00012 USD · run 2026...`"""
    parts = [
        _status(run),
        count(run.steps, "step"),
        count(run.calls, "call"),
        tokens(run.usage),
        duration(run.seconds),
        money(run.cost_usd),
    ]
    return " · ".join([*parts, f"run {run.run}"] if recorded else parts)


def _status(run: Run) -> str:
    match run.outcome:
        case Waiting(kind="plan"):
            return "waiting for leave to carry out the plan"
        case Stopped() | Failed() | Waiting():
            return f"{run.status}: {one_line(run.outcome.reason)}"
        case Crashed(reason=reason, hint=hint):
            return f"{run.status}: {one_line(f'{reason} {hint}')}"
        case _:
            return run.status


def hints(run: Run, again: tuple[str, ...] = ()) -> list[str]:
    """What to do next, as a command that can be copied."""
    words = " ".join(("plait resume", run.run, *again))
    match run.outcome:
        case Waiting():
            return how_to_answer(run.run, run.outcome, again)
        case Crashed():
            return [f"Go on when that is mended: {words}"]
        case _ if run.status == "cancelled":
            return [f"Go on with: {words}"]
        case _:
            return []


def how_to_answer(run: str, waiting: Waiting, again: tuple[str, ...] = ()) -> list[str]:
    """The commands that answer a question of a run."""
    words = " ".join(("plait resume", run, *again, "--question", waiting.question))
    match waiting.kind:
        case "question":
            return [f"Answer with: {words} --answer TEXT"]
        case "approval":
            return [f"Allow it with: {words} --answer yes    (refuse with: --answer no, or a reason)"]
        case "plan":
            written = " ".join(("plait plan --of", run, *again))
            return [
                f"Carry it out with: {words} --answer yes    (refuse with: --answer no, or say what to change)",
                f"Edit it with: {written} > plan.txt && $EDITOR plan.txt && {words} --plan plan.txt",
            ]


def _say(text: Any) -> None:
    # When stderr is closed, or its reader has gone, the answer and the exit code still tell.
    with suppress(OSError, ValueError):
        click.echo(text, err=True)
