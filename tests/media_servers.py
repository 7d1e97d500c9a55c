"""Loopback endpoints of the four wires that accept only the documented parts of a message, and keep the files in them.

An unknown part, a wrong media type or bytes that are not base64 are refused with 400, as the providers do.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import struct
import zlib
from collections.abc import Callable
from typing import Any, TypeAlias

from models_server import Asked, completion
from plait.models.base import Abilities
from plait.models.chat import ChatModel

Found: TypeAlias = tuple[str, str, str]
"""Where a file stands in a request ("user", "tool"), its media type, the SHA-256 digest of its bytes."""
Said: TypeAlias = str | tuple[str, dict[str, Any]]
"""A reply: its text, or a call's tool and input."""

IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
SEES = Abilities(stream=False, images=True, files=True)


class Refused(Exception):
    """What is wrong with a request."""


def png(color: int = 0) -> bytes:
    """A picture of 2 x 2 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes((color % 256, 0, 255)) * 2 for _ in range(2))
    header = struct.pack(">IIBBBBB", 2, 2, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read_file(where: str, media_type: str, data: str, allowed: tuple[str, ...]) -> Found:
    if media_type not in allowed:
        raise Refused(f"{media_type} is not supported here")
    try:
        return where, media_type, digest(base64.b64decode(data, validate=True))
    except binascii.Error:
        raise Refused("invalid base64 data") from None


def read_url(where: str, url: str, allowed: tuple[str, ...]) -> Found:
    found = re.fullmatch(r"data:([\w/]+);base64,(.+)", url, re.DOTALL)
    if found is None:
        raise Refused(f"no data URL: {url[:60]}")
    return read_file(where, found[1], found[2], allowed)


def files_of_chat(body: dict[str, Any]) -> list[Found]:
    found = []
    for message in body["messages"]:
        content = message["content"]
        if isinstance(content, str) or content is None:
            continue
        if message["role"] != "user":
            raise Refused(f"a message of the {message['role']} holds only text")
        for part in content:
            match part:
                case {"type": "text", "text": str()} if len(part) == 2:
                    pass
                case {"type": "image_url", "image_url": {"url": str(url)}}:
                    found.append(read_url("user", url, IMAGES))
                case {"type": "file", "file": {"filename": str(), "file_data": str(url)}}:
                    found.append(read_url("user", url, ("application/pdf",)))
                case _:
                    raise Refused(f"unknown part {part}")
    return found


def files_of_responses(body: dict[str, Any]) -> list[Found]:
    found = []
    for item in body["input"]:
        is_result = item.get("type") == "function_call_output"
        content = item["output"] if is_result else item.get("content", "")
        for part in [] if isinstance(content, str) else content:
            match part:
                case {"type": "input_text" | "output_text", "text": str()}:
                    pass
                case {"type": "input_image", "image_url": str(url), "detail": "auto"}:
                    found.append(read_url("tool" if is_result else "user", url, IMAGES))
                case {"type": "input_file", "filename": str(), "file_data": str(url)}:
                    found.append(read_url("tool" if is_result else "user", url, ("application/pdf",)))
                case _:
                    raise Refused(f"unknown part {part}")
    return found


def files_of_anthropic(body: dict[str, Any]) -> list[Found]:
    found = []

    def read(blocks: list[Any], where: str) -> None:
        for block in blocks:
            match {key: value for key, value in block.items() if key != "cache_control"}:
                case {"type": "text" | "tool_use"}:
                    pass
                case {"type": "tool_result", "content": content}:
                    read(content if isinstance(content, list) else [], "tool")
                case {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}:
                    found.append(read_file(where, media, data, IMAGES))
                case {"type": "document", "source": {"type": "base64", "media_type": media, "data": data}}:
                    found.append(read_file(where, media, data, ("application/pdf",)))
                case _:
                    raise Refused(f"unknown block {block}")

    for message in body["messages"]:
        read(message["content"], message["role"])
    return found


def files_of_gemini(body: dict[str, Any]) -> list[Found]:
    found = []
    for content in body["contents"]:
        for part in content["parts"]:
            match part:
                case {"text": str()} | {"functionCall": _}:
                    pass
                case {"inlineData": {"mimeType": media, "data": data}}:
                    found.append(read_file("user", media, data, (*IMAGES, "application/pdf")))
                case {"functionResponse": response}:
                    for each in response.get("parts", ()):
                        blob = each["inlineData"]
                        found.append(read_file("tool", blob["mimeType"], blob["data"], (*IMAGES, "application/pdf")))
                case _:
                    raise Refused(f"unknown part {part}")
    return found


def reply_of_chat(said: Said) -> dict[str, Any]:
    if isinstance(said, str):
        return completion(said)
    function = {"name": said[0], "arguments": json.dumps(said[1])}
    return completion("", "tool_calls", tool_calls=[{"id": "call_a", "type": "function", "function": function}])


def reply_of_responses(said: Said) -> dict[str, Any]:
    if isinstance(said, str):
        item: dict[str, Any] = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
        item["content"] = [{"type": "output_text", "text": said, "annotations": []}]
    else:
        item = {"type": "function_call", "id": "fc_1", "call_id": "call_a", "name": said[0], "status": "completed"}
        item["arguments"] = json.dumps(said[1])
    usage = {"input_tokens": 12, "output_tokens": 5, "total_tokens": 17}
    return {"id": "resp_1", "object": "response", "status": "completed", "output": [item], "usage": usage}


def reply_of_anthropic(said: Said) -> dict[str, Any]:
    if isinstance(said, str):
        block: dict[str, Any] = {"type": "text", "text": said}
    else:
        block = {"type": "tool_use", "id": "toolu_a", "name": said[0], "input": said[1]}
    stop = "end_turn" if isinstance(said, str) else "tool_use"
    usage = {"input_tokens": 12, "output_tokens": 5}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [block]}
    return {**message, "stop_reason": stop, "stop_sequence": None, "usage": usage}


def reply_of_gemini(said: Said) -> dict[str, Any]:
    part = {"text": said} if isinstance(said, str) else {"functionCall": {"name": said[0], "args": said[1]}}
    usage = {"promptTokenCount": 12, "candidatesTokenCount": 5, "totalTokenCount": 17}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "usageMetadata": usage}


Wire: TypeAlias = tuple[str, str, Callable[[dict[str, Any]], list[Found]], Callable[[Said], dict[str, Any]]]
WIRES: dict[str, Wire] = {
    "chat": ("openai", "gpt-4o", files_of_chat, reply_of_chat),
    "responses": ("openai", "gpt-5", files_of_responses, reply_of_responses),
    "anthropic": ("anthropic", "claude-sonnet-4-5", files_of_anthropic, reply_of_anthropic),
    "gemini": ("gemini", "gemini-3-pro", files_of_gemini, reply_of_gemini),
}


class MediaEndpoint:
    """A handler for `models_server.Server` with the replies in order. `seen` are the files of each request."""

    def __init__(self, wire: str, *replies: Said) -> None:
        self.wire, self._replies = wire, list(replies)
        self.seen: list[list[Found]] = []
        self.bodies: list[bytes] = []
        self.refused: list[str] = []

    async def __call__(self, asked: Asked) -> None:
        _, _, files_of, reply_of = WIRES[self.wire]
        self.bodies.append(asked.raw)
        try:
            self.seen.append(files_of(asked.body))
        except Refused as why:
            self.refused.append(str(why))
            await asked.answer(400, {"error": {"type": "invalid_request_error", "message": str(why)}})
            return
        await asked.answer(200, reply_of(self._replies.pop(0) if self._replies else "done"))

    def model(self, url: str, **options: Any) -> ChatModel:
        """The model of this endpoint, with images and files."""
        provider, name, _, _ = WIRES[self.wire]
        fields: dict[str, Any] = {"spec": f"test:{name}", "name": name, "provider": provider, "abilities": SEES}
        return ChatModel(**{**fields, "endpoint": url, "wire": self.wire, "key": "sk-secret-key", **options})
