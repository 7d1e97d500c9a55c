"""Attachments in a request: each stands there as a reference, and its bytes replace the reference when it is sent.

A reference is a JSON text with `\\/` in it. The JSON encoder writes a slash without a backslash, so no text of a user,
a model or a tool can look like a reference. The journal stores requests with references, and each content once.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Raw, structs

from plait.core import Attachment, Message

OF_RESULTS = "These are the files in the results above."
"""Stands in the user's message that holds the files of tool results."""

_MARK = b"plait-content:"
_REFERENCE = re.compile(rb"plait-content:\\/\\/([0-9a-f]{64})\\/(\d+)")


def refer_to(attachment: Attachment, *, data_url: bool = False) -> Raw:
    """Return the JSON text for the bytes of an attachment in base64; `data_url`: as a data URL."""
    prefix = f"data:{attachment.media_type};base64," if data_url else ""
    return Raw(f'"{prefix}plait-content:\\/\\/{attachment.digest}\\/{attachment.tokens}"'.encode())


def show_parts(
    attachments: Iterable[Attachment], text: Callable[[str], Any], part: Callable[[Attachment], Any]
) -> list[Any]:
    """Return the parts of a message for attachments: each behind its name, if it has one."""
    shown = (([text(f"{each.name}:")] if each.name else []) + [part(each)] for each in attachments)
    return [each for parts in shown for each in parts]


def with_files_behind_results(messages: Iterable[Message]) -> list[Message]:
    """Return the messages for tool messages that hold only text: the files of results follow in a user's message."""
    out: list[Message] = []
    seen: tuple[Attachment, ...] = ()
    for message in messages:
        if message.role == "tool":
            seen += message.attachments
            message = structs.replace(message, attachments=())
        elif seen:
            out.append(Message("user", OF_RESULTS, attachments=seen))
            seen = ()
        out.append(message)
    return [*out, Message("user", OF_RESULTS, attachments=seen)] if seen else out


def find_references(body: bytes) -> tuple[str, ...]:
    """Return the digests that a body refers to, each once."""
    if _MARK not in body:
        return ()
    return tuple(dict.fromkeys(digest.decode() for digest, _ in _REFERENCE.findall(body)))


def count_referenced_tokens(body: bytes) -> int:
    """Return the estimated tokens of all contents that a body refers to."""
    return sum(int(tokens) for _, tokens in _REFERENCE.findall(body)) if _MARK in body else 0


def fill_contents(body: bytes, contents: Mapping[str, bytes]) -> bytes:
    """Return a body as it is sent, with the contents (by digest) in place of the references. Raises `KeyError`."""
    if _MARK not in body:
        return body
    return _REFERENCE.sub(lambda match: base64.b64encode(contents[match[1].decode()]), body)
