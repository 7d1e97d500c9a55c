"""What a sandbox costs: opening a session, and a turn from code to observation when the tools answer at once.

    python benchmarks/sandbox.py              each sandbox that this machine has
    python benchmarks/sandbox.py monty --n 500

Times are wall time in milliseconds, the median and the 90th percentile of n. A turn is one piece of code, run to its
end, with its calls answered as soon as they come out.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time

from plait.core.artifacts import ArtifactHandle
from plait.core.code import CodeLimits
from plait.core.errors import PlaitError
from plait.sandbox import BACKENDS, OutCall, Result, Sandbox, SandboxSession, Settings, sandbox

TURNS = {
    "no call": "x = 1 + 1\nprint(x)",
    "one call": "x = tool(1)\nprint(x)",
    "five calls, one by one": "for i in range(5):\n    x = tool(i)\nprint(x)",
    "five calls at once": "print(await asyncio.gather(*[tool(i) for i in range(5)]))",
    "one call with 100 kB back": "x = text()\nprint(len(x))",
    "a handle in and out": "h = thing()\ntool(h)",
    "an error": "d = {}\nprint(d['key'])",
    "forty lines": "total = 0\n" + "".join(f"v{i} = {i} * 2\ntotal += v{i}\n" for i in range(20)) + "print(total)",
}


def answer(call: OutCall) -> Result:
    """What the benchmark's tools give."""
    if call.name == "text":
        return Result("x" * 100_000)
    if call.name == "thing":
        return Result(ArtifactHandle("thing-1", "<Thing>"))
    return Result(1)


async def turn(session: SandboxSession, code: str) -> float:
    """Seconds from a piece of code to its end."""
    began = time.perf_counter()
    told = await session.run(code, 0.0)
    while told.calls:
        told = await session.go_on([answer(call) for call in told.calls])
    return time.perf_counter() - began


def line(what: str, seconds: list[float]) -> None:
    """One line of the table."""
    per_cent = statistics.quantiles(seconds, n=10)[8] if len(seconds) > 1 else seconds[0]
    print(f"  {what:28} {statistics.median(seconds) * 1e3:8.2f} {per_cent * 1e3:8.2f}")


async def measure(box: Sandbox, n: int) -> None:
    """Print the table of one sandbox."""
    settings = Settings(frozenset({"tool", "text", "thing"}), CodeLimits(tool_calls=1000))
    began = time.perf_counter()
    session = await box.open(settings)
    first = time.perf_counter() - began
    print(f"{box.name:30} {'median':>8} {'90 %':>8}   ms of wall time, n = {n}")
    line("first session", [first])
    opened = []
    for _ in range(max(3, n // 10)):
        began = time.perf_counter()
        other = await box.open(settings)
        opened.append(time.perf_counter() - began)
        await other.close()
    line("session", opened)
    for what, code in TURNS.items():
        await turn(session, code)
        line(what, [await turn(session, code) for _ in range(n)])
    await session.run(f"kept = {{'k' + str(i): i for i in range({20_000})}}", 0.0)
    line("one call, 20,000 names kept", [await turn(session, TURNS["one call"]) for _ in range(n)])
    await session.close()


def main() -> None:
    """Measure the sandboxes that are named, all by default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(BACKENDS))
    parser.add_argument("--n", type=int, default=200)
    options = parser.parse_args()
    for name in options.names:
        try:
            asyncio.run(measure(sandbox(name), options.n))
        except (PlaitError, ImportError) as reason:
            print(f"{name}: {reason}")


if __name__ == "__main__":
    main()
