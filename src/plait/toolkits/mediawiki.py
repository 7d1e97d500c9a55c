"""Wikipedia: a search, and a page's text, by MediaWiki's API; no key needed."""

from __future__ import annotations

import html
import re
from typing import Any

from plait.core.errors import ToolError
from plait.toolkits.service import SECONDS, Service, Setting, too_many_requests
from plait.tools.tool import Tool, tool

LONGEST = 20_000
"""Maximum number of characters of a page that are returned, from its beginning."""
MEANINGS = 30
"""Maximum number of meanings of a word that are listed."""


def wikipedia(*, base_url: Setting = None, timeout: float = SECONDS, longest: int = LONGEST) -> tuple[Tool, ...]:
    """Makes the tools `wikipedia_search` and `wikipedia_page`.

    `base_url` (environment: WIKIPEDIA_URL) is the address of a wiki's api.php, by default the English Wikipedia's.
    `longest` is the maximum number of characters of a page.
    """
    base = "https://en.wikipedia.org/w/api.php"
    service = Service("Wikipedia", "WIKIPEDIA_URL", base, "", "", base_url, None, timeout)

    @tool(read_only=True, open_world=True)
    async def wikipedia_search(query: str) -> list[dict[str, str]]:
        """Pages of Wikipedia that fit some words, the best first, at most five: title, and where the words stand.

        Args:
            query: A few words.
        """
        asked = query.strip()[:300]
        if not asked:
            raise ToolError("There is nothing to search for.", hint="Give a few words.")
        found, suggestion = await _search(service, asked, 5)
        if not found:
            hint = f"Did you mean {suggestion!r}?" if suggestion else "Try fewer or other words."
            raise ToolError(f"No page of Wikipedia fits {asked!r}.", hint=hint)
        return found

    @tool(read_only=True, open_world=True)
    async def wikipedia_page(title: str) -> str:
        """The text of a Wikipedia page. Of a word with several meanings it lists the pages to choose from.

        Args:
            title: The page's title.
        """
        asked = " ".join(title.replace("_", " ").split())
        if not asked or len(asked) > 250 or re.search(r"[#<>\[\]|{}]", asked):
            raise ToolError(f"{title[:80]!r} can't be the title of a page.", hint="Give a page's name, and only it.")
        page = await _fetch_page(service, asked)
        if page is None:
            similar = [one["title"] for one in (await _search(service, asked, 5))[0]]
            hint = f"Similar: {'; '.join(similar)}." if similar else "Use wikipedia_search."
            raise ToolError(f"Wikipedia has no page {asked!r}.", hint=hint)
        name = str(page.get("title", asked))
        if "disambiguation" in (page.get("pageprops") or {}):
            meanings = await _list_meanings(service, name)
            return f"{name!r} has several meanings. Pages: {'; '.join(meanings)}."
        text = re.sub(r"\n{3,}", "\n\n", str(page.get("extract") or "")).strip()
        if not text:
            raise ToolError(f"The page {name!r} has no text.", hint="Try another page.")
        if len(text) > longest:
            text = f"{text[:longest].rstrip()}\n[{len(text) - longest:,} more characters left out]"
        return f"{name}\n\n{text}"

    return (wikipedia_search, wikipedia_page)


async def _query(service: Service, **params: Any) -> dict[str, Any]:
    answer = await service.ask(params={"action": "query", "format": "json", "formatversion": "2", **params})
    read = answer.json_object()
    error = read.get("error")
    if isinstance(error, dict):
        if error.get("code") in ("ratelimited", "maxlag"):
            raise too_many_requests(service.name, answer.headers.get("Retry-After", ""))
        raise ToolError(f"Wikipedia refuses the request: {str(error.get('info', error.get('code')))[:200]}.")
    found = read.get("query")
    return found if isinstance(found, dict) else {}


async def _search(service: Service, words: str, count: int) -> tuple[list[dict[str, str]], str]:
    read = await _query(service, list="search", srsearch=words, srlimit=count, srprop="snippet", srinfo="suggestion")
    info = read.get("searchinfo")
    suggestion = str(info.get("suggestion") or "") if isinstance(info, dict) else ""
    hits = [hit for hit in read.get("search") or () if isinstance(hit, dict)]
    found = [{"title": str(hit.get("title", "")), "text": _to_plain_text(str(hit.get("snippet", "")))} for hit in hits]
    return found, suggestion


async def _fetch_page(service: Service, title: str) -> dict[str, Any] | None:
    props = {"prop": "extracts|pageprops", "explaintext": 1, "redirects": 1, "ppprop": "disambiguation"}
    pages = (await _query(service, **props, titles=title)).get("pages")
    page = pages[0] if isinstance(pages, list) and pages and isinstance(pages[0], dict) else {"missing": True}
    return None if page.get("missing") or page.get("invalid") else page


async def _list_meanings(service: Service, title: str) -> list[str]:
    read = await _query(service, prop="links", titles=title, plnamespace=0, pllimit=MEANINGS)
    pages = read.get("pages") or [{}]
    return [str(link.get("title", "")) for link in pages[0].get("links") or () if isinstance(link, dict)]


def _to_plain_text(snippet: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", snippet)).split())
