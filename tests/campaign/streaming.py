"""Many streams at once from one server: each client gets its own answer, whole."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import aiohttp
from figures import Figures, line_of

import plait
from plait.core.effects import Think
from window_server import asked, serving


def answer(think: Think) -> str:
    return f"Thought: I repeat it.\nFinal Answer: It is {think.messages[-1].content.split()[-1]}"


def run(count: int, seed: int, folder: Path) -> Figures:
    """Open so many streams at once."""
    agent = plait.Agent("react", model=plait.Scripted([answer], chunk=5), journal=folder / "j.db")
    with serving(agent, concurrent=16, queued=count) as here:
        answers = asyncio.run(streams(here.url, count))
    wrong = [f"client {at} got {text!r}" for at, text in enumerate(answers) if text != f"It is word{at}"]
    return Figures(line_of(streams=count, whole=count - len(wrong), wrong=len(wrong)), wrong)


async def streams(url: str, count: int) -> list[str]:
    """What each client got."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=300)) as session:

        async def one(at: int) -> str:
            body = asked(f"Say word{at}", stream=True)
            try:
                async with session.post(f"{url}/v1/chat/completions", json=body) as reply:
                    lines = (await reply.read()).decode().splitlines()
            except (aiohttp.ClientError, TimeoutError) as why:
                return f"{type(why).__name__}: {why}"
            data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
            if not data or data[-1] != "[DONE]":
                return "\n".join(lines)[:500]
            choices = [each for text in data[:-1] for each in json.loads(text).get("choices", [])]
            return "".join(each["delta"].get("content") or "" for each in choices)

        return list(await asyncio.gather(*(one(at) for at in range(count))))
