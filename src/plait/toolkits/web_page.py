"""`fetch`: one tool that reads a page of the public web as text."""

from __future__ import annotations

import asyncio
import codecs
import re
from contextlib import suppress
from email.message import Message

from plait.core.errors import ConfigError, ToolError
from plait.core.text import decode_text
from plait.toolkits.html_text import html_to_text
from plait.toolkits.service import SECONDS
from plait.tools.tool import Tool, tool

MAX_BYTES = 4 << 20
"""Maximum size of a page: 4 MiB."""
SHOWN = 7_000
"""Characters of a page that one call returns: an observation shows about as many."""

_HTML = ("text/html", "application/xhtml+xml")
_TEXT = ("text/plain", "text/markdown", "text/x-markdown", "text/csv", "application/json", "application/ld+json")
_NO_CHARSETS = ("idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined")
"""Python's encodings that no page has, and that take quadratic time."""
_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.I)


def fetch(hosts: str | None = None, *, private: bool = False, timeout: float = SECONDS) -> tuple[Tool, ...]:
    """Makes the tool `fetch`.

    `hosts` are the only hosts that it may ask, with commas between them, also after a redirect; all public ones
    without it. `private` also allows addresses of this machine and of private networks. By default they are refused,
    because a model's address may come from a malicious page. `timeout` in seconds.
    """
    allowed = tuple(_read_host(each) for each in hosts.split(",")) if hosts is not None else ()
    only = f" Only of {', '.join(allowed)}." if allowed else ""

    @tool(name="fetch", description=f"Reads a page of the web as text.{only}", read_only=True, open_world=True)
    async def fetch_page(url: str, start: int = 0) -> str:
        """
        Args:
            url: The page's address, beginning with http:// or https://.
            start: The number of the first character, to read on in a long page.
        """
        from plait.toolkits.download import download_page

        accept = f"{_HTML[0]}, {', '.join(_TEXT[:2])}, application/json, */*;q=0.1"
        page = await download_page(
            url.strip(), MAX_BYTES, seconds=timeout, private=private, hosts=allowed, accept=accept
        )
        title, text = await asyncio.to_thread(_read_page, page.url, page.content_type, page.data)
        start = max(start, 0)
        if start >= max(len(text), 1):
            raise ToolError(f"The page has {len(text):,} characters; there is no character {start:,}.")
        end = min(start + SHOWN, len(text))
        more = f" Next: start={end}." if end < len(text) else ""
        part = f"[Characters {start:,}-{end:,} of {len(text):,}.{more}]\n" if start or more else ""
        return f"{title}\n{page.url}\n{part}\n{text[start:end]}".lstrip() if text else f"{page.url}\n(no text)"

    return (fetch_page,)


def _read_host(host: str) -> str:
    """Return a host in the form that downloads compare. Raises `ConfigError` if it is none."""
    from plait.addresses import read_host

    try:
        return read_host(host.strip())
    except ValueError as why:
        hint = "Write fetch:docs.example.org,example.org."
        raise ConfigError(f"{host!r} is not a host: {why}.", hint=hint) from None


def _read_page(url: str, content_type: str, data: bytes) -> tuple[str, str]:
    """Return the title and the text of a page. Raises `ToolError` if it is neither HTML nor text."""
    header = Message()
    header["Content-Type"] = content_type
    kind = header.get_content_type() if content_type else "no type"
    if kind not in (*_HTML, *_TEXT) and not kind.endswith("+json"):
        hint = "Only HTML, plain text, Markdown and JSON are read."
        raise ToolError(f"{url[:200]} is of the type {kind}.", hint=hint)
    charset = str(header.get_param("charset") or "")
    if not charset and kind in _HTML and (found := _CHARSET.search(data[:4096])):
        charset = found[1].decode("ascii", "replace")
    text = _decode(data, charset)
    if kind not in _HTML:
        return "", text.strip()
    return html_to_text(text, url)


def _decode(data: bytes, charset: str) -> str:
    """Return the text of a page: a byte order mark decides, then the stated charset; else it is guessed."""
    if not data.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        with suppress(LookupError, ValueError):
            if charset and codecs.lookup(charset).name not in _NO_CHARSETS:
                return data.decode(charset, "replace")
    return decode_text(data) or data.decode("utf-8", "replace")
