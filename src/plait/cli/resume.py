"""`plait resume`: go on with a run."""

from __future__ import annotations

from typing import Any

import click

from plait.cli import options


@click.command(short_help="Go on with a run.")
@click.argument("run")
@click.option("--answer", metavar="TEXT", help="What the person says: to a question, or yes / no / why not.")
@click.option("--question", metavar="ID", help="The question that is answered. A run that waits prints its id.")
@click.option("--plan", "plan", metavar="FILE", help="The answer is this plan, to carry out; - is stdin.")
@click.option(
    "--in-doubt",
    type=click.Choice(["skip", "repeat"]),
    help="A call that may have happened: leave it, or make it again (default as the run began).",
)
@options.tools
@options.load_tools
@click.option("--force", is_flag=True, help="Take over a run that another machine began.")
@options.journal
@options.config
@options.as_object
@options.quiet
def resume(
    run: str,
    answer: str | None,
    question: str | None,
    plan: str | None,
    in_doubt: str | None,
    tools: tuple[str, ...],
    load_tools: bool,
    force: bool,
    journal: str | None,
    as_object: bool,
    quiet: bool,
) -> None:
    """Go on with RUN (an id, the beginning of one, or `last`) that waits, was cancelled or was interrupted.

    Nothing that is on record is done again. An answer names its question: so it never approves another call than the
    one that was shown. At a terminal you are asked, and just answer. Output and exit codes are those of `plait run`.
    """
    import shlex

    from plait.cli.approval import Desk
    from plait.cli.ending import how_to_answer
    from plait.cli.record import found
    from plait.cli.run import perform
    from plait.cli.settings import agent_again
    from plait.cli.text import one_line
    from plait.core.errors import StaleAnswer

    row, _ = found(run, journal)
    if plan is not None:
        answer = _plan(row, plan, answer)
    changes: dict[str, Any] = {"in_doubt": in_doubt} if in_doubt else {}
    agent = agent_again(row.head, journal=journal, tools=tools, load_tools=load_tools, **changes)
    desk = Desk(agent, row.head.question, row.head.run)
    try:
        perform(
            lambda emit, person: agent.aresume(
                row.head.run, answer, question=question, emit=emit, force=force, person=person
            ),
            as_object=as_object,
            quiet=quiet,
            journal=journal,
            desk=desk,
        )
    except StaleAnswer as why:
        again = ("--journal", shlex.quote(journal)) if journal else ()
        asked = [line for each in why.waits for line in (each.reason, *how_to_answer(why.run, each, again))]
        message = f"{why.message} Nothing was done with the answer."
        message += " It waits with:\n" if asked else ""
        raise StaleAnswer(message, run=why.run, waits=why.waits, hint="\n".join(map(one_line, asked))) from None


def _plan(row: Any, name: str, answer: str | None) -> str:
    """The plan in a file, as the answer of a run that waits with one. Raises `UsageError`."""
    import msgspec

    from plait.cli.foresight import plan_file
    from plait.core import ToolSpec
    from plait.core.errors import UsageError
    from plait.loops.compiler.loop import FORM
    from plait.loops.format import Unreadable
    from plait.loops.rewoo.plan_text import reads_as_plan
    from plait.runtime.plans import plan_of

    if answer is not None:
        raise UsageError("--answer and --plan are both an answer.", hint="Give one of them.")
    if row.outcome is not None and row.outcome.get("kind") != "plan":
        raise UsageError(
            f"Run {row.head.run} does not wait with a plan.", hint=f"`plait show {row.head.run}` tells of it."
        )
    text = plan_file(name)
    tools = msgspec.convert(row.head.tools, tuple[ToolSpec, ...])
    waits_with = row.outcome["reason"] if row.outcome is not None else ""
    if row.head.strategy["name"] == "rewoo" or reads_as_plan(waits_with):
        plan_of(text, tools)
    elif row.head.strategy["name"] == "compiler":
        # What is no plan would be taken for words, and told to the planner.
        try:
            FORM.read(text, tools)
        except Unreadable as why:
            raise UsageError(
                f"The plan can't be carried out. {why}", hint=f"`plait plan --of {row.head.run}` prints its form."
            ) from why
    return text
