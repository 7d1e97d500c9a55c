"""One odd field, block, status or session of an MCP server costs that part only, and a call is never made twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import plait
from conftest import for_each
from journal_rows import is_result
from mcp_http import CITY, WEATHER, RawServer, Reply, rpc, text_result
from mcp_support import ODD, command
from mcp_talker import act, done
from plait import Agent, ConfigError, Scripted, Tool
from plait.core.errors import CallLost, ToolError
from plait.tools.mcp import connection, replies
from plait.tools.mcp.results import read_result
from plait.tools.mcp.server import TOOL_LISTS
from plait.tools.render import render

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
NOTHING = "(The call was made. The server sent no result.)"


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    connection.close()


def call(tool: Tool, **given: Any) -> tuple[str, str]:
    """What a call says, and its trouble."""

    async def made() -> tuple[str, str]:
        try:
            async with asyncio.timeout(60):
                return render(await tool(**given))[0], ""
        except ToolError as error:
            return str(error), "in_doubt" if isinstance(error, CallLost) else "raised"

    return asyncio.run(made())


def to_calls(answer: Callable[[dict[str, Any]], Reply | None]) -> Callable[[dict[str, Any]], Reply | None]:
    """The answer, for calls only."""
    return lambda message: answer(message) if message["method"] == "tools/call" else None


def seen(run: plait.Run) -> list[str]:
    return [row.record.value.text for row in run.rows() if is_result(row.record)]


# -- lists of tools


def test_odd_tools_do_not_cost_the_others(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"lists 6 tools without a name\. Plait leaves them out"):
        tools = {tool.name: tool for tool in plait.mcp(command(tmp_path / "log", "zoo", script=ODD))}
    assert call(tools["weather"], city="Lyon") == ('weather: {"city": "Lyon"}', "")
    assert len(tools) == 28
    for name in ("text_schema", "nullable_schema", "referring_schema", "all_of", "number_schema_id"):
        spec = tools[name].spec.parameters
        assert (spec["properties"], spec["required"]) == (CITY["properties"], ["city"]), name
    either = tools["either_schema"].spec.parameters
    assert either["properties"]["by"] == {"anyOf": [{"const": "name"}, {"const": "id"}]}
    assert list(either["properties"]) == ["by", "name", "id"] and either["required"] == ["by"] and "oneOf" not in either
    assert all(type(tool.spec.parameters["properties"]) is dict for tool in tools.values())
    assert tools["odd_hints"].spec.destructive and not tools["odd_hints"].spec.read_only
    assert tools["odd_output"].spec.result == "list[str]" and tools["number_about"].spec.description == ""
    for name in set(tools) - {"either_schema"}:
        assert call(tools[name], city="Nice")[0].startswith((name, "city", f"{name}: there is no")), name


LISTS: list[tuple[Any, list[str]]] = [
    ({"tools": None}, []),
    ({}, []),
    ("none", []),
    ({"tools": {"weather": WEATHER}}, []),
    ({"tools": [WEATHER], "nextCursor": ""}, ["weather"]),
    ({"tools": [WEATHER, {**WEATHER, "description": "again"}], "nextCursor": 7}, ["weather"]),
    ({"tools": [WEATHER], "nextCursor": {"page": 2}, "_meta": 7, "ttlMs": -1}, ["weather"]),
]


def test_odd_lists_of_tools_and_cursors() -> None:
    with RawServer() as server:
        for listed, names in LISTS:
            server.answer = lambda message, listed=listed: (
                (200, {}, rpc(message, result=listed)) if message["method"] == "tools/list" else None
            )
            assert [tool.name for tool in plait.mcp(server.url)] == names, listed


@pytest.mark.parametrize("odd", [{"protocolVersion": 1, "capabilities": {"tools": True}, "instructions": []}, None])
def test_an_odd_handshake_is_enough(odd: Any) -> None:
    def answer(message: dict[str, Any]) -> Reply | None:
        reply = rpc(message, result=odd)
        return (200, {}, reply) if message["method"] == "initialize" else None

    with RawServer(answer, forgotten=lambda message: (200, {}, rpc(message, result={"tools": [WEATHER]}))) as server:
        assert [tool.name for tool in plait.mcp(server.url)] == ["weather"]


# -- results

STRUCTURED: dict[str, Any] = {"content": [{"type": "text", "text": "sunny"}], "structuredContent": {"temp": 21}}
TEMP = {"type": "object", "properties": {"temp": {"type": "integer"}}, "required": ["temp"]}
WRAPPED = {"type": "object", "properties": {"result": {"type": "array"}}, "required": ["result"]}


@for_each(
    ("result", "schema", "value"),
    [
        # content
        ({"content": [{"type": "text", "text": "21"}, {"type": "chart", "data": {}}]}, None, '"chart", "data": {}'),
        ({"content": ["21", None, 7, {"text": "22"}, {"type": "text", "text": 5}]}, None, "21"),
        ({"content": "21"}, None, "21"),
        ({"content": {"type": "text", "text": "21"}}, None, "21"),
        ({"toolResult": 21}, None, {"toolResult": 21}),
        *((each, None, NOTHING) for each in ({}, {"content": None}, None, {"content": "", "isError": False})),
        *((each, None, each) for each in ("21", 21, [21], True)),
        ({"content": []}, None, None),
        # files
        ({"content": [{"type": "image", "data": "iVBORw0KGgo="}]}, None, "<File image/png, 8 bytes>"),
        ({"content": [{"type": "image", "data": PNG, "mimeType": 7}]}, None, "Image 1x1 PNG"),
        ({"content": [{"type": "image", "data": f"data:image/png;base64,{PNG[:60]}\n{PNG[60:]}"}]}, None, "Image 1x1"),
        ({"content": [{"type": "image", "data": "%%%", "mimeType": "image/png"}]}, None, "is not valid base64"),
        ({"content": [{"type": "image", "url": "http://x/y.png"}]}, None, "http://x/y.png"),
        ({"content": [{"type": "audio", "data": "UklGRg"}]}, None, "<File text/plain, 4 bytes>"),
        ({"content": [{"type": "resource", "resource": {"uri": "a:b", "text": "Dry."}}]}, None, "(resource a:b)\nDry."),
        ({"content": [{"type": "resource", "resource": {"blob": "AAAA"}}]}, None, "<File application/octet-stream"),
        ({"content": [{"type": "resource", "resource": None}]}, None, '{"type": "resource", "resource": null}'),
        ({"content": [{"type": "resource_link", "uri": "a:b", "name": 7}]}, None, "(resource a:b, 7)"),
        # structured content
        (STRUCTURED, None, 'sunny\n\n{"temp": 21}'),
        (STRUCTURED, TEMP, {"temp": 21, "text": "sunny"}),
        ({"content": ['{"temp":\n21}'], "structuredContent": {"temp": 21}}, None, {"temp": 21}),
        ({"content": [], "structuredContent": {"temp": 21}}, None, {"temp": 21}),
        ({"content": ["done"], "structuredContent": {"answer": "done", "run": 7}}, None, {"answer": "done", "run": 7}),
        ({"structured_content": 21}, None, 21),
        ({"content": ["[1, 2]"], "structuredContent": [1, 2]}, None, [1, 2]),
        ({"content": ["a", "1"], "structuredContent": {"result": ["a", 1]}}, WRAPPED, ["a", 1]),
        ({"content": ["a", "more"], "structuredContent": {"result": ["a", 1]}}, WRAPPED, [["a", 1], "a\n\nmore"]),
        ({"content": [], "structuredContent": {"temp": "hot"}}, TEMP, "schema: result.temp must be a whole number"),
        ({"content": [], "structuredContent": {}}, TEMP, "schema: result.temp is missing"),
        ({"content": [], "structuredContent": [7]}, TEMP, "schema: result must be an object"),
        ({"content": [], "structuredContent": {"text": 1, "temp": ""}}, TEMP, "must be a whole number"),
        # errors
        ({"content": ["no such city"], "isError": "true"}, None, ToolError("no such city")),
        ({"content": ["no"], "isError": True, "structuredContent": [7]}, None, ToolError("no\n\n[7]")),
        ({"isError": True}, None, ToolError("The MCP server reports that the call failed, without a reason.")),
        ({"content": ["fine"], "isError": "false"}, None, "fine"),
    ],
)  # fmt: skip
def test_what_can_be_read_of_a_result_is_kept(result: Any, schema: Any, value: Any) -> None:
    if isinstance(value, ToolError):
        with pytest.raises(ToolError) as raised:
            read_result(result, schema)
        assert str(raised.value) == str(value)
        return
    found = read_result(result, schema)
    if isinstance(value, str):
        shown = found.about() if hasattr(found, "about") else found if isinstance(found, str) else json.dumps(found)
        assert value in shown
    else:
        assert found == value and type(found) is type(value)


def test_a_large_output_schema_of_the_server_does_not_decide_how_long_its_result_is_checked() -> None:
    schema = {"type": "object", "required": [f"r{n}" for n in range(5_000)], "properties": {}}
    result = {"content": [], "structuredContent": {f"v{n}": 1 for n in range(5_000)}}
    assert read_result(result, schema) == result["structuredContent"]


RAW: list[tuple[str, str, str]] = [
    ('{"jsonrpc": "2.0", "id": $ID, "result": "Lyon: 21"}', "Lyon: 21", ""),
    ('{"jsonrpc": "2.0", "id": $ID, "result": null}', NOTHING, ""),
    ('{"id": $ID, "result": {"content": [{"type": "text", "text": "21"}]}}', "21", ""),
    ('{"jsonrpc": "2.0", "id": "$ID", "result": {"content": ["21"]}}', "21", ""),
    ('{"jsonrpc": "2.0", "id": $ID.0, "result": {"content": ["21"], "_meta": 7, "isError": []}}', "21", ""),
    ('{"jsonrpc": "2.0", "id": $ID, "result": {"content": ["a\\ud800b\tc"]}}', "a\ufffdb\tc", ""),
    ('{"jsonrpc": "2.0", "id": $ID, "result": {"content": ["21"]}, "error": null}', "21", ""),
    ('{"jsonrpc": "2.0", "id": $ID, "error": {"code": "E42", "message": "used up"}}', "used up (E42)", "raised"),
    ('{"jsonrpc": "2.0", "id": $ID, "error": {"code": -32000}}', '{"code": -32000}', "raised"),
    ('{"jsonrpc": "2.0", "id": $ID, "error": "used up"}', "used up", "raised"),
    ('{"jsonrpc": "2.0", "id": $ID, "error": {"code": 1, "message": "used up", "data": [1]}}', "used up", "raised"),
    ('{"jsonrpc": "2.0", "id": $ID}', "The call was made, but Plait cannot read the result", "in_doubt"),
]


def test_odd_replies_over_stdio(tmp_path: Path) -> None:
    raw = next(tool for tool in plait.mcp(command(tmp_path / "log", "raw", script=ODD)) if tool.name == "raw")
    for line, text, trouble in RAW:
        found = call(raw, line=line)
        assert text in found[0] and found[1] == trouble, (line, found)


# -- what comes over HTTP: status, headers and body of the reply to a call; trouble, words

HTML = {"Content-Type": "text/html"}
EVENTS = {"Content-Type": "text/event-stream"}
OWN_ERROR = '{"jsonrpc": "2.0", "id": $ID, "error": {"code": -32603, "message": "boom"}}'
RESULT = '{"jsonrpc": "2.0", "id": $ID, "result": {"content": ["21"]}}'


# fmt: off
STATUSES: list[tuple[int, dict[str, str], str, str, str]] = [
    (401, {}, "expired", "raised", "refuses the request (401: expired). The call was not made. Give headers="),
    (403, {}, '{"error": "forbidden"}', "raised", "(403: forbidden). The call was not made"),
    (404, {}, OWN_ERROR, "raised", "answered 404 (boom). The call was not made"),
    (429, {"Retry-After": "7"}, "slow", "raised", "answered 429 (slow; Retry-After: 7). The call was not made."),
    (413, {}, "", "raised", "answered 413 (no reason). The call was not made"),
    (400, {}, OWN_ERROR, "raised", "boom (400)"),
    (422, {}, "bad city", "raised", "bad city (422)"),
    (500, {}, "Server Error", "in_doubt", "answered 500 (Server Error) during this call. It is not known"),
    (500, {}, OWN_ERROR, "raised", "boom (500)"),
    (502, HTML, "<html><b>Bad</b> gateway</html>", "in_doubt", "answered 502 (Bad gateway) during"),
    (504, {}, "", "in_doubt", "answered 504 (no reason) during"),
    (408, {}, "", "in_doubt", "answered 408"),
    (202, {}, "", "in_doubt", "The call was made, but Plait cannot read the result"),
    (204, {"Content-Length": ""}, "", "in_doubt", "(204: nothing instead of a result)"),
    (200, HTML, "<html>", "in_doubt", "(200: text/html instead of a result)"),
    (200, {}, '{"ok": true}', "in_doubt", "(200: application/json instead of a result)"),
    (200, {}, "[" * 100_000, "in_doubt", "instead of a result"),
    (200, {"Content-Length": "99"}, '{"jsonrpc"', "in_doubt", "It is not known whether the call took effect"),
    (200, EVENTS, "event: message\n", "in_doubt", "It is not known whether the call took effect"),
    (200, EVENTS, 'data: {"jsonrpc": "2.0", "id": 1, "result": 7}\n\n', "in_doubt", "The call was made, but"),
    (200, EVENTS, f": ping\n\ndata:\n\nevent: ping\ndata: {{}}\n\ndata: {RESULT}\n\n", "", "21"),
    (200, {"Content-Type": "text/plain"}, RESULT, "", "21"),
    (200, {"Content-Type": ""}, RESULT, "", "21"),
    (200, {"Content-Type": "application/json; charset=utf-8"}, "\ufeff" + RESULT.replace("$ID", "null"), "", "21"),
    (301, {"Location": "http://127.0.0.1:1/mcp"}, "", "raised", "Redirect to http://127.0.0.1:1/mcp not followed"),
]
# fmt: on


def test_the_status_of_a_call_is_named_and_says_whether_it_was_made() -> None:
    with RawServer() as server:
        (weather,) = plait.mcp(server.url)
        for status, headers, body, trouble, words in STATUSES:
            server.calls.clear()
            server.answer = to_calls(lambda message: (status, headers, body.replace("$ID", str(message["id"]))))  # noqa: B023
            found = call(weather, city="Lyon")
            assert (found[1], words in found[0]) == (trouble, True), found
            server.answer = lambda message: None
            assert call(weather, city="Nice") == ("Nice: 21", "") and server.calls == ["Lyon", "Nice"], (status, body)
        assert server.opened == 1, "other calls keep the session"


def test_a_refusal_whose_body_never_ends_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "BODY_SECONDS", 0.05)
    with RawServer(
        to_calls(lambda message: (503, {"Content-Length": "99", "Connection": "keep-alive"}, "no"))
    ) as server:
        (weather,) = plait.mcp(server.url)
        assert call(weather, city="Lyon")[1] == "in_doubt"


def test_a_repeatable_call_is_made_again_after_a_failed_status() -> None:
    with RawServer() as server:
        (weather,) = plait.mcp(server.url, trust=True)
        server.tools = [{**WEATHER, "annotations": {"readOnlyHint": True}}]
        (weather,) = plait.mcp(server.url, trust=True)
        server.answer = to_calls(lambda message: (502, {}, "") if len(server.calls) == 1 else None)
        assert call(weather, city="Lyon") == ("Lyon: 21", "") and server.calls == ["Lyon", "Lyon"]
        server.answer = to_calls(lambda message: (200, {}, "what?"))
        assert "The call was made" in call(weather, city="Nice")[0] and server.calls == ["Lyon", "Lyon", "Nice"]


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ((405, {}, "Method Not Allowed"), "answered 405.*often /mcp.*HTTP[+]SSE.*at /sse"),
        ((404, {}, ""), "answered 404.*often /mcp.*HTTP[+]SSE"),
        ((401, {}, {"error": "invalid_token"}), "401: invalid_token.*Give headers="),
        ((200, HTML, "<html>Hello</html>"), "answered 200 .text/html instead of a result.*often /mcp"),
        ((503, {"Retry-After": "60"}, "closed"), "answered 503 .closed; Retry-After: 60.*Try again later"),
    ],
)
def test_an_address_that_refuses_the_handshake_says_what_to_do(reply: Reply, words: str) -> None:
    with RawServer(lambda message: reply) as server, pytest.raises(ConfigError, match=words):
        plait.mcp(server.url)


# -- sessions


def error_of(code: int, text: str, id: Any = "own") -> Callable[[dict[str, Any]], dict[str, Any]]:
    def error(message: dict[str, Any]) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": message["id"] if id == "own" else id, "error": {"code": code, "message": text}}

    return error


FORGOTTEN: list[tuple[int, Any]] = [
    (404, "Session not found"),
    (404, error_of(-32001, "Session not found", "server-error")),
    (404, error_of(-32001, "Session not found")),
    (400, error_of(-32000, "Bad Request: No valid session ID provided", None)),
    (400, "Invalid session ID"),
    (400, ""),
    (401, "Unauthorized: Session not found"),
    (200, error_of(-32600, "Session not found")),
    (200, error_of(-32001, "Unknown session: 7f", None)),
]


def test_a_forgotten_session_is_opened_again_and_each_call_made_once() -> None:
    async def at_once(weather: Tool) -> list[Any]:
        return await asyncio.gather(*(weather(city=f"{n}") for n in range(2)))

    with RawServer() as server:
        (weather,) = plait.mcp(server.url)
        for number, (status, body) in enumerate(FORGOTTEN, 2):
            server.sessions.clear()
            server.calls.clear()
            server.forgotten = lambda message: (status, {}, body(message) if callable(body) else body)  # noqa: B023
            assert asyncio.run(at_once(weather)) == ["0: 21", "1: 21"]
            assert sorted(server.calls) == ["0", "1"] and server.opened == number, (status, body)
        server.sessions.clear()
        assert [tool.name for tool in plait.mcp(server.url)] == ["weather"], "listing them again opens a session too"


def test_a_server_that_forgets_every_session_is_asked_twice() -> None:
    error = error_of(-32001, "Session not found", None)
    with RawServer(forgotten=lambda message: (404, {}, error(message))) as server:
        (weather,) = plait.mcp(server.url)
        server.sessions = type("Forgetful", (set,), {"add": lambda self, session: None})()
        text, trouble = call(weather, city="Lyon")
        assert trouble == "raised" and "just opened (404: Session not found). The call was not made" in text
        assert server.calls == [] and server.opened == 2


SAYINGS: list[tuple[int, Any]] = [
    (200, lambda message: rpc(message, result={**text_result("Session not found"), "isError": True})),
    (200, lambda message: rpc(message, result=text_result("Session terminated"))),
    *((200, error_of(code, "Session not found")) for code in (-32603, -32600, -32001, -32000, 7)),
    (200, error_of(-32600, "Session terminated")),
    (200, error_of(-32600, "Session not found", None)),
    (400, error_of(-32001, "The checkout session was not found")),
    (404, error_of(-32602, "Session not found")),
    (400, "Bad city for this session"),
    (500, "Session not found"),
]


def test_a_tool_that_says_that_some_session_is_unknown_is_called_once() -> None:
    with RawServer() as server:
        (weather,) = plait.mcp(server.url)
        for status, reply in SAYINGS:
            server.calls.clear()
            server.answer = to_calls(lambda message: (status, {}, reply(message) if callable(reply) else reply))  # noqa: B023
            assert "ession" in call(weather, city="Lyon")[0]
            assert server.calls == ["Lyon"] and server.opened == 1, (status, reply)


def test_a_call_that_runs_is_not_lost_when_its_session_is_forgotten() -> None:
    begun, ended = Event(), Event()

    def answer(message: dict[str, Any]) -> None:
        if message["params"]["arguments"]["city"] == "slow":
            server.sessions.clear()
            begun.set()
            assert ended.wait(30)

    async def both(weather: Tool) -> list[Any]:
        slow = asyncio.create_task(weather(city="slow"))
        assert await asyncio.to_thread(begun.wait, 30)
        second = await weather(city="second")
        ended.set()
        return [second, await slow]

    with RawServer(to_calls(answer)) as server:
        (weather,) = plait.mcp(server.url)
        assert asyncio.run(both(weather)) == ["second: 21", "slow: 21"] and server.calls == ["slow", "second"]


# -- tools that change


def changes(message: dict[str, Any], text: str) -> Reply:
    told = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    events = (told, rpc(message, result=text_result(text)))
    return 200, EVENTS, "".join(f"data: {json.dumps(each)}\n\n" for each in events)


OWN = """
import os, plait
os.write(log := os.open(__file__ + ".log", os.O_WRONLY | os.O_CREAT | os.O_APPEND), b"x")
os.close(log)

@plait.tool
def own() -> str:
    "Says."
    return "own"
"""


def test_a_tool_that_a_call_reveals_can_be_called_in_the_agents_next_run(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)

    def answer(message: dict[str, Any]) -> Reply | None:
        server.tools = [WEATHER, {"name": "extra", "inputSchema": {"type": "object"}}]
        return changes(message, "on") if server.calls == ["Lyon"] else None

    with RawServer(to_calls(answer)) as server:
        words = [f"mcp:{server.url}", str(tmp_path / "own.py")]
        script = Scripted([act("weather", city="Lyon"), act("extra"), done()])
        agent = Agent("react", model=script, tools=words, journal=False)
        run = agent.run("Go.")
        assert seen(run)[0] == "on" and "no tool named 'extra'" in seen(run)[1]
        assert seen(agent.run("Go.")) == ["Lyon: 21", "None: 21"] and server.calls == ["Lyon", "Lyon", None]
        assert (tmp_path / "own.py.log").read_text() == "x", "the user's file runs once"
        server.answer = lambda message: (500, {}, "")
        TOOL_LISTS.changes += 1
        assert "answered 500" in seen(agent.run("Go."))[0], (
            "while a server cannot list its tools, the old ones are used"
        )
