"""How a run is printed: its events as plain lines, its answer, its summary, the next steps, and its exit code."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NoReturn, Protocol, TextIO

import click

from plait.cli.commands import discard_stdout, exit_with
from plait.cli.main import CANCELLED, CRASHED
from plait.cli.output import (
    SHOWN,
    as_json,
    clean_text,
    describe_origin,
    describe_tree,
    format_call,
    format_code_error,
    format_hosted,
    format_reply,
    format_seconds,
    format_stage,
    format_tokens,
    format_usd,
    shorten,
)
from plait.core import Call, Crashed, Event, Failed, Stopped, Waiting
from plait.core import events as ev
from plait.core.text import clean, format_count
from plait.journal.store import Journal
from plait.models.stages import StageEnded
from plait.runtime.run import Run
from plait.runtime.run_files import RunFile, save_files

CODES = {"answered": 0, "failed": 3, "stopped": 4, "waiting": 5, "cancelled": CANCELLED, "crashed": CRASHED}
"""The exit code of each status."""


class RunView(Protocol):
    """Show events. `close` ends what is still open on the screen."""

    def __call__(self, event: Event | StageEnded) -> None: ...

    def close(self) -> None: ...


class SilentView:
    def __call__(self, event: Event | StageEnded) -> None:
        return

    def close(self) -> None:
        return


class LineView(SilentView):
    """Show events as labelled lines: `Thought: ...`. Further lines of a text are indented. So no output of a tool looks
    like a line of Plait. `limit`: characters shown of an observation, None for all."""

    def __init__(self, out: TextIO, limit: int | None = SHOWN) -> None:
        self._out = out
        self._limit = limit
        self._texts: defaultdict[int, str] = defaultdict(str)
        """The texts that have no mark yet, by their parts."""
        self._open_calls: list[Call] = []

    def __call__(self, event: Event | StageEnded) -> None:
        match event:
            case ev.Began():
                self._write("Run", f"{event.run} ({', '.join((event.loop, *describe_origin(event)))})")
            case ev.Thought(text=text, part=part) | ev.Text(text=text, part=part) | ev.Answer(text=text, part=part):
                self._texts[part] += text
            case ev.Marked(part=part, kind=kind):
                if (text := self._texts.pop(part, "").strip()) and kind == "thought":
                    self._write("Thought", text)
            case ev.Called(call=call):
                self._open_calls.append(call)
                self._write("Action", format_call(call))
            case ev.Observed(call=call, observation=observation):
                which = f" of {call.tool}" if len(self._open_calls) > 1 else ""
                if call in self._open_calls:
                    self._open_calls.remove(call)
                elif observation.trouble == "refused":
                    self._write("Action (not made)", format_call(call))
                text, missing = shorten(observation.text, self._limit)
                self._write(f"Observation{which}", text)
                self._note(missing)
                self._note(f"({observation.note})" if observation.note else "")
            case ev.HostedCalled(call=call):
                self._write("Provider's call", format_hosted(call, self._limit))
            case ev.Executing(code=code):
                self._write("Code", code)
            case ev.Executed(ran=ran):
                text, missing = shorten(ran.output, self._limit)
                made = "\n".join(f"{each.id}: {each.about}" for each in ran.made)
                for label, shown in (("Output", text), ("Files", made), ("Error", format_code_error(ran))):
                    if shown:
                        self._write(label, shown)
                self._note(missing)
            case ev.Replied(citations=cited):
                if cited:
                    self._write("Sources", "\n".join(map(str, cited)))
                self._note(f"({format_reply(event)})")
            case ev.Noted(kind=kind, text=text):
                self._write(f"Note ({kind})", text)
            case StageEnded():
                self._note(f"({format_stage(event)})")
            case _:
                pass

    def _write(self, label: str, text: str) -> None:
        print(f"{label}: " + clean(text).strip("\n").replace("\n", "\n  "), file=self._out, flush=True)

    def _note(self, text: str) -> None:
        if text:
            print(f"  {text}", file=self._out, flush=True)


def answering(view: RunView, *, as_object: bool = False) -> RunView:
    """Return the view that also streams the answer to the terminal, if stdout and stderr are one. During a run, stdout
    is what tools print (see `stdout_to_stderr`)."""
    if as_object or not (sys.stdout.isatty() and sys.stderr.isatty()):
        return view
    from plait.cli.markdown import AnswerView

    return AnswerView(view, sys.stderr)


def view_for(out: TextIO, *, quiet: bool = False, limit: int | None = SHOWN) -> RunView:
    """Return the view that fits a stream: a drawing for a terminal, lines for a pipe."""
    if quiet:
        return SilentView()
    if out.isatty():
        from plait.cli.drawing import TerminalView

        return TerminalView(out, limit)
    return LineView(out, limit)


def exit_with_run(
    run: Run | None,
    *,
    as_object: bool = False,
    quiet: bool = False,
    journal: tuple[str, ...] = (),
    is_recorded: bool = True,
    show_plan: Callable[[str], str] | None = None,
    suggestions: Sequence[str] = (),
    view: RunView | None = None,
    files_to: str | None = None,
) -> NoReturn:
    """Print how a run ended and exit with its code. `run` is None if it was cancelled before it began.

    `journal` holds the words that make `plait resume` find the run. `show_plan` renders a plan that needs approval.
    `suggestions` are printed below an answer. `view` has shown the run, and perhaps the answer. The run's files are
    saved in the folder `files_to`.
    """
    if run is None:
        _print_error("Cancelled before the run began.")
        exit_with(CANCELLED)
    if not quiet or run.status != "answered":
        if show_plan is not None and isinstance(run.outcome, Waiting) and run.outcome.kind == "plan":
            _print_error(show_plan(run.outcome.reason) + "\n")
        colour = "green" if run.status == "answered" else "yellow"
        _print_error(click.style(summarize_run(run, is_recorded=is_recorded), fg=colour))
        for line in next_steps(run, journal) if is_recorded else ():
            _print_error(line)
    try:
        print_answer(run, as_object=as_object, view=view)
    except BrokenPipeError:
        discard_stdout()
    except OSError as why:
        where = f" `plait show {run.id}` shows it." if is_recorded else ""
        _print_error(f"Error: the answer can't be written to stdout: {why.strerror}.{where}")
        discard_stdout()
        exit_with(CRASHED)
    if files_to is not None:
        save_run_files(run.files, files_to)
    if run.status == "answered" and not quiet:
        for line in suggestions:
            _print_error(line)
    exit_with(CODES[run.status])


def save_run_files(files: Iterable[RunFile], folder: str) -> None:
    """Save the files of a run in a folder, and print their paths. Raises `ConfigError` if one cannot be written."""
    for path in save_files(files, folder):
        _print_error(f"Saved: {clean(str(path))}")


def has_guide() -> bool:
    """Return whether a person watches: stderr is a terminal, or PLAIT_GUIDE is set, as `make run` does."""
    return bool(os.environ.get("PLAIT_GUIDE")) or (sys.stderr is not None and sys.stderr.isatty())


def suggest_next(
    run: Run | None, journal: str | Path | Literal[False] | None, journal_words: tuple[str, ...]
) -> list[str]:
    """Return next steps after the first run in a journal, if a local model answered it; nothing after later runs."""
    is_local = run is not None and any(spec.partition(":")[0] == "local" for spec in run.models.values())
    if journal is False or not is_local:
        return []
    if not os.environ.get("PLAIT_GUIDE") and len(Journal.at(journal).runs(limit=2)) > 1:
        return []
    plait = "plait" if shutil.which("plait") else os.path.relpath(sys.argv[0])
    again = [*sys.argv[1:], *(() if "--loop" in sys.argv else ("--loop", "rewoo"))]
    return [
        "Try next:",
        f"  {' '.join((plait, 'show last', *journal_words))}    (every thought, call and time of this run)",
        f"  {shlex.join([plait, *again])}    (another loop)",
        f"  {plait} compare basics:report --loops react,rewoo --limit 3    (which loop is better?)",
    ]


def print_answer(run: Run, *, as_object: bool = False, view: RunView | None = None) -> None:
    """Print only the answer on stdout (text unchanged, other values as JSON), or the whole run as one object. A
    terminal shows the Markdown of the text, unless `view` has shown it already."""
    if as_object:
        click.echo(as_json(run.json()))
    elif run.answer is not None and not getattr(view, "has_answered", False):
        text = run.answer if isinstance(run.answer, str) else as_json(run.answer)
        if isinstance(run.answer, str) and sys.stdout.isatty():
            from plait.cli.markdown import print_markdown

            print_markdown(text, sys.stdout)
        else:  # a pipe gets exactly what the model wrote
            click.echo(text)
    sys.stdout.flush()


def summarize_run(run: Run, *, is_recorded: bool = True) -> str:
    """Return `answered · 3 steps · 3 calls · 812 + 45 tokens · 2.1 s · 0.00012 USD · run 2026...`."""
    match run.outcome:
        case Waiting(kind="plan"):
            status = "waiting for approval of the plan"
        case Crashed(reason=reason, hint=hint):
            status = f"{run.status}: {clean_text(f'{reason} {hint}')}"
        case Stopped() | Failed() | Waiting():
            status = f"{run.status}: {clean_text(run.outcome.reason)}"
        case _:
            status = run.status
    parts = [
        status,
        format_count(run.steps, "step"),
        format_count(run.calls, "call"),
        format_tokens(run.usage),
        *([describe_tree(run.tree)] if run.tree.runs > 1 else []),
        format_seconds(run.seconds),
        format_usd(run.cost_usd),
    ]
    return " · ".join([*parts, f"run {run.id}"] if is_recorded else parts)


def next_steps(run: Run, journal: tuple[str, ...] = ()) -> list[str]:
    """Return what to do next, as commands to copy."""
    resume = " ".join(("plait resume", run.id, *journal))
    match run.outcome:
        case Waiting():
            return how_to_answer(run.id, run.outcome, journal)
        case Crashed(error=error):
            change = " ".join((f"plait fork {run.id} --at {max(1, run.steps)} --model NAME", *journal))
            # A resumed run keeps its models and settings.
            other = [f"To continue with another model or setting, run: {change}"] if error == "BadRequest" else []
            return [*other, f"To continue after fixing this, run: {resume}"]
        case _ if run.status == "cancelled":
            return [f"To continue, run: {resume}"]
        case _:
            return []


def how_to_answer(run: str, waiting: Waiting, journal: tuple[str, ...] = ()) -> list[str]:
    """Return the commands that answer a question of a run."""
    resume = " ".join(("plait resume", run, *journal, "--question", waiting.question))
    match waiting.kind:
        case "question":
            return [f"Answer with: {resume} --answer TEXT"]
        case "approval":
            return [f"Approve with: {resume} --answer yes    (refuse with: --answer no, or a reason)"]
        case "plan":
            plan = " ".join(("plait plan --of", run, *journal))
            return [
                f"Approve with: {resume} --answer yes    (refuse with: --answer no, or say what to change)",
                f"Edit it with: {plan} > plan.txt && $EDITOR plan.txt && {resume} --plan plan.txt",
            ]


def _print_error(text: str) -> None:
    # If stderr is closed or its reader is gone, the answer and the exit code still arrive.
    with suppress(OSError, ValueError):
        click.echo(text, err=True)
