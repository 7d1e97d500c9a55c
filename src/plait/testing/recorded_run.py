"""A recorded run as a pytest file: its replies are a script, and the test asserts the answer and the calls."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from msgspec import convert, to_builtins

from plait.agent import Agent
from plait.core import Observation, Reply, ToolSpec
from plait.core.errors import ConfigError, ToolError
from plait.journal.codec import encode
from plait.journal.records import RunHead, RunRow
from plait.journal.timeline import Timeline
from plait.models.scripted import Scripted
from plait.runtime.agents.agent_description import fields_in
from plait.runtime.calls.recorded_tools import RecordedTool
from plait.runtime.calls.tool_selection import SEARCH
from plait.runtime.conversations.sessions import SESSION
from plait.toolkits.questions import ask_user
from plait.tools import Tool

_PAGE = '''\
"""Run {run} as a test, written by `plait export {run} --test FILE`."""

import plait
from plait.testing.recorded_run import recorded_agent

QUESTION = {question}

REPLIES = {replies}

ANSWERS = {answers}

CALLS = {calls}

RECORD = {record}

END = {end}
NOW = {now}

# This agent is made from the record, and its tools return the recorded results.
# To test your own agent, import it here instead: from support import agent
# Its tools are called. Replace what has effects: agent = agent.using(tools=[find_order, fake_refund]),
# or give other dependencies: scripted.run(QUESTION, deps=FAKE, ...)
agent = recorded_agent(RECORD)


def test_run():
    answers = iter(ANSWERS)
    model = plait.Scripted(REPLIES, by_turn=False)
    scripted = agent.using(model=model, models={{}}, spend=(), journal=False)
    run = scripted.run(QUESTION, on_wait=lambda waiting: next(answers, None), now=NOW)
    assert (run.status, run.answer) == END, run.reason
    assert [(call.tool, call.input, call.status) for call in run.calls_of()] == CALLS
'''

_LEFT_OUT = ("hooks", "prompts", "history", "now", "deps", "outside", "context_tokens", "grounding", "taint")
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
            replies.setdefault(call.phase, []).append(_script_reply(call.reply, row.status == "stopped"))
    tools = [raw for raw, source in zip(head.tools, head.sources, strict=False) if source not in (SESSION, SEARCH)]
    asked = [(each.call.tool, each.call.input) for each in timeline.questions if each.call is not None]
    record = {
        "loop": head.loop,
        "settings": {name: value for name, value in head.settings.items() if name not in _LEFT_OUT},
        "tools": tools,
        "asked": asked,
        "results": [
            (each.call.tool, each.call.input, {k: v for k, v in to_builtins(each.seen).items() if k in _SEEN})
            for each, _ in timeline.results
            if each.begun or (each.status == "refused" and (each.call.tool, each.call.input) not in asked)
        ],
    }
    parts = {
        "question": head.question,
        "replies": replies,
        "answers": [_write_answer(each.answer) for each in timeline.questions if each.answer is not None],
        "calls": [(each.call.tool, each.call.input, each.status) for each in timeline.tool_calls],
        "record": record,
        "now": head.settings.get("now"),
        "end": (row.status, outcome.get("answer")),
    }
    return _PAGE.format(
        run=re.sub(r"[^\w-]", "_", head.run), **{name: _write_value(value) for name, value in parts.items()}
    )


_SEEN = ("text", "value", "trouble", "ends")


def _script_reply(reply: Reply, needs_usage: bool) -> Any:
    """Return a reply as a script has it: text if that is all of it."""
    calls = [{"name": each.tool, "input": each.input, "id": each.id} for each in reply.calls]
    found = {"text": reply.text, "calls": calls, "reasoning": reply.reasoning}
    found["finish"] = "" if reply.finish in ("stop", "calls") else reply.finish
    found["usage"] = to_builtins(reply.usage) if needs_usage else {}
    found = {name: value for name, value in found.items() if value}
    return found if found.keys() - {"text"} else reply.text


def _write_answer(answer: Any) -> str:
    """Return what the user said, as a text that is read the same way."""
    if isinstance(answer, str) or answer.action != "edit":
        return answer if isinstance(answer, str) else "yes" if answer.action == "yes" else answer.text or "no"
    return f"edit {encode(answer.value).decode()}"


def _write_value(value: Any, indent: str = "", before: int = 0) -> str:
    """Return a value as Python on short lines. `before`: the characters before it on its first line."""
    below = f"{indent}    "
    if isinstance(value, str) and len(value) <= 82:  # in the quotes of `ruff format`; what cannot be printed is escaped
        shown = json.dumps(value, ensure_ascii=False)
        if value.count('"') > value.count("'"):
            shown = "'{}'".format(shown[1:-1].replace('\\"', '"').replace("'", "\\'"))
        return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in shown)
    if isinstance(value, str):
        pieces = [part for line in value.splitlines(keepends=True) for part in re.findall("(?s).{1,70}", line)]
        return "\n".join(["(", *(f"{below}{_write_value(piece)}" for piece in pieces), f"{indent})"])
    if not isinstance(value, dict | list | tuple) or not value:
        return repr(value)
    pairs = value.items() if isinstance(value, dict) else ((None, each) for each in value)
    named = [("" if name is None else f"{_write_value(name)}: ", each) for name, each in pairs]
    items = [name + _write_value(each, below, len(name)) for name, each in named]
    opening, closing = "{}" if isinstance(value, dict) else "()" if isinstance(value, tuple) else "[]"
    line = f"{opening}{', '.join(items)}{closing}"
    if "\n" not in line and len(indent) + before + len(line) <= 80:
        return line
    return "\n".join([opening, *(f"{below}{item}," for item in items), f"{indent}{closing}"])


def recorded_agent(record: Mapping[str, Any]) -> Agent[Any]:
    """Return the agent of a file that `plait export RUN --test FILE` wrote. It has no model and no journal.

    A call gets the result that the same call had in the run, or else the next one of that tool. The user is asked about
    the calls that the run asked about.
    """
    head = RunHead("", "", record["loop"], {}, tuple(record["tools"]), ("",) * len(record["tools"]), record["settings"])
    fields = fields_in(head, tools_given=True, load_code=False)
    results = [(str(tool), given, convert(seen, Observation)) for tool, given, seen in record["results"]]
    if fields.get("approve") != "plan":
        fields["approve"] = lambda call: (call.tool, call.input) in record["asked"]
    fields |= {"hooks": (), "model": Scripted([]), "models": {}, "journal": False}
    return Agent(**{**fields, "tools": [_make_tool(each, results) for each in record["tools"]]})


def _make_tool(spec: dict[str, Any], results: list[tuple[str, Any, Observation]]) -> Tool:
    recorded = convert(spec, ToolSpec)
    if recorded.name == ask_user.name and recorded.parameters == ask_user.spec.parameters:
        return ask_user

    def give_result(**given: Any) -> Any:
        own = [each for each in results if each[0] == recorded.name]
        same = [each for each in own if each[1] == given] or own
        if not same:
            raise ToolError(f"The recorded run has no further result of {recorded.name}.")
        results.remove(same[0])
        return same[0][2]

    return RecordedTool(give_result, recorded.name, recorded=recorded, hand_off=recorded.hand_off)
