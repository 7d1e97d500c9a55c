"""What a second thread gives the embedded model, on an idle machine and on a busy one.

    python threads.py                     qwen2.5-coder-0.5b
    python threads.py --model qwen2.5-coder-1.5b

Tokens a second of one reply, by the server's own count: with one thread, with two, and with two that spin as long as
libgomp makes them (GOMP_SPINCOUNT) where Plait lets them sleep. Busy: on each core a process that only counts.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

from plait.models.embedded import ServerSettings, close_all, start_server
from plait.models.fetch import model_file

SPINS = "300000"
"""What libgomp takes where nothing is said and there are enough cores."""
PROMPT = "Tell a long story of a lamp. " * 20


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes that count."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def speeds(model: str, threads: int, tokens: int) -> tuple[float, float]:
    """Tokens a second, of the prompt and of the reply, from a server that is started for it."""
    settings = ServerSettings(threads=threads, cache_prompt=False)
    server = asyncio.run(start_server(model, settings, lambda: model_file(model)))
    asked = {"model": model, "max_tokens": tokens, "messages": [{"role": "user", "content": PROMPT}]}
    headers = {"Authorization": f"Bearer {server.key}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{server.url}/chat/completions", json.dumps(asked).encode(), headers)
    timings = json.load(urllib.request.urlopen(request))["timings"]
    close_all()
    return timings["prompt_per_second"], timings["predicted_per_second"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="qwen2.5-coder-0.5b")
    parser.add_argument("--tokens", type=int, default=60)
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    print(f"| {options.model} | prompt, idle | reply, idle | prompt, busy | reply, busy |\n|---|--:|--:|--:|--:|")
    for name, threads, spins in (("1 thread", 1, ""), ("2 threads", 2, ""), ("2 threads that spin", 2, SPINS)):
        if spins:
            os.environ["GOMP_SPINCOUNT"] = spins
        told = []
        for processes in (0, cores):
            with busy(processes):
                told += [f"{speed:.1f}" for speed in speeds(options.model, threads, options.tokens)]
        print(f"| {name} | {' | '.join(told)} |", flush=True)


if __name__ == "__main__":
    main()
