"""What a run of each loop costs in CPU time, compared with the same loop written by hand with aiohttp.

    python benchmarks/overhead.py             CPU a run, one at a time and 64 at once; 1,000 at once with memory
    python benchmarks/overhead.py --wire all  CPU of a run with tool calling on each wire, streamed and not

The hand-written loop is minimal: one shared session, `json=` with a dict, the reply looked up in the decoded dict,
the action read with `json.loads`, the tool called from a dict, messages appended to a list. For the planners it only
sends the requests that a run made, as dicts. Plait runs with its journal on.

The endpoint answers at once, in a process of its own; only this process's CPU is counted. Bare and Plait take
turns, so that a drift of the machine's speed falls on both; the median of the ratios is what counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import loopback
from wires import WIRES, Wire

import plait
from plait.core import Loop, Message, Think
from plait.models.base import Abilities
from plait.models.chat import ChatModel
from plait.models.prices import Rate
from plait.models.wires.wire import CHAT

QUESTION = "Add the numbers from 0 to 3."


@plait.tool(read_only=True, inline=True)
def add(n: str) -> str:
    """Add a number to the sum.

    Args:
        n: the number
    """
    return f"added {n}"


LOOPS: dict[str, Loop] = {
    "react": plait.ReAct(),
    "json": plait.JsonReAct(),
    "tool_calling": plait.ToolCalling(),
    "rewoo": plait.ReWOO(),
    "compiler": plait.LLMCompiler(),
    "phased": plait.Phased(rounds=2),
}


def agent(address: str, stream: bool, journal: Path, loop: str = "react", wire: str = CHAT) -> plait.Agent:
    chosen = LOOPS[loop]

    def model(name: str) -> ChatModel:
        return ChatModel(
            spec=f"openai:{name}",
            name=name,
            endpoint=address,
            wire=wire,
            abilities=Abilities(stream=stream),
            rate=Rate("tokens", input=1.0, output=2.0),
        )

    models = {phase: model(f"{loop}-{phase}") for phase in chosen.phases} if len(chosen.phases) > 1 else {}
    return plait.Agent(
        chosen, model=model(loop), models=models, tools=[add], journal=journal, limits=plait.Limits(repeats=0)
    )


def add_plainly(n: str) -> str:
    """The same tool without Plait."""
    return f"added {n}"


PLAIN_TOOLS: dict[str, Callable[..., str]] = {"add": add_plainly}


def read_react(message: dict[str, Any]) -> dict[str, Any] | None:
    text = message["content"]
    if "Final Answer:" in text:
        return None
    action = json.loads(text.partition("```json")[2].partition("```")[0])
    return {"tool": action["action"], "input": {"n": action["action_input"]}}


def read_json(message: dict[str, Any]) -> dict[str, Any] | None:
    turn = json.loads(message["content"])
    return None if turn["tool"] == "final_answer" else {"tool": turn["tool"], "input": {"n": turn["tool_input"]}}


def read_tool_calls(message: dict[str, Any]) -> dict[str, Any] | None:
    if not message.get("tool_calls"):
        return None
    function = message["tool_calls"][0]["function"]
    return {"tool": function["name"], "input": json.loads(function["arguments"])}


READERS: dict[str, Callable[[dict[str, Any]], dict[str, Any] | None]] = {
    "react": read_react,
    "json": read_json,
    "tool_calling": read_tool_calls,
}


def sent(run: plait.Run) -> list[dict[str, Any]]:
    """The requests of a run, as the dicts that a program without Plait would have made."""
    return [json.loads(call.request) for call in run.timeline.model_calls]


async def ask_plainly(session: aiohttp.ClientSession, url: str, request: dict[str, Any]) -> dict[str, Any]:
    """The message of one reply, as little code as does it."""
    async with session.post(url, json=request) as response:
        if not request.get("stream"):
            message: dict[str, Any] = (await response.json())["choices"][0]["message"]
            return message
        text, calls = "", []
        async for line in response.content:
            if line.startswith(b"data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    text += choice["delta"].get("content") or ""
                    calls += choice["delta"].get("tool_calls") or ()
    return (
        {"role": "assistant", "content": text, "tool_calls": calls} if calls else {"role": "assistant", "content": text}
    )


async def bare_turns(session: aiohttp.ClientSession, url: str, first: dict[str, Any], loop: str) -> None:
    """The loop by hand: ask, append, look the tool up, call it, append; no checks, no record, no limits."""
    messages, read = list(first["messages"]), READERS[loop]
    while True:
        message = await ask_plainly(session, url, {**first, "messages": messages})
        messages.append(message)
        if (call := read(message)) is None:
            return
        result = PLAIN_TOOLS[call["tool"]](**call["input"])
        if loop == "tool_calling":
            messages.append({"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": result})
        else:
            messages.append({"role": "user", "content": f"Observation: {result}"})


async def bare_wire_turns(
    session: aiohttp.ClientSession, url: str, first: dict[str, Any], wire: Wire, stream: bool
) -> None:
    """The loop by hand on another wire than chat completions."""
    log = list(first[wire.log])
    while True:
        async with session.post(url, json={**first, wire.log: log}) as response:
            if stream:
                lines = [line async for line in response.content]
                body = wire.join([json.loads(line[6:]) for line in lines if line.startswith(b"data: {")])
            else:
                body = await response.json()
        log += wire.turn(body)
        if (call := wire.call(body)) is None:
            return
        log.append(wire.result(call, PLAIN_TOOLS[call["name"]](**call["input"])))


async def bare_requests(session: aiohttp.ClientSession, url: str, requests: list[dict[str, Any]]) -> None:
    """The requests of a planner, made already: even less than its loop by hand would do."""
    for request in requests:
        await ask_plainly(session, url, request)


async def cpu(work: Callable[[], Awaitable[object]], runs: int, at_once: int) -> float:
    """Milliseconds of this process's CPU a run."""
    began = time.process_time()
    for _ in range(runs // at_once):
        if at_once == 1:
            await work()
        else:
            await asyncio.gather(*(work() for _ in range(at_once)))
    return (time.process_time() - began) / runs * 1000


async def compare(
    address: str, loop: str, stream: bool, at_once: int, runs: int, rounds: int, wire: str = CHAT
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        one = agent(address, stream, Path(folder) / "journal.db", loop, wire)
        requests = sent(await one.arun(QUESTION))
        path = "chat/completions" if wire == CHAT else WIRES[wire].path(loop, stream)
        url = f"{address}/{path}"
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

            async def plainly() -> None:
                if wire != CHAT:
                    await bare_wire_turns(session, url, requests[0], WIRES[wire], stream)
                elif loop in READERS:
                    await bare_turns(session, url, requests[0], loop)
                else:
                    await bare_requests(session, url, requests)

            number = count()

            async def ours() -> None:
                # Never the same question twice: a prompt filled before is not a run's cost.
                run = await one.arun(f"{QUESTION} ({next(number)})")
                assert run.status == "answered", run.reason

            await cpu(plainly, at_once * 4, at_once)
            await cpu(ours, at_once * 4, at_once)
            pairs = [(await cpu(ours, runs, at_once), await cpu(plainly, runs, at_once)) for _ in range(rounds)]
    ratio = statistics.median(a / b for a, b in pairs)
    ours_ms, bare_ms = (statistics.median(column) for column in zip(*pairs, strict=True))
    kind = "streamed" if stream else "not streamed"
    print(
        f"{loop if wire == CHAT else wire:9} {len(requests)} calls, {kind:12} {at_once:4} at once: "
        f"ratio {ratio:.2f} ({min(a / b for a, b in pairs):.2f} to {max(a / b for a, b in pairs):.2f}); "
        f"a run {ours_ms:.2f} ms, bare {bare_ms:.2f} ms; "
        f"a call {ours_ms / len(requests):.3f} ms, bare {bare_ms / len(requests):.3f} ms",
        flush=True,
    )


async def crowd(address: str, count: int) -> None:
    """`count` runs at once in one process."""
    with tempfile.TemporaryDirectory() as folder:
        one = agent(address, False, Path(folder) / "journal.db")
        await one.arun(QUESTION)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.perf_counter()
        runs = await asyncio.gather(*(one.arun(QUESTION) for _ in range(count)))
        seconds = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        answered = sum(run.status == "answered" for run in runs)
        print(
            f"{count} runs at once: {answered} answered in {seconds:.1f} s; peak memory {after / 1024:.0f} MB, "
            f"{(after - before) / count:.0f} kB a run above the {before / 1024:.0f} MB before"
        )


def long_run(steps: int) -> float:
    """CPU seconds of one run of so many steps, with a scripted model and the journal on."""
    with tempfile.TemporaryDirectory() as folder:
        replies = [loopback.ACTION.format(n=n) for n in range(steps - 1)] + [loopback.ANSWER]
        one = plait.Agent(
            "react",
            model=plait.Scripted(replies, by_turn=False),
            tools=[add],
            journal=Path(folder) / "journal.db",
            limits=plait.Limits(steps=steps + 1, repeats=0),
        )
        began = time.process_time()
        run = asyncio.run(one.arun(QUESTION))
        assert run.steps == steps, run.reason
        return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--runs", type=int, default=128)
    parser.add_argument("--loops", default=",".join(LOOPS))
    parser.add_argument("--wire", choices=[CHAT, *WIRES, "all"], help="only runs with tool calling on this wire")
    parser.add_argument("--quick", action="store_true", help="only the ratios, without 1,000 runs and long runs")
    options = parser.parse_args()
    # What is imported at the first use is not a run's cost.
    ChatModel(spec="x:y", name="y", endpoint="http://127.0.0.1").encode(Think("act", (Message("user", "x"),)))
    process, address = loopback.start()
    try:
        if options.wire:
            print(f"load of this machine: {', '.join(f'{each:.1f}' for each in os.getloadavg())}", flush=True)
            for wire in [CHAT, *WIRES] if options.wire == "all" else [options.wire]:
                for stream in (False, True):
                    asyncio.run(compare(address, "tool_calling", stream, 1, options.runs, options.rounds, wire))
            return
        for loop in options.loops.split(","):
            for stream in (False, True):
                for at_once in (1, 64):
                    asyncio.run(compare(address, loop, stream, at_once, options.runs, options.rounds))
        if options.quick:
            return
        asyncio.run(crowd(address, 1000))
    finally:
        process.terminate()
    pairs = [(long_run(200), long_run(100)) for _ in range(5)]
    ratio = statistics.median(a / b for a, b in pairs)
    longer, shorter = (statistics.median(column) * 1000 for column in zip(*pairs, strict=True))
    print(f"200 steps against 100: {ratio:.2f} times the CPU ({longer:.0f} ms, {shorter:.0f} ms)")


if __name__ == "__main__":
    main()
