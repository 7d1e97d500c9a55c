"""Finds a recorded run by what the user calls it."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from plait.cli.places import journal_file
from plait.core.errors import JournalError
from plait.journal.records import RunRow
from plait.journal.store import Journal


def open_journal(flag: str | None) -> Journal:
    """The journal that the flags, the environment or the configuration name."""
    return Journal(journal_file(flag))


def found(run: str, flag: str | None) -> tuple[RunRow, Journal]:
    """The run by its id, the beginning of its id, or `last`. Raises `JournalError` when there is none."""
    journal = open_journal(flag)
    return journal.run(run), journal


def names_run(word: str, flag: str | None) -> bool:
    """Whether a word is `last`, the id of a run on record, or the beginning of one (of six letters and more)."""
    if word == "last":
        return True
    if not re.fullmatch(r"[0-9A-Za-z-]{6,}", word):
        return False
    try:
        found(word, flag)
    except JournalError:
        return False
    return True


def listed(row: RunRow) -> dict[str, Any]:
    """A run as `plait runs --json` lists it."""
    totals, outcome = row.totals, row.outcome or {}
    return {
        "run": row.head.run,
        "status": row.status,
        "question": row.head.question,
        "answer": outcome.get("answer"),
        "reason": outcome.get("reason"),
        "strategy": row.head.strategy["name"],
        "models": {phase: str(model["spec"]) for phase, model in row.head.models.items()},
        "steps": totals.get("steps"),
        "calls": totals.get("calls"),
        "usage": {
            "input_tokens": totals.get("input_tokens"),
            "output_tokens": totals.get("output_tokens"),
            "cached_tokens": totals.get("cached_tokens"),
            "estimated": totals.get("estimated"),
        },
        "cost_usd": totals.get("cost_usd"),
        "seconds": totals.get("seconds"),
        "started": at(row.started),
        "updated": at(row.updated),
        "parent": row.head.parent or None,
        "session": row.head.session or None,
    }


def at(seconds: float) -> str:
    """A time as ISO 8601 in the local zone, to the second."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")
