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
"""Characters that are read at once: the parser takes quadratic time for some broken pages, but not for a piece."""


def html_to_text(html: str, base: str = "") -> tuple[str, str]:
    """Return the title and the text of a page. Links are `[text](address)`, with addresses relative to `base`."""
    page = _Page(base, strict=True)
    page.read(html)
    if page.skipped:  # a hidden part that never ends would hide the rest of the page
        page = _Page(base, strict=False)
        page.read(html)
    lines = [" ".join(line.split()) if not line.startswith("\0") else line[1:].rstrip() for line in page.lines()]
    return " ".join("".join(page.title).split()), re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


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
        self._preformatted = 0
        self._links: list[tuple[str, int]] = []

    def read(self, html: str) -> None:
        for at in range(0, len(html), _PIECE):
            if cancelled():
                return
            self.feed(html[at : at + _PIECE])
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
            self._break()
        elif tag == "img" and given.get("alt"):
            self._out.append(f"[image: {given['alt']}]")
        elif tag in _BLOCKS:
            self._break(2 if tag in _HEADINGS or tag == "p" else 1)
            self._out.append("- " if tag == "li" else f"{_HEADINGS[tag]} " if tag in _HEADINGS else "")
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
        elif not self.skipped and self._preformatted:
            self._out.append(data.replace("\0", "").replace("\n", "\n\0"))
        elif not self.skipped:
            self._out.append(re.sub(r"[\s\0]+", " ", data))

    def _hides(self, given: dict[str, str | None]) -> bool:
        return self._strict and (
            "hidden" in given or given.get("aria-hidden") == "true" or bool(_INVISIBLE.search(given.get("style") or ""))
        )

    def _break(self, lines: int = 1) -> None:
        self._out.append("\n" * lines)

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
