"""The command `plait run`, and how the other commands perform a run."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeVar

import click

from plait.cli import options
from plait.cli.agent_options import find_only_agent, make_agent
from plait.cli.ask_user import PlanPrompt, user_at_terminal
from plait.cli.process import cancellable, stdout_to_stderr
from plait.cli.run_output import RunView, answering, exit_with_run, has_guide, suggest_next, view_for
from plait.core import Event
from plait.core.errors import ConfigError
from plait.core.events import Action, Answer, Asked, Began, Ended, Text, Thought
from plait.models.stages import StageEnded, listen_to_stages
from plait.runtime.conversations.attachments import UserQuestion, attach
from plait.runtime.run import Run
from plait.runtime.run_spec import OnWait

T = TypeVar("T")

EPILOG = """\
\b
Examples:
  plait run "What is 17% of 2,340?" --tools calculator
  plait run "How many more people live in Lyon than in Nice?" \\
      --tools lookup:cities.json --tools calculator --model local
  plait run "What is in this picture?" --attach photo.jpg --model openai:gpt-5
  plait run "..." --loop json --model openai:gpt-5 --max-cost 0.05 --json
  plait run - --loop react --set dialect=lines < question.txt

The answer goes to stdout, everything else to stderr. Exit codes: 0 answered, 3 failed, 4 stopped by a limit,
5 waiting for a person, 130 cancelled, 1 crashed, 2 wrong usage. Flags override the environment (PLAIT_MODEL,
PLAIT_LOOP, PLAIT_JOURNAL), and the environment overrides plait.toml.
"""


@click.command(epilog=EPILOG)
@click.argument("question")
@options.named_agent
@options.agent()
@click.option("--plan", metavar="FILE", help="A plan to carry out (rewoo), as text or JSON; - is stdin.")
@options.evidence
@options.attach
@options.session
@options.about_run
@options.save_files
@options.journal
@options.flag("--no-journal", help="Do not record the run.")
@options.as_object
@options.quiet
def run(
    question: str,
    files: tuple[str, ...],
    session: str | None,
    folder: str | None,
    plan: str | None,
    evidence: str | None,
    as_object: bool,
    quiet: bool,
    **flags: Any,
) -> None:
    """Answer QUESTION with a loop, a model and tools; `-` reads it from stdin.

    While it runs, thoughts, actions and observations are shown on stderr.
    """
    if question == "-" and plan == "-":
        raise ConfigError("The question and the plan can't both come from stdin.", hint="Write one of them out.")
    if question == "-":
        question = sys.stdin.read().strip("\n")
    if not question.strip():
        raise ConfigError("The question is empty.", hint="Say what to do.")
    if session is not None and flags["no_journal"]:
        raise ConfigError("A session is stored in the journal.", hint="Leave out --no-journal, or --session.")
    about = options.read_annotations(flags)
    if plan is not None or evidence is not None:
        from plait.cli.plan_text import make_agent_with_plan

        agent = make_agent_with_plan(plan, evidence, flags)
    else:
        flags["agent"] = find_only_agent(flags)
        agent = make_agent(flags)
    plans = PlanPrompt(agent, question)
    asked: UserQuestion = [question, *map(attach, files)]
    view = answering(view_for(sys.stderr, quiet=quiet), as_object=as_object)
    # Not by `perform_and_exit`: it would be one more frame of every request (docs/life-of-a-run.md).
    done = perform_run(
        lambda on_event, on_wait: agent.arun(asked, session=session, on_event=on_event, on_wait=on_wait, **about),
        view,
        plans=plans,
        may_ask=not as_object,
        words=(words := options.journal_words(flags["journal"], flags["agent"])),
    )
    exit_with_run(
        done,
        as_object=as_object,
        quiet=quiet,
        journal=words,
        is_recorded=agent.journal is not False,
        show_plan=plans.render,
        suggestions=suggest_next(done, agent.journal, options.journal_words(flags["journal"])) if has_guide() else (),
        view=view,
        files_to=folder,
    )


def perform_and_exit(
    start: Callable[[Any, Any], Coroutine[Any, Any, Run]],
    *,
    as_object: bool,
    quiet: bool,
    words: tuple[str, ...],
    plans: PlanPrompt | None = None,
    files_to: str | None = None,
) -> NoReturn:
    """Perform a recorded run (see `perform_run`) and exit as it ended (see `exit_with_run`)."""
    view = answering(view_for(sys.stderr, quiet=quiet), as_object=as_object)
    done = perform_run(start, view, plans=plans, may_ask=not as_object, words=words)
    show_plan = plans.render if plans is not None else None
    exit_with_run(
        done,
        as_object=as_object,
        quiet=quiet,
        journal=words,
        show_plan=show_plan,
        view=view,
        files_to=files_to,
    )


class _WatchedRun:
    """Pass events to a view and remember the run. A view that cannot write does not end the run."""

    def __init__(self, view: RunView, plans: PlanPrompt | None) -> None:
        self.id = ""
        self.run: Run | None = None
        self._view: RunView | None = view
        self._plans = plans
        self._prompt_sent: float | None = None
        """When a local model got the first prompt of the run; None before that, and after its reading time is shown."""
        self._has_read = False

    def __call__(self, event: Event) -> None:
        match event:
            case Began():
                self.id = event.run
                if self._plans is not None:
                    self._plans.run = event.run
            case Asked() if not self._has_read and event.model.partition(":")[0] == "local":
                self._prompt_sent = time.monotonic()
            case Thought() | Action() | Answer() | Text() if self._prompt_sent is not None:
                self.show_stage(StageEnded("reading prompt", time.monotonic() - self._prompt_sent))
                self._prompt_sent, self._has_read = None, True
            case Ended():
                self.run = event.run
        self._show(event)

    def show_stage(self, stage: StageEnded) -> None:
        """Show what a local model did before its reply, if somebody watches."""
        if self._prompt_sent is not None:
            self._prompt_sent = time.monotonic()
        if has_guide():
            self._show(stage)

    def _show(self, event: Event | StageEnded) -> None:
        if self._view is not None:
            try:
                self._view(event)
            except (OSError, ValueError):  # stderr is closed, or its reader is gone
                self._view = None


def perform_run(
    start: Callable[[Callable[[Event], None], OnWait | None], Coroutine[Any, Any, T]],
    view: RunView,
    *,
    plans: PlanPrompt | None = None,
    may_ask: bool = True,
    on_signal: Callable[[int], object] | None = None,
    words: tuple[str, ...] = (),
) -> T | Run | None:
    """Perform a run, shown by `view`, and return the result of `start`.

    `start` gets the function that receives events and the one that asks the user (None if nobody can be asked). A
    cancelled run is returned as the `Run` of its last event; None if it was cancelled before it began.
    """
    watched = _WatchedRun(view, plans)
    person = user_at_terminal(view.close, plans) if may_ask else None

    def how_to_resume() -> str:
        return watched.id and " ".join(("To continue, run: plait resume", watched.id, *words))

    done: T | None = None
    try:
        with (
            stdout_to_stderr(),
            listen_to_stages(watched.show_stage),
            cancellable(start(watched, person), how_to_resume=how_to_resume, on_signal=on_signal) as (loop, task),
        ):
            done = loop.run_until_complete(task)
    finally:
        with contextlib.suppress(OSError):
            view.close()
    return done if done is not None else watched.run
