"""ReAct: thought, action and observation as text.

After Yao et al. 2022 (arXiv:2210.03629) and the zero-shot chat form that followed it. The model writes a thought and an
action, and stops where an observation would begin. The tool's result is inserted there. This repeats until the model
gives a final answer. The loop itself is `plait.loops.turn.TurnLoop`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from plait.core import LoopContext, LoopRun, Splitter, Task
from plait.loops.format import Format
from plait.loops.react.format import react_format
from plait.loops.registry import check_options
from plait.loops.transcript import TranscriptKind
from plait.loops.turn import TurnLoop

Dialect = Literal["blob", "lines", "numbered", "original"]

LABELS = ("Thought", "Action", "Final Answer")


@dataclass(frozen=True)
class ReAct:
    """Text ReAct.

    `dialect`: how an action is written. "blob": a JSON object in a fence. "lines": two labelled lines. "numbered": as
    in the paper. "original": numbered, and read exactly as the paper's environments did. `transcript`: how the log is
    shown: as chat messages, inside one user message, or as one raw completion. `constrain`: send the grammar of a turn
    with every request (otherwise only with a second attempt). `max_parse_errors`: unreadable replies in a row before
    the run fails. `max_tokens`: limit for one reply. `stop`: the text at which the model stops, in place of the
    dialect's.
    """

    dialect: Dialect = "blob"
    transcript: TranscriptKind = "chat"
    constrain: bool = False
    max_parse_errors: int = 3
    max_tokens: int | None = None
    stop: str | None = None

    name: ClassVar[str] = "react"
    phases: ClassVar[tuple[str, ...]] = ("act",)
    reserved: ClassVar[tuple[str, ...]] = ("final_answer", "finish")
    reply_words: ClassVar[tuple[str, ...]] = ("Action", "Final Answer")

    def __post_init__(self) -> None:
        check_options(self)

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        numbered = self.dialect in ("numbered", "original")
        words = {
            "described": self._format.describe(context.tools),
            "names": ", ".join(tool.name for tool in context.tools),
            "dialect": "numbered" if numbered else self.dialect,
        }
        turns = TurnLoop(
            self._format,
            context.tools,
            words,
            transcript=self.transcript,
            constrain=self.constrain,
            max_parse_errors=self.max_parse_errors,
            max_tokens=self.max_tokens,
            stop=self.stop,
            opening=lambda n: f"Thought {n}:" if numbered else "Thought:",
            labels=LABELS,
            last_label="Final Answer:",
        )
        return turns.run(task, context)

    def splitter(self, phase: str) -> Splitter:
        return self._format.splitter()

    @property
    def _format(self) -> Format:
        return react_format(self.dialect)
