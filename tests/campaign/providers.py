"""Runs each loop twice with each profile of a hosted model, against an endpoint as strict as the provider's.

Each cell is the number of requests of the first and of the second run; `4-1` means that one of them was refused. A cell
fails if a run is not answered, is not replayed with equal bytes, or if anything is refused in the second run.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from figures import Figures, line_of

from loop_scripts import LOOPS
from profile_matrix import Cell, run_matrix


def run(count: int, seed: int, folder: Path) -> Figures:
    """Run so many rounds of the matrix, and show the last one."""
    failures: list[str] = []
    requests = cells = 0
    found: dict[tuple[str, str], Cell] = {}
    for number in range(count):
        (place := folder / str(number)).mkdir()
        found = asyncio.run(run_matrix(place))
        cells += len(found)
        requests += sum(sum(cell.requests) for cell in found.values())
        failures += [f"{name}, {loop}: {fault}" for (name, loop), cell in found.items() for fault in cell.faults]
    figures = line_of(runs=2 * cells, requests=requests, failed_cells=len({each.split(":")[0] for each in failures}))
    return Figures(f"{draw_matrix(found)}\n{figures}", failures)


def draw_matrix(cells: dict[tuple[str, str], Cell]) -> str:
    """The matrix as text: a row for each profile, a column for each loop."""
    names = list(dict.fromkeys(name for name, _ in cells))
    rows = [["", *LOOPS], *([name, *(cells[name, loop].shown for loop in LOOPS)] for name in names)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(LOOPS) + 1)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)
