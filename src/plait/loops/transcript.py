"""What a model is shown of a run: rules, question and log; of a text loop in one of three forms, of objects as chat.

`chat`: each turn an assistant's message and each observation a user's. `user`: one user message that carries the
earlier work below the question. `completion`: one raw prompt. The prompt only grows at its end from step to step,
so that a server's prefix cache keeps its work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from plait.core import Kit, Message, Observation, Task, Think, ToolSpec, assistant, system, user
from plait.core.labels import HOLE
from plait.core.text import shorten
from plait.loops.escape import Escape, begins_line, earlier, escape_of, without_tokens
from plait.loops.format import Format, Turn

TranscriptKind = Literal["chat", "user", "completion"]
ObjectLog: TypeAlias = tuple[tuple[Turn, Observation], ...]
"""The log of a loop whose turns are objects: each turn with what was observed after it."""


class Transcript:
    """One run's transcript. What stays the same from step to step is filled in once.

    `words` are the values that the loop's templates need beside the question and the log. `harmless`: the loop has
    escaped its observations itself.
    """

    def __init__(
        self, kind: TranscriptKind, format: Format, task: Task, kit: Kit, words: dict[str, Any], harmless: bool = False
    ) -> None:
        self._kind = kind
        self._format = format
        self._kit = kit
        self._escape = escape = escape_of(kit, format.disarm)
        self._harmless = harmless
        self._inline = not begins_line(format.observation(HOLE, 1))
        self._task = {"question": escape.question(task.question), "history": earlier(task, escape)}
        self._rules = kit.system if kit.system is not None else kit.prompt("system", **words)
        self._head = (system(self._rules), user(kit.prompt("question", **self._task))) if kind == "chat" else ()
        self._chat: dict[int, list[Message]] = {}
        self._text: dict[int, list[str]] = {}

    def think(self, phase: str, log: Scratchpad, chars: int, opening: str, tail: tuple[Message, ...] = ()) -> Think:
        """The think effect over the log, its messages or its raw prompt set. `tail` is said after the log;
        `opening` is where the model goes on, for the forms that end in the middle of a turn. Observations are
        shown with at most `chars` characters."""
        if self._kind == "chat":
            return Think(phase, (*self._head, *_with_word(self._messages(log, chars), self._after(log)), *tail))
        values = {**self._task, "log": self._raw(log, chars), "opening": "" if tail else opening}
        if self._kind == "user":
            return Think(phase, (system(self._rules), user(self._kit.prompt("earlier", **values)), *tail))
        text = self._kit.prompt("completion", system=self._rules, **values)
        if tail:
            text = "\n".join((text, *(message.content for message in tail), opening))
        return Think(phase, prompt=text)

    # A log only grows, so what was made of its first entries is kept: a step costs no more than what it adds.

    def _messages(self, log: Scratchpad, chars: int) -> list[Message]:
        done = self._chat.setdefault(chars, [])
        for i in range(len(done) // 2, len(log.entries)):
            turn, seen = log.entries[i]
            done += (assistant(turn), user(self._shown(seen, i + 1, chars)))
        return done

    def _raw(self, log: Scratchpad, chars: int) -> str:
        done = self._text.setdefault(chars, [])
        for i in range(len(done), len(log.entries)):
            turn, seen = log.entries[i]
            own = without_tokens(turn.rstrip(), self._kit.special_tokens)
            done.append(f"{own}\n{self._shown(seen, i + 1, chars).rstrip()}\n")
        after = self._after(log)
        return "".join(done) + (f"({after})\n" if after else "")

    def _after(self, log: Scratchpad) -> str:
        return log.after if self._harmless else self._escape(log.after, inline=True)

    def _shown(self, seen: str, n: int, chars: int) -> str:
        """An observation as it stands in a prompt: shortened, escaped, labelled."""
        text = shorten(seen, chars)[0]
        return self._format.observation(text if self._harmless else self._escape(text, inline=self._inline), n)


class ObjectChat:
    """One run as the model is shown it: the rules and the task, then each turn and its result as chat.

    What stays the same is filled in once, each result once for each size it is shown in.
    """

    def __init__(self, head: tuple[Message, ...], kit: Kit, escape: Escape, tools: tuple[ToolSpec, ...]) -> None:
        self.tools = tools
        self._head, self._kit, self._escape = head, kit, escape
        self._inline = not begins_line(kit.prompt("result", tool="", text=HOLE))
        self.ends = _beginning(kit.prompt("result", tool=HOLE, text=HOLE))
        """Where a model that does not end with its object goes on with a result of its own making."""
        self._done: dict[tuple[int, int], tuple[Message, Message]] = {}

    def messages(self, log: ObjectLog, chars: int, after: str = "") -> tuple[Message, ...]:
        """The chat so far, with at most `chars` characters of each result; `after` is said behind the last one."""
        for i in range(len(log)):
            if (i, chars) not in self._done:
                turn, seen = log[i]
                self._done[i, chars] = (assistant(turn.kept), user(self._result(turn, seen, chars)))
        said = [message for i in range(len(log)) for message in self._done[i, chars]]
        return (*self._head, *_with_word(said, self._escape(after, inline=True)))

    def _result(self, turn: Turn, seen: Observation, chars: int) -> str:
        tool = turn.call.tool if turn.call is not None else "final_answer"
        text = seen.text if not seen.note else f"{seen.text}\n({seen.note})"
        shown = self._escape(shorten(text, chars)[0], inline=self._inline)
        return self._kit.prompt("result", tool=self._escape(tool, inline=True), text=shown)


def _beginning(result: str) -> tuple[str, ...]:
    """How the text of a result begins on a line, up to its first value; none where that says too little."""
    head, hole, _ = result.lstrip().partition(HOLE)
    return (f"\n{head}",) if hole and sum(map(str.isalpha, head)) > 2 else ()


def _with_word(said: list[Message], word: str) -> list[Message]:
    """The messages with a word behind the last one."""
    return [*said[:-1], user(f"{said[-1].content.rstrip()}\n({word})")] if word else said


def with_repair(bad: str, request: str) -> tuple[Message, ...]:
    """A bad reply, if there is one, and what is asked of the model now."""
    return (assistant(bad), user(request)) if bad else (user(request),)


@dataclass(frozen=True)
class Scratchpad:
    """Thoughts, actions and observations so far. Growing one gives a new one; what was there stays as it was.

    Each entry is (the turn's text as the model wrote it, the observation whole). `after` is said behind the last one.
    """

    entries: tuple[tuple[str, str], ...] = ()
    after: str = ""

    def then(self, turn: Turn, observation: Observation) -> Scratchpad:
        """The log with one more turn and what came of it."""
        text = observation.text if not observation.note else f"{observation.text}\n({observation.note})"
        return Scratchpad((*self.entries, (turn.kept, text)))

    def once_more(self, words: str) -> Scratchpad:
        """The log without a turn that only repeated one, and a word about that behind what is last."""
        return Scratchpad(self.entries, words)

    @property
    def seen(self) -> tuple[str, ...]:
        """The observations."""
        return tuple(seen for _, seen in self.entries)

    @property
    def next(self) -> int:
        """The number of the turn that comes next, from 1."""
        return len(self.entries) + 1
