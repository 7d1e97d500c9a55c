"""Claims about the toolkit `fetch`: how a page is read, what is refused, and which hosts are asked."""

from __future__ import annotations

import socket
import tracemalloc
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from conftest import for_each
from patience import cpu_seconds
from plait.core.errors import ConfigError
from plait.toolkits import download, fetch, html_text, web_page
from plait.toolkits.html_text import html_to_text
from plait.tools import anchor_word, load
from toolkits_server import call, refusal, site

PAGE = """<!doctype html><html><head><title> Tea
 and bread </title><meta charset="utf-8"><style>p { color: red }</style><script>steal("<p>no</p>")</script></head>
<body><nav><a href="/menu">Menu</a></nav><header><h1>All about tea</h1></header>
<p>Tea is <b>green</b> or <a href="kinds/black.html">black</a>. &lt;b&gt; &amp; caf&eacute;</p>
<ul><li>one<li>two <a href="javascript:x()">run</a></ul>
<table><tr><th>kind<th>price<tr><td>Assam<td>3</table>
<pre>  def f():
      pass</pre>
<p hidden>INJECTED one</p><div style="display: none">INJECTED two</div><span aria-hidden="true">INJECTED three</span>
<template>INJECTED four</template><noscript>INJECTED five</noscript><!-- INJECTED six -->
<img src="x.png" alt="a pot"><br><a href="#top">up</a><a href="https://other.example/a">other</a></body></html>"""


def html(body: str, kind: str = "text/html; charset=utf-8", encoding: str = "utf-8") -> web.Response:
    return web.Response(body=body.encode(encoding), headers={"Content-Type": kind})


async def test_a_page_is_its_title_address_text_and_links() -> None:
    async with site({"/tea/": html(PAGE)}) as there:
        said = await call(fetch(private=True), "fetch", url=f" {there.address}/tea/ ")
        assert there.seen[0].headers["user-agent"].startswith("plait") and "cookie" not in there.seen[0].headers
    assert said == "\n".join(
        [
            "Tea and bread",
            f"{there.address}/tea/",
            "",
            "# All about tea",
            "",
            f"Tea is green or [black]({there.address}/tea/kinds/black.html). <b> & café",
            "",
            "- one",
            "- two run",
            "| kind | price",
            "| Assam | 3",
            "  def f():",
            "      pass",
            "[image: a pot]",
            "up[other](https://other.example/a)",
        ]
    )


async def test_a_long_page_is_read_on_by_characters() -> None:
    text = "".join(f"{number:06} " for number in range(3_000))
    async with site({"/": html(text, "text/plain")}) as there:
        toolkit = fetch(private=True)
        pages, start = [], 0
        while True:
            said = await call(toolkit, "fetch", url=there.address + "/", start=start)
            head, _, part = said.partition("\n\n")
            pages.append(part)
            if "Next:" not in head:
                break
            start = int(head.partition("Next: start=")[2].partition(".")[0])
        assert "".join(pages) == text.strip() and len(pages) == 3
        assert max(map(len, pages)) == web_page.SHOWN
        assert "there is no character 90,000" in await refusal(toolkit, "fetch", url=there.address + "/", start=90_000)


@for_each(
    ("kind", "body", "shown"),
    [
        ("text/plain", "<b>plain</b>", "<b>plain</b>"),
        ("text/markdown; charset=utf-8", "# café", "# café"),
        ("application/json", '{"a": 1}', '{"a": 1}'),
        ("application/problem+json", '{"b": 2}', '{"b": 2}'),
        ("application/xhtml+xml", "<p>x</p>", "x"),
        ("TEXT/HTML", "<p>y</p>", "y"),
    ],
)
async def test_text_of_these_types_is_read(kind: str, body: str, shown: str) -> None:
    async with site({"/": html(body, kind)}) as there:
        assert (await call(fetch(private=True), "fetch", url=there.address)).endswith(f"\n\n{shown}")


@pytest.mark.parametrize("kind", ["application/pdf", "image/png", "application/octet-stream", "text/javascript"])
async def test_another_type_is_named(kind: str) -> None:
    async with site({"/": html("x", kind)}) as there:
        said = await refusal(fetch(private=True), "fetch", url=there.address)
    assert f"is of the type {kind}. Only HTML, plain text, Markdown and JSON are read." in said


@for_each(
    ("kind", "encoding", "head"),
    [
        ("text/html; charset=iso-8859-1", "latin-1", ""),
        ("text/html", "windows-1251", '<meta charset="windows-1251">'),
        ("text/html", "utf-16", ""),
        ("text/html; charset=utf-8", "utf-8", '<meta charset="latin-1">'),
        ("text/html; charset=nonsense", "utf-8", ""),
        ("text/html; charset=rot13", "utf-8", ""),
        ("text/html; charset=punycode", "utf-8", ""),
        ("text/html", "utf-8", ""),
    ],
)
async def test_a_page_has_the_characters_of_its_encoding(kind: str, encoding: str, head: str) -> None:
    word = "чай" if encoding != "latin-1" else "café"
    async with site({"/": html(f"{head}<p>{word}</p>", kind, encoding)}) as there:
        assert (await call(fetch(private=True), "fetch", url=there.address)).endswith(f"\n\n{word}")


async def test_the_encoding_of_a_page_without_a_charset_is_guessed() -> None:
    text = "Поезд в Москву отправляется в восемь часов утра, а возвращается вечером."
    async with site({"/": html(f"<p>{text}</p>", "text/html", "windows-1251")}) as there:
        assert (await call(fetch(private=True), "fetch", url=there.address)).endswith(f"\n\n{text}")


async def test_what_is_no_page_is_an_error() -> None:
    answers = {
        "/large": html("x" * (web_page.MAX_BYTES + 1)),
        "/busy": web.Response(status=429, headers={"Retry-After": "7"}),
        "/empty": html(""),
    }
    async with site(answers) as there:
        toolkit = fetch(private=True)
        for path, words in (("/none", "answered 404"), ("/large", "more than 4 MB"), ("/busy", "Wait 7 s")):
            assert words in await refusal(toolkit, "fetch", url=there.address + path)
        assert (await call(toolkit, "fetch", url=there.address + "/empty")).endswith("(no text)")
    for url in ("", "file:///etc/passwd", "ftp://a.example/", "a.example"):
        assert "not a web address" in await refusal(fetch(), "fetch", url=url)


@for_each("host", ["127.0.0.1", "localhost", "[::1]", "10.0.0.1", "169.254.169.254", "[::ffff:127.0.0.1]"])
async def test_no_private_address_is_asked(host: str) -> None:
    async with site({"/": html("secret")}) as there:
        port = there.address.rpartition(":")[2]
        assert "not on the open network" in await refusal(fetch(), "fetch", url=f"http://{host}:{port}/")
        assert there.seen == []


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every name is this machine's, as if it were a public address."""

    def look_up(host: str, port: int, family: int) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(download, "look_up", look_up)


async def test_only_the_hosts_of_the_word_are_asked_also_after_a_redirect(names: None) -> None:
    async with site({}) as there:
        port = there.address.rpartition(":")[2]

        def to(host: str) -> web.Response:
            return web.Response(status=302, headers={"Location": f"http://{host}:{port}/page"})

        there.answers |= {"/page": html("<p>here</p>"), "/near": to("b.example"), "/far": to("evil.example")}
        toolkit = fetch("a.example, B.example")
        base = f"http://a.example:{port}"
        assert (await call(toolkit, "fetch", url=f"{base}/page")).endswith("here")
        assert (await call(toolkit, "fetch", url=f"http://B.EXAMPLE:{port}/page")).endswith("here")
        assert (await call(toolkit, "fetch", url=f"{base}/near")).startswith(f"http://b.example:{port}/page")
        before = len(there.seen)
        said = await refusal(toolkit, "fetch", url=f"{base}/far")
        assert said == "The host evil.example is not allowed. Allowed: a.example, b.example."
        assert len(there.seen) == before + 1  # the first address only
        for url in (
            f"http://evil.example:{port}/page",
            f"http://a.example@evil.example:{port}/page",
            f"http://evil.example:{port}/page#a.example",
            f"http://a.example.evil.example:{port}/page",
            f"http://x.a.example:{port}/page",
        ):
            assert "is not allowed" in await refusal(toolkit, "fetch", url=url)
        assert len(there.seen) == before + 1
    assert "Only of a.example, b.example." in toolkit[0].spec.description


def test_the_word_takes_hosts(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (made,) = load("fetch:docs.example.org,example.org")
    assert (made.read_only, made.open_world, made.requires_approval) == (True, True, False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.example").touch()
    assert anchor_word("fetch:a.example") == "fetch:a.example"  # a host, not a file
    for word in ("fetch:https://a.example", "fetch:a.example:80", "fetch:a/b", "fetch:a.example,,b", "fetch:*"):
        with pytest.raises(ConfigError, match="is not a host"):
            load(word)


# --- HTML


@for_each(
    ("page", "text"),
    [
        ("<nav>menu<p>text", "menu\n\ntext"),  # a menu that never ends is no menu
        ("<div hidden>a<p>text", "a\n\ntext"),
        ("<head><title>t</title><p>text", "text"),
        ("<p>a<nav>x<nav>y</nav>z</nav>b", "ab"),
        ("text &amp; more", "text & more"),
        ("a<script>b", "a"),
        ("a <b", "a <b"),
        ("<ul><li><p>a</p></li><li>b</ul>c", "- a\n\n- b\nc"),
        ("<pre>\n a\n\n  b</pre>", " a\n\n  b"),
        ("<a>plain</a> <a href='http://['>broken</a>", "plain broken"),
        ("<p>a<br>b", "a\nb"),
    ],
)
def test_broken_html_still_has_its_text(page: str, text: str) -> None:
    assert html_to_text(page)[1] == text


@given(st.text(alphabet="<>/!-&;#\"'= \nabp\0", max_size=80))
def test_no_page_raises(page: str) -> None:
    title, text = html_to_text(f"<title>{page}</title>{page}", "http://a.example/")
    assert "\0" not in title + text


@pytest.mark.parametrize(
    "piece",
    ["<!", "<!--", "</", "<a ", "&", "<![CDATA[", "<?", "<p hidden>", "<a href=x>y", "<a href=x>y</a></a>", "<pre>"],
)
def test_a_large_broken_page_takes_linear_work(piece: str) -> None:
    """Four times the page takes about four times the processor time, not sixteen times."""

    def read_pieces(size: int) -> str:
        return html_to_text(piece * (size // len(piece)))[1]

    most = 9 * max(cpu_seconds(lambda: read_pieces(100_000), 0.02), 0.02)
    assert cpu_seconds(lambda: read_pieces(400_000), most) < most
    assert cpu_seconds(lambda: read_pieces(25_000), most) < most  # less than the parser gets at once


SIZE = web_page.MAX_BYTES
HOSTILE = {
    "tags": "<b>",
    "texts": "<p>x</p>",
    "no tags": "<",
    "links": "<a href=x>y</a>",
    "open links": "<a href=http://x>y",
    "many attributes": "<a a b c d e f g h>",
    "declarations": "<!x>",
    "instructions": "<?x>",
    "comments": "<!---->",
    "quotes": '<a b="',
    "entities": "&amp;",
    "no entities": "&a",
    "scripts": "<script>x</script>",
    "end tags": "</",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_page_takes_bounded_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, because time depends on the machine: the parser hands over at most so many parts, by both readings."""
    handed: list[int] = []

    class Counted(html_text._Page):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            handed.append(1 + len(attrs))
            super().handle_starttag(tag, attrs)

        def handle_data(self, data: str) -> None:
            handed.append(1)
            super().handle_data(data)

    monkeypatch.setattr(html_text, "MAX_PARTS", 5_000)
    page = Counted("http://h.example/", strict=True)
    page.read(HOSTILE[name] * (SIZE // 24 // len(HOSTILE[name])))
    assert sum(handed) <= page.parts <= html_text.MAX_PARTS + html_text._PIECE
    assert len(page.rawdata) <= html_text._PIECE


@pytest.mark.parametrize(
    ("before", "filling", "after"),
    [
        ("<a ", "a ", ">"),
        ("<img src='data:", "QUJD", "'>"),
        ("<!--", "x>", "-->"),
        ("<script>", "x; ", "</script>"),
        ("<p b='", "x' y='", "'>"),
    ],
)
def test_a_part_that_is_too_large_is_left_out_and_what_follows_is_read(before: str, filling: str, after: str) -> None:
    page = f"<h1>Tea</h1>{before}{filling * (SIZE // 8 // len(filling))}{after}<p>It is hot.</p>"
    tracemalloc.start()
    text = html_text.html_to_text(page)[1]
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert text == "# Tea\n\nIt is hot." and most < 50e6


def test_a_page_with_more_parts_than_are_read_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html_text, "MAX_PARTS", 1000)
    text = html_text.html_to_text("<p>x</p>" * 100_000)[1]
    assert text.startswith("x\n") and text.endswith("The rest is left out.]") and len(text) < 100_000
    assert "left out" not in html_text.html_to_text("<p>x</p>" * 100)[1]
