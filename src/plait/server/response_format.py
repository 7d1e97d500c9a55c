"""Requests and answers of the Responses API, as OpenAI's clients know it.

The id of a response is `resp_RUN`, or `resp_RUN_N` for what the run did after the user's Nth answer (`recorded_reply`).
So any process can make a response again from the journal.

The number of an event (`sequence_number`) does not depend on the pieces in which a text came. Each item of the output
begins at a multiple of `ITEM`. In an item, an event counts one, and a piece of text as many as it has characters. A
stream that begins after a number sends the rest of that text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from plait.core import Event
from plait.journal.served_runs import UNNAMED, RunLabel
from plait.server.auth import Caller
from plait.server.chat_format import (
    ChatRequest,
    parse_answer_format,
    parse_body,
    parse_flag,
    parse_messages,
    parse_session,
    reject,
    usage_of,
)
from plait.server.errors import RequestRejected
from plait.server.recorded_reply import Ending, ReplyFormat, list_answered, response_id
from plait.server.reply_pieces import ReplyPieces
from plait.server.runs import RunManager
from plait.view.live import format_event

ITEM = 10_000_000
"""Numbers of events that an item of the output has."""
_TEXTS = {"message": "response.output_text", "reasoning": "response.reasoning_text"}
_LOGPROBS: dict[str, dict[str, Any]] = {"message": {"logprobs": []}, "reasoning": {}}
_MORE: dict[str, dict[str, Any]] = {"message": {"role": "assistant"}, "reasoning": {"summary": []}}
_PARTS: dict[str, dict[str, Any]] = {
    "message": {"type": "output_text", "text": "", "annotations": [], "logprobs": []},
    "reasoning": {"type": "reasoning_text", "text": ""},
}
"""By the type of an item: the events of its text, their fields, those of the item, its part."""


def parse_response_request(body: bytes, headers: Mapping[str, str]) -> ChatRequest:
    """Read a request to create a response. Raises `RequestRejected` naming the wrong field."""
    given, common = parse_body(body, headers)
    items, instructions, text = given.get("input"), given.get("instructions"), given.get("text")
    items = [{"role": "user", "content": items}] if isinstance(items, str) else items
    if isinstance(items, list):
        items = [_read_item(each, f"input[{i}]") for i, each in enumerate(items)]
    system, messages, earlier = parse_messages(items, "input")
    if not isinstance(instructions, str | None):
        reject("'instructions' is not text.", "instructions")
    conversation, previous, field = given.get("conversation"), given.get("previous_response_id"), "previous_response_id"
    if conversation is not None:
        common["session"] = parse_session(conversation.get("id") if isinstance(conversation, dict) else conversation)
    if previous is not None:
        if not isinstance(previous, str):
            reject(f"'{field}' is not text.", field)
        if common["session"] is not None:
            reject(f"'{field}' can't be used with a conversation.", field, hint="The response has one: leave one out.")
        if len(messages) > 1:
            reject("'input' repeats earlier messages.", "input", hint=f"With '{field}', send only what is new.")
    return ChatRequest(
        messages=messages,
        earlier=earlier,
        system="\n\n".join(filter(str.strip, (instructions or "", system))),
        output=parse_answer_format(text.get("format") if isinstance(text, dict) else text, "text.format"),
        previous=previous or "",
        background=parse_flag(given, "background", False),
        **common,
    )


def _read_item(item: Any, where: str) -> Any:
    """Return an item of the input as a message of chat completions."""
    match item:
        case {"type": "reasoning"}:
            return {"role": "assistant", "content": None}
        case {"type": "function_call", "call_id": id, "name": name, "arguments": arguments}:
            called = {"id": id, "function": {"name": name, "arguments": arguments}}
            return {"role": "assistant", "content": None, "tool_calls": [called]}
        case {"type": "function_call_output", "call_id": id, "output": output}:
            return {"role": "tool", "tool_call_id": id, "content": output}
        case {"type": str(kind)} if kind != "message":
            takes = "Agents take messages, and what a response has returned."
            return reject(f"'{where}' is an item of type {kind[:80]!r}. {takes}", where)
    return item


class ResponseFormat(ReplyFormat):
    """Responses. See `ReplyFormat`. `asked` None: a response is retrieved, and its error is a part of it. A stream has
    only the events after the number `after`, and always the last one."""

    def __init__(
        self, manager: RunManager, caller: Caller, asked: ChatRequest | None = None, *, after: int = -1
    ) -> None:
        self._manager, self._caller, self._asked, self._after = manager, caller, asked, after
        self._number, self._items = -1, list[dict[str, Any]]()
        self._kind = self._text = ""
        """The type and the text of the open item; "" if none is open."""

    async def open(self, run: str, part: int | None = None) -> None:
        store = self._manager.journal.store
        self._row = row = await store.find_run(run)
        part = len(await list_answered(store, run)) if part is None else part
        head, label = row.head, RunLabel.parse(row.head.label) or RunLabel("", row.head.agent)
        served = self._manager.agents.get(label.agent)
        schema = (head.settings.get("output") or {}).get("schema")
        thoughts = served is not None and served.thoughts
        agent = served.agent if served is not None else None
        self.pieces = ReplyPieces(agent, thoughts=thoughts, typed=schema is not None)
        self._suffix = response_id(run, part).removeprefix("resp_")
        followed = label.key if label.key.startswith("resp_") else None
        text = {"type": "json_schema", "name": "answer", "schema": schema} if schema is not None else {"type": "text"}
        session = self._caller.name_session(head.session)
        self._base: dict[str, Any] = {
            "id": response_id(run, part),
            "object": "response",
            "created_at": int(row.started),
            "background": (self._asked is not None and self._asked.background) or None,
            "conversation": {"id": session} if session and UNNAMED.search(session) is None else None,
            "metadata": head.metadata,
            "model": label.agent,
            "parallel_tool_calls": True,
            "previous_response_id": response_id(run, part - 1) if part else followed,
            "text": {"format": text},
            "tool_choice": "auto",
            "tools": [],
            "user": self._caller.name_session(head.user) or None,
        }

    def begin(self) -> bytes:
        response = self._response(None)
        return b"".join(self._event(f"response.{kind}", response=response) for kind in ("created", "in_progress"))

    def add(self, event: Event) -> bytes:
        reasoning, content = self.pieces.add(event)
        sent = self._close_item(phase="commentary") if self.pieces.is_withdrawn else b""
        if reasoning and self._kind != "message":  # an answer that is being sent stays whole
            sent += self._write("reasoning", reasoning)
        return sent + self._write("message", content) if content else sent

    def end(self, ending: Ending) -> bytes:
        sent = b""
        try:
            rest = self.pieces.rest(ending.content) if ending.error is None else ""
        except RequestRejected as error:
            ending = structs.replace(ending, error=error)
        if ending.error is None:
            sent += self._write("message", rest)
        is_whole = ending.error is None and ending.finish == "stop"
        sent += self._close_item(status="completed" if is_whole else "incomplete", **ending.files)
        response = self._response(ending)
        kind = response["status"] if response["status"] in ("completed", "incomplete") else "failed"
        self._number = max(self._number, ITEM * (len(self._items) + 1) - 1, self._after)
        return sent + self._event(f"response.{kind}", response=response)

    def whole(self, ending: Ending | None) -> dict[str, Any]:
        if ending is None:
            return self._response(None)
        if ending.error is not None and self._asked is not None and not self._asked.background:
            raise ending.error
        self.end(ending)
        return self._response(ending)

    # -- the events

    def _event(self, kind: str, counts: int = 1, **fields: Any) -> bytes:
        self._number += counts
        event = {"type": kind, **fields, "sequence_number": self._number}
        return format_event(event, kind) if self._number > self._after else b""

    def _write(self, kind: str, text: str) -> bytes:
        """Add text to the open item; opens one of that type if need be."""
        sent = b""
        if self._kind != kind:
            sent += self._close_item()
            self._kind, index, is_message = kind, len(self._items), kind == "message"
            self._number = max(self._number, ITEM * (index + 1) - 1)
            id, more = f"{'msg' if is_message else 'rs'}_{self._suffix}_{index}", _MORE[kind]
            self._item = {"type": kind, "id": id, "status": "in_progress", "content": [], **more}
            self._place: dict[str, Any] = {"item_id": id, "output_index": index, "content_index": 0}
            sent += self._event("response.output_item.added", output_index=index, item=self._item)
            sent += self._event("response.content_part.added", **self._place, part=_PARTS[kind])
        self._text += text
        if not text:
            return sent
        fields = {**self._place, "delta": text[max(0, self._after - self._number) :], **_LOGPROBS[kind]}
        return sent + self._event(f"{_TEXTS[kind]}.delta", len(text), **fields)

    def _close_item(self, **more: Any) -> bytes:
        if not (kind := self._kind):
            return b""
        part = _PARTS[kind] | {"text": self._text}
        if kind == "message" and "phase" not in more:
            part["annotations"] = [{"type": "url_citation", **each} for each in self.pieces.annotate(self._text)]
        item = self._item | {"status": "completed", "content": [part]} | (more if kind == "message" else {})
        sent = self._event(f"{_TEXTS[kind]}.done", **self._place, text=self._text, **_LOGPROBS[kind])
        sent += self._event("response.content_part.done", **self._place, part=part)
        sent += self._event("response.output_item.done", output_index=len(self._items), item=item)
        self._items.append(item)
        self._kind = self._text = ""
        return sent

    # -- the response

    def _response(self, ending: Ending | None) -> dict[str, Any]:
        """Return the response. Its output has what was said before a call as reasoning, so that the texts of its
        messages are the answer alone."""
        error = cause = usage = None
        if ending is None:
            waits = self._row.status == "interrupted" or not self._row.head.has_begun
            status = "queued" if waits else "in_progress"
        elif ending.error is not None:
            status = "cancelled" if ending.run is not None and ending.run.status == "cancelled" else "failed"
            error = {"code": "server_error", "message": str(ending.error)} if status == "failed" else None
        else:
            status = "completed" if ending.finish == "stop" else "incomplete"
            cause = {"reason": "max_output_tokens"} if status == "incomplete" else None
        if ending is not None and ending.run is not None:
            used = usage_of(ending.run)
            usage = {name.replace("prompt", "input").replace("completion", "output"): used[name] for name in used}
        output = []
        for item in self._items if ending is not None else ():
            if item.get("phase") != "commentary":
                output.append(item)
            elif self.pieces.thoughts:
                content = [_PARTS["reasoning"] | {"text": item["content"][0]["text"]}]
                id = item["id"].replace("msg_", "rs_", 1)
                output.append({"type": "reasoning", "id": id, "status": "completed", "summary": [], "content": content})
        said = {"status": status, "error": error, "incomplete_details": cause, "output": output, "usage": usage}
        return self._base | said
