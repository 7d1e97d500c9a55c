"""Results of MCP tools as results of Plait's tools, and arguments in the other direction.

Structured content is the result if there is some, because its text is the same data again. Otherwise the result is the
text; Plait joins several texts with an empty line. With the extra `images`, an image becomes an image artifact. Sound
and other files become a `File`. A text resource becomes its address and its text, a link its address.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from plait.core.artifacts import Artifact
from plait.core.attachments import File
from plait.core.errors import PlaitError, ToolError

if TYPE_CHECKING:
    from mcp.shared.dispatcher import ProgressFnT
    from mcp_types import CallToolResult, ContentBlock

IMAGE_MODULE = "plait.toolkits.image"
"""Named and not imported, because toolkits are a layer above tools."""

PROGRESS_SECONDS = 0.25
"""The shortest time between two reports of progress."""


def read_result(result: CallToolResult, *, unwrap: bool = False) -> Any:
    """Return the value of a call's result. With `unwrap`, it is the entry `result` of the structured content.

    Raises `ToolError` with the server's text if the result is an error.
    """
    parts = [_read_block(block) for block in result.content]
    text = "\n\n".join(part for part in parts if isinstance(part, str))
    artifacts = [part for part in parts if not isinstance(part, str)]
    structured = result.structured_content
    if result.is_error:
        if not text and structured is not None:
            text = json.dumps(structured, ensure_ascii=False)
        raise ToolError(text or "The MCP server reports that the call failed, without a reason.")
    if structured is not None:
        if unwrap and isinstance(structured, dict) and set(structured) == {"result"}:
            structured = structured["result"]
        return [structured, *artifacts] if artifacts else structured
    if not artifacts:
        return text if result.content else None
    if text:
        return [text, *artifacts]
    return artifacts[0] if len(artifacts) == 1 else artifacts


def encode_artifacts(value: Any) -> Any:
    """Return an argument with each artifact in it replaced by its bytes in base64.

    Raises `ToolError` for an artifact that has no bytes, such as a table.
    """
    if isinstance(value, Artifact):
        data = getattr(value, "data", None)
        if not isinstance(data, bytes):
            raise ToolError(f"Plait cannot send {value.about()} to this tool, because it is not a file.")
        return base64.b64encode(data).decode()
    if isinstance(value, dict):
        return {key: encode_artifacts(each) for key, each in value.items()}
    return [encode_artifacts(each) for each in value] if isinstance(value, (list, tuple)) else value


def format_progress(report: Callable[[str], None]) -> ProgressFnT:
    """Return a callback for the SDK that reports a server's progress as text, at most four times a second."""
    last = 0.0

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        nonlocal last
        if time.monotonic() - last < PROGRESS_SECONDS:
            return
        last = time.monotonic()
        share = f"{progress:g} of {total:g}" if total else f"{progress:g}"
        report(f"{message[:300]} ({share})" if message else share)

    return on_progress


def _read_block(block: ContentBlock) -> str | Artifact:
    if block.type == "text":
        return block.text
    if block.type == "image" or block.type == "audio":
        return _read_file(block.data, block.mime_type)
    if block.type == "resource_link":
        details = "".join(f", {each}" for each in (block.title or block.name, block.mime_type) if each)
        return f"(resource {block.uri}{details})"
    resource = block.resource
    if (blob := getattr(resource, "blob", None)) is not None:
        return _read_file(blob, resource.mime_type or "application/octet-stream")
    return f"(resource {resource.uri})\n{getattr(resource, 'text', '')}"


def _read_file(encoded: str, media_type: str) -> str | Artifact:
    try:
        data = base64.b64decode(encoded)
    except (binascii.Error, ValueError):
        return f"(a file of type {media_type} that is not valid base64)"
    if media_type.startswith("image/"):
        try:
            image: Artifact = importlib.import_module(IMAGE_MODULE).Image.from_bytes(data)
            return image
        except (PlaitError, ImportError):  # Pillow is not installed, or cannot read it
            pass
    return File(media_type, data)
