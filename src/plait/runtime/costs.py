"""What a run spent, by phase and model: read off its record, so that the rows add up to the run's totals exactly.

Theory of operation. Money is summed in whole billionths of a dollar and time in whole microseconds, each call
rounded once and before any sum; sums of integers don't depend on their order. What is shown in fewer digits
goes through `in_units`: the total is rounded, and the parts are rounded so that they add up to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from msgspec import Struct

from plait.core import Usage
from plait.core.errors import ConfigError
from plait.journal.timeline import CodeTurn, ModelCall, Moment, Timeline, ToolCall
from plait.models.prices import NANO

MICRO = 1_000_000
TOOLS = "tools"
"""The phase under which tool calls stand; its `model` is "" (so a loop's own phase of that name is another row)."""
CODE = "code"
"""The same for pieces of code, without the calls that they waited for."""
UNKNOWN_COST = "?"


class PhaseSpending(Struct, frozen=True, omit_defaults=True):
    """What one phase of a run spent on one model.

    `calls` are the replies the loop was given; `retries` the attempts that brought none (refused, broken off), whose
    tokens are estimated from what was received. `usage` has the tokens, `seconds` is the time of all attempts, to the
    microsecond, without the pauses between them. `cost_usd` is to the billionth, None where a call's price is
    not known. Tool calls are one row with the phase "tools" and the model "": no tokens, 0 USD; so are pieces of code.
    """

    phase: str
    model: str
    calls: int = 0
    retries: int = 0
    usage: Usage = Usage()
    seconds: float = 0.0
    cost_usd: float | None = 0.0

    @property
    def is_work(self) -> bool:
        """This is the row of the tool calls, or of the code: no model was asked."""
        return self.phase in (TOOLS, CODE) and not self.model

    @property
    def micros(self) -> int:
        """Microseconds."""
        return round(self.seconds * MICRO)

    @property
    def nanos(self) -> int | None:
        """Billionths of a dollar; None where a price is not known."""
        return None if self.cost_usd is None else round(self.cost_usd * NANO)

    def json(self) -> dict[str, Any]:
        """The row as JSON has it."""
        usage = self.usage
        return {
            "phase": self.phase,
            "model": self.model,
            "calls": self.calls,
            "retries": self.retries,
            "usage": {name: getattr(usage, name) for name in usage.__struct_fields__},
            "seconds": self.seconds,
            "cost_usd": self.cost_usd,
        }


def spending(timeline: Timeline) -> tuple[PhaseSpending, ...]:
    """What a run spent, a row for each phase and model in the order of their first use.

    Everything on record counts, whoever wrote it: a resumed run has what it spent before, and a fork has what the steps
    it took from its parent had cost, as its totals and its limits have.
    """
    return merge_spending(part for moment in timeline.moments if (part := read_spending(moment)) is not None)


def read_spending(moment: Moment) -> PhaseSpending | None:
    """What a run spent at that moment; None if it is none at which a run spends."""
    match moment.change, moment.entry:
        case "asked", ModelCall(phase=phase, model=model):
            return PhaseSpending(phase, model)
        case "responded", ModelCall(phase=phase, model=model, last=last) if (response := last.response) is not None:
            usage, cost = response.usage or Usage(), response.cost if response.usage is not None else 0.0
            return PhaseSpending(
                phase, model, 0, int(bool(response.error)), usage, _whole_micros(response.seconds), cost
            )
        case "replied", ModelCall(phase=phase, model=model, reply=reply) if reply is not None:
            return PhaseSpending(phase, model, calls=1, usage=reply.usage, cost_usd=reply.cost)
        case "ended", ToolCall(observation=observation) if observation is not None:
            return PhaseSpending(TOOLS, "", calls=1, seconds=_whole_micros(observation.seconds))
        case _, CodeTurn(ran=ran, code=code):
            return PhaseSpending(CODE, "", calls=int(code is not None), seconds=ran.seconds)
    return None


def _whole_micros(seconds: float) -> float:
    return round(seconds * MICRO) / MICRO


def merge_spending(parts: Iterable[PhaseSpending]) -> tuple[PhaseSpending, ...]:
    """Parts of the same phase and model as one row each, in the order of their first use."""
    rows: dict[tuple[str, str], list[PhaseSpending]] = {}
    for part in parts:
        rows.setdefault((part.phase, part.model), []).append(part)
    return tuple(_sum(phase, model, each) for (phase, model), each in rows.items())


def in_all(rows: Iterable[PhaseSpending]) -> PhaseSpending:
    """The sum of the rows. `calls` and `retries` are those of models; `seconds` count tools and code too.

    What ran side by side is counted each for itself, so the seconds may be more than the clock's.
    """
    rows = tuple(rows)
    whole, models = _sum("in all", "", rows), [row for row in rows if not row.is_work]
    return PhaseSpending(
        whole.phase,
        whole.model,
        sum(row.calls for row in models),
        sum(row.retries for row in models),
        whole.usage,
        whole.seconds,
        whole.cost_usd,
    )


def in_units(parts: Sequence[Fraction | int], unit: int) -> tuple[list[int], int]:
    """Parts and their total in whole units, so that the parts add up to the total.

    The total is the true one, rounded (half to even). Each part is cut to whole units, and the units that are
    then missing go to the parts that lost most by it, the first of equals first: each part differs from its true
    value by less than one unit. Parts are 0 or more.
    """
    exact = [Fraction(part) / unit for part in parts]
    total = round(sum(exact, Fraction(0)))
    cut = [math.floor(part) for part in exact]
    lost = sorted(range(len(exact)), key=lambda i: (cut[i] - exact[i], i))
    for i in lost[: total - sum(cut)]:
        cut[i] += 1
    return cut, total


def round_spending(parts: Sequence[Fraction | int | None], unit: int, digits: int) -> tuple[list[str], str]:
    """Parts and total as text that adds up. Where a part is not known, nor is the total, and each is rounded alone."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        alone = [UNKNOWN_COST if part is None else _decimal(in_units([part], unit)[1], digits) for part in parts]
        return alone, UNKNOWN_COST
    units, total = in_units(known, unit)
    return [_decimal(each, digits) for each in units], _decimal(total, digits)


def _decimal(units: int, digits: int) -> str:
    whole, rest = divmod(units, 10**digits)
    return f"{whole}.{rest:0{digits}d}" if digits else str(whole)


def paid_back(hardware_usd: float | str | Decimal, baseline_usd: float | None, other_usd: float | None) -> int | None:
    """After how many runs a price of hardware is paid by what each run costs less; None: never.

    `baseline_usd` is what a run costs without the hardware, `other_usd` what it costs with it. Exact: the
    smallest whole N with N x (baseline - other) >= hardware. Raises `ConfigError` where a cost is None (its
    price is not known), and for a price of hardware that is not above 0.
    """
    if baseline_usd is None or other_usd is None:
        raise ConfigError(
            "When the hardware is paid can't be told: a price is not known.",
            hint="Give it in plait.toml: [prices] or, for models on this machine, [electricity].",
        )
    return runs_until(hardware_usd, Fraction(round(baseline_usd * NANO) - round(other_usd * NANO)))


def runs_until(hardware_usd: float | str | Decimal, saved: Fraction) -> int | None:
    """The runs until the hardware is paid, each of which saves that many billionths of a dollar; None: never."""
    try:
        price = Decimal(str(hardware_usd))
    except InvalidOperation:
        price = Decimal("NaN")
    if not price.is_finite() or price <= 0:
        raise ConfigError(f"Hardware for {hardware_usd} USD can't be.", hint="Give a number above 0.")
    return math.ceil(Fraction(price) * NANO / saved) if saved > 0 else None


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
    )
