"""How `plait show --tree` prints a run and its child runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
from msgspec import convert

from plait.cli.output import format_tokens, format_usd, print_json
from plait.cli.runs import run_as_json
from plait.core import Usage
from plait.core.text import format_count, one_line
from plait.journal.records import RunRow
from plait.journal.store import Journal, wait_for
from plait.runtime.spent import read_spent


def show_tree(row: RunRow, store: Journal, *, as_object: bool) -> None:
    """Print a run and its child runs: a line each, or one JSON object with `children`; then what they used together."""
    if as_object:
        print_json({**_tree_as_json(row, store), "tree": wait_for(read_spent(store.store, row)).json()})
        return
    for line in _describe_runs(row, store, "", ""):
        click.echo(line)
    spent = wait_for(read_spent(store.store, row))
    parts = [format_count(spent.runs, "run"), format_count(spent.calls, "call"), format_tokens(spent.usage)]
    click.echo(" · ".join(["In all", *parts, format_usd(spent.cost_usd)]))


def _describe_runs(row: RunRow, store: Journal, first: str, rest: str) -> Iterator[str]:
    """Yield the line of a run and those of its child runs; `first` and `rest` are what the lines begin with."""
    parts = [row.head.run, row.verdict, str(row.head.loop["name"])]
    if "calls" in row.totals:
        cost = row.totals["cost_usd"]
        parts += [
            format_count(row.totals["calls"], "call"),
            format_tokens(convert(row.totals, Usage)),
            format_usd(cost),
        ]
    yield f"{first}{' · '.join(parts)}: {one_line(row.head.question)[:100]}"
    children = store.children(row.head.run)
    for number, child in enumerate(children, 1):
        is_last = number == len(children)
        yield from _describe_runs(
            child, store, rest + ("└─ " if is_last else "├─ "), rest + ("   " if is_last else "│  ")
        )


def _tree_as_json(row: RunRow, store: Journal) -> dict[str, Any]:
    return {**run_as_json(row), "children": [_tree_as_json(child, store) for child in store.children(row.head.run)]}
