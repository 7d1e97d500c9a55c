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
"""Characters that are read at once. The parser takes quadratic time for a longer unfinished part, so such a part, like
an image within a tag, is left out."""
MAX_PARTS = 300_000
"""Maximum number of tags, attributes and texts of a page that are read. A page of 4 MiB can have millions."""
_REST = "\n\n[The page has more parts than are read. The rest is left out.]"


def html_to_text(html: str, base: str = "") -> tuple[str, str]:
    """Return the title and the text of a page. Links are `[text](address)`, with addresses relative to `base`."""
    html = html.replace("\0", "")  # it marks lines below that keep their blanks
    page = _Page(base, strict=True)
    page.read(html)
    if page.skipped:  # a hidden part that never ends would hide the rest of the page
        page = _Page(base, strict=False)
        page.read(html)
    rest = _REST if page.parts > MAX_PARTS else ""
    lines = [" ".join(line.split()) if not line.startswith("\0") else line[1:].rstrip() for line in page.lines()]
    return " ".join("".join(page.title).split()), re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip(
        "\n"
    ).rstrip() + rest


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
        self.parts = 0
        """What was read: tags, attributes, texts and the rest."""
        self._newlines = 2
        """Line ends since the last text."""
        self._preformatted = 0
        self._link: tuple[str, int] | None = None
        """The address of the open link, and where its text begins."""

    def read(self, html: str) -> None:
        at = 0
        while at < len(html) and self.parts <= MAX_PARTS and not cancelled():
            self.feed(html[at : at + _PIECE])
            at += _PIECE
            if len(self.rawdata) > _PIECE:
                end = f"</{self.cdata_elem}" if self.cdata_elem else "-->" if self.rawdata.startswith("<!--") else ">"
                found = re.compile(re.escape(end), re.I).search(html, at)
                at = len(html) if found is None else found.start() if self.cdata_elem else found.end()
                self.rawdata = ""
        if self.rawdata.startswith("<") and len(self.rawdata) > 1000:
            self.rawdata = ""  # to read a tag that never ends takes quadratic time
        self.close()

    def lines(self) -> list[str]:
        return "".join(self._out).split("\n")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.parts += 1 + len(attrs)
        if self.skipped:
            if tag == self.skipped[0]:
                self.skipped.append(tag)
            self._in_title = tag == "title" and self.skipped[0] == "head"
            if tag == "body" and self.skipped[0] == "head":  # its end tag may be left out
                self.skipped.clear()
            return
        if tag == "base" and given.get("href"):
            self._base = urljoin(self._base, given["href"] or "")
        hides = "hidden" in given or given.get("aria-hidden") == "true" or _INVISIBLE.search(given.get("style") or "")
        is_dropped = tag in _DROPPED and (self._strict or tag in ("script", "style"))
        if tag not in _VOID and (is_dropped or (self._strict and hides)):
            self.skipped.append(tag)
        elif tag == "title":
            self._in_title = True
        elif tag == "a":
            self._end_link()  # one link cannot be inside another
            self._link = (given.get("href") or "", len(self._out))
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
        self.parts += 1
        if tag == "title":
            self._in_title = False
        if self.skipped:
            if tag == self.skipped[0]:
                self.skipped.pop()
        elif tag == "a":
            self._end_link()
        elif tag in _BLOCKS:
            self._break(2 if tag in _HEADINGS or tag == "p" else 1)
            self._preformatted = max(0, self._preformatted - (tag == "pre"))

    def handle_comment(self, data: str) -> None:
        self.parts += 1

    handle_decl = handle_pi = unknown_decl = handle_comment  # type: ignore[assignment]

    def handle_data(self, data: str) -> None:
        self.parts += 1
        if self._in_title and not self._out:
            self.title.append(data)
        elif not self.skipped and (data.strip() or not self._newlines):
            start = "\0" if self._preformatted and self._newlines else ""
            self._out.append(start + data.replace("\n", "\n\0") if self._preformatted else re.sub(r"\s+", " ", data))
            self._newlines = 0

    def _break(self, lines: int) -> None:
        self._out.append("\n" * (lines - self._newlines))
        self._newlines = max(lines, self._newlines)

    def _end_link(self) -> None:
        if self._link is None:
            return
        (href, start), self._link = self._link, None
        text = " ".join("".join(self._out[start:]).split())
        try:
            address = urljoin(self._base, href.strip())
            is_web = urlsplit(address).scheme in ("http", "https") and not href.startswith("#")
        except ValueError:
            is_web = False
        if text and is_web and len(address) <= 500:
            self.parts += len(address) // 50
            self._out[start:] = [f"[{text}]({address})"]
