"""Computes the spending of a run by phase and model from its record. The rows add up to the run's totals exactly.

Plait rounds each call to whole billionths of a dollar and whole microseconds, then sums integers. `in_units` rounds a
total for display, and rounds the parts so that they add up to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from msgspec import Struct, structs

from plait.core import Usage
from plait.core.errors import ConfigError
from plait.journal.entries import CodeTurn, ModelCall, Moment, ToolCall
from plait.journal.timeline import Timeline
from plait.models.prices import NANO

MICRO = 1_000_000
TOOLS = "tools"
"""The phase of tool calls. Its `model` is "", so a loop's own phase of that name is a separate row."""
CODE = "code"
"""The phase of code, without the calls that the code waited for."""
UNKNOWN_COST = "?"


class PhaseSpending(Struct, frozen=True, omit_defaults=True):
    """The spending of one phase of a run on one model.

    `calls` are the replies that the loop received; `retries` are the attempts without a reply (refused, broken off),
    whose tokens are estimated from the bytes received. `usage` holds the tokens. `seconds` is the time of all attempts,
    in whole microseconds, without the pauses between them. `cost_usd` is in whole billionths, or None if a price is
    unknown; `costs_reported` are the replies whose cost the provider reported. Tool calls are one row with the phase
    "tools", the model "", no tokens and 0 USD. Code is one such row with the phase "code".
    """

    phase: str
    model: str
    calls: int = 0
    retries: int = 0
    usage: Usage = Usage()
    seconds: float = 0.0
    cost_usd: float | None = 0.0
    costs_reported: int = 0

    @property
    def is_work(self) -> bool:
        """Return whether this row counts tool calls or code, not a model."""
        return self.phase in (TOOLS, CODE) and not self.model

    @property
    def micros(self) -> int:
        return round(self.seconds * MICRO)

    @property
    def nanos(self) -> int | None:
        """Return the billionths of a dollar; None if a price is unknown."""
        return None if self.cost_usd is None else round(self.cost_usd * NANO)

    def json(self) -> dict[str, Any]:
        """Return the row as a JSON object."""
        return structs.asdict(self) | {"usage": structs.asdict(self.usage)}


def spending(timeline: Timeline) -> tuple[PhaseSpending, ...]:
    """Return what a run spent: a row for each phase and model, in the order of first use. Everything on record counts,
    like in the run's totals and limits: a resumed run includes its earlier spending, and a fork includes the cost of
    the steps that it took from its parent."""
    return merge_spending(part for moment in timeline.moments if (part := read_spending(moment)) is not None)


def read_spending(moment: Moment) -> PhaseSpending | None:
    """Return what a run spent at this moment, or None."""
    match moment.change, moment.entry:
        case "asked", ModelCall(phase=phase, model=model):
            return PhaseSpending(phase, model)
        case "responded", ModelCall(phase=phase, model=model, last=last) if (response := last.response) is not None:
            usage, cost = response.usage or Usage(), response.cost if response.usage is not None else 0.0
            return PhaseSpending(
                phase, model, 0, int(bool(response.error)), usage, _whole_micros(response.seconds), cost
            )
        case "replied", ModelCall(phase=phase, model=model, reply=reply) if reply is not None:
            return PhaseSpending(phase, model, 1, 0, reply.usage, 0.0, reply.cost, int(reply.cost_reported))
        case "ended", ToolCall(observation=observation) if observation is not None:
            return PhaseSpending(TOOLS, "", calls=1, seconds=_whole_micros(observation.seconds))
        case _, CodeTurn(ran=ran, code=code):
            return PhaseSpending(CODE, "", calls=int(code is not None), seconds=ran.seconds)
    return None


def _whole_micros(seconds: float) -> float:
    return round(seconds * MICRO) / MICRO


def merge_spending(parts: Iterable[PhaseSpending]) -> tuple[PhaseSpending, ...]:
    """Merge parts of the same phase and model into one row each, in the order of first use."""
    rows: dict[tuple[str, str], list[PhaseSpending]] = {}
    for part in parts:
        rows.setdefault((part.phase, part.model), []).append(part)
    return tuple(_sum(phase, model, each) for (phase, model), each in rows.items())


def in_all(rows: Iterable[PhaseSpending]) -> PhaseSpending:
    """Return the sum of the rows. `calls` and `retries` count models only; `seconds` include tools and code. Work that
    ran in parallel counts in full, so the seconds may exceed the clock's."""
    rows = tuple(rows)
    models = [row for row in rows if not row.is_work]
    calls, retries = sum(row.calls for row in models), sum(row.retries for row in models)
    return structs.replace(_sum("in all", "", rows), calls=calls, retries=retries)


def in_units(parts: Sequence[Fraction | int], unit: int) -> tuple[list[int], int]:
    """Return parts and total in whole units, so that the parts add up to the total. The total is rounded half to even.
    Each part is rounded down; the missing units then go to the parts that lost most, the first of equals first. So each
    part differs from its true value by less than one unit. Parts must be >= 0."""
    exact = [Fraction(part) / unit for part in parts]
    total = round(sum(exact, Fraction(0)))
    cut = [math.floor(part) for part in exact]
    lost = sorted(range(len(exact)), key=lambda i: (cut[i] - exact[i], i))
    for i in lost[: total - sum(cut)]:
        cut[i] += 1
    return cut, total


def round_spending(parts: Sequence[Fraction | int | None], unit: int, digits: int) -> tuple[list[str], str]:
    """Return parts and total as text that adds up. If a part is unknown, the total is too, and each is rounded
    alone."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        alone = [UNKNOWN_COST if part is None else _decimal(in_units([part], unit)[1], digits) for part in parts]
        return alone, UNKNOWN_COST
    units, total = in_units(known, unit)
    return [_decimal(each, digits) for each in units], _decimal(total, digits)


def _decimal(units: int, digits: int) -> str:
    whole, rest = divmod(units, 10**digits)
    return f"{whole}.{rest:0{digits}d}" if digits else str(whole)


def runs_until(hardware_usd: float | str | Decimal, saved: Fraction) -> int | None:
    """Return the runs until the hardware is paid if each saves this many billionths of a dollar; None for never. The
    result is exact: the smallest whole number of runs that save the price. Raises `ConfigError` if the price is not
    above 0."""
    try:
        price = Decimal(str(hardware_usd))
    except InvalidOperation:
        price = Decimal("NaN")
    if not price.is_finite() or price <= 0:
        raise ConfigError(f"The price of the hardware, {hardware_usd} USD, is invalid.", hint="Give a number above 0.")
    return math.ceil(Fraction(price) * NANO / saved) if saved > 0 else None


def break_even(hardware_usd: float, before: Fraction | None, after: Fraction | None) -> int | str:
    """Return `runs_until` for the costs of a run without and with the hardware: "never" for never, "?" if a cost is
    unknown (None)."""
    if before is None or after is None:
        return UNKNOWN_COST
    return runs_until(hardware_usd, before - after) or "never"


def _sum(phase: str, model: str, parts: Sequence[PhaseSpending]) -> PhaseSpending:
    costs = [part.nanos for part in parts]
    known = [cost for cost in costs if cost is not None]
    return PhaseSpending(
        phase,
        model,
        sum(part.calls for part in parts),
        sum(part.retries for part in parts),
        sum((part.usage for part in parts), Usage()),
        sum(part.micros for part in parts) / MICRO,
        sum(known) / NANO if len(known) == len(costs) else None,
        sum(part.costs_reported for part in parts),
    )
