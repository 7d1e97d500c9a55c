"""The one chat of a phased run: each phase's prompt as the user's message, its model's reply as the assistant's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from msgspec import structs

from plait.core import (
    Attachment,
    Effects,
    Failed,
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
from plait.core.loop import HISTORY
from plait.core.text import shorten
from plait.loops.asking import BadReply, ask_for_answer
from plait.loops.compaction import Compaction, View
from plait.loops.escape import escape_history, escape_of, show_texts
from plait.loops.grounding import find_ungrounded, strike_values
from plait.loops.phased import action_list
from plait.loops.plan import Results
from plait.loops.references import RESULTS

FreshResults: TypeAlias = tuple[Sequence[Step], Results]
"""The actions that a prompt shows, and their results."""

CALL_CHARS = 300
"""Maximum number of characters of an action shown beside its result."""


@dataclass(frozen=True)
class PhasePrompt:
    """A phase's prompt: `render` takes how to show its results (`View.of_entry`), `files` are those of the results."""

    render: Callable[[View], str]
    files: tuple[Attachment, ...]

    def write(self, view: View) -> Message:
        """Return the prompt as the user's message."""
        return Message("user", self.render(view), attachments=view.show_attachments(self.files))


class PhasedChat:
    """The chat so far. `seen` are the texts of all results, `notes` their remarks. `max_tokens` limits a reply."""

    def __init__(self, task: Task, context: LoopContext, max_tokens: int | None = None) -> None:
        self.task, self.context, self._max_tokens = task, context, max_tokens
        # The first turn has the user's request and the plan.
        self._compaction = Compaction(context, task.question, self._describe, first=1)
        self._escape = escape_of(context, action_list.ACTIONS.escape)
        self._turns: list[dict[str, str]] = []
        self._values = {
            "question": self._escape.question(task.question),
            "history": escape_history(task, self._escape),
            "described": action_list.ACTIONS.describe(context.tools),
            "forms": action_list.forms(context.tools),
            "memory": HISTORY if context.tool(HISTORY) else "",
            "turns": (),
            "complaint": "",
            "reason": "",
        }
        earlier: list[Message] = []
        for turn in escape_history(task, self._escape):
            question = turn.question
            if turn.calls:  # below it, the results that answered it
                steps = [Step(str(n), call.tool, call.input) for n, call in enumerate(turn.calls, 1)]
                given = {step.id: Observation(call.result) for step, call in zip(steps, turn.calls, strict=True)}
                values = {**self._values, "results": self._show(steps, given, View(context.observation_chars))}
                question = f"{question}\n\n{context.prompt('results', **values).strip()}"
            earlier += (user(question), assistant(turn.answer))
        self._head = (system(context.rules("identity", results=(), **self._values)), *earlier)
        self._said: list[tuple[PhasePrompt, FreshResults, str]] = []
        self._fresh: FreshResults = ((), {})
        self.seen: list[str] = []
        self.notes: list[str] = []

    def prompt(self, name: str, **values: str) -> PhasePrompt:
        """Return a phase's prompt, which includes the new results if its template shows them."""
        fresh, filled = self._fresh, {**self._values, "turns": tuple(self._turns), **values}
        render = cache(lambda view: self.context.prompt(name, results=self._show(*fresh, view), **filled))
        return PhasePrompt(render, tuple(each for seen in fresh[1].values() for each in seen.attachments))

    def say(self, phase: str, name: str, **values: str) -> Effects[str]:
        """Return a phase's reply to the prompt `name`, after adding both to the chat."""
        prompt = self.prompt(name, **values)
        reply = yield from self._ask(phase, prompt, max_tokens=self._max_tokens, repair=any(values.values()))
        return (yield from self._add_reply(prompt, reply.text.strip()))

    def reply(self, name: str, **values: str) -> Effects[str | Failed]:
        """Return the reply to the user, in the output's form, after adding it and the prompt `name` to the chat."""
        asked, rules, concluding = self.prompt(name, **values), self.context.output_rules(), bool(values)
        prompt = PhasePrompt(cache(lambda view: join_parts(asked.render(view), rules)), asked.files)

        def ask(tail: tuple[Message, ...], **options: Any) -> Effects[Reply]:
            return self._ask("reply", prompt, lambda view: tail, concluding=concluding, **options)

        answer = yield from ask_for_answer(self.context, ask, concluding=concluding, max_tokens=self._max_tokens)
        return answer if isinstance(answer, Failed) else (yield from self._add_reply(prompt, answer))

    def ask_for_list(self, prompt: PhasePrompt, bad: BadReply | None, most: int, schema: Any) -> Effects[Reply]:
        """Return the list of actions that the model writes, up to the last complete entry. `bad`: a list to repair."""

        def ask_again(view: View) -> tuple[Message, ...]:
            return bad.ask_again(self.prompt("repair", complaint=bad.complaint).render(view)) if bad else ()

        reply = yield from self._ask(
            "react",
            prompt,
            ask_again,
            max_tokens=self._max_tokens or action_list.CHUNK,
            repair=bool(bad),
            resample=bool(bad and bad.resample),
            schema=schema,
            enough=lambda text: action_list.entries(text) >= most or is_going_round(text),
        )
        text = reply.text.strip()
        if reply.how_cut:
            yield from note("cut", f"the list of actions {reply.how_cut}: those that are complete count")
            text = action_list.whole(text)
        return structs.replace(reply, text=text)

    def _add_reply(self, prompt: PhasePrompt, text: str) -> Effects[str]:
        self.add(prompt, strike_values(text, (yield from find_ungrounded(text))))
        return text

    def add(self, prompt: PhasePrompt, text: str) -> None:
        """Add a prompt and its reply. The results in the prompt are not shown again."""
        self._said.append((prompt, self._fresh, text or "(no words)"))  # some endpoints refuse an empty message
        self._fresh = ((), {})

    def show_results(self, steps: Sequence[Step], results: Results) -> None:
        """Show these actions in the next prompt, with the results that exist then."""
        self._fresh = (steps, results)

    def _ask(
        self,
        phase: str,
        prompt: PhasePrompt,
        tail: Callable[[View], tuple[Message, ...]] = lambda view: (),
        *,
        concluding: bool = False,
        **options: Any,
    ) -> Effects[Reply]:
        """Make one model call with the chat and a prompt, which `tail` follows; show as much of the chat as fits."""

        def attempt(view: View) -> Effects[Reply]:
            said: list[Message] = []
            for i in view.find_shown(len(self._said)):
                earlier, _, text = self._said[i]
                said += (earlier.write(view.of_entry(i)), assistant(text))
            now = view.of_entry(len(self._said))
            said.append(prompt.write(now))
            if summary := view.show_summary(self.context):
                at = 2 * view.first
                said[at] = structs.replace(said[at], content=f"{self._escape(summary)}\n\n{said[at].content}")
            first, *others = said
            asked = self.task.ask(show_texts(first.content, self.task, self._escape), first.attachments)
            return think(phase, (*self._head, asked, *others, *tail(now)), **options)

        reply: Reply = yield from self._compaction.ask(attempt, self._said, concluding=concluding)
        self._turns.append({"phase": phase, "reply": self._escape.tokens(reply.text)})
        return reply

    def _describe(self, said: tuple[PhasePrompt, FreshResults, str]) -> str:
        """Return a turn of the chat as text: the results that its prompt showed, and the reply."""
        _, fresh, text = said
        results = self._show(*fresh, View(self.context.observation_chars))
        return "\n".join((*(f"{each['call']} {each['text']}" for each in results), text))

    def _show(self, steps: Sequence[Step], results: Results, view: View) -> list[dict[str, Any]]:
        """Return each action with its result, as the templates take them."""
        shown = []
        for step in steps:
            seen = results.get(step.id, Observation("It has not ended.", "cancelled"))
            call = shorten(action_list.call_words(step, RESULTS.fill_step(step, results)), CALL_CHARS)[0]
            name, sign, given = call.partition("(")  # the call is the loop's own text, and its arguments are data
            shown.append(
                {
                    "n": step.id,
                    "tool": self._escape(step.tool, inline=True),
                    "call": f"{self._escape(name, inline=True)}{sign}{self._escape(given, inline=True)}",
                    "why": self._escape(step.why, inline=True),
                    "text": self._escape(view.show_result(self.context, step.tool, seen.with_note)),
                    "ok": seen.ok,
                }
            )
        return shown
