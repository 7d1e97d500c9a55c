"""Reads HTML as text: the title, headings, paragraphs, lists and links, without scripts, menus and hidden parts."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

from plait.tools.call_context import cancelled

_NAMES = {
    "dropped": "script style noscript template svg iframe object canvas nav head select button",
    "void": "area base br col embed hr img input link meta param source track wbr",
    "blocks": "address article aside blockquote body dd details div dl dt fieldset figcaption figure footer form h1 h2 "
    "h3 h4 h5 h6 header hr li main ol p pre section summary table tbody thead tr ul",
}
_DROPPED, _VOID, _BLOCKS = (frozenset(names.split()) for names in _NAMES.values())
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_INVISIBLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.I)
_PIECE = 1 << 16
"""Characters that are read at once. At the end of a page, the parser takes quadratic time for a broken one."""


def html_to_text(html: str, base: str = "") -> tuple[str, str]:
    """Return the title and the text of a page. Links are `[text](address)`, with addresses relative to `base`."""
    html = html.replace("\0", "")  # it marks lines below that keep their blanks
    page = _Page(base, strict=True)
    page.read(html)
    if page.skipped:  # a hidden part that never ends would hide the rest of the page
        page = _Page(base, strict=False)
        page.read(html)
    lines = [" ".join(line.split()) if not line.startswith("\0") else line[1:].rstrip() for line in page.lines()]
    return " ".join("".join(page.title).split()), re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n").rstrip()


class _Page(HTMLParser):
    def __init__(self, base: str, *, strict: bool) -> None:
        super().__init__(convert_charrefs=True)
        self.title: list[str] = []
        self.skipped: list[str] = []
        """The dropped element that is open, once for each element of its name in it."""
        self._base = base
        self._strict = strict
        self._out: list[str] = []
        self._in_title = False
        self._newlines = 2
        """Line ends since the last text."""
        self._preformatted = 0
        self._links: list[tuple[str, int]] = []

    def read(self, html: str) -> None:
        at = 0
        while at < len(html) and not cancelled():
            size = max(_PIECE, len(self.rawdata))  # what is unfinished is read again, so it must not be read often
            self.feed(html[at : at + size])
            at += size
        if len(self.rawdata) < _PIECE:  # else the rest is one unfinished tag
            self.close()

    def lines(self) -> list[str]:
        return "".join(self._out).split("\n")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if self.skipped:
            if tag == self.skipped[0]:
                self.skipped.append(tag)
            self._in_title = tag == "title" and self.skipped[0] == "head"
            if tag == "body" and self.skipped[0] == "head":  # its end tag may be left out
                self.skipped.clear()
            return
        if tag == "base" and given.get("href"):
            self._base = urljoin(self._base, given["href"] or "")
        if tag not in _VOID and (
            (tag in _DROPPED and (self._strict or tag in ("script", "style"))) or self._hides(given)
        ):
            self.skipped.append(tag)
        elif tag == "title":
            self._in_title = True
        elif tag == "a":
            self._links.append((given.get("href") or "", len(self._out)))
        elif tag in ("td", "th"):
            self._out.append(" | ")
        elif tag == "br":
            self._break(self._newlines + 1)
        elif tag == "img" and given.get("alt"):
            self.handle_data(f"[image: {given['alt']}]")
        elif tag in _BLOCKS:
            self._break(2 if tag in _HEADINGS or tag == "p" else 1)
            if tag == "li" or tag in _HEADINGS:
                self._out.append("- " if tag == "li" else f"{_HEADINGS[tag]} ")
                self._newlines = 2
            self._preformatted += tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if self.skipped:
            if tag == self.skipped[0]:
                self.skipped.pop()
        elif tag == "a" and self._links:
            self._end_link()
        elif tag in _BLOCKS:
            self._break(2 if tag in _HEADINGS or tag == "p" else 1)
            self._preformatted = max(0, self._preformatted - (tag == "pre"))

    def handle_data(self, data: str) -> None:
        if self._in_title and not self._out:
            self.title.append(data)
        elif not self.skipped and (data.strip() or not self._newlines):
            start = "\0" if self._preformatted and self._newlines else ""
            self._out.append(start + data.replace("\n", "\n\0") if self._preformatted else re.sub(r"\s+", " ", data))
            self._newlines = 0

    def _hides(self, given: dict[str, str | None]) -> bool:
        return self._strict and (
            "hidden" in given or given.get("aria-hidden") == "true" or bool(_INVISIBLE.search(given.get("style") or ""))
        )

    def _break(self, lines: int) -> None:
        self._out.append("\n" * (lines - self._newlines))
        self._newlines = max(lines, self._newlines)

    def _end_link(self) -> None:
        href, start = self._links.pop()
        text = " ".join("".join(self._out[start:]).split())
        try:
            address = urljoin(self._base, href.strip())
            is_web = urlsplit(address).scheme in ("http", "https") and not href.startswith("#")
        except ValueError:
            is_web = False
        if text and is_web and len(address) <= 500:
            self._out[start:] = [f"[{text}]({address})"]
