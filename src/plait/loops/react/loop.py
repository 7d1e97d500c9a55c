"""ReAct: thought, action and observation as text.

After Yao et al. 2022 (arXiv:2210.03629) and the zero-shot chat form that followed it. The model writes a thought and an
action, and stops where an observation would begin. The tool's result is inserted there. This repeats until the model
gives a final answer. The loop itself is `plait.loops.turn.TurnLoop`.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import ClassVar

from plait.core import LoopContext, LoopRun, Splitter, Task
from plait.loops.react.dialects import Dialect, DialectName
from plait.loops.react.format import react_format
from plait.loops.registry import CheckedOptions
from plait.loops.transcript import TranscriptKind
from plait.loops.turn import TurnLoop


@dataclass(frozen=True)
class ReAct(CheckedOptions):
    """Text ReAct.

    `dialect`: how a turn is written, or a `Dialect` of your own. "blob": a JSON object in a fence. "lines": two
    labelled lines. "numbered": as in the paper. "original": numbered, and read exactly as the paper's environments did.
    `transcript`: how the log is
    shown: as chat messages, inside one user message, or as one raw completion. `constrain`: send the grammar of a turn
    with every request (otherwise only with a second attempt). `max_parse_errors`: unreadable replies in a row before
    the run fails. `max_tokens`: limit for one reply. `stop`: the text at which the model stops, in place of the
    dialect's.
    """

    dialect: DialectName | Dialect = "blob"
    transcript: TranscriptKind = "chat"
    constrain: bool = False
    max_parse_errors: int = 3
    max_tokens: int | None = None
    stop: str | None = None

    name: ClassVar[str] = "react"
    phases: ClassVar[tuple[str, ...]] = ("act",)
    shared_prompts: ClassVar[tuple[str, ...]] = ("compaction", "transcript")
    reserved: ClassVar[tuple[str, ...]] = ("final_answer", "finish")

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        form = react_format(self.dialect)
        dialect, labels = form.dialect, form.dialect.words
        words = {
            "described": form.describe(context.tools),
            "names": ", ".join(map(attrgetter("name"), context.tools)),
            "dialect": dialect.prompt or dialect.name,
        }
        turns = TurnLoop(
            form,
            context.tools,
            words,
            transcript=self.transcript,
            constrain=self.constrain,
            max_parse_errors=self.max_parse_errors,
            max_tokens=self.max_tokens,
            stop=self.stop,
            opening=lambda n: dialect.label("thought", n),
            labels=(labels.thought, labels.action, labels.answer),
            last_label=f"{labels.answer}:",
            answer_place=f"the input of {dialect.finish}" if dialect.finish else f"what follows {labels.answer}:",
        )
        return turns.run(task, context)

    def splitter(self, phase: str) -> Splitter:
        return react_format(self.dialect).stream()

    @property
    def reply_words(self) -> tuple[str, ...]:
        """Words of which a description of the replies has at least one."""
        words = react_format(self.dialect).dialect.words
        return words.action, words.answer
