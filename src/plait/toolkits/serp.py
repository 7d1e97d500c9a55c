"""A web search whose answer is picked out of the result, by a service in the form of SerpApi."""

from __future__ import annotations

from typing import Any

from plait.core.errors import ToolError
from plait.toolkits.http import SECONDS
from plait.toolkits.serp_pick import picked
from plait.toolkits.service import Said, Service
from plait.tools.tool import Tool, tool


def websearch(
    *, base_url: Said = None, key: Said = None, engine: str = "google", timeout: float = SECONDS
) -> tuple[Tool, ...]:
    """The tool `web_search`.

    `base_url` (environment: SERPAPI_URL) is the service's address, `key` (SERPAPI_API_KEY) its key, `engine` the search
    engine it asks.
    """
    service = Service(
        "The web search",
        "SERPAPI_URL",
        "https://serpapi.com",
        "SERPAPI_API_KEY",
        "a key of SerpApi",
        base_url,
        key,
        timeout,
    )

    @tool(read_only=True)
    async def web_search(query: str) -> str:
        """Searches the web and gives what answers the query best: a direct answer, else the first results.

        Args:
            query: What is searched for.
        """
        asked = query.strip()[:500]
        if not asked:
            raise ToolError("There is nothing to search for.", hint="Give a few words.")
        params = {"engine": engine, "q": asked, "api_key": service.key(), "output": "json"}
        read: dict[str, Any] = (await service.ask("/search", params=params)).object()
        found = picked(read)
        if found:
            return found
        said = str(read.get("error") or "").strip()
        if said and "any results" not in said:
            raise ToolError(f"The web search says: {' '.join(said.split())[:200].rstrip('.')}.")
        raise ToolError(f"Nothing is found for {asked!r}.", hint="Try fewer or other words.")

    return (web_search,)
