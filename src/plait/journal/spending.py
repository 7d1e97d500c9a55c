"""What a store knows of spend limits: counters, and what requests under way have reserved.

Theory of operation. A counter has what was spent of a limit in one day or month. A request reserves the most that it
may take in all counters that it concerns, or in none, in one step that no client can hold open. So what is spent and
what is reserved never exceed a limit when a request is sent. When its reply is known, what it took replaces the
reservation. A reservation has an id of its own, so both steps can be done again after a lost answer. One that a process
left behind stays, because nobody knows whether the request was paid; a resumed run finds it by its key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct


class SpendAmount(Struct, frozen=True):
    """What a request takes: `usd` in billionths, tokens, and 1 for `runs` if it is the first of its run."""

    usd: int = 0
    tokens: int = 0
    runs: int = 0


class SpendBound(Struct, frozen=True):
    """The most that a counter may reach; None for no limit. `name` is a JSON list: `day` or `month`, its first day, its
    zone, and whose it is: user, agent and tag. `until` is when the day or month ends."""

    name: str
    until: float
    most_usd: int | None = None
    most_tokens: int | None = None
    most_runs: int | None = None


class SpendCounter(SpendBound, frozen=True):
    """A counter, with its bound at the last request. `held_...` is reserved, `beyond_...` is what requests took beyond
    their reservations."""

    usd: int = 0
    tokens: int = 0
    runs: int = 0
    held_usd: int = 0
    held_tokens: int = 0
    beyond_usd: int = 0
    beyond_tokens: int = 0

    def has_room(self, bound: SpendBound, amount: SpendAmount) -> bool:
        """Return whether an amount can be reserved."""
        return (
            (bound.most_usd is None or self.usd + self.held_usd + amount.usd <= bound.most_usd)
            and (bound.most_tokens is None or self.tokens + self.held_tokens + amount.tokens <= bound.most_tokens)
            and (bound.most_runs is None or amount.runs == 0 or self.runs + amount.runs <= bound.most_runs)
        )


class Reservation(Struct, frozen=True):
    """What a request holds until its reply is known."""

    id: str
    run: str
    key: str
    amount: SpendAmount


class SpendingStore(Protocol):
    """The part of a store that spend limits need."""

    async def reserve(self, asked: Reservation, bounds: Sequence[SpendBound]) -> list[SpendCounter]:
        """Reserve in all counters, and return none; or in none, if one has no room, and return them all."""
        ...

    async def settle(self, id: str, used: SpendAmount) -> None:
        """Replace a reservation by what was used. Does nothing if it is settled already."""
        ...

    async def list_reserved(self, run: str) -> list[Reservation]:
        """Return what requests of a run still hold."""
        ...

    async def list_counters(self, since: float) -> list[SpendCounter]:
        """Return the counters whose periods end after a time, by name."""
        ...
