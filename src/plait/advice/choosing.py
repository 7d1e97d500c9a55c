"""A demand, the rows of a comparison held against it, and the cheapest that meets it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, structs

from plait.advice.certainty import more_tasks, sure
from plait.advice.rows import Row, rows_of
from plait.core.errors import UsageError
from plait.loops import loop_from

FEW, UNSURE = 10, 0.8
"""Fewer tasks than this, or less sure than this, is thin evidence, and said to be."""


class Demand(Struct, frozen=True):
    """What is asked of a loop with its models.

    `at_least` is the least share of tasks done right, from 0 to 1. `usd` and `tokens` (in and out) are the most a run
    may take in the mean, `seconds` the most in the median; None asks nothing. `include_changed` accepts rows of which a
    run continued as another loop, or wrote its tool calls as text.
    """

    at_least: float = 0.8
    usd: float | None = None
    seconds: float | None = None
    tokens: float | None = None
    include_changed: bool = False

    def __post_init__(self) -> None:
        if not _number(self.at_least) or not 0 <= self.at_least <= 1:
            raise UsageError(f"at_least is {self.at_least!r}.", hint="Give a share from 0 to 1, such as 0.8.")
        for name in ("usd", "seconds", "tokens"):
            value = getattr(self, name)
            if value is not None and not (_number(value) and math.isfinite(value) and value >= 0):
                raise UsageError(f"{name} is {value!r}.", hint="Give a number from zero up, or None.")


class Candidate(Struct, frozen=True):
    """A row held against a demand: how sure it is that its share is high enough, and what it misses.

    `misses` has those of "success", "usd", "price" (not known, where a budget was set), "seconds", "tokens", "runs"
    (there are none), "changed" (some were of another loop, or wrote calls as text) and "here" that hold. `unusable`
    says why this installation can't run it.
    """

    row: Row
    sure: float
    misses: tuple[str, ...] = ()
    unusable: str = ""


class Advice(Struct, frozen=True, kw_only=True):
    """The cheapest row that meets the demand (`chosen`, None where none does), and what there was besides.

    `candidates` are all rows, the cheapest first: by USD, those of unknown price behind; of equal price by tokens, then
    by seconds. `runner_up` is the next that meets the demand too. `cheaper` are those that cost less and did too few
    tasks, though each may be better than that by its `sure`. `nearest` has, where none meets the demand, for its parts
    ("success", "usd", ...) the row that misses only this one and comes nearest. `more_tasks` is about how many more
    make it 95 % sure if the share stays; None where no number does. `name`, `suite` and `digest` say which results
    these were.
    """

    demand: Demand
    name: str
    suite: str
    digest: str
    candidates: tuple[Candidate, ...]
    chosen: Candidate | None = None
    runner_up: Candidate | None = None
    cheaper: tuple[Candidate, ...] = ()
    nearest: dict[str, Candidate] = {}
    more_tasks: int | None = None
    unfinished: str = ""

    @property
    def thin(self) -> bool:
        """The evidence for the chosen row is thin: few tasks, or less than 80 % sure."""
        if self.chosen is None:
            return False
        return self.chosen.row.evidence[1] < FEW or self.chosen.sure < UNSURE

    def __str__(self) -> str:
        from plait.advice.telling import sentences

        return "\n".join(sentences(self))

    def record(self) -> dict[str, Any]:
        """What the settings of a run keep whose loop was chosen by it: from which results, by which demand."""
        from plait.advice.telling import as_record

        return as_record(self)

    def json(self) -> dict[str, Any]:
        """As `plait advise --json` prints it."""
        from plait.advice.telling import as_object

        return as_object(self)


def advise(
    results: object,
    demand: Demand | None = None,
    *,
    at_least: float | None = None,
    usd: float | None = None,
    seconds: float | None = None,
    tokens: float | None = None,
    include_changed: bool | None = None,
    only: Mapping[str, str] | None = None,
    journal: object = None,
) -> Advice:
    """The cheapest loop and models that meet a demand, by what a comparison found.

    `results` are what `rows_of` reads: a file, a mapping, anything with `rows`, or a name in `journal`; an advice
    stands for what it was made from. The demand is a value, or said in its parts; 80 % of the tasks where nothing is
    said. `only` takes only rows with these models: by phase, "" for every other. Raises `UsageError` for results and
    demands that can't be understood, and where `only` leaves no row.
    """
    parts = {"at_least": at_least, "usd": usd, "seconds": seconds, "tokens": tokens, "include_changed": include_changed}
    said = {name: value for name, value in parts.items() if value is not None}
    wanted = structs.replace(demand or Demand(), **said)
    if isinstance(results, Advice):
        source, rows = results, tuple(each.row for each in results.candidates)
    else:
        found = rows_of(results, journal)
        source, rows = found, found.rows  # type: ignore[assignment]
    kept = [row for row in rows if only is None or _has(row, only)]
    if not kept:
        told = ", ".join(f"{phase}={model}" if phase else model for phase, model in (only or {}).items())
        there = ", ".join(dict.fromkeys(f"{row.strategy} with {row.who}" for row in rows))
        raise UsageError(f"{source.name} has no row with the model {told}.", hint=f"There are: {there}.")
    held = sorted((_held(row, wanted) for row in kept), key=_price)
    meeting = [each for each in held if not each.misses]
    chosen = meeting[0] if meeting else None
    before = held[: held.index(chosen)] if chosen is not None else []
    return Advice(
        demand=wanted,
        name=source.name,
        suite=source.suite,
        digest=source.digest,
        candidates=tuple(held),
        chosen=chosen,
        runner_up=meeting[1] if len(meeting) > 1 else None,
        cheaper=tuple(each for each in before if each.misses == ("success",)),
        nearest={} if meeting else _nearest(held, wanted),
        more_tasks=more_tasks(chosen.row.success, chosen.row.evidence[1], wanted.at_least) if chosen else None,
        unfinished=source.unfinished,
    )


def _held(row: Row, demand: Demand) -> Candidate:
    misses, unusable = [], ""
    if not row.n:
        misses.append("runs")
    elif row.success < demand.at_least - 1e-9:
        misses.append("success")
    if (row.fell_back or row.calls_as_text) and not demand.include_changed:
        misses.append("changed")
    if demand.usd is not None and (row.cost_usd is None or row.cost_usd > demand.usd):
        misses.append("usd" if row.cost_usd is not None else "price")
    if demand.seconds is not None and row.seconds > demand.seconds:
        misses.append("seconds")
    if demand.tokens is not None and row.tokens > demand.tokens:
        misses.append("tokens")
    try:
        phases = loop_from(row.strategy).phases
        lacking = [phase for phase in phases if not row.model_of(phase)]
        unusable = f"It names no model for the phase '{lacking[0]}'." if lacking else ""
    except UsageError as why:
        unusable = str(why)
    if unusable:
        misses.append("here")
    return Candidate(row, sure(*row.evidence, demand.at_least), tuple(misses), unusable)


def _price(candidate: Candidate) -> tuple[float, float, float]:
    row = candidate.row
    return (math.inf if row.cost_usd is None else row.cost_usd, row.tokens, row.seconds)


def _nearest(held: list[Candidate], demand: Demand) -> dict[str, Candidate]:
    """For each part of the demand the row that comes nearest to it, of those that miss nothing else.

    Where every row misses several parts, it is the best in each. Rows that never ran or can't be run here are left out.
    """
    able = [each for each in held if not {"runs", "here"} & set(each.misses)]
    parts = ("success", *(name for name in ("usd", "seconds", "tokens") if getattr(demand, name) is not None))
    found = {part: [each for each in able if each.misses == (part,)] for part in parts}
    if not any(found.values()):
        found = dict.fromkeys(parts, able)
    ranked = {part: [(_far(each.row, part), at) for at, each in enumerate(rows)] for part, rows in found.items()}
    best = {part: min(ranks) for part, ranks in ranked.items() if ranks}
    return {part: found[part][at] for part, (far, at) in best.items() if far < math.inf}


def _far(row: Row, part: str) -> float:
    """What there is less of, the nearer a row comes to that part of a demand."""
    price = math.inf if row.cost_usd is None else row.cost_usd
    return {"success": -row.success, "usd": price, "seconds": row.seconds, "tokens": row.tokens}[part]


def _has(row: Row, only: Mapping[str, str]) -> bool:
    """Every phase that is named is there, and each has the model that is wanted for it."""
    usual = only.get("")
    if any(phase and phase not in row.models for phase in only):
        return False
    return all(only.get(phase, usual) in (None, model) for phase, model in row.models.items())


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
