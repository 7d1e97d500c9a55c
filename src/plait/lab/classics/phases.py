"""The table of time and money by phase: a row for each combination of phase models, beside the published rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import partial
from typing import Any

import msgspec

from plait.core import Usage
from plait.core.errors import ConfigError
from plait.journal.store import Journal
from plait.lab.classics import published
from plait.lab.classics.tables import ESTIMATED, OWN, PUBLISHED, crash_reason, judged_results, missing_notes
from plait.lab.comparison import Comparison, Contender
from plait.lab.grid import ABSENT, ReportTable, TableColumn, make_column, show_value
from plait.lab.report import UNKNOWN_PRICE
from plait.models.prices import NANO, Rate, describe_rate
from plait.runtime.costs import UNKNOWN_COST, break_even, in_all, merge_spending

PHASES = ("reason", "react", "reply")


def make_phase_table(
    comparison: Comparison, *, hardware: float | None = None, paired: Mapping[str, str] | None = None
) -> ReportTable:
    """Make the table of the loop `phased` in a comparison: seconds, USD and tokens are means of a run.

    `hardware`: also compute the break-even: after how many runs hardware at this price in USD is cheaper than the first
    row. `paired` maps the account's models, or patterns of their names, to one's own: the rows are then the seven
    published ones with these models. Raises `ConfigError` if the loop or a row is not in the comparison.
    """
    contenders = [each for each in comparison.contenders if each.loop.partition("(")[0] == "phased"]
    if not contenders:
        raise ConfigError(f"The loop phased is not in {comparison.name}.", hint="Compare it first.")
    if paired is not None:
        contenders = [_find_contender(contenders, models) for models in replace_published_models(paired)]
    own = [_own_row(comparison, each) for each in contenders]
    theirs: list[dict[str, Any]] = [
        {
            "row": PUBLISHED,
            "models": row.models,
            "runs": None,
            "seconds": row.seconds,
            "usd": row.usd,
            "usd_in_all": row.usd,
            "tokens": sum(published.TOKENS.values(), Usage()).tokens,
            "about": "~",
            "judged": 0,
            "rates": {model: describe_rate(published.RATES[model]) for model in row.models.values()},
            "break_even": None,
        }
        for row in published.PHASE_ROWS
    ]
    if hardware is not None:
        for first, *others in (own, theirs):
            for row in others:
                if all(each["usd"] is not None and not each.get("crash") for each in (first, row)):
                    row["break_even"] = break_even(hardware, *map(_mean_nanos, (first, row)))
    rows = [row for pair in zip(own, theirs, strict=True) for row in pair] if paired else [*own, *theirs]
    columns = _make_columns(rows, own, has_break_even=hardware is not None)
    return ReportTable(tuple(rows), tuple(columns), (*missing_notes(comparison), *_notes(own, hardware)))


def _make_columns(
    rows: Sequence[dict[str, Any]], own: Sequence[dict[str, Any]], *, has_break_even: bool
) -> list[TableColumn]:
    def show_right(row: dict[str, Any]) -> str:
        return f"{row['right']:,} of {row['judged']:,}" if row["judged"] else ABSENT

    column = partial(make_column, rows)
    columns = [
        column("row", show_value("row"), left=True),
        *(column(phase, partial(lambda phase, row: str(row["models"][phase]), phase), left=True) for phase in PHASES),
        column("seconds", lambda row: show_value("seconds", ".3f" if row["row"] == OWN else "")(row)),
        column("USD", show_value("usd", ".5f")),
        column("tokens", lambda row: ABSENT if row["tokens"] is None else f"{row['about']}{row['tokens']:,.0f}"),
    ]
    if has_break_even:
        columns.append(column("break-even", show_value("break_even", ",")))
    if any(row["runs"] != 1 for row in own):
        columns.append(column("runs", show_value("runs", ","), leave=2))
    if any(row["judged"] for row in own):
        columns.append(column("right", show_right, leave=1))
    columns.append(column("estimated", lambda row: "yes" if row["about"] else "no", csv_only=True))
    rates = ["; ".join(f"{model}: {rate}" for model, rate in row["rates"].items()) for row in rows]
    return [*columns, TableColumn("rates", tuple(rates), csv_only=True)]


def replace_published_models(models: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the models of the seven published rows, replaced by one's own: the first name or pattern that fits. Raises
    `ConfigError` for a published model that none fits, and for a name that fits none."""
    names = list(published.RATES)
    for pattern in models:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ConfigError(f"The account has no model '{pattern}'.", hint=f"It has: {', '.join(names)}.")
    found = {name: next((own for key, own in models.items() if fnmatchcase(name, key)), "") for name in names}
    if absent := [name for name, own in found.items() if not own]:
        hint = "A pattern may stand for several: *=local."
        raise ConfigError(f"No model of yours is named for {', '.join(absent)}.", hint=hint)
    return [{phase: found[name] for phase, name in row.models.items()} for row in published.PHASE_ROWS]


def _find_contender(contenders: Sequence[Contender], models: Mapping[str, str]) -> Contender:
    for each in contenders:
        if each.models == models:
            return each
    words = ",".join(f"{phase}={spec}" for phase, spec in models.items())
    raise ConfigError(f"The comparison has no row {words}.", hint="Run it without --comparison first.")


def _own_row(comparison: Comparison, contender: Contender) -> dict[str, Any]:
    results = comparison.of(contender)
    count, graded = len(results), judged_results(comparison, results)
    rates: dict[str, Rate] = {}
    if results and comparison.journal:
        described = Journal.at(comparison.journal).head(results[0].run).models.values()
        rates = {model["spec"]: msgspec.convert(model.get("rate", {}), Rate) for model in described}
    spent = merge_spending(part for result in results for part in result.phases)
    whole = in_all(spent)
    return {
        "row": OWN,
        "models": contender.models,
        "runs": count,
        "seconds": float(Fraction(whole.micros, count * 10**6)) if count else None,
        "usd": None if not count else UNKNOWN_COST if whole.nanos is None else whole.nanos / count / NANO,
        "usd_in_all": whole.cost_usd,
        "tokens": whole.usage.tokens / count if count else None,
        "about": "~" * whole.usage.estimated,
        "right": sum(result.grade.success for result in graded),
        "judged": len(graded),
        "rates": {spec: describe_rate(rates[spec]) for spec in contender.models.values() if spec in rates},
        "phases": [part.json() for part in spent],
        "break_even": None,
        "crash": crash_reason(comparison, contender.key),
    }


def _mean_nanos(row: dict[str, Any]) -> Fraction | None:
    usd = row["usd_in_all"]
    return None if usd is None else Fraction(round(usd * NANO), row["runs"] or 1)


def _notes(own: Sequence[dict[str, Any]], hardware: float | None) -> list[str]:
    notes = []
    if len({row["runs"] for row in own}) > 1:
        notes.append("The rows are not about the same tasks: some runs are not finished.")
    if hardware is not None:
        saved = f"hardware for {hardware:,.15g} USD is cheaper than the first row, own or published"
        notes.append(f"Break-even: the number of runs after which {saved}.")
    rates = {model: rate for row in own for model, rate in row["rates"].items()}
    notes += [f"{model}: {rate}." for model, rate in rates.items()]
    if any(row["usd"] == UNKNOWN_COST for row in own):
        notes.append(UNKNOWN_PRICE)
    if any(row["about"] for row in own):
        notes.append(ESTIMATED)
    theirs = "; ".join(f"{model}: {describe_rate(rate)}" for model, rate in published.RATES.items())
    notes.append(f"Published: {published.PHASES_SOURCE}. Its tokens (~) and rates are inferred: {theirs}.")
    return [*notes, published.RATE_NOTE]
