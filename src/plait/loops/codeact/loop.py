"""CodeAct: the action is Python.

After Wang et al. 2024 (arXiv:2402.01030) and agents that search for the functions they need. The model writes a thought
and a piece of code. The code runs in one namespace for the whole run; its output is the observation. The run ends when
the code calls `stop()`. With a search tool, the loop prepares the first turn: it divides the task into steps and
searches functions for the first one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from msgspec import structs

from plait.core import (
    Answered,
    Effects,
    LimitNear,
    LoopContext,
    LoopRun,
    Observation,
    OneKind,
    Splitter,
    Task,
    check_answer,
    check_grounding,
)
from plait.loops.codeact.execution import SEARCH, STOP, Work, only_stops
from plait.loops.codeact.format import FORMAT
from plait.loops.codeact.hints import MODULES
from plait.loops.codeact.turns import CodeTurns
from plait.loops.compaction import Compaction, View
from plait.loops.escape import escape_of
from plait.loops.format import Turn
from plait.loops.grounding import find_ungrounded_in_turn, strike_from_turn
from plait.loops.options import check_options
from plait.loops.transcript import Entry, Scratchpad, TranscriptKind


@dataclass(frozen=True)
class CodeAct:
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

    told: ClassVar[int] = 8
    """The default number of tools that it is shown. With more tools it is shown none, and finds them by searching."""
    name: ClassVar[str] = "codeact"
    runs_code: ClassVar[bool] = True
    acts_on_results: ClassVar[bool] = False  # code has the whole value
    """It needs a sandbox, which is checked before the first model call."""
    phases: ClassVar[tuple[str, ...]] = ("decompose", "act")
    compacts: ClassVar[bool] = True
    reserved: ClassVar[tuple[str, ...]] = (STOP, SEARCH)
    reply_words: ClassVar[tuple[str, ...]] = ("Python", "code")
    tool_names: ClassVar[str] = "python"

    def __post_init__(self) -> None:
        check_options(self)

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        context = use_own_search(context)
        turns, escape = CodeTurns(self, task, context), escape_of(context, FORMAT.disarm)
        modules = MODULES if self.imports else frozenset()
        work = Work(context, escape, self.max_lines, self.repeats, modules)
        log = Scratchpad()
        compaction = Compaction(
            context, task.question, Entry.describe, first=int(bool(context.search)), on_change=work.forget_repeats
        )
        turn: Any = None
        last: Observation | None = None
        try:
            while True:
                # At temperature 0 a model that repeats itself would go on doing so.
                repeats = last is not None and last.repeated
                ask: Callable[[View], Effects[Any]] = partial(turns.next, log, repeats, work.failed)
                if not log.entries and context.search:
                    ask = partial(turns.first, log)
                turn = yield from compaction.ask(ask, log.entries)
                if not isinstance(turn, Turn):
                    return turn  # type: ignore[no-any-return]
                ungrounded = yield from find_ungrounded_in_turn(turn)
                seen: Observation | Answered = Answered(turn.answer)
                if turn.call is not None:
                    code = turn.call.input
                    invented = () if only_stops(code) else (yield from check_grounding(code=code, strict=True))
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
            return (yield from turns.conclude(log, compaction, limit))

    def splitter(self, phase: str) -> Splitter:
        return OneKind("thought") if phase == "decompose" else FORMAT.splitter()


def use_own_search(context: LoopContext) -> LoopContext:
    """Return the context in which the user's own tool `method_search`, if there is one, finds all other tools."""
    own = context.tool(SEARCH)
    if context.search or own is None:
        return context
    others = tuple(tool for tool in context.tools if tool is not own)
    return structs.replace(context, tools=(own,), others=others, search=SEARCH)
