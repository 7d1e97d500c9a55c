"""The JSON of a run for the viewer: its line in the list, its facts, its open questions and its plan."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from html import escape
from typing import Any

from plait import loops
from plait.core import traits_of
from plait.core.errors import PlaitError, UnknownRun
from plait.journal.entries import Question
from plait.journal.open_questions import read_questions
from plait.journal.owner import owner_of_this_process
from plait.journal.records import RunHead, RunRow
from plait.journal.results import Results
from plait.journal.served_runs import RunLabel
from plait.journal.store import Journal, wait_for
from plait.journal.timeline import Timeline
from plait.runtime.agents.agent_fields import AgentFields, record_settings
from plait.runtime.planning.plans import recorded_plan, written
from plait.runtime.recorded_events import recorded_loop
from plait.runtime.run_files import list_shown
from plait.runtime.spent import spent_in
from plait.sandbox import AUTO, name_of
from plait.view.plan_svg import STYLE, as_svg
from plait.view.timeline import ViewerTimeline, question_item

SHORT = 400
"""Characters of a question and an answer in the list."""
ANSWER = 100_000
"""Characters of the answer on a run's page."""


def list_entry(row: RunRow) -> dict[str, Any]:
    """Return a run as the list shows it, with shortened texts. Tokens and cost include those of its child runs."""
    outcome, totals, head = row.outcome or {}, row.totals, row.head
    whole = totals.get("tree") or totals
    label = RunLabel.parse(head.label)
    return {
        "n": row.n,
        "run": head.run,
        "status": row.status,
        "grade": row.grade,
        "rating": row.rating,
        "question": _shorten(head.question),
        "answer": _shorten(format_answer(outcome.get("answer"))),
        "reason": _shorten(outcome.get("reason") or ""),
        "loop": head.loop["name"],
        "agent": (label.agent if label is not None else "") or head.agent,
        "user": head.user,
        "tags": head.tags,
        "models": list(dict.fromkeys(str(model["spec"]) for model in head.models.values())),
        "session": head.session,
        "parent": head.parent,
        "caller": head.caller.run if head.caller is not None else "",
        "fork_at": head.fork_at,
        "started": row.started,
        "updated": row.updated,
        "steps": totals.get("steps"),
        "calls": totals.get("calls"),
        "in": whole.get("input_tokens"),
        "out": whole.get("output_tokens"),
        "cached": whole.get("cached_tokens"),
        "cache_writes": whole.get("cache_write_tokens"),
        "reasoning_tokens": whole.get("reasoning_tokens"),
        "estimated": whole.get("estimated", False),
        "cost": whole.get("cost_usd"),
        "seconds": totals.get("seconds"),
    }


def run_facts(row: RunRow, timeline: ViewerTimeline) -> dict[str, Any]:
    """Return all facts of a run, without its steps and forks. While it runs, the rows so far give the totals."""
    outcome, head, owner = row.outcome or {}, row.head, ""
    given, default = {**head.settings, **head.loop["options"]}, _default_settings(head.loop["name"])
    if row.status == "running" and row.owner:  # where it is performed: another process, or another machine
        owner = "here" if row.owner == owner_of_this_process() else "elsewhere"
    return {
        **list_entry(row),
        **timeline.totals(),
        "question": head.question,
        "attachments": [str(each) for each in head.attachments],
        "files": list_files(timeline.trace),
        "answer": format_answer(outcome.get("answer"))[:ANSWER] if outcome.get("answer") is not None else None,
        "answer_html": _render_answer(outcome.get("answer")),
        "reason": outcome.get("reason"),
        "hint": outcome.get("hint", ""),
        "options": head.loop["options"],
        "phase_models": {phase: str(model["spec"]) for phase, model in head.models.items()},
        "tools": [{"name": each["name"], "what": _shorten(each.get("description", ""))} for each in head.tools],
        "settings": {name: value for name, value in head.settings.items() if value not in (None, {}, [])},
        "defaults": [name for name, value in given.items() if default.get(name, ...) == value],
        "history": len(head.history),
        "metadata": head.metadata,
        "plait": head.plait,
        "phases": [each.json() for each in timeline.phases],
        "forks": [],
        "children": [],
        "tree": row.totals.get("tree"),
        "owner": owner,
    }


@lru_cache(32)
def _default_settings(loop: str) -> dict[str, Any]:
    """Return the settings of an agent to which nothing but its loop was given."""
    try:
        made = loops.make(loop)
    except PlaitError:  # it is not known here
        return {}
    more = {"sandbox": name_of(AUTO), "context_tokens": 0}
    return {**record_settings(AgentFields(loop=made)), **more, **loops.options_of(made)}


def read_rating(journal: Journal, row: RunRow) -> dict[str, str]:
    """Return the user's comment on a run as a fact of it; blocking."""
    run = row.head.run
    found = wait_for(Results(journal.store).list_ratings([run])) if row.rating else {}
    return {"rating_why": found[run].why} if run in found else {}


def list_files(timeline: Timeline) -> list[dict[str, Any]]:
    """Return the files that the run's tools and code made, by the handles in their results: bytes are not read."""
    shown = {id: about for _, _, each, _ in list_shown(timeline) for id, about in each.items()}
    return [{"id": id, "about": about} for id, about in shown.items() if id.partition("-")[0] in ("image", "file")]


def child_entry(row: RunRow) -> dict[str, Any]:
    """Return a child run as the page of its parent shows it."""
    cost = spent_in(row.totals).cost_usd if row.outcome is not None else None
    return {"run": row.head.run, "status": row.status, "question": _shorten(row.head.question), "cost": cost}


def open_questions(row: RunRow, questions: Iterable[Question]) -> list[dict[str, Any]]:
    """Return what a run waits for, in order: the item, the kind, and the id that an answer names."""
    if row.status != "waiting":
        return []
    return [{"item": question_item(each), "ask": each.kind, "question": each.question} for each in questions]


def show_child_questions(journal: Journal, timeline: ViewerTimeline) -> None:
    """Show the questions of a run's child runs beside its own."""
    for child in timeline.trace.children:
        with suppress(UnknownRun):  # it has not begun, or was deleted
            timeline.show_child_questions(child, wait_for(read_questions(journal.store, child.run)))


def has_plan(head: RunHead) -> bool:
    return traits_of(recorded_loop(head)).makes_plan


def plan_view(row: RunRow, timeline: Timeline) -> dict[str, Any] | None:
    """Return the plan of a run as a picture (SVG) and as text that can be edited; None without a plan."""
    if not has_plan(row.head):
        return None
    try:
        plan = recorded_plan(row.head, timeline)
        # The page has the style; its policy allows no other.
        svg = as_svg(plan).replace(f"<style>\n{STYLE}\n</style>\n", "")
        return {"svg": svg, "text": written(plan), "steps": len(plan.calls), "found": len(plan.evidence)}
    except (PlaitError, LookupError):
        return None


def format_answer(answer: Any) -> str:
    """Return an answer as text, "" for none."""
    if answer is None or isinstance(answer, str):
        return answer or ""
    return json.dumps(answer, ensure_ascii=False, indent=1, default=str)


def _render_answer(answer: Any) -> str:
    """Return a text with Markdown in it as safe HTML, "" for a text that looks the same without."""
    try:
        from plait.view.markdown import render_markdown  # of the extra `server`
    except ImportError:
        return ""
    text = answer[:ANSWER] if isinstance(answer, str) else ""
    html = render_markdown(text)
    return "" if html.strip() == f"<p>{escape(text.strip())}</p>" else html


def _shorten(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= SHORT else f"{text[:SHORT]}…"
