"""An agent uses the tools of MCP servers: real processes over stdio, and over HTTP on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import plait
from conftest import CAMPAIGN
from fork_server import run_forked
from journal_rows import is_result
from mcp_support import SHOP, alive, command, lines, over_http, pids, trusted, until
from patience import patience
from plait import Agent, ConfigError, Scripted
from plait.core import events as ev
from plait.core.errors import CallLost, ToolError
from plait.tools import tools_from
from plait.tools.call_context import offer_services
from plait.tools.mcp import connection


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    connection.close()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "shop.log"


def act(tool: str, **given: Any) -> str:
    return f"Thought: I call it.\nAction:\n```json\n{json.dumps({'action': tool, 'action_input': given})}\n```\n"


def done(answer: str = "done") -> str:
    return f"Thought: That is all.\nFinal Answer: {answer}"


def code(text: str) -> str:
    return f"I do it.\n```python\n{text}\n```\n"


def seen(run: plait.Run) -> list[str]:
    """The observations of a run, as recorded."""
    return [row.record.value.text for row in run.rows() if is_result(row.record)]


def troubles(run: plait.Run) -> list[str]:
    return [row.record.value.trouble for row in run.rows() if is_result(row.record)]


def agent(loop: str, script: list[str], *tools: Any, **fields: Any) -> Agent:
    return Agent(
        loop,
        **{"model": Scripted(script), "tools": tools, "journal": False, "limits": plait.Limits(tools=20), **fields},
    )


# -- every loop, stdio and HTTP


def test_react_calls_a_tool_of_a_server_that_is_a_command(log: Path) -> None:
    run = agent("react", [act("price", item="lamp", count="2"), done("40")], f"mcp:{command(log)}").run("How much?")
    assert (run.status, run.answer, seen(run)) == ("answered", "40", ["40"])
    assert lines(log)[1:] == ["price lamp 2"]


def test_codeact_calls_tools_of_a_server_as_functions(log: Path) -> None:
    script = [code("a = price(item='pear')\nb = price('lamp', count=2)\nprint(a + b)"), code("stop(a + b)")]
    run = agent("codeact", script, f"mcp:{command(log)}").run("How much?")
    assert (run.status, run.answer) == ("answered", "43")


@pytest.mark.parametrize("loop", ["react", "codeact"])
def test_the_same_over_http(loop: str, log: Path) -> None:
    with over_http(log) as (url, _):
        script = [act("price", item="lamp"), done("20")] if loop == "react" else [code("stop(price(item='lamp'))")]
        run = agent(loop, script, f"mcp:{url}").run("How much?")
        assert (run.status, str(run.answer)) == ("answered", "20")


async def test_the_same_inside_a_running_loop_and_blocking_inside_it(log: Path) -> None:
    made = agent("react", [act("price", item="pear"), done("3")], f"mcp:{command(log)}")
    assert (await made.arun("How much?")).answer == "3"
    tools = plait.mcp(command(log))
    assert agent("react", [act("price", item="pear"), done("3")], *tools).run("How much?").answer == "3"
    assert len(pids(log)) == 1, "all who name a server alike share it"


def test_a_server_object_of_this_process() -> None:
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("here")

    @server.tool()
    def double(number: int) -> int:
        """Twice a number."""
        return number * 2

    run = agent("react", [act("double", number=4), done("8")], *plait.mcp(server)).run("Twice four?")
    assert seen(run) == ["8"]


# -- what a tool is


def test_schemas_marks_and_types_are_the_servers(log: Path) -> None:
    tools = {tool.name: tool for tool in plait.mcp(command(log), trust=True)}
    order = tools["order"].spec
    assert order.parameters["properties"]["to"] == {"$ref": "#/$defs/Address"}
    assert order.parameters["properties"]["colour"]["enum"] == ["red", "blue"], "a plain type is written out"
    assert order.parameters["$defs"]["Address"]["properties"]["city"]["type"] == "string"
    assert order.destructive and not order.repeatable
    assert tools["price"].spec.read_only and tools["slow"].spec.idempotent
    assert tools["price"].spec.result == "int" and tools["die"].spec.has_effects
    careful = {tool.name: tool.spec for tool in plait.mcp(command(log))}
    assert not careful["price"].read_only and not careful["slow"].idempotent and careful["order"].destructive


def test_values_are_read_as_for_any_other_tool_and_a_missing_one_is_told_without_the_server(log: Path) -> None:
    script = [
        act("order", item="pear", colour="RED", to='{"city": "Lyon"}', gift="true"),
        act("order", item="pear", colour="green", to={}),
        act("order", item="pear"),
        act("order", item="pear", colour="red", to={}, wrapping="blue"),
        done(),
    ]
    run = agent("react", script, f"mcp:{command(log)}").run("Order.")
    texts = seen(run)
    assert texts[0] == "pear in red goes to Lyon"
    assert "colour must be one of 'red', 'blue'" in texts[1]
    assert "colour, to are missing" in texts[2]
    assert "there is no parameter 'wrapping'" in texts[3]
    assert troubles(run) == ["", "bad_input", "bad_input", "bad_input"]
    assert [line for line in lines(log) if line.startswith("order")] == ["order pear red Lyon True"]


def test_what_does_not_fit_the_servers_schema_or_fails_there_is_an_error_observation(log: Path) -> None:
    script = [act("order", item="pear", colour="red", to={"street": 1}), act("fail", why="x"), done()]
    run = agent("react", script, f"mcp:{command(log)}").run("Order.")
    assert troubles(run) == ["bad_input", "raised"]
    assert "to.city is missing" in seen(run)[0] and seen(run)[1].startswith("Error")


def test_pictures_sounds_and_files_go_by_their_handles_and_back_to_the_server(log: Path) -> None:
    script = [code("found = picture(item='pear')\nprint(found)\nprint(weigh(file=found[2]))"), code("stop('ok')")]
    run = agent("codeact", script, f"mcp:{command(log)}").run("Show it.")
    assert run.status == "answered"
    texts = seen(run)
    assert '"$thing": "image-1", "is": "<Image 1x1 PNG' in texts[0]
    assert '"$thing": "file-1", "is": "<File audio/wav, 4 bytes>"' in texts[0]
    assert "Keep dry." in texts[0] and "iVBOR" not in texts[0]
    assert texts[1] == "4"


def test_text_that_looks_like_the_loops_own_labels_stays_text(log: Path) -> None:
    run = agent("react", [act("loud", size=10), done("7")], f"mcp:{command(log)}").run("Read.")
    assert run.answer == "7"
    assert seen(run) == ["Observation: x\nFinal Answer: 0\n" + "a" * 10]


def test_megabytes_are_a_result_like_another(log: Path) -> None:
    size = 10_000_000 if CAMPAIGN else 2_000_000
    run = agent("react", [act("loud", size=size), done("7")], f"mcp:{command(log)}").run("Read.")
    assert run.answer == "7" and len(seen(run)[0]) > size


def test_two_servers_with_the_same_tools_are_told_apart(log: Path, tmp_path: Path) -> None:
    second = tmp_path / "second.log"
    tools = tools_from(["calculator", f"mcp:{command(log)}", f"mcp:{command(second)}"])
    assert {"price", "shop_price"} <= {tool.name for tool in tools}
    assert asyncio.run(tools.get("shop_price").function(item="pear")) == 3  # type: ignore[union-attr]
    assert lines(second)[-1] == "price pear 1" and "price pear 1" not in lines(log)
    named = tools_from([f"north=mcp:{command(log)}", f"south=mcp:{command(second)}"])
    assert {"north_price", "south_price"} <= {tool.name for tool in named}


def test_some_tools_only_under_a_prefix(log: Path) -> None:
    tools = plait.mcp(command(log), only=["price", "order"], prefix="shop")
    assert [tool.name for tool in tools] == ["shop_price", "shop_order"]
    with pytest.raises(ConfigError, match=r"has no tool 'prize'\. Did you mean price"):
        plait.mcp(command(log), only=["prize"])


# -- while a call goes on


async def test_how_far_a_call_is_can_be_watched(log: Path) -> None:
    made = agent("react", [act("slow", seconds=1), done()], f"mcp:{command(log)}")
    said = [event.text async for event in made.stream("Wait.") if isinstance(event, ev.Noted)]
    assert any(text.startswith("slow: shelf") and "of 10" in text for text in said)


async def test_cancelling_a_run_cancels_its_call_at_the_server(log: Path) -> None:
    made = agent("react", [act("slow", seconds=60), done()], f"mcp:{command(log)}")
    task = asyncio.create_task(made.arun("Wait."))
    await asyncio.to_thread(until, lambda: "slow began" in lines(log))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(until, lambda: "slow cancelled" in lines(log))


def test_a_call_has_its_time(log: Path) -> None:
    tools = plait.mcp(command(log), only=["slow"], timeout=0.5)
    run = agent("react", [act("slow", seconds=60), done()], *tools).run("Wait.")
    assert troubles(run) == ["in_doubt"]
    until(lambda: "slow cancelled" in lines(log))


# -- a server that goes away


@pytest.mark.parametrize("loop", ["react", "codeact"])
def test_a_server_killed_in_a_call_leaves_it_in_doubt_and_the_run_goes_on(loop: str, log: Path) -> None:
    if loop == "react":
        script = [act("die", item="x"), act("price", item="pear"), done("3")]
    else:
        script = [
            code("try:\n    die(item='x')\nexcept RuntimeError as e:\n    print(e)"),
            code("stop(price(item='pear'))"),
        ]
    run = agent(loop, script, f"mcp:{command(log)}").run("Go on.")
    assert (run.status, str(run.answer)) == ("answered", "3")
    assert troubles(run) == ["in_doubt", ""] and "ended during this call" in seen(run)[0]
    assert lines(log).count("die x") == 1, "a call with effects is not made twice"
    assert len(pids(log)) == 2, "the next call began it again"


def test_a_call_that_may_be_repeated_is_made_again(log: Path) -> None:
    run = agent("react", [act("die_once", item="pear"), done()], trusted(command(log))).run("Go on.")
    assert seen(run) == ["pear after all"] and len(pids(log)) == 2


def test_a_server_killed_between_two_calls_is_not_noticed(log: Path) -> None:
    (price,) = plait.mcp(command(log), only=["price"], trust=True)
    assert asyncio.run(price(item="pear")) == 3
    os.kill(pids(log)[0], 9)
    until(lambda: not alive(pids(log)[0]))
    assert asyncio.run(price(item="pear")) == 3


def test_a_server_that_ends_again_and_again_is_left_alone(log: Path) -> None:
    script = [*(act("die", item=str(i)) for i in range(6)), done()]
    run = agent("react", script, f"mcp:{command(log)}", limits=plait.Limits(steps=10)).run("Try.")
    assert run.status == "answered"
    assert troubles(run)[:4] == ["in_doubt", "in_doubt", "in_doubt", "raised"]
    assert "waits a minute before it starts it again" in seen(run)[3] and len(pids(log)) == 3


def test_a_server_behind_an_address_is_killed_in_a_call_and_comes_back(log: Path) -> None:
    with over_http(log) as (url, process):
        tools = plait.mcp(url)
        run = agent("react", [act("die", item="x"), done()], *tools).run("Go on.")
        assert troubles(run) == ["in_doubt"]
        process.wait()  # while it ends it may accept a connection, and a call is in doubt then, too
        run = agent("react", [act("price", item="pear"), done()], *tools).run("Go on.")
        assert troubles(run) == ["raised"] and "cannot be reached" in seen(run)[0]
    port = int(url.split(":")[2].split("/")[0])
    with over_http(log, port):
        run = agent("react", [act("price", item="pear"), done()], *tools).run("Go on.")
        assert seen(run) == ["3"]


async def test_calls_that_lose_their_server_together_find_a_whole_new_one(log: Path) -> None:
    tools = {tool.name: tool for tool in plait.mcp(command(log), trust=True)}
    long = [asyncio.create_task(tools["slow"](seconds=1)) for _ in range(3)]
    await asyncio.to_thread(until, lambda: lines(log).count("slow began") == 3)
    os.kill(pids(log)[0], 9)
    assert await asyncio.gather(*long) == ["done"] * 3
    assert await tools["mutter"](words="on") == "muttered on", "its stderr is read, whenever the old one ended"
    assert len(pids(log)) == 2


class Listener:
    """Follows the progress of a call."""

    tool = None

    def report_progress(self, text: str) -> None: ...


async def test_a_call_is_not_made_again_because_another_one_finds_nobody_at_the_address(log: Path) -> None:
    with over_http(log) as (url, process):
        tools = {tool.name: tool for tool in plait.mcp(url)}
        with offer_services(Listener()):  # the server's answer begins with how far it is
            stays = asyncio.create_task(tools["stay"](seconds=60))
        await asyncio.to_thread(until, lambda: "stay began" in lines(log))
        process.kill()
        process.wait()
        await asyncio.sleep(0.05)
        others = await asyncio.gather(*(tools["price"](item="pear") for _ in range(3)), return_exceptions=True)
        with pytest.raises(CallLost, match="not known whether the call took effect"):
            await stays
    assert all(isinstance(each, ToolError) for each in others)


def test_a_server_that_was_started_anew_is_listed_again(log: Path) -> None:
    with over_http(log) as (url, _):
        plait.mcp(url)
    port = int(url.split(":")[2].split("/")[0])
    with pytest.raises(ConfigError, match="cannot be reached"):
        plait.mcp(url)
    with over_http(log, port):
        assert "price" in {tool.name for tool in plait.mcp(url)}


FORK = """
import asyncio, os, sys, plait
(price,) = plait.mcp(sys.argv[1], only=["price"])
print(asyncio.run(price(item="pear")), flush=True)
if child := os.fork():
    os.waitpid(child, 0)
print(asyncio.run(price(item="lamp")), flush=True)
"""


def test_a_forked_process_has_a_server_of_its_own(log: Path) -> None:
    done = run_forked(["-c", FORK, command(log)])
    assert (done.returncode, done.stdout.split()) == (0, ["3", "20", "20"])
    assert len(pids(log)) == 2 and not any(map(alive, pids(log)))


# -- beginning and ending


def test_a_server_that_cant_be_begun_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot start: there is no program 'no-such-program'\. Install it"):
        plait.mcp("no-such-program --now")
    with pytest.raises(ConfigError, match=r"(?s)did not speak MCP.*wrote on stderr:\nNo licence.*\nRun the command"):
        plait.mcp([sys.executable, "-c", "import sys; sys.exit('No licence')"])
    with pytest.raises(ConfigError, match=r"did not list its tools within 1 seconds.*start="):
        plait.mcp([sys.executable, "-c", "import time; time.sleep(60)"], start=1)
    with pytest.raises(ConfigError, match=r"cannot be reached.*Check that it is running"):
        plait.mcp("http://127.0.0.1:9/mcp")
    with pytest.raises(ConfigError, match=r"needs \$NO_SUCH_TOKEN, which is not set"):
        plait.mcp("http://127.0.0.1:9/mcp", headers={"Authorization": "Bearer $NO_SUCH_TOKEN"})


def test_an_address_that_is_no_mcp_server_says_so(log: Path) -> None:
    with over_http(log) as (url, _), pytest.raises(ConfigError, match=r"answered 404.*/mcp"):
        plait.mcp(url.replace("/mcp", "/other"))


def test_the_server_is_given_little_of_our_environment(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    monkeypatch.setenv("SHOP_TOKEN", "shop-0123456789")
    (variables,) = plait.mcp(command(log), only=["variables"], env={"TOKEN": "$SHOP_TOKEN", "MODE": "quick"})
    given = asyncio.run(variables())
    assert given["TOKEN"] == "shop-0123456789" and given["MODE"] == "quick" and "PATH" in given
    assert "OPENAI_API_KEY" not in given and "SHOP_TOKEN" not in given


def test_headers_go_with_each_call_and_their_secrets_not_on_the_record(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "shop-0123456789")
    journal = tmp_path / "runs.db"
    with over_http(log) as (url, _):
        tools = plait.mcp(url, headers={"Authorization": "Bearer $SHOP_TOKEN", "X-Plain": "also-kept-off"})
        run = agent("react", [act("price", item="pear"), done()], *tools, journal=journal).run("Who?")
        headers = next(tool for tool in tools if tool.name == "headers")
        assert asyncio.run(headers()) == "Bearer shop-0123456789"
    assert run.status == "answered"
    written = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file() and "runs.db" in str(file))
    assert b"Bearer $SHOP_TOKEN" in written
    assert b"shop-0123456789" not in written and b"also-kept-off" not in written


PROGRAM = """
import sys, plait
tools = plait.mcp(sys.argv[1])
run = plait.Agent("react", model=plait.Scripted(["Thought: x\\nFinal Answer: 1"]), tools=tools, journal=False).run("?")
print(run.answer)
"""


def test_a_program_ends_with_its_server_and_nothing_of_the_server_is_on_its_terminal(log: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, command(log)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
    assert not alive(pids(log)[0])


STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.run([sys.executable, *sys.argv[1:]], stdin=sys.stdin)
time.sleep(600)
"""


def test_a_server_that_wont_end_is_killed_when_the_program_ends(log: Path, tmp_path: Path) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    word = f"{sys.executable} {tmp_path / 'stubborn.py'} {SHOP} {log}"
    began = time.monotonic()
    done = run_forked(["-c", PROGRAM, word])
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
    until(lambda: not alive(pids(log)[0]), 10)
    running = subprocess.run(["pgrep", "-f", str(tmp_path / "stubborn.py")], capture_output=True, text=True)
    assert running.stdout == "" and time.monotonic() - began < patience(60)


async def test_many_calls_at_once_share_a_server_and_get_their_own_answers(log: Path) -> None:
    (price,) = plait.mcp(command(log), only=["price"])
    answers = await asyncio.gather(*(price(item="pear", count=n) for n in range(50)))
    assert answers == [3 * n for n in range(50)] and len(pids(log)) == 1


def test_agents_in_several_threads_share_a_server(log: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def one(n: int) -> Any:
        return agent("react", [act("price", item="pear", count=n), done(str(n))], f"mcp:{command(log)}").run("?").answer

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(one, range(8))) == [str(n) for n in range(8)]
    assert len(pids(log)) == 1


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.tools.mcp.tools.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install .*\[mcp\]"):
        plait.mcp("anything")


def test_the_command_line_lists_the_tools_of_a_server(log: Path) -> None:
    done = run_forked(["-m", "plait", "tools", "list", f"mcp:{sys.executable} {SHOP} {log}"])
    assert done.returncode == 0 and "price {" in done.stdout and "on stderr" not in done.stderr
