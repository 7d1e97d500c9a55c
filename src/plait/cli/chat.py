"""The command `plait chat`: a conversation, one line per turn."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import click

from plait.agent import Agent
from plait.cli import options
from plait.cli.agent_options import find_only_agent, make_agent
from plait.cli.ask_user import PlanPrompt
from plait.cli.chat_commands import ChatCommands
from plait.cli.commands import exit_with
from plait.cli.main import CANCELLED, CRASHED
from plait.cli.output import clean_text
from plait.cli.run import perform_run
from plait.cli.run_output import answering, next_steps, print_answer, save_run_files, summarize_run, view_for
from plait.core import File
from plait.core.errors import ConfigError, PlaitError
from plait.core.text import format_count
from plait.journal.store import Journal
from plait.runtime.agents.annotations import RunAnnotations
from plait.runtime.conversations.attachments import UserQuestion
from plait.runtime.conversations.sessions import check_session_name, fresh_name
from plait.runtime.run import Run

EPILOG = """\
\b
Examples:
  plait chat --tools calculator
  plait chat --session trip --loop phased --model reply=openai:gpt-5
  plait chat --session trip --watch < questions.txt

Replies go to stdout, everything else to stderr. At a terminal, a line that begins with a slash is a command: /help
lists them. Ctrl-C cancels a turn, Ctrl-D ends the chat. Exit codes: 0, 1 if a turn crashed, 2 wrong usage. Options
that are not given are found as for `plait run`.
"""


@click.command(epilog=EPILOG)
@options.session
@options.named_agent
@options.about_run
@options.agent()
@options.journal
@options.save_files
@options.flag("--watch", "-v", help="Show thoughts, actions and observations on stderr.")
def chat(session: str | None, folder: str | None, watch: bool, **flags: Any) -> None:
    """Talk with a loop, a model and tools: each line is a question, and its reply is printed.

    Every turn is a recorded run. Each turn sees the last turns and can search all of them. Give a session's name to
    continue it at any time.
    """
    about = options.read_annotations(flags)
    flags["agent"] = find_only_agent(flags)
    agent = make_agent(flags)
    name = fresh_name() if session is None else check_session_name(session)
    agent._parts.check_prices()
    talk = Chat(
        agent, name, options.journal_words(flags["journal"], flags["agent"]), watch=watch, unnamed=session is None
    )
    talk.about, talk.folder = about, folder
    commands = ChatCommands(talk)
    talk.lines = LineReader(talk.start(), commands.completions, lambda: talk.interrupted)

    def end(*_: object) -> None:
        talk.interrupted = True
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGTERM) != signal.SIG_IGN:
        signal.signal(signal.SIGTERM, end)  # it ends the chat, even where Ctrl-C would only drop a line
    for line in talk.lines:
        # A pipe brings content, which must not load tools or change the agent. A pasted text of several lines is none.
        if talk.lines.at_terminal and line.startswith("/") and not line.startswith("//") and "\n" not in line:
            try:
                commands.run(line)
            except KeyboardInterrupt:
                talk.say("Cancelled.")
        else:
            talk.take_turn(line[1:] if talk.lines.at_terminal and line.startswith("//") else line)
        if talk.interrupted or talk.ended:
            break
    if talk.unnamed and talk.turns:
        talk.say(" ".join(("To continue, run: plait chat --session", talk.session, *talk.journal_words)))
    if talk.interrupted or talk.crashed:
        exit_with(CANCELLED if talk.interrupted else CRASHED)


class Chat:
    """One chat: the agent that answers, the session, and how the chat ends."""

    def __init__(
        self, agent: Agent, session: str, journal_words: tuple[str, ...], *, watch: bool, unnamed: bool
    ) -> None:
        assert agent.journal is not False
        self.agent, self.session, self.watch, self.unnamed = agent, session, watch, unnamed
        self.journal = Journal(agent.journal)
        self.journal_words = journal_words
        self.lines: LineReader
        self.turns = 0
        self.about: RunAnnotations = {}
        """What the user says of each run."""
        self.folder: str | None = None  # where the files that tools return are saved
        self.files: tuple[File, ...] = ()
        """The files of the next question."""
        self.crashed = False
        self.interrupted = False
        """A signal ended the chat itself, not only a turn."""
        self.ended = False
        """The user ended the chat."""

    def start(self) -> list[str]:
        """Greet the user at a terminal; return the earlier questions of the session."""
        before = [turn.question for turn in self.journal.turns(self.session)]
        if sys.stdin.isatty():
            so_far = f", {format_count(len(before), 'turn')} so far" if before else ""
            self.say(f"Session {self.session}{so_far}. /help lists the commands, Ctrl-D ends the chat.")
        return before

    def switch_session(self, session: str, *, unnamed: bool = False) -> None:
        """Continue in another session from the next turn."""
        self.session, self.unnamed, self.turns = session, unnamed, 0
        before = [turn.question for turn in self.journal.turns(session)]
        self.lines.set_history(before)
        self.say(f"Session {session}, {format_count(len(before), 'turn') + ' so far' if before else 'new'}.")

    def take_turn(self, question: str) -> None:
        """Answer one question: the reply goes to stdout. Errors are printed, and the chat continues."""
        summarize: Callable[[Run], str] | None = None
        if self.watch or not sys.stderr.isatty():
            view = view_for(sys.stderr, quiet=not self.watch)
        else:
            from plait.cli.drawing import OneLineView

            view = OneLineView(sys.stderr)
            summarize = view.summary
        view = answering(view)
        self.turns += 1
        asked: UserQuestion = [question, *self.files]
        self.files = ()

        def note_signal(number: int) -> None:  # Ctrl-C ends the turn, any other signal also ends the chat
            self.interrupted = self.interrupted or number != signal.SIGINT

        try:
            run = perform_run(
                lambda on_event, on_wait: self.agent.arun(
                    asked, session=self.session, on_event=on_event, on_wait=on_wait, **self.about
                ),
                view,
                plans=PlanPrompt(self.agent, question),
                on_signal=note_signal,
            )
            if run is None:
                self.say("Cancelled.")
                return
            self.crashed = self.crashed or run.status == "crashed"
            if self.watch or run.status != "answered":
                for line in (summarize_run(run), *next_steps(run, self.journal_words)):
                    self.say(line)
            elif summarize is not None:
                self.say(summarize(run), dim=True)
            print_answer(run, view=view)
            if self.folder is not None:
                save_run_files(run.files, self.folder)
        except PlaitError as why:
            if isinstance(why, ConfigError) and not sys.stdin.isatty():
                raise  # wrong for every turn; only the user can correct it
            self.crashed = self.crashed or not isinstance(why, ConfigError)
            self.say(f"Error: {why}")

    def say(self, text: str, *, dim: bool = False) -> None:
        with suppress(OSError, ValueError):  # stderr is closed, or its reader has gone
            click.echo(click.style(clean_text(text), dim=True) if dim else clean_text(text), err=True)


class LineReader:
    """Read lines until stdin ends. At a terminal, Ctrl-C drops the current line.

    At a terminal, a backslash at the end of a line continues it, and a pasted text of several lines counts as one line.
    The arrow keys recall `history`. Tab offers what `complete` returns for the words so far. `is_over` says whether an
    interrupt was meant to end everything.
    """

    def __init__(
        self, history: Iterable[str], complete: Callable[[list[str]], Iterable[str]], is_over: Callable[[], bool]
    ) -> None:
        self.at_terminal = sys.stdin.isatty()
        self._editable = self.at_terminal and sys.stdout.isatty()
        self._is_over = is_over
        if hasattr(sys.stdin, "reconfigure"):
            sys.stdin.reconfigure(errors="replace")
        if self._editable:
            import readline

            if os.environ.get("TERM", "dumb") != "dumb":
                # Python switches this off. Without it, each line of a pasted text would be a separate turn.
                readline.parse_and_bind("set enable-bracketed-paste on")
            offered: list[str] = []

            def offer(text: str, state: int) -> str | None:
                if state == 0:
                    words = readline.get_line_buffer()[: readline.get_endidx()].split(" ")
                    offered[:] = [each for each in complete(words) if each.startswith(text)]
                return offered[state] if state < len(offered) else None

            readline.set_completer_delims(" ")
            readline.set_completer(offer)
            readline.parse_and_bind("tab: complete")
        self.set_history(history)

    def set_history(self, lines: Iterable[str]) -> None:
        """Replace the lines that the arrow keys recall."""
        if self._editable:
            import readline

            readline.clear_history()
            for line in lines:
                readline.add_history(line)

    def __iter__(self) -> Iterator[str]:
        while True:
            try:
                text = self._read_text()
            except EOFError:
                click.echo(err=True)
                return
            except KeyboardInterrupt:
                if not self.at_terminal:
                    raise
                click.echo(err=True)
                if self._is_over():
                    return
                continue
            if text is None:
                return
            if text.strip():
                yield text.strip()

    def _read_text(self) -> str | None:
        """Read a line with its continuations; None at the end of a pipe."""
        line = self._read_line("> ")
        parts = []
        while self.at_terminal and line is not None and line.rstrip("\n").endswith("\\"):
            parts.append(line.rstrip("\n")[:-1])
            line = self._read_line(". ")
        return None if line is None and not parts else "\n".join([*parts, line or ""])

    def _read_line(self, prompt: str) -> str | None:
        if self._editable:
            return input(prompt)
        if self.at_terminal:
            click.echo(prompt, nl=False, err=True)
        return sys.stdin.readline() or None
