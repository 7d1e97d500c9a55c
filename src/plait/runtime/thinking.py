"""Performs think effects: limits first, then the record, then the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plait.core import LimitNear, Piece, PromptTooLong, Reply, Splitter, Taken, Think
from plait.core import events as ev
from plait.journal.records import Thrown
from plait.runtime.asking import ask_model
from plait.runtime.job import Desk, RecordEnds, differs, sentence, text_of
from plait.runtime.past import PastEffect


class Thinker:
    """Performs the think effects of one run. `on_piece` is told the text of watched replies as it comes."""

    def __init__(self, desk: Desk, on_piece: Callable[[Taken], None]) -> None:
        self.desk = desk
        self._on_piece = on_piece

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
            meter.asked(past.reply)
            return past.reply
        if self.desk.job.replay:
            raise RecordEnds
        model = self.desk.job.phases.of(effect.phase)
        self.desk.say(ev.Asked(step, effect.phase, model.spec))
        listener = self._listener(n, effect, step)

        def retry(text: str) -> None:
            if listener is not None:
                listener.again()
            self.desk.remark(step, "retry", text)

        try:
            reply = await ask_model(
                self.desk.job.phases,
                effect,
                n=n,
                step=step,
                log=self.desk.log,
                past=past,
                retries=self.desk.job.limits.retries,
                on_text=listener.feed if listener is not None else None,
                on_retry=retry,
            )
        except PromptTooLong as why:
            await self.desk.log.append(
                (Thrown(n, step, "PromptTooLong", "context", why.detail, why.tokens, why.room), None)
            )
            self.desk.say(ev.Noted(step, "limit", "The prompt is too long for the model; showing it less."))
            raise
        if listener is not None:
            listener.close()
        meter.asked(reply)
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

    def _listener(self, n: int, effect: Think, step: int) -> _Listener | None:
        """What to do with text as it is written, if anybody wants it before the reply is whole."""
        strategy = self.desk.job.strategy
        split = (lambda: strategy.splitter(effect.phase)) if self.desk.emit is not None else None
        on_piece = self._on_piece if effect.watch else None
        return _Listener(n, step, split, self.desk.say, on_piece) if split or on_piece else None


class _Listener:
    """Takes a reply's text as it is written: tells it apart for who watches, hands it to a loop that waits."""

    def __init__(
        self,
        n: int,
        step: int,
        split: Callable[[], Splitter] | None,
        say: Callable[[ev.Event], None],
        on_piece: Callable[[Taken], None] | None,
    ) -> None:
        self._n, self._step, self._split, self._say, self._on_piece = n, step, split, say, on_piece
        self._splitter = split() if split is not None else None
        self._again = False
        self._fed = False

    def feed(self, text: str) -> None:
        """Some more of the reply."""
        self._fed = True
        if self._splitter is not None:
            self._show(self._splitter.feed(text))
        if self._on_piece is not None:
            self._on_piece(Taken(self._n, done=False, piece=text, again=self._again))
            self._again = False

    def again(self) -> None:
        """The attempt failed: what was written of it is not the reply, which begins anew."""
        if self._fed:
            self._splitter = self._split() if self._split is not None else None
            self._again, self._fed = True, False

    def close(self) -> None:
        """The reply is whole."""
        if self._splitter is not None:
            self._show(self._splitter.close())

    def _show(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            if piece.kind != "observation":
                self._say(ev.WRITTEN[piece.kind](self._step, piece.text))
