"""The agent of the tests of workers. Its tool writes each effect as a line of a ledger, which the tests read."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import plait

CALLS = int(os.environ.get("CALLS", "3"))


@plait.tool
def pay(ctx: plait.Context[Any], n: int) -> str:
    """Pay."""
    place, pause = Path(os.environ["LEDGER"]), float(os.environ.get("PAY_SECONDS", "0"))
    time.sleep(pause)
    if os.environ.get("FREEZE_AT") == str(n) and not (place.parent / "frozen").exists():
        (place.parent / "frozen").touch()
        os.kill(os.getpid(), signal.SIGSTOP)
    with place.open("a") as file:
        file.write(f"{ctx.run_id} {n} {os.getpid()}\n")
    time.sleep(pause)
    return f"paid {n}"


agent = plait.Agent(
    model=plait.Scripted(
        [*({"calls": [{"name": "pay", "input": {"n": n}}]} for n in range(CALLS)), {"answer": "done"}],
        delay=float(os.environ.get("MODEL_SECONDS", "0")),
    ),
    loop="tool_calling",
    tools=[pay],
    name=os.environ.get("AGENT", "payer"),
    instructions=os.environ.get("INSTRUCTIONS", ""),
)
