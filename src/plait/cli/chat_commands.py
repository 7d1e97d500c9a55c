"""What a line that begins with a slash does in `plait chat`: it looks at the conversation, or changes what answers."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING

from plait.cli import chat_changes
from plait.cli.chat_changes import words_of
from plait.core.errors import PlaitError, UsageError

if TYPE_CHECKING:
    from plait.cli.chat import Talk

COMMANDS: dict[str, tuple[str, str]] = {
    "help": ("", "This list."),
    "show": ("[TURN]", "Tell the last turn, or the one of that number, step by step."),
    "cost": ("", "What the session took and cost, by phase."),
    "model": ("[[PHASE=]SPEC ...]", "The model of each phase; with a name, another one."),
    "strategy": ("[NAME [K=V ...]]", "The loops; with a name, another one."),
    "tools": ("[WORD | -WORD ...]", "The tools; add some, or take some away."),
    "sessions": ("", "The conversations there are, the newest first."),
    "session": ("NAME", "Go over to another conversation."),
    "new": ("[NAME]", "Begin a new conversation."),
    "quit": ("", "End the chat; so does Ctrl-D."),
}
ALSO = {"why": "show", "exit": "quit", "costs": "cost", "models": "model", "strategies": "strategy", "tool": "tools"}
SHOWN = {"show": ("why",), "quit": ("exit",)}
"""The other names that /help lists: those that are no misspelling."""
MANY = 20
"""Sessions that are listed."""


def is_command(line: str) -> bool:
    """It begins with one slash and is one line: what is pasted in several lines is never one."""
    return line.startswith("/") and not line.startswith("//") and "\n" not in line


class Commands:
    """The commands of one sitting."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk

    def do(self, line: str) -> None:
        """Do what the line says; whatever is wrong with it is told, and changes nothing."""
        word, _, rest = line[1:].partition(" ")
        name = ALSO.get(word, word)
        try:
            if name not in COMMANDS:
                raise UsageError(f"There is no command /{word}.", hint=_near(word))
            getattr(self, f"_{name}")(rest.strip())
        except PlaitError as why:
            self.talk.say(f"Error: {why}")

    def offered(self, words: list[str]) -> Iterable[str]:
        """What Tab may put for the last of these words."""
        if len(words) == 1:
            offered = [f"/{name} " if takes else f"/{name}" for name, (takes, _) in COMMANDS.items()]
            return offered if words[0].startswith("/") else []
        try:
            match words[0]:
                case "/session":
                    return [each.name for each in self.talk.journal.sessions(MANY)]
                case "/strategy":
                    from plait import loops

                    return loops.names()
                case "/tools" | "/tool":
                    from plait.tools import toolkit_names

                    held = [f"-{each}" for each in self.talk.agent.tools]
                    return [*toolkit_names(), *held]
        except PlaitError:
            pass
        return []

    # -- looking

    def _help(self, rest: str) -> None:
        from plait.cli.table import show_table

        rows = [
            (", ".join([f"/{name} {takes}".rstrip(), *(f"/{each}" for each in SHOWN.get(name, ()))]), what)
            for name, (takes, what) in COMMANDS.items()
        ]
        show_table(("command", "what it does"), rows, err=True)
        self.talk.say("What is changed holds from the next turn on. // sends a line that begins with a slash;")
        self.talk.say("a line that ends in a backslash goes on in the next. Ctrl-C cancels a turn.")

    def _show(self, rest: str) -> None:
        import sys

        from plait.cli.watch import watch_for
        from plait.runtime.retell import recorded_loop, retell

        turns = self.talk.journal.turns(self.talk.session)
        if not turns:
            raise UsageError(f"The session {self.talk.session} has no turn yet.", hint="Ask something first.")
        if rest and not (rest.isdecimal() and 1 <= int(rest) <= len(turns)):
            raise UsageError(f"There is no turn {rest}.", hint=f"There are turns 1 to {len(turns)}.")
        turn = turns[int(rest) - 1 if rest else -1]
        row = self.talk.journal.run(turn.run)
        self.talk.say(f"Turn {turn.number}: {turn.question}")
        watch = watch_for(sys.stderr)
        for event in retell(self.talk.journal.rows(turn.run), recorded_loop(row.head)):
            watch(event)
        watch.close()
        self.talk.say(f"{row.status} · run {turn.run}")

    def _cost(self, rest: str) -> None:
        from plait.cli.spent import phase_table
        from plait.cli.table import show_table
        from plait.cli.text import count, duration, money, tokens
        from plait.runtime.spending import in_all, merged, spending

        turns = self.talk.journal.turns(self.talk.session)
        spent = merged(part for turn in turns for part in spending(self.talk.journal.rows(turn.run)))
        whole = in_all(spent)
        told = [f"Session {self.talk.session}", count(len(turns), "turn"), count(whole.calls, "model call")]
        told += [tokens(whole.usage), duration(whole.seconds), money(whole.cost_usd)]
        self.talk.say(" · ".join(told))
        if spent:
            heads, lines = phase_table(spent)
            right = {i for i, (_, to_the_right) in enumerate(heads) if to_the_right}
            show_table([name for name, _ in heads], lines, right=right, err=True)

    def _sessions(self, rest: str) -> None:
        from plait.cli.record import at
        from plait.cli.table import show_table
        from plait.cli.text import clean

        found = self.talk.journal.sessions(MANY + 1)
        if not found:
            self.talk.say("There are no sessions yet.")
            return
        rows = [
            (
                "*" if each.name == self.talk.session else "",
                clean(each.name),
                str(each.turns),
                at(each.started)[:16].replace("T", " "),
                clean(each.question).replace("\n", " "),
            )
            for each in found[:MANY]
        ]
        show_table(("", "session", "turns", "last", "question"), rows, right={2}, err=True)
        if len(found) > MANY:
            self.talk.say("There are more. `plait runs --session NAME` lists the turns of one.")

    # -- going elsewhere

    def _session(self, rest: str) -> None:
        from plait.runtime.sessions import named

        if not rest:
            self.talk.say(f"This is the session {self.talk.session}. /sessions lists all; /session NAME goes to one.")
            return
        name = named(_one_word(rest))
        known = [each.name for each in self.talk.journal.sessions(1000)]
        near = difflib.get_close_matches(name, known, 1) if name not in known else []
        self.talk.go_to(name)
        if near:
            self.talk.say(f"It is new. Did you mean {near[0]}? /session {shlex.quote(near[0])} goes there.")

    def _new(self, rest: str) -> None:
        from plait.runtime.sessions import fresh_name, named

        name = named(_one_word(rest)) if rest else fresh_name()
        if rest and self.talk.journal.turns(name, limit=1):
            raise UsageError(f"There is a session {name} already.", hint=f"/session {shlex.quote(name)} goes there.")
        self.talk.go_to(name, fresh=not rest)

    def _quit(self, rest: str) -> None:
        self.talk.ended = True

    # -- changing

    def _model(self, rest: str) -> None:
        chat_changes.model(self.talk, rest)

    def _strategy(self, rest: str) -> None:
        chat_changes.strategy(self.talk, rest)

    def _tools(self, rest: str) -> None:
        chat_changes.tools(self.talk, rest)


def _one_word(rest: str) -> str:
    """A name, which may have blanks in it, with or without quotes."""
    words = words_of(rest)
    return words[0] if len(words) == 1 else rest


def _near(word: str) -> str:
    near = difflib.get_close_matches(word, [*COMMANDS, *ALSO], 1)
    first = f"Did you mean /{near[0]}? " if near else ""
    return f"{first}/help lists them; // sends a line that begins with a slash."
