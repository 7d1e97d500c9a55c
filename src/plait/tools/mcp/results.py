"""Results of MCP tools as results of Plait's tools, and arguments in the other direction.

A result is plain JSON, as the server sent it: a server may break the protocol, but the call is made. Structured content
is the result if there is some. Text that does not only repeat it is kept. Without structured content, the result is the
text; Plait joins several texts with an empty line. With the extra `images`, an image becomes an image artifact. Sound
and other files become a `File`. A text resource becomes its address and its text, a link its address.
"""

from __future__ import annotations

import base64
import importlib
import json
import time
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any

from plait.core.artifacts import Artifact
from plait.core.attachments import File, detect_media_type
from plait.core.call_check import find_faults
from plait.core.errors import PlaitError, ToolError
from plait.core.json_schema import show_place
from plait.tools.mcp.schema import is_wrapped

if TYPE_CHECKING:
    from mcp.shared.dispatcher import ProgressFnT

IMAGE_MODULE = "plait.toolkits.image"
"""Named and not imported, because toolkits are a layer above tools."""

PROGRESS_SECONDS = 0.25
"""The shortest time between two reports of progress."""

MAX_CHECKED = 5_000_000
"""Characters of a result times those of its output schema, because the server writes both. More is not checked."""
_FIELDS = ("content", "isError", "is_error", "structuredContent", "structured_content", "resultType", "_meta")
_TO_BASE64 = str.maketrans("-_", "+/")
NOTHING = "(The call was made. The server sent no result.)"


def read_result(result: Any, output_schema: Any = None) -> Any:
    """Return the value of a call's result. A schema that only wraps the result is unwrapped.

    With an output schema, the value is the structured content; an object gets other text as the entry `text`. Without
    one, structured content follows the text. Raises `ToolError` with the server's words if the result is an error.
    """
    if not isinstance(result, dict):
        return NOTHING if result is None else result
    content = result.get("content")
    parts = [_read_block(block) for block in (content if isinstance(content, list) else [content] if content else [])]
    artifacts = [part for part in parts if not isinstance(part, str)]
    texts = [part for part in parts if isinstance(part, str)]
    value = structured = result.get("structuredContent", result.get("structured_content"))
    if structured is not None:
        texts = _without_repetitions(texts, structured)
        if is_wrapped(output_schema) and isinstance(structured, dict) and set(structured) == {"result"}:
            value = structured["result"]
    shown = json.dumps(value, ensure_ascii=False)
    if str(result.get("isError", result.get("is_error"))).lower() == "true":
        words = texts if value is None else [*texts, shown]
        raise ToolError("\n\n".join(words) or "The MCP server reports that the call failed, without a reason.")
    if value is None and not texts and not artifacts:
        other = {name: each for name, each in result.items() if name not in _FIELDS}
        return None if isinstance(content, list) else other or NOTHING
    inner = output_schema["properties"]["result"] if is_wrapped(output_schema) else output_schema
    if value is not None and inner and len(shown) * len(json.dumps(inner)) < MAX_CHECKED:
        for path, fault in islice(find_faults(value, inner, output_schema), 1):
            texts.append(f"(The result does not fit the tool's output schema: {show_place('result', path)} {fault}.)")
    text = "\n\n".join(texts)
    found: list[Any] = [value]
    if value is None:
        found = [text] if text or not artifacts else []
    elif text and output_schema is None:
        found = [f"{text}\n\n{shown}"]
    elif text:
        found = [{**value, "text": text}] if isinstance(value, dict) and "text" not in value else [value, text]
    found += artifacts
    return found[0] if len(found) == 1 else found


def _without_repetitions(texts: list[str], structured: Any) -> list[str]:
    """Return the texts that are not structured content again, or an entry of it, as JSON or as they are."""
    known = [structured, *(structured.values() if isinstance(structured, dict) else ())]
    values = [_read_json(text) for text in texts]
    if texts in known or values in known:  # each is an item of a list
        return []
    return [text for text, value in zip(texts, values, strict=True) if text not in known and value not in known]


def _read_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


class EncodedArtifact(str):
    """The base64 of an artifact's bytes. Guards are shown the handle of the `artifact`."""

    artifact: Artifact

    def __new__(cls, artifact: Any) -> EncodedArtifact:
        encoded = super().__new__(cls, base64.b64encode(artifact.data).decode())
        encoded.artifact = artifact
        return encoded


def encode_artifacts(value: Any) -> Any:
    """Return an argument with artifacts as base64. Raises `ToolError` for one without bytes, such as a table."""
    if isinstance(value, Artifact):
        data = getattr(value, "data", None)
        if not isinstance(data, bytes):
            raise ToolError(f"Plait cannot send {value.about()} to this tool, because it is not a file.")
        return EncodedArtifact(value)
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


def _read_block(block: Any) -> str | Artifact:
    match block:
        case str():
            return block
        case {"type": "image" | "audio", "data": str(data)}:
            return _read_file(data, block.get("mimeType"))
        case {"type": "resource", "resource": {"blob": str(data), **resource}}:
            return _read_file(data, resource.get("mimeType"))
        case {"type": "resource", "resource": {"uri": uri, **resource}}:
            return f"(resource {uri})\n{resource.get('text') or ''}"
        case {"type": "resource_link", "uri": uri}:
            details = (block.get("title") or block.get("name"), block.get("mimeType"))
            return f"(resource {uri}{''.join(f', {each}' for each in details if each)})"
        case {"text": str(text)}:
            return text
    return f"(a part that Plait cannot read: {json.dumps(block, ensure_ascii=False)})"


def _read_file(encoded: str, media_type: Any) -> str | Artifact:
    text = "".join((encoded.partition(";base64,")[2] or encoded).split()).translate(
        _TO_BASE64
    )  # also of a data: address, or for URLs
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        return f"(a file of type {media_type} that is not valid base64)"
    if not isinstance(media_type, str) or "/" not in media_type:
        media_type = detect_media_type(data)
    if media_type.startswith("image/"):
        try:
            image: Artifact = importlib.import_module(IMAGE_MODULE).Image.from_bytes(data)
            return image
        except (PlaitError, ImportError):  # Pillow is not installed, or cannot read it
            pass
    return File(media_type, data)
