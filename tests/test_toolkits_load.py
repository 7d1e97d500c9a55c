"""Claims about the toolkits as a whole: their words, what importing them costs, what a run's record holds of them."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp import web

import plait
from conftest import for_each
from plait.core.artifacts import Artifact
from plait.core.errors import ConfigError
from plait.core.events import Observed
from plait.journal.export import lines
from plait.journal.store import Journal
from plait.toolkits import Image, discord, images, lookup
from plait.toolkits.chat_history import chat_history
from plait.toolkits.method_search import method_search
from plait.tools import load, toolkit_names, tools_from
from plait.tools.load import FOLDERS, SHIPPED
from toolkits_server import picture, site

NAMES = {
    "date": ["get_current_date"],
    "location": ["get_user_location"],
    "weather": ["get_current_weather", "get_daily_weather_forecast", "search_location_geocoordinates"],
    "wikipedia": ["wikipedia_search", "wikipedia_page"],
    "websearch": ["web_search"],
    "fetch": ["fetch"],
    "stocks": ["get_weekly_stock_price"],
    "tables": ["run_sql_query", "get_table_row"],
    "nasa": ["get_nasa_astronomy_picture_of_the_day"],
    "images": ["download_image", "shrink_image"],
    "discord": ["send_message_discord"],
    "slack": ["get_slack_channel_id", "send_slack_message", "send_slack_image"],
}


@for_each(("word", "names"), NAMES.items())
def test_a_word_loads_its_tools(word: str, names: list[str]) -> None:
    found = load(word)
    assert [tool.name for tool in found] == names
    assert all(tool.source == word and tool.spec.description for tool in found)
    assert word in toolkit_names()
    if word != "fetch":  # it takes hosts
        said = "no choice 'something'" if word == "websearch" else "takes nothing after the colon"
        with pytest.raises(ConfigError, match=said):
            load(f"{word}:something")


def test_one_word_loads_all_that_need_to_be_told_nothing() -> None:
    assert [tool.name for tool in load("all")] == ["calculator", *(name for names in NAMES.values() for name in names)]
    assert len(tools_from(["all", "ask-model:openai:gpt-5"]).specs) == 21


def test_a_model_is_named_behind_the_word_that_asks_it() -> None:
    assert [tool.name for tool in load("ask-model")] == ["ask_model"]
    assert [(tool.name, tool.source) for tool in load("expert=ask-model:openai:gpt-5")] == [
        ("expert", "expert=ask-model:openai:gpt-5")
    ]


def test_only_messages_have_effects() -> None:
    assert [tool.name for tool in load("all") if not tool.read_only] == [
        "send_message_discord",
        "send_slack_message",
        "send_slack_image",
    ]


OUTSIDE = {
    *("lookup", "get_user_location", "get_current_weather", "get_daily_weather_forecast", "fetch", "web_search"),
    *("search_location_geocoordinates", "wikipedia_search", "wikipedia_page", "get_weekly_stock_price", "run_command"),
    *("get_nasa_astronomy_picture_of_the_day", "download_image", "get_slack_channel_id", "list_files", "read_file"),
    *("search_files", "search_docs", "read_doc", "read_skill"),
}
"""They return what is on the web, in files or in the output of commands: strangers may have written it."""
NOT_OUTSIDE = {
    "calculator": "a number",
    "run_python": "what code of the model prints",
    "get_current_date": "the clock of this machine",
    "run_sql_query": "a table of the run: the tool that made it has the mark",
    "get_table_row": "a table of the run",
    "shrink_image": "an image of the run",
    "send_message_discord": "words of Plait",
    "send_slack_message": "words of Plait",
    "send_slack_image": "words of Plait",
    "write_file": "words of Plait",
    "edit_file": "words of Plait",
    "ask_model": "a model that sees what this one wrote",
    "ask_user": "the user",
    "method_search": "descriptions of tools, which have the mark `foreign`",
    "search_notes": "what agents of this user wrote; notes written after such content have the mark",
    "write_note": "words of Plait",
    "forget_note": "words of Plait",
    "write_todos": "words of Plait",
    "chat_history": "earlier turns: a session that read such content has the mark",
}


def test_every_built_in_tool_has_a_decision_whether_strangers_write_its_results(tmp_path: Path) -> None:
    """A new tool fails here until it is in one of the lists."""
    (tmp_path / "facts.json").write_text('{"a": 1}')
    (tmp_path / "facts.md").write_text("# A\n\none")
    (tmp_path / "SKILL.md").write_text("---\nname: a\ndescription: x\n---\none")
    arguments = {"lookup": tmp_path / "facts.json", **dict.fromkeys(FOLDERS, tmp_path)}
    words = [f"{word}:{arguments[word]}" if word in arguments else word for word in SHIPPED]
    words += [f"lookup:{tmp_path}", "world"]
    found = [tool for word in words for tool in load(word)]
    found += [method_search(lambda: None), chat_history(list)]  # type: ignore[arg-type, return-value]
    for tool in found:
        assert (tool.name in OUTSIDE) is not (tool.name in NOT_OUTSIDE), f"decide about {tool.name}"
        assert tool.open_world is (tool.name in OUTSIDE), tool.name
    assert not lookup({"a": 1}).open_world


def test_the_signatures_are_those_that_recorded_runs_call() -> None:
    shapes = {tool.name: str(inspect.signature(tool.function)) for tool in load("all")}
    assert shapes["search_location_geocoordinates"].startswith("(location_name: 'str') -> 'list")
    assert shapes["get_user_location"].startswith("() -> 'dict")
    for name in ("get_current_weather", "get_daily_weather_forecast"):
        assert shapes[name].startswith("(latitude: 'float', longitude: 'float') -> 'dict")
    assert shapes["send_message_discord"].startswith("(msg: 'str', image: 'Image | None' = None)")
    assert shapes["get_slack_channel_id"] == "(channel_name: 'str') -> 'str'"
    assert shapes["send_slack_message"].startswith("(msg: 'str', channel_id: 'str')")
    assert shapes["send_slack_image"].startswith("(img: 'Image', msg: 'str', channel: 'str')")
    assert shapes["get_nasa_astronomy_picture_of_the_day"].startswith("() -> 'dict")
    assert shapes["download_image"] == "(url: 'str') -> 'Image'"
    assert shapes["shrink_image"] == "(image: 'Image', ratio: 'float') -> 'Image'"
    assert shapes["get_weekly_stock_price"] == "(symbol: 'str') -> 'Table'"
    assert shapes["run_sql_query"] == "(table: 'Table', sql: 'str') -> 'Table'"
    assert shapes["get_table_row"].startswith("(table: 'Table', row: 'int') -> 'dict")
    assert shapes["get_current_date"] == "() -> 'str'"


def test_loading_all_of_them_imports_nothing_heavy_and_reads_no_setting() -> None:
    script = (
        "import sys, os\n"
        "class Env(dict):\n"
        "    def get(self, name, *rest):\n"
        "        assert not name.endswith(('_KEY', '_TOKEN', '_URL')), name\n"
        "        return super().get(name, *rest)\n"
        "import plait.tools\n"
        "os.environ = Env(os.environ)\n"
        "plait.tools.load('all'); plait.tools.load('ask-model')\n"
        "print([name for name in ('aiohttp', 'PIL', 'sqlite3', 'numpy', 'plait.models') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (ran.stdout.strip(), ran.stderr) == ("[]", "")


def test_things_are_known_by_their_kind_once_a_toolkit_is_loaded() -> None:
    load("all")
    assert {"image", "table"} <= set(Artifact.kinds)


def test_the_package_gives_what_it_says() -> None:
    import plait.toolkits as toolkits

    for name in toolkits.__all__:
        assert callable(getattr(toolkits, name)), name
        assert not isinstance(getattr(toolkits, name), type(sys)), name
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        toolkits.nonsense  # noqa: B018


# --- in a run

HOOK = "/api/webhooks/42/tHe-SecretTokenOfTheWebhook"


async def test_an_image_goes_through_a_run_and_its_webhook_is_not_on_the_record(journal: Path) -> None:
    refused = web.Response(
        status=400, body=json.dumps({"message": f"bad {HOOK}"}).encode(), content_type="application/json"
    )
    answers = {"/a.png": web.Response(body=picture(60, 40), content_type="image/png"), HOOK: [refused, {"id": "1"}]}
    async with site(answers) as there:
        send = json.dumps({"msg": "Hello from Space!", "image": "image-2"})
        turns = [
            f"Thought: fetch\nAction: download_image\nAction Input: {there.address}/a.png",
            'Thought: shrink\nAction: shrink_image\nAction Input: {"image": "image-1", "ratio": 0.5}',
            f"Thought: send\nAction: send_message_discord\nAction Input: {send}",
            f"Thought: again\nAction: send_message_discord\nAction Input: {send}",
            "Thought: done\nFinal Answer: sent",
        ]
        agent = plait.Agent(
            "react",
            model=plait.Scripted(turns),
            tools=[*images(private=True), *discord(webhook=there.address + HOOK)],
            journal=journal,
        )
        run = await agent.arun("Send the picture at half its size.")
        assert run.answer == "sent", run
        sent = there.seen[-1].parts["files[0]"]
    assert (Image.from_bytes(sent[2]).width, sent[1]) == (30, "image/png")
    written = "\n".join(lines(Journal(journal).run(run.id), Journal(journal).iter_rows(run.id)))
    assert "refuses the request (400): bad /api/webhooks/42/[secret]" in written
    assert "SecretToken" not in written


def test_ask_user_makes_the_run_wait_and_goes_on_with_the_answer(tmp_path: Path) -> None:
    replies = ["Thought: a\nAction: ask_user\nAction Input: Which one?", "Thought: b\nFinal Answer: that one"]
    agent = plait.Agent(
        "react", model=plait.Scripted(replies, by_turn=False), tools=["ask-user"], journal=tmp_path / "j.db"
    )
    waiting = agent.run("Take one.")
    assert (waiting.status, waiting.reason) == ("waiting", "Which one?")
    done = agent.resume(waiting, "the green one")
    assert done.status == "answered"
    assert [e.observation.text for e in done.events if isinstance(e, Observed)] == ["the green one"]
    assert agent.replay(done.id).whole


def test_where_nobody_can_be_asked_the_model_is_told(tmp_path: Path) -> None:
    replies = ["Thought: a\nAction: ask_user\nAction Input: Which one?", "Thought: b\nFinal Answer: none"]
    agent = plait.Agent("react", model=plait.Scripted(replies, by_turn=False), tools=["ask-user"], can_ask=False)
    done = agent.using(journal=tmp_path / "j.db").run("Take one.")
    assert done.status == "answered"
    assert [e.observation.trouble for e in done.events if isinstance(e, Observed)] == ["refused"]
