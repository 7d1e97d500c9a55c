"""`websearch` by a service with SerpApi's form, or without a key by the package `ddgs`, and `wikipedia` by MediaWiki's
API, which needs no key."""

from __future__ import annotations

import asyncio
import html
import math
import os
import re
from importlib.util import find_spec
from typing import Any

from plait.core.errors import ConfigError, ToolError
from plait.installation import install_command
from plait.toolkits.service import SECONDS, Service, Setting, require_proxy, too_many_requests
from plait.tools.tool import Tool, tool

LONGEST = 2000
"""Maximum number of characters of an answer."""
RESULTS = 4
"""Number of pages listed if there is no direct answer."""
PAGE_LONGEST = 20_000
"""Maximum number of characters of a page of Wikipedia that are returned, from its beginning."""
MEANINGS = 30
"""Maximum number of meanings of a word that are listed."""

_ADMIN = re.compile(
    r"(_link|_links|link|links|image|images|thumbnail|_id|_token|kgmid|serpapi.*|source|displayed_link)$"
)
_LABELS = ("title", "type", "date")
"""Fields of an answer box that name it and answer nothing."""


def websearch(
    choice: str = "", *, base_url: Setting = None, key: Setting = None, engine: str = "google", timeout: float = SECONDS
) -> tuple[Tool, ...]:
    """Makes the tool `web_search`.

    With the choice "published" the text of a result is that of the published experiment react-on-the-wire. `base_url`
    (environment: SERPAPI_URL) is the service's address, `key` (SERPAPI_API_KEY) its key, `engine` the search engine it
    asks. Without an address and a key, public search engines are asked by the package `ddgs` (extra `websearch`).
    """
    if choice not in ("", "published"):
        hint = "Write websearch or websearch:published."
        raise ConfigError(f"The web search has no choice {choice!r}.", hint=hint)
    how = f"a key of SerpApi; or search without a key: {install_command('websearch')}"
    names = ("SERPAPI_URL", "https://serpapi.com", "SERPAPI_API_KEY", how)
    service = Service("The web search", *names, base_url, key, timeout)

    @tool(read_only=True, open_world=True)
    async def web_search(query: str) -> str:
        """Searches the web and gives what answers the query best: a direct answer, else the first results.

        Args:
            query: What is searched for.
        """
        asked = query.strip()[:500]
        if not asked:
            raise ToolError("There is nothing to search for.", hint="Give a few words.")
        has_service = base_url or os.environ.get("SERPAPI_URL", "").strip() or service.key(needed=False)
        if not (choice or has_service) and find_spec("ddgs") is not None:
            return await asyncio.to_thread(_ask_public_engines, asked, timeout)
        params = {"engine": engine, "q": asked, "api_key": service.key(), "output": "json"}
        read: dict[str, Any] = (await service.ask("/search", params=params)).json_object()
        if choice and "error" not in read:
            return pick_published(read)
        if not choice and (found := pick_answer(read)):
            return found
        said = str(read.get("error") or "").strip()
        if said and "any results" not in said:
            raise ToolError(f"The web search says: {' '.join(said.split())[:200].rstrip('.')}.")
        raise ToolError(f"Nothing is found for {asked!r}.", hint="Try fewer or other words.")

    return (web_search,)


def _ask_public_engines(asked: str, seconds: float) -> str:
    """Return the first pages that public search engines find. Raises `ToolError`, also where they refuse to answer."""
    from ddgs import DDGS
    from ddgs.exceptions import DDGSException, RatelimitException, TimeoutException

    who, own = "The web search without a key", "Or set SERPAPI_API_KEY."
    proxy = require_proxy("https://duckduckgo.com", who)
    try:
        engines = DDGS(proxy=proxy.url if proxy is not None else None, timeout=math.ceil(seconds))
        pages = [each for each in engines.text(asked, max_results=RESULTS) if isinstance(each, dict)]
    except RatelimitException:
        raise ToolError(f"{who} is asked to slow down.", hint=f"Wait a minute, then call again. {own}") from None
    except TimeoutException:
        raise ToolError(f"{who} gave no answer in {seconds:g} s.", hint=f"Try again later. {own}") from None
    except DDGSException as why:
        if "no results" in str(why).lower():
            raise ToolError(f"Nothing is found for {asked!r}.", hint="Try fewer or other words.") from None
        said = " ".join(str(why).split())[:200]
        raise ToolError(f"{who} fails: {said}.", hint=f"Is the network there? {own}") from None
    named = {"title": "title", "body": "snippet", "href": "link"}
    found = {"organic_results": [{new: each.get(old) for old, new in named.items()} for each in pages]}
    if not (text := pick_answer(found)):
        raise ToolError(f"Nothing is found for {asked!r}.", hint="Try fewer or other words.")
    return text


def pick_answer(read: dict[str, Any]) -> str:
    """Return the answer, at most 2,000 characters: answer box, sports, knowledge graph, pages; "" without any."""
    for found in (_read_answer_box(read), _read_sports(read), _read_knowledge_graph(read), _list_pages(read)):
        if found:
            return found if len(found) <= LONGEST else f"{found[: LONGEST - 1]}…"
    return ""


def pick_published(read: dict[str, Any]) -> str:
    """Return the first of the fields that the account *How ReAct Prompting Works in Detail* reads, unchanged."""
    box, pages = read.get("answer_box"), read.get("organic_results")
    words = box.get("snippet_highlighted_words") if isinstance(box, dict) else None
    fields: tuple[tuple[Any, Any], ...] = (
        (box, "answer"),
        (box, "snippet"),
        (words, 0),
        (read.get("sports_results"), "game_spotlight"),
        (read.get("knowledge_graph"), "description"),
        (pages[0] if isinstance(pages, list) and pages else None, "snippet"),
    )
    for part, name in fields:
        if (isinstance(part, dict) and name in part) or (isinstance(part, list) and part and name == 0):
            return str(part[name])
    return "No good search result found"


def _read_answer_box(read: dict[str, Any]) -> str:
    box = read.get("answer_box") or read.get("answer_box_list")
    if isinstance(box, list):
        box = next((one for one in box if isinstance(one, dict)), None)
    if not isinstance(box, dict):
        return ""
    for name in ("answer", "result", "snippet", "definition", "definitions", "list"):
        if box.get(name):
            unit = f" ({box['unit']})" if name == "result" and isinstance(box.get("unit"), str) else ""
            return _flatten(box[name]) + unit
    words = box.get("snippet_highlighted_words")
    if words:
        return _flatten(words)
    if box.get("temperature"):
        parts = (box.get("location"), f"{box['temperature']} {box.get('unit', '')}".strip(), box.get("weather"))
        return ", ".join(str(part) for part in parts if part)
    answer = {key: value for key, value in box.items() if key not in _LABELS}
    return _list_fields(box) if _list_fields(answer) else ""  # a title alone answers nothing: the next part may


def _read_sports(read: dict[str, Any]) -> str:
    sports = read.get("sports_results")
    if not isinstance(sports, dict):
        return ""
    game = sports.get("game_spotlight")
    title = str(sports.get("title", "")).strip()
    if isinstance(game, dict):
        return _describe_game(game, ("league", "stage", "status", "date"))
    if isinstance(game, str) and game.strip():
        return f"{title}: {_flatten(game)}" if title else _flatten(game)
    games = _objects_in(sports.get("games"))[:5]
    lines = [_describe_game(one, ("date", "status")) if one.get("teams") else _list_fields(one) for one in games]
    return "\n".join(line for line in (title, *lines) if line) if lines else _list_fields(sports)


def _describe_game(game: dict[str, Any], fields: tuple[str, ...]) -> str:
    teams = (f"{team.get('name', '?')} {_read_score(team.get('score'))}" for team in _objects_in(game.get("teams")))
    score = " - ".join(team.strip() for team in teams)
    when = ", ".join(str(game[name]) for name in fields if isinstance(game.get(name), (str, int)) and game[name])
    return f"{score} ({when})" if score and when else score or when


def _objects_in(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _read_score(score: Any) -> str:
    """Read a score, which some sports give in parts: {"total": "3"}."""
    if isinstance(score, dict):
        score = score.get("total") or score.get("R") or next(iter(score.values()), "")
    return "" if score is None else str(score)


def _read_knowledge_graph(read: dict[str, Any]) -> str:
    graph = read.get("knowledge_graph")
    if not isinstance(graph, dict):
        return ""
    head = ", ".join(str(graph[name]) for name in ("title", "type") if isinstance(graph.get(name), str))
    description = graph.get("description")
    rest = _list_fields({key: value for key, value in graph.items() if key not in ("title", "type", "description")})
    if not description and not rest:
        return ""
    return "\n".join(part for part in (head, _flatten(description) if description else "", rest) if part)


def _list_pages(read: dict[str, Any]) -> str:
    found: list[str] = []
    for one in _objects_in(read.get("organic_results")):
        about = _flatten(one.get("snippet") or one.get("snippet_highlighted_words") or "")
        if said := ": ".join(part for part in (_flatten(one.get("title") or ""), about) if part):
            found.append(f"{len(found) + 1}. {said} ({_flatten(one.get('link') or 'no address')})")
    return "\n".join(found[:RESULTS])


def _list_fields(value: dict[str, Any]) -> str:
    """List an object's plain values, a line each, without addresses and ids."""
    lines = [
        f"{key.replace('_', ' ')}: {_flatten(each)}"
        for key, each in value.items()
        if isinstance(each, (str, int, float)) and not _ADMIN.search(key) and not str(each).startswith("http")
    ]
    return "\n".join(lines[:15])


def _flatten(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(_flatten(one) for one in value if one)
    if isinstance(value, dict):
        return ", ".join(
            f"{key}: {_flatten(each)}" for key, each in value.items() if isinstance(each, (str, int, float))
        )
    return " ".join(str(value).split())


def wikipedia(*, base_url: Setting = None, timeout: float = SECONDS, longest: int = PAGE_LONGEST) -> tuple[Tool, ...]:
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
        found, suggestion = await _search_wikipedia(service, asked, 5)
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
        props = {"prop": "extracts|pageprops", "explaintext": 1, "redirects": 1, "ppprop": "disambiguation"}
        pages = (await _query_wikipedia(service, **props, titles=asked)).get("pages")
        found = pages if isinstance(pages, list) and pages and isinstance(pages[0], dict) else [{"missing": True}]
        page: dict[str, Any] = found[0]
        if page.get("missing") or page.get("invalid"):
            similar = [one["title"] for one in (await _search_wikipedia(service, asked, 5))[0]]
            hint = f"Similar: {'; '.join(similar)}." if similar else "Use wikipedia_search."
            raise ToolError(f"Wikipedia has no page {asked!r}.", hint=hint)
        name = str(page.get("title", asked))
        if "disambiguation" in (page.get("pageprops") or {}):
            read = await _query_wikipedia(service, prop="links", titles=name, plnamespace=0, pllimit=MEANINGS)
            pages = read.get("pages") or [{}]
            meanings = [str(link.get("title", "")) for link in pages[0].get("links") or () if isinstance(link, dict)]
            return f"{name!r} has several meanings. Pages: {'; '.join(meanings)}."
        text = re.sub(r"\n{3,}", "\n\n", str(page.get("extract") or "")).strip()
        if not text:
            raise ToolError(f"The page {name!r} has no text.", hint="Try another page.")
        if len(text) > longest:
            text = f"{text[:longest].rstrip()}\n[{len(text) - longest:,} more characters left out]"
        return f"{name}\n\n{text}"

    return (wikipedia_search, wikipedia_page)


async def _query_wikipedia(service: Service, **params: Any) -> dict[str, Any]:
    answer = await service.ask(params={"action": "query", "format": "json", "formatversion": "2", **params})
    read = answer.json_object()
    error = read.get("error")
    if isinstance(error, dict):
        if error.get("code") in ("ratelimited", "maxlag"):
            raise too_many_requests(service.name, answer.headers.get("Retry-After", ""))
        raise ToolError(f"Wikipedia refuses the request: {str(error.get('info', error.get('code')))[:200]}.")
    found = read.get("query")
    return found if isinstance(found, dict) else {}


async def _search_wikipedia(service: Service, words: str, count: int) -> tuple[list[dict[str, str]], str]:
    read = await _query_wikipedia(
        service, list="search", srsearch=words, srlimit=count, srprop="snippet", srinfo="suggestion"
    )
    info = read.get("searchinfo")
    suggestion = str(info.get("suggestion") or "") if isinstance(info, dict) else ""
    hits = [hit for hit in read.get("search") or () if isinstance(hit, dict)]
    texts = [html.unescape(re.sub(r"<[^>]*>", "", str(hit.get("snippet", "")))) for hit in hits]
    titles = [str(hit.get("title", "")) for hit in hits]
    return [
        {"title": title, "text": " ".join(text.split())} for title, text in zip(titles, texts, strict=True)
    ], suggestion
