"""The one chat of a phased run: each phase's prompt as the user's message, its model's reply as the assistant's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias

from plait.core import LoopContext, Message, Observation, Step, Task, assistant, system, user
from plait.core.text import shorten
from plait.loops.escape import Escape, escape_history, escape_of
from plait.loops.phased import action_list
from plait.loops.plan import Results
from plait.loops.references import RESULTS

Prompt: TypeAlias = Callable[[int], str]
"""A phase's prompt, given the maximum number of characters of each result."""

MEMORY = "chat_history"
"""The tool that searches a conversation; the prompt mentions it if it exists."""

CALL_CHARS = 300
"""Maximum number of characters of an action shown beside its result."""


class PhasedChat:
    """The chat so far. `fresh` are the actions of the last list with their results, until a prompt has shown them;
    `chars` is the largest number of characters of a result that the endpoint accepted."""

    def __init__(self, task: Task, context: LoopContext) -> None:
        self.task, self.context = task, context
        self.chars = context.observation_chars
        self.fresh: tuple[Sequence[Step], Results] | None = None
        self._head = [system(context.rules("identity"))]
        self.escape = escape = escape_of(context, action_list.disarm)
        for turn in escape_history(task, escape):
            self._head += [user(turn.question), assistant(turn.answer)]
        self._said: list[tuple[Prompt, str]] = []
        self._words = {
            "question": escape.question(task.question),
            "described": action_list.describe(context.tools),
            "forms": action_list.forms(context.tools),
            "memory": MEMORY if context.tool(MEMORY) else "",
        }
        self.seen: list[str] = []
        """Every result so far."""

    def prompt(self, name: str, **values: Any) -> Prompt:
        """Return a phase's prompt, which includes the fresh results if its template shows them."""
        context, fresh, words = self.context, self.fresh, self._words | values
        return cache(lambda chars: context.prompt(name, results=_shown(fresh, chars, self.escape), **words))

    def repair(self, complaint: str) -> str:
        """Return the request after an invalid list."""
        return self.context.prompt("repair", complaint=complaint, forms=self._words["forms"])

    def messages(self, chars: int) -> tuple[Message, ...]:
        """Return the chat, with at most `chars` characters of each result."""
        said = [message for prompt, text in self._said for message in (user(prompt(chars)), assistant(text))]
        return (*self._head, *said)

    def add(self, prompt: Prompt, text: str) -> None:
        """Add a prompt and its reply; the results in it are not shown again."""
        self._said.append((prompt, text or "(no words)"))  # some endpoints refuse an empty message
        self.fresh = None


def _shown(fresh: tuple[Sequence[Step], Results] | None, chars: int, escape: Escape) -> list[dict[str, Any]]:
    """Return each action with its result, as the results' template takes them."""
    steps, results = fresh or ((), {})
    shown = []
    for step in steps:
        seen = results.get(step.id, Observation("It has not ended.", "cancelled"))
        call = action_list.call_words(step, RESULTS.fill_step(step, results))
        shown.append(
            {
                "n": step.id,
                "call": escape(shorten(call, CALL_CHARS)[0], inline=True),
                "text": escape(shorten(seen.with_note, chars)[0]),
                "ok": seen.ok,
            }
        )
    return shown
