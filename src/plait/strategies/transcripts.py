"""What a model is shown of a text loop: rules, question and log, in one of three forms.

`chat`: each turn an assistant's message and each observation a user's. `user`: one user message that carries the
earlier work below the question. `completion`: one raw prompt. The prompt only grows at its end from step to step,
so that a server's prefix cache keeps its work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from plait.core import Kit, Message, Task, Think, assistant, system, user
from plait.formats import Format, shorten
from plait.strategies.scratchpad import Scratchpad

TranscriptKind = Literal["chat", "user", "completion"]


class Transcript:
    """One run's transcript. What stays the same from step to step is filled in once.

    `words` are the values that the loop's templates need beside the question and the log.
    """

    def __init__(self, kind: TranscriptKind, format: Format, task: Task, kit: Kit, words: dict[str, Any]) -> None:
        self._kind = kind
        self._format = format
        self._kit = kit
        self._question = task.question
        self._rules = kit.system if kit.system is not None else kit.prompt("system", **words)
        self._head = (
            (system(self._rules), user(kit.prompt("question", question=task.question))) if kind == "chat" else ()
        )
        self._show: dict[int, Callable[[str, int], str]] = {}

    def think(self, phase: str, log: Scratchpad, chars: int, opening: str, tail: tuple[Message, ...] = ()) -> Think:
        """The think effect over the log, its messages or its raw prompt set. `tail` is said after the log;
        `opening` is where the model goes on, for the forms that end in the middle of a turn."""
        show = self._show.setdefault(chars, _shown(self._format, chars))
        if self._kind == "chat":
            return Think(phase, (*self._head, *log.messages(show), *tail))
        values = {"question": self._question, "log": log.text(show), "opening": "" if tail else opening}
        if self._kind == "user":
            return Think(phase, (system(self._rules), user(self._kit.prompt("earlier", **values)), *tail))
        text = self._kit.prompt("completion", system=self._rules, **values)
        if tail:
            text = "\n".join((text, *(message.content for message in tail), opening))
        return Think(phase, prompt=text)


def with_repair(bad: str, request: str) -> tuple[Message, ...]:
    """A bad reply, if there is one, and what is asked of the model now."""
    return (assistant(bad), user(request)) if bad else (user(request),)


def _shown(format: Format, chars: int) -> Callable[[str, int], str]:
    """How an observation stands in a prompt: shortened to `chars`, escaped, labelled. Done once for each."""
    done: dict[tuple[str, int], str] = {}

    def show(text: str, n: int) -> str:
        if (text, n) not in done:
            done[text, n] = format.observation(format.escape(shorten(text, chars)[0]), n)
        return done[text, n]

    return show
