"""Asks the model of one run for its turns: the first one, the next one, and the answer when a limit is near."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from plait.core import (
    Effects,
    Failed,
    LimitNear,
    LoopContext,
    Message,
    Outcome,
    Reply,
    Stopped,
    Task,
    note,
    think,
    user,
)
from plait.loops.asking import BadReply, ask_until_read, is_typed_answer, needs_no_rest, plain_answer, read_reply
from plait.loops.codeact.execution import SEARCH
from plait.loops.codeact.format import FORMAT, code_call
from plait.loops.codeact.hints import NAMES
from plait.loops.codeact.labels import LABEL, label_at
from plait.loops.codeact.reader import MOST_STEPS, steps_of
from plait.loops.codeact.signature import python_function
from plait.loops.compaction import Compaction, View
from plait.loops.format import Turn, Unreadable
from plait.loops.transcript import Scratchpad, Transcript

if TYPE_CHECKING:
    from plait.loops.codeact.loop import CodeAct

_ENDS = ("\nTHOUGHT", "\nACTION", "\nOBSERVATION")
"""The beginnings of lines at which an answer in words ends."""


class CodeTurns:
    """The model calls of one run. `view` says which part of the log a prompt shows."""

    def __init__(self, loop: CodeAct, task: Task, context: LoopContext) -> None:
        self._loop, self._task, self._kit = loop, task, context
        shown = tuple(tool for tool in context.tools if tool.name != context.search)
        words = {
            "described": FORMAT.describe(shown),
            "functions": tuple(map(python_function, shown)),
            "search": context.search,
            "imports": loop.imports,
            "names": ", ".join(NAMES),
            "location": context.tool("get_user_location") is not None,
        }
        self._page = Transcript(
            loop.transcript,
            FORMAT,
            task,
            context,
            words,
            harmless=True,
            answer_place="the argument of stop, as a Python value",
        )

    def first(self, log: Scratchpad, view: View) -> Effects[Turn]:
        """Make the first turn on the model's behalf: its steps, and a search for the first of them."""
        opening = self._kit.prompt("steps")
        stop = ("\nACTION", "\nOBSERVATION", f"\n{MOST_STEPS + 1}.")
        reply = yield from self._think("decompose", log, view, opening, stop=stop)
        steps = steps_of(reply.text)
        if not steps:
            steps = (" ".join(self._task.question.split()),)
            yield from note("unreadable", "The reply names no steps: the task itself is taken for the only one.")
        search = code_call(f"{SEARCH}({json.dumps(steps[0], ensure_ascii=False)})")
        turn = Turn(self._kit.prompt("first", steps=steps, reply=reply.text).strip(), search)
        return Turn(turn.thought, turn.call, kept=FORMAT.write(turn, 1))

    def next(self, log: Scratchpad, resample: bool, failed: bool, view: View) -> Effects[Turn | Failed]:
        """Ask for the next turn; `failed`: the last action failed."""
        opening = self._kit.prompt("opening", n=log.next, failed=failed)
        stop = FORMAT.stop(log.next) if self._loop.stop is None else (self._loop.stop,)

        def ask(bad: BadReply | None) -> Effects[Reply]:
            tail: tuple[Message, ...] = ()
            if bad:
                request = self._kit.prompt("repair", complaint=bad.complaint)
                tail = bad.ask_again(request, FORMAT.join_opening(bad.text, opening))
            held = self._loop.constrain or bool(bad)
            warmer = resample or bool(bad and bad.resample)
            options: dict[str, Any] = {"stop": stop, "resample": warmer, "repair": bool(bad)}
            options["enough"] = partial(needs_no_rest, read=partial(read, whole=False))
            options["grammar"] = FORMAT.grammar(self._kit.tools, log.next, opened=True) if held else None
            return self._think("act", log, view, opening, tail, **options)

        def read(text: str, whole: bool) -> Turn:
            return FORMAT.read(FORMAT.join_opening(text, opening), log.next, self._kit.tools, whole=whole)

        answer = plain_answer(self._kit) if self._kit.output is not None else None

        def take(reply: Reply, miss: int) -> Effects[Turn]:
            return read_reply(reply, miss, partial(read, whole=not reply.how_cut), answer=answer)

        return ask_until_read(ask, take, self._loop.max_parse_errors)

    def conclude(self, log: Scratchpad, compaction: Compaction, limit: LimitNear) -> Effects[Outcome]:
        """Use the reserved call to answer in words from what was found."""
        tail = (user(self._kit.prompt("conclude", reason=limit.detail)),)
        ask = partial(self._think, "act", log, opening="FINAL ANSWER:", tail=tail, stop=_ENDS, repair=True)
        reply = yield from compaction.ask(lambda view: ask(view=view), log.entries, concluding=True)
        return Stopped(limit.limit, limit.detail, _last_words(reply.text, log.next))

    def _think(
        self, phase: str, log: Scratchpad, view: View, opening: str, tail: tuple[Message, ...] = (), **options: Any
    ) -> Effects[Reply]:
        """Make one model call with the log and the opening of the reply; `tail` may hold a bad reply and the
        complaint."""
        shape = self._page.think(phase, log, view, opening, tail)
        transcript = self._loop.transcript
        stands = transcript == "completion" or (transcript == "user" and not tail)
        options |= {"prefill": "" if stands else opening, "max_tokens": self._loop.max_tokens}
        is_answer = partial(is_typed_answer, self._kit)
        return think(phase, shape.messages, prompt=shape.prompt, is_answer=is_answer, **options)


def _last_words(text: str, n: int) -> str | None:
    """Return the answer in the concluding reply; None if the model acts again instead of answering."""
    try:
        turn = FORMAT.read(text, n)
    except Unreadable:
        # The reply continues after the opened label: all of it is the answer, unless it begins a new turn.
        begun = LABEL.match(text.strip())
        return None if begun and label_at(begun).kind == "thought" else text.strip() or None
    return str(turn.answer) if turn.answered else None
