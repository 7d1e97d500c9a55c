"""Golden requests of the account react-on-the-wire: with its prompts as templates, Plait sends the same bytes.

The prompts are cut out of the published file; this test adds only labels and tags of Jinja.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import plait
from cli_support import PLAIT
from conftest import data_file
from fork_server import run_forked
from plait.journal.entries import ModelCall
from plait.journal.store import Journal
from plait.models.scripted import Scripted
from plait.toolkits.web_search import pick_published, websearch
from toolkits_server import refusal, site

TOOLS = """
import json
from pathlib import Path

import plait
from plait.toolkits.expression import compute

HERE = Path(__file__).parent


@plait.tool(name="Search", description=(HERE / "search.txt").read_text(), read_only=True)
def search(query: str) -> str:
    return json.loads((HERE / "results.json").read_text())[query]


@plait.tool(name="Calculator", description=(HERE / "calculator.txt").read_text(), read_only=True)
def calculator(expression: str) -> str:
    return f"Answer: {compute(expression, full=True)}"
"""
EARLIER = """\
{{ question }}

{% if turns %}
HEADING
{% for turn in turns %}
{{ turn.reply.rstrip() }}

Observation: {{ turn.observation }}
Thought:
{%- endfor %}
{%- endif %}
"""
PARAMS = {"temperature": 0.0, "n": 1}
STOP = "Observation:"


@pytest.fixture
def published() -> dict[str, Any]:
    return json.loads(data_file("published", "react-on-the-wire.json").read_text(encoding="utf-8"))


@pytest.fixture
def question(published: dict[str, Any]) -> str:
    return published["calls"][0]["messages"][1]["content"].strip()


@pytest.fixture
def folder(published: dict[str, Any], question: str, tmp_path: Path) -> Path:
    """A folder with the account's prompts as templates, its tools and its search results."""
    calls = published["calls"]
    system = calls[0]["messages"][0]["content"]
    head, listed, rest = system.split("\n\n", 2)
    names = [line.split(": ")[0] for line in listed.split("\n")]
    for line, file in zip(listed.split("\n"), ("search.txt", "calculator.txt"), strict=True):
        (tmp_path / file).write_text(line.split(": ", 1)[1])
    tools = "{% for tool in tools %}\n{{ tool.name }}: {{ tool.description }}\n{% endfor %}"
    assert rest.count(", ".join(names)) == 1
    rest = rest.replace(", ".join(names), "{{ names }}")
    prompts = tmp_path / "prompts" / "react"
    prompts.mkdir(parents=True)
    (prompts / "system.j2").write_text(f"{head}\n\n{tools}\n\n{rest}")
    after = calls[1]["messages"][1]["content"].removeprefix(calls[0]["messages"][1]["content"])
    (prompts / "earlier.j2").write_text(EARLIER.replace("HEADING", after.split("\n")[0]))
    replies = [json.loads(call["reply"].split("```")[1]) for call in calls if "```" in call["reply"]]
    found = {reply["action_input"]: seen for reply, seen in zip(replies, published["observations"], strict=True)}
    (tmp_path / "results.json").write_text(json.dumps(found))
    (tmp_path / "tools.py").write_text(TOOLS)
    return tmp_path


def sent(calls: Sequence[ModelCall]) -> list[dict[str, Any]]:
    bodies = [json.loads(call.request) for call in calls]
    return [{name: body.get(name) for name in ("messages", "stop", "temperature", "n")} for body in bodies]


def assert_equal(calls: Sequence[ModelCall], published: dict[str, Any]) -> None:
    """Compare message by message, so that a failure shows the first one that differs."""
    for body, there in zip(sent(calls), expected(published), strict=True):
        for mine, message in zip(body["messages"], there["messages"], strict=True):
            assert mine["content"] == message["content"]
        assert body == there


def expected(published: dict[str, Any]) -> list[dict[str, Any]]:
    settings = {name: published["settings"][name] for name in ("stop", "temperature", "n")}
    return [{"messages": call["messages"], **settings} for call in published["calls"]]


def as_sent(reply: str) -> str:
    return reply


def without_newline(reply: str) -> str:
    return reply.rstrip("\n")


def past_the_stop(reply: str) -> str:
    return reply if "Final Answer" in reply else f"{reply}Observation: 42\nThought: I made that up."


def with_blanks(reply: str) -> str:
    return f"{reply}\n \n"


@pytest.mark.parametrize("ending", [as_sent, without_newline, with_blanks, past_the_stop])
@pytest.mark.parametrize("chunk", [0, 3])
def test_golden_requests_are_equal(
    published: dict[str, Any], question: str, folder: Path, ending: Callable[[str], str], chunk: int
) -> None:
    model = Scripted([ending(call["reply"]) for call in published["calls"]], params=PARAMS, chunk=chunk)
    agent = plait.Agent(
        plait.ReAct(transcript="user", stop=STOP), model=model, tools=[f"{folder}/tools.py"], prompts=folder / "prompts"
    )
    run = agent.run(question)
    assert run.answer == published["calls"][3]["reply"].rpartition(" ")[2]
    assert_equal(run.timeline.model_calls, published)


RESULTS: list[dict[str, Any]] = [
    {"answer_box": {"title": "T", "snippet": " It\n is so. ", "answer": 42}},
    {"answer_box": {"snippet": "long " * 900, "snippet_highlighted_words": ["a"]}, "knowledge_graph": {}},
    {"answer_box": {"list": ["Mercury"], "snippet_highlighted_words": ["1969", "July"]}},
    {"answer_box": {"result": "1,024"}, "organic_results": [{"snippet": "In words."}]},
    {"answer_box": {"answer": ""}, "organic_results": [{"snippet": "Not this."}]},
    {"sports_results": {"title": "Lakers", "game_spotlight": "Lakers won"}, "knowledge_graph": {"description": "x"}},
    {"sports_results": {"game_spotlight": {"teams": [{"name": "A", "score": "4"}]}}},
    {"sports_results": {"games": []}, "knowledge_graph": {"title": "Lyon", "description": "A city."}},
    {"knowledge_graph": {"title": "Lyon", "type": "City"}, "organic_results": [{"title": "Lyon", "snippet": "It is."}]},
    {"organic_results": [{"title": "No words"}, {"title": "Words", "snippet": "Second."}]},
]


def test_golden_choice_of_a_results_text_is_the_accounts() -> None:
    """The account prints the program that chose the text. It and the tool read the same results."""
    text = data_file("published", "react-on-the-wire.txt").read_text(encoding="utf-8")
    program = text[text.index("def _process_response") : text.index("    return toret") + len("    return toret")]
    names: dict[str, Any] = {}
    exec(compile(program, "account", "exec"), names)
    chosen = [pick_published(result) for result in RESULTS]
    assert chosen == [str(names["_process_response"](result)) for result in RESULTS]
    assert len(set(chosen)) == len(RESULTS)
    # The account's program breaks off at these.
    odd = ({}, {"organic_results": []}, {"answer_box": [1], "organic_results": [5]}, {"answer_box": {"answer_": 1}})
    for result in (*odd, {"answer_box": {"snippet_highlighted_words": []}}):
        assert pick_published(result) == chosen[-1]


async def test_golden_requests_with_the_search_tool(published: dict[str, Any], question: str, folder: Path) -> None:
    snippet, age = published["observations"][:2]
    results = [
        {"answer_box": {"title": "x", "snippet": snippet}, "organic_results": []},
        {"answer_box": {"answer": age}},
    ]
    async with site({"/search": [*results, {"error": "Asked too often."}]}) as there:
        (search,) = websearch("published", base_url=there.address, key="a-key-of-the-tests")
        search = structs.replace(search, name="Search", description=(folder / "search.txt").read_text())
        (_, calculator) = plait.tools.load(f"{folder}/tools.py")
        model = Scripted([call["reply"] for call in published["calls"]], params=PARAMS)
        loop = plait.ReAct(transcript="user", stop=STOP)
        agent = plait.Agent(loop, model=model, tools=[search, calculator], prompts=folder / "prompts")
        run = await agent.arun(question)
        assert "Asked too often" in await refusal((search,), "Search", query="x")
    assert_equal(run.timeline.model_calls, published)


def test_golden_command_line_with_usage(published: dict[str, Any], question: str, folder: Path) -> None:
    replies = [
        {
            "text": call["reply"],
            "usage": {
                "input_tokens": call["usage"]["prompt_tokens"],
                "output_tokens": call["usage"]["completion_tokens"],
            },
        }
        for call in published["calls"]
    ]
    (folder / "replies.json").write_text(json.dumps(replies))
    (folder / "plait.toml").write_text("[params]\ntemperature = 0.0\nn = 1\n")
    words = ["run", question, "--prompts", "prompts", "--tools", "tools.py", "--model", "scripted:replies.json"]
    options = ["--loop", "react", "--set", "transcript=user", "--set", f"stop={STOP}"]
    options += ["--journal", "runs.db", "--config", "plait.toml"]
    done = run_forked([PLAIT, *words, *options], cwd=folder)
    assert done.returncode == 0, done.stderr
    calls = Journal.at(folder / "runs.db").timeline("last").model_calls
    assert_equal(calls, published)
    for call, there in zip(calls, published["calls"], strict=True):
        assert call.reply is not None
        usage = {"prompt_tokens": call.reply.usage.input_tokens, "completion_tokens": call.reply.usage.output_tokens}
        assert usage == {name: there["usage"][name] for name in usage}
