"""`plait run`: answer a question."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NoReturn

import click

from plait.cli import options

if TYPE_CHECKING:
    from plait.cli.approval import Desk

EPILOG = """\
\b
Examples:
  plait run "What is 17% of 2,340?" --tools calculator
  plait run "How many more people live in Lyon than in Nice?" \\
      --tools lookup:cities.json --tools calculator --model local
  plait run "..." --strategy json --model openai:gpt-5 --max-cost 0.05 --json
  plait run - --set transcript=user --set dialect=lines < question.txt

The answer goes to stdout, all else to stderr. Exit codes: 0 answered, 3 failed, 4 stopped by a limit,
5 waiting for a person, 130 cancelled, 1 crashed, 2 wrong usage. Flags win over the environment (PLAIT_MODEL,
PLAIT_STRATEGY, PLAIT_JOURNAL), the environment over plait.toml.
"""


@click.command(epilog=EPILOG, short_help="Answer a question.")
@click.argument("question")
@options.agent
@options.approve
@options.plan
@options.evidence
@options.no_ask
@options.session
@options.embedder
@options.journal
@click.option("--no-journal", is_flag=True, help="Keep no record.")
@options.config
@options.as_object
@options.quiet
def run(
    question: str,
    session: str | None,
    plan: str | None,
    evidence: str | None,
    as_object: bool,
    quiet: bool,
    **flags: Any,
) -> None:
    """Answer QUESTION with a loop, a model and tools; `-` reads it from stdin.

    While it runs, thoughts, actions and observations are shown on stderr.
    """
    from plait.cli.approval import Desk
    from plait.cli.settings import agent_for
    from plait.core.errors import UsageError

    if question == "-" and plan == "-":
        raise UsageError("The question and the plan can't both come from stdin.", hint="Give one of them as it is.")
    if question == "-":
        question = sys.stdin.read().strip("\n")
    if not question.strip():
        raise UsageError("The question is empty.", hint="Say what is to be done.")
    if session is not None and flags["no_journal"]:
        raise UsageError("A session is kept in the journal.", hint="Leave out --no-journal, or --session.")
    if plan is not None or evidence is not None:
        from plait.cli.plan import carrying_out

        agent = carrying_out(plan, evidence, **flags)
    else:
        agent = agent_for(**flags)
    kept = agent.journal is not False
    desk = Desk(agent, question)
    perform(
        lambda emit, person: agent.arun(question, session=session, emit=desk.seeing(emit), person=person),
        as_object=as_object,
        quiet=quiet,
        journal=flags["journal"],
        kept=kept,
        desk=desk,
    )


def perform(
    begin: Callable[[Any, Any], Coroutine[Any, Any, Any]],
    *,
    as_object: bool,
    quiet: bool,
    journal: str | None,
    kept: bool = True,
    desk: Desk | None = None,
) -> NoReturn:
    """Perform a run, watched, and leave with its code. `begin` is given who is told and who may be asked.

    `desk` is where plans are shown that need a person's leave.
    """
    import shlex

    from plait.cli.aside import stdout_aside
    from plait.cli.ending import tell
    from plait.cli.going import go
    from plait.cli.person import person_here
    from plait.cli.watch import watch_for

    watch = watch_for(sys.stderr, quiet=quiet)
    person = person_here(watch.close, as_object=as_object, desk=desk)
    try:
        with stdout_aside():
            done = go(lambda emit: begin(emit, person), watch)
    finally:
        with contextlib.suppress(OSError):
            watch.close()
    again = ("--journal", shlex.quote(journal)) if journal else ()
    tell(done, as_object=as_object, quiet=quiet, again=again, kept=kept, page=desk.page if desk is not None else None)
