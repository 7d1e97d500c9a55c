"""The decoding of OpenAI's Responses: one JSON body or a whole stream of events, added to a draft. Pure.

The facts about the events come from OpenAI's API reference ("Streaming events"), as of November 2026. DeepSeek's and
OpenRouter's Responses also send a raw chain of thought (`reasoning_text`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plait.models.wires.chat_replies import cost_of, usage_of
from plait.models.wires.draft import Draft
from plait.models.wires.hosted_replies import read_items
from plait.models.wires.pending_calls import CALL_TYPES, PendingCall, read_call

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


class ResponsesReader:
    """Read the events of one reply, or its whole body. What arrives in pieces is added as it comes. A whole item, at
    its end or in the whole response, adds only what did not come in pieces."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._places: dict[Any, int] = {}
        self._marks: list[Any] = []
        self._items: dict[int, tuple[dict[str, Any], PendingCall | None]] = {}
        self._calls: dict[int, PendingCall] = {}
        self._texts: dict[int, list[str]] = {}
        self._added: set[tuple[int, str]] = set()
        self._part: tuple[int, str, Any] = (-1, "", None)
        self._output: list[tuple[dict[str, Any], PendingCall | None]] = []
        self._refused = False
        self._ends = 0

    def read(self, event: dict[str, Any]) -> str:
        kind = event.get("type")
        kind = kind if isinstance(kind, str) else ""
        if kind in ("", "response") and ("output" in event or "status" in event or "error" in event):
            return self._end(event)
        response, item = event.get("response"), event.get("item")
        if kind in _ENDS:
            return self._end(response if isinstance(response, dict) else {}, kind.removeprefix("response."))
        self._refused = self._refused or kind.startswith("response.refusal")
        if kind in _DELTAS:
            place, way, text = self._place(event), _DELTAS[kind], event.get("delta")
            if not isinstance(text, str):
                return ""
            self._draft.began = True
            return self._add(place, way, event.get("summary_index" if way == _SUMMARY else "content_index"), text)
        if kind in ("response.output_item.added", "response.output_item.done") and isinstance(item, dict):
            return self._item(self._place({"item_id": item.get("id"), **event}, item), item, kind.endswith("done"))
        if kind == "response.function_call_arguments.done":
            self._item(self._place(event), {"type": "function_call", "arguments": event.get("arguments")}, False)
        elif kind == "response.output_text.done" and (place := self._place(event)) not in self._texts:
            return self._add(place, _TEXT, None, str(event.get("text") or ""))
        elif isinstance(response, dict):
            self._about(response)
        return ""

    def state(self) -> Any:
        items = self._draft.without_repeated([self._items[place] for place in sorted(self._items)] or self._output)
        self._draft.hosted, self._draft.citations = read_items(items)
        # The service needs any item back but a plain message.
        is_needed = any(item.get("type") != "message" or item.get("phase") for item in items)
        return items if self._ends and is_needed and not self._draft.cut else None

    def _place(self, event: Mapping[str, Any], item: Mapping[str, Any] | None = None) -> int:
        """Return the number of an event's item. An id may change from event to event, or an index be 0 for all."""
        names: list[Any] = [event.get("item_id"), event.get("output_index")]
        names = [each for each in names if isinstance(each, str | int)] or [None]
        place = next((self._places[each] for each in names if each in self._places), -1)
        mark = None if item is None else (item.get("type"), str(item.get("call_id")))
        if place < 0 or (mark and self._marks[place] not in (None, mark)):
            place = len(self._marks)
            self._marks.append(mark)
        self._marks[place] = mark or self._marks[place]
        self._places.update(dict.fromkeys(names, place))
        return place

    def _add(self, place: int, kind: str, part: Any, text: str) -> str:
        """Add a piece of text. A blank line stands between two parts of the reasoning."""
        draft = self._draft
        self._added.add((place, kind))
        if kind == _TEXT:
            self._texts.setdefault(place, []).append(text)
            return draft.write(text)
        if kind == _ARGUMENTS:
            draft.add_call(place, given=text)
            return ""
        before, self._part = self._part, (place, kind, part)
        draft.add_reasoning(f"\n\n{text}" if before[1] and before != self._part else text)
        return ""

    def _item(self, place: int, item: dict[str, Any], whole: bool) -> str:
        """Add an item of the output. Items of unknown types are only kept as they are."""
        self._draft.began = True
        kind, pending = item.get("type"), None
        if kind in CALL_TYPES:
            id, name, given = read_call(item)
            begun = self._calls.get(place) if whole and place not in self._items else None
            pending = self._calls[place] = begun or self._draft.add_call(place, id, name)
        if whole:
            self._items[place] = (item, pending)
        if pending is not None and not whole:
            pending.value = given  # for an endpoint that sends the input only here
        elif pending is not None:
            is_more = not pending.has_whole_input() and (pending.is_empty or given not in ("{}", {}))
            if is_more and given not in (None, ""):
                pending.arguments, pending.value = [], None
                self._draft.add_call(place, given=given)
        elif kind == "message" and whole:
            came, text = "".join(self._texts.get(place, ())), self._text_of(item)
            self._texts[place] = [came]
            return self._add(place, _TEXT, None, text[len(came) :]) if text.startswith(came) else ""
        elif kind == "reasoning" and whole:
            self._reason(place, item)
        return ""

    def _text_of(self, item: dict[str, Any]) -> str:
        if item.get("role", "assistant") != "assistant":
            return ""
        texts = _parts(item.get("content"), ("output_text", "text", "refusal"))
        self._refused = self._refused or any(part == "refusal" for part, _ in texts)
        return "".join([text for _, text in texts])

    def _reason(self, place: int, item: dict[str, Any]) -> None:
        """Add the reasoning of a whole item, if none of it came in pieces."""
        for way, parts in ((_RAW, item.get("content")), (_SUMMARY, item.get("summary"))):
            if (place, way) not in self._added:
                for number, (_, text) in enumerate(_parts(parts, ("reasoning_text", "summary_text", "text"))):
                    self._add(place, way, number, text)

    def _about(self, response: Mapping[str, Any]) -> None:
        if isinstance(response.get("model"), str):
            self._draft.model = response["model"]
        if isinstance(tier := response.get("service_tier"), str):
            self._draft.service_tier = tier
        if isinstance(response.get("usage"), dict):
            self._draft.usage = usage_of(response["usage"], {})
            self._draft.cost = cost_of(response["usage"])

    def _end(self, response: dict[str, Any], event: str = "") -> str:
        """Add what only the whole response holds: what did not come before, usage, the reason of the end."""
        draft = self._draft
        draft.began = True
        self._ends += 1
        self._about(response)
        output = response.get("output")
        self._output.clear()
        text = ""
        for place, item in enumerate(output if isinstance(output, list) else ()):
            if not isinstance(item, dict):
                continue
            is_call, index = item.get("type") in CALL_TYPES, ("output", self._ends, place)
            pending = draft.add_call(index, *read_call(item), group=self._ends) if is_call else None
            self._output.append((item, pending))
            if item.get("type") == "message":
                text += self._text_of(item)
            elif item.get("type") == "reasoning" and not self._marks:
                self._reason(-1 - place, item)
        said = response.get("output_text")
        shown = draft.write(text or (said if isinstance(said, str) else ""), whole=True)
        status, error = response.get("status") or event, response.get("error")
        if error or status in ("failed", "cancelled"):
            draft.error = error or f"the endpoint ended the reply as {status}"
        if status == "incomplete":
            details = response.get("incomplete_details")
            draft.end((details.get("reason") if isinstance(details, dict) else None) or "length")
            draft.finish = "length" if draft.finish == "stop" else draft.finish  # for any other reason
        elif status not in ("queued", "in_progress"):
            draft.finish = "filter" if self._refused else "stop"
        return shown


def _parts(parts: Any, kinds: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the kinds and texts of the parts that hold text."""
    out: list[tuple[str, str]] = [(kinds[0], parts)] if isinstance(parts, str) else []
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict) and part.get("type") in kinds:
            text = part.get("text", part.get("refusal"))
            if isinstance(text, str):
                out.append((part["type"], text))
    return out
