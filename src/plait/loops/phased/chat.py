"""The one chat of a phased run: each phase's prompt as the user's message, its model's reply as the assistant's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from plait.core import (
    Attachment,
    Effects,
    LoopContext,
    Message,
    Observation,
    Reply,
    Step,
    Task,
    assistant,
    is_going_round,
    join_parts,
    note,
    system,
    think,
    user,
)
from plait.core.text import shorten
from plait.loops.escape import escape_history, escape_of, show_texts
from plait.loops.grounding import find_ungrounded, strike_values
from plait.loops.phased import action_list
from plait.loops.plan import Results
from plait.loops.references import RESULTS
from plait.loops.transcript import with_repair
from plait.loops.turn import Bad, ask_for_answer, fit_prompt

MEMORY = "chat_history"
"""The tool that searches a conversation; the prompt mentions it if it exists."""

CALL_CHARS = 300
"""Maximum number of characters of an action shown beside its result."""


@dataclass(frozen=True)
class PhasePrompt:
    """A phase's prompt: `render` takes the maximum number of characters of each result, `files` are the images and PDF
    files of the results."""

    render: Callable[[int], str]
    files: tuple[Attachment, ...]

    def write(self, chars: int) -> Message:
        """Return the prompt as the user's message."""
        return Message("user", self.render(chars), attachments=self.files)


class PhasedChat:
    """The chat so far. `seen` are all results, as texts. `max_tokens` limits each reply (None: no limit)."""

    def __init__(self, task: Task, context: LoopContext, max_tokens: int | None = None) -> None:
        self.task, self.context, self._max_tokens = task, context, max_tokens
        self._chars = context.observation_chars
        self._escape = escape_of(context, action_list.disarm)
        self._turns: list[dict[str, str]] = []
        self._values = {
            "question": self._escape.question(task.question),
            "history": escape_history(task, self._escape),
            "described": action_list.describe(context.tools),
            "forms": action_list.forms(context.tools),
            "memory": MEMORY if context.tool(MEMORY) else "",
            "turns": (),
            "complaint": "",
            "reason": "",
        }
        earlier = [(user(turn.question), assistant(turn.answer)) for turn in escape_history(task, self._escape)]
        self._head = (system(context.rules("identity", results=(), **self._values)), *sum(earlier, ()))
        self._said: list[tuple[PhasePrompt, str]] = []
        self._fresh: tuple[Sequence[Step], Results] = ((), {})
        self.seen: list[str] = []

    def prompt(self, name: str, **values: str) -> PhasePrompt:
        """Return a phase's prompt, which includes the new results if its template shows them."""
        fresh, filled = self._fresh, {**self._values, "turns": tuple(self._turns), **values}
        render = cache(lambda chars: self.context.prompt(name, results=self._show(*fresh, chars), **filled))
        return PhasePrompt(render, tuple(each for seen in fresh[1].values() for each in seen.attachments))

    def say(self, phase: str, name: str, **values: str) -> Effects[str]:
        """Return a phase's reply to the prompt `name`, after adding both to the chat."""
        prompt = self.prompt(name, **values)
        reply = yield from self._ask(phase, prompt, max_tokens=self._max_tokens, repair=any(values.values()))
        return (yield from self._add_reply(prompt, reply.text.strip()))

    def reply(self, name: str, **values: str) -> Effects[str]:
        """Return the reply to the user, in the output's form, after adding it and the prompt `name` to the chat."""
        asked, rules = self.prompt(name, **values), self.context.output_rules()
        prompt = PhasePrompt(cache(lambda chars: join_parts(asked.render(chars), rules)), asked.files)
        options: dict[str, Any] = {"max_tokens": self._max_tokens}
        if self.context.output is not None:
            options["schema"] = self.context.output.reply_schema

        def ask(tail: tuple[Message, ...]) -> Effects[Reply]:
            return self._ask("reply", prompt, tail, repair=bool(tail or values), **options)

        return (yield from self._add_reply(prompt, (yield from ask_for_answer(ask))))

    def ask_for_list(self, prompt: PhasePrompt, bad: Bad | None, most: int, schema: Any) -> Effects[str]:
        """Return the list of actions that the model writes, up to its last complete entry. `bad` is a list to
        repair."""
        tail = with_repair(bad[0], self.prompt("repair", complaint=bad[1]).render(self._chars)) if bad else ()
        reply = yield from self._ask(
            "react",
            prompt,
            tail,
            max_tokens=self._max_tokens or action_list.CHUNK,
            repair=bool(bad),
            schema=schema,
            enough=lambda text: action_list.entries(text) >= most or is_going_round(text),
        )
        if not reply.how_cut:
            return reply.text.strip()
        yield from note("cut", f"the list of actions {reply.how_cut}: those that are complete count")
        return action_list.whole(reply.text.strip())

    def _add_reply(self, prompt: PhasePrompt, text: str) -> Effects[str]:
        self.add(prompt, strike_values(text, (yield from find_ungrounded(text))))
        return text

    def add(self, prompt: PhasePrompt, text: str) -> None:
        """Add a prompt and its reply. The results in the prompt are not shown again."""
        self._said.append((prompt, text or "(no words)"))  # some endpoints refuse an empty message
        self._fresh = ((), {})

    def show_results(self, steps: Sequence[Step], results: Results) -> None:
        """Show these actions in the next prompt, with the results that exist then."""
        self._fresh = (steps, results)

    def _ask(self, phase: str, prompt: PhasePrompt, tail: tuple[Message, ...] = (), **options: Any) -> Effects[Reply]:
        """Make one model call with the chat and a prompt; shorten results as far as necessary."""

        def attempt(chars: int) -> Effects[Reply]:
            said = [message for prompt, text in self._said for message in (prompt.write(chars), assistant(text))]
            first, *others = (*said, prompt.write(chars))
            asked = self.task.ask(show_texts(first.content, self.task, self._escape), first.attachments)
            return think(phase, (*self._head, asked, *others, *tail), **options)

        reply, self._chars = yield from fit_prompt(attempt, self._chars)
        self._turns.append({"phase": phase, "reply": self._escape.tokens(reply.text)})
        return reply  # type: ignore[no-any-return]

    def _show(self, steps: Sequence[Step], results: Results, chars: int) -> list[dict[str, Any]]:
        """Return each action with its result, as the templates take them."""
        shown = []
        for step in steps:
            seen = results.get(step.id, Observation("It has not ended.", "cancelled"))
            call = action_list.call_words(step, RESULTS.fill_step(step, results))
            shown.append(
                {
                    "n": step.id,
                    "tool": self._escape(step.tool, inline=True),
                    "call": self._escape(shorten(call, CALL_CHARS)[0], inline=True),
                    "why": self._escape(step.why, inline=True),
                    "text": self._escape(shorten(seen.with_note, chars)[0]),
                    "ok": seen.ok,
                }
            )
        return shown
