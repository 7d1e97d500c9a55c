"""The commands `plait worker`, `plait submit` and `plait queue`: runs that wait in a journal for any machine."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import click
from msgspec import to_builtins

from plait.cli import options
from plait.cli.agent_options import find_agent
from plait.cli.output import print_json, print_table
from plait.cli.serve import require_modules
from plait.config import load
from plait.core.errors import ConfigError
from plait.core.text import clean, format_count
from plait.journal.queue import QueueLimits, require_queue
from plait.journal.run_query import parse_age
from plait.journal.store import open_store, wait_for
from plait.recorded_runs import RecordedRuns, format_time
from plait.runtime import inbox

EPILOG = """\
\b
Examples:
  plait worker -a support:agent --concurrency 20
  plait worker                                  # the agents of plait.toml, [agents.NAME]
  plait submit -a support:agent "Refund order 12, it came broken."

Any number of workers, on any machines, may take runs from one queue. When one dies, others go on with its runs: no call
with effects is repeated. SIGTERM (or Ctrl-C) drains: it takes nothing new, and hands back what goes on as soon as the
calls that have begun are recorded.
"""
_queue = click.option("--queue", default="default", metavar="NAME", help="The queue (default: default).")


@click.command(epilog=EPILOG)
@options.named_agents
@_queue
@click.option("--concurrency", type=options.WHOLE, default=10, metavar="N", help="Runs at once (default 10).")
@click.option("--limit", type=options.WHOLE, metavar="N", help="Runs of the queue at once, on all workers.")
@click.option("--user-limit", type=options.WHOLE, metavar="N", help="Runs of one user at once, on all workers.")
@click.option("--metrics", metavar="HOST:PORT", help="Answer /metrics (for Prometheus) and /health there.")
@options.journal
def worker(
    words: tuple[str, ...],
    queue: str,
    concurrency: int,
    limit: int | None,
    user_limit: int | None,
    metrics: str | None,
    journal: str | None,
) -> None:
    """Take runs from a queue and perform them."""
    from plait.workers import QueueWorker

    config = load()
    found = [find_agent(word) for word in words or config.agents]
    agents = {agent.name: agent for agent in found}
    if len(agents) < len(found):
        raise ConfigError("Two agents have one name.", hint="Give each a name of its own: Agent(name=...).")
    place = options.journal_path(journal)
    agents = {name: agent if place is None else agent.using(journal=place) for name, agent in agents.items()}
    places = {str(agent._parts.require_store().place) for agent in agents.values()}
    if len(places) > 1:
        raise ConfigError(f"The agents have different journals: {', '.join(sorted(places))}.", hint="Give --journal.")
    store = require_queue(next(iter(agents.values()))._parts.require_store())  # QueueWorker says it if there are none
    made = QueueWorker(agents, store, queue, concurrency, QueueLimits(limit, user_limit))
    if metrics is not None:
        require_modules("--metrics", {"prometheus_client": "server"})
        from plait.server.metrics import serve_status

        serve_status(made, metrics)

    async def work() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, made.drain)
        named = clean(", ".join(agents))
        click.echo(f"Process {os.getpid()} takes runs of {named} from the queue {queue} in {store.place}.", err=True)
        await made.work()
        click.echo(f"Drained: {format_count(made.performed, 'run')} ended or were handed back.", err=True)

    asyncio.run(work())


@click.command()
@click.argument("question")
@options.named_agent
@_queue
@click.option("--priority", type=int, default=0, metavar="N", help="Those of higher priority begin first (default 0).")
@click.option("--delay", metavar="AGE", help="Begin after this time, such as 30m or 2d.")
@click.option("--every", metavar="CRON", help='Begin a run at each of these times, such as "0 8 * * 1".')
@click.option("--zone", default="UTC", metavar="ZONE", help="The time zone of --every (default UTC).")
@click.option("--session", metavar="NAME", help="The conversation of which it is a turn.")
@options.about_run
@options.journal
def submit(
    question: str,
    agent: str | None,
    queue: str,
    priority: int,
    delay: str | None,
    every: str | None,
    zone: str,
    session: str | None,
    journal: str | None,
    **about: Any,
) -> None:
    """Put a question in the queue, for a worker that has the agent. Prints the run's id, or the schedule's name."""
    if agent is None:
        raise ConfigError("Name the agent with -a.", hint="A worker finds it by its name.")
    found = find_agent(agent)
    if (place := options.journal_path(journal)) is not None:
        found = found.using(journal=place)
    at = None if delay is None else time.time() + parse_age(delay)
    said = options.read_annotations(about)
    more: dict[str, Any] = {"queue": queue, "priority": priority, "at": at, "every": every, "zone": zone, **said}
    click.echo(found.submit(question, session=session, **more))


@click.command()
@click.argument("run")
@click.option("--reason", default="Cancelled by the user.", metavar="TEXT", help="What the record says.")
@click.option("--call", metavar="KEY", help="Cancel only this call, such as 3.1: the run goes on.")
@options.journal
def cancel(run: str, reason: str, call: str | None, journal: str | None) -> None:
    """Cancel a run that waits, was interrupted or is in a queue. In PostgreSQL, also one that goes on anywhere."""
    store = open_store(options.journal_path(journal))
    row = wait_for(store.find_run(run))
    if call is not None:
        wait_for(inbox.send(store, row.head.run, inbox.Sent(call=call)))
        return
    RecordedRuns(store).cancel(row.head.run, reason)


@click.command()
@click.argument("run")
@click.argument("text")
@options.journal
def send(run: str, text: str, journal: str | None) -> None:
    """Send a message to a run that goes on, waits or is in a queue: it takes it before its next model call."""
    store = open_store(options.journal_path(journal))
    wait_for(inbox.send(store, wait_for(store.find_run(run)).head.run, inbox.Sent(text)))


@click.command()
@click.option("--queue", "name", metavar="NAME", help="Only this queue.")
@click.option("--retry", metavar="RUN", help="Let workers take this run again, of which the list says why not.")
@click.option("--unschedule", metavar="NAME", help="Begin no more runs of this schedule.")
@options.as_object
@options.journal
def queue(name: str | None, retry: str | None, unschedule: str | None, as_object: bool, journal: str | None) -> None:
    """List the runs that wait in a queue or go on, in their order, and why one is not taken."""
    store = require_queue(open_store(options.journal_path(journal)))
    if retry is not None:
        wait_for(store.unblock(retry))
    if unschedule is not None:
        wait_for(store.remove_schedule(unschedule))
    found, schedules = wait_for(store.list_queue(name)), wait_for(store.list_schedules())
    if as_object:
        print_json({"runs": to_builtins(found), "schedules": to_builtins(schedules)})
        return
    rows = [
        [each.run, each.queue, each.agent, each.status, str(each.priority), format_time(each.not_before), why]
        for each in found
        for why in [each.reason.partition("\n")[0]]
    ]
    print_table(["run", "queue", "agent", "status", "priority", "from", "why it is not taken"], rows)
    if schedules:
        times = [
            [each.name, each.agent, f"{each.every} {each.zone}", format_time(each.next), each.question]
            for each in schedules
        ]
        print_table(["schedule", "agent", "every", "next", "question"], times)
