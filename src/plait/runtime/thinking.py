"""Performs think effects: limits first, then the record, then the model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from plait.core import LimitNear, Piece, PromptTooLong, Reply, Think
from plait.core import events as ev
from plait.journal.records import Thrown
from plait.runtime.asking import ask_model
from plait.runtime.job import Desk, RecordEnds, differs, sentence, text_of
from plait.runtime.past import PastEffect


class Thinker:
    """Performs the think effects of one run. `pieces` is where the text of watched replies goes, as it comes."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.pieces: asyncio.Queue[tuple[int, str]] = asyncio.Queue()

    async def perform(self, n: int, effect: Think, past: PastEffect) -> Reply:
        meter = self.desk.meter
        step = meter.steps + (0 if effect.repair else 1)
        if past.thrown is not None:
            self._rethrow(past.thrown, effect, step, past)
        elif not past.thinking:
            near = meter.before_think(repair=effect.repair)
            if near is not None:
                await self.desk.log.append((Thrown(n, step, "LimitNear", near.limit, near.detail), None))
                self.desk.say(ev.Noted(step, "limit", sentence(near.detail)))
                raise near
        if not effect.repair and meter.near is None:
            meter.steps += 1
        if past.thinking:
            self._same_request(n, effect, past, step)
        if past.reply is not None:
            meter.asked(past.reply, repair=effect.repair)
            return past.reply
        if self.desk.job.replay:
            raise RecordEnds
        model = self.desk.job.phases.of(effect.phase)
        self.desk.say(ev.Asked(step, effect.phase, model.spec))
        on_text, close = self._listeners(n, effect, step)
        try:
            reply = await ask_model(
                self.desk.job.phases,
                effect,
                n=n,
                step=step,
                log=self.desk.log,
                past=past,
                retries=self.desk.job.limits.retries,
                on_text=on_text,
                on_retry=lambda text: self.desk.remark(step, "retry", text),
            )
        except PromptTooLong as why:
            await self.desk.log.append(
                (Thrown(n, step, "PromptTooLong", "context", why.detail, why.tokens, why.room), None)
            )
            self.desk.say(ev.Noted(step, "limit", "The prompt is too long for the model; showing it less."))
            raise
        close()
        meter.asked(reply, repair=effect.repair)
        self.desk.say(ev.Replied(step, effect.phase, model.spec, reply.text, reply.usage, reply.seconds, reply.cost))
        return reply

    def _rethrow(self, thrown: Thrown, effect: Think, step: int, past: PastEffect) -> None:
        if thrown.kind == "LimitNear":
            self.desk.meter.was_near(thrown.limit, thrown.detail)
            raise LimitNear(thrown.limit, thrown.detail)
        self._same_request(thrown.n, effect, past, step)
        raise PromptTooLong(thrown.detail, thrown.tokens, thrown.room)

    def _same_request(self, n: int, effect: Think, past: PastEffect, step: int) -> None:
        """Compare every recorded attempt of this effect with the request the loop makes now."""
        if step < self.desk.job.trust_until:
            return
        lost = {got.attempt: got.lost for got, _ in past.got if got.lost}
        for thinking, body in past.thinking:
            if thinking.phase != effect.phase:
                raise differs(n, step, f"phase {thinking.phase}", f"phase {effect.phase}")
            made = self.desk.job.phases.of(effect.phase).encode(effect)
            if (found := self.desk.log.scrub(made.body)) != body or made.path != thinking.path:
                raise differs(n, step, text_of(body), text_of(found))
            self.desk.compared += 1
            if thinking.attempt in lost:
                self.desk.job.phases.lost(effect.phase, lost[thinking.attempt])

    def _listeners(self, n: int, effect: Think, step: int) -> tuple[Callable[[str], None] | None, Callable[[], None]]:
        """What to do with text as it is written: tell it apart for who watches, hand it to a loop that waits."""
        if self.desk.emit is None and not effect.watch:
            return None, lambda: None
        splitter = self.desk.job.strategy.splitter(effect.phase) if self.desk.emit is not None else None

        def show(pieces: Sequence[Piece]) -> None:
            for piece in pieces:
                if piece.kind != "observation":
                    self.desk.say(ev.WRITTEN[piece.kind](step, piece.text))

        def on_text(text: str) -> None:
            if splitter is not None:
                show(splitter.feed(text))
            if effect.watch:
                self.pieces.put_nowait((n, text))

        def close() -> None:
            if splitter is not None:
                show(splitter.close())

        return on_text, close
