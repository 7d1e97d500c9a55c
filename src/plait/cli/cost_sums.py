"""The tables of `plait costs` that add up many runs: by day, user ..., and by spend limit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from plait.core.text import clean
from plait.journal.spending import SpendCounter
from plait.lab.grid import ABSENT, ReportTable, TableColumn, make_column, make_columns
from plait.models.prices import NANO
from plait.recorded_runs import CostGroup


def limit_table(counters: Sequence[SpendCounter]) -> ReportTable:
    """Return what is spent, reserved and left of each spend limit: a row for its USD, its tokens and its runs."""
    heads = ("per", "user", "agent", "tag", "", ">limit", ">spent", ">reserved", ">left", ">beyond", "ends")
    rows = []
    for each in counters:
        per, _, zone, *whose = json.loads(each.name)
        ends = datetime.fromtimestamp(each.until, ZoneInfo(zone)).isoformat(" ", "minutes")
        for kind in ("usd", "tokens", "runs"):
            most, spent = getattr(each, f"most_{kind}"), getattr(each, kind)
            held, beyond = getattr(each, f"held_{kind}", 0), getattr(each, f"beyond_{kind}", 0)
            numbers = [most, spent, held, max(0, (most or 0) - spent - held), beyond]
            shown = [f"{each / NANO:.5f}" if kind == "usd" else f"{each:,}" for each in numbers if each is not None]
            names = [ABSENT if name is None else clean(name) or "''" for name in whose]
            rows += [[per, *names, "USD" if kind == "usd" else kind, *shown, ends]] if most is not None else []
    note = "limit: what the newest request obeyed. A new or changed limit is here once a request obeys it."
    notes = (note, "beyond: what requests took beyond what was reserved for them.")
    return ReportTable((), tuple(make_columns(heads, rows)), notes if rows else notes[:1])


def group_table(groups: Sequence[CostGroup], by: str) -> ReportTable:
    """Return what the runs of each day, user, tag, agent or model used, and how many succeeded."""
    columns = [make_column(groups, by, lambda each: each.key or ABSENT, left=True)]
    if any(each.period for each in groups):
        columns.insert(0, make_column(groups, "from", lambda each: each.period, left=True))
    names = {"runs": "runs", "succeeded": "succeeded", "calls": "calls", "in": "input_tokens", "out": "output_tokens"}
    for head, name in names.items():
        columns.append(TableColumn(head, tuple(f"{getattr(each, name):,}" for each in groups)))
    columns.append(
        make_column(groups, "USD", lambda each: "?" if each.unpriced == each.runs else f"{each.cost_usd:.5f}")
    )
    notes = []
    if any(each.unpriced for each in groups):
        columns.append(make_column(groups, "unpriced", lambda each: f"{each.unpriced:,}"))
        notes = ["unpriced: runs with an unknown price, which USD lacks."]
    return ReportTable((), tuple(columns), tuple(notes))
