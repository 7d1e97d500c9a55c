"""The decoding of Gemini's replies: one JSON body, a list of chunks or a whole stream, added to a draft. Pure.

Sources: Google's documentation for the Gemini API, pages "Generating content" (`FinishReason`, `UsageMetadata`),
"Thinking" and "Thought signatures" (2025). Parts that are neither text nor calls (code that Google ran,
images) are kept in the state with all others; code and searches are read as hosted calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from plait.core import Usage
from plait.models.wires.draft import Draft, read_count
from plait.models.wires.hosted_replies import read_parts
from plait.models.wires.pending_calls import PendingCall, read_call
from plait.models.wires.pieces import GrowingText, close_part, grow


class ContentReader:
    """Read the chunks of one reply, or its whole body. Only the first candidate is read."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._usage: dict[str, Any] = {}
        self._parts: list[tuple[dict[str, Any], PendingCall | None]] = []
        self._grounding: dict[str, Any] = {}
        self._pages: dict[str, Any] = {}

    def read(self, event: dict[str, Any]) -> str:
        draft = self._draft
        inner = event.get("response")
        event = _in_camel_case(inner if isinstance(inner, dict) and "candidates" not in event else event)
        if isinstance(event.get("usageMetadata"), dict):
            self._usage.update(_in_camel_case(event["usageMetadata"]))
            draft.usage = usage_of_content(self._usage)
        if isinstance(event.get("modelVersion"), str):
            draft.model = event["modelVersion"]
        feedback = event.get("promptFeedback")
        if isinstance(feedback, dict) and feedback.get("blockReason"):
            draft.began, draft.finish = True, "filter"
        shown = ""
        candidates = event.get("candidates")
        for place, candidate in enumerate(candidates if isinstance(candidates, list) else ()):
            if not isinstance(candidate, dict) or candidate.get("index", place):
                continue
            draft.began = True
            candidate = _in_camel_case(candidate)
            for name, kept in (("groundingMetadata", self._grounding), ("urlContextMetadata", self._pages)):
                if isinstance(said := candidate.get(name), dict):
                    kept.update(_in_camel_case(said))
            content, reason = candidate.get("content"), candidate.get("finishReason")
            parts = content.get("parts") if isinstance(content, dict) else None
            for part in parts if isinstance(parts, list) else [parts]:
                shown += self._part(part, bool(reason))
            if isinstance(reason, str):
                draft.end(reason, candidate.get("finishMessage"))
        draft.is_counted = not candidates and (draft.is_counted or bool(self._usage))
        return shown

    def state(self) -> list[dict[str, Any]] | None:
        draft, once = self._draft, "gemini-2" in self._draft.model  # Google bills a grounded reply of these once
        parts = [close_part(part) for part in draft.without_repeated(self._parts)]
        draft.hosted, draft.citations = read_parts(parts, self._grounding, self._pages, once=once)
        # Others hold more than the reply says: a signature, or what only Google's servers know.
        return parts if any(set(part) - {"text", "thought", "functionCall"} for part in parts) else None

    def _part(self, part: Any, ends: bool) -> str:
        if not isinstance(part, dict):
            return ""
        part = _in_camel_case(part)
        draft, text, call = self._draft, part.get("text"), part.get("functionCall")
        pending = draft.add_call(len(draft.calls), *read_call(call)) if isinstance(call, dict) else None
        self._keep(part, pending)
        if isinstance(call, dict):
            if call.get("willContinue") or call.get("partialArgs"):  # an input in pieces
                draft.end("malformed")
            return ""
        if isinstance(text, str) and part.get("thought"):
            draft.add_reasoning(text)
        elif isinstance(text, str):
            return draft.write(text, ends=ends)
        return ""

    def _keep(self, part: dict[str, Any], pending: PendingCall | None) -> None:
        """Keep a part for the state. Pieces of one text are joined, unless one of them has a signature."""
        if isinstance(part.get("text"), str) and not set(part) - {"text", "thought"}:
            last = self._parts[-1][0] if self._parts else {}
            if isinstance(last.get("text"), GrowingText) and last.get("thought") == part.get("thought"):
                grow(last, "text", part["text"])
                return
            if not part["text"]:
                return
            part = {**part, "text": GrowingText([part["text"]])}
        self._parts.append((part, pending))


def _in_camel_case(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with Google's names, also from a gateway that writes `finish_reason`."""
    if "_" not in "".join(fields):
        return fields
    return {re.sub("_([a-z])", lambda found: found[1].upper(), key): value for key, value in fields.items()}


def usage_of_content(usage: Mapping[str, Any]) -> Usage | None:
    """Return the usage of a reply; None if nothing is reported. Thoughts are billed as output."""
    read = read_count(usage.get("promptTokenCount")) + read_count(usage.get("toolUsePromptTokenCount"))
    thought = read_count(usage.get("thoughtsTokenCount"))
    written = read_count(usage.get("candidatesTokenCount")) + thought
    cached = min(read_count(usage.get("cachedContentTokenCount")), read)
    return Usage(read, written, cached, reasoning_tokens=thought) if read or written else None
