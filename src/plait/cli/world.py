"""`plait world`: tasks in an offline world, what was sent in them, and how well they were done."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from plait.cli import options

if TYPE_CHECKING:
    from plait.journal.records import Row
    from plait.world import World, WorldGrade, WorldTask


@click.group(short_help="Tasks in an offline world, graded by what was sent.")
def world() -> None:
    """An offline world: stand-ins of weather, messages, pictures and share prices, and tasks in it."""


@world.command("tasks")
@click.option("--all", "all_of_them", is_flag=True, help="The variations as well.")
@options.as_object
def tasks(all_of_them: bool, as_object: bool) -> None:
    """List the tasks."""
    import msgspec

    from plait.cli.text import as_json
    from plait.world.tasks import TASKS
    from plait.world.variations import VARIATIONS

    listed = (*TASKS, *VARIATIONS) if all_of_them else TASKS
    if as_object:
        click.echo(as_json(msgspec.to_builtins(listed), indent=1))
        return
    for task in listed:
        click.echo(f"{task.name:<3} {task.question}")


@world.command("run", short_help="Run a task in a fresh world and print its grade.")
@click.argument("task", metavar="TASK")
@click.option("--seed", type=options.Number(whole=True), metavar="N", help="Another world (default 0).")
@click.option("--now", metavar="DATE", help="The world's clock (default: this machine's).")
@click.option("--here", metavar="TOWN", help="Where the user is (default Ghent).")
@options.agent
@options.journal
@options.config
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

    The run is on the record: `plait world show` tells again what was sent. Exit codes are those of `plait run`.
    """
    import shlex

    from plait.cli.aside import stdout_aside
    from plait.cli.ending import CODES, hints, summary
    from plait.cli.going import go
    from plait.cli.group import CANCELLED, leave
    from plait.cli.settings import agent_for
    from plait.cli.watch import watch_for
    from plait.world import world_of
    from plait.world.tasks import task_of

    chosen = task_of(task)
    word = _word(chosen, seed, now, here)
    agent = agent_for(tools=(word, *tools), no_journal=False, approve=None, no_ask=True, **flags)
    agent = agent.using(now=world_of(word).now.timestamp())
    watch = watch_for(sys.stderr, quiet=quiet)
    try:
        with stdout_aside():
            done = go(lambda emit: agent.arun(chosen.question, emit=emit), watch)
    finally:
        with suppress(OSError):
            watch.close()
    if done is None:
        click.echo("Cancelled before the run began.", err=True)
        leave(CANCELLED)
    if not quiet or done.status != "answered":
        journal = flags.get("journal")
        again = ("--journal", shlex.quote(journal)) if journal else ()
        for line in (summary(done), *hints(done, again)):
            click.echo(line, err=True)
    state, grade = _again(word, done.record, done.answer, done.loop, chosen)
    _tell(state, grade, chosen, done.run, done.status, done.answer, as_object=as_object)
    leave(CODES[done.status])


@world.command("show", short_help="Show what was sent in a run.")
@click.argument("run", metavar="RUN")
@click.option("--task", metavar="TASK", help="Grade it as this task (default: the task whose question it was).")
@options.journal
@options.config
@options.as_object
def show(run: str, task: str | None, journal: str | None, as_object: bool) -> None:
    """Show what was sent in RUN (an id, the beginning of one, or `last`), and its grade."""
    from plait.cli.record import found
    from plait.core.errors import UsageError
    from plait.runtime.retell import recorded_loop
    from plait.world.tasks import TASKS, task_of
    from plait.world.variations import VARIATIONS

    row, kept = found(run, journal)
    word = next((each for each in row.head.sources if each.partition(":")[0] == "world"), None)
    if word is None:
        raise UsageError(f"Run {row.head.run} was not in a world.", hint="Run it with --tools world.")
    asked = next((each for each in (*TASKS, *VARIATIONS) if each.question == row.head.question), None)
    chosen = task_of(task) if task else asked
    answer = (row.outcome or {}).get("answer")
    state, grade = _again(word, kept.rows(row.head.run), answer, recorded_loop(row.head), chosen)
    _tell(state, grade, chosen, row.head.run, row.status, answer, as_object=as_object)


def _word(task: WorldTask, seed: int | None, now: str | None, here: str | None) -> str:
    """The word of a task's world, changed by what the flags say."""
    from datetime import UTC, datetime

    from plait.world import World, world_of

    world = world_of(task.world)
    clock = world_of(f"world:now={now}").now if now else world.now
    if not now and task.world == "world":
        clock = datetime.now(UTC).replace(second=0, microsecond=0)
    return World(
        world.seed if seed is None else seed, now=clock, here=here if here is not None else world.home.label
    ).word


def _again(
    word: str, rows: Sequence[Row], answer: Any, loop: Any, task: WorldTask | None
) -> tuple[World, WorldGrade | None]:
    """The world as a recorded run left it, and the grade where the task is known."""
    from plait.journal.records import RanRecord
    from plait.runtime.retell import retell
    from plait.world import world_of
    from plait.world.again import replayed, told_of

    events = retell(rows, loop)
    state = replayed(world_of(word), events)
    if task is None:
        return state, None
    clock = next((row.record.now for row in rows if isinstance(row.record, RanRecord) and row.record.now), None)
    return state, task.grade(state, told_of(answer, events, clock=clock))


def _tell(
    state: World,
    grade: WorldGrade | None,
    task: WorldTask | None,
    run: str,
    status: str,
    answer: Any,
    *,
    as_object: bool,
) -> None:
    from plait.cli.text import as_json, clean, one_line

    if as_object:
        told = {
            "run": run,
            "status": status,
            "world": state.word,
            "task": task.name if task else None,
            "grade": grade.mark if grade else None,
            "why": list(grade.why) if grade else [],
            "answer": answer,
            "sent": [sent.json() for sent in state.sent],
        }
        click.echo(as_json(told, indent=1))
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
        click.echo(f"Answer: {one_line(answer if isinstance(answer, str) else as_json(answer))}")
    if task is not None and grade is not None:
        click.echo(f"{task.name}: {one_line(str(grade))}")
