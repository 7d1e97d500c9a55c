"""Comparisons on record, as the pages list and show them."""

from __future__ import annotations

from typing import Any

from plait.journal.results import Results
from plait.journal.store import Journal


def listed_comparisons(journal: Journal) -> list[dict[str, Any]]:
    """The comparisons, the newest first."""
    results = Results(journal)
    return [
        {
            "name": each.name,
            "suite": each.head["suite"]["word"],
            "started": each.started,
            "finished": len(results.results(each.head["cells"])),
            "cells": len(each.head["cells"]),
            "loops": list(dict.fromkeys(row["strategy"] for row in each.head["contenders"])),
        }
        for each in results.comparisons()
    ]


def comparison_page(journal: Journal, name: str) -> str:
    """The page of a comparison, by its name: that of `plait compare --html`, with links to its runs.

    Raises `UsageError`.
    """
    from plait.lab.page import render_served_page
    from plait.lab.run_comparison import load_comparison

    return render_served_page(load_comparison(name, journal.path), "/#/runs/")
