"""What a run spent, as text: numbers that add up as they are shown, and the table of one run's phases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from plait.cli.text import clean
from plait.models.prices import Rate
from plait.runtime.spending import TOOLS, PhaseSpending, in_all
from plait.runtime.spending import shown as shown

MILLISECOND, CENT_MILLI = 1_000, 10_000
"""What is shown: seconds to three decimals (in microseconds), USD to five (in billionths)."""

ABSENT = "-"

Head: TypeAlias = tuple[str, bool]
"""A column's head, and whether it is set to the right."""


def phase_table(spent: Sequence[PhaseSpending]) -> tuple[list[Head], list[list[str]]]:
    """One run's phases, a row each, and their sum."""
    whole = in_all(spent)
    some_retried, some_cached = whole.retries > 0, whole.usage.cached_tokens > 0
    heads: list[Head] = [("phase", False), ("model", False), ("calls", True)]
    heads += [("retries", True)] if some_retried else []
    heads += [("input", True), *([("cached", True)] if some_cached else []), ("output", True)]
    heads += [("seconds", True), ("USD", True)]
    seconds, all_seconds = shown([row.micros for row in spent], MILLISECOND, 3)
    usd, all_usd = shown([row.nanos for row in spent], CENT_MILLI, 5)
    lines = []
    for row, took, cost in zip((*spent, whole), (*seconds, all_seconds), (*usd, all_usd), strict=True):
        if row.is_work:
            one, more = ("tool call", "tool calls") if row.phase == TOOLS else ("piece of code", "pieces of code")
            made = f"{row.calls:,} {one if row.calls == 1 else more}"
            blank = [""] * (3 + some_retried + some_cached)
            lines.append([row.phase, made, *blank, took, ""])
            continue
        about = "~" if row.usage.estimated else ""
        cells = [row.phase, clean(row.model), f"{row.calls:,}", *([f"{row.retries:,}"] if some_retried else [])]
        cells += [f"{about}{row.usage.input_tokens:,}"]
        cells += [f"{row.usage.cached_tokens:,}"] if some_cached else []
        lines.append([*cells, f"{about}{row.usage.output_tokens:,}", took, cost])
    return heads, lines


def rate_words(rate: Rate) -> str:
    """A rate in words, with where it is from."""
    origin = ", ".join(filter(None, (rate.source, rate.date)))
    match rate.kind:
        case "unknown":
            return "price not known"
        case "per_1k":
            words = f"{rate.per_1k_tokens:.15g} USD per 1,000 tokens"
        case "watts":
            words = f"{rate.watts:.15g} W at {rate.tariff:.15g} USD per kWh"
        case _:
            cached = "" if rate.cached is None else f", {rate.cached:.15g} cached"
            words = f"{rate.input:.15g} in{cached}, {rate.output:.15g} out USD per 1,000,000 tokens"
            for tier in rate.tiers:
                words += f"; above {tier.above:,} of input "
                words += f"{tier.input:.15g} in, {tier.cached:.15g} cached, {tier.output:.15g} out"
    return f"{words} ({origin})" if origin else words
