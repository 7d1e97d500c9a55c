"""What an MCP server answers to a call, as a tool's result: text, JSON, and things for what is neither.

Structured content is the result where there is some: it is the data, and what text comes with it is the same once more
for clients that don't know it. Else text is text, several texts are one with an empty line between them, and a text
resource is its text with its address above it. A picture is an image that goes by its handle (with the extra `images`;
such an agent's other tools take it), and sound, other pictures and files are an `Attachment`. A link to a resource is
its address.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from plait.core.errors import PlaitError, ToolError
from plait.core.things import Thing

if TYPE_CHECKING:
    from mcp.shared.dispatcher import ProgressFnT
    from mcp_types import CallToolResult, ContentBlock

IMAGE = "plait.toolkits.image"
"""Where images are, named and not imported: toolkits are built on tools, not the other way round."""

OFTEN = 4


@dataclass(frozen=True)
class Attachment(Thing):
    """A file that a server sent: its bytes, and what the server says they are."""

    kind: ClassVar[str] = "file"
    media_type: str
    data: bytes

    def about(self) -> str:
        return f"<File {self.media_type}, {len(self.data):,} bytes>"

    def dump(self) -> bytes:
        return json.dumps({"media_type": self.media_type}).encode() + b"\n" + self.data

    @classmethod
    def load(cls, data: bytes) -> Self:
        head, line, rest = data.partition(b"\n")
        try:
            media = json.loads(head)["media_type"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError("These are not the bytes of a file that was written down.") from error
        if not line or not isinstance(media, str):
            raise ValueError("These are not the bytes of a file that was written down.")
        return cls(media, rest)


def value_of(result: CallToolResult, *, wrapped: bool = False) -> Any:
    """The result of a call. `wrapped`: it is the one entry `result` of the structured content.

    Raises `ToolError` with the server's words for a result that says it is an error.
    """
    parts = [_part(block) for block in result.content]
    words = "\n\n".join(part for part in parts if isinstance(part, str))
    things = [part for part in parts if not isinstance(part, str)]
    if result.is_error:
        if not words and result.structured_content is not None:
            words = json.dumps(result.structured_content, ensure_ascii=False)
        raise ToolError(words or "The server says that the call failed, and not why.")
    structured = result.structured_content
    if structured is not None:
        if wrapped and isinstance(structured, dict) and set(structured) == {"result"}:
            structured = structured["result"]
        return [structured, *things] if things else structured
    if not things:
        return words if result.content else None
    if words:
        return [words, *things]
    return things[0] if len(things) == 1 else things


def sent(value: Any) -> Any:
    """An argument with the bytes, in base64, of each thing in it. Raises `ToolError` for a thing that is no file."""
    if isinstance(value, Thing):
        data = getattr(value, "data", None)
        if not isinstance(data, bytes):
            raise ToolError(f"{value.about()} can't be sent to this tool: it is no file.")
        return base64.b64encode(data).decode()
    if isinstance(value, dict):
        return {key: sent(each) for key, each in value.items()}
    return [sent(each) for each in value] if isinstance(value, (list, tuple)) else value


def progress(said: Callable[[str], None]) -> ProgressFnT:
    """What a server's notes on how far a call is are handed to: each in words, at most `OFTEN` a second."""
    last = 0.0

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        nonlocal last
        if time.monotonic() - last < 1 / OFTEN:
            return
        last = time.monotonic()
        share = f"{progress:g} of {total:g}" if total else f"{progress:g}"
        said(f"{message[:300]} ({share})" if message else share)

    return heard


def _part(block: ContentBlock) -> str | Thing:
    if block.type == "text":
        return block.text
    if block.type == "image" or block.type == "audio":
        return _file(block.data, block.mime_type)
    if block.type == "resource_link":
        about = "".join(f", {each}" for each in (block.title or block.name, block.mime_type) if each)
        return f"(resource {block.uri}{about})"
    held = block.resource
    blob = getattr(held, "blob", None)
    if blob is not None:
        return _file(blob, held.mime_type or "application/octet-stream")
    return f"(resource {held.uri})\n{getattr(held, 'text', '')}"


def _file(encoded: str, media: str) -> str | Thing:
    try:
        data = base64.b64decode(encoded, validate=False)
    except (binascii.Error, ValueError):
        return f"(a file of type {media} that can't be decoded)"
    if media.startswith("image/"):
        try:
            found: Thing = importlib.import_module(IMAGE).Image.from_bytes(data)
            return found
        except (PlaitError, ImportError):  # no Pillow, or no picture: it is kept as it came
            pass
    return Attachment(media, data)
