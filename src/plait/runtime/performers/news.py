"""Puts into the requests of a run what came meanwhile: messages of the user, and results of calls in the background.

Theory of operation. A loop does not know of them: they are put into its request (`Think`) before it is encoded. What a
request is the first to have is on record under its key ("3+0"), so no key depends on timing. Each later request of the
loop has it, too, at the same place of the conversation: behind what the first one shares with it. So the beginning of
the requests stays the same for a server's cache.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from plait.core import Message, Think, user
from plait.core import events as ev
from plait.core.text import count_shared, mark_lines
from plait.journal.records import ResultRecord
from plait.loops.compaction import COMPACT
from plait.runtime.guard import Entry, UserMessage
from plait.runtime.inbox import Inbox
from plait.runtime.performers.base import BasePerformer
from plait.runtime.run_journal import NOTHING, EntryWork, FoundEntry

if TYPE_CHECKING:
    from plait.runtime.engine import Engine


class TakeMessage(BasePerformer):
    """Takes a message of the user. The result is what is on record of it; None if a guard refused it."""

    work = "message"
    subject = ("message", "message")

    def describe(self, entry: Entry) -> EntryWork:
        return EntryWork(has_intent=False)

    def restore(self, entry: Entry, found: FoundEntry) -> None:
        self.engine.chain.decisions.follow_before(entry)

    async def perform(self, entry: Entry) -> tuple[Any, bytes | None]:
        sent: UserMessage = entry.effect
        self.engine.say(ev.Noted(entry.step, "message", sent.text))
        return {"number": sent.number, "text": sent.text, "by": sent.by}, None

    def refuse(self, entry: Entry, reason: str, *, is_after: bool, by_user: bool) -> Any:
        self.engine.remark("message", f"It was refused: {reason}", entry.step, entry.key)
        return {"number": entry.asked.number, "text": "", "by": entry.asked.by}


class PlacedText(Struct, frozen=True):
    """A text that requests have, and the request that was the first to have it, as the loop made it."""

    text: str
    first: Think


class RunNews:
    """What came to a run while it went on, and where its requests have it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._placed: list[PlacedText] = []
        self.inbox: Inbox | None = None

    def open(self) -> None:
        """Begin to take what is sent to the run."""
        engine, own = self._engine, self._engine.run_spec.trust_until  # a fork has others of the steps before
        if not engine.journal.replay:
            news = chain.from_iterable(engine.journal.news.values())
            taken = {each.value["number"] for each in news if each.work == "message" and each.step >= own}
            looks_first = not engine.journal.is_new or engine.log.is_queued
            self.inbox = Inbox(engine.store, engine.run_id, taken, looks_first=looks_first)

    async def put_into(self, key: str, think: Think, *, step: int, is_new: bool) -> Think:
        """Return a request of the loop with what came before it. `is_new`: also with what was not on record before; not
        if it goes on with a turn that the provider paused."""
        if think.phase.endswith(COMPACT):
            return think
        engine, journal = self._engine, self._engine.journal
        background, known = engine.performers.tools.background, journal.news[int(key)]
        for record in [*known]:
            if record.work == "delivery":
                self._place(await background.deliver(record.value), think)
            else:
                await self._take(record.key, UserMessage(**record.value), step, think)
        goes_on = think.repair and think.messages[-1:] and think.messages[-1].role == "assistant"
        has_rows = journal.find(key) is not NOTHING or journal.raised(key) is not None
        if is_new and not (goes_on or journal.replay or has_rows):
            if background.begun:
                if engine.near is not None:  # the last call must know all
                    await background.wait()
                for call in background.list_ended():
                    text = await background.deliver(call)
                    await journal.write(ResultRecord(f"{key}+{len(known)}", step, "delivery", call))
                    self._place(text, think)
            if self.inbox is not None:
                await self.inbox.look()
                for number, sent in sorted(self.inbox.messages.items()):
                    message = UserMessage(number, sent.text, sent.by)
                    await self._take(f"{key}+{len(known)}", message, step, think)
                    del self.inbox.messages[number]
        return self._insert(think) if self._placed else think

    async def _take(self, key: str, message: UserMessage, step: int, think: Think) -> None:
        entry = Entry(self._engine.run_id, key, step, message, message)
        taken = await self._engine.perform(entry, TakeMessage(self._engine))
        if taken["text"]:
            text = mark_lines(taken["text"])
            self._place(self._engine.run_spec.context.prompts.render("message", {"text": text}), think)

    def _place(self, text: str, think: Think) -> None:
        self._placed.append(PlacedText(text.strip(), think))

    def _insert(self, think: Think) -> Think:
        if think.prompt:
            prompt = think.prompt
            places = [(_find_place_in_prompt(each.first.prompt, prompt), each.text) for each in self._placed]
            for place, text in sorted(places, key=lambda each: each[0], reverse=True):
                prompt = f"{prompt[:place]}({text})\n{prompt[place:]}"
            return structs.replace(think, prompt=prompt)
        messages, inserted = think.messages, list[Message]()
        at = [(_find_place(each.first.messages, messages), each.text) for each in self._placed]
        for i in range(len(messages) + 1):
            inserted += [user(text) for place, text in at if place == i]
            inserted += messages[i : i + 1]
        return structs.replace(think, messages=tuple(inserted))


def _find_place(first: tuple[Message, ...], now: tuple[Message, ...]) -> int:
    """Return where messages have what came at the end of `first`: behind what both share, and before a reply."""
    shared = count_shared(first, now)
    while shared < min(len(first), len(now)) and now[shared].role != "assistant":
        shared += 1
    return shared


def _find_place_in_prompt(first: str, now: str) -> int:
    return now.rfind("\n", 0, count_shared(first, now)) + 1
