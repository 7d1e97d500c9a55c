"""A limit in USD without a known price ends before anything runs, and the message holds the lines for plait.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

import plait
from cli_support import Shell, final
from conftest import for_each
from plait.core.errors import ConfigError
from plait.journal.store import Journal
from plait.lab import compare
from plait.models.config import ModelConfig
from plait.models.fallback import members_of
from plait.models.prices import Rate
from plait.models.resolve import require_prices, resolve

ENDPOINTS: dict[str, Any] = {"gpu": {"base_url": "https://gpu.example/v1", "model": "big/llama-4"}}


def lines_of(error: str) -> dict[str, Any]:
    """The lines of the message, read as the user's file."""
    found: dict[str, Any] = tomllib.loads(error[error.index("[prices]") :])
    return found


@for_each(
    "spec, names",
    [
        ("openai:nomodel", ["openai:nomodel"]),
        ("openai:nomodel@temperature=0.5", ["openai:nomodel"]),
        ("gpu", ["gpu"]),
        ("gpu:other", ["gpu:other"]),
        ("openai:gpt-4.1-mini|openai:nomodel", ["openai:nomodel"]),
        ("openai:nomodel|gpu", ["openai:nomodel", "gpu"]),
        ('openai:odd"name', ['openai:odd"name']),
    ],
)
def test_the_lines_give_the_model_its_price(spec: str, names: list[str]) -> None:
    config = ModelConfig.from_mapping({"endpoints": ENDPOINTS})
    env = {"OPENAI_API_KEY": "sk-1234567890"}

    def check(config: ModelConfig) -> None:
        require_prices(members_of(resolve(spec, config, env=env)))

    with pytest.raises(ConfigError) as why:
        check(config)
    lines = lines_of(str(why.value))
    assert list(lines["prices"]) == names
    check(ModelConfig.from_mapping({"endpoints": ENDPOINTS, **lines}))


@pytest.mark.parametrize("spec", ["openai:gpt-4.1-mini", "local"])
def test_a_known_price_needs_no_lines(spec: str) -> None:
    require_prices([resolve(spec, ModelConfig(), env={"OPENAI_API_KEY": "sk-1234567890"})])


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    made = Shell(tmp_path_factory.mktemp("prices"))
    made.script([final("42")] * 3)
    made("run", "first", "--model", "scripted:script.json")
    return made


@pytest.mark.parametrize(
    "words",
    [
        ("run", "q"),
        ("chat",),
        ("plan", "q", "--loop", "rewoo"),
        ("compare", "basics:report", "--limit", "1", "--loops", "react"),
        ("serve", "--port", "0"),
        ("mcp",),
        ("fork", "last", "--at", "1"),
    ],
    ids=lambda words: words[0],
)
def test_every_command_says_it_before_it_starts(shell: Shell, words: tuple[str, ...]) -> None:
    flag = {"compare": "--models", "fork": ""}.get(words[0], "--model")
    model = (flag, "scripted:script.json") if flag else ()
    before = len(Journal(shell.env["PLAIT_JOURNAL"]).runs())
    done = shell(*words, *model, "--max-cost", "0.5")
    assert done.code == 2 and done.out == "", done.err
    assert lines_of(done.err) == {"prices": {"scripted:script.json": {"input": 1.0, "output": 10.0}}}
    assert len(Journal(shell.env["PLAIT_JOURNAL"]).runs()) == before


def test_the_run_starts_when_the_lines_are_in_the_file(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    words = ("run", "q", "--model", shell.script([final("42")]), "--max-cost", "0.5")
    (tmp_path / "plait.toml").write_text((err := shell(*words).err)[err.index("[prices]") :])
    assert (done := shell(*words)).code == 0 and done.out == "42\n", done.err


def test_python_raises_before_the_run(tmp_path: Path) -> None:
    limits, model = plait.Limits(usd=1.0), plait.Scripted(["42", "42"])
    agent = plait.Agent("react", model=model, limits=limits, journal=tmp_path / "j.db")
    with pytest.raises(ConfigError, match=r"\[prices\]"):
        agent.run("q")
    assert model.sent == 0 and not (tmp_path / "j.db").exists()
    free = agent.using(limits=plait.Limits())
    run = free.run("q")
    for call in (
        lambda: agent.fork(run.id, 1),
        lambda: compare([{"question": "q", "answer": 1}], models=[model], limits=limits),
    ):
        with pytest.raises(ConfigError, match=r"\[prices\]"):
            call()
    assert agent.replay(run.id).whole, "a replay asks no model and needs no price"


def test_a_run_that_waits_is_not_resumed_without_a_price(tmp_path: Path) -> None:
    @plait.tool
    def send(text: str) -> str:
        "Sends a text."
        return "sent"

    def agent(rate: Rate) -> plait.Agent:
        model = plait.Scripted(['Action: send\nAction Input: {"text": "hi"}', "Final Answer: done"], rate=rate)
        return plait.Agent(
            "react",
            model=model,
            tools=[send],
            approve="effects",
            limits=plait.Limits(usd=1.0),
            journal=tmp_path / "j.db",
        )

    run = agent(Rate("tokens", 1.0, 1.0)).run("Say hi")
    assert run.status == "waiting", run.reason
    with pytest.raises(ConfigError, match=r"\[prices\]"):
        agent(Rate()).resume(run, "yes")
    assert agent(Rate("tokens", 1.0, 1.0)).resume(run, "yes").answer == "done"


def test_a_child_run_without_a_price_is_an_error_of_the_tool(tmp_path: Path) -> None:
    child = plait.Agent("react", model=plait.Scripted(["Final Answer: x"]), limits=plait.Limits(usd=1.0))
    script = ['Action: ask\nAction Input: {"question": "?"}', "Final Answer: no price"]
    parent = plait.Agent("react", model=plait.Scripted(script), tools=[child.as_tool("ask")], journal=tmp_path / "j.db")
    run = parent.run("?")
    assert run.answer == "no price" and "[prices]" in str(run.timeline.results[0][1].text)
