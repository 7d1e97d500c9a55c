"""CodeAct: the action is Python.

After Wang et al. 2024 (arXiv:2402.01030) and agents that search for the functions they need. The model writes a thought
and a piece of code. The code runs in one namespace for the whole run; its output is the observation. The run ends when
the code calls `stop()`. With a search tool, the loop prepares the first turn: it divides the task into steps and
searches functions for the first one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from msgspec import structs

from plait.core import (
    Answered,
    Effects,
    Failed,
    LimitNear,
    LoopContext,
    LoopRun,
    Message,
    Observation,
    OneKind,
    Reply,
    Splitter,
    Stopped,
    Task,
    check_answer,
    note,
    think,
    user,
)
from plait.loops.asking import BadReply, ask_until_read, is_typed_answer, needs_no_rest, read_plain_answer, read_reply
from plait.loops.codeact.execution import Work
from plait.loops.codeact.format import FORMAT, code_call
from plait.loops.codeact.hints import MODULES, NAMES
from plait.loops.codeact.labels import LABEL, SEARCH, STOP, WORDS
from plait.loops.codeact.reader import MOST_STEPS, steps_of
from plait.loops.codeact.signature import python_function
from plait.loops.compaction import Compaction, View
from plait.loops.escape import escape_of
from plait.loops.format import Turn, Unreadable
from plait.loops.grounding import find_ungrounded, find_ungrounded_in_turn, strike_from_turn
from plait.loops.registry import CheckedOptions
from plait.loops.transcript import LogEntry, Scratchpad, Transcript, TranscriptKind

_ENDS = ("\nTHOUGHT", "\nACTION", "\nOBSERVATION")
"""The beginnings of lines at which an answer in words ends."""


@dataclass(frozen=True)
class CodeAct(CheckedOptions):
    """CodeAct: the model acts by writing Python.

    `transcript`: how the log is shown: as chat messages, inside one user message, or as one raw completion.
    `max_lines`: maximum lines of an action; 0: no limit. `repeats`: how often the same code may give the same
    observation; 0: no limit. `imports`: whether code may import modules that compute. `constrain`: send the grammar of
    a turn with every request (otherwise only with a second attempt). `max_parse_errors`: unreadable replies in a row
    before the run fails. `max_tokens`: limit for one reply. `stop`: the text at which the model stops, in place of the
    format's.
    """

    transcript: TranscriptKind = "chat"
    max_lines: int = 60
    repeats: int = 3
    imports: bool = True
    constrain: bool = False
    max_parse_errors: int = 3
    max_tokens: int | None = None
    stop: str | None = None

    most_tools: ClassVar[int] = 8
    name: ClassVar[str] = "codeact"
    runs_code: ClassVar[bool] = True
    acts_on_results: ClassVar[bool] = False  # code has the whole value
    phases: ClassVar[tuple[str, ...]] = ("decompose", "act")
    shared_prompts: ClassVar[tuple[str, ...]] = ("compaction", "transcript")
    reserved: ClassVar[tuple[str, ...]] = (STOP, SEARCH)
    reply_words: ClassVar[tuple[str, ...]] = ("Python", "code")
    tool_names: ClassVar[str] = "python"

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        own = context.tool(SEARCH)
        if own is not None and not context.search:
            # The user's own tool of this name finds all other tools.
            others = tuple(tool for tool in context.tools if tool is not own)
            context = structs.replace(context, tools=(own,), others=others, search=SEARCH)
        shown = tuple(tool for tool in context.tools if tool.name != context.search)
        words = {
            "described": FORMAT.describe(shown),
            "functions": tuple(map(python_function, shown)),
            "search": context.search,
            "imports": self.imports,
            "names": ", ".join(NAMES),
            "packages": ", ".join(context.modules) if self.imports else "",
            "location": context.tool("get_user_location") is not None,
        }
        place = "the argument of stop, as a Python value"
        page = Transcript(self.transcript, FORMAT, task, context, words, harmless=True, answer_place=place)
        escape = escape_of(context, FORMAT.escape)
        modules = MODULES.union(context.modules) if self.imports else frozenset()
        work = Work(context, escape, self.max_lines, self.repeats, modules)
        log = Scratchpad()
        compaction = Compaction(
            context, task.question, LogEntry.describe, first=int(bool(context.search)), on_change=work.forget_repeats
        )
        turn: Any = None
        last: Observation | None = None
        try:
            while True:
                # At temperature 0 a model that repeats itself would go on doing so.
                repeats = last is not None and last.repeated
                ask: Callable[[View], Effects[Any]] = partial(self._take_turn, context, page, log, repeats, work.failed)
                if not log.entries and context.search:
                    ask = partial(self._make_first_turn, task, context, page, log)
                turn = yield from compaction.ask(ask, log.entries)
                if not isinstance(turn, Turn):
                    return turn  # type: ignore[no-any-return]
                ungrounded = yield from find_ungrounded_in_turn(turn)
                seen: Observation | Answered = Answered(turn.answer)
                if turn.call is not None:
                    code = turn.call.input
                    only_stops = code.lstrip().startswith(f"{STOP}(")  # it gives an answer, which is checked as such
                    invented = () if only_stops else (yield from find_ungrounded(code=code, strict=True))
                    seen = yield from work.run(code, log.next, invented)
                if isinstance(seen, Answered):
                    done = seen if seen.answer is not None else Answered(turn.thought)
                    if not (against := (yield from check_answer(done.answer))):
                        return done
                    seen = Observation(escape(against), "refused")
                elif work.in_vain:
                    log, turn, last = log.once_more(seen.note), None, seen
                    continue
                log, turn, last = log.then(*strike_from_turn(ungrounded, turn, seen)), None, seen
        except LimitNear as limit:
            if isinstance(turn, Turn):
                log = log.then(turn, work.broken_off())
            # The reserved call answers in words from what was found.
            tail = (user(context.prompt("conclude", reason=limit.detail)),)
            conclude = partial(self._think, "act", context, page, log, opening="FINAL ANSWER:", tail=tail, stop=_ENDS)
            reply = yield from compaction.ask(
                lambda view: conclude(view=view, repair=True, enough=bool), log.entries, concluding=True
            )
            answer: str | None
            try:
                turn = FORMAT.read(reply.text, log.next)
                answer = str(turn.answer) if turn.answered else None
            except Unreadable:
                # The reply continues after the opened label: all of it is the answer, unless it begins a new turn.
                text = reply.text.strip()
                begun = LABEL.match(text)
                answer = None if begun and WORDS.label_at(begun).kind == "thought" else text or None
            return Stopped(limit.limit, limit.detail, answer)

    def splitter(self, phase: str) -> Splitter:
        return OneKind("thought") if phase == "decompose" else FORMAT.stream()

    def _make_first_turn(
        self, task: Task, context: LoopContext, page: Transcript, log: Scratchpad, view: View
    ) -> Effects[Turn]:
        """Make the first turn on the model's behalf: its steps, and a search for the first of them."""
        opening = context.prompt("steps")
        stop = ("\nACTION", "\nOBSERVATION", f"\n{MOST_STEPS + 1}.")
        reply = yield from self._think("decompose", context, page, log, view, opening, stop=stop)
        steps = steps_of(reply.text)
        if not steps:
            steps = (" ".join(task.question.split()),)
            yield from note("unreadable", "The reply names no steps: the task itself is taken for the only one.")
        search = code_call(f"{SEARCH}({json.dumps(steps[0], ensure_ascii=False)})")
        turn = Turn(context.prompt("first", steps=steps, reply=reply.text).strip(), search)
        return structs.replace(turn, kept=FORMAT.write(turn, 1))

    def _take_turn(
        self, context: LoopContext, page: Transcript, log: Scratchpad, resample: bool, failed: bool, view: View
    ) -> Effects[Turn | Failed]:
        """Ask for the next turn; `failed`: the last action failed."""
        opening = context.prompt("opening", n=log.next, failed=failed)
        stop = FORMAT.stop(log.next) if self.stop is None else (self.stop,)

        def ask(bad: BadReply | None) -> Effects[Reply]:
            tail: tuple[Message, ...] = ()
            if bad:
                request = context.prompt("repair", complaint=bad.complaint)
                tail = bad.ask_again(request, FORMAT.join_opening(bad.text, opening))
            held = self.constrain or bool(bad)
            warmer = resample or bool(bad and bad.resample)
            options: dict[str, Any] = {"stop": stop, "resample": warmer, "repair": bool(bad)}
            options["enough"] = partial(needs_no_rest, read=partial(read_text, whole=False))
            options["grammar"] = FORMAT.grammar(context.tools, log.next, opened=True) if held else None
            return self._think("act", context, page, log, view, opening, tail, **options)

        def read_text(text: str, whole: bool) -> Turn:
            return FORMAT.read(FORMAT.join_opening(text, opening), log.next, context.tools, whole=whole)

        def read(reply: Reply, miss: int) -> Effects[Turn]:
            return read_reply(reply, miss, partial(read_text, whole=not reply.how_cut), answer=answer)

        answer = partial(read_plain_answer, context, ()) if context.output is not None else None
        return ask_until_read(ask, read, self.max_parse_errors)

    def _think(
        self,
        phase: str,
        context: LoopContext,
        page: Transcript,
        log: Scratchpad,
        view: View,
        opening: str,
        tail: tuple[Message, ...] = (),
        **options: Any,
    ) -> Effects[Reply]:
        """Make one model call with the log and the opening of the reply; `tail`: a bad reply and the complaint."""
        shape = page.think(phase, log, view, opening, tail)
        stands = self.transcript == "completion" or (self.transcript == "user" and not tail)
        options |= {"prefill": "" if stands else opening, "max_tokens": self.max_tokens}
        is_answer = partial(is_typed_answer, context)
        return think(phase, shape.messages, prompt=shape.prompt, is_answer=is_answer, **options)
