"""Earlier turns of a conversation as chat-completions messages, and back.

A turn that holds nothing from outside has a mark: `Run.messages()` adds it, `Agent.run(history=...)` checks it. It is a
keyed digest of the answer and the calls of the turn. So it proves that a run of this user wrote exactly this turn, and
that the run had read nothing from outside. The key is a file beside the default journal. If that file cannot be
written, a key of this process replaces it.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from plait.core import Call, Exchange, PastCall
from plait.core.arguments import named_input
from plait.core.errors import ConfigError
from plait.journal.timeline import Timeline
from plait.models.wires.turns import arguments
from plait.user_folders import state_folder

ChatMessages: TypeAlias = Iterable[Exchange | Mapping[str, Any]]
"""Turns of a conversation, oldest first: `Exchange` objects, or chat-completions messages."""

MARK = "clean"
"""The key of the mark in the last message of a turn."""
_KEY_BYTES = 32


def calls_in(timeline: Timeline, tools: Iterable[Mapping[str, Any]]) -> tuple[PastCall, ...]:
    """Return the calls of a run that have a result, in order. `tools` are the run's (`RunHead.tools`).

    An input is an object by parameter name, if the tool shows which parameters are meant.
    """
    parameters = {tool["name"]: tool.get("parameters", {}) for tool in tools}
    return tuple(
        PastCall(call.tool, named_input(call.input, parameters.get(call.tool, {})), each.seen.text)
        for each in timeline.tool_calls
        for call in [each.shown]
        if each.seen is not None
    )


def write_messages(turns: Iterable[Exchange], *, clean: bool = False) -> list[dict[str, Any]]:
    """Return turns as messages: the user's question, each call with its result, and the answer unless it is "".

    `clean`: they hold nothing from outside. The last message of each turn then has a mark that `read_turns` checks.
    """
    messages: list[dict[str, Any]] = []
    number = 0
    for turn in turns:
        messages.append({"role": "user", "content": turn.question})
        for call in turn.calls:
            number += 1
            id = f"call_{number}"
            given = {"name": call.tool, "arguments": arguments(Call(call.tool, call.input))}
            made = {"id": id, "type": "function", "function": given}
            messages.append({"role": "assistant", "content": None, "tool_calls": [made]})
            messages.append({"role": "tool", "tool_call_id": id, "content": call.result})
        if turn.answer:
            messages.append({"role": "assistant", "content": turn.answer})
        if clean and messages[-1]["role"] != "user":
            messages[-1][MARK] = _mark_of(turn)
    return messages


def read_turns(history: ChatMessages) -> tuple[tuple[Exchange, ...], bool]:
    """Return the turns in a history, and whether all of them are proven to hold nothing from outside.

    Leaves out system messages and calls without a result.

    Raises `ConfigError` for a message that is not of a known shape.
    """
    turns: list[Exchange] = []
    marks: list[Any] = []
    named: dict[str, tuple[str, Any]] = {}
    for i, each in enumerate(history):
        if isinstance(each, Exchange):
            turns.append(each)
            marks.append(None)
            continue
        role = each.get("role") if isinstance(each, Mapping) else None
        if role in ("system", "developer"):
            continue
        if role == "user":
            turns.append(Exchange(_read_text(each, i), ""))
            marks.append(None)
            continue
        if role not in ("assistant", "tool") or not turns:
            raise _invalid(
                i, "it is not a message of the roles user, assistant or tool, or no user message is before it"
            )
        last = turns.pop()
        question, answer, calls = last.question, last.answer, last.calls
        if role == "tool":
            if (id := str(each.get("tool_call_id"))) not in named:
                raise _invalid(i, f"no assistant message before it has the call {id!r}")
            calls = (*calls, PastCall(*named.pop(id), _read_text(each, i)))
        elif made := each.get("tool_calls"):
            named |= dict(_read_calls(made, i))
        else:
            answer = "\n\n".join(filter(None, (answer, _read_text(each, i))))
        turns.append(Exchange(question, answer, calls))
        marks[-1] = each.get(MARK)
    return tuple(turns), all(map(_is_clean, turns, marks))


def _read_calls(made: Any, i: int) -> Iterable[tuple[str, tuple[str, Any]]]:
    try:
        for each in made:
            name, given = each["function"]["name"], each["function"]["arguments"]
            yield str(each["id"]), (str(name), _read_arguments(given))
    except (KeyError, TypeError):
        raise _invalid(i, "a call in tool_calls has no id, name or arguments") from None


def _read_arguments(given: Any) -> Any:
    try:
        return json.loads(given)
    except ValueError:
        return given  # a model may write text that is not JSON


def _read_text(message: Mapping[str, Any], i: int) -> str:
    content = message.get("content")
    if isinstance(content, list) and all(isinstance(part, Mapping) and "text" in part for part in content):
        content = "".join(str(part["text"]) for part in content)
    if not isinstance(content, str | None):
        raise _invalid(i, "its content is not text")
    return content or ""


def _invalid(i: int, why: str) -> ConfigError:
    hint = "Give chat-completions messages, such as run.messages(), or plait.core.Exchange objects."
    return ConfigError(f"history[{i}] is invalid: {why}.", hint=hint)


def _mark_of(turn: Exchange) -> str:
    """Return the mark of a turn. The user's question is not part of it, because the user may change it."""
    calls = [(call.tool, arguments(Call(call.tool, call.input)), call.result) for call in turn.calls]
    text = msgspec.json.encode((turn.answer, calls))
    return hmac.digest(_read_key(state_folder() / "history.key"), text, "sha256").hex()


def _is_clean(turn: Exchange, mark: object) -> bool:
    """Return whether a turn is proven to hold nothing from outside. A turn of the user alone needs no mark."""
    if not (turn.answer or turn.calls):
        return True
    return isinstance(mark, str) and hmac.compare_digest(mark.encode("utf-8", "replace"), _mark_of(turn).encode())


@lru_cache(maxsize=8)
def _read_key(file: Path) -> bytes:
    own = secrets.token_bytes(_KEY_BYTES)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError), open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as new:
            new.write(own)
        found = file.read_bytes()
    except OSError:
        return own
    return found if len(found) == _KEY_BYTES else own  # another process is writing it: its marks do not hold here
