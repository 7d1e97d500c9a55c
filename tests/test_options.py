"""Each declared option of an agent arrives everywhere: command line, plait.toml, head and resume, pages, server."""

from __future__ import annotations

import json
import pickle
import re
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest

import plait
from conftest import for_each
from plait.cli.agent_options import make_agent, make_recorded_agent
from plait.cli.commands import plait as program
from plait.config import agent_types, load
from plait.journal.records import RunHead
from plait.journal.store import Journal
from plait.runtime.agents.agent_fields import OPTIONS, AgentChanges, AgentFields, record_settings
from plait.runtime.agents.options import Option, list_fields
from plait.server.agents import makes_same_requests

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "plait"
PAGE = (ROOT / "docs" / "reference-options.md").read_text("utf-8")
TABLES = "".join(
    (ROOT / "docs" / name).read_text("utf-8") for name in ("python.md", "limits.md", "reference-options.md")
)
WORDS: dict[str, Any] = {
    "loop": "json",
    "set": ["dialect=lines"],
    "model": ["scripted:replies.json"],
    "model_setting": ["seed=5"],
    "tools": ["calculator"],
    "code_limit": ["seconds=5"],
    "hook": ["redact"],
    "spend": ["runs=9"],
    "sandbox": "monty",
    "prompts": "prompts",
    "system": "system.txt",
    "instructions": "Be brief.",
    "context_files": "prompts",
    "schema": "schema.json",
    "embedder": "local-words",
    "journal": "other.db",
    "deps": "collections:Counter",
}
"""A value other than the default for each flag whose type does not give one. Options with numbers, choices and
switches need no line here."""
FILE_VALUES: dict[str, Any] = {
    "set": {"dialect": "lines"},
    "model": "scripted:replies.json",
    "models": {"act": "scripted:replies.json"},
    "model_settings": {"seed": 5},
    "code": {"seconds": 5},
}
OBJECTS: dict[str, Any] = {
    "loop": plait.JsonReAct(),
    "model": "scripted:replies.json",
    "models": {"act": "scripted:replies.json"},
    "tools": ["calculator"],
    "limits": plait.Limits(
        **{each.name: 1 for each in list_fields(plait.Limits) if each.number and each.name != "usd"}
    ),
    "hooks": ["redact"],
    "sandbox": "monty",
    "prompts": "prompts",
    "system": "You are brief.",
    "instructions": "Be brief.",
    "context_files": "prompts",
    "name": "support",
    "output": {"type": "object", "properties": {"city": {"type": "string"}}},
    "history": plait.History(share=0.5, embedder="openai:small"),
}
FLAGS = [each for each in OPTIONS if each.flag]
KEYS = [each for each in OPTIONS if each.file_key]


def name_of(option: Option) -> str:
    return option.flag.partition(" ")[0] or f"{option.within}.{option.name}".strip(".")


def word_for(option: Option) -> Any:
    """A value of an option other than its default, as the command line gives it."""
    if option.switch is not None:
        return True
    if option.choices:
        return next(word for word in option.choices if word != option.default)
    return 1 if option.number else WORDS[option.parameter]


def value_in_file(option: Option) -> Any:
    """The same value as `plait.toml` has it."""
    if option.file_key in FILE_VALUES:
        return FILE_VALUES[option.file_key]
    return option.switch if option.switch is not None else word_for(option)


def as_toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {as_toml(each)}' for key, each in value.items())} }}"
    return json.dumps(value)


def read(agent: Any, option: Option) -> Any:
    held = getattr(agent, option.within) if option.within else agent
    value = getattr(held, option.name)
    return [hook.name for hook in value] if option.name == "hooks" else value


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("plait.runtime.conversations.sessions.load_embedder", lambda word: word)
    for each in ("PLAIT_MODEL", "PLAIT_LOOP", "PLAIT_JOURNAL", "PLAIT_CONFIG"):
        monkeypatch.delenv(each, raising=False)
    Path("prompts/react").mkdir(parents=True)
    Path("prompts/react/question.j2").write_text("{{ question }}")
    Path("system.txt").write_text("You are brief.")
    Path("schema.json").write_text('{"type": "object"}')
    Path("replies.json").write_text('["Final Answer: 42"]')
    return tmp_path


@for_each("option", FLAGS)
def test_an_option_is_on_the_command_line(folder: Path, option: Option) -> None:
    for command in ("run", "chat", "serve", "mcp", "fork"):
        params = {each.name: each for each in program.get_command(None, command).params}  # type: ignore[arg-type, union-attr]
        assert option.parameter in params, command
        assert (option.flag_help or option.help).rstrip(".")[:40] in params[option.parameter].help  # type: ignore[attr-defined]
    loop = {} if option.parameter == "loop" else {"loop": "react"}
    assert read(make_agent({**loop, option.parameter: word_for(option)}), option) != read(make_agent(loop), option)


@for_each("option", KEYS)
def test_an_option_is_in_plait_toml_and_in_the_agents_of_a_server(folder: Path, option: Option) -> None:
    value = value_in_file(option)
    loop = "" if option.file_key == "loop" else 'loop = "react"\n'
    Path("own.toml").write_text(f"[run]\n{loop}{option.file_key} = {as_toml(value)}\n[agents.a]\ndescription = 'x'\n")
    found = load(Path("own.toml"))
    usual = read(make_agent({}, {"loop": "react"}), option)
    for table in (found.run, found.agents["a"]):
        assert table[option.file_key] == value
        made = make_agent({}, table)
        assert read(made, option) != usual
        if option.flag:
            given = make_agent({"loop": table["loop"], option.parameter: word_for(option)}, {})
            assert read(made, option) == read(given, option)


def test_plait_toml_has_no_other_key() -> None:
    run, agent = agent_types()
    assert list(run.__struct_fields__) == [each.file_key for each in KEYS]
    assert {*agent.__struct_fields__} - {*run.__struct_fields__} == {"agent", "description", "thoughts"}


@pytest.mark.parametrize("option", [each for each in list_fields(AgentFields) if each.stored], ids=name_of)
def test_the_head_of_a_run_has_an_option_and_a_resume_keeps_it(folder: Path, option: Option) -> None:
    if option.name in ("settings", "deps"):
        pytest.skip("part of the models' names; only its name is stored")
    value = OBJECTS[option.name] if option.name in OBJECTS else value_in_file(option)
    shared = {"model": "scripted:replies.json", "journal": folder / "runs.db"}
    usual = plait.Agent("react", **shared)
    agent = plait.Agent(**{"loop": "react", **shared, option.name: value})
    run = agent.run("6*7?")
    head = Journal.at(folder / "runs.db").run(run.id).head
    again = make_recorded_agent(head, {}, journal=str(folder / "runs.db"), load_tools=True)
    if option.name in ("prompts", "context_files"):
        assert read(again, option) == str(folder / value)
    elif option.name == "limits":
        assert again.limits == msgspec.structs.replace(agent.limits, tools=None)  # the run had no choice of tools
    elif option.name == "output":
        assert again.output.type == value
    elif option.name != "model":
        assert read(again, option) == read(agent, option) != read(usual, option)
    if option.stored == "settings":
        # An agent with the sandbox "auto" resumes in any other.
        assert makes_same_requests(agent, head) and makes_same_requests(usual, head) is (
            option.name in ("sandbox", "spend")
        )
        assert option.name in head.settings and option.name in record_settings(agent)
    flags = {"model": ["scripted:replies.json"], "max_steps": 7}
    assert make_recorded_agent(head, flags, journal=str(folder / "runs.db"), load_tools=True).limits.steps == 7


@for_each("name", [each.name for each in list_fields(plait.Limits)])
def test_a_resume_keeps_each_limit(folder: Path, name: str) -> None:
    value: Any = plait.CodeLimits(seconds=3) if name == "code" else 1
    settings = record_settings(plait.Agent("react", limits=plait.Limits(**{name: value})))
    head = RunHead("r", "q", {"name": "react", "options": {}}, {"": {"spec": "local"}}, settings=settings)
    again = make_recorded_agent(msgspec.json.decode(msgspec.json.encode(head), type=RunHead), {}, journal=None)
    if name != "tools":  # the head has how many were shown
        assert getattr(again.limits, name) == value
    if name == "code":
        changed = make_recorded_agent(head, {"code_limit": ["memory_mb=99"]}, journal=None)
        assert changed.limits.code == plait.CodeLimits(seconds=3, memory_mb=99)


@for_each("option", OPTIONS)
def test_an_option_is_on_the_reference_pages(option: Option) -> None:
    assert re.search(rf"\n\|( [^|]*\|)? `{option.name}` \|", TABLES)
    if option.flag:
        flag = option.flag.replace("|", "\\|")
        key = f"`{option.file_key}`" if option.file_key else ""
        assert f"\n| `{flag}` | {key} |" in PAGE


@cache
def read_sources() -> dict[Path, str]:
    """Read the modules that use options, without those that declare them."""
    declared = {SOURCE / "runtime" / name for name in ("agent_fields.py", "limits.py", "options.py")}
    return {path: path.read_text("utf-8") for path in SOURCE.rglob("*.py") if path not in declared}


@for_each("option", OPTIONS)
def test_an_option_is_used_and_listed_nowhere_else(option: Option) -> None:
    sources = read_sources()
    assert any(re.search(rf"\.{option.name}\b", text) for text in sources.values()), "declared, but not used"
    flag = option.flag.partition(" ")[0]
    by_hand = {
        path.name
        for path, text in sources.items()
        if flag and re.search(rf'(option|flag|repeatable)\(\s*"{flag}"', text)
    }
    # These flags mean something else there: several models or loops, or a demand on a table or on recorded runs. Of
    # `plait init`, it is the model of the agent that it writes.
    other = {
        "--model": {"compare.py", "classics.py", "init.py", "show.py"},
        "--model-setting": {"compare.py"},
        "--set": {"classics.py"},
    }
    other |= {"--loop": {"classics.py", "show.py"}, "--journal": {"options.py"}}
    other |= {key: {"recommend.py"} for key in ("--max-seconds", "--max-tokens")} | {"--max-cost": {"options.py"}}
    assert by_hand <= other.get(flag, set())


def test_checkers_of_types_know_each_field_that_using_takes() -> None:
    """`AgentChanges` is for them alone: nothing at run time reads it."""
    fields = {name: kind for name, kind in get_type_hints(AgentFields).items() if not name.startswith("_")}
    changes = {**get_type_hints(AgentChanges), "output": fields["output"], "deps": fields["deps"]}
    assert {name: str(kind).replace("~D", "-DepsT") for name, kind in changes.items()} == {
        name: str(kind) for name, kind in fields.items()
    }


def test_the_stored_history_is_that_of_a_pickled_agent() -> None:
    agent = plait.Agent("react", history=plait.History(share=0.5, embedder="".join(("lo", "cal"))), journal=False)
    for each in (agent, pickle.loads(pickle.dumps(agent))):
        assert record_settings(each)["history"] == {"share": 0.5}
