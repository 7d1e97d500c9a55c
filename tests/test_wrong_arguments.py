"""A wrong argument is a `ConfigError` where it is given: it names the field, and says what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import plait
from conftest import for_each


@plait.tool
def known(city: str) -> str:
    """A tool."""
    return city


AGENT: list[tuple[str, Any]] = [
    ("loop", None),
    ("loop", 3),
    ("loop", ""),
    ("loop", "reakt"),
    ("loop", plait.ReAct),
    ("loop", object()),
    ("model", None),
    ("model", 3),
    ("model", ""),
    ("model", "gpt-5"),
    ("model", "openai:"),
    ("model", "nobody:m"),
    ("model", plait.Scripted),
    ("models", None),
    ("models", ["local"]),
    ("models", {"nobody": "local"}),
    ("models", {3: "local"}),
    ("models", {"act": None}),
    ("models", {"act": "nobody:m"}),
    ("settings", None),
    ("settings", {"effort": "low"}),
    ("settings", {"nobody": plait.ModelSettings()}),
    ("settings", plait.ModelSettings(seed="x")),  # type: ignore[arg-type]
    ("tools", None),
    ("tools", 3),
    ("tools", "calculator"),
    ("tools", known),
    ("tools", [lambda x: x]),
    ("tools", [3]),
    ("tools", [None, "calculator"]),
    ("tools", [known, known]),
    ("tools", ["calculater"]),
    ("tools", [""]),
    ("tools", ["absent.py"]),
    ("tools", [plait.Agent(journal=False)]),
    ("limits", None),
    ("limits", {}),
    ("limits", {"steps": 3}),
    ("prompts", 3),
    ("prompts", ""),
    ("prompts", "absent-folder"),
    ("system", 3),
    ("system", b"bytes"),
    ("journal", True),
    ("journal", 3),
    ("journal", ""),
    ("approve", None),
    ("approve", "sometimes"),
    ("approve", ["effects"]),
    ("approve", "plan"),
    ("on_interrupted_call", "maybe"),
    ("can_ask", "no"),
    ("can_ask", None),
    ("history", None),
    ("history", 6),
    ("claims", "strict"),
    ("context_files", 5),
    ("grounding", "strict"),
    ("grounding", None),
    ("taint", "refuse"),
    ("taint", None),
    ("hooks", "redact"),
    ("hooks", [print]),
    ("output", 3),
    ("instructions", 3),
    ("deps", 3),
    ("make_deps", 3),
    ("name", None),
    ("spend", 3),
    ("sandbox", "docker"),
    ("sandbox", None),
    ("sandbox", 3),
]


@for_each(("field", "value"), AGENT)
def test_a_wrong_field_of_an_agent_is_reported_when_it_is_made(field: str, value: Any) -> None:
    with pytest.raises(plait.ConfigError) as error:
        plait.Agent(**{"journal": False, field: value})
    assert error.value.hint, "it says what to do"
    assert type(error.value) is plait.ConfigError and len(str(error.value)) > 30


def test_every_field_of_an_agent_is_in_the_table() -> None:
    assert {field for field, _ in AGENT} == {name for name in plait.Agent.__dataclass_fields__ if name[0] != "_"}


def test_an_agent_has_at_most_25_fields() -> None:
    assert len([name for name in plait.Agent.__dataclass_fields__ if name[0] != "_"]) <= 25


NUMBERS = (-1, "3", True, float("nan"), float("inf"), [1])


@for_each("name", [name for name in plait.Limits.__struct_fields__ if name != "code"])
@for_each("value", NUMBERS)
def test_a_wrong_limit_is_reported(name: str, value: Any) -> None:
    with pytest.raises(plait.ConfigError, match=rf"Limits\({name}=.* is invalid\. Give "):
        plait.Limits(**{name: value})


@pytest.mark.parametrize("name", ["steps", "calls", "seconds"])
def test_a_limit_that_allows_nothing_is_reported(name: str) -> None:
    with pytest.raises(plait.ConfigError, match=rf"Limits\({name}=0\) is invalid\. Give .* above 0, or None"):
        plait.Limits(**{name: 0})


@for_each(
    "make",
    [
        lambda: plait.Limits(code=None),  # type: ignore[arg-type]
        lambda: plait.Limits(code={"seconds": 1}),  # type: ignore[arg-type]
        lambda: plait.Limits(steps=1.5),  # type: ignore[arg-type]
        lambda: plait.Limits(tool_seconds=None),  # type: ignore[arg-type]
        lambda: plait.CodeLimits(seconds=0),
        lambda: plait.CodeLimits(tool_calls=None),  # type: ignore[arg-type]
        lambda: plait.History(share=-1),
        lambda: plait.History(share=1.5),
        lambda: plait.History(share="0.5"),  # type: ignore[arg-type]
        lambda: plait.History(share=True),
        lambda: plait.History(embedder=""),
        lambda: plait.History(embedder=None),  # type: ignore[arg-type]
        lambda: plait.ReAct(dialect="xx"),  # type: ignore[arg-type]
        lambda: plait.ReAct(max_parse_errors=-1),
        lambda: plait.ReAct(max_tokens="many"),  # type: ignore[arg-type]
        lambda: plait.ReAct(constrain=3),  # type: ignore[arg-type]
        lambda: plait.JsonReAct(transcript="book"),  # type: ignore[arg-type]
        lambda: plait.ToolCalling(fallback="reakt"),
        lambda: plait.ToolCalling(fallback=None),  # type: ignore[arg-type]
        lambda: plait.Phased(rounds=None),  # type: ignore[arg-type]
        lambda: plait.ReWOO(on_failure="retry"),  # type: ignore[arg-type]
        lambda: plait.ReWOO(plan="E1"),  # type: ignore[arg-type]
        lambda: plait.LLMCompiler(replans=-2),
        lambda: plait.CodeAct(max_lines="60"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_option_is_reported_when_the_value_is_made(make: Callable[[], object]) -> None:
    with pytest.raises(plait.ConfigError) as error:
        make()
    assert error.value.hint


def test_wrong_prompts_are_reported_when_the_agent_is_made(tmp_path: Path) -> None:
    (tmp_path / "react").mkdir()
    for text, said in (("{% if %}", "no valid template"), ("{{ quesiton }}", "'quesiton'")):
        (tmp_path / "react" / "question.j2").write_text(text)
        with pytest.raises(plait.ConfigError, match=said):
            plait.Agent(prompts=tmp_path, journal=False)
    (tmp_path / "react" / "question.j2").write_text("{% for each in tools %}{{ each.name }}{% endfor %}{{ question }}")
    assert plait.Agent(prompts=tmp_path, journal=False).prompts == tmp_path


@pytest.mark.parametrize(
    "words",
    [
        {"question": ""},
        {"question": None},
        {"question": 3},
        {"question": "?", "session": ""},
        {"question": "?", "session": 3},
        {"question": "?", "session": "a\nb"},
        {"question": "?", "now": "today"},
    ],
    ids=str,
)
def test_a_wrong_argument_of_a_run_is_reported(words: dict[str, Any], tmp_path: Path) -> None:
    agent = plait.Agent(model=plait.Scripted(["Final Answer: x"]), journal=tmp_path / "j.db")
    with pytest.raises(plait.ConfigError):
        agent.run(**words)


def test_using_names_the_fields_that_there_are() -> None:
    with pytest.raises(plait.ConfigError, match=r"'max_tools'.*history"):
        plait.Agent(journal=False).using(max_tools=3)


def test_equal_limits_are_written_alike() -> None:
    assert msgspec.json.encode(plait.Limits(code=plait.CodeLimits())) == msgspec.json.encode(plait.Limits()) == b"{}"
