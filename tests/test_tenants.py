"""An agent keeps the endpoint, keys and prices that it was made with; a pickle names the variables of keys."""

from __future__ import annotations

import asyncio
import copy
import itertools
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import plait
from chat_endpoint import Endpoint
from pickled_parts import Box, Watch, accept, look_up, plain, run_agent
from plait.core import Call, Reply
from plait.core.errors import BadAnswer, ConfigError, JournalError, RateLimited, ReplayDiffers, StaleAnswer, Unsupported
from plait.models.chat import ChatModel
from plait.models.resolve import resolve
from plait.search import load_embedder

KEYS = {"A": "sk-tenant-a-11111111", "B": "sk-tenant-b-22222222"}


class Trip(BaseModel):
    city: str
    days: int


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint("yes") as made:
        yield made


@pytest.fixture(autouse=True)
def _no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.config._named", None)
    for tenant, key in KEYS.items():
        monkeypatch.setenv(f"KEY_{tenant}", key)
        monkeypatch.setenv(f"TEAM_{tenant}", f"team-of-{tenant}-secret")


def use_tenant(tenant: str, endpoint: Endpoint, folder: Path) -> None:
    """Use the configuration of a tenant in this process."""
    file = folder / f"{tenant}.toml"
    price = ord(tenant) - ord("A") + 1
    if not file.exists():
        file.write_text(
            f'[endpoints.house]\nbase_url = "{endpoint.url}"\nmodel = "m-{tenant}"\nkey_env = "KEY_{tenant}"\n'
            f'headers = {{ "X-Team" = "$TEAM_{tenant}" }}\nprice = {{ input = {price}000, output = 0 }}\n'
            f"abilities = {{ stream = false, schema = {str(tenant == 'A').lower()} }}\n"
            f"[local]\nn_ctx = {1024 * price}\n"
        )
    plait.use_config(file)


def make_agent(**more: Any) -> plait.Agent:
    return plait.Agent("tool_calling", model="house", journal=False, **more)


def credentials(endpoint: Endpoint) -> list[tuple[str, str]]:
    """The tenant of the key and of the header of each request."""
    names = {f"Bearer {key}": tenant for tenant, key in KEYS.items()}
    return [(names[each["Authorization"]], each["X-Team"][8]) for each in endpoint.headers]


async def test_a_hundred_agents_keep_their_keys_and_prices_while_the_configuration_changes(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    agents = []
    for _, tenant in zip(range(100), itertools.cycle("AB"), strict=False):
        use_tenant(tenant, endpoint, tmp_path)
        agents.append((tenant, make_agent()))
    over = threading.Event()

    def change() -> None:
        for tenant in itertools.cycle("BA"):
            if over.is_set():
                return
            use_tenant(tenant, endpoint, tmp_path)
            over.wait(0.002)

    changing = threading.Thread(target=change)
    changing.start()
    try:
        runs = await asyncio.gather(*(agent.arun(tenant) for tenant, agent in agents))
    finally:
        over.set()
        changing.join()
    for (tenant, _), run in zip(agents, runs, strict=True):
        price = 0.001 if tenant == "A" else 0.002
        assert run.cost_usd == pytest.approx(run.usage.input_tokens * price), tenant
    asked = [(body["model"][-1], body["messages"][-1]["content"]) for body in endpoint.asked]
    assert len(asked) == 100 and asked == credentials(endpoint)


ROUTES: dict[str, Any] = {
    "copy with a change": lambda agent: agent.using(can_ask=False).run("q"),
    "copy of another model word": lambda agent: agent.using(model="house:m-A").run("q"),
    "deepcopy": lambda agent: copy.deepcopy(agent).run("q"),
    "copy": lambda agent: copy.copy(agent).run("q"),
    "a phase": lambda agent: agent.using(models={"act": "house"}).run("q"),
    "fallback": lambda agent: agent.using(model="house|house:m-A").run("q"),
    "as a tool": lambda agent: plait.Agent(
        "tool_calling",
        model=plait.Scripted([Reply("", calls=(Call("ask_agent", {"question": "q"}),)), "done"]),
        tools=[agent.as_tool()],
        journal=False,
    ).run("q"),
}


@pytest.mark.parametrize("route", ROUTES)
def test_a_copy_keeps_the_configuration_of_its_original(route: str, endpoint: Endpoint, tmp_path: Path) -> None:
    use_tenant("A", endpoint, tmp_path)
    agent = make_agent()
    use_tenant("B", endpoint, tmp_path)
    ROUTES[route](agent)
    assert credentials(endpoint) == [("A", "A")] and endpoint.asked[0]["model"] == "m-A"


def test_a_tool_asks_the_models_of_its_agents_configuration(endpoint: Endpoint, tmp_path: Path) -> None:
    @plait.tool
    async def ask(ctx: plait.Context[None]) -> str:
        """Asks a model."""
        return await ctx.aask_model("q", model="house")

    use_tenant("A", endpoint, tmp_path)
    script = plait.Scripted([Reply("", calls=(Call("ask", {}),)), "done"])
    agent = plait.Agent("tool_calling", model=script, tools=[ask], journal=False)
    use_tenant("B", endpoint, tmp_path)
    assert agent.run("q").answer == "done" and credentials(endpoint) == [("A", "A")]


def test_later_changes_of_variables_and_files_change_nothing(
    endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_tenant("A", endpoint, tmp_path)
    monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url)
    monkeypatch.setenv("OPENAI_API_KEY", KEYS["A"])
    agents = [make_agent(), plait.Agent("tool_calling", model="openai:gpt-5", journal=False)]
    local = plait.Agent("react", model="local", history=plait.History(embedder="openai:text-embedding-3-small"))
    (tmp_path / "A.toml").write_text("[local]\nn_ctx = 9\n")
    for name in ("KEY_A", "OPENAI_API_KEY", "TEAM_A"):
        monkeypatch.setenv(name, KEYS["B"])
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("PLAIT_THREADS", "7")
    for agent in agents:
        agent.run("q")
    assert {each["Authorization"] for each in endpoint.headers} == {f"Bearer {KEYS['A']}"}
    server = local._parts.models[""].server  # type: ignore[attr-defined]
    assert server.n_ctx == 1024 and server.threads != 7
    embedder: Any = local._parts.embedder
    assert embedder._embedder._headers["Authorization"] == f"Bearer {KEYS['A']}"


def test_a_key_that_was_not_set_is_missing_until_the_agent_is_made_again(
    endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KEY_A")
    use_tenant("A", endpoint, tmp_path)
    agent = make_agent()  # making it needs no key
    with pytest.raises(ConfigError, match="KEY_A is not set"):
        agent.run("q")
    monkeypatch.setenv("KEY_A", KEYS["B"])
    with pytest.raises(ConfigError, match="Set KEY_A first, then make the agent"):
        agent.run("q")
    assert not endpoint.asked
    assert make_agent().run("q").answer == "yes"


# --- pickles


@pytest.fixture
def _keys(monkeypatch: pytest.MonkeyPatch, endpoint: Endpoint, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai-SECRET")
    use_tenant("A", endpoint, tmp_path)


PICKLED: dict[str, Any] = {
    "words": lambda: make_agent(tools=["calculator"]),
    "fallback": lambda: make_agent().using(model="openai:gpt-5|house"),
    "objects": lambda: make_agent().using(model=resolve("openai:gpt-5"), models={"act": "house"}),
    "functions": lambda: make_agent(tools=[look_up, plain]),
    "method": lambda: make_agent(tools=[Box().add]),
    "object": lambda: make_agent(tools=[Box()]),
    "class": lambda: make_agent(tools=[Box]),
    "agent": lambda: make_agent(tools=[make_agent(tools=[look_up]).as_tool("helper", "Helps.", hand_off=True)]),
    "parts": lambda: make_agent(hooks=[Watch()], output=plait.OutputType(Trip, checks=[accept]), approve="effects"),
    "settings": lambda: make_agent(settings=plait.ModelSettings(seed=1, extra_headers={"X-Plain": "a"})),
    "embedder": lambda: make_agent(history=plait.History(embedder="openai:text-embedding-3-small")),
    "loop": lambda: plait.Agent(plait.ReAct(dialect="lines"), model="house", journal=False),
}


@pytest.mark.usefixtures("_keys")
@pytest.mark.parametrize("case", PICKLED)
@pytest.mark.parametrize("after_run", [False, True])
def test_a_pickled_agent_names_its_keys(case: str, after_run: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = PICKLED[case]()
    if after_run and case not in ("fallback", "objects"):
        agent.run("q")
    data = pickle.dumps(agent)
    for secret in (b"SECRET", *(key.encode() for key in KEYS.values()), b"team-of-A-secret"):
        assert secret not in data
    for made in (pickle.loads(data), copy.deepcopy(agent), copy.copy(agent)):
        assert [tool.spec for tool in made._parts.toolset] == [tool.spec for tool in agent._parts.toolset]
        assert made._parts.models == agent._parts.models
    for name in ("KEY_A", "OPENAI_API_KEY", "TEAM_A"):
        monkeypatch.setenv(name, "another-key")
    loaded, copied = pickle.loads(data), copy.deepcopy(agent)
    found = [[secret for model in each._parts.models.values() for secret in model.secrets] for each in (loaded, copied)]
    assert {*found[0]} == {"another-key"} and found[1] and "another-key" not in found[1]
    with pytest.raises(TypeError, match="made with another value of"):
        pickle.dumps(agent)  # a process that it is sent to would use another key


def chat_model(**more: Any) -> ChatModel:
    return ChatModel(spec="own:m", name="m", endpoint="http://h/v1", **more)


TEXTS: dict[str, Any] = {
    "key": lambda: make_agent().using(model=chat_model(key="SECRET-in-text")),
    "key of a phase": lambda: make_agent().using(models={"act": chat_model(key="SECRET-in-text")}),
    "header": lambda: make_agent().using(model=chat_model(headers={"x-api-key": "SECRET-in-text"})),
    "extra header": lambda: make_agent(settings=plait.ModelSettings(extra_headers={"Authorization": "SECRET"})),
    "another environment": lambda: make_agent().using(model=resolve("openai:m", env={"OPENAI_API_KEY": "SECRET-2"})),
    "embedder": lambda: make_agent(history=plait.History(embedder=load_embedder("openai:m"))),
    "MCP": lambda: make_agent(tools=["mcp:TOKEN=SECRET some-server"]),
}


@pytest.mark.usefixtures("_keys")
@pytest.mark.parametrize("case", TEXTS)
def test_a_key_given_as_text_is_never_pickled(case: str) -> None:
    with pytest.raises(TypeError, match=r"cannot be pickled: it (holds a key|was made)") as refused:
        pickle.dumps(TEXTS[case]())
    assert "SECRET" not in str(refused.value)
    copy.deepcopy(TEXTS[case]())


@pytest.mark.usefixtures("_keys")
def test_a_local_function_is_named_by_the_error() -> None:
    def local_helper(word: str) -> str:
        """Helps."""
        return word

    for given in (local_helper, plait.tool(local_helper)):
        with pytest.raises((AttributeError, pickle.PicklingError), match="local_helper"):
            pickle.dumps(make_agent(tools=[given]))


@pytest.mark.usefixtures("_keys")
def test_an_agent_runs_in_a_process_that_was_spawned(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    agent = make_agent(tools=[look_up, "calculator"])
    assert agent.run("q").answer == "yes"
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        run = pool.submit(run_agent, agent).result(30)
    assert run.answer == "yes" and len(run.timeline.model_calls) == 1
    assert credentials(endpoint) == [("A", "A")] * 2


@pytest.mark.usefixtures("_keys")
@pytest.mark.parametrize("stored", [False, True])
def test_a_run_is_pickled_with_its_record(stored: bool, tmp_path: Path) -> None:
    file = tmp_path / "note.txt"
    file.write_text("A note.")
    journal = tmp_path / "j.db" if stored else False
    child = plait.Agent("tool_calling", model=plait.Scripted(["seen"]))
    script = plait.Scripted([Reply("", calls=(Call("child", {"question": "q"}),)), '{"city": "Lyon", "days": 3}'])
    output = plait.OutputType(Trip, checks=[lambda trip: None])
    agent = plait.Agent("tool_calling", model=script, tools=[child.as_tool("child")], output=output, journal=journal)
    runs = [agent.run(["q", plait.attach(file)]), make_agent().run("q")]
    assert runs[0].output == Trip(city="Lyon", days=3)
    data = [pickle.dumps(run) for run in runs]
    assert not any(secret.encode() in each for each in data for secret in (*KEYS.values(), "team-of-A-secret"))
    for run, each in zip(runs, data, strict=True):
        for made in (pickle.loads(each), copy.deepcopy(run), pickle.loads(pickle.dumps(pickle.loads(each)))):
            assert (made.trace, made.json(), made.messages()) == (run.trace, run.json(), run.messages())
            assert repr(made.events[:-1]) == repr(run.events[:-1]) and made.output == run.output
            assert [one.trace for one in made.children] == [one.trace for one in run.children]
    if stored:
        (tmp_path / "j.db").unlink()
        lost = pickle.loads(pickle.dumps(runs[0]))
        assert lost.answer == runs[0].answer
        with pytest.raises(JournalError):
            _ = lost.trace


@pytest.mark.parametrize(
    "error",
    [
        plait.ToolError("a", hint="b"),
        StaleAnswer("a", run="r", waits=()),
        BadAnswer("a", run="r"),
        ReplayDiffers("a", at=1, expected="b", found="c"),
        RateLimited("a", after=2.0),
        Unsupported("a", "tools"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_are_pickled_with_their_fields(error: Exception) -> None:
    for made in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (type(made), str(made), vars(made)) == (type(error), str(error), vars(error))
