"""An agent made in Python carries its endpoints, keys and prices; a key is never shown, stored or pickled."""

from __future__ import annotations

import copy
import io
import logging
import pickle
import traceback
from collections.abc import Iterator
from pathlib import Path
from pprint import pformat
from typing import Any

import pytest
from rich.pretty import pretty_repr

import plait
from chat_endpoint import Endpoint as Server
from conftest import for_each
from plait.core.errors import ConfigError
from plait.journal.store import Journal
from plait.models.config import EndpointConfig, ModelConfig

KEY, TOKEN = "sk-in-python-1234567890", "header-token-0987654321"
USAGE = {"input": 1_000_000.0, "output": 2_000_000.0}


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(f"Final Answer: {KEY} and {TOKEN}") as made:
        yield made


def make_endpoint(server: Server, **more: Any) -> plait.Endpoint:
    return plait.Endpoint(
        server.url, **{"key": KEY, "headers": {"X-Auth": f"Token {TOKEN}"}, "abilities": {"stream": False}, **more}
    )


def test_an_agent_needs_neither_file_nor_environment(server: Server) -> None:
    endpoint = make_endpoint(server, price=plait.Price(1_000_000, 2_000_000), context_tokens=4000, wire="chat")
    agent = plait.Agent("react", model=plait.Chat("gpt-5", endpoint=endpoint))
    run = agent.run("x")
    assert run.status == "answered" and server.sent("model") == ["gpt-5"]
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}" and server.headers[0]["X-Auth"] == f"Token {TOKEN}"
    assert run.cost_usd == pytest.approx(run.usage.input_tokens + 2 * run.usage.output_tokens)
    assert agent._parts.models[""].context_tokens == 4000  # type: ignore[attr-defined]


def test_a_key_is_nowhere_but_in_its_header(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)

    @plait.tool(read_only=True)
    def leak() -> str:
        """Leak."""
        return f"{KEY} {TOKEN}"

    endpoint = make_endpoint(server)
    model = plait.Chat("m", endpoint=endpoint)
    agent = plait.Agent("react", model=model, models={"act": model | plait.Scripted([])}, tools=[leak])
    run = agent.run("Which key?")
    script = plait.Scripted([{"calls": [{"name": "leak", "input": {}}]}, {"answer": "done"}])
    told = agent.using(model=script, models={"act": script | model}).run("x")
    shown = [run, told, run.json(), run.events, run.timeline.moments, agent, model, endpoint, [endpoint], {"a": model}]
    shown += [copy.deepcopy(agent), copy.deepcopy(endpoint), copy.copy(model), model.describe(), agent._access]
    texts = [form(each) for each in shown for form in (repr, str, pformat, pretty_repr)]
    texts += [agent._repr_html_(), run._repr_html_(), caplog.text, *capsys.readouterr()]
    for make in (pickle.dumps, lambda each: plait.Chat("a|b", endpoint=each)):
        try:
            make(endpoint)
        except Exception:
            texts.append(traceback.format_exc())
    agent.run(f"Is it {KEY}?")
    journal = Journal.at()
    for each in (run, told):
        rows = journal.store and journal.timeline(each.id)
        texts += [repr(rows.moments), repr(journal.run(each.id))]
    journal.close()
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert stored
    for secret in (KEY, TOKEN):
        assert not [text for text in texts if secret in text] and secret.encode() not in stored


@pytest.mark.parametrize("what", ["key", "header", "agent", "phase"])
def test_a_key_given_as_text_is_never_pickled(what: str, server: Server) -> None:
    bare = plait.Endpoint(server.url, headers={"X-Api-Key": TOKEN})
    model = plait.Chat("m", endpoint=make_endpoint(server))
    made: Any = {"key": make_endpoint(server), "header": bare, "agent": plait.Agent("react", model=model)}.get(what)
    made = made or plait.Agent("react", model=plait.Scripted([]), models={"act": plait.Chat("m", endpoint=bare)})
    with pytest.raises(TypeError, match="cannot be pickled: it holds a key that was given as text") as refused:
        pickle.dumps(made)
    assert KEY not in str(refused.value) and TOKEN not in str(refused.value)


def test_a_pickle_names_the_variable_of_a_key(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    endpoint = plait.Endpoint(server.url, key_env="MY_KEY", headers={"X-Auth": "$MY_KEY"})
    agent = plait.Agent("react", model=plait.Chat("m", endpoint=endpoint))
    data = pickle.dumps((agent, endpoint))
    assert KEY.encode() not in data
    loaded, again = pickle.loads(data)
    assert again == endpoint
    monkeypatch.delenv("MY_KEY")
    assert loaded._parts.models[""].secrets == (KEY, KEY) or loaded._parts.models[""].secrets == (KEY,)


def test_a_resumed_run_a_phase_a_fallback_and_a_tool_find_their_endpoint(server: Server) -> None:
    first = plait.Chat("a", endpoint=make_endpoint(server, name="first"))
    second = plait.Chat("b", endpoint=make_endpoint(server, name="second", key="sk-another-key-123"))
    server.refused = ("a",)
    server.replies = ["Final Answer: 4"]
    agent = plait.Agent("react", model=plait.Scripted([]), models={"act": first | second})
    assert agent.run("x").answer == "4" and server.sent("model") == ["a", "b"]
    assert {each["Authorization"] for each in server.headers} == {f"Bearer {KEY}", "Bearer sk-another-key-123"}
    server.refused = ()

    @plait.tool(read_only=True)
    async def ask(ctx: plait.Context[Any], question: str) -> str:
        """Ask."""
        return await ctx.aask_model(question, model=second)

    script = plait.Scripted([{"calls": [{"name": "ask", "input": "x"}]}, {"answer": "done"}])
    assert plait.Agent("react", model=script, tools=[ask]).run("x").calls_of("ask")[0].text == "Final Answer: 4"
    server.replies = ['Action:\n```json\n{"action": "stay", "action_input": {}}\n```', "Final Answer: 5"]

    @plait.tool(destructive=True)
    def stay() -> str:
        """Stay."""
        return "stayed"

    waiting = plait.Agent("react", model=first, tools=[stay], approve="effects")
    run = waiting.run("x")
    assert run.status == "waiting"
    assert waiting.resume(run, "yes").answer == "5" and server.sent("model")[-1] == "a"


def test_prices_are_per_model_or_for_all() -> None:
    prices = {"gpt-5*": plait.Price(1, 2, cached=0.5), "other": plait.Price(watts=100, tariff=0.3)}
    endpoint = plait.Endpoint("http://h/v1", price=prices)
    found = [plait.Chat(name, endpoint=endpoint).rate for name in ("gpt-5-mini", "other", "none")]
    assert [each.kind for each in found] == ["tokens", "watts", "unknown"] and found[0].cached == 0.5
    limited = plait.Agent("react", model=plait.Chat("none", endpoint=endpoint), limits=plait.Limits(usd=1))
    with pytest.raises(ConfigError, match="needs the price of every model"):
        limited.run("x")


def test_a_known_host_is_named_by_its_address_or_its_kind() -> None:
    by_kind = plait.Chat("gpt-5", endpoint=plait.Endpoint(kind="openai", key=KEY))
    by_address = plait.Chat("gpt-5", endpoint=plait.Endpoint("https://api.openai.com/v1/", key=KEY))
    assert by_kind == by_address and by_kind.spec == "api.openai.com:gpt-5"
    assert (by_kind.wire, by_kind.rate.is_known, by_kind.context_tokens > 0) == ("responses", True, True)  # type: ignore[attr-defined]
    assert plait.Chat("m", endpoint=plait.Endpoint("http://[::1]:80/v1")).spec == "[--1]-80:m"


WRONG: dict[str, tuple[Any, str]] = {
    "none": (lambda: plait.Endpoint(), "has no base_url"),
    "address": (lambda: plait.Endpoint("localhost"), "is not an address"),
    "password": (lambda: plait.Endpoint(f"http://u:{KEY}@h/v1"), "holds a password"),
    "kind": (lambda: plait.Endpoint("http://h", kind="opnai"), "Did you mean openai"),
    "wire": (lambda: plait.Endpoint("http://h", wire="x"), "is not known"),
    "key": (lambda: plait.Endpoint("http://h", key=KEY.encode()), "should be text, not bytes"),
    "line": (lambda: plait.Endpoint("http://h", key=f"{KEY}\n"), "a line end"),
    "two": (lambda: plait.Endpoint("http://h", key=KEY, key_env="A"), "a key and a key_env"),
    "variable": (
        lambda: plait.Chat("m", endpoint=plait.Endpoint("http://h", key_env="NO_KEY_7")),
        "NO_KEY_7 is not set",
    ),
    "header": (lambda: plait.Endpoint("http://h", headers={"X-Key": 7}), "headers"),
    "price": (lambda: plait.Endpoint("http://h", price={"input": 1}), "is not a price"),
    "numbers": (lambda: plait.Price(-1, 2), "0 or more"),
    "half": (lambda: plait.Price(input=1), "Give input and output"),
    "name": (lambda: plait.Endpoint("http://h", name="local"), "can't have that name"),
    "limit": (lambda: plait.Endpoint("http://h", requests_per_minute=0), "requests_per_minute"),
    "model": (lambda: plait.Chat(endpoint=plait.Endpoint("http://h")), "names no model"),
    "settings": (lambda: plait.Chat("m@effort=low", endpoint=plait.Endpoint("http://h")), "is no name of a model"),
    "text": (lambda: plait.Chat("m", endpoint="http://h"), "plait.Endpoint"),  # type: ignore[arg-type]
    "twice": (lambda: plait.Chat("m", endpoint=plait.Endpoint("http://h")) | _chat(), "names a model twice"),
    "word": (lambda: _chat() | "local", "is not a model object"),  # type: ignore[operator]
    "file": (
        lambda: ModelConfig.from_mapping({"endpoints": {"a": {"base_url": "http://h", "key": KEY}}}),
        "holds a key",
    ),
}


def _chat() -> Any:
    return plait.Chat("m", endpoint=plait.Endpoint("http://h"))


@for_each("case", WRONG)
def test_a_wrong_endpoint_is_an_error_without_its_key(case: str) -> None:
    make, words = WRONG[case]
    with pytest.raises(ConfigError) as caught:
        make()
    said = io.StringIO()
    traceback.print_exception(caught.value, file=said)
    assert words in str(caught.value) and KEY not in str(caught.value) and f"Error: {KEY}" not in said.getvalue()


def test_one_declaration_serves_the_file_and_the_class() -> None:
    assert {*plait.Endpoint.__struct_fields__} == {*EndpointConfig.__struct_fields__, "key", "name"}
