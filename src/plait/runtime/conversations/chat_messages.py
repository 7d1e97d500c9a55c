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
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct, structs

from plait.core import Attachment, Call, Exchange, File, PastCall
from plait.core.arguments import named_input
from plait.core.attachments import with_names
from plait.core.errors import ConfigError
from plait.core.text import shorten
from plait.journal.entries import CodeTurn, ToolCall
from plait.journal.records import LastTurn
from plait.journal.timeline import Timeline
from plait.models.wires.turns import arguments, chat_call
from plait.runtime.conversations.attachments import FILE_PARTS, NO_TEXT, read_file_part
from plait.tools.render import replace_surrogates
from plait.user_folders import state_folder


class GivenTurns(Struct, frozen=True):
    """Turns of a conversation that the caller passed, oldest first. "" for a question or an answer: there is none.

    `is_proven`: they hold nothing from outside. `contents` are the bytes of their files, by digest. `after_turn` is the
    last turn of the session for which they stand: a run that begins after another one raises `SessionBusy`.
    """

    turns: tuple[Exchange, ...] = ()
    is_proven: bool = True
    contents: Mapping[str, bytes] = {}
    after_turn: LastTurn | None = None


ChatMessages: TypeAlias = Iterable[Exchange | Mapping[str, Any]] | GivenTurns
"""Turns of a conversation, oldest first: `Exchange` objects, or chat-completions messages."""

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
THOUGHT_PARTS = ("thinking", "reasoning", "redacted_thinking")
"""Types of parts: those that hold text, with the field that holds it; those of an assistant that were not said."""
LONGEST_PART = 2000
"""Maximum number of characters shown of a part of another type."""
UNKNOWN_TOOL, NO_RESULT = "unknown_tool", "(the result is not in this conversation any more)"
"""Stand for the tool of a call that is missing, and for a result that is."""

PYTHON, NO_OUTPUT = "python", "(no output)"
"""Stand for the tool of a call that is a piece of code, and for what it printed if that is nothing."""

MARK = "clean"
"""The key of the mark in the last message of a turn."""
_KEY_BYTES = 32


class _Draft(Struct):
    """A turn that is being read: the messages of each side, its calls and files, and its mark."""

    question: list[str] = []
    answer: list[str] = []
    calls: list[PastCall] = []
    files: list[Attachment] = []
    mark: Any = None
    may_be_clean: bool = True


def calls_in(timeline: Timeline, tools: Iterable[Mapping[str, Any]]) -> tuple[PastCall, ...]:
    """Return the calls of a run that have a result, in order, as its model saw them. `tools` are the run's
    (`RunHead.tools`). An input is an object by parameter name, if the tool shows which parameters are meant.

    A piece of code is a call of `PYTHON`, and its result is what it printed and made. The calls inside it are left out:
    the code got their results, not the model."""
    parameters = {tool["name"]: tool.get("parameters", {}) for tool in tools}
    found: list[PastCall] = []
    at, shown, waits = -1, "", False
    entries: list[CodeTurn | ToolCall] = [*timeline.code, *timeline.tool_calls]
    for each in sorted(entries, key=lambda entry: entry.n):
        if isinstance(each, CodeTurn):
            if each.code is not None:
                at, shown = len(found), ""
                found.append(PastCall(PYTHON, {"code": each.code}, ""))
            ran, waits = each.ran, bool(each.ran.calls)
            shown += ran.output + "".join(f"{file.about}\n" for file in ran.made)
            shown += f"{ran.error.type}: {ran.error.message}" if ran.error is not None else ""
            if at >= 0:
                found[at] = structs.replace(found[at], result=shown.rstrip() or NO_OUTPUT)
        elif each.seen is not None and (each.planned.by_code or (waits and each.seen.trouble == "unknown_tool")):
            shown += f"{each.seen.printed.rstrip()}\n" if each.seen.printed.strip() else ""
        elif each.seen is not None:
            call = each.shown
            named = named_input(call.input, parameters.get(call.tool, {}))
            found.append(PastCall(call.tool, named, each.seen.text))
    return tuple(found)


def write_messages(turns: Iterable[Exchange], *, clean: bool = False) -> list[dict[str, Any]]:
    """Return turns as messages: the user's question, each call with its result, and the answer, unless it is "".

    `clean`: they hold nothing from outside. The last message of each turn then has a mark that `read_turns` checks.
    """
    messages: list[dict[str, Any]] = []
    number = 0
    for turn in turns:
        if turn.question:
            messages.append({"role": "user", "content": turn.question})
        for call in turn.calls:
            number += 1
            id = f"call_{number}"
            made = chat_call(id, call.tool, arguments(Call(call.tool, call.input)))
            messages.append({"role": "assistant", "content": None, "tool_calls": [made]})
            messages.append({"role": "tool", "tool_call_id": id, "content": call.result})
        if turn.answer:
            messages.append({"role": "assistant", "content": turn.answer})
        if clean and (turn.answer or turn.calls):
            messages[-1][MARK] = _mark_of(turn)
    return messages


def read_turns(history: ChatMessages) -> GivenTurns:
    """Return the turns in a history. Nothing is left out but empty messages and a model's reasoning.

    Messages of one side in a row are joined. A system message is a part of the user's words. What has a call without a
    result, a result without a call, or a part that no model takes, says so. Raises `ConfigError` for a message that is
    not of a known shape.
    """
    if isinstance(history, GivenTurns):
        return history
    drafts: list[_Draft] = []
    contents: dict[str, bytes] = {}
    open_calls: dict[str, tuple[_Draft, int]] = {}
    for i, each in enumerate(history):
        if isinstance(each, Exchange):
            drafts.append(_Draft(list(filter(None, [each.question])), list(filter(None, [each.answer]))))
            drafts[-1].calls, drafts[-1].files = list(each.calls), list(each.attachments)
            continue
        role = each.get("role") if isinstance(each, Mapping) else None
        if role not in ROLES:
            raise _invalid(i, f"it is not a message of the roles {', '.join(ROLES)}")
        try:
            text, files = read_content(each.get("content"))
        except ValueError as why:
            raise _invalid(i, str(why)) from None
        contents |= {file.attachment.digest: file.data for file in files}
        attached = [file.attachment for file in files]
        text = with_names(text if text.strip() else NO_TEXT, attached) if files else text
        calls = list(_read_calls(each, i)) if role == "assistant" else []
        text, is_result = replace_surrogates(text), role in ("tool", "function")
        asks = role not in ("assistant", "tool", "function")
        if not (text.strip() or calls or is_result):
            continue
        if not drafts or (asks and (drafts[-1].answer or drafts[-1].calls)):
            drafts.append(_Draft())
        last = drafts[-1]
        last.files += attached
        if is_result:
            draft, at = open_calls.pop(str(each.get("tool_call_id") or each.get("name")), (last, -1))
            if at < 0:
                name, at = each.get("name"), len(last.calls)
                last.calls.append(PastCall(name if isinstance(name, str) and name else UNKNOWN_TOOL, None, ""))
            draft.calls[at] = structs.replace(draft.calls[at], result=text)
        elif asks:
            if role != "user":  # the application may write at the start; what comes later may be a summary of anything
                last.may_be_clean &= len(drafts) == 1 and not (last.question or last.answer)
                text = f"(system message: {text})"
            last.question.append(text)
        else:
            last.answer += [text] if text.strip() else []
            for id, call in calls:
                open_calls[id] = last, len(last.calls)
                last.calls.append(call)
        last.mark = each.get(MARK)
    turns = tuple(
        Exchange("\n\n".join(each.question), "\n\n".join(each.answer), tuple(each.calls), tuple(each.files))
        for each in drafts
    )
    may_be_clean = all(draft.may_be_clean for draft in drafts)
    return GivenTurns(turns, may_be_clean and all(map(_is_clean, turns, (each.mark for each in drafts))), contents)


def _read_calls(message: Mapping[str, Any], i: int) -> Iterator[tuple[str, PastCall]]:
    """Yield each call of a message, without its result, and the id of that."""
    old = message.get("function_call")
    try:
        for each in message.get("tool_calls") or ([{"function": old}] if old else ()):
            name, given = each["function"]["name"], each["function"]["arguments"]
            yield str(each.get("id") or name), PastCall(str(name), _read_arguments(given), NO_RESULT)
    except (KeyError, TypeError, AttributeError):
        raise _invalid(i, "a call in it has no name or arguments") from None


def _read_arguments(given: Any) -> Any:
    try:
        return json.loads(given)
    except ValueError:
        return given  # a model may write text that is not JSON


def read_content(content: Any, joint: str = "") -> tuple[str, list[File]]:
    """Return the text of a message's content, and its files. A text stands for each part that is neither. `joint`
    stands between the parts of the text. Raises `ValueError` for content that is no text and no list of parts."""
    texts: list[str] = []
    files: list[File] = []
    for part in content if isinstance(content, list | tuple) else [content]:
        kind = str(part.get("type", "text")) if isinstance(part, Mapping) else "text"
        text = part.get(TEXT_PARTS.get(kind, "text")) if isinstance(part, Mapping) else part
        if kind in FILE_PARTS:
            try:
                files.append(read_file_part(part))
            except ConfigError as why:
                texts.append(f"\n({kind}, not shown: {why.message})\n")
        elif kind in THOUGHT_PARTS or (text is None and kind in TEXT_PARTS):
            continue
        elif isinstance(text, str) and kind in TEXT_PARTS:
            texts.append(text)
        elif not isinstance(part, Mapping):
            raise ValueError("its content is not text")
        else:
            texts.append(f"({shorten(json.dumps(part, ensure_ascii=False, default=repr), LONGEST_PART)[0]})")
    return joint.join(texts), files


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
