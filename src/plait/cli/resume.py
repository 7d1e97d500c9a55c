"""The commands `plait resume`, `plait fork` and `plait replay`: continue, branch or check a recorded run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click
import msgspec

from plait.agent import Agent
from plait.cli import options
from plait.cli.agent_options import find_agent, make_recorded_agent, parse_pairs
from plait.cli.ask_user import PlanPrompt
from plait.cli.output import clean_text
from plait.cli.plan_text import read_plan_file
from plait.cli.run import perform_and_exit
from plait.cli.run_output import how_to_answer
from plait.cli.runs import find_run
from plait.core import ToolSpec
from plait.core.errors import ConfigError, StaleAnswer
from plait.journal.records import RunRow
from plait.journal.store import Journal
from plait.loops.compiler.format import FORM
from plait.loops.format import Unreadable
from plait.loops.plan import Planner, list_callable
from plait.loops.plan_text import reads_as_plan, with_llm
from plait.runtime.planning.plans import plan_of
from plait.runtime.recorded_events import recorded_loop
from plait.user_files import read_text_or_file


@click.command()
@click.argument("run")
@click.option("--answer", metavar="TEXT", help="The answer to a question, or yes / no / a reason for an approval.")
@click.option("--question", metavar="ID", help="The question that is answered. A run that waits prints its id.")
@click.option("--plan", metavar="FILE", help="Answer with this plan, which then runs; - is stdin.")
@options.named_agent
@options.agent(only=("tools", "on_interrupted_call", "make_deps"), recorded=True)
@options.load_tools
@options.flag("--force", help="Take over a run that another machine began.")
@options.save_files
@options.journal
@options.as_object
@options.quiet
def resume(
    run: str,
    answer: str | None,
    question: str | None,
    plan: str | None,
    force: bool,
    load_tools: bool,
    folder: str | None,
    journal: str | None,
    as_object: bool,
    quiet: bool,
    **flags: Any,
) -> None:
    """Continue RUN (an id, the beginning of one, or `last`) that waits, was cancelled or was interrupted.

    Nothing that is recorded is done again. An answer names its question, so it never approves another call than the
    one that was shown. At a terminal you are asked and just answer. Output and exit codes are those of `plait run`.
    """
    words = options.journal_words(journal, flags["agent"])
    row, _, agent = find_run_and_agent(run, flags, journal, load_tools)
    if plan is not None:
        if answer is not None:
            raise ConfigError("--answer and --plan are both an answer.", hint="Give one of them.")
        outcome = row.outcome or {"kind": "plan", "reason": ""}
        if outcome.get("kind") != "plan":
            hint = f"`plait show {row.head.run}` shows it."
            raise ConfigError(f"Run {row.head.run} does not wait with a plan.", hint=hint)
        answer = read_plan_file(plan)
        tools = msgspec.convert(row.head.tools, tuple[ToolSpec, ...])
        if row.head.loop["name"] == "rewoo" or reads_as_plan(outcome["reason"]):
            loop = recorded_loop(row.head)
            plan_of(answer, list_callable(loop, tools) if isinstance(loop, Planner) else with_llm(tools))
        elif row.head.loop["name"] == "compiler":
            try:  # otherwise, text that is not a plan would be sent to the planner
                FORM.read(answer, tools=tools)
            except Unreadable as why:
                hint = f"`plait plan --of {row.head.run}` prints one in the right form."
                raise ConfigError(f"The plan cannot run. {why}", hint=hint) from why
    try:
        perform_and_exit(
            lambda on_event, on_wait: agent.aresume(
                row.head.run, answer, question=question, on_event=on_event, force=force, on_wait=on_wait
            ),
            as_object=as_object,
            quiet=quiet,
            words=words,
            plans=PlanPrompt(agent, row.head.question, row.head.run),
            files_to=folder,
        )
    except StaleAnswer as why:
        asked = [line for each in why.waits for line in (each.reason, *how_to_answer(why.run, each, words))]
        message = f"{why.message} Plait did nothing with the answer." + (" The run waits with:\n" if asked else "")
        hint = "\n".join(map(clean_text, asked))
        raise StaleAnswer(message, run=why.run, waits=why.waits, hint=hint) from None


def find_run_and_agent(
    run: str, flags: Mapping[str, Any], journal: str | None, load_tools: bool, *, replay: bool = False
) -> tuple[RunRow, Journal, Agent]:
    """Return a recorded run, its journal, and the agent that goes on with it. Raises `ConfigError`. Without
    `--journal`, the journal is that of the agent that `-a` names."""
    if journal is None and flags["agent"]:
        own = find_agent(flags["agent"]).journal
        if own is False:
            raise ConfigError(f"The agent {flags['agent']} keeps no journal.", hint="Give --journal FILE.")
        journal = str(own) if own is not None else None
    row, store = find_run(run, journal)
    return row, store, make_recorded_agent(row.head, flags, journal=journal, load_tools=load_tools, replay=replay)


@click.command()
@click.argument("run")
@click.option("--at", type=options.WHOLE, metavar="N", required=True, help="The first step that runs again.")
@click.option("--question", metavar="TEXT|@FILE", help="Another question than that of RUN.")
@click.option(
    "--result",
    "results",
    metavar="CALL=TEXT|@FILE",
    multiple=True,
    help="Another result of a call in a step that is kept, by the call's key, such as 1.0. A wrong key lists all.",
)
@options.named_agent
@options.agent(recorded=True)
@options.about_run
@options.load_tools
@options.journal
@options.as_object
@options.quiet
def fork(
    run: str,
    at: int,
    question: str | None,
    results: Sequence[str],
    load_tools: bool,
    journal: str | None,
    as_object: bool,
    quiet: bool,
    **flags: Any,
) -> None:
    """Start a new run that keeps the steps of RUN before step N and runs the rest again.

    Options replace the settings of RUN. Output and exit codes are those of `plait run`.
    """
    about = options.read_annotations(flags)
    pairs = parse_pairs(results, "--result", "1.0=42")
    asked = None if question is None else read_text_or_file(question)
    changes: dict[str, Any] = {"question": asked, "results": {key: read_text_or_file(pairs[key]) for key in pairs}}
    words = options.journal_words(journal, flags["agent"])
    row, _, agent = find_run_and_agent(run, flags, journal, load_tools)
    perform_and_exit(
        lambda on_event, on_wait: agent.afork(row.head.run, at, on_event=on_event, on_wait=on_wait, **changes, **about),
        as_object=as_object,
        quiet=quiet,
        words=words,
    )
