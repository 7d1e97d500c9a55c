"""How `plait show --tree` prints a run and its child runs."""

from __future__ import annotations

from typing import Any

import click
from msgspec import convert

from plait.cli.output import format_tokens, format_usd, print_json
from plait.core import Usage
from plait.core.errors import ConfigError
from plait.core.text import format_count, one_line
from plait.journal.records import RunRow
from plait.journal.store import Journal, wait_for
from plait.recorded_runs import describe_run
from plait.runtime.spent import read_spent

_DEPTH = 100
"""Generations of child runs in one JSON object."""


def show_tree(row: RunRow, store: Journal, *, as_object: bool) -> None:
    """Print a run and its child runs: a line each, or one JSON object with `children`; then what they used together."""
    if as_object:
        print_json({**_tree_as_json(row, store), "tree": wait_for(read_spent(store.store, row)).json()})
        return
    left = [(row, "", "")]
    while left:  # without recursion: a journal from elsewhere may nest runs at any depth
        each, first, rest = left.pop()
        parts, totals = [each.head.run, each.verdict, str(each.head.loop["name"])], each.totals
        if "calls" in totals:
            parts += [format_count(totals["calls"], "call"), format_tokens(convert(totals, Usage))]
            parts.append(format_usd(totals["cost_usd"]))
        click.echo(f"{first}{' · '.join(parts)}: {one_line(each.head.question)[:100]}")
        below = [(child, rest + "├─ ", rest + "│  ") for child in store.children(each.head.run)]
        below[-1:] = [(child, rest + "└─ ", rest + "   ") for child, *_ in below[-1:]]
        left += below[::-1]
    spent = wait_for(read_spent(store.store, row))
    parts = [format_count(spent.runs, "run"), format_count(spent.calls, "call"), format_tokens(spent.usage)]
    click.echo(" · ".join(["In all", *parts, format_usd(spent.cost_usd)]))


def _tree_as_json(row: RunRow, store: Journal, depth: int = 0) -> dict[str, Any]:
    if depth > _DEPTH:
        raise ConfigError(f"More than {_DEPTH} runs are nested.", hint="`plait show --tree` without --json shows them.")
    below = [_tree_as_json(child, store, depth + 1) for child in store.children(row.head.run)]
    return {**describe_run(row), "children": below}
