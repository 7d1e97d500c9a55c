"""The command `plait replay`: check recorded runs against their record, or against an agent as it is now."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from plait.agent import Agent
from plait.cli import options
from plait.cli.agent_options import find_agent, make_recorded_agent
from plait.cli.commands import exit_with
from plait.cli.main import CRASHED
from plait.cli.output import as_json, clean_text, print_json, print_table
from plait.cli.resume import find_run_and_agent
from plait.core.errors import ConfigError, ReplayDiffers
from plait.core.text import clean, format_count, one_line, shorten
from plait.journal.store import Journal, list_descendants, wait_for
from plait.named_agents import anchor_agent
from plait.runtime.background import run_blocking

EPILOG = """\
\b
Examples:
  plait replay last
  plait replay -a support:agent --last 50
  plait replay -a support:agent --last 50 --instructions @shorter.txt
  plait replay -a support:agent --last 50 --status answered --run --grader contains

With --run the questions are asked again, and the new runs are compared with the recorded ones. Calls of tools with
effects are not made: they get the results that equal calls had in these runs. Later turns of conversations, runs with
files, and runs without an answer are left out. Exit codes: 0 nothing differs, or all new runs are right (with
--fail-if worse: not worse); 1 otherwise; 4 the budget or an endpoint ended it early; 2 wrong usage.
"""
TEXTS = ("prompts", "system", "instructions")
FILTERS = ("status", "grade", "rated", "session", "user", "tags", "since", "until", "min_cost", "max_cost")


@click.command(epilog=EPILOG)
@click.argument("run", required=False)
@options.flag("--tree", help="Replay the child runs of RUN as well.")
@options.named_agent
@click.option("--last", type=options.WHOLE, metavar="N", help="The N newest runs of the agent that match.")
@options.filters_of_agent
@options.flag("--run", "asks_again", help="Ask the questions again, and compare the new runs.")
@click.option("--grader", default="exact", metavar="WORD", help="With --run: compares answers with the recorded ones.")
@options.flag("--effects", help="With --run: make calls with effects.")
@options.repeat_finished
@options.jobs
@options.budget
@options.fail_if
@options.agent(only=("tools", "model", "make_deps", *TEXTS), recorded=True, compared=TEXTS)
@options.load_tools
@options.journal
@options.as_object
@options.no_progress
def replay(
    run: str | None,
    tree: bool,
    last: int | None,
    asks_again: bool,
    made_by: str | None,
    load_tools: bool,
    as_object: bool,
    **flags: Any,
) -> None:
    """Run the loop over the record of RUN and compare every request byte by byte. No request is sent.

    With -a the requests are those of that agent, of one run or the --last N. The first difference is shown.
    """
    from plait.cli.compare import exit_after, parse_texts, wait_for_comparison  # it loads the lab
    from plait.lab import report
    from plait.lab.regression import check_requests, find_runs, is_usable, run_again

    texts = parse_texts(**{name: flags.pop(name) for name in TEXTS})
    filters = {name: flags.pop(name) for name in FILTERS}
    wanted = {name: flags.pop(name) for name in ("grader", "effects", "again", "jobs", "budget", "quiet", "fail_if")}
    if texts is not None and len(texts) > 1 and not asks_again:
        raise ConfigError("Several texts can be compared only with --run.", hint="Give one, or add --run.")
    context = click.get_current_context()
    for option in context.command.params:
        if context.get_parameter_source(option.name or "") is not click.core.ParameterSource.COMMANDLINE:
            continue
        if option.name in wanted and option.name != "quiet" and not asks_again:
            raise ConfigError(f"{option.opts[0]} works only with --run.", hint="Add --run, or leave it out.")
        if option.name in (*FILTERS, "made_by") and last is None:
            hint = "Add -a AGENT --last N, or leave it out."
            raise ConfigError(f"{option.opts[0]} works only with --last.", hint=hint)
        if option.name == "tree" and (asks_again or last is not None):
            raise ConfigError("--tree works only with one RUN, and without --run.", hint="Leave it out.")
    changes: dict[str, Any] = next(iter((texts or {}).values()), {})
    if run is not None and last is None and not asks_again:
        row, store, agent = find_run_and_agent(run, flags, flags["journal"], load_tools, replay=True)
        _replay_run(agent.using(**changes), row.head.run, as_object=as_object)
        for child in wait_for(list_descendants(store.store, row.head.run)) if tree else ():
            agent = make_recorded_agent(child.head, {}, journal=store.place, replay=True)
            _replay_run(agent, child.head.run, as_object=as_object)
        return
    if not flags["agent"] or (run is None) == (last is None):
        hint = "Give RUN, or -a AGENT --last N; with --run -a AGENT, and RUN or --last N."
        raise ConfigError("It is not clear which runs to replay.", hint=hint)
    agent = find_agent(flags["agent"], flags)
    journal = Journal.at(agent.journal or None)
    names = [made_by] if made_by is not None else [flags["agent"], agent.name, anchor_agent(flags["agent"])]
    rows = find_runs(journal, names, last, **filters) if last is not None else [journal.run(run or "last")]
    if not rows:
        hint = "`plait runs` lists the runs, --made-by names another agent. In Python, an agent's runs have its name=."
        hint += options.describe_no_match(filters)
        raise ConfigError(f"The journal has no such run of {' or '.join(dict.fromkeys(names))}.", hint=hint)
    recent = find_runs(journal, [""], last, **filters) if last is not None and len(rows) < last else []
    if others := len({row.id for row in recent} - {row.id for row in rows}):
        click.echo(f"{others:,} of the newest {format_count(len(recent), 'run')} are of other agents.", err=True)
    if not asks_again:
        checks = run_blocking(check_requests(agent.using(**changes), rows))
        if as_object:
            print_json([msgspec.to_builtins(each) for each in checks])
        else:
            lines = []
            for each in checks:
                problem = clean(each.problem.partition("\n")[0].removeprefix("The run ").rstrip(":"))
                said = f"the same ({each.requests})" if each.same else problem
                lines.append([each.run, said, clean(one_line(each.question)[:60])])
            print_table(["run", "requests", "question"], lines)
            same = sum(each.same for each in checks)
            click.echo(f"{same:,} of {format_count(len(checks), 'run')} would send the same requests.", err=True)
        exit_with(0 if all(each.same for each in checks) else CRASHED)
    quiet, fail_if, name = wanted.pop("quiet"), wanted.pop("fail_if"), flags["agent"]
    comparison, changed = wait_for_comparison(
        lambda tell: run_again({name: agent}, rows, journal.store, tell=tell, texts=texts, **wanted), quiet=quiet
    )
    usable, asked = sum(map(is_usable, rows)), len(comparison.suite.tasks)
    bad = "rated bad, so the right answer is unknown. A function as --grader needs none"
    for count, why in ((len(rows) - usable, "files, a later turn, or no answer"), (usable - asked, bad)):
        if count:
            click.echo(f"{format_count(count, 'run')} left out: {why}.", err=True)
    if as_object:
        print_json({**report.as_object(comparison, cells=True), "changes": msgspec.to_builtins(changed)})
    else:
        click.echo(report.render_text(comparison, all_pairs=True))
        for change in changed:
            answers, calls = map(as_json, change.answers), (", ".join(some) or "none" for some in change.calls)
            for what, both, alike in (("answer", answers, change.same_answer), ("calls", calls, change.same_calls)):
                if not alike:
                    before, after = (clean(shorten(one_line(text), 200)[0]) for text in both)
                    run_ids = f"{change.run} -> {change.again} ({clean(change.variant)})"
                    click.echo(f"{run_ids}, {what}: {before} -> {after}")
    exit_after(comparison, fail_if or "wrong")


def _replay_run(agent: Agent, run: str, *, as_object: bool) -> None:
    """Replay a run and print the result. Exits at a difference."""
    try:
        same = agent.replay(run)
    except ReplayDiffers as why:
        if as_object:
            differs = {"step": why.at, "expected": why.expected, "found": why.found, "message": str(why)}
            print_json({"run": run, "same": False, "differs": differs}, indent=None)
        click.echo(clean_text(str(why)), err=True)
        exit_with(CRASHED)
    if as_object:
        result = {"same": True, "steps": same.steps, "requests": same.requests, "whole": same.whole}
        print_json({"run": same.run, **result}, indent=None)
        return
    compared = f"{format_count(same.requests, 'request')} in {format_count(same.steps, 'step')}"
    ended = "" if same.outcome is None else f", ended as {same.outcome.status}"
    rest = ended if same.whole else "; the record ends there"
    click.echo(f"Run {same.run} is the same, byte for byte: {compared}{rest}.")
