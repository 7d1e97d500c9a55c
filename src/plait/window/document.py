"""What the pages are told of a run beside its steps: its facts, what it waits for, its plan."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from plait.core.errors import PlaitError
from plait.journal.owner import owner_of_this_process
from plait.journal.records import Row, RunRow
from plait.runtime.past import Past
from plait.window.marks import mark_of
from plait.window.telling import Teller

PLANNERS = ("rewoo", "compiler")
SHOWN = 400
"""Characters of a question and an answer in a list."""
ANSWER = 100_000
"""Characters of the answer on a run's page."""


def listed(row: RunRow, *, n: int = 0) -> dict[str, Any]:
    """A run as a list shows it: texts shortened."""
    outcome, totals, head = row.outcome or {}, row.totals, row.head
    mark = mark_of(head.label)
    return {
        "n": n,
        "run": head.run,
        "status": row.status,
        "question": _short(head.question),
        "answer": _short(said(outcome.get("answer"))),
        "reason": _short(outcome.get("reason") or ""),
        "loop": head.strategy["name"],
        "agent": mark.agent if mark is not None else "",
        "models": list(dict.fromkeys(str(model["spec"]) for model in head.models.values())),
        "session": head.session,
        "parent": head.parent,
        "fork_at": head.fork_at,
        "started": row.started,
        "updated": row.updated,
        "steps": totals.get("steps"),
        "calls": totals.get("calls"),
        "in": totals.get("input_tokens"),
        "out": totals.get("output_tokens"),
        "cached": totals.get("cached_tokens"),
        "estimated": totals.get("estimated", False),
        "cost": totals.get("cost_usd"),
        "seconds": totals.get("seconds"),
    }


def facts(row: RunRow, teller: Teller) -> dict[str, Any]:
    """Everything of a run but its steps and its forks; what it took is summed from the record while it goes on."""
    outcome, head = row.outcome or {}, row.head
    return {
        **listed(row),
        **teller.sums(),
        "question": head.question,
        "answer": said(outcome.get("answer"))[:ANSWER] if outcome.get("answer") is not None else None,
        "reason": outcome.get("reason"),
        "hint": outcome.get("hint", ""),
        "error": outcome.get("error", ""),
        "limit": outcome.get("limit", ""),
        "waits": outcome.get("kind", "") if row.status == "waiting" else "",
        "options": head.strategy["options"],
        "phase_models": {phase: str(model["spec"]) for phase, model in head.models.items()},
        "tools": [{"name": each["name"], "what": _short(each.get("description", ""))} for each in head.tools],
        "settings": {name: value for name, value in head.settings.items() if value not in (None, {}, [])},
        "history": len(head.history),
        "plait": head.plait,
        "label": head.label,
        "phases": [each.json() for each in teller.phases],
        "children": [],
        "owner": _owner(row),
    }


def waiting(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What a run waits for: the items to answer, the first first, with the id of the question that an answer names."""
    return [
        {"item": f"w{each.n}.{each.i}", "ask": each.kind, "question": each.question} for each in Past(rows).waiting()
    ]


def plan_of(row: RunRow, rows: Sequence[Row]) -> dict[str, Any] | None:
    """The plan of a run that has one: its picture (SVG), and its text as it can be edited."""
    if row.head.strategy["name"] not in PLANNERS:
        return None
    from plait.loops.plan_svg import STYLE, as_svg
    from plait.runtime.plans import recorded_plan, written

    try:
        plan = recorded_plan(row.head, rows)
        # The page draws it with a style of its own: it lets no other in.
        svg = as_svg(plan).replace(f"<style>\n{STYLE}\n</style>\n", "")
        return {"svg": svg, "text": written(plan), "steps": len(plan.calls), "found": len(plan.evidence)}
    except (PlaitError, LookupError):
        return None


def said(answer: Any) -> str:
    """An answer as text."""
    if answer is None:
        return ""
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, indent=1, default=str)


def _owner(row: RunRow) -> str:
    """Where a run is being performed: "here", "elsewhere" (another process or machine), "" nowhere."""
    if row.status != "running" or not row.owner:
        return ""
    return "here" if row.owner == owner_of_this_process() else "elsewhere"


def _short(text: Any) -> str:
    words = text if isinstance(text, str) else str(text)
    return words if len(words) <= SHOWN else f"{words[:SHOWN]}…"
