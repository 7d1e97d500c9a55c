"""The performers of a run: one for each kind of effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from plait.core import Act, AskUser, CheckAnswer, CheckGrounding, Continue, Effect, Execute, Start, Think, WaitNext
from plait.journal.keys import read_key
from plait.runtime.performers.ask_model import AskModel
from plait.runtime.performers.ask_user import AskTheUser
from plait.runtime.performers.base import BasePerformer
from plait.runtime.performers.call_tools import CallTools
from plait.runtime.performers.check import Check
from plait.runtime.performers.news import RunNews
from plait.runtime.performers.run_code import RunCode
from plait.runtime.performers.started_effects import StartedEffects, TakeNext
from plait.runtime.recorded_work import recall_work

if TYPE_CHECKING:
    from plait.runtime.engine import Engine


class Performers:
    """The performers of one run. `checks` are the effects that only guards answer: they have no number."""

    checks = frozenset({CheckAnswer, CheckGrounding})

    def __init__(self, engine: Engine) -> None:
        self.model = AskModel(engine)
        self.tools = CallTools(engine)
        self.code = RunCode(engine)
        self.started = StartedEffects(engine)
        self.news = RunNews(engine)
        self._of: dict[type, BasePerformer] = {
            Think: self.model,
            Act: self.tools,
            AskUser: AskTheUser(engine),
            Execute: self.code,
            Continue: self.code,
            Start: self.started,
            WaitNext: TakeNext(engine, self.started),
            CheckAnswer: Check(engine),
            CheckGrounding: Check(engine),
        }

    def of(self, effect: Effect) -> BasePerformer:
        """Return the performer of an effect. Raises `TypeError` for what is no effect."""
        found = self._of.get(type(effect))
        if found is None:
            raise TypeError(f"it yielded {type(effect).__name__}, which is not an effect")
        return found

    async def recall(self) -> None:
        """Take note of the work on record, and tell the guards, before the loop comes to it again."""
        engine = self.model.engine
        for key, found in engine.journal.items():  # effects that overlap may be performed in another order
            at = read_key(key)
            if at.attempt >= 0 and not at.mark and found.value is not UNSET and found.value.fallback:
                engine.run_spec.phases.leave(found.asked.model)
        await recall_work(engine)
        self.news.open()

    async def close(self) -> None:
        """End what goes on. The performers must not be used after that."""
        if self.news.inbox is not None:
            self.news.inbox.close()
        try:
            await self.started.close()
            if self.tools.background.begun:
                await self.tools.background.close()
        finally:
            await self.code.close()
