"""What users send to a run that goes on: messages for the model, and requests to cancel a call.

The store keeps what was sent until the run takes it, so another process can send it and a crash loses nothing. A run
looks before each model call, and while a call takes long. A run of this process is told at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct, structs

from plait.core.errors import JournalError, PlaitError
from plait.journal import codec
from plait.journal.records import ResultRecord
from plait.journal.store import ACTIVE, Store, read_timeline
from plait.tools.render import replace_surrogates

KIND = "sent"
"""The kind under which a store keeps what was sent to a run, by the run's id and a number."""
MAY_GO_ON = ACTIVE | {"interrupted"}
"""The statuses of a run that takes messages, now or when it goes on."""
PAGE = 8
"""Items that are looked for at once."""
LOOKS = 0.25
"""Seconds: a younger run does not look in its store, and a long call makes a run look this often."""
LONGEST = 20_000
"""Characters of a message."""


class NotTaken(PlaitError):
    """A run takes no message, or has no such call: it has ended, or the call has."""


class Sent(Struct, frozen=True, omit_defaults=True):
    """Something that a user sent: the `text` of a message, or the key of a `call` to cancel. `by` is the user's name,
    `at` when (seconds since 1970)."""

    text: str = ""
    call: str = ""
    by: str = ""
    at: float = 0.0


_OPEN = WeakValueDictionary[str, "Inbox"]()
"""The inboxes of the runs that this process performs."""


class Inbox:
    """What was sent to one run. `taken` are the numbers of the messages on its record. `looks_first`: something may
    have been sent before this process began with the run."""

    def __init__(self, store: Store | None, run: str, taken: set[int], *, looks_first: bool) -> None:
        self._store, self.run = store, run
        self._due, self._begun, self._next = looks_first, time.monotonic(), 0
        self._taken, self._looking = taken, asyncio.Lock()
        self.messages: dict[int, Sent] = {}
        """The messages that the run has not taken yet, by number."""
        self.loop = asyncio.get_running_loop()
        self.calls: dict[str, Callable[[str], None]] = {}
        """The calls under way, each with what cancels it for a user of this name."""
        self._early: dict[str, str] = {}
        """The calls to cancel that are about to begin, or to go on, each with the user's name."""
        self._watching: asyncio.Task[None] | None = None
        _OPEN[run] = self

    async def look(self) -> None:
        """Read what was sent since the last look, if the run is old enough or was told that something came. Where the
        store can't be read now, the next write of the run says so."""
        is_due = self._due or self._looking.locked() or time.monotonic() - self._begun >= LOOKS
        if self._store is None or not is_due:
            return
        async with self._looking:  # another look may be under way, or be given up
            self._due = False
            try:
                for sent in await _read_sent(self._store, self.run, self._next):
                    self.put(sent)
            except JournalError:
                self._due = True
            except BaseException:
                self._due = True  # the call that made it look has ended
                raise

    def put(self, sent: Sent) -> int:
        """Take something that was sent. Returns its number."""
        number, self._next = self._next, self._next + 1
        if sent.text and number not in self._taken:
            self.messages[number] = sent
        elif sent.call and sent.call in self.calls:
            self.calls[sent.call](sent.by)
        elif sent.call:
            self._early[sent.call] = sent.by
        return number

    def wake(self) -> None:
        """Look again soon: something came."""
        self._due = True
        if self.calls and (self._watching is None or self._watching.done()):
            self._watching = asyncio.ensure_future(self._watch(0.0))

    def begin_call(self, key: str, cancel: Callable[[str], None]) -> asyncio.TimerHandle:
        """Have a call cancelled when a user wants that. Returns what `end_call` gets."""
        self.calls[key] = cancel
        if key in self._early:
            cancel(self._early.pop(key))
        return self.loop.call_later(LOOKS, self.wake)

    def end_call(self, key: str, watch: asyncio.TimerHandle) -> None:
        """End what `begin_call` began."""
        watch.cancel()
        self.calls.pop(key, None)
        if not self.calls and self._watching is not None:
            self._watching.cancel()

    async def _watch(self, seconds: float) -> None:
        while self.calls:
            await asyncio.sleep(seconds)
            await self.look()
            seconds = LOOKS

    def close(self) -> None:
        """Take nothing more."""
        _OPEN.pop(self.run, None)
        if self._watching is not None:
            self._watching.cancel()


def _name(run: str, number: int) -> str:
    return f"{run} {number}"


async def _read_sent(store: Store, run: str, start: int = 0) -> list[Sent]:
    """Return what was sent, from a number on; an empty `Sent` for what a damaged journal, or one from elsewhere, has
    there."""
    found: list[Sent] = []
    while True:
        kept = await store.list_kept(KIND, [_name(run, start + len(found) + i) for i in range(PAGE)])
        for each in kept:
            try:
                found.append(msgspec.json.decode(each.data, type=Sent))
            except msgspec.MsgspecError:
                found.append(Sent())
        if len(kept) < PAGE:
            return found


async def send(store: Store | None, run: str, sent: Sent) -> int:
    """Send something to a run that is queued, goes on or waits. Returns its number, by which `list_messages` names it.

    Raises `NotTaken` if the run is over, also if it ends meanwhile without having taken a message; `UnknownRun`."""
    if sent.text and len(sent.text) > LONGEST:
        raise NotTaken(f"The message has more than {LONGEST:,} characters.", hint="Send a shorter one.")
    if bool(sent.text.strip()) == bool(sent.call):
        raise NotTaken("The message is empty, or names a call, too.", hint="Send a text, or name a call to cancel.")
    sent = structs.replace(sent, text=replace_surrogates(sent.text), by=replace_surrogates(sent.by), at=time.time())
    inbox = _OPEN.get(run)
    if store is None:
        if inbox is None:
            raise NotTaken(f"Run {run} does not go on in this process, and has no journal.")
        inbox.loop.call_soon_threadsafe(inbox.put, sent)
        return 0
    _require_active(run, (await store.find_run(run)).status)
    if sent.call:
        calls = (await read_timeline(store, run, bodies=False)).tool_calls
        if not any(each.key == sent.call and each.begun and each.observation is None for each in calls):
            raise NotTaken(f"Run {run} has no call {sent.call} that goes on.", hint="It may have ended meanwhile.")
    data = codec.encode(sent)
    for number in count(len(await _read_sent(store, run))):
        await store.keep(KIND, key := _name(run, number), run, data, replace=False)
        if (await store.list_kept(KIND, [key]))[0].data == data:
            break  # else another user was faster
    if inbox is not None:
        inbox.loop.call_soon_threadsafe(inbox.wake)
    status = (await store.find_run(run)).status
    if status not in MAY_GO_ON and sent.text and number not in await _taken(store, run):
        await store.keep(KIND, key, run, codec.encode(Sent()))  # the number stays, the message goes
        _require_active(run, status)
    return number


def _require_active(run: str, status: str) -> None:
    if status not in MAY_GO_ON:
        hint = "Ask again: in a session, the next turn sees this one."
        raise NotTaken(f"Run {run} is over ({status}): it takes no message.", hint=hint)


async def _taken(store: Store, run: str) -> dict[int, int]:
    """Return the numbers of the messages that a run has taken, with their steps; of a fork only its own."""
    fork_at = (await store.find_run(run)).head.fork_at
    records = [row.record for row in await store.read_rows(run, bodies=False) if row.record.step >= fork_at]
    found = [each for each in records if isinstance(each, ResultRecord) and each.work == "message"]
    return {each.value["number"]: each.step for each in found}


async def list_messages(store: Store, run: str) -> list[dict[str, Any]]:
    """Return the messages that were sent to a run, in order, each with its number and its `state`: "taken" in a `step`,
    "waiting" for the next model call, or "late": the run has ended without it."""
    status, taken = (await store.find_run(run)).status, await _taken(store, run)
    found: list[dict[str, Any]] = []
    for number, sent in enumerate(await _read_sent(store, run)):
        state = "waiting" if status in MAY_GO_ON else "late"
        known = {"state": "taken", "step": taken[number]} if number in taken else {"state": state}
        if sent.text:
            found.append({"number": number, "text": sent.text, "by": sent.by, "at": sent.at, **known})
    return found
