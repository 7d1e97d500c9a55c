"""CodeAct: the action is Python.

After Wang et al. 2024 (arXiv:2402.01030) and agents that act in a Python session and find their functions by searching:
the model writes a thought and a piece of code; the code runs in one namespace that is kept from action to action; what
it prints is the observation; until the code calls `stop()`. Where there is a search tool, the first turn is made for
the model: the task is taken apart into steps, and functions for the first one are searched.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from plait.core import (
    Answered,
    Effects,
    LimitNear,
    LoopContext,
    LoopRun,
    Message,
    Observation,
    OneKind,
    Outcome,
    Reply,
    Splitter,
    Stopped,
    Task,
    doubt,
    note,
    propose,
    think,
)
from plait.loops.codeact.execution import SEARCH, STOP, Work, only_stops
from plait.loops.codeact.format import CodeFormat, code_call
from plait.loops.codeact.hints import NAMES
from plait.loops.codeact.labels import LABEL, label_at
from plait.loops.codeact.reader import MOST_STEPS, steps_of
from plait.loops.escape import escape_of
from plait.loops.format import Turn, Unreadable
from plait.loops.grounding import doubts, without
from plait.loops.transcript import Scratchpad, Transcript, TranscriptKind, with_repair
from plait.loops.turn import Bad, fitting, is_repetition, read_turn

FORMAT = CodeFormat()
ENDS = ("\nTHOUGHT", "\nACTION", "\nOBSERVATION")
"""What an answer in words ends before."""


@dataclass(frozen=True)
class CodeAct:
    """CodeAct.

    `transcript`: the log as chat messages, inside one user message, or as one raw completion. `max_lines`: an
    action of more is not run; 0 for any. `repeats`: how often the same code may bring the same observation; 0 for
    ever. `constrain`: hand the endpoint the grammar of a turn (at a second try it is in any case). `max_parse_errors`:
    unreadable replies in a row before the run fails. `max_tokens`: of one reply.
    """

    transcript: TranscriptKind = "chat"
    max_lines: int = 60
    repeats: int = 3
    constrain: bool = False
    max_parse_errors: int = 3
    max_tokens: int | None = None

    told: ClassVar[int] = 8
    """Where nothing else is said, it is told of so many tools; of more it is told none, and finds them by searching."""
    name: ClassVar[str] = "codeact"
    runs_code: ClassVar[bool] = True
    """It needs a sandbox, which is checked before the first model call."""
    phases: ClassVar[tuple[str, ...]] = ("decompose", "act")
    reserved: ClassVar[tuple[str, ...]] = (STOP, SEARCH)
    tool_names: ClassVar[str] = "python"

    def run(self, task: Task, kit: LoopContext) -> LoopRun:
        page = Transcript(self.transcript, FORMAT, task, kit, _words(kit), harmless=True)
        escape = escape_of(kit, FORMAT.disarm)
        work, log, chars = Work(kit, escape, self.max_lines, self.repeats), Scratchpad(), kit.observation_chars
        turn: Any = None
        last: Observation | None = None
        try:
            while True:
                first = not log.entries and bool(kit.search)
                ask = self._first if first else partial(self._turn, is_repetition(last), work.failed)
                turn, chars = yield from fitting(partial(ask, task, kit, page, log), chars)
                if not isinstance(turn, Turn):
                    return turn  # type: ignore[no-any-return]
                found = yield from doubts(turn)
                seen: Observation | Answered = Answered(turn.answer)
                if turn.call is not None:
                    code = turn.call.input
                    made_up = () if only_stops(code) else (yield from doubt(code=code, strict=True))
                    seen = yield from work.run(code, made_up)
                if isinstance(seen, Answered):
                    done = seen if seen.answer is not None else Answered(turn.thought)
                    if not (against := (yield from propose(done.answer))):
                        return done
                    seen = Observation(escape(against), "refused")
                elif work.in_vain:
                    log, turn, last = log.once_more(seen.note), None, seen
                    continue
                log, turn, last = log.then(*without(found, turn, seen)), None, seen
        except LimitNear as limit:
            if isinstance(turn, Turn):
                log = log.then(turn, work.broken_off())
            return (yield from self._conclude(kit, page, log, chars, limit))

    def splitter(self, phase: str) -> Splitter:
        return OneKind("thought") if phase == "decompose" else FORMAT.splitter()

    def _first(self, task: Task, kit: LoopContext, page: Transcript, log: Scratchpad, chars: int) -> Effects[Turn]:
        """The first turn, made for the model: its steps, and a search for the first of them."""
        opening = kit.prompt("steps").strip()
        stop = ("\nACTION", "\nOBSERVATION", f"\n{MOST_STEPS + 1}.")
        reply = yield from self._think("decompose", page, log, chars, opening, stop=stop)
        steps = steps_of(reply.text)
        if not steps:
            steps = (" ".join(task.question.split()),)
            yield from note("unreadable", "The reply names no steps: the task itself is taken for the only one.")
        turn = Turn(kit.prompt("first", steps=steps).strip(), code_call(f"{SEARCH}({_quoted(steps[0])})"))
        return Turn(turn.thought, turn.call, kept=FORMAT.write(turn, 1))

    def _turn(
        self, resample: bool, failed: bool, task: Task, kit: LoopContext, page: Transcript, log: Scratchpad, chars: int
    ) -> Effects[Turn | Outcome]:
        """The model's next turn, after an action that `failed` or not."""
        opening = kit.prompt("opening", n=log.next, failed=failed).strip()
        whole = True

        def ask(bad: Bad | None) -> Effects[Reply]:
            nonlocal whole
            tail = with_repair(FORMAT.opened(bad[0], opening), kit.prompt("repair", complaint=bad[1])) if bad else ()
            held = self.constrain or bool(bad)
            grammar = FORMAT.grammar(kit.tools, log.next, opened=True) if held else None
            reply = yield from self._think(
                "act",
                page,
                log,
                chars,
                opening,
                tail,
                stop=FORMAT.stop(log.next),
                grammar=grammar,
                resample=resample,
                repair=bool(bad),
            )
            whole = not reply.how_cut
            return reply

        def read(text: str) -> Turn:
            return FORMAT.read(FORMAT.opened(text, opening), log.next, kit.tools, whole=whole)

        return (yield from read_turn(ask, read, self.max_parse_errors))

    def _think(
        self,
        phase: str,
        page: Transcript,
        log: Scratchpad,
        chars: int,
        opening: str,
        tail: tuple[Message, ...] = (),
        **options: Any,
    ) -> Effects[Reply]:
        """One model call over the log, the reply opened for it; a bad reply and a request about it may follow."""
        shape = page.think(phase, log, chars, opening, tail)
        stands = self.transcript == "completion" or (self.transcript == "user" and not tail)
        prefill = "" if stands else opening
        return think(phase, shape.messages, prompt=shape.prompt, prefill=prefill, max_tokens=self.max_tokens, **options)

    def _conclude(
        self, kit: LoopContext, page: Transcript, log: Scratchpad, chars: int, limit: LimitNear
    ) -> Effects[Outcome]:
        """The call kept in reserve: the answer in words, from what there is."""
        tail = with_repair("", kit.prompt("conclude", reason=limit.detail))
        reply, _ = yield from fitting(
            lambda size: self._think("act", page, log, size, "FINAL ANSWER:", tail, stop=ENDS, repair=True), chars
        )
        return Stopped(limit.limit, limit.detail, _last_words(reply.text, log.next))


def _words(kit: LoopContext) -> dict[str, Any]:
    """What the rules tell beside the form: the tools shown, the search, what else is there."""
    shown = tuple(tool for tool in kit.tools if tool.name != kit.search)
    location = kit.tool("get_user_location") is not None
    return {"described": FORMAT.describe(shown), "search": kit.search, "names": ", ".join(NAMES), "location": location}


def _last_words(text: str, n: int) -> str | None:
    """The answer in the concluding reply; None when the model acts once more instead of giving one."""
    try:
        turn = FORMAT.read(text, n)
    except Unreadable:
        # It goes on after the label that was opened for it: all of it is the answer, if it does not begin a new turn.
        begun = LABEL.match(text.strip())
        return None if begun and label_at(begun).kind == "thought" else text.strip() or None
    return str(turn.answer) if turn.answered else None


def _quoted(words: str) -> str:
    return json.dumps(words, ensure_ascii=False)
