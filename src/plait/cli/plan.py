"""The command `plait plan`: it writes, draws and prices a plan before anything runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from plait.cli import options
from plait.cli.agent_options import make_recorded_agent
from plait.cli.commands import exit_with
from plait.cli.output import check_writable, print_json
from plait.cli.plan_text import (
    FORMS,
    make_agent_with_plan,
    make_planner,
    price_lines,
    read_recorded_plan,
    render_plan,
    stdout_is_ascii,
)
from plait.cli.run import perform_run
from plait.cli.run_output import CODES, exit_with_run, summarize_run, view_for
from plait.core import Plan
from plait.core.errors import ConfigError, PlaitError
from plait.loops.plan import Planner
from plait.runtime.planning.plan_estimate import Expected
from plait.runtime.planning.plans import Planned
from plait.runtime.recorded_events import recorded_loop
from plait.runtime.run import Run
from plait.user_files import refuse_journal

EPILOG = """\
\b
Examples:
  plait plan "How many more people live in Lyon than in Nice?" \\
      --tools lookup:cities.json --tools calculator > plan.txt
  plait plan "..." --tools calculator -o plan.svg
  plait run "..." --tools calculator --plan plan.txt
  plait plan --of last --format json > found.json

The plan goes to stdout, everything else to stderr. Exit codes are those of `plait run`: 3 if no plan could be made.
"""


@click.command(epilog=EPILOG)
@click.argument("question", required=False)
@click.option("--of", metavar="RUN", help="The plan of a recorded run, with the evidence it found.")
@click.option("--plan", "file", metavar="FILE", help="Check, draw and price this plan; no model is asked.")
@options.evidence
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "mermaid", "svg"]),
    help="How the plan is printed (default: as FILE's name ends, otherwise text).",
)
@click.option("-o", "--output", metavar="FILE", help="Write the plan to this file instead.")
@options.named_agent
@options.agent(without=("approve", "can_ask"))
@options.journal
@options.as_object
@options.quiet
def plan(
    question: str | None,
    of: str | None,
    file: str | None,
    evidence: str | None,
    form: str | None,
    output: str | None,
    as_object: bool,
    quiet: bool,
    **flags: Any,
) -> None:
    """Write a plan for QUESTION and run nothing; `-` reads the question from stdin.

    The plan is printed with its expected model calls, tokens and USD. Edit the text or JSON, and run it with
    `plait run --plan`.
    """
    ending = Path(output).suffix.lower() if output is not None else ""
    form = form or next((each for each, endings in FORMS.items() if ending in endings), "" if ending else "text")
    if not form:
        known = ", ".join(each for endings in FORMS.values() for each in endings)
        raise ConfigError(f"A plan has no form '{ending}' ({output}).", hint=f"There are {known}; or give --format.")
    path = check_writable(output) if output is not None else None
    made: Plan | None
    expected: Expected | None
    run: Run | None = None
    if of is not None:
        if question is not None or file is not None or evidence is not None:
            raise click.UsageError("--of stands alone: its run has the question and the evidence.")
        made, row, timeline = read_recorded_plan(of, flags["journal"])
        expected = None
        if isinstance(recorded_loop(row.head), Planner):
            try:
                given = {name: flags[name] for name in ("agent", "model", "tools")}
                agent = make_recorded_agent(row.head, given, journal=flags["journal"])
                expected = agent.estimate(row.head.question, made, timeline)
            except PlaitError as why:
                if not quiet:
                    click.echo(f"The expected cost is not known: {why}", err=True)
    else:
        if question == "-" and file == "-":
            raise click.UsageError("The question and the plan can't both come from stdin.")
        text = sys.stdin.read().strip("\n") if question == "-" else question or ""
        if not text.strip():
            raise click.UsageError("The question is missing: say what to do, or give --of RUN.")
        flags["approve"] = "never"
        if file is None and evidence is None:
            planner = make_planner(flags)
            view = view_for(sys.stderr, quiet=quiet)
            done = perform_run(lambda on_event, _: planner.aplan(text, on_event=on_event), view, may_ask=False)
            if not isinstance(done, Planned):
                words = options.journal_words(flags["journal"], flags["agent"])
                exit_with_run(done, as_object=as_object, quiet=quiet, journal=words)
            made, expected, run = done.plan, done.expected, done.run
        else:
            agent = make_agent_with_plan(file, evidence, flags)
            made = agent.loop.plan  # type: ignore[union-attr]
            expected = agent.estimate(text, made)
    if not quiet or made is None:
        lines = [summarize_run(run)] if run is not None else []
        for line in [*lines, *(price_lines(expected) if expected is not None else [])]:
            click.echo(line, err=True)
    drawn = render_plan(made, form, ascii=path is None and stdout_is_ascii()) + "\n" if made is not None else ""
    if path is not None and drawn:
        try:
            refuse_journal(path)
            path.write_text(drawn, encoding="utf-8", errors="backslashreplace")
        except OSError as why:  # the plan may have cost money, so say where it is stored
            hint = f"The plan is recorded: plait plan --of {run.id}" if run is not None else ""
            raise PlaitError(f"{path} can't be written: {why.strerror}.", hint=hint) from why
    if as_object:
        about = {"run": run.id, "status": run.status, "reason": run.reason} if run is not None else {}
        priced = expected.json() if expected is not None else None
        print_json({**about, "plan": msgspec.to_builtins(made), "expected": priced}, indent=None)
    elif path is None and drawn:
        click.echo(drawn, nl=False)
    exit_with(CODES[run.status] if run is not None else 0)
