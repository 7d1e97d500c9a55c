"""The agent of the tests of workers. Its tools write each effect as a line of a ledger, which the tests read."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import plait
from spend_script import PROMPT, Metered

CALLS = int(os.environ.get("CALLS", "3"))


def write(run: str, n: int) -> None:
    place, pause = Path(os.environ["LEDGER"]), float(os.environ.get("PAY_SECONDS", "0"))
    time.sleep(pause * random.random() * 2)
    if os.environ.get("FREEZE_AT") == str(n) and not (place.parent / "frozen").exists():
        (place.parent / "frozen").touch()
        os.kill(os.getpid(), signal.SIGSTOP)
    line = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(line, f"{run} {n} {os.getpid()}\n".encode())  # one write, so that lines of several processes stay whole
    os.close(line)
    time.sleep(pause * random.random() * 2)


@plait.tool
def pay(ctx: plait.Context[Any], n: int) -> str:
    """Pay."""
    write(ctx.run_id, n)
    return f"paid {n}"


def has_booked(ctx: plait.Context[Any], n: int) -> plait.TookEffect | plait.NoEffect:
    lines = Path(os.environ["LEDGER"]).read_text().splitlines() if Path(os.environ["LEDGER"]).exists() else []
    if any(line.startswith(f"{ctx.run_id} {n} ") for line in lines):
        return plait.TookEffect(f"booked {n}")
    return plait.NoEffect()


@plait.tool(verify=has_booked)
def book(ctx: plait.Context[Any], n: int) -> str:
    """Book."""
    write(ctx.run_id, n)
    return f"booked {n}"


usage = {"input_tokens": PROMPT, "output_tokens": 10}
replies = [
    *({"calls": [{"name": "book" if n % 2 else "pay", "input": {"n": n}}], "usage": usage} for n in range(CALLS)),
    {"answer": "done", "usage": usage},
]
ledger = Path(os.environ.get("MODEL_LEDGER", "requests"))
seconds = float(os.environ.get("MODEL_SECONDS", "0"))
agent = plait.Agent(
    model=Metered(replies, ledger, word=b"from the spender", longest=300, delay=seconds),
    spend=[plait.SpendLimit(usd=float(usd), user="spender")] if (usd := os.environ.get("SPEND_USD")) else (),
    loop="tool_calling",
    tools=[pay, book],
    name=os.environ.get("AGENT", "payer"),
    instructions=os.environ.get("INSTRUCTIONS", ""),
)
