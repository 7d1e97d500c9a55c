"""Load on `plait serve`: many streaming clients at once, no answer lost or mixed up; then kill -9 in the middle.

    python benchmarks/serve_load.py [--clients 200] [--seconds 60] [--kill-after 10] [--json FILE]

The server is a process of its own with a scripted model: each run is a ReAct loop of two model calls and a tool call,
and its answer carries the mark of its question. The clients are another process: they read the stream to its end and
compare every answer. The second part kills the server under the same load, starts it again with what it left, and looks
each accepted run up in the journal: it must have ended with its own answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ACT = 'Thought: I add them.\nAction:\n```json\n{"action": "add", "action_input": {"a": 2, "b": 3}}\n```'


def answer_to(question: str) -> str:
    """The answer that belongs to a question."""
    return " ".join([f"<{question}>"] * 12)


# -- the server


def serve(folder: Path, concurrent: int, resume: bool) -> None:
    """The server process: prints its port."""
    import plait
    from plait.config import ServeTable
    from plait.core import Think
    from plait.server.agents import serve_agent
    from plait.server.listening import listen, serve_until_signal
    from plait.server.runs import RunManager

    @plait.tool(read_only=True)
    async def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    def reply(think: Think) -> str:
        if len(think.messages) < 4:
            return ACT
        return f"Thought: So.\nFinal Answer: {answer_to(think.messages[1].content.split()[-1])}"

    model = plait.Scripted([reply], by_turn=False, delay=0.05, chunk=40)
    model._next = lambda request, think: reply  # type: ignore[method-assign]  # any number of times
    agent = plait.Agent("react", model=model, tools=[add], journal=folder / "journal.db")
    table = ServeTable(concurrent=concurrent, queued=10 * concurrent, connections=4096)
    sock = listen("127.0.0.1", 0)
    manager = RunManager([serve_agent("plait", agent, table, thoughts=True)], table)
    asyncio.run(serve_until_signal(manager, sock, lambda: print(sock.getsockname()[1], flush=True), resume=resume))


class Served:
    """A server process."""

    def __init__(self, folder: Path, concurrent: int, *, resume: bool = False) -> None:
        command = [sys.executable, __file__, "--serve", str(folder), "--concurrent", str(concurrent)]
        self.process = subprocess.Popen(
            [*command, *(["--resume"] if resume else [])], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def rss(self) -> float:
        """MB of memory."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        return 0.0

    def cpu(self) -> float:
        """Seconds of processor time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self, number: int = signal.SIGTERM) -> None:
        """Stop it."""
        self.process.send_signal(number)
        self.process.wait(120)
        if self.process.stdout is not None:
            self.process.stdout.close()


# -- the clients


class Load:
    """What the clients saw."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.first: list[float] = []
        self.wrong: list[str] = []
        self.broken = 0
        self.busy = 0
        self.accepted: dict[str, str] = {}
        """The question of each run that the server told of."""


async def client(session: Any, url: str, name: str, until: float, load: Load) -> None:
    """One client: asks, reads to the end, compares, asks again."""
    import aiohttp

    n = 0
    while time.monotonic() < until:
        n += 1
        question = f"mark-{name}-{n}"
        body = {"model": "plait", "stream": True, "messages": [{"role": "user", "content": f"Say {question}"}]}
        began = time.monotonic()
        try:
            async with session.post(f"{url}/v1/chat/completions", json=body) as reply:
                if reply.status == 429:
                    load.busy += 1
                    await asyncio.sleep(float(reply.headers["Retry-After"]))
                    continue
                load.accepted[reply.headers["x-plait-run"]] = question
                load.first.append(time.monotonic() - began)
                said, done = "", False
                async for line in reply.content:
                    if line == b"data: [DONE]\n":
                        done = True
                    elif line.startswith(b"data: "):
                        event = json.loads(line[6:])
                        if "error" in event:
                            load.wrong.append(f"{question}: {event}")
                            break
                        for choice in event["choices"]:
                            said += choice["delta"].get("content") or ""
        except (aiohttp.ClientError, OSError):
            load.broken += 1
            return
        load.seconds.append(time.monotonic() - began)
        if not done or said != answer_to(question):
            load.wrong.append(f"{question}: {said[:80]!r}")


async def loaded(server: Served, clients: int, seconds: float, sampled: list[float] | None = None) -> Load:
    """The load, for so long."""
    import aiohttp

    load = Load()
    until = time.monotonic() + seconds
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(300)) as session:
        url = f"http://127.0.0.1:{server.port}"
        work = [asyncio.create_task(client(session, url, str(i), until, load)) for i in range(clients)]
        while sampled is not None and not all(task.done() for task in work):
            sampled.append(server.rss())
            await asyncio.sleep(0.5)
        await asyncio.gather(*work)
    return load


# -- the two parts


def steady(clients: int, concurrent: int, seconds: float) -> dict[str, Any]:
    """The load without trouble."""
    with tempfile.TemporaryDirectory() as folder:
        server = Served(Path(folder), concurrent)
        try:
            asyncio.run(loaded(server, clients, min(3.0, seconds / 4)))  # warm: caches, threads
            memory: list[float] = []
            cpu, began = server.cpu(), time.monotonic()
            load = asyncio.run(loaded(server, clients, seconds, memory))
            took, cpu = time.monotonic() - began, server.cpu() - cpu
        finally:
            server.end()
    times = sorted(load.seconds)
    return {
        "clients": clients,
        "seconds": round(took, 1),
        "runs": len(times),
        "runs a second": round(len(times) / took, 1),
        "wrong or lost": len(load.wrong) + load.broken,
        "told to come again": load.busy,
        "p50 s": round(times[len(times) // 2], 2),
        "p99 s": round(times[int(len(times) * 0.99)], 2),
        "first byte p50 s": round(sorted(load.first)[len(load.first) // 2], 2),
        "server CPU ms a run": round(1000 * cpu / len(times), 2),
        "RSS MB, first quarter": round(sum(memory[: len(memory) // 4]) / max(1, len(memory) // 4), 1),
        "RSS MB, last quarter": round(sum(memory[-(len(memory) // 4) :]) / max(1, len(memory) // 4), 1),
        "examples": load.wrong[:3],
    }


def killed(clients: int, concurrent: int, after: float) -> dict[str, Any]:
    """The load, the server killed under it and started again."""
    from plait.journal.store import Journal

    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "journal.db")
        server = Served(Path(folder), concurrent)

        async def part() -> Load:
            work = asyncio.create_task(loaded(server, clients, after + 600))
            await asyncio.sleep(after)
            server.process.kill()
            return await work

        load = asyncio.run(part())
        server.end(signal.SIGKILL)
        left = journal.runs(1_000_000)
        status = [run.status for run in left]
        again = Served(Path(folder), concurrent, resume=True)
        end = time.monotonic() + 300
        while journal.runs(1, "interrupted") or journal.runs(1, "running"):
            assert time.monotonic() < end, "runs did not end"
            time.sleep(0.2)
        again.end()
        now = {run.head.run: run for run in journal.runs(1_000_000)}
        lost = [run for run in load.accepted if run not in now]
        wrong = [
            run.head.run
            for run in now.values()
            if run.status != "answered"
            or (run.outcome or {}).get("answer") != answer_to(run.head.question.split()[-1])
            or load.accepted.get(run.head.run, run.head.question.split()[-1]) != run.head.question.split()[-1]
        ]
        journal.close()
    return {
        "accepted runs": len(load.accepted),
        "on record": len(now),
        "answered at the kill": status.count("answered"),
        "interrupted at the kill": status.count("interrupted"),
        "neither": len(status) - status.count("answered") - status.count("interrupted"),
        "accepted and not on record": len(lost),
        "not answered rightly in the end": len(wrong),
        "wrong answers seen": len(load.wrong),
    }


def main() -> None:
    """Run both parts and print them."""
    parse = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parse.add_argument("--clients", type=int, default=200)
    parse.add_argument("--seconds", type=float, default=60)
    parse.add_argument("--kill-after", type=float, default=10)
    parse.add_argument("--concurrent", type=int, default=0, help="runs at once (default: as many as clients)")
    parse.add_argument("--json", metavar="FILE")
    parse.add_argument("--serve", metavar="FOLDER", help=argparse.SUPPRESS)
    parse.add_argument("--resume", action="store_true", help=argparse.SUPPRESS)
    said = parse.parse_args()
    concurrent = said.concurrent or said.clients
    if said.serve:
        serve(Path(said.serve), concurrent, said.resume)
        return
    found = {"steady": steady(said.clients, concurrent, said.seconds)}
    if said.kill_after:
        found["killed"] = killed(said.clients, concurrent, said.kill_after)
    for part, values in found.items():
        print(part)
        for name, value in values.items():
            print(f"  {name:34} {value}")
    if said.json:
        machine = {"python": platform.python_version(), "cpus": os.cpu_count(), "machine": platform.machine()}
        Path(said.json).write_text(json.dumps({"machine": machine, **found}, indent=2) + "\n")
    if found["steady"]["wrong or lost"] or any(
        found.get("killed", {}).get(name)
        for name in ("accepted and not on record", "not answered rightly in the end", "neither", "wrong answers seen")
    ):
        sys.exit(1)


if __name__ == "__main__":
    main()
