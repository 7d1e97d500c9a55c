"""The sums of a run and its child runs."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, convert, structs

from plait.core import Usage
from plait.journal.records import RunRow
from plait.journal.store import Store, list_children, read_timeline
from plait.journal.timeline import Timeline
from plait.models.prices import total
from plait.runtime.costs import in_all, spending


class Spent(Struct, frozen=True):
    """What one or several runs used. `requests` counts requests to models, failed ones included; `calls` the replies.

    `cost_usd` is None if a price is unknown. `tool_calls` counts calls that began.
    """

    runs: int = 0
    requests: int = 0
    calls: int = 0
    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    tool_calls: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.runs + other.runs,
            self.requests + other.requests,
            self.calls + other.calls,
            self.usage + other.usage,
            total([self.cost_usd, other.cost_usd]),
            self.tool_calls + other.tool_calls,
        )

    def json(self) -> dict[str, Any]:
        """Return the sums as a run's totals hold them."""
        sums = {"runs": self.runs, "calls": self.calls, "requests": self.requests, "tool_calls": self.tool_calls}
        return {**sums, **structs.asdict(self.usage), "cost_usd": self.cost_usd}


def spent_in(totals: dict[str, Any]) -> Spent:
    """Return what a run and its child runs used, from its recorded totals. Totals that it lacks are 0."""
    whole = totals.get("tree") or totals
    return convert({"runs": 1, **whole, "usage": whole}, Spent)


async def read_spent(store: Store, row: RunRow) -> Spent:
    """Return what a run and its child runs used so far; of a run that goes on, what its record says."""
    spent, rows = Spent(), [row]
    for each in rows:
        if each.outcome is not None:
            spent += spent_in(each.totals)
        else:
            spent += sum_record(await read_timeline(store, each.head.run, bodies=False))
            rows += await list_children(store, each.head.run)
    return spent


def sum_record(timeline: Timeline) -> Spent:
    """Return what a run itself used by its record, without its child runs. An attempt that only began is a request."""
    whole = in_all(spending(timeline))
    tool_calls = sum(call.begun for call in timeline.tool_calls)
    return Spent(1, len(timeline.attempts), whole.calls, whole.usage, whole.cost_usd, tool_calls)
