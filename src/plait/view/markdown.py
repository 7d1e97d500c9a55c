"""Markdown of models as safe HTML: whole, or block by block while it is written.

The text is untrusted. Raw HTML in it stays text, and `nh3` removes all that is not on a list. Nothing in the HTML
loads by itself: a picture becomes a link with the name of its host. Work is bounded by sizes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import MutableMapping, Sequence
from functools import lru_cache
from html import escape
from typing import Any
from urllib.parse import urlsplit

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_block import table as read_table
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from pygments import token as kinds
from pygments.lexers import get_lexer_by_name

from plait.core.text import show_hidden
from plait.tools.render import replace_surrogates

LONGEST = 100_000
"""Characters that are read as Markdown; the rest of a text is shown as it is."""
LONGEST_INLINE, MOST_SIGNS = 30_000, 3_000
"""Characters and Markdown signs of a paragraph with formatting. A longer one is shown as it is."""
LONGEST_CODE, LONGEST_LINE = 20_000, 1_000
"""Characters of a piece of code, and of a line in it, that is highlighted."""
MOST_COLUMNS = 60
"""Columns of a table. Lines with more stay text."""
# Short lines of a wide table would grow to many times their size.
sys.modules[read_table.__module__].MAX_AUTOCOMPLETED_CELLS = 2_000  # type: ignore[attr-defined]
LONGEST_HTML = 1_000_000
"""Characters of a block's HTML. A text that makes more of it is shown as it is."""
DEEPEST = 24
"""Levels of lists and quotes. A block with more is shown as it is."""

LANGUAGES = """bash c console cpp csharp css diff docker go graphql haskell html ini java javascript js json jsx kotlin
    latex lua make markdown nginx perl php powershell python py r ruby rust scala sh sql swift toml ts tsx typescript
    xml yaml"""
"""Languages that are highlighted."""
CLASSES = {
    kinds.Comment: "c", kinds.Keyword: "k", kinds.String: "s", kinds.Number: "n", kinds.Name.Function: "f",
    kinds.Name.Class: "f", kinds.Name.Builtin: "b", kinds.Name.Tag: "k", kinds.Name.Attribute: "f",
    kinds.Generic.Inserted: "i", kinds.Generic.Deleted: "d", kinds.Operator.Word: "k",
}  # fmt: skip
_TAGS = "a blockquote br code del div em h3 h4 h5 h6 hr li ol p pre s span strong table tbody td th thead tr ul"
_ALLOWED: dict[str, Any] = {
    "tags": set(_TAGS.split()),
    "attributes": {"a": {"href", "title", "target"}, "ol": {"start"}},
    "allowed_classes": {
        "span": {f"hl-{name}" for name in CLASSES.values()} | {"lang", "host"},
        "div": {"code-block", "md-table", "as-is"},
        "th": {"left", "center", "right"},
        "td": {"left", "center", "right"},
    },
    "url_schemes": {"http", "https", "mailto"},
    "link_rel": "noopener noreferrer nofollow",
}
_ADDRESS = re.compile(r"(?:https?|mailto):", re.IGNORECASE)
_SIGNS = re.compile(r"[\[\]*_`<~!&\\]")


@lru_cache(maxsize=128)
def render_markdown(text: str) -> str:
    """Return the HTML of a text. Never raises."""
    return "".join(_render_all(text))


class StreamedMarkdown:
    """Renders a text while it grows. Blocks that no later text can change are rendered once."""

    def __init__(self) -> None:
        self.blocks: list[str] = []
        """the HTML of each block so far; joined, it is what `render_markdown` makes of the same text"""
        self._text, self._stable, self._start = "", 0, 0
        """the text, the number of blocks that stay, and where the text of the others begins"""
        self._due = self._seen = 0

    def update(self, text: str, *, is_whole: bool = False) -> int | None:
        """Take the text as far as it is written, and return the index of the first block that changed; None if none
        did. Of a long unfinished block, not each change is rendered, unless the text `is_whole`: then the work stays
        proportional to the text."""
        grows = text.startswith(self._text)
        if text == self._text or (grows and len(text) < self._due and not is_whole):
            return None
        # A definition of a link (`[1]: ADDRESS`) also holds for what stands before it.
        if not grows or "]:" in text[self._start :] or len(text) > LONGEST:
            self._stable = self._start = self._seen = 0
        self._text, self._due = text, len(text) + (len(text) - self._start) // 16
        before, rest = self.blocks, text[self._start :]
        self.blocks = [*before[: self._stable], *_render_all(rest)]
        first = self._stable
        while first < min(len(before), len(self.blocks)) and before[first] == self.blocks[first]:
            first += 1
        # The last line may become anything, and so may the last block.
        complete = rest[: rest.rfind("\n") + 1]
        if len(complete) > self._seen and "]:" not in rest and len(text) <= LONGEST and "\r" not in text:
            self._seen = len(complete)
            starts = [block[0].map[0] for block in _split(_parse(complete, {})) if block[0].map]
            if len(starts) > 1:
                self._start += sum(len(line) + 1 for line in complete.split("\n")[: starts[-1]])
                self._stable += len(starts) - 1
                self._seen = 0
        return first


def _render_all(text: str) -> list[str]:
    """Return the HTML of each top-level block."""
    text = replace_surrogates(text)
    text, rest = text[:LONGEST], text[LONGEST:]
    try:
        env: dict[str, Any] = {}
        blocks = [_render_block(tokens, text, env) for tokens in _split(_parse(text, env))]
    except Exception:  # a defect of a library must not hide a text
        blocks = [_render_as_is(text)]
    return [*blocks, _render_as_is(rest)] if rest else blocks


def _parse(text: str, env: MutableMapping[str, Any]) -> list[Token]:
    return _READER.parse(text, env) if text.strip() else []


def _split(tokens: Sequence[Token]) -> list[list[Token]]:
    blocks: list[list[Token]] = []
    for each in tokens:
        if each.level == 0 and each.nesting >= 0:
            blocks.append([])
        blocks[-1].append(each)
    return blocks


def _render_block(tokens: Sequence[Token], text: str, env: MutableMapping[str, Any]) -> str:
    is_deep = any(each.level >= DEEPEST - 1 for each in tokens)
    html = "" if is_deep else _READER.renderer.render(tokens, _READER.options, env)
    if not html or len(html) > LONGEST_HTML:
        start, end = tokens[0].map or (0, None)
        return _render_as_is("\n".join(text.replace("\r\n", "\n").replace("\r", "\n").split("\n")[start:end]))
    return show_hidden(nh3.clean(html, **_ALLOWED))


def _render_as_is(text: str) -> str:
    return show_hidden(f'<div class="as-is"><pre>{escape(text)}</pre></div>\n')


def _adapt_tokens(state: StateCore) -> None:
    """Lower headings, because the page has those of the levels 1 and 2. Give cells a class in place of their style.
    Show a paragraph without its formatting if it is too long, or has too many signs."""
    for each in state.tokens:
        if each.type in ("heading_open", "heading_close"):
            each.tag = f"h{min(6, int(each.tag[1]) + 2)}"
        elif "style" in each.attrs:
            each.attrs["class"] = str(each.attrs.pop("style")).removeprefix("text-align:")
        elif each.type == "inline" and (
            len(each.content) > LONGEST_INLINE or len(_SIGNS.findall(each.content)) > MOST_SIGNS
        ):
            each.type = "text"


class _SafeRenderer(RendererHTML):
    def table_open(self, tokens: Sequence[Token], at: int, options: OptionsDict, env: EnvType) -> str:
        return '<div class="md-table"><table>\n'

    def table_close(self, tokens: Sequence[Token], at: int, options: OptionsDict, env: EnvType) -> str:
        return "</table></div>\n"

    def fence(self, tokens: Sequence[Token], at: int, options: OptionsDict, env: EnvType) -> str:
        words = re.findall(r"[A-Za-z0-9+#.-]+", tokens[at].info[:40]) or [""]
        label = f'<span class="lang">{escape(words[0])}</span>' if words[0] else ""
        code = _highlight(tokens[at].content, words[0].lower())
        return f'<div class="code-block">{label}<pre><code>{code}</code></pre></div>\n'

    code_block = fence  # type: ignore[assignment]

    def image(self, tokens: Sequence[Token], at: int, options: OptionsDict, env: EnvType) -> str:
        """A picture becomes a link: only the user may ask its host."""
        words = f"picture: {self.renderInlineAsText(tokens[at].children or [], options, env)}".rstrip(" :")
        address = str(tokens[at].attrGet("src") or "")
        host = _find_host(address)
        if not host:
            return escape(words)
        return f"{_open_link(address)}{escape(words)} ({escape(host)})</a>"

    def link_open(self, tokens: Sequence[Token], at: int, options: OptionsDict, env: EnvType) -> str:
        address = str(tokens[at].attrGet("href") or "")
        if not _ADDRESS.match(address):
            return "<span>"  # to this server or nowhere: the words are enough
        return _open_link(address)

    def link_close(self, tokens: Sequence[Token], at: int, options: OptionsDict, env: EnvType) -> str:
        start = max(i for i in range(at) if tokens[i].type == "link_open" and tokens[i].level == tokens[at].level)
        address = str(tokens[start].attrGet("href") or "")
        words = self.renderInlineAsText(tokens[start + 1 : at], options, env)
        if not _ADDRESS.match(address):
            return f"</span> ({escape(address)})" if address and address != words else "</span>"
        host = _find_host(address)
        # Words that look like an address, and letters that look like others, must not hide where a link goes.
        is_clear = "@" not in address and (host in words or not (re.search(r"\w\.\w\w|://", words) or "xn--" in host))
        return "</a>" if is_clear or not host else f'</a> <span class="host">({escape(host)})</span>'


def _open_link(address: str) -> str:
    return f'<a href="{escape(address)}" title="{escape(address)}" target="_blank">'


def _find_host(address: str) -> str:
    """Return the host of an address of the web, as it is asked for; "" for another one."""
    try:
        return (urlsplit(address).hostname or "") if _ADDRESS.match(address) else ""
    except ValueError:
        return ""


def _highlight(code: str, language: str) -> str:
    if language not in LANGUAGES.split() or len(code) > LONGEST_CODE or max(map(len, code.split("\n"))) > LONGEST_LINE:
        return escape(code)
    html = ""
    for kind, text in get_lexer_by_name(language, stripnl=False, ensurenl=False).get_tokens(code):
        name = next((CLASSES[each] for each in reversed(kind.split()) if each in CLASSES), "")
        html += f'<span class="hl-{name}">{escape(text)}</span>' if name else escape(text)
    return html


def _read_table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    line = state.src[state.bMarks[start] : state.eMarks[start]]
    return line.count("|") <= MOST_COLUMNS and read_table(state, start, end, silent)


_READER = MarkdownIt("commonmark", {"html": False, "maxNesting": DEEPEST}, renderer_cls=_SafeRenderer)
_READER.enable(["table", "strikethrough"])
_READER.block.ruler.at("table", _read_table, {"alt": ["paragraph", "reference"]})
_READER.core.ruler.before("inline", "adapt_tokens", _adapt_tokens)
# The text of an address in <> is what is asked for: with xn-- for letters that only look like others.
_READER.normalizeLinkText = _READER.normalizeLink  # type: ignore[method-assign, assignment]
