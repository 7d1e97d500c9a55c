"""Runs under a spend limit, and a model that keeps a ledger of what it was sent.

python spend_script.py JOURNAL LEDGER RUNS USD       makes so many runs at once
python spend_script.py JOURNAL LEDGER die USD        dies by SIGKILL in the first request
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import uuid
from collections import defaultdict
from pathlib import Path
from typing import Any

import plait
from plait.core import Reply, Think, Usage
from plait.journal.store import open_store
from plait.models.base import Request, Response
from plait.models.prices import Rate
from plait.models.scripted import Scripted

RATE = Rate("tokens", input=10.0, output=30.0)
PROMPT = 10
"""Tokens that a request has by its reply."""


class Metered(Scripted):
    """Writes what each request may cost before it is answered, and then what it cost. `word`: only of requests with it
    in their body. `longest` is the setting `max_tokens`."""

    def __init__(
        self, replies: Any, ledger: Path, dies: bool = False, word: bytes = b"", longest: int | None = None, **more: Any
    ) -> None:
        super().__init__(replies, rate=RATE, **more)
        self.ledger, self.dies, self.word = ledger, dies, word
        self.settings = plait.ModelSettings(**({} if longest is None else {"max_tokens": longest}))

    def write(self, *words: object) -> None:
        line = os.open(self.ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(line, f"{' '.join(map(str, words))}\n".encode())
        os.close(line)

    async def send(self, request: Request, think: Think, on_text: Any = None) -> Response:
        if self.word not in request.body:
            return await super().send(request, think, on_text)
        id, most = uuid.uuid4().hex, self.rate.cost(Usage(PROMPT, think.max_tokens or 10**9))
        self.write("+", id, most)
        if self.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        response = await super().send(request, think, on_text)
        self.write("-", id, self.rate.cost(self.decode(response, think).usage))
        return response


def read_ledger(ledger: Path) -> tuple[float, int]:
    """Return the most that was ever spent, with all that requests under way could cost, and how many were sent."""
    most, spent, under_way, sent = 0.0, 0.0, dict[str, float](), 0
    for line in ledger.read_text().splitlines() if ledger.exists() else ():
        what, id, usd = line.split()
        if what == "+":
            under_way[id], sent = float(usd), sent + 1
        else:
            spent += float(usd)
            del under_way[id]
        most = max(most, spent + sum(under_way.values()))
    return most, sent


def write_reply(think: Think) -> Reply:
    """Return a reply that is as long as it may be, or shorter."""
    most = (think.max_tokens or 1) // random.choice((1, 9))
    return Reply("Thought: so.\nFinal Answer: yes", usage=Usage(PROMPT, random.randint(0, most)))


def make_agent(journal: str, ledger: Path, usd: float, **more: Any) -> plait.Agent[Any]:
    model = more.pop("model", None) or Metered(write_reply, ledger, delay=0.002)
    spend = [plait.SpendLimit(usd=usd, user="*"), "tokens=1000000,tag=all,per=month"]
    return plait.Agent("react", model=model, journal=journal, spend=spend, name="spender", **more)


async def main(journal: str, ledger: str, runs: str, usd: str) -> None:
    from plait.runtime.guards import spending

    spending.PATIENCE = 0.3
    if runs == "die":
        model = Metered(write_reply, Path(ledger), dies=True)
        await make_agent(journal, Path(ledger), float(usd), model=model).arun("Q?", user="ada")
    if runs == "early":
        store = open_store(journal)
        reserve = store.reserve

        async def reserve_and_die(*given: Any) -> Any:
            await reserve(*given)
            os.kill(os.getpid(), signal.SIGKILL)

        store.reserve = reserve_and_die  # type: ignore[method-assign]
        await make_agent(journal, Path(ledger), float(usd)).arun("Q?", user="ada")
    agent, counts = make_agent(journal, Path(ledger), float(usd)), defaultdict[str, int](int)
    for run in await asyncio.gather(*(agent.arun("Q?", user="ada", tags=["all"]) for _ in range(int(runs)))):
        counts[run.status] += 1
        assert run.status in ("answered", "stopped"), run.reason
    print(dict(counts))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
