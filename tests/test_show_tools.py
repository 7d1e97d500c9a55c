"""Of many tools a run shows those that fit the task; the others are found by searching, and called in every loop."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import plait
from cli_support import action, final
from journal_rows import is_request
from plait.core import Call, Reply, Think
from plait.core.errors import ConfigError
from plait.core.events import Observed
from plait.journal.store import Journal
from plait.models.base import Abilities
from plait.runtime.calls.tool_selection import SEARCH, Finder
from plait.runtime.planning import plans
from plait.runtime.run import Run
from plait.search import minilm
from plait.tools import Toolset

CALLED: list[tuple[str, str]] = []


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CALLED.clear()
    monkeypatch.setenv("PLAIT_CACHE", str(tmp_path / "cache"))


def made(name: str, description: str, read_only: bool = True) -> plait.Tool:
    def function(text: str) -> str:
        CALLED.append((name, text))
        return f"{name} did {text}"

    return plait.tool(name=name, description=description, read_only=read_only)(function)


TOOLS = (
    made("post_to_channel", "Sends a message to a channel of the team's chat.", read_only=False),
    made("current_weather", "The weather at a place now."),
    made("shrink_image", "Makes a picture smaller."),
    made("convert_currency", "An amount of money in another currency."),
    made("roll_die", "Rolls a die."),
    made("book_table", "Reserves a table in a restaurant.", read_only=False),
    made("sing_song", "Sings a song."),
    made("tell_time", "The time of day in a city."),
)
TASK = "What is the weather in Oslo now?"
NATIVE = Abilities(tools=True)


def agent(replies: Any, loop: Any = "react", max_tools: int | None = 2, **more: Any) -> plait.Agent:
    abilities = {"abilities": more.pop("abilities")} if "abilities" in more else {}
    model = plait.Scripted(replies, by_turn=isinstance(replies, dict), **abilities)
    more = {"tools": TOOLS, "journal": False, **more}
    return plait.Agent(loop, model=model, limits=plait.Limits(tools=max_tools), **more)


def prompts(run: Run) -> list[str]:
    return [row.body.decode() for row in run.trace if is_request(row.record) and row.body is not None]


def observed(run: Run) -> list[str]:
    return [event.observation.text for event in run.events if isinstance(event, Observed)]


# -- what is shown


def test_only_the_tools_that_fit_the_task_are_shown_and_the_search() -> None:
    run = agent([final("mild")]).run(TASK)
    (prompt,) = prompts(run)
    assert "current_weather" in prompt and "method_search" in prompt
    assert sum(tool.name in prompt for tool in TOOLS) == 2
    assert "shrink_image" not in prompt and "book_table" not in prompt


def test_with_no_more_tools_than_that_all_are_shown_and_no_search() -> None:
    (prompt,) = prompts(agent([final("mild")], max_tools=len(TOOLS)).run(TASK))
    (usual,) = prompts(agent([final("mild")], max_tools=None).run(TASK))
    assert prompt == usual
    assert "method_search" not in prompt


def test_none_shown_leaves_the_search_alone() -> None:
    (prompt,) = prompts(agent([final("mild")], max_tools=0).run(TASK))
    assert "method_search" in prompt
    assert not any(tool.name in prompt for tool in TOOLS)


@pytest.mark.parametrize("number", [-1, 2.5, "12", True])
def test_a_number_that_can_not_be_is_refused(number: Any) -> None:
    with pytest.raises(ConfigError, match="tools="):
        agent([], max_tools=number)


def test_without_the_extra_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(ConfigError) as why:
        agent([final("mild")]).run(TASK)
    assert "[search]" in why.value.hint
    assert agent([final("mild")], max_tools=None).run(TASK).status == "answered"


def test_a_tool_of_the_searchs_name_is_an_error_that_names_both() -> None:
    with pytest.raises(ConfigError, match="Two tools are named method_search"):
        agent([final("x")], tools=(*TOOLS, made("method_search", "Mine."))).run(TASK)


# -- a tool that was found can be called, in every loop

SONG = "sings something"


def native(*calls: tuple[str, str], text: str = "") -> Reply:
    return Reply(text, calls=tuple(Call(name, {_argument(name): given}, f"c{name}") for name, given in calls))


def _argument(name: str) -> str:
    return "description" if name == "method_search" else "text"


def _object(tool: str, given: Any) -> str:
    return json.dumps({"thought": "so", "tool": tool, "tool_input": given})


def _list(*calls: tuple[str, str]) -> str:
    return json.dumps([{"ACTION": name, "ARGS": [given]} for name, given in calls])


LOOPS: list[tuple[Any, list[Any], dict[str, Any]]] = [
    ("react", [action("method_search", SONG), action("SING_SONG", "la"), final("sung")], {}),
    (
        plait.ReAct(dialect="lines", constrain=True),
        [
            f"Thought: a\nAction: method_search\nAction Input: {SONG}",
            "Thought: a\nAction: sing_song\nAction Input: la",
            "Thought: b\nFinal Answer: sung",
        ],
        {},
    ),
    (
        plait.JsonReAct(constrain=True),
        [_object("method_search", SONG), _object("sing_song", "la"), _object("final_answer", "sung")],
        {},
    ),
    (
        "tool_calling",
        [native(("method_search", SONG)), native(("sing_song", "la")), Reply("sung")],
        {"abilities": NATIVE},
    ),
    (
        "tool_calling",
        [
            '{"name": "method_search", "arguments": {"description": "sings something"}}',
            '{"name": "sing_song", "arguments": {"text": "la"}}',
            "sung",
        ],
        {},
    ),
    (
        plait.LLMCompiler(constrain=True),
        [
            f'1. method_search("{SONG}")\n2. join()',
            "Thought: found\nAction: Replan(now sing)",
            '2. sing_song("la")\n3. join()',
            "Thought: done\nAction: Finish(sung)",
        ],
        {},
    ),
    (
        plait.Phased(rounds=2, constrain=True),
        ["search first", _list(("method_search", SONG)), "now sing", _list(("sing_song", "la")), "sung"],
        {},
    ),
]


@pytest.mark.parametrize(("loop", "replies", "more"), LOOPS, ids=lambda each: getattr(each, "name", None))
def test_a_tool_that_was_found_can_be_called(loop: Any, replies: list[Any], more: dict[str, Any]) -> None:
    run = agent(replies, loop, **more).run(TASK)
    assert run.status == "answered", run.outcome
    assert run.answer == "sung"
    assert observed(run)[0].startswith("`sing_song(text: str) -> str`: Sings a song.")
    assert CALLED == [("sing_song", "la")]


def test_a_plan_may_name_a_tool_that_is_not_shown() -> None:
    run = agent({"plan": ["Plan: sing.\n#E1 = sing_song[la]"], "solve": ["sung"]}, "rewoo").run(TASK)
    assert run.answer == "sung"
    assert CALLED == [("sing_song", "la")]


def test_tool_calling_offers_a_found_tool_from_then_on() -> None:
    offers: list[list[str]] = []

    def reply(number: int, then: Reply) -> Any:
        def say(think: Think) -> Reply:
            offers.append([tool.name for tool in think.tools])
            return then

        return say

    replies = [native(("method_search", SONG)), native(("sing_song", "la")), Reply("sung")]
    run = agent([reply(*each) for each in enumerate(replies)], "tool_calling", abilities=NATIVE).run(TASK)
    assert run.answer == "sung"
    assert "sing_song" not in offers[0] and "current_weather" in offers[0] and "method_search" in offers[0]
    assert offers[1][:3] == offers[0]
    assert "sing_song" in offers[1] and offers[2] == offers[1]
    # What was found stays: three tools, of which two were new.
    assert len(offers[1]) <= len(offers[0]) + 3


def test_a_grammar_lets_a_found_tool_be_called_only_once_it_is_found() -> None:
    grammars: list[str] = []

    def note(then: str) -> Any:
        def say(think: Think) -> str:
            grammars.append(think.grammar or "")
            return then

        return say

    replies = [action("method_search", SONG), final("x")]
    agent([note(each) for each in replies], plait.ReAct(constrain=True)).run(TASK)
    assert "sing_song" not in grammars[0] and "sing_song" in grammars[1]


# -- the choice is part of the record


async def test_a_run_goes_on_and_is_replayed_and_forked_without_another_search(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @plait.tool
    def ask_boss(text: str) -> str:
        """Asks about the weather."""
        CALLED.append(("ask_boss", text))
        return "fine"

    tools = (*TOOLS, ask_boss)
    replies = [action("method_search", SONG), action("post_to_channel", "hi"), final("sent")]
    first = agent(replies, tools=tools, journal=journal, approve="effects")
    waiting = await first.arun("Send hello to the team's channel")
    assert waiting.status == "waiting"
    head = Journal.at(journal).run(waiting.id).head
    assert head.settings["max_tools"] == 2 and "post_to_channel" in head.settings["shown"]
    assert head.sources[-1] == SEARCH and len(head.tools) == len(tools) + 1

    def nothing(*_: Any) -> Any:
        raise AssertionError("searched again")

    monkeypatch.setattr(minilm.LocalEmbedder, "embed", nothing)
    monkeypatch.setattr("plait.search.index.Index.search", nothing)
    again = plait.Agent(
        model=plait.Scripted(replies, by_turn=True),
        tools=tools,
        journal=journal,
        approve="effects",
        limits=plait.Limits(tools=2),
    )
    ended = await again.aresume(waiting, "yes")
    assert ended.answer == "sent" and CALLED == [("post_to_channel", "hi")]
    replayed = await asyncio.to_thread(again.replay, waiting.id)
    assert replayed.whole and replayed.requests == 3
    # An agent that shows another number goes by the record all the same.
    assert (await asyncio.to_thread(again.using(limits=plait.Limits()).replay, waiting.id)).whole
    forked = await again.afork(waiting.id, 3)
    assert forked.answer == "sent"
    assert Journal.at(journal).run(forked.id).head.settings["shown"] == head.settings["shown"]


def test_a_session_keeps_its_own_tool_beside_the_search(journal: Path) -> None:
    first = agent([final("mild"), final("mild again")], journal=journal)
    first.run(TASK, session="trip")
    first = first.using(history=plait.History(share=0))
    run = first.run("And what is the weather in Rome?", session="trip")
    assert "chat_history" in prompts(run)[0] and "method_search" in prompts(run)[0]
    assert first.replay(run.id).whole
    head = Journal.at(journal).run(run.id).head
    assert [source for source in head.sources if source] == [SEARCH, "(session)"]
    context = plans.kit_of(head)
    assert context.search == "method_search"
    assert [tool.name for tool in context.tools][-2:] == ["method_search", "chat_history"]
    assert len(context.tools) + len(context.others) == len(TOOLS) + 2


def test_a_recorded_run_of_words_is_made_again_with_its_choice(journal: Path, tmp_path: Path) -> None:
    file = tmp_path / "numbered_tools.py"
    form = "@plait.tool(read_only=True)\ndef {}(text: str) -> str:\n    {!r}\n    return text\n"
    file.write_text("import plait\n" + "".join(form.format(tool.name, tool.description) for tool in TOOLS))
    run = agent([final("mild")], tools=(str(file),), journal=journal).run(TASK)
    head = Journal.at(journal).run(run.id).head
    again = plait.Agent.from_journal(head, journal=journal, load_tools=True, model=plait.Scripted([final("mild")]))
    assert again.limits.tools == 2 and again.tools == (str(file),)
    assert again.replay(run.id).whole


# -- a name that no tool has


def test_an_unknown_name_is_answered_with_the_nearest_and_what_the_search_finds() -> None:
    run = agent([action("weather_now", "Oslo"), final("x")]).run(TASK)
    (said,) = observed(run)
    assert said.startswith("There is no tool named 'weather_now'. ")
    assert "The tools that fit this name best:\n`" in said
    assert "`current_weather(text: str) -> str`: The weather at a place now." in said


def test_a_tool_found_by_an_unknown_name_is_offered_natively() -> None:
    offers: list[list[str]] = []

    def say(think: Think) -> Reply:
        offers.append([tool.name for tool in think.tools])
        return native(("singing_a_song", "la")) if len(offers) == 1 else Reply("x")

    agent([say, say], "tool_calling", abilities=NATIVE).run(TASK)
    assert "sing_song" not in offers[0] and "sing_song" in offers[1]


def test_without_an_index_an_unknown_name_is_answered_as_before() -> None:
    run = agent([action("curent_weather", "Oslo"), final("x")], max_tools=None).run(TASK)
    (said,) = observed(run)
    assert said.startswith("There is no tool named 'curent_weather'. Did you mean current_weather?")
    assert "fit this name" not in said


def test_an_embedder_that_fails_costs_no_run_where_a_name_is_unknown() -> None:
    def broken(texts: Any) -> Any:
        raise ValueError("out of order")

    tools = [plait.tool(name=name)(lambda: "") for name in ("weather_now", "send_mail")]
    finder = Finder(Toolset(tuple(tools)), broken)
    assert "weather_now" in finder.near("weather", ("weather_now",))


def test_a_plan_with_an_unknown_tool_is_told_few_names_and_what_the_search_finds() -> None:
    many = tuple(made(f"tool_{at}", f"Does {at}.") for at in range(40))
    asked: list[str] = []

    def again(think: Think) -> str:
        asked.append(think.messages[-1].content)
        return "Plan: go.\n#E1 = current_weather[Oslo]"

    script = {"plan": ["Plan: go.\n#E1 = current_weathr[Oslo]", again], "solve": ["mild"]}
    run = agent(script, "rewoo", tools=(*many, *TOOLS)).run(TASK)
    assert run.answer == "mild", run.outcome
    (complaint,) = asked
    assert "uses 'current_weathr', which is no tool. Did you mean current_weather?" in complaint
    assert "\n`current_weather(text: str) -> str`: The weather at a place now." in complaint
    assert complaint.count("tool_") < 6


def test_the_search_that_fails_is_an_observation(monkeypatch: pytest.MonkeyPatch) -> None:
    used = agent([action("method_search", SONG), action("nothing_such", "x"), final("x")], max_tools=0)
    monkeypatch.setattr(minilm, "find_weights", lambda: _raise())
    run = used.run(TASK)
    assert run.status == "answered"
    assert "not installed" in observed(run)[0] and observed(run)[1].startswith("There is no tool named")


def _raise() -> Path:
    raise ConfigError("The local embedder's weights are not installed.", hint="Install them.")
