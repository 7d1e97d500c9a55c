"""`plait chat`: a conversation, a turn a line."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from plait.cli import options

if TYPE_CHECKING:
    from plait.agent import Agent
    from plait.cli.watch import Watch
    from plait.runtime.run import Run

EPILOG = """\
\b
Examples:
  plait chat --tools calculator
  plait chat --session trip --model reply=openai:gpt-5
  plait chat --session trip --watch < questions.txt

Replies go to stdout, all else to stderr. Ctrl-C cancels a turn, Ctrl-D ends the chat. Exit codes: 0, 1 when a
turn crashed, 2 for wrong usage. What flags leave open is found as for `plait run`, but the loop is phased.
"""


@click.command(epilog=EPILOG, short_help="Talk, turn by turn.")
@options.session
@options.embedder
@options.agent
@options.approve
@options.no_ask
@options.journal
@options.config
@click.option("--watch", "-v", is_flag=True, help="Show thoughts, actions and observations on stderr.")
def chat(session: str | None, watch: bool, **flags: Any) -> None:
    """Talk with a loop, a model and tools: each line read is a question, and its reply is printed.

    Every turn is a run on record. Each is shown the last turns and may search them all; a session can be gone on
    with at any time, by its name.
    """
    from plait.cli.group import CANCELLED, CRASHED, leave
    from plait.cli.settings import agent_for
    from plait.runtime.sessions import fresh_name, named

    agent = agent_for(usual="phased", no_journal=False, **flags)
    name = fresh_name() if session is None else named(session)
    talk = Talk(agent, name, flags["journal"], watch)
    for question in questions(talk.begin()):
        talk.turn(question)
        if talk.over:
            break
    talk.part(new=session is None)
    if talk.over or talk.crashed:
        leave(CANCELLED if talk.over else CRASHED)


class Talk:
    """One sitting of a session at the command line."""

    def __init__(self, agent: Agent, session: str, journal: str | None, watch: bool) -> None:
        import shlex

        self.agent, self.session, self.watched = agent, session, watch
        self.again = ("--journal", shlex.quote(journal)) if journal else ()
        self.turns = 0
        self.crashed = False
        self.over = False
        """A signal came that ends the chat itself, not only a turn."""

    def begin(self) -> list[str]:
        """Say, at a terminal, where one is; returns what was asked in this session before."""
        from plait.cli.text import count
        from plait.journal.store import Journal

        assert self.agent.journal is not False
        before = [turn.question for turn in Journal(self.agent.journal).turns(self.session)]
        if sys.stdin.isatty():
            so_far = f", {count(len(before), 'turn')} so far" if before else ""
            self.say(f"Session {self.session}{so_far}. Ctrl-D ends it.")
        return before

    def turn(self, question: str) -> None:
        """One turn: the reply on stdout; whatever keeps it from being given is told, and the chat goes on."""
        from plait.cli.aside import stdout_aside
        from plait.cli.going import go
        from plait.cli.person import person_here
        from plait.core.errors import PlaitError, UsageError

        show = self.view()
        person = person_here(show.close, as_object=False)
        self.turns += 1
        try:
            with stdout_aside():
                run = go(
                    lambda emit: self.agent.arun(question, session=self.session, emit=emit, person=person),
                    show,
                    self.told,
                )
        except UsageError:
            raise  # wrong for this turn, and so for every other
        except PlaitError as why:
            self.crashed = True
            self.say(f"Error: {why}")
        else:
            self.tell(run)
        finally:
            show.close()

    def tell(self, run: Run | None) -> None:
        """A turn's end."""
        from plait.cli.ending import answer, hints, summary

        if run is None:
            self.say("Cancelled.")
            return
        self.crashed = self.crashed or run.status == "crashed"
        if self.watched or run.status != "answered":
            for line in (summary(run), *hints(run, self.again)):
                self.say(line)
        answer(run)

    def part(self, *, new: bool) -> None:
        """Say how to go on with a session that was given no name."""
        if new and self.turns:
            self.say(" ".join(("Go on with: plait chat --session", self.session, *self.again)))

    def told(self, number: int) -> None:
        """A signal came while a turn went on: Ctrl-C ends the turn, any other the chat as well."""
        self.over = self.over or number != signal.SIGINT

    def view(self) -> Watch:
        """Who sees the turn's events."""
        from plait.cli.watch import watch_for

        if self.watched or not sys.stderr.isatty():
            return watch_for(sys.stderr, quiet=not self.watched)
        from plait.cli.draw import Busy

        return Busy(sys.stderr)

    def say(self, text: str) -> None:
        """A line on stderr."""
        from plait.cli.text import one_line

        with suppress(OSError, ValueError):  # stderr is closed, or its reader has gone
            click.echo(one_line(text), err=True)


def questions(before: Iterable[str]) -> Iterator[str]:
    """Lines from stdin that say something, till its end. At a terminal they can be edited, and `before` be called
    up again; Ctrl-C drops the line."""
    here = sys.stdin.isatty()
    edited = here and sys.stdout.isatty()
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(errors="replace")
    if edited:
        import readline

        for line in before:
            readline.add_history(line)
    while True:
        try:
            if edited:
                line = input("> ")
            else:
                if here:
                    click.echo("> ", nl=False, err=True)
                line = sys.stdin.readline()
                if not line:
                    return
        except EOFError:
            click.echo(err=True)
            return
        except KeyboardInterrupt:
            if not here:
                raise
            click.echo(err=True)
            continue
        if line.strip():
            yield line.strip()
