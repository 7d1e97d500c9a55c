"""Reads streams and bodies of all wires with repeated, reordered, cut, padded and odd pieces (`odd_streams.py`).

Each is decoded as a live stream and as a record, and read as tool calling reads it; one of 20 is the first reply of a
whole run. No effect may happen twice or with an input that the model did not give, nothing may raise an untyped error,
and no answer may be other than the model's. Of the responses that hold all that the model gave, 99 % are read as it.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from figures import Figures, line_of

import plait
from odd_streams import FAULT, MODELS, Called, Case, Outcome, judge, make_case, read_case
from plait.models.http import HttpAnswer
from plait.models.wires.refusals import Target

RUNS = 20
"""One of so many cases is a whole run."""
AGAIN = "I have it."
"""What the model answers to every request after the first."""


def run(count: int, seed: int, folder: Path) -> Figures:
    """Read so many responses."""
    found: Counter[str] = Counter()
    failures: list[str] = []
    with mock.patch("plait.runtime.performers.ask_model._pause", lambda why, failures: 0.0):
        for number in range(count):
            chance = random.Random(f"{seed} {number}")
            case = make_case(chance)
            found["complete"] += case.is_complete
            try:
                wrong = judge(case, read_case(case, chance))
                if not wrong and number % RUNS == 0:
                    found["runs"] += 1
                    wrong = judge(case, asyncio.run(run_case(case, folder)))
            except Exception as why:  # every error but a typed one is a failure of this part
                wrong = f"untyped: {type(why).__name__}: {why}"
            found[wrong.partition(":")[0]] += 1
            found["as stated"] += case.is_complete and not wrong
            if wrong and wrong != "lost":
                failures.append(f"case {number} ({case.wire}; {case.how}): {wrong}: {case.body[:600]!r}")
    if found["lost"] > found["complete"] / 100:
        failures.append(f"{found['lost']} of {found['complete']} complete responses were not read as they state")
    figures = line_of(
        bodies=count,
        runs=found["runs"],
        complete=found["complete"],
        read_as_stated=found["as stated"],
        doubled_effects=found["doubled"],
        untyped_errors=found["untyped"],
        wrong_answers=found["wrong answer"],
    )
    return Figures(figures, failures)


async def run_case(case: Case, folder: Path) -> Outcome:
    """Give a response as the first reply of a run; all later replies are plain."""
    made: list[Called] = []

    def weather(city: str, text: str = "") -> str:
        """The weather of a city."""
        made.append(("weather", {"city": city} | ({"text": text} if text else {})))
        return "21 degrees"

    def send(city: str, text: str = "") -> str:
        """Sends a text."""
        made.append(("send", {"city": city} | ({"text": text} if text else {})))
        return "sent"

    bodies = [case.body]

    async def post(
        target: Target,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        timeout: float,
        answer: HttpAnswer,
        on_bytes: Callable[[bytes], bool],
        count_content: Callable[[], int],
    ) -> Target:
        """Answer as an endpoint: first with the case, then with a plain reply."""
        answer.status, answer.body = 200, bodies.pop(0) if bodies else json.dumps(PLAIN[case.wire]).encode()
        answer.cut = on_bytes(answer.body)
        return target

    with mock.patch("plait.models.http.post", post):
        model = MODELS[case.wire]
        limits = plait.Limits(retries=1)
        agent = plait.Agent("tool_calling", model=model, tools=[weather, send], limits=limits, journal=folder / "j.db")
        ended = await agent.arun("How warm is it?")
    if ended.status == "crashed" and ended.outcome.error not in ("BadResponse", "ServerFailed"):
        raise AssertionError(ended.reason)
    if FAULT in str(ended.answer):
        return Outcome(answer=str(ended.answer))
    if ended.status == "answered" and (ended.answer != AGAIN or case.text.strip() == AGAIN):
        return Outcome(answer=str(ended.answer), calls=made)
    return Outcome(calls=made, asks=str(ended.reason))


PLAIN: dict[str, Any] = {
    "chat": {"choices": [{"message": {"content": AGAIN}, "finish_reason": "stop"}]},
    "anthropic": {"type": "message", "content": [{"type": "text", "text": AGAIN}], "stop_reason": "end_turn"},
    "responses": {
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": AGAIN}]}],
    },
    "gemini": {"candidates": [{"content": {"parts": [{"text": AGAIN}]}, "finishReason": "STOP"}]},
}
