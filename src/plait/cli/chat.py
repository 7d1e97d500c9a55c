"""`plait chat`: a conversation, a turn a line."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from plait.cli import options

if TYPE_CHECKING:
    from plait.agent import Agent
    from plait.cli.watch import Watch
    from plait.journal.store import Journal
    from plait.runtime.run import Run

EPILOG = """\
\b
Examples:
  plait chat --tools calculator
  plait chat --session trip --model reply=openai:gpt-5
  plait chat --session trip --watch < questions.txt

Replies go to stdout, all else to stderr. At a terminal a line that begins with a slash is a command: /help lists
them. Ctrl-C cancels a turn, Ctrl-D ends the chat. Exit codes: 0, 1 when a turn crashed, 2 for wrong usage. What flags
leave open is found as for `plait run`, but the loop is phased.
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
    from plait.cli.chat_commands import Commands, is_command
    from plait.cli.chat_lines import Lines
    from plait.cli.group import CANCELLED, CRASHED, leave
    from plait.cli.settings import agent_for
    from plait.runtime.sessions import fresh_name, named

    agent = agent_for(usual="phased", no_journal=False, **flags)
    name = fresh_name() if session is None else named(session)
    talk = Talk(agent, name, flags["journal"], watch, fresh=session is None)
    commands = Commands(talk)
    talk.lines = lines = Lines(talk.begin(), commands.offered, lambda: talk.over)
    talk.heed_sigterm()
    for line in lines:
        # What comes through a pipe is content: it may not load tools or change what answers.
        if lines.here and is_command(line):
            try:
                commands.do(line)
            except KeyboardInterrupt:
                talk.say("Cancelled.")
        else:
            talk.turn(line[1:] if lines.here and line.startswith("//") else line)
        if talk.over or talk.ended:
            break
    talk.part()
    if talk.over or talk.crashed:
        leave(CANCELLED if talk.over else CRASHED)


class Talk:
    """One sitting at the command line: who answers, and in which session."""

    def __init__(self, agent: Agent, session: str, journal: str | None, watch: bool, *, fresh: bool) -> None:
        import shlex

        from plait.journal.store import Journal

        assert agent.journal is not False
        self.agent, self.session, self.watched, self.fresh = agent, session, watch, fresh
        self.journal: Journal = Journal(agent.journal)
        self.again = ("--journal", shlex.quote(journal)) if journal else ()
        self.lines: Any = None
        self.turns = 0
        self.crashed = False
        self.over = False
        """A signal came that ends the chat itself, not only a turn."""
        self.ended = False
        """The person asked for the end."""

    def begin(self) -> list[str]:
        """Say, at a terminal, where one is; returns what was asked in this session before."""
        from plait.cli.text import count

        before = [turn.question for turn in self.journal.turns(self.session)]
        if sys.stdin.isatty():
            so_far = f", {count(len(before), 'turn')} so far" if before else ""
            self.say(f"Session {self.session}{so_far}. /help tells what can be done here, Ctrl-D ends it.")
        return before

    def go_to(self, session: str, *, fresh: bool = False) -> None:
        """Go on in another session from the next turn."""
        from plait.cli.text import count

        self.session, self.fresh, self.turns = session, fresh, 0
        before = [turn.question for turn in self.journal.turns(session)]
        self.lines.recall(before)
        self.say(f"Session {session}, {count(len(before), 'turn') + ' so far' if before else 'new'}.")

    def changed(self, **changes: Any) -> Agent:
        """The agent with some fields changed, for `agent` once it is looked at. Raises `UsageError`."""
        if self.agent.results is not None:  # the loop was chosen by a comparison: what is named now is not
            changes = {"results": None, "demand": None, **changes}
        return self.agent.using(**changes)

    def turn(self, question: str) -> None:
        """One turn: the reply on stdout; whatever keeps it from being given is told, and the chat goes on."""
        from plait.cli.approval import Desk
        from plait.cli.aside import stdout_aside
        from plait.cli.going import go
        from plait.cli.person import person_here
        from plait.core.errors import PlaitError, UsageError

        show = self.view()
        desk = Desk(self.agent, question)
        person = person_here(show.close, as_object=False, desk=desk)
        self.turns += 1
        try:
            with stdout_aside():
                run = go(
                    lambda emit: self.agent.arun(question, session=self.session, emit=desk.seeing(emit), person=person),
                    show,
                    self.told,
                )
        except PlaitError as why:
            if isinstance(why, UsageError) and not sys.stdin.isatty():
                raise  # wrong for this turn, and so for every other; a person can set it right
            self.crashed = self.crashed or not isinstance(why, UsageError)
            self.say(f"Error: {why}")
        else:
            self.tell(run, show)
        finally:
            show.close()

    def tell(self, run: Run | None, show: Watch) -> None:
        """A turn's end."""
        from plait.cli.ending import answer, hints, summary

        if run is None:
            self.say("Cancelled.")
            return
        self.crashed = self.crashed or run.status == "crashed"
        if self.watched or run.status != "answered":
            for line in (summary(run), *hints(run, self.again)):
                self.say(line)
        elif (folded := getattr(show, "folded", None)) is not None:
            self.say(folded(run), dim=True)
        answer(run)

    def part(self) -> None:
        """Say how to go on with a session that was given no name."""
        if self.fresh and self.turns:
            self.say(" ".join(("Go on with: plait chat --session", self.session, *self.again)))

    def heed_sigterm(self) -> None:
        """SIGTERM ends the chat, also where Ctrl-C would only drop a line."""

        def end(*_: object) -> None:
            self.over = True
            raise KeyboardInterrupt

        if signal.getsignal(signal.SIGTERM) != signal.SIG_IGN:
            signal.signal(signal.SIGTERM, end)

    def told(self, number: int) -> None:
        """A signal came while a turn went on: Ctrl-C ends the turn, any other the chat as well."""
        self.over = self.over or number != signal.SIGINT

    def view(self) -> Watch:
        """Who sees the turn's events."""
        from plait.cli.watch import watch_for

        if self.watched or not sys.stderr.isatty():
            return watch_for(sys.stderr, quiet=not self.watched)
        from plait.cli.chat_view import Folded

        return Folded(sys.stderr)

    def say(self, text: str, *, dim: bool = False) -> None:
        """A line on stderr."""
        from plait.cli.text import one_line

        with suppress(OSError, ValueError):  # stderr is closed, or its reader has gone
            click.echo(click.style(one_line(text), dim=True) if dim else one_line(text), err=True)
