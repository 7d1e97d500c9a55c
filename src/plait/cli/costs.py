"""The command `plait costs`: the time and cost of runs by phase, side by side; and the table of one run's phases."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import click
import msgspec
from msgspec.structs import replace

from plait.cli import options
from plait.cli.cost_sums import group_table, limit_table
from plait.cli.output import print_json
from plait.cli.runs import open_journal
from plait.core import Usage
from plait.core.errors import ConfigError
from plait.core.text import clean
from plait.journal.records import RunRow
from plait.journal.run_query import make_query
from plait.journal.store import Journal, wait_for
from plait.journal.timeline import Timeline
from plait.lab.grid import ABSENT, ReportTable, TableColumn, make_columns, merge_in_order
from plait.loops import phases_of
from plait.models.fallback import described_members
from plait.models.prices import NANO, UNKNOWN, Rate, describe_rate
from plait.recorded_runs import GROUPS, PERIODS, RecordedRuns
from plait.runtime.costs import (
    MICRO,
    TOOLS,
    PhaseSpending,
    break_even,
    in_all,
    in_units,
    merge_spending,
    round_spending,
    spending,
)
from plait.runtime.recorded_events import recorded_loop

MILLISECOND, CENT_MILLI = 1_000, 10_000
"""The precision shown: seconds to three decimals (in microseconds), USD to five (in billionths)."""
THOUSANDTHS = 1000
"""The precision of the mean of a count."""
KINDS = {
    "input_tokens": "in",
    "cached_tokens": "cached",
    "cache_write_tokens": "cache writes",
    "cache_write_1h_tokens": "1h cache writes",
    "output_tokens": "out",
    "reasoning_tokens": "reasoning",
}
"""The kinds of tokens, with the words of their columns."""
PARTS = ("cached_tokens", "cache_write_tokens", "cache_write_1h_tokens", "reasoning_tokens")
"""The kinds that are part of another kind."""

PhaseColumn: TypeAlias = tuple[str, bool]
"""A phase, and whether it counts tool calls or code."""

EPILOG = """\
\b
Examples:
  plait costs last
  plait costs --last 6 --mean --tokens
  plait costs API_RUN LOCAL_RUN --hardware 1500
  plait costs --by user --since 30d --tag web

Seconds are the sum of all model and tool calls. A column "run:TOOL" has what the child runs of a tool used; "tools" has
the time of the tools without it. The cells of a row add up to "in all" as they are shown. "-" means that the loop has
no such phase, "?" that a price is unknown. "cached" is the share of the input tokens that the provider read from its
cache.
"""


@click.command(epilog=EPILOG)
@click.argument("runs", metavar="[RUN...]", nargs=-1)
@click.option("--last", type=options.WHOLE, metavar="N", help="Add the N newest runs that match, oldest first.")
@click.option("--by", type=click.Choice(GROUPS), help="Instead: what all runs that match used, by day, user ...")
@click.option("--over", type=click.Choice(PERIODS), help="With --by: sums for each of these as well.")
@options.filters
@options.flag("--limits", help="Instead: the spend limits that runs obeyed, with what is spent and reserved.")
@options.flag("--mean", help="One row for all runs of the same loop and models: their mean.")
@options.flag("--tokens", help="Also show the tokens of each phase: in, cached, out ...")
@options.flag("--rates", help="Also show the price of each model and its source.")
@options.hardware
@options.flag("--csv", "as_csv", help="Print comma-separated values.")
@options.flag("--markdown", "as_markdown", help="Print a Markdown table.")
@options.journal
@options.flag("--json", "as_object", help="Print one JSON list on stdout, with every digit.")
def costs(
    runs: tuple[str, ...],
    last: int | None,
    by: str | None,
    over: str | None,
    limits: bool,
    mean: bool,
    tokens: bool,
    rates: bool,
    hardware: float | None,
    as_csv: bool,
    as_markdown: bool,
    journal: str | None,
    as_object: bool,
    **filters: Any,
) -> None:
    """Compare the time and cost of each RUN (an id, the beginning of one, or `last`): a row a run, a column a phase."""
    options.check_one_format(csv=as_csv, markdown=as_markdown, json=as_object)
    store = open_journal(journal)
    if limits:
        counters = wait_for(store.store.list_counters(time.time()))
        if as_object:
            print_json([{**msgspec.to_builtins(each), "name": json.loads(each.name)} for each in counters])
        else:
            _print(limit_table(counters), as_csv, as_markdown)
        return
    if by is not None:
        if runs or last or mean or tokens or rates or hardware is not None:
            raise ConfigError("--by adds up all runs that match.", hint="Leave out RUN and the options of its table.")
        groups = RecordedRuns(store.store).costs(by, over=over or "", **filters)
        if as_object:
            print_json(msgspec.to_builtins(groups))
        else:
            _print(group_table(groups, by), as_csv, as_markdown)
        return
    query = make_query(**filters)
    wanted = {row.head.run: row for row in map(store.run, runs)}
    for row in reversed(store.find(replace(query, limit=last))) if last else ():
        wanted.setdefault(row.head.run, row)
    if not wanted:
        raise ConfigError("No run is named.", hint="Name runs by id, or `last`, or the newest with --last N.")
    costed = [tree_cost_row(row, store) for row in wanted.values()]
    if mean:
        costed = average_rows(costed)
    options.check_hardware(hardware, len(costed), "Name a run without the hardware first, then one with it.")
    first, *others = costed
    paid: list[int | str | None] = []
    if hardware is not None:
        paid = [None, *(break_even(hardware, first.mean_nanos, each.mean_nanos) for each in others)]
    if as_object:
        objects = [each.json() for each in costed]
        for each, after in zip(objects, paid, strict=bool(paid)):
            each["paid_back_after_runs"] = "not known" if after == "?" else after
        print_json(objects)
        return
    heads, rows = cost_table(costed, mean=mean, tokens=tokens)
    columns = make_columns(heads, rows)
    if paid:
        words = (
            f"{after:,}{'' if as_csv else ' runs'}" if isinstance(after, int) else after or ABSENT for after in paid
        )
        columns.append(TableColumn("paid back after", tuple(words)))
    if rates:
        columns.append(TableColumn("rates", tuple("; ".join(_rate_lines([each])) for each in costed), csv_only=True))
    notes = _rate_lines(costed) if rates else []
    if any(cell == "?" for row in rows for cell in row):
        notes.append("?: a price is unknown")
    guessed = {clean(part.model): None for each in costed for part in each.spent if part.usage.estimated}
    if tokens and guessed:
        notes.append(f"tokens estimated from the length of the text: {', '.join(guessed)}")
    _print(ReportTable((), tuple(columns), tuple(notes)), as_csv, as_markdown)


def _print(table: ReportTable, as_csv: bool, as_markdown: bool) -> None:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    click.echo(table.csv() if as_csv else table.markdown() if as_markdown else table.text(width), nl=not as_csv)


@dataclass(frozen=True)
class CostRow:
    """A row of the table: one run, or several of the same loop and models. `spent` holds sums over the runs."""

    runs: tuple[str, ...]
    loop: str
    combination: tuple[Any, ...]
    spent: tuple[PhaseSpending, ...]
    rates: Mapping[tuple[str, str], Rate]
    wall: float | None

    @property
    def columns(self) -> dict[PhaseColumn, tuple[PhaseSpending, ...]]:
        """Return the phases in the order of first use, each with its parts."""
        found: dict[PhaseColumn, tuple[PhaseSpending, ...]] = {}
        for part in self.spent:
            key = (part.phase, part.is_work)
            found[key] = (*found.get(key, ()), part)
        return found

    @property
    def models(self) -> dict[str, str]:
        """Return the model of each phase. If a phase used two models, a plus joins them."""
        columns = self.columns.items()
        return {phase: "+".join(part.model for part in parts) for (phase, is_work), parts in columns if not is_work}

    @property
    def mean_nanos(self) -> Fraction | None:
        """Return the mean cost of a run in billionths of a dollar; None if a price is unknown."""
        nanos = in_all(self.spent).nanos
        return None if nanos is None else Fraction(nanos, len(self.runs))

    def json(self) -> dict[str, Any]:
        """Return the row with all digits. For several runs, it has means, which also add up."""
        phases = [part.json() for part in self.spent]
        whole = in_all(self.spent).json()
        if len(self.runs) > 1:
            _divide_sums(phases, whole, len(self.runs))
        for part, each in zip(self.spent, phases, strict=True):
            rate = self.rates.get((part.phase, part.model))
            each["rate"] = None if rate is None or not rate.is_known else describe_rate(rate)
        for name in ("phase", "model"):
            del whole[name]
        usage = in_all(self.spent).usage
        whole["cached_share"] = usage.cached_tokens / usage.input_tokens if usage.input_tokens else None
        return {
            "runs": list(self.runs),
            "loop": self.loop,
            "models": self.models,
            "phases": phases,
            "in_all": whole,
            "wall_seconds": self.wall,
        }


def cost_row(row: RunRow, timeline: Timeline) -> CostRow:
    """Return a recorded run as a row."""
    spent = spending(timeline)
    described = [row.head.models, *(each.models for each in timeline.resumptions)]
    rates = {(part.phase, part.model): _recorded_rate(part, described) for part in spent if not part.is_work}
    specs = {phase: str(model["spec"]) for phase, model in row.head.models.items()}
    loop = recorded_loop(row.head)
    used = {phase: [specs.get(phase, specs.get("", ""))] for phase in (specs if loop is None else phases_of(loop))}
    used |= {attempt.phase: [] for _, attempt in timeline.attempts}  # these tell it better
    for _, attempt in timeline.attempts:
        if attempt.model not in used[attempt.phase]:
            used[attempt.phase].append(attempt.model)
    combination = (row.head.loop["name"], *sorted((phase, *models) for phase, models in used.items()))
    return CostRow((row.head.run,), row.head.loop["name"], combination, spent, rates, row.totals.get("seconds"))


def tree_cost_row(row: RunRow, store: Journal) -> CostRow:
    """Return a recorded run with its child runs as a row: what each tool's child runs used is a phase `run:TOOL`. Its
    seconds are those of all work of the child runs. The tool keeps the rest of its own time."""
    rows, children, made = [row], dict[str, list[RunRow]](), dict[str, CostRow]()
    for each in rows:  # without recursion: a journal from elsewhere may nest runs at any depth
        children[each.head.run] = store.children(each.head.run)
        rows += children[each.head.run]
    for each in reversed(rows):
        timeline = store.timeline(each.head.run, bodies=False)
        whole = cost_row(each, timeline)
        tools = {call.key: call.call.tool for call in timeline.tool_calls}
        for child in children[each.head.run]:
            assert child.head.caller is not None
            below = made.pop(child.head.run)
            phase = f"run:{tools.get(child.head.caller.key.partition(':')[0], 'tool')}"
            own, parts = whole.spent, [replace(part, phase=phase) for part in below.spent if not part.is_work]
            if parts:
                work = sum(part.seconds for part in below.spent if part.is_work)
                parts[0] = replace(parts[0], seconds=round(parts[0].seconds + work, 6))
                took = below.wall or in_all(below.spent).seconds
                own = tuple(
                    replace(part, seconds=round(max(0.0, part.seconds - took), 6))
                    if part.is_work and part.phase == TOOLS
                    else part
                    for part in own
                )
            rates = {(phase, model): rate for (_, model), rate in below.rates.items()}
            spent = merge_spending((*own, *parts))
            whole = dataclasses.replace(whole, spent=spent, rates={**rates, **whole.rates})
        made[each.head.run] = whole
    return made[row.head.run]


def average_rows(rows: Iterable[CostRow]) -> list[CostRow]:
    """Merge the rows of the same loop and models, in the order of their first rows."""
    groups: dict[tuple[Any, ...], list[CostRow]] = {}
    for row in rows:
        groups.setdefault(row.combination, []).append(row)
    merged = []
    for group in groups.values():
        if len(group) == 1:
            merged += group
            continue
        known = [row.wall for row in group if row.wall is not None]
        merged.append(
            CostRow(
                runs=tuple(run for row in group for run in row.runs),
                loop=group[0].loop,
                combination=group[0].combination,
                spent=merge_spending(part for row in group for part in row.spent),
                rates={key: rate for row in reversed(group) for key, rate in row.rates.items()},
                wall=round(sum(known) / len(known), 6) if len(known) == len(group) else None,
            )
        )
    return merged


def cost_table(rows: Sequence[CostRow], *, mean: bool, tokens: bool) -> tuple[list[str], list[list[str]]]:
    """Return the table's heads (">" aligns to the right) and cells, with a column for each phase of any row."""
    columns = merge_in_order(row.columns for row in rows)
    labels = {
        column: f"{clean(column[0])} (model)" if not column[1] and (column[0], True) in columns else clean(column[0])
        for column in columns
    }
    heads = [">runs" if mean else "run", "loop", "models"]
    for column, label in labels.items():
        heads += [f">{label} s"] if column[1] else [f">{label} s", f">{label} USD"]
    heads += [">in all s", ">in all USD", ">cached"]
    whole = sum((in_all(row.spent).usage for row in rows), Usage())
    if whole.cache_write_tokens:
        heads.append(">cache writes")
    kinds = [kind for kind in KINDS if kind not in PARTS[1:] or getattr(whole, kind)] if tokens else []
    if tokens:
        names = [*(label for column, label in labels.items() if not column[1]), "in all"]
        heads += [f">{name} {KINDS[kind]}" for name in names for kind in kinds]
    return heads, [_cells(row, columns, mean=mean, kinds=kinds, stored=whole.cache_write_tokens > 0) for row in rows]


def _cells(
    row: CostRow, columns: Sequence[PhaseColumn], *, mean: bool, kinds: Sequence[str], stored: bool
) -> list[str]:
    """Return the cells of a row, with the tokens of `kinds`; `stored` adds the share of cache writes."""
    count, here = len(row.runs), row.columns
    present = [column for column in columns if column in here]
    sums = [in_all(here[column]) for column in present]

    def by_column(values: Sequence[Any], unit: int, digits: int) -> tuple[dict[PhaseColumn, str], str]:
        parts = [None if value is None else Fraction(value, count) for value in values]
        texts, whole = round_spending(parts, unit, digits)
        return dict(zip(present, texts, strict=True)), whole

    seconds, all_seconds = by_column([each.micros for each in sums], MILLISECOND, 3)
    usd, all_usd = by_column([each.nanos for each in sums], CENT_MILLI, 5)
    models = set(row.models.values())
    who = models.pop() if len(models) == 1 else " ".join(f"{phase}={spec}" for phase, spec in row.models.items())
    cells = [str(count) if mean else row.runs[0], row.loop, clean(who)]
    for column in columns:
        cells += [seconds.get(column, ABSENT), *([] if column[1] else [usd.get(column, ABSENT)])]
    usage = in_all(row.spent).usage
    cells += [all_seconds, all_usd, _share(usage.cached_tokens, usage)]
    if stored:
        cells.append(_share(usage.cache_write_tokens, usage))
    counts = [by_column([getattr(each.usage, kind) for each in sums], 1, 0) for kind in kinds]
    if counts:
        for column in columns:
            cells += [] if column[1] else [texts.get(column, ABSENT) for texts, _ in counts]
        cells += [all_tokens for _, all_tokens in counts]
    return cells


def _share(part: int, usage: Usage) -> str:
    """Return which part of the input tokens this is, as `49.1%`."""
    return f"{100 * part / usage.input_tokens:.1f}%" if usage.input_tokens else ABSENT


def phase_table(spent: Sequence[PhaseSpending]) -> tuple[list[str], list[list[str]]]:
    """Return the heads and rows of one run's phases and their sum."""
    whole = in_all(spent)
    retried = whole.retries > 0
    words = {**KINDS, "input_tokens": "input", "output_tokens": "output"}
    kinds = {kind: word for kind, word in words.items() if kind not in PARTS or getattr(whole.usage, kind)}
    heads = ["phase", "model", ">calls", *([">retries"] if retried else []), *(f">{word}" for word in kinds.values())]
    heads += [">seconds", ">USD"]
    seconds, all_seconds = round_spending([part.micros for part in spent], MILLISECOND, 3)
    usd, all_usd = round_spending([part.nanos for part in spent], CENT_MILLI, 5)
    rows = []
    for part, took, cost in zip((*spent, whole), (*seconds, all_seconds), (*usd, all_usd), strict=True):
        if part.is_work:
            one, more = ("tool call", "tool calls") if part.phase == TOOLS else ("piece of code", "pieces of code")
            made = f"{part.calls:,} {one if part.calls == 1 else more}"
            rows.append([part.phase, made, *[""] * (1 + retried + len(kinds)), took, ""])
            continue
        about = "~" if part.usage.estimated else ""
        cells = [part.phase, clean(part.model), f"{part.calls:,}", *([f"{part.retries:,}"] if retried else [])]
        cells += [f"{'' if kind in PARTS else about}{getattr(part.usage, kind):,}" for kind in kinds]
        rows.append([*cells, took, cost])
    return heads, rows


def _rate_lines(costed: Sequence[CostRow]) -> list[str]:
    lines: dict[str, None] = {}
    for row in costed:
        reported = {(part.phase, part.model): part for part in row.spent if part.costs_reported}
        for (phase, model), rate in row.rates.items():
            said = describe_rate(rate)
            if (part := reported.get((phase, model))) is not None:
                said = "cost reported by the provider"
                if part.costs_reported < part.calls:
                    said += f" for {part.costs_reported:,} of {part.calls:,} calls, else {describe_rate(rate)}"
            lines[f"{clean(model)}: {clean(said)}"] = None
    return list(lines)


def _recorded_rate(part: PhaseSpending, described: Iterable[Mapping[str, Any]]) -> Rate:
    """Return the rate of a phase's model as the journal has it."""
    for models in described:
        for model in (models.get(part.phase), models.get(""), *models.values()):
            for each in described_members(model) if model is not None else ():
                if each.get("spec") == part.model:
                    return msgspec.convert(each.get("rate", {}), Rate)
    return UNKNOWN


def _divide_sums(phases: Sequence[dict[str, Any]], whole: dict[str, Any], runs: int) -> None:
    """Turn sums over runs into means. The means of the phases still add up to the mean of the whole."""

    def divide(kind: str, scale: int, parts: Sequence[dict[str, Any]], total: dict[str, Any] | None) -> None:
        known = [part for part in parts if part[kind] is not None]
        units, all_units = in_units([Fraction(round(part[kind] * scale), runs) for part in known], 1)
        for part, each in zip(known, units, strict=True):
            part[kind] = each / scale
        if total is not None and total[kind] is not None:
            total[kind] = all_units / scale

    for kind in ("calls", "retries", "costs_reported"):
        divide(kind, THOUSANDTHS, [phase for phase in phases if phase["model"]], whole)
        divide(kind, THOUSANDTHS, [phase for phase in phases if not phase["model"]], None)
    for kind in KINDS:
        divide(kind, THOUSANDTHS, [phase["usage"] for phase in phases], whole["usage"])
    divide("seconds", MICRO, phases, whole)
    divide("cost_usd", NANO, phases, whole)
