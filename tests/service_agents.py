"""The agents of test_service.py: one that writes the time as it passes, and one whose payments need approval."""

from __future__ import annotations

import asyncio
import os
import time
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import plait
from plait.models.base import OnText, Request, Response
from plait.models.scripted import Scripted

said: ContextVar[str] = ContextVar("said")


class Clock(Scripted):
    """Streams the time, each tenth of a second."""

    async def send(self, request: Request, think: Any, on_text: OnText | None = None) -> Response:
        pieces = []
        for n in range(21):
            await asyncio.sleep(0.1)
            pieces.append(f"{time.time():.3f} " if n < 20 else "It is late.")
            if on_text is not None:
                on_text(pieces[-1])
        said.set("".join(pieces))
        return await super().send(request, think)


@plait.tool
def pay(amount: int) -> str:
    """Pay."""
    with Path(os.environ["LEDGER"]).open("a") as ledger:
        ledger.write(f"{amount}\n")
    return f"paid {amount}"


clock = plait.Agent(model=Clock([lambda think: said.get()] * 50, by_turn=False), loop="tool_calling", name="clock")
payer = plait.Agent(
    model=plait.Scripted([{"calls": [{"name": "pay", "input": {"amount": 5}}]}, {"answer": "Paid."}]),
    loop="tool_calling",
    tools=[pay],
    approve="effects",
    name="payer",
)
