"""A replay sees every change that changes a request, and needs only the record: no program, tools, models or keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pydantic import BaseModel

import plait
from chat_endpoint import Endpoint
from plait.cli.commands import plait as command
from plait.core import Call, Reply
from plait.models.scripted import ABILITIES


class Trip(BaseModel):
    city: str
    days: int


@plait.tool(read_only=True)
def look_up(word: str) -> str:
    """Looks up a word."""
    return f"{word}: found"


@plait.tool
def send(to: str, amount: float = 1.0) -> str:
    """Sends an amount."""
    return "sent"


def reworded() -> plait.tools.Tool:
    @plait.tool(name="look_up", read_only=True, description="Finds a word.")
    def find(word: str) -> str:
        return word

    return find


def act(tool: str, **input: Any) -> Reply:
    return Reply("", calls=(Call(tool, input),))


SCRIPTS: dict[str, list[Any]] = {
    "react": ['Thought: a\nAction: look_up\nAction Input: {"word": "b"}', "Final Answer: b"],
    "json": ['{"thought": "t", "tool": "look_up", "tool_input": "c"}', '{"answer": "b"}'],
    "tool_calling": [act("look_up", word="a"), "done"],
    "codeact": ["THOUGHT 1:\nx\nACTION 1:\n```python\nstop(look_up('S'))\n```"],
    "phased": ["a", "[]", "b"],
    "rewoo": ["Plan: look\n#E1 = look_up[a]", "the end"],
    "compiler": ['Thought: t\n1. look_up("a")\n2. join()', "Thought: x\nFinish: b"],
}


def make_agent(journal: Path, loop: str = "tool_calling", **more: Any) -> plait.Agent:
    model = plait.Scripted(SCRIPTS[loop])
    return plait.Agent(
        loop, **{"model": model, "tools": [look_up, send], "journal": journal, "instructions": "Be kind.", **more}
    )


# --- what a replay sees


CHANGES: dict[str, dict[str, Any]] = {
    "instructions": {"instructions": "Be rude."},
    "no instructions": {"instructions": ""},
    "system": {"system": "You are rude."},
    "a tool's description": {"tools": [reworded(), send]},
    "order of tools": {"tools": [send, look_up]},
    "a tool less": {"tools": [look_up]},
    "another tool": {"tools": [look_up, send, "calculator"]},
    "output": {"output": Trip},
    "abilities": {"model": plait.Scripted([], abilities=ABILITIES.without("stream"))},
    "name of the model": {"model": plait.Scripted([], name="other")},
    "characters of a result": {"limits": plait.Limits(observation_chars=1)},
    "loop": {"loop": "react"},
}
SAME: dict[str, dict[str, Any]] = {
    "nothing": {},
    "function of the same text": {"instructions": lambda: "Be kind."},
    "approvals": {"approve": "effects"},
    "doubts": {"on_interrupted_call": "repeat"},
}


@pytest.mark.parametrize("change", [*CHANGES, *SAME])
def test_a_replay_sees_what_changes_a_request(change: str, journal: Path) -> None:
    agent = make_agent(journal)
    run = agent.run("q")
    changed = agent.using(**{**CHANGES, **SAME}[change])
    if change in SAME:
        assert changed.replay(run).whole
        return
    with pytest.raises(plait.ReplayDiffers):
        changed.replay(run)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("loop", SCRIPTS)
def test_every_loop_shows_changed_instructions_and_prompts(loop: str, journal: Path, tmp_path: Path) -> None:
    agent = make_agent(journal, loop)
    run = agent.run("q")
    name = {"phased": "identity"}.get(loop, "system")
    (tmp_path / "mine" / loop).mkdir(parents=True)
    (tmp_path / "mine" / loop / f"{name}.txt").write_text("Another prompt.")
    assert agent.replay(run).requests
    for change in ({"instructions": "Be rude."}, {"prompts": tmp_path / "mine"}, {"system": "Be rude."}):
        with pytest.raises(plait.ReplayDiffers):
            agent.using(**change).replay(run)


def test_a_replay_sees_a_changed_history(journal: Path) -> None:
    agent = make_agent(journal, model=plait.Scripted(["one", "two", "three"] * 9, by_turn=False))
    earlier = [{"role": role, "content": text * 20} for text in "abc" for role in ("user", "assistant")]
    runs = [agent.run(text, session="s") for text in ("1", "2", "3")] + [agent.run("4", history=earlier)]
    for limits, differing in ((plait.History(share=0.00004), runs[2:]), (plait.History(share=0), runs[1:])):
        for run in runs:
            assert agent.replay(run).whole
            changed = agent.using(history=limits)
            if run in differing:
                with pytest.raises(plait.ReplayDiffers):
                    changed.replay(run)
            else:
                assert changed.replay(run).whole


CONFIG = """[endpoints.house]
base_url = "{url}"
key_env = "KEY_HOUSE"
params = {{ top_k = 5 }}
abilities = {{ stream = false, schema = false }}
[settings."house:m"]
seed = 3
"""
CONFIG_CHANGES = [
    ("seed = 3", "seed = 4", False),
    ("top_k = 5", "top_k = 6", False),
    ("stream = false", "stream = true", False),
    ("abilities = {{ stream = false, schema = false }}\n", "", False),
    ("KEY_HOUSE", "KEY_THAT_IS_NOT_SET", True),
    ('"KEY_HOUSE"\n', '"KEY_HOUSE"\nprice = {{ input = 1, output = 2 }}\n', True),
]


@pytest.mark.parametrize(("old", "new", "same"), CONFIG_CHANGES)
def test_a_replay_sees_a_changed_configuration(
    old: str, new: str, same: bool, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_HOUSE", "sk-house-1234567")
    file = tmp_path / "house.toml"
    monkeypatch.setenv("PLAIT_CONFIG", str(file))
    with Endpoint("yes") as endpoint:
        file.write_text(CONFIG.format(url=endpoint.url))
        agent = make_agent(journal, model="house:m", tools=[])
        run = agent.run("q")
    changed = CONFIG.replace(old, new)
    assert changed != CONFIG
    file.write_text(changed.format(url=endpoint.url))
    later = make_agent(journal, model="house:m", tools=[])
    monkeypatch.delenv("KEY_HOUSE")
    assert agent.replay(run).whole  # it keeps its configuration
    if same:
        assert later.replay(run).whole  # a replay needs no key
    else:
        with pytest.raises(plait.ReplayDiffers):
            later.replay(run)


# --- what a replay needs


def run_http(journal: Path, **more: Any) -> plait.Run:
    with Endpoint("yes") as endpoint:
        model = endpoint.model(key="sk-house-1234567", params={"top_k": 5}, **more)
        return make_agent(journal, model=model, settings=plait.ModelSettings(temperature=0.5)).run("q")


def run_fallback(journal: Path) -> plait.Run:
    with Endpoint("yes", refused=("m",)) as endpoint:
        first, second = (endpoint.model(spec=f"fake:{name}", name=name, key="sk-house-1234567") for name in "mn")
        return make_agent(journal, model=plait.models.fallback.join_models((first, second))).run("q")


def run_session(journal: Path) -> plait.Run:
    agent = make_agent(journal, model=plait.Scripted(["one", "two"]))
    return [agent.run(text, session="s") for text in ("1", "2")][-1]


def run_child(journal: Path) -> plait.Run:
    child = make_agent(journal).as_tool("child", "Helps.")
    return make_agent(journal, model=plait.Scripted([act("child", question="q"), "done"]), tools=[child]).run("q")


def run_file(journal: Path) -> plait.Run:
    file = journal.with_suffix(".txt")
    file.write_text("A note.")
    run = make_agent(journal).run(["q", plait.attach(file)])
    file.unlink()
    return run


WAYS: dict[str, Callable[[Path], plait.Run]] = {
    **{loop: lambda journal, loop=loop: make_agent(journal, loop).run("q") for loop in SCRIPTS},  # type: ignore[misc]
    "http": run_http,
    "fallback": run_fallback,
    "session": run_session,
    "child": run_child,
    "file": run_file,
    "words": lambda journal: make_agent(journal, tools=["calculator", look_up]).run("q"),
    "few tools": lambda journal: make_agent(journal, limits=plait.Limits(tools=1)).run("q"),
    "wrong calls": lambda journal: make_agent(
        journal, model=plait.Scripted([act("look_up", x=1), act("none"), act("send", to="x", amount="12"), "done"])
    ).run("q"),
    "waiting": lambda journal: make_agent(
        journal, model=plait.Scripted([act("send", to="x"), "done"]), approve="effects"
    ).run("q"),
    "typed": lambda journal: make_agent(
        journal, model=plait.Scripted(['{"city": "Lyon", "days": 3}']), output=Trip
    ).run("q"),
    "function of instructions": lambda journal: make_agent(journal, instructions=lambda: "Be brief.").run("q"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_replay_needs_only_the_journal(
    way: str, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = WAYS[way](journal)
    monkeypatch.chdir(tmp_path)
    for default, more in ((journal, []), (tmp_path / "other.db", ["--journal", str(journal)]), (journal, ["--tree"])):
        monkeypatch.setenv("PLAIT_JOURNAL", str(default))
        done = CliRunner().invoke(command, ["replay", run.id, *more])
        assert done.exit_code == 0 and "is the same, byte for byte" in done.output, done.output


def test_a_replay_works_in_a_folder_that_is_not_trusted(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_agent(journal).run("q")
    (tmp_path / "plait.toml").write_text('[endpoints.x]\nbase_url = "https://example.com/v1"\nkey_env = "KEY"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("plait.config._reads_folder", True)
    done = CliRunner().invoke(command, ["replay", run.id, "--journal", str(journal)])
    assert done.exit_code == 0, done.output
