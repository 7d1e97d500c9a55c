"""ReAct: thought, action and observation as text.

After Yao et al. 2022 (arXiv:2210.03629) and the zero-shot chat form that followed it: the model writes a
thought and an action and is stopped where an observation would begin; the tool's result is put there
instead; until it gives a final answer.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

from plait.core import (
    Answered,
    Effect,
    Kit,
    LimitNear,
    Loop,
    Observation,
    Outcome,
    Reply,
    Splitter,
    Stopped,
    Task,
    act,
    propose,
    think,
)
from plait.loops.format import Format, Turn, Unreadable
from plait.loops.grounding import doubts, without
from plait.loops.offered_tools import offered
from plait.loops.react.format import react_format
from plait.loops.transcript import Scratchpad, Transcript, TranscriptKind, with_repair
from plait.loops.turn import Bad, fitting, folded, is_repetition, plain_answer, read_turn

Dialect = Literal["blob", "lines", "numbered", "original"]

LABELS = ("Thought", "Action", "Final Answer")


@dataclass(frozen=True)
class React:
    """Text ReAct.

    `dialect`: the action as a JSON blob, as plain lines, or numbered as in the paper ("original" is numbered, too,
    and read to the letter as the paper's environments did). `transcript`: the log as chat messages, inside one user
    message, or as one raw completion. `constrain`: hand the endpoint the grammar of a turn (at a second try it is
    in any case). `misses`: unreadable replies in a row before the run fails. `max_tokens`: of one reply.
    """

    dialect: Dialect = "blob"
    transcript: TranscriptKind = "chat"
    constrain: bool = False
    misses: int = 3
    max_tokens: int | None = None

    name: ClassVar[str] = "react"
    phases: ClassVar[tuple[str, ...]] = ("act",)
    reserved: ClassVar[tuple[str, ...]] = ("final_answer", "finish")

    def run(self, task: Task, kit: Kit) -> Loop:
        """The loop."""
        page = Transcript(self.transcript, self._format, task, kit, self._words(kit))
        log, chars = Scratchpad(), kit.observation_chars
        seen: Observation | None = None
        try:
            while True:
                ask = partial(self._turn, kit, page, log, is_repetition(seen))
                turn, chars = yield from fitting(ask, chars)
                if not isinstance(turn, Turn):
                    return turn  # type: ignore[no-any-return]
                found = yield from doubts(turn)
                if turn.call is None:
                    if not (against := (yield from propose(turn.answer))):
                        return Answered(turn.answer)
                    seen = Observation(against, "refused")
                else:
                    (seen,) = yield from act(turn.call)
                    if log.entries and (words := folded(kit, turn.call, seen)):
                        log = log.once_more(words)
                        continue
                log = log.then(*without(found, turn, seen))
        except LimitNear as limit:
            return (yield from self._conclude(kit, page, log, chars, limit))

    def splitter(self, phase: str) -> Splitter:
        """Tells the parts of a reply apart."""
        return self._format.splitter()

    @property
    def _format(self) -> Format:
        return react_format(self.dialect)

    def _turn(
        self, kit: Kit, page: Transcript, log: Scratchpad, resample: bool, chars: int
    ) -> Generator[Effect, Any, Turn | Outcome]:
        def ask(bad: Bad | None) -> Generator[Effect, Any, Reply]:
            request = kit.prompt("repair", complaint=bad[1], **self._words(kit)) if bad else ""
            opened = self.transcript != "chat" and not bad
            grammar = (
                self._format.grammar(offered(kit, log.seen), log.next, opened=opened) if self.constrain or bad else None
            )
            return self._think(page, log, chars, bad[0] if bad else "", request, grammar=grammar, resample=resample)

        def read(text: str) -> Turn:
            return self._format.read(self._opened(text, log), log.next, kit.known)

        return read_turn(ask, read, self.misses, answer=plain_answer(kit) if not log.entries else None)

    def _think(
        self, page: Transcript, log: Scratchpad, chars: int, bad: str, request: str, **options: Any
    ) -> Generator[Effect, Any, Reply]:
        """One model call over the log; a bad reply and a request about it may follow the log."""
        shape = page.think("act", log, chars, self._opening(log), with_repair(bad, request) if request else ())
        return think(
            "act",
            shape.messages,
            prompt=shape.prompt,
            stop=self._format.stop(log.next),
            max_tokens=self.max_tokens,
            repair=bool(request),
            **options,
        )

    def _words(self, kit: Kit) -> dict[str, Any]:
        names = ", ".join(tool.name for tool in kit.tools)
        return {
            "described": self._format.describe(kit.tools),
            "names": names,
            "dialect": self._numbered or self.dialect,
        }

    @property
    def _numbered(self) -> str:
        return "numbered" if self.dialect in ("numbered", "original") else ""

    def _opening(self, log: Scratchpad) -> str:
        return f"Thought {log.next}:" if self._numbered else "Thought:"

    def _opened(self, text: str, log: Scratchpad) -> str:
        """A reply with the opening that stood in the prompt, so that the log reads as if the model wrote it."""
        if self.transcript == "chat" or text.lstrip().startswith(LABELS):
            return text
        return f"{self._opening(log)} {text.lstrip()}"

    def _conclude(
        self, kit: Kit, page: Transcript, log: Scratchpad, chars: int, limit: LimitNear
    ) -> Generator[Effect, Any, Outcome]:
        """The call kept in reserve: the answer from what there is."""
        request = kit.prompt("conclude", reason=limit.detail)
        reply, _ = yield from fitting(
            lambda size: self._think(page, log, size, "", request, prefill="Final Answer:"), chars
        )
        return Stopped(limit.limit, limit.detail, self._last_words(reply.text, kit, log))

    def _last_words(self, text: str, kit: Kit, log: Scratchpad) -> Any:
        """The answer in the concluding reply; None when the model acts once more instead of giving one."""
        try:
            turn = self._format.read(text, log.next, kit.known)
        except Unreadable:
            # It goes on after the label that was opened for it: all of it is the answer.
            return text.strip() or None
        return turn.answer if turn.answered else None
