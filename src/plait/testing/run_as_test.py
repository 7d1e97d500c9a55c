"""Writes a recorded run as a pytest file: its replies are a script, and the test asserts the answer and the calls."""

from __future__ import annotations

import json
import re
from typing import Any

from msgspec import to_builtins

from plait.core import Reply
from plait.core.errors import ConfigError
from plait.journal.codec import encode
from plait.journal.records import RunRow
from plait.journal.timeline import Timeline
from plait.runtime.calls.tool_selection import SEARCH
from plait.runtime.conversations.sessions import SESSION

_PAGE = '''\
"""Run {run} as a test, written by `plait export {run} --test FILE`."""

import plait
from plait.testing import answer_in_order, recorded_agent

QUESTION = {question}

REPLIES = {replies}

ANSWERS = {answers}

CALLS = {calls}

RECORD = {record}

# This agent is made from the record, and its tools return the recorded results.
# To test your own agent, import it here instead: from support import agent
agent = recorded_agent(RECORD)


def test_run():
    scripted = agent.using(model=plait.Scripted(REPLIES, by_turn=False), models={{}}, journal=False)
    run = scripted.run(QUESTION, on_wait=answer_in_order(*ANSWERS), now={now})
    assert (run.status, run.answer) == {end}, run.reason
    assert [(call.tool, call.input) for call in run.calls_of()] == CALLS
'''

_NOT_HERE = ("hooks", "prompts", "history", "now", "deps", "outside", "context_tokens", "approve", "grounding", "taint")
"""Settings that a test does without, or has elsewhere."""


def write_test(row: RunRow, timeline: Timeline) -> str:
    """Return the text of the pytest file. Raises `ConfigError` for a run that has not ended, or that needs files or
    earlier turns, which a test does not hold."""
    head, outcome = row.head, row.outcome
    if outcome is None or row.status in ("running", "cancelled"):
        raise ConfigError(f"Run {head.run} has not ended ({row.status}).", hint="Give a run that has.")
    if head.attachments or head.history or head.given:
        what = "attached files" if head.attachments else "earlier turns of a conversation"
        raise ConfigError(f"Run {head.run} has {what}, which a test does not hold.", hint="Give another run.")
    replies: dict[str, list[Any]] = {}
    for call in timeline.model_calls:
        if call.reply is not None:
            replies.setdefault(call.phase, []).append(_reply_as_script(call.reply, row.status == "stopped"))
    asked = [each for each in timeline.questions if each.run == head.run and each.call is not None]
    made = timeline.tool_calls
    tools = [raw for raw, source in zip(head.tools, head.sources, strict=False) if source not in (SESSION, SEARCH)]
    settings = {name: value for name, value in head.settings.items() if name not in _NOT_HERE}
    record = {
        "loop": head.loop,
        "settings": settings | ({"approve": "plan"} if head.settings.get("approve") == "plan" else {}),
        "tools": tools,
        "asked": [(each.call.tool, each.call.input) for each in asked if each.call is not None],
        "results": [
            (each.call.tool, each.call.input, _observation(to_builtins(each.observation)))
            for each, _ in timeline.results
            if each.begun and each.observation is not None
        ],
    }
    parts = {
        "question": head.question,
        "replies": replies,
        "answers": [_answer_text(each.answer) for each in timeline.questions if each.answer is not None],
        "calls": [(each.call.tool, each.call.input) for each in made],
        "record": record,
        "now": head.settings.get("now"),
        "end": (row.status, outcome.get("answer")),
    }
    shown = {name: _write_value(value) for name, value in parts.items()}
    return _PAGE.format(run=head.run, **shown)


def _write_value(value: Any, indent: str = "") -> str:
    """Return a value as Python on lines of at most 100 characters, as far as its depth allows."""
    if isinstance(value, str):
        pieces = [part for line in value.splitlines(keepends=True) for part in re.findall("(?s).{1,70}", line)]
        inner = "".join(f"\n{indent}    {_write_text(piece)}" for piece in pieces)
        return _write_text(value) if len(value) <= 70 else f"({inner}\n{indent})"
    if not isinstance(value, dict | list | tuple) or not value:
        return repr(value)
    below = f"{indent}    "
    named = [f"{_write_text(key)}: " for key in value] if isinstance(value, dict) else [""] * len(value)
    parts = zip(named, value.values() if isinstance(value, dict) else value, strict=True)
    items = [f"{name}{_write_value(each, below)}" for name, each in parts]
    opening, closing = "{}" if isinstance(value, dict) else "()" if isinstance(value, tuple) else "[]"
    line = f"{opening}{', '.join(items)}{',' if opening == '(' and len(items) == 1 else ''}{closing}"
    if "\n" not in line and len(indent) + len(line) <= 80:
        return line
    return "\n".join([opening, *(f"{below}{item}," for item in items), f"{indent}{closing}"])


def _write_text(text: str) -> str:
    """Return a text in double quotes; what cannot be printed is escaped."""
    shown = json.dumps(text, ensure_ascii=False)
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in shown)


def _reply_as_script(reply: Reply, needs_usage: bool) -> Any:
    """Return a reply as a script has it: text if that is all of it."""
    found: dict[str, Any] = {"text": reply.text}
    if reply.calls:
        found["calls"] = [{"name": each.tool, "input": each.input, "id": each.id} for each in reply.calls]
    if reply.reasoning:
        found["reasoning"] = reply.reasoning
    if reply.finish not in ("stop", "calls"):
        found["finish"] = reply.finish
    if needs_usage:
        found["usage"] = to_builtins(reply.usage)
    return reply.text if len(found) == 1 else found


def _observation(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name in ("text", "value", "trouble", "ends")}


def _answer_text(answer: Any) -> str:
    """Return what the user said, as a text that is read the same way."""
    if isinstance(answer, str):
        return answer
    if answer.action == "edit":
        return f"edit {encode(answer.value).decode()}"
    return "yes" if answer.action == "yes" else answer.text or "no"
