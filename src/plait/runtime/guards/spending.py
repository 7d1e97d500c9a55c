"""The guard of spend limits: what all runs together spend in a day or month.

Theory of operation. Each request to a model reserves the most that it may take, in the journal's counters of all limits
that hold for it. If only what other requests hold is in its way, it waits for them. Once its model call has its reply,
what it took replaces the reservation. A request in doubt may have been paid, so all that it held is spent. A run that
goes on finds what its earlier process held: the entries on record were sent, others were not."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from msgspec import UNSET, structs

from plait.core import Reply, Think, Usage
from plait.core.errors import JournalError
from plait.journal.records import LOST, RunHead
from plait.journal.spending import Reservation, SpendAmount, SpendBound, SpendCounter
from plait.journal.store import Store
from plait.models.base import Model
from plait.models.prices import NANO
from plait.runtime.guard import SPENDING, Attempt, Entry, Guard, LimitReached
from plait.runtime.guards.limits import SMALLEST_REPLY
from plait.runtime.spend_limits import SpendLimit
from plait.runtime.tally import Tally

LONGEST_REPLY = 8192
"""Tokens of a reply whose length nobody has limited."""
PATIENCE = 20.0
"""Seconds for which a request waits for what others hold."""
MOST = 1 << 50
"""What one reply can count: an endpoint may report any number."""


class SpendGuard(Guard):
    """The spend limits of one run, and those of the runs above it. `store` has the counters. `is_child`: it does not
    count as a run. `is_new`: no earlier process has performed it."""

    name = "spend"
    order = SPENDING
    holds_text = may_ask = False

    def __init__(
        self,
        limits: Iterable[Any],
        store: Store | None,
        tally: Tally,
        head: RunHead | None,
        scrub: Callable[[bytes], bytes],
        *,
        is_child: bool,
        is_new: bool,
    ) -> None:
        self._store, self._tally, self._scrub = store, tally, scrub
        self._counts, self._is_new = not is_child, is_new
        self._who = (head.user, [head.agent], head.tags) if head is not None else ("", [""], ())
        self._given: dict[SpendLimit, None] = {}
        self._limits: dict[tuple[SpendLimit, tuple[str | None, ...]], None] = {}
        """Each with whose it is."""
        self._held: dict[tuple[str, str], Reservation] = {}
        """By attempt, and by model call once it has its reply."""
        self._asking: dict[str, list[int]] = {}
        """By the key of an attempt: the tokens of its prompt, and how often its reply was shortened."""
        self._begun: set[str] = set()
        """The keys of the attempts on record."""
        self._first = ""
        """The key of the attempt with which the run counts."""
        self._finding: asyncio.Future[dict[str, Reservation]] | None = None
        self._tasks: set[asyncio.Future[None]] = set()
        self._add(limits)

    def _add(self, limits: Iterable[SpendLimit]) -> None:
        self._given |= dict.fromkeys(limits)
        for limit in limits:
            self._limits |= {(limit, tuple(map(self._mask, each))): None for each in limit.list_whose(*self._who)}
        self._has_usd = any(limit.usd is not None for limit, _ in self._limits)
        self._has_amounts = self._has_usd or any(limit.tokens is not None for limit, _ in self._limits)
        self.points, self.points_after = ((Attempt,), (Attempt, Think)) if self._limits else ((), ())

    def _mask(self, name: str | None) -> str | None:
        """Return a name as it may be stored: one with a secret is still told from others."""
        given = (name or "").encode("utf-8", "replace")
        if (stored := self._scrub(given)) == given:
            return name
        return f"{stored.decode('utf-8', 'replace')} {hashlib.blake2b(given, digest_size=6).hexdigest()}"

    def for_child(self, own: Guard | None) -> Guard | None:
        """Let a child run obey these limits, as part of this run and by the name of its own agent."""
        if isinstance(own, SpendGuard):
            own._store = own._store or self._store
            if own._store is self._store:  # a tool may run an agent with another journal, which counts by itself
                own._limits |= self._limits
                own._add(self._given)
        return own

    def recall(self, entry: Entry, result: Any) -> None:
        if isinstance(entry.effect, Attempt):
            self._begun.add(entry.key)

    async def _find_left(self, run: str) -> dict[str, Reservation]:
        """Return what an earlier process held for attempts on record, by key. What it held for others is free again: an
        attempt is sent only when it is on record."""

        async def find() -> dict[str, Reservation]:
            assert self._store is not None
            found = [] if self._is_new else await self._store.list_reserved(run)
            for each in found:
                if each.key not in self._begun:
                    await self._store.settle(each.id, SpendAmount())
            return {each.key: each for each in found if each.key in self._begun}

        self._finding = self._finding or asyncio.ensure_future(find())
        return await asyncio.shield(self._finding)

    # -- before a request

    async def before(self, entry: Entry) -> Any:
        """Reserve what an attempt may take. Return it with a shorter reply if a limit has no room for all of it. Raises
        `LimitReached`."""
        attempt, store, key = entry.effect, self._store, entry.key
        assert store is not None
        model, wanted = attempt.model, attempt.max_tokens
        if self._has_usd and not model.rate.is_known:
            raise LimitReached("spend", f"a limit in USD is set, but the price of {model.spec} is not known")
        estimate = self._tally.estimate.prompt_tokens(model, attempt.body)
        asking = self._asking.setdefault(key, [estimate, 0])
        if wanted is None and self._has_amounts:
            most = getattr(getattr(model, "settings", None), "max_tokens", UNSET)
            return replace(attempt, max_tokens=LONGEST_REPLY if most is UNSET else most)  # and it comes here again
        await self._find_left(entry.run)
        prompt, reply = asking[0], wanted or 0
        runs = int(self._counts and not self._begun and self._first in ("", key))
        self._first = key if runs else self._first
        amount = SpendAmount(_find_most(model, prompt, reply), prompt + reply, runs)
        asked = Reservation(uuid.uuid4().hex, entry.run, key, amount)
        until, pause = time.monotonic() + PATIENCE, 0.05
        while True:
            bounds = self._list_bounds()
            reserving = asyncio.ensure_future(store.reserve(asked, list(bounds.values())))
            try:
                found = await asyncio.shield(reserving)
            except BaseException:  # it may be reserved all the same
                self._give_back(asked, reserving)
                raise
            if not found:
                break
            room, why = min(_find_room(model, prompt, amount, each, bounds[each.name]) for each in found)
            if SMALLEST_REPLY <= room < reply and asking[1] < 2:
                asking[1] += 1
                return replace(attempt, max_tokens=room)
            if room < reply or not reply or time.monotonic() > until:
                self._forget(key)
                raise LimitReached("spend", why)
            await asyncio.sleep(pause)
            pause = min(2 * pause, 1.0)
        self._held[entry.id] = asked
        return attempt

    def _list_bounds(self) -> dict[str, SpendBound]:
        """Return the limits at this time; of several for one counter, the smallest."""
        now, found = time.time(), dict[str, SpendBound]()
        for limit, whose in self._limits:
            bound = limit.make_bound(whose, now)
            other = structs.asdict(found.get(bound.name, bound))
            for name, value in structs.asdict(bound).items():
                if name.startswith("most") and other[name] is not None and (value is None or other[name] < value):
                    bound = structs.replace(bound, **{name: other[name]})
            found[bound.name] = bound
        return found

    def _forget(self, key: str) -> None:
        self._asking.pop(key, None)
        self._first = "" if self._first == key else self._first

    # -- after it

    async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
        """Count what a request took. That of a reply is known when its model call has ended."""
        if isinstance(entry.effect, Attempt):
            self._asking.pop(entry.key, None)
            held = self._held.pop(entry.id, None) or (await self._find_left(entry.run)).pop(entry.key, None)
            if held is not None and not result.error:
                self._held[entry.run, entry.key.rpartition("a")[0]] = held
            elif held is not None:
                usage, amount = result.usage or Usage(), held.amount
                # Cancelled or out of time: it was sent, and nothing says what it took.
                is_in_doubt = result.error == LOST or (usage.estimated and not usage.output_tokens)
                used = (amount.usd, amount.tokens) if is_in_doubt else (_nano(result.cost), usage.tokens)
                await self._settle(entry, held, *used)
        elif isinstance(result, Reply) and (held := self._held.pop(entry.id, None)) is not None:
            await self._settle(entry, held, _nano(result.cost), result.usage.tokens)
        return result

    async def _settle(self, entry: Entry, held: Reservation, usd: float, tokens: float) -> None:
        assert self._store is not None
        used = SpendAmount(int(min(MOST, max(0, usd))), int(min(MOST, max(0, tokens))), held.amount.runs)
        await self._store.settle(held.id, used)
        usd, tokens = used.usd - held.amount.usd, used.tokens - held.amount.tokens
        if max(usd, tokens) > 0:
            more = f"{max(0, tokens):,} tokens and {max(0, usd) / NANO:.5f} USD"
            entry.remark("spend", f"The request took {more} more than was reserved for it in its spend limits.")

    def release(self, entry: Entry) -> None:
        """Give back what an attempt held that was not sent. One that may have been sent keeps it until the run goes
        on."""
        if isinstance(entry.effect, Attempt) and not entry.begun:
            self._forget(entry.key)
            if (held := self._held.pop(entry.id, None)) is not None:
                self._give_back(held)

    def _give_back(self, held: Reservation, *after: asyncio.Future[Any]) -> None:
        async def settle() -> None:
            assert self._store is not None
            with suppress(JournalError):
                await asyncio.gather(*after, return_exceptions=True)
                await self._store.settle(held.id, SpendAmount())

        task = asyncio.ensure_future(settle())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _nano(cost: float | None) -> float:
    return (cost or 0.0) * NANO + 0.5


def _find_most(model: Model, prompt: int, reply: int) -> int:
    """Return the most billionths of a dollar that a request may cost: all of its prompt may be written to a cache."""
    costs = [model.rate.cost(Usage(prompt, reply, cache_write_tokens=written)) or 0.0 for written in (0, prompt)]
    return math.ceil(max(costs) * NANO)


def _find_room(
    model: Model, prompt: int, amount: SpendAmount, counter: SpendCounter, bound: SpendBound
) -> tuple[int, str]:
    """Return the tokens of a reply for which what is spent of a limit leaves room (-1: none), and why no more."""
    per, _, zone, *whose = json.loads(bound.name)
    rooms, reply = [(MOST, "")], amount.tokens - prompt
    if bound.most_runs is not None and amount.runs and counter.runs >= bound.most_runs:
        rooms.append((-1, f"{counter.runs} of {bound.most_runs} runs have begun"))
    if bound.most_tokens is not None:
        said = f"{counter.tokens:,} of {bound.most_tokens:,} tokens are spent, {counter.held_tokens:,} reserved"
        room = bound.most_tokens - counter.tokens - prompt
        rooms.append((room, f"{said}, and the next request may take {amount.tokens:,}"))
    if bound.most_usd is not None:
        base, left = _find_most(model, prompt, 0), bound.most_usd - counter.usd
        price = (amount.usd - base) / reply if reply else 0
        fits = MOST if price <= 0 else int((left - base - 2) / price)
        usd = [f"{each / NANO:.5f}" for each in (counter.usd, bound.most_usd, counter.held_usd, amount.usd)]
        said = f"{usd[0]} of {usd[1]} USD are spent, {usd[2]} reserved, and the next request may cost {usd[3]}"
        rooms.append((fits if base <= left else -1, said))
    room, why = min(rooms)
    names = [f"{kind} {name!r}" for kind, name in zip(("user", "agent", "tag"), whose, strict=True) if name is not None]
    ends = datetime.fromtimestamp(bound.until, ZoneInfo(zone)).isoformat(" ", "minutes")
    return room, f"the limit per {per} of {' with '.join(names) or 'all runs'} is reached: {why}. It ends at {ends}"
