"""The decoding of OpenAI's Responses: one JSON body or a whole stream of events, added to a draft. Pure.

The facts about the events come from OpenAI's API reference ("Streaming events"), as of November 2026. DeepSeek's and
OpenRouter's Responses also send a raw chain of thought (`reasoning_text`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from plait.core.replies import Finish
from plait.models.wires.chat_replies import cost_of, usage_of
from plait.models.wires.draft import Draft

_TEXT, _RAW, _SUMMARY, _ARGUMENTS = "text", "raw", "summary", "arguments"
_DELTAS = {
    "response.output_text.delta": _TEXT,
    "response.refusal.delta": _TEXT,
    "response.reasoning_text.delta": _RAW,
    "response.reasoning.delta": _RAW,
    "response.reasoning_summary_text.delta": _SUMMARY,
    "response.reasoning_summary.delta": _SUMMARY,
    "response.function_call_arguments.delta": _ARGUMENTS,
}
_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done")
_FINISH: dict[Any, Finish] = {"content_filter": "filter"}
_decode = msgspec.json.Decoder().decode


class ResponsesReader:
    """Read the events of one reply, or its whole body.

    What arrives in pieces is added as it comes. A whole item, at its end or in the whole response, adds only what did
    not come in pieces.
    """

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._places: dict[str, int] = {}
        self._items: dict[int, dict[str, Any]] = {}
        self._added: set[tuple[int, str]] = set()
        self._part: tuple[int, str, Any] = (-1, "", None)
        self._refused = False

    def read(self, data: bytes) -> str:
        """Add an event or a whole body and return the text that is now certain. Raises `msgspec.DecodeError`."""
        draft = self._draft
        event = _decode(data)
        if not isinstance(event, dict):
            return ""
        kind = event.get("type")
        kind = kind if isinstance(kind, str) else ""
        if kind in ("", "response") and ("output" in event or "status" in event or "error" in event):
            return self._end(event)
        if kind == "error":
            draft.error = event.get("error") or {key: value for key, value in event.items() if key != "type"}
            return ""
        if kind in _ENDS:
            response = event.get("response")
            return self._end(response if isinstance(response, dict) else {}, kind.removeprefix("response."))
        if kind in _DELTAS:
            if kind == "response.refusal.delta":
                self._refused = True
            return self._piece(self._place(event), _DELTAS[kind], event)
        if kind in ("response.output_item.added", "response.output_item.done"):
            item = event.get("item")
            if isinstance(item, dict):
                return self._item(self._place({**event, "item_id": item.get("id")}), item, kind.endswith("done"))
        response = event.get("response")
        if isinstance(response, dict):
            self._about(response)
        return ""

    def _place(self, event: Mapping[str, Any]) -> int:
        """Return the position of an event's item in the output."""
        place = event.get("output_index")
        if isinstance(place, int):
            return place
        return self._places.setdefault(str(event.get("item_id")), len(self._places))

    def _piece(self, place: int, kind: str, event: Mapping[str, Any]) -> str:
        text = event.get("delta")
        if not isinstance(text, str):
            return ""
        self._draft.began = True
        part = event.get("summary_index" if kind == _SUMMARY else "content_index")
        return self._add(place, kind, part, text)

    def _add(self, place: int, kind: str, part: Any, text: str) -> str:
        """Add a piece of text. A blank line stands between two parts of the reasoning."""
        draft = self._draft
        self._added.add((place, kind))
        if kind == _TEXT:
            return draft.write(text)
        if kind == _ARGUMENTS:
            draft.add_call(place, arguments=text)
            return ""
        before, self._part = self._part, (place, kind, part)
        draft.add_reasoning(f"\n\n{text}" if before[1] and before != self._part else text)
        return ""

    def _item(self, place: int, item: dict[str, Any], whole: bool) -> str:
        """Add an item of the output. Items of unknown types are only kept as they are."""
        draft = self._draft
        draft.began = True
        kind = item.get("type")
        shown = ""
        if whole:
            self._items[place] = item
        if kind == "function_call":
            if (place, kind) not in self._added:
                self._added.add((place, kind))
                draft.add_call(place, str(item.get("call_id") or item.get("id") or ""), str(item.get("name") or ""))
            given = item.get("arguments")
            if whole and (place, _ARGUMENTS) not in self._added:
                self._added.add((place, _ARGUMENTS))
                if isinstance(given, str):
                    draft.add_call(place, arguments=given)
                else:
                    draft.add_call(place, value=given)
        elif kind == "message" and whole and item.get("role", "assistant") == "assistant":
            texts = _parts(item.get("content"), ("output_text", "text", "refusal"))
            self._refused = self._refused or any(part == "refusal" for part, _ in texts)
            if (place, _TEXT) not in self._added:
                shown = "".join([self._add(place, _TEXT, None, text) for _, text in texts])
        elif kind == "reasoning" and whole:
            raw, summary = item.get("content"), item.get("summary")
            for way, parts in ((_RAW, raw), (_SUMMARY, summary)):
                if (place, way) not in self._added:
                    for number, (_, text) in enumerate(_parts(parts, ("reasoning_text", "summary_text", "text"))):
                        self._add(place, way, number, text)
        return shown

    def _about(self, response: Mapping[str, Any]) -> None:
        if isinstance(response.get("model"), str):
            self._draft.model = response["model"]
        if isinstance(tier := response.get("service_tier"), str):
            self._draft.service_tier = tier
        if isinstance(response.get("usage"), dict):
            self._draft.usage = usage_of(response["usage"], {})
            self._draft.cost = cost_of(response["usage"])

    def _end(self, response: dict[str, Any], event: str = "") -> str:
        """Add what only the whole response holds: items that did not come, usage, the reason of the end, the state."""
        draft = self._draft
        draft.began = True
        self._about(response)
        shown = ""
        output = response.get("output")
        if not self._items and not self._places:  # else the items came as events
            for place, item in enumerate(output if isinstance(output, list) else ()):
                if isinstance(item, dict):
                    shown += self._item(place, item, whole=True)
        status, error = response.get("status") or event, response.get("error")
        if error or status in ("failed", "cancelled"):
            draft.error = error or f"the endpoint ended the reply as {status}"
        if status == "incomplete":
            details = response.get("incomplete_details")
            reason = details.get("reason") if isinstance(details, dict) else None
            draft.finish = _FINISH.get(reason, "length")
        elif status not in ("queued", "in_progress"):
            draft.finish = "filter" if self._refused else "stop"
        items = [self._items[place] for place in sorted(self._items)]
        if any(_is_needed(item) for item in items) and not draft.is_stopped:
            draft.state = items
        return shown


def _is_needed(item: Mapping[str, Any]) -> bool:
    """Return whether the service needs an item back: any but a plain message."""
    return item.get("type") != "message" or bool(item.get("phase"))


def _parts(parts: Any, kinds: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the kinds and texts of the parts that hold text."""
    out: list[tuple[str, str]] = []
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict) and part.get("type") in kinds:
            text = part.get("text", part.get("refusal"))
            if isinstance(text, str):
                out.append((part["type"], text))
    return out
