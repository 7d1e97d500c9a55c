"""A loopback endpoint that behaves as OpenAI documents its Responses endpoint, with or without reasoning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from models_server import Asked, event
from wire_writers import DECOY

Item = dict[str, Any]
Planned = tuple[str, ...] | str
"""A reply: the JSON texts of its calls ("name {...}"), or its text."""


class ResponsesEndpoint:
    """A handler for `models_server.Server`. It keeps no conversation: each request must hold all of it.

    `replies` are given by the turn that a request is at. `fail` are the numbers of the requests that it refuses with
    500. `refused` are the messages of all requests that it refused because of their content. `name` is part of what it
    encrypts: it refuses the reasoning of another endpoint.
    """

    def __init__(self, *replies: Planned, name: str = "", reasons: bool = True, fail: Sequence[int] = ()) -> None:
        self.name = name
        self.replies = replies
        self.reasons = reasons
        self.fail = fail
        self.refused: list[str] = []
        self.requests = 0

    async def __call__(self, asked: Asked) -> None:
        self.requests += 1
        if asked.path != "/v1/responses":
            await asked.answer(404, {"error": {"message": f"Unknown path {asked.path}"}})
        elif self.requests in self.fail:
            await asked.answer(500, {"error": {"message": "The server had an error.", "type": "server_error"}})
        elif problem := self.find_problem(asked.body):
            self.refused.append(problem["message"])
            await asked.answer(400, {"error": {"type": "invalid_request_error", **problem}})
        else:
            turn = find_responses_turn(asked.body["input"])
            response = self.respond(asked.body, self.replies[turn], turn)
            if asked.body.get("stream"):
                await asked.stream(b"".join(map(event, events_of(response))))
            else:
                await asked.answer(200, response)

    def find_problem(self, body: dict[str, Any]) -> Item:
        if "stop" in body:
            return {"code": "unknown_parameter", "param": "stop", "message": "Unknown parameter: 'stop'."}
        if self.reasons and "temperature" in body and (body.get("reasoning") or {}).get("effort") != "none":
            said = "Unsupported parameter: 'temperature' is not supported with this model."
            return {"code": None, "param": "temperature", "message": said}
        if not self.reasons and "reasoning.encrypted_content" in body.get("include", ()):
            return {"code": None, "param": "include", "message": "Encrypted content is not supported with this model."}
        if body.get("max_output_tokens", 16) < 16:
            said = "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16."
            return {"code": "integer_below_min_value", "param": "max_output_tokens", "message": said}
        message = self._find_missing_item(body["input"])
        return {"code": None, "param": "input", "message": message} if message else {}

    def _find_missing_item(self, items: list[Item]) -> str:
        thought = ""
        called = [each["call_id"] for each in items if each.get("type") == "function_call"]
        answered = [each["call_id"] for each in items if each.get("type") == "function_call_output"]
        for at, item in enumerate(items):
            kind = item.get("type", "message")
            if kind == "reasoning":
                if item.get("encrypted_content") != self._encrypt(item["id"]):
                    return (
                        f"Item with id '{item['id']}' not found. Items are not persisted when `store` is set to false."
                    )
                if at + 1 == len(items) or items[at + 1].get("type", "message") not in ("message", "function_call"):
                    return f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."
                thought = item["id"]
            elif kind == "function_call":
                if item["call_id"] not in answered:
                    return f"No tool output found for function call {item['call_id']}."
                needed = f"rs_{item['id'].split('_')[1]}" if self.reasons and "id" in item else ""
                if needed and thought != needed:
                    return (
                        f"Item '{item['id']}' of type 'function_call' was provided without its required 'reasoning' "
                        f"item: '{needed}'."
                    )
            elif kind == "function_call_output" and item["call_id"] not in called:
                return f"No tool call found for function call output with call_id {item['call_id']}."
        return ""

    def respond(self, body: Item, reply: Planned, turn: int) -> Item:
        """The whole response with a reply."""
        output = self.write_output(reply, turn)
        usage = {
            "input_tokens": 100 + turn,
            "input_tokens_details": {"cached_tokens": 64 * bool(turn)},
            "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 12},
        }
        return {
            "id": f"resp_{turn}",
            "object": "response",
            "status": "completed",
            "model": f"{body['model']}-2026",
            "output": output,
            "error": None,
            "incomplete_details": None,
            "usage": usage,
        }

    def write_output(self, reply: Planned, turn: int) -> list[Item]:
        """The items of a reply."""
        output: list[Item] = []
        if self.reasons:
            summary = [{"type": "summary_text", "text": DECOY}]
            thought = {"id": f"rs_{turn}", "type": "reasoning", "summary": summary}
            output.append({**thought, "encrypted_content": self._encrypt(f"rs_{turn}")})
        if isinstance(reply, str):
            part = {"type": "output_text", "annotations": [], "text": reply}
            said = {"id": f"msg_{turn}", "type": "message", "status": "completed", "role": "assistant"}
            return [*output, {**said, "content": [part]}]
        for number, call in enumerate(reply):
            name, _, arguments = call.partition(" ")
            made = {"id": f"fc_{turn}_{number}", "type": "function_call", "status": "completed", "name": name}
            output.append({**made, "call_id": f"call_{number}", "arguments": arguments})  # the same ids in each turn
        return output

    def _encrypt(self, id: str) -> str:
        return f"gAAAA-{self.name}-{id}=="


def find_responses_turn(items: list[Item]) -> int:
    """The number of the turn that a request asks for: how many replies of a model are in it."""
    made = [each.get("type") in ("reasoning", "function_call") or each.get("role") == "assistant" for each in items]
    return sum(is_made and not before for before, is_made in zip([False, *made], made, strict=False))


def events_of(response: Item) -> list[Item]:
    """A response as a stream, with its texts in pieces of four characters."""
    out: list[Item] = [{"type": "response.created", "response": {**response, "status": "in_progress", "output": []}}]
    for index, item in enumerate(response["output"]):
        at = {"output_index": index, "item_id": item["id"]}
        empty = {"summary": [], "content": [], "arguments": ""}
        begun = {key: empty.get(key, value) for key, value in item.items()}
        out.append({"type": "response.output_item.added", "item": begun, **at})
        for kind, text in _texts(item):
            pieces = [text[start : start + 4] for start in range(0, len(text), 4)]
            inner = {"summary_index" if "summary" in kind else "content_index": 0}
            out += [{"type": f"response.{kind}.delta", "delta": piece, **at, **inner} for piece in pieces]
            out.append({"type": f"response.{kind}.done", "text": text, "arguments": text, **at, **inner})
        out.append({"type": "response.output_item.done", "item": item, **at})
    out.append({"type": "response.completed", "response": response})
    return [{**each, "sequence_number": number} for number, each in enumerate(out)]


def _texts(item: Item) -> list[tuple[str, str]]:
    if item["type"] == "function_call":
        return [("function_call_arguments", item["arguments"])]
    summary = [("reasoning_summary_text", part["text"]) for part in item.get("summary", ())]
    return summary + [("output_text", part["text"]) for part in item.get("content", ())]
