"""Claims about Wikipedia, the web search and asking a model: what is picked out of an answer, what a failure says."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

import plait
from cli_support import action
from conftest import for_each
from plait.core.errors import ConfigError, RateLimited
from plait.toolkits import ask_model, websearch, wikipedia
from plait.toolkits.web_search import pick_answer, pick_published
from plait.tools.load import anchor_word
from toolkits_server import Seen, call, refusal, site, told

KEY = "0123456789abcdef0123456789abcdef"


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WIKIPEDIA_URL", "SERPAPI_URL", "SERPAPI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


# --- Wikipedia

RIGEL = "Rigel is a blue supergiant star in the constellation of Orion.\n\n\n\n== Name ==\nIts name means foot."


def wiki(seen: Seen) -> Any:
    """MediaWiki's API over three pages."""
    asked = seen.query
    assert (asked["action"], asked["format"], asked["formatversion"]) == ("query", "json", "2")
    assert seen.headers["user-agent"].startswith("plait")
    if asked.get("list") == "search":
        hits = [
            {
                "ns": 0,
                "title": "Rigel",
                "pageid": 1,
                "snippet": '<span class="searchmatch">Rigel</span> is a &quot;blue&quot; star',
            },
            {"ns": 0, "title": "Rigel (disambiguation)", "pageid": 2, "snippet": ""},
        ]
        found = hits[: int(asked["srlimit"])] if "rigel" in asked["srsearch"].lower() else []
        info = {"suggestion": "rigel"} if asked["srsearch"] == "rigell" and not found else {}
        return {"batchcomplete": True, "query": {"searchinfo": info, "search": found}}
    if asked["prop"] == "links":
        links = [{"ns": 0, "title": "Rigel"}, {"ns": 0, "title": "Rigel (dog)"}]
        return {"query": {"pages": [{"pageid": 2, "title": asked["titles"], "links": links}]}}
    pages: dict[str, dict[str, Any]] = {
        "Rigel": {"pageid": 1, "title": "Rigel", "extract": RIGEL},
        "Beta Orionis": {"pageid": 1, "title": "Rigel", "extract": RIGEL},
        "Rigel (disambiguation)": {
            "title": "Rigel (disambiguation)",
            "extract": "Rigel may refer to:",
            "pageprops": {"disambiguation": ""},
        },
        "Empty": {"title": "Empty", "extract": ""},
    }
    return {"query": {"pages": [pages.get(asked["titles"], {"title": asked["titles"], "missing": True})]}}


async def test_a_search_gives_titles_with_plain_text() -> None:
    async with site({"/w/api.php": wiki}) as there:
        toolkit = wikipedia(base_url=f"{there.address}/w/api.php")
        assert await call(toolkit, "wikipedia_search", query="rigel star") == [
            {"title": "Rigel", "text": 'Rigel is a "blue" star'},
            {"title": "Rigel (disambiguation)", "text": ""},
        ]
        assert "No page of Wikipedia fits 'zzz'" in await refusal(toolkit, "wikipedia_search", query="zzz")
        assert "nothing to search for" in await refusal(toolkit, "wikipedia_search", query=" ")


async def test_a_page_is_its_plain_text_under_its_own_title() -> None:
    async with site({"/w/api.php": wiki}) as there:
        toolkit = wikipedia(base_url=f"{there.address}/w/api.php")
        text = f"Rigel\n\n{RIGEL}".replace("\n\n\n\n", "\n\n")
        for title in ("Rigel", " Rigel ", "Beta_Orionis"):
            assert await call(toolkit, "wikipedia_page", title=title) == text
        assert there.seen[0].query["redirects"] == "1"
        short = wikipedia(base_url=f"{there.address}/w/api.php", longest=20)
        cut = len(text) - len("Rigel\n\n") - 20
        assert (await call(short, "wikipedia_page", title="Rigel")).endswith(
            f"Rigel is a blue supe\n[{cut} more characters left out]"
        )


async def test_a_word_with_several_meanings_lists_their_pages() -> None:
    async with site({"/w/api.php": wiki}) as there:
        toolkit = wikipedia(base_url=f"{there.address}/w/api.php")
        said = await call(toolkit, "wikipedia_page", title="Rigel (disambiguation)")
    assert said == "'Rigel (disambiguation)' has several meanings. Pages: Rigel; Rigel (dog)."


async def test_a_page_that_is_not_there_is_told_with_similar_ones() -> None:
    async with site({"/w/api.php": wiki}) as there:
        toolkit = wikipedia(base_url=f"{there.address}/w/api.php")
        assert await refusal(toolkit, "wikipedia_page", title="Rigel, the star") == (
            "Wikipedia has no page 'Rigel, the star'. Similar: Rigel; Rigel (disambiguation)."
        )
        assert "Use wikipedia_search" in await refusal(toolkit, "wikipedia_page", title="Zzz")
        assert "has no text" in await refusal(toolkit, "wikipedia_page", title="Empty")
        before = len(there.seen)
        for wrong in ("", "a|b", "What is [this]?", "x" * 300):
            assert "can't be the title" in await refusal(toolkit, "wikipedia_page", title=wrong)
        assert len(there.seen) == before


async def test_the_wikis_own_errors_are_told() -> None:
    answers = [
        {"error": {"code": "badvalue", "info": "Unrecognized value for parameter."}},
        told({"error": {"code": "ratelimited", "info": "You've exceeded your rate limit."}}, Retry_After="5"),
        web.Response(status=429, text="Too many requests", headers={"Retry-After": "60"}),
        web.Response(status=403, text="Please set a user-agent"),
        {"batchcomplete": True},
    ]
    async with site({"/w/api.php": answers}) as there:
        toolkit = wikipedia(base_url=f"{there.address}/w/api.php")
        said = [await refusal(toolkit, "wikipedia_search", query="x") for _ in range(5)]
    assert "refuses the request: Unrecognized value" in said[0]
    assert "slow down (429). Wait 5 s" in said[1]
    assert "slow down (429): Too many requests. Wait 60 s" in said[2]
    assert "refuses access (403): Please set a user-agent. Check WIKIPEDIA_URL." in said[3]
    assert "No page" in said[4]


# --- the web search

ORGANIC = [
    {"position": 1, "title": "Lyon", "link": "https://a.example/lyon", "snippet": "Lyon has 522,250 people."},
    {"position": 2, "title": "No words", "link": "https://b.example"},
    *({"title": f"More {i}", "link": "https://c.example", "snippet": "more"} for i in range(9)),
]
SPORTS = {
    "title": "Premier League",
    "thumbnail": "https://x.example/i.png",
    "game_spotlight": {
        "league": "Premier League",
        "date": "Sat, Apr 1",
        "status": "FT",
        "teams": [{"name": "Arsenal", "score": "4"}, {"name": "Leeds", "score": "1"}],
    },
}
GRAPH = {
    "title": "Lyon",
    "type": "City in France",
    "description": "A city at two rivers.",
    "kgmid": "/m/0dprg",
    "website": "http://www.lyon.fr",
    "population": "522,250 (2021)",
    "population_links": [{"text": "2021", "link": "https://x"}],
    "header_images": [],
}


@for_each(
    ("result", "answer"),
    [
        ({"answer_box": {"type": "organic_result", "answer": "42 years"}, "organic_results": ORGANIC}, "42 years"),
        ({"answer_box": {"type": "calculator_result", "result": "1,024"}, "knowledge_graph": GRAPH}, "1,024"),
        ({"answer_box": {"title": "T", "snippet": "It is so.", "snippet_highlighted_words": ["so"]}}, "It is so."),
        ({"answer_box": {"title": "T", "snippet_highlighted_words": ["1969", "July"]}}, "1969; July"),
        ({"answer_box": {"list": ["Mercury", "Venus"]}}, "Mercury; Venus"),
        ({"answer_box": [{"answer": "first"}, {"answer": "second"}]}, "first"),
        (
            {
                "answer_box": {
                    "type": "weather_result",
                    "temperature": "11",
                    "unit": "Celsius",
                    "weather": "Cloudy",
                    "location": "Lyon",
                }
            },
            "Lyon, 11 Celsius, Cloudy",
        ),
        (
            {"answer_box": {"type": "currency", "from": "USD", "to": "EUR", "thumbnail": "x"}},
            "type: currency\nfrom: USD\nto: EUR",
        ),
        (
            {"answer_box": {"title": "Lyon", "type": "organic_result"}, "knowledge_graph": GRAPH},
            "Lyon, City in France\nA city at two rivers.\npopulation: 522,250 (2021)",
        ),
        (
            {"sports_results": {"title": "Lakers", "game_spotlight": "Lakers won 110-99", "rankings": "2nd"}},
            "Lakers: Lakers won 110-99",
        ),
        ({"sports_results": SPORTS, "knowledge_graph": GRAPH}, "Arsenal 4 - Leeds 1 (Premier League, FT, Sat, Apr 1)"),
        (
            {
                "sports_results": {
                    "title": "Lakers",
                    "games": [{"date": "Today", "teams": [{"name": "A", "score": {"T": 9}}, {"name": "B"}]}],
                }
            },
            "Lakers\nA 9 - B (Today)",
        ),
        (
            {"sports_results": {"title": "Lakers", "rankings": "2nd in the Pacific"}},
            "title: Lakers\nrankings: 2nd in the Pacific",
        ),
        (
            {"knowledge_graph": GRAPH, "organic_results": ORGANIC},
            "Lyon, City in France\nA city at two rivers.\npopulation: 522,250 (2021)",
        ),
        (
            {"knowledge_graph": {"title": "Lyon"}, "organic_results": ORGANIC[:2]},
            "1. Lyon: Lyon has 522,250 people. (https://a.example/lyon)\n2. No words (https://b.example)",
        ),
    ],
)
async def test_the_answer_is_picked_out_of_the_result(result: dict[str, Any], answer: str) -> None:
    async with site({"/search": {"search_metadata": {"status": "Success"}} | result}) as there:
        assert await call(websearch(base_url=there.address, key=KEY), "web_search", query=" how many? ") == answer
        assert there.seen[0].query == {"engine": "google", "q": "how many?", "api_key": KEY, "output": "json"}


def test_the_published_choice_is_a_word_and_its_errors_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "published").mkdir()
    monkeypatch.chdir(tmp_path)
    (search,) = plait.tools.load("Search=websearch:published")
    assert search.name == "Search" and plait.tools.load(anchor_word(search.source))[0].source == search.source
    with pytest.raises(ConfigError, match=r"no choice 'first'\. Write websearch or websearch:published"):
        websearch("first")


NAMES = "answer snippet title teams name score games game_spotlight link description list".split()  # noqa: SIM905
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(NAMES),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    st.dictionaries(
        st.sampled_from(["answer_box", "sports_results", "knowledge_graph", "organic_results", "error"]),
        values,
        max_size=5,
    )
)
def test_whatever_a_result_looks_like_the_answer_is_a_text(result: dict[str, Any]) -> None:
    assert len(pick_answer(result)) <= 2000
    assert isinstance(pick_published(result), str)


async def test_at_most_four_pages_are_told_of_and_nothing_is_endless() -> None:
    async with site({"/search": {"organic_results": ORGANIC}}) as there:
        said = await call(websearch(base_url=there.address, key=KEY), "web_search", query="x")
        assert len(said.splitlines()) == 4
    async with site({"/search": {"answer_box": {"answer": "long " * 5000}}}) as there:
        assert len(await call(websearch(base_url=there.address, key=KEY), "web_search", query="x")) == 2000


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"error": "Google hasn't returned any results for this query."}, "Nothing is found for 'x'"),
        ({"search_metadata": {}}, "Nothing is found for 'x'"),
        ({"answer_box": None, "organic_results": [None, {}], "knowledge_graph": "?"}, "Nothing is found"),
        (
            {"error": "Your account has run out of searches."},
            "The web search says: Your account has run out of searches.",
        ),
        (
            told({"error": f"Invalid API key. Your key is {KEY}"}, 401),
            "(401): Invalid API key. Your key is [secret]. Check SERPAPI_API_KEY.",
        ),
        (told({"error": "Rate limit"}, 429), "slow down (429): Rate limit"),
    ],
)
async def test_a_search_that_fails_is_told(answer: Any, said: str) -> None:
    async with site({"/search": answer}) as there:
        told_so = await refusal(websearch(base_url=there.address, key=KEY), "web_search", query="x")
        assert said in told_so
        assert KEY not in told_so


async def test_without_a_key_it_is_said_how_to_set_one() -> None:
    said = await refusal(websearch(base_url="http://127.0.0.1:1"), "web_search", query="x")
    assert said.startswith("The web search needs a key, and SERPAPI_API_KEY is not set.")
    assert "nothing to search for" in await refusal(websearch(key=KEY), "web_search", query=" ")


# --- asking a model


def test_a_model_is_asked_the_question_alone() -> None:
    def reply(think: Any) -> str:
        assert [(message.role, message.content) for message in think.messages] == [("user", "What is 6 x 7?")]
        return " 42 "

    assert ask_once(plait.Scripted([reply]), " What is 6 x 7? ") == "42"
    assert "is empty" in ask_once(plait.Scripted([reply]), " ")
    assert ask_model(plait.Scripted([reply]))[0].read_only


def ask_once(model: Any, question: str) -> str:
    """What a run sees of one call of the tool."""
    script = [action("ask_model", {"question": question}), "Final Answer: x"]
    run = plait.Agent(model=plait.Scripted(script), tools=ask_model(model), limits=plait.Limits(retries=0)).run("q")
    return run.timeline.results[0][1].text


def test_a_model_that_can_not_be_asked_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = RateLimited("The endpoint is busy.", hint="Slow down.", after=3.0)
    assert ask_once(plait.Scripted([busy, "x"]), "?") == "Error: The endpoint is busy. Slow down. Wait 3 s."
    assert "no answer" in ask_once(plait.Scripted(["  "]), "?")
    assert "OPENAI_API_KEY is not set" in ask_once("openai:gpt-5", "?")
    with pytest.raises(ConfigError, match="No model is named"):
        ask_model(" ")


# --- the web search without a key


class FakeEngines:
    """The package `ddgs`, as version 9.16 has it: what the engines answer, or raise."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answer: list[dict[str, str]] | str = []
        self.asked: list[tuple[Any, ...]] = []
        module, errors = ModuleType("ddgs"), ModuleType("ddgs.exceptions")
        module.__spec__ = ModuleSpec("ddgs", None)
        names = ("DDGSException", "RatelimitException", "TimeoutException")
        base = type(names[0], (Exception,), {})
        self.errors = {name: base if name == names[0] else type(name, (base,), {}) for name in names}
        vars(errors).update(self.errors)
        engines = self

        class DDGS:
            def __init__(self, proxy: str | None = None, timeout: int | None = 5) -> None:
                engines.asked.append((proxy, timeout))

            def text(self, query: str, *, max_results: int) -> list[dict[str, str]]:
                engines.asked.append((query, max_results))
                if isinstance(engines.answer, str):
                    kind, _, said = engines.answer.partition(": ")
                    raise engines.errors[kind](said)
                return engines.answer

        vars(module)["DDGS"] = DDGS
        monkeypatch.setitem(sys.modules, "ddgs", module)
        monkeypatch.setitem(sys.modules, "ddgs.exceptions", errors)


PAGE = {"title": "Ghent", "href": "https://a.org/ghent", "body": "A city of 270,000."}


async def test_without_a_key_public_engines_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = FakeEngines(monkeypatch)
    engines.answer = [PAGE, {**PAGE, "title": "Port"}]
    said = await call(websearch(timeout=7.5), "web_search", query=" how many? ")
    assert said == (
        "1. Ghent: A city of 270,000. (https://a.org/ghent)\n2. Port: A city of 270,000. (https://a.org/ghent)"
    )
    assert engines.asked == [(None, 8), ("how many?", 4)]


async def test_a_key_or_an_address_of_a_service_still_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = FakeEngines(monkeypatch)
    async with site({"/search": {"answer_box": {"answer": "270,000"}}}) as there:
        assert await call(websearch(base_url=there.address, key=KEY), "web_search", query="x") == "270,000"
        monkeypatch.setenv("SERPAPI_URL", there.address)
        monkeypatch.setenv("SERPAPI_API_KEY", KEY)
        assert await call(websearch(), "web_search", query="x") == "270,000"
    assert engines.asked == []


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        ("RatelimitException: 202", "is asked to slow down. Wait a minute, then call again. Or set SERPAPI_API_KEY."),
        ("TimeoutException: x", "gave no answer in 20 s. Try again later."),
        ("DDGSException: No results found.", "Nothing is found for 'x'. Try fewer or other words."),
        ("DDGSException: DNS error", "fails: DNS error. Is the network there?"),
    ],
)
async def test_what_the_engines_refuse_is_a_clear_observation(
    raised: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeEngines(monkeypatch).answer = raised
    assert said in await refusal(websearch(), "web_search", query="x")


async def test_without_the_package_the_error_names_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ddgs", None)
    told_so = await refusal(websearch(), "web_search", query="x")
    assert "SERPAPI_API_KEY" in told_so
    assert "pip install" in told_so
    assert "websearch" in told_so
