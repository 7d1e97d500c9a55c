"""The command `plait world`: tasks in an offline world, what was sent in them, and their grade."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from plait.cli import options
from plait.cli.agent_options import make_agent
from plait.cli.commands import exit_with
from plait.cli.main import CANCELLED
from plait.cli.output import as_json, clean_text, print_json
from plait.cli.run import perform_run
from plait.cli.run_output import CODES, next_steps, summarize_run, view_for
from plait.cli.runs import find_run
from plait.core.errors import ConfigError
from plait.core.text import clean
from plait.journal.records import RunRow
from plait.journal.store import Journal
from plait.lab.world import World, WorldTask, world_of
from plait.lab.world.again import collect_evidence, replay_events
from plait.lab.world.tasks import TASKS, VARIATIONS, task_of
from plait.runtime.recorded_events import make_events, recorded_loop


@click.group()
def world() -> None:
    """Tasks in an offline world with simulated weather, messages, pictures and share prices."""


@world.command("tasks")
@options.flag("--all", "show_all", help="Include the variations.")
@options.as_object
def tasks(show_all: bool, as_object: bool) -> None:
    """List the tasks."""

    listed = (*TASKS, *VARIATIONS) if show_all else TASKS
    if as_object:
        print_json(msgspec.to_builtins(listed))
        return
    for task in listed:
        click.echo(f"{task.name:<3} {task.question}")


@world.command("run", short_help="Run a task in a fresh world and print its grade.")
@click.argument("task", metavar="TASK")
@click.option("--seed", type=options.NumberType(whole=True), metavar="N", help="Another world (default 0).")
@click.option("--now", metavar="DATE", help="The world's clock (default: this machine's).")
@click.option("--here", metavar="TOWN", help="Where the user is (default Ghent).")
@options.agent(without=("approve", "can_ask"))
@options.journal
@options.as_object
@options.quiet
def run(
    task: str,
    seed: int | None,
    now: str | None,
    here: str | None,
    as_object: bool,
    quiet: bool,
    tools: tuple[str, ...],
    **flags: Any,
) -> None:
    """Run TASK (A to F, or a variation such as C3) in a fresh world and print what was sent and the grade.

    The run is recorded: `plait world show` shows again what was sent. Exit codes are those of `plait run`.
    """
    chosen = task_of(task)
    usual = world_of(chosen.world)
    clock = world_of(f"world:now={now}").now if now else usual.now
    if not now and chosen.world == "world":
        clock = datetime.now(UTC).replace(second=0, microsecond=0)
    place = here if here is not None else usual.home.label
    there = World(usual.seed if seed is None else seed, now=clock, here=place)
    agent = make_agent({**flags, "tools": (there.word, *tools), "no_ask": True})
    view = view_for(sys.stderr, quiet=quiet)
    done = perform_run(
        lambda on_event, _: agent.arun(chosen.question, on_event=on_event, now=there.now.timestamp()),
        view,
        may_ask=False,
    )
    if done is None:
        click.echo("Cancelled before the run began.", err=True)
        exit_with(CANCELLED)
    if not quiet or done.status != "answered":
        for line in (summarize_run(done), *next_steps(done, options.journal_words(flags["journal"]))):
            click.echo(line, err=True)
    _print_graded(*find_run(done.id, flags["journal"]), chosen, as_object=as_object)
    exit_with(CODES[done.status])


@world.command("show", short_help="Show what was sent in a run.")
@click.argument("run", metavar="RUN")
@click.option("--task", metavar="TASK", help="Grade it as this task (default: the task with its question).")
@options.journal
@options.as_object
def show(run: str, task: str | None, journal: str | None, as_object: bool) -> None:
    """Show what was sent in RUN (an id, the beginning of one, or `last`), and its grade."""
    row, store = find_run(run, journal)
    asked = next((each for each in (*TASKS, *VARIATIONS) if each.question == row.head.question), None)
    _print_graded(row, store, task_of(task) if task else asked, as_object=as_object)


def _print_graded(row: RunRow, store: Journal, task: WorldTask | None, *, as_object: bool) -> None:
    """Print what a recorded run sent in its world, and its grade if the task is known."""
    head, answer = row.head, (row.outcome or {}).get("answer")
    word = next((each for each in head.sources if each.partition(":")[0] == "world"), None)
    if word is None:
        raise ConfigError(f"Run {head.run} was not in a world.", hint="Run it with --tools world.")
    timeline = store.timeline(head.run, bodies=False)
    events = make_events(timeline, recorded_loop(head))
    state = replay_events(world_of(word), events)
    grade = None
    if task is not None:
        grade = task.grade(state, collect_evidence(answer, events, clock=timeline.code_clock))
    if as_object:
        print_json(
            {
                "run": head.run,
                "status": row.status,
                "world": state.word,
                "task": task.name if task else None,
                "grade": grade.mark if grade else None,
                "why": list(grade.why) if grade else [],
                "answer": answer,
                "sent": [sent.json() for sent in state.sent],
            }
        )
        return
    names = {number: f"Slack #{name}" for name, number in state.channels.items()}
    for sent in state.sent:
        image = f"  with {sent.image.about()}" if sent.image is not None else ""
        click.echo(f"{sent.number}. {names.get(sent.channel, 'Discord')}{image}")
        for line in clean(sent.text).splitlines():
            click.echo(f"   {line}")
    if not state.sent:
        click.echo("Nothing was sent.")
    if answer is not None:
        click.echo(f"Answer: {clean_text(answer if isinstance(answer, str) else as_json(answer))}")
    if task is not None and grade is not None:
        click.echo(f"{task.name}: {clean_text(str(grade))}")
