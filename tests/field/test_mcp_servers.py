"""MCP servers as people met them. README.md names the thread of each test."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from endpoint_runs import WARM, Ran, run_agent

import plait
from mcp_http import CITY, RawServer, rpc
from models_server import Asked, delta, event
from plait.core.errors import ConfigError

DONE = event(b"[DONE]")
NAME = "the_name_of_a_tool_that_a_server_made_of_its_module_class_and_method"
NODE = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
DEFINED = {
    "type": "object",
    "properties": {"f": {"$ref": "#/$defs/Filter"}, "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
    "$defs": {"Filter": {"type": "string", "enum": ["fit", "raw"]}, "Node": NODE},
    "additionalProperties": False,
}
PEOPLE = {"type": "array", "items": {"type": "object", "properties": {"address": {"type": "string"}}}}
POINTING = {
    "type": "object",
    "properties": {
        "body": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"to": PEOPLE}}]},
        "cc": {"type": "array", "items": {"$ref": "#/properties/body/anyOf/1/properties/to/items"}},
    },
}
BARE = {
    "type": "object",
    "properties": {
        "a": {"type": "array"},
        "b": {"type": "object", "properties": {"c": {"type": ["array", "null"]}}},
        "d": {"anyOf": [{"type": "array"}, {"type": "null"}]},
        "e": {"type": "array", "items": {"type": "array"}},
    },
}


def listed(name: str, schema: dict[str, Any] | None = None, about: str = "Does it.") -> dict[str, Any]:
    return {"name": name, "description": about, "inputSchema": schema or {"type": "object"}}


TOOLS = [
    listed("search-a", CITY),
    listed("search_a", CITY),
    listed("高德地图", CITY, "查询地图"),
    listed("天气预报", CITY, "查询天气"),
    listed(NAME, CITY),
    listed("no_properties"),
    listed("arrays", BARE),
    listed("defined", DEFINED),
    listed("pointing", POINTING),
]


class Shop:
    """A server with odd tools, a run that calls all that take a city, and what the model was shown."""

    def __init__(self, made: Ran, called: list[str]) -> None:
        self.made, self.called = made, called
        self.shown = {each["name"]: each for each in (tool["function"] for tool in made.bodies[0]["tools"])}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    called: list[str] = []

    def answer(message: dict[str, Any]) -> Any:
        if message["method"] != "tools/call":
            return None
        called.append(message["params"]["name"])
        content = [{"type": "text", "text": "done"}]
        return 200, {}, rpc(message, result={"content": content, "structuredContent": {"予報": "明日は雨😀"}})

    async def call_each(asked: Asked) -> None:
        shown = [tool["function"] for tool in asked.body["tools"]]
        chosen = [tool["name"] for tool in shown if tool["parameters"].get("required") == ["city"]]
        given = json.dumps({"city": "大阪"})
        calls = [
            {"index": number, "id": f"c{number}", "function": {"name": name, "arguments": given}}
            for number, name in enumerate(chosen)
        ]
        await asked.stream(delta(tool_calls=calls, finish="tool_calls") + DONE)

    with RawServer(answer) as server:
        server.tools = TOOLS
        journal = tmp_path_factory.mktemp("shop") / "runs.db"
        yield Shop(run_agent([], [f"mcp:{server.url}"], call_each, WARM, journal=journal), called)


def arrays_in(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if "array" in schema.get("type", ""):
            yield schema
        schema = list(schema.values())
    for each in schema if isinstance(schema, list) else ():
        yield from arrays_in(each)


def references_in(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"]
        schema = list(schema.values())
    for each in schema if isinstance(schema, list) else ():
        yield from references_in(each)


def test_names_that_become_equal_stay_apart_and_each_tool_is_reached(shop: Shop) -> None:
    assert shop.made.status == "answered"
    assert sorted(shop.called) == sorted(["search-a", "search_a", "高德地图", "天气预报", NAME])


def test_a_chinese_name_is_sent_in_ascii_and_the_model_still_reads_it(shop: Shop) -> None:
    assert all(name.isascii() and len(name) <= 64 for name in shop.shown)
    abouts = [each["description"] for each in shop.shown.values()]
    assert "高德地图: 查询地图" in abouts and "天气预报: 查询天气" in abouts


def test_a_name_longer_than_64_characters_is_shortened_and_reaches_its_tool(shop: Shop) -> None:
    assert len(NAME) > 64 and NAME in shop.called and NAME not in shop.shown


def test_objects_have_properties_and_arrays_have_items(shop: Shop) -> None:
    assert shop.shown["no_properties"]["parameters"] == {"type": "object", "properties": {}}
    found = [each for tool in shop.shown.values() for each in arrays_in(tool["parameters"])]
    assert len(found) >= 6 and all("items" in each for each in found)


def test_definitions_go_with_the_references_to_them(shop: Shop) -> None:
    shown = shop.shown["defined"]["parameters"]
    assert shown["properties"]["f"]["enum"] == ["fit", "raw"]
    assert shown["$defs"]["Node"] == NODE and shown["additionalProperties"] is False


@pytest.mark.parametrize("name", ["defined", "pointing"])
def test_each_reference_that_a_model_is_shown_leads_to_a_schema(shop: Shop, name: str) -> None:
    schema = shop.shown[name]["parameters"]
    found = list(references_in(schema))
    assert found
    for reference in found:
        at: Any = schema
        for part in reference.removeprefix("#/").split("/"):
            at = at[int(part)] if isinstance(at, list) else at[part]
        assert at["type"] == "object"


def test_chinese_and_japanese_are_sent_as_written(shop: Shop) -> None:
    first, second = (asked.raw.decode() for asked in shop.made.requests)
    assert "\\u" not in first and "\\u" not in second.replace("\\u2028", "")
    assert "查询地图" in first and "明日は雨😀" in second and "大阪" in second


def test_the_run_with_all_these_replays(shop: Shop) -> None:
    assert shop.made.replays()


# Servers over stdio

NOISY = """
import json, sys
def say(text): print(text, flush=True)
say("✅ Weather MCP Server started successfully over stdio.")
say("[09/15/25 00:30:17] INFO     commands.run: Starting server 'weather'")
say("┌──────────────┐")
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    say("Processing request of type " + asked["method"])
    say("")
    say("{'method': 'debug'}")
    reply = {"jsonrpc": "2.0", "id": asked["id"]}
    if asked["method"] == "initialize":
        version = asked["params"]["protocolVersion"]
        reply["result"] = {"protocolVersion": version, "capabilities": {}, "serverInfo": {"name": "w", "version": "1"}}
    elif asked["method"] == "tools/list":
        schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
        reply["result"] = {"tools": [{"name": "weather", "description": "Tells.", "inputSchema": schema}]}
    elif asked["method"] != "tools/call":
        reply["error"] = {"code": -32601, "message": "Method not found"}
    else:
        text = asked["params"]["arguments"]["city"] + ": 21"
        reply["result"] = {"content": [{"type": "text", "text": text}]}
    say(json.dumps(reply))
"""


def test_logs_on_a_servers_stdout_are_skipped(tmp_path: Path) -> None:
    script = tmp_path / "noisy.py"
    script.write_text(NOISY)
    command = shlex.join([sys.executable, "-S", "-E", "-X", "utf8", str(script)])
    call = {"index": 0, "id": "a", "function": {"name": "weather", "arguments": '{"city": "Lyon"}'}}
    made = run_agent([], [f"mcp:{command}"], delta(tool_calls=[call], finish="tool_calls") + DONE, WARM)
    assert made.answer == "21 degrees." and '"Lyon: 21"' in made.requests[1].raw.decode()


def test_a_server_that_cannot_start_is_named_before_the_model_is_asked(tmp_path: Path) -> None:
    gone = shlex.join([sys.executable, "-S", str(tmp_path / "gone.py")])
    with RawServer() as server:
        model = plait.Scripted(["never asked"])
        agent = plait.Agent("react", model=model, tools=[f"mcp:{server.url}", f"mcp:{gone}"])
        with pytest.raises(ConfigError, match=r"gone\.py"):
            agent.run("?")
        assert server.calls == []
        assert plait.Agent("react", model=model, tools=[f"mcp:{server.url}"]).run("?").steps == 1
