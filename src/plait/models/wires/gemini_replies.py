"""The decoding of Gemini's replies: one JSON body, a list of chunks or a whole stream, added to a draft. Pure.

Sources: Google's documentation for the Gemini API, pages "Generating content" (`FinishReason`, `UsageMetadata`),
"Thinking" and "Thought signatures" (2025). Parts that are neither text nor calls (code that Google ran,
images) are not shown; they are kept in the state with all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from plait.core import Usage
from plait.core.replies import Finish
from plait.models.wires.draft import Draft, read_count

_FINISH: dict[str, Finish] = {
    "MAX_TOKENS": "length",
    **dict.fromkeys(
        (
            *("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"),
            *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
        ),
        "filter",
    ),
}
_BROKEN_CALLS = ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL")
"""Finish reasons of a call that Google could not read. `finishMessage` holds it as the model wrote it."""


class ContentReader:
    """Read the chunks of one reply, or its whole body. Only the first candidate is read."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._usage: dict[str, Any] = {}
        self._parts: list[dict[str, Any]] = []
        self._calls = 0
        self._wrote = False

    def read(self, data: bytes) -> str:
        """Add a chunk and return the text that is now certain. Raises `msgspec.DecodeError`."""
        value = msgspec.json.decode(data)
        return "".join([self._chunk(each) for each in (value if isinstance(value, list) else [value])])

    def _chunk(self, chunk: Any) -> str:
        draft = self._draft
        if not isinstance(chunk, dict):
            return ""
        if chunk.get("error"):
            draft.error = chunk["error"]
        if isinstance(chunk.get("usageMetadata"), dict):
            self._usage.update(chunk["usageMetadata"])
            draft.usage = usage_of_content(self._usage)
        if isinstance(chunk.get("modelVersion"), str):
            draft.model = chunk["modelVersion"]
        feedback = chunk.get("promptFeedback")
        if isinstance(feedback, dict) and feedback.get("blockReason"):
            draft.began, draft.finish = True, "filter"
        shown = ""
        candidates = chunk.get("candidates")
        for candidate in candidates if isinstance(candidates, list) else ():
            if isinstance(candidate, dict) and not candidate.get("index"):
                draft.began = True
                shown += self._candidate(candidate)
        return shown

    def _candidate(self, candidate: Mapping[str, Any]) -> str:
        content = candidate.get("content")
        parts = content.get("parts") if isinstance(content, dict) else None
        shown = "".join([self._part(part) for part in (parts if isinstance(parts, list) else ())])
        reason = candidate.get("finishReason")
        if isinstance(reason, str):
            message = candidate.get("finishMessage")
            if reason in _BROKEN_CALLS and isinstance(message, str) and not (self._wrote or self._calls):
                shown += self._draft.write(message.partition(": ")[2] or message)
            self._draft.finish = _FINISH.get(reason, "stop")
        if self._parts and any(_is_opaque(part) for part in self._parts):
            self._draft.state = list(self._parts)
        return shown

    def _part(self, part: Any) -> str:
        if not isinstance(part, dict):
            return ""
        draft, text, call = self._draft, part.get("text"), part.get("functionCall")
        self._keep(part)
        if isinstance(call, dict):
            draft.add_call(self._calls, str(call.get("id") or ""), str(call.get("name") or ""), value=call.get("args"))
            self._calls += 1
        elif isinstance(text, str) and part.get("thought"):
            draft.add_reasoning(text)
        elif isinstance(text, str):
            self._wrote = self._wrote or bool(text)
            return draft.write(text)
        return ""

    def _keep(self, part: dict[str, Any]) -> None:
        """Keep a part for the state. Pieces of one text are joined, unless one of them has a signature."""
        if _is_plain(part):
            if not part["text"]:
                return
            last = self._parts[-1] if self._parts else {}
            if _is_plain(last) and last.get("thought") == part.get("thought"):
                self._parts[-1] = {**last, "text": last["text"] + part["text"]}
                return
        self._parts.append(part)


def _is_plain(part: Mapping[str, Any]) -> bool:
    return isinstance(part.get("text"), str) and not set(part) - {"text", "thought"}


def _is_opaque(part: Mapping[str, Any]) -> bool:
    """Return whether a part holds more than the reply says: a signature, or what only Google's servers know."""
    return bool(set(part) - {"text", "thought", "functionCall"})


def usage_of_content(usage: Mapping[str, Any]) -> Usage | None:
    """Return the usage of a reply; None if nothing is reported. Thoughts are billed as output."""
    read = read_count(usage.get("promptTokenCount")) + read_count(usage.get("toolUsePromptTokenCount"))
    thought = read_count(usage.get("thoughtsTokenCount"))
    written = read_count(usage.get("candidatesTokenCount")) + thought
    cached = min(read_count(usage.get("cachedContentTokenCount")), read)
    return Usage(read, written, cached, reasoning_tokens=thought) if read or written else None
