"""Cache marks: where they stand, and that each request of a growing history reads what the one before wrote.

The endpoint of these tests follows the rules of Anthropic's page "Prompt caching" (November 2026): a prefix is written
at each mark, at most four of them, and read at a mark or at one of the 20 blocks before it, if it is equal.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

import plait
from cli_support import Shell, action, final, turn
from models_server import Asked, Server
from plait.core import Usage
from plait.models import http
from plait.models.base import Abilities
from plait.models.prices import Rate, bundled_rate
from plait.models.wires.anthropic_replies import usage_of_message
from plait.runtime.run import Run

LOOK_BACK = 20


@plait.tool(read_only=True)
def look(key: str) -> str:
    """Look up a key."""
    return f"value of {key}"


class CachingEndpoint:
    """Answers with texts or calls, and reports the usage that Anthropic's rules give for each request."""

    def __init__(self, *replies: Any, ttl: str = "5m") -> None:
        self.replies, self.written, self.ttl = list(replies), set[tuple[str, ...]](), ttl
        self.usages: list[dict[str, Any]] = []
        self.prefixes: list[list[str]] = []
        self.marks: list[list[int]] = []

    async def __call__(self, asked: Asked) -> None:
        blocks, marks = self._read_blocks(asked.body)
        assert len(marks) <= 4
        self.prefixes.append(blocks)
        self.marks.append(marks)
        near = [end for mark in marks for end in range(max(mark - LOOK_BACK, 0), mark + 1)]
        read = max((end for end in near if tuple(blocks[:end]) in self.written), default=0)
        until = max(marks, default=0)
        sizes = [len(block) for block in blocks]
        stored = sum(sizes[read:until])
        usage = {
            "input_tokens": sum(sizes[until:]),
            "cache_read_input_tokens": sum(sizes[:read]),
            "cache_creation_input_tokens": stored,
            "cache_creation": {
                f"ephemeral_{each}_input_tokens": stored if each == self.ttl else 0 for each in ("5m", "1h")
            },
            "output_tokens": 5,
        }
        self.usages.append(usage)
        self.written |= {tuple(blocks[:mark]) for mark in marks}
        reply = self.replies.pop(0)
        blocks_back = reply if isinstance(reply, list) else [reply]
        content = [{"type": "text", "text": reply}] if isinstance(reply, str) else blocks_back
        reason = "end_turn" if isinstance(reply, str) else "tool_use"
        await asked.answer(
            200, {"type": "message", "model": "claude-x", "content": content, "stop_reason": reason, "usage": usage}
        )

    @staticmethod
    def _read_blocks(body: dict[str, Any]) -> tuple[list[str], list[int]]:
        """All blocks in the order of the cache, and how many stand before the end of each mark."""
        parts = [("tools", each) for each in body.get("tools", ())] + [
            ("system", each) for each in body.get("system", ())
        ]
        parts += [(message["role"], block) for message in body["messages"] for block in message["content"]]
        marks = [number + 1 for number, (_, block) in enumerate(parts) if "cache_control" in block]
        plain = [
            json.dumps([kind, {key: value for key, value in block.items() if key != "cache_control"}])
            for kind, block in parts
        ]
        return plain, marks


def run_on(endpoint: CachingEndpoint, loop: Any, journal: Path, **options: Any) -> Run:
    async def main() -> Run:
        async with Server(endpoint) as server:
            model = server.model(wire="anthropic", abilities=Abilities(stream=False), **options)
            agent = plait.Agent(loop, model=model, tools=[look], journal=journal, sandbox="monty")
            run = await agent.arun("What is so?")
            await http.close()
            return run

    return asyncio.run(main())


def call(key: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{key}", "name": "look", "input": {"key": key}}


def code(text: str) -> str:
    return f"I look.\n```python\n{text}\n```"


ACTIONS = json.dumps([{"ACTION": "look", "ARGUMENTS": ["a"], "EXPLANATION": "to know"}])
LOOPS: dict[str, list[Any]] = {
    "react": [action("look", {"key": "a"}), action("look", {"key": "b"}), final("done")],
    "json": [turn("look", {"key": "a"}), turn("look", {"key": "b"}), turn("final_answer", "done")],
    "tool_calling": [call("a"), call("b"), "done"],
    "codeact": [
        code('x = look(key="a")\nprint(x)'),
        code('print(look(key="b"))'),
        " all is known.\nFinal answer: done",
    ],
    "phased": ["I look for a.", ACTIONS, "DONE", "done"],
    "compiler": [
        '1. look(key="a")\n2. join()',
        "Thought: more.\nAction: Replan(b)",
        '3. look(key="b")\n4. join()',
        "Thought: I know.\nAction: Finish(done)",
    ],
    "rewoo": ["Plan: look.\n#E1 = look[a]\nPlan: think.\n#E2 = LLM[say #E1]", "one", "done"],
}


GROWING = {"react": 2, "json": 2, "tool_calling": 2, "codeact": 2, "phased": 2, "compiler": 2, "rewoo": 0}
"""How many requests of each run continue an earlier one. The phases of `rewoo` ask three independent questions."""


@pytest.mark.parametrize("loop", LOOPS)
def test_a_growing_history_reads_what_was_written(loop: str, tmp_path: Path) -> None:
    endpoint = CachingEndpoint(*LOOPS[loop])
    run = run_on(endpoint, loop, tmp_path / "j.db")
    assert run.status == "answered", run.reason
    growing = 0
    for number, blocks in enumerate(endpoint.prefixes):
        shared = max((count_shared(blocks, earlier) for earlier in endpoint.prefixes[:number]), default=0)
        growing += shared > 0
        assert endpoint.usages[number]["cache_read_input_tokens"] == sum(map(len, blocks[:shared])), (loop, number)
        assert endpoint.usages[number]["input_tokens"] == 0  # the whole request can be read by the next one
    assert growing == GROWING[loop]
    cached = sum(each["cache_read_input_tokens"] for each in endpoint.usages)
    assert sum(part.usage.cached_tokens for part in run.phases) == cached


def count_shared(blocks: list[str], earlier: list[str]) -> int:
    """Return how many blocks are equal from the beginning."""
    pairs = zip(blocks, earlier, strict=False)
    return next((number for number, (one, other) in enumerate(pairs) if one != other), min(len(blocks), len(earlier)))


def test_more_results_than_the_look_back_are_read_too(tmp_path: Path) -> None:
    many = [{**call(f"k{n}"), "id": f"toolu_{n}"} for n in range(25)]
    more = [{**call(f"m{n}"), "id": f"toolu_m{n}"} for n in range(25)]
    endpoint = CachingEndpoint(many, more, "done")
    assert run_on(endpoint, "tool_calling", tmp_path / "j.db").answer == "done"
    for number in (1, 2):
        before, usage = endpoint.prefixes[number - 1], endpoint.usages[number]
        assert usage["cache_read_input_tokens"] == sum(map(len, before))


def test_marks_stand_on_the_tools_the_rules_and_the_last_two_user_messages(tmp_path: Path) -> None:
    endpoint = CachingEndpoint(*LOOPS["tool_calling"])
    run_on(endpoint, "tool_calling", tmp_path / "j.db")
    assert endpoint.marks == [[1, 2, 3], [1, 2, 3, 5], [1, 2, 5, 7]]


def test_tokens_written_for_an_hour_have_their_own_price(tmp_path: Path) -> None:
    rate = bundled_rate("anthropic", "claude-sonnet-4-5", date="2026-11-01")
    assert (rate.input, rate.cache_write, rate.cache_write_1h) == (3.0, 3.75, 6.0)
    hour, minutes = (
        run_on(CachingEndpoint(*LOOPS["tool_calling"], ttl=ttl), "tool_calling", tmp_path / f"{ttl}.db", rate=rate)
        for ttl in ("1h", "5m")
    )
    spent, usual = (next(part for part in run.phases if not part.is_work) for run in (hour, minutes))
    assert spent.usage.cache_write_1h_tokens == spent.usage.cache_write_tokens == usual.usage.cache_write_tokens > 0
    assert usual.usage.cache_write_1h_tokens == 0
    assert hour.cost_usd is not None and minutes.cost_usd is not None
    assert hour.cost_usd - minutes.cost_usd == pytest.approx(spent.usage.cache_write_tokens * (6 - 3.75) / 1e6)
    own = Rate.from_mapping({"input": 1, "output": 2, "cache_write": 3, "cache_write_1h": 4}, "x")
    assert own.cost(Usage(1_000_000, cache_write_tokens=500_000, cache_write_1h_tokens=100_000)) == 0.5 + 1.2 + 0.4


def test_the_hour_is_read_within_the_written_tokens() -> None:
    found = usage_of_message(
        {"input_tokens": 1, "cache_creation_input_tokens": 5, "cache_creation": {"ephemeral_1h_input_tokens": 9}}
    )
    assert found == Usage(6, 0, 0, 5, cache_write_1h_tokens=5)


def test_costs_show_the_cached_share(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    endpoint = CachingEndpoint(*LOOPS["tool_calling"], ttl="1h")
    run = run_on(endpoint, "tool_calling", tmp_path / "journal.db")
    read = sum(each["cache_read_input_tokens"] for each in endpoint.usages)
    stored = sum(each["cache_creation_input_tokens"] for each in endpoint.usages)
    share = read / (read + stored)
    (cells,) = csv.DictReader(io.StringIO(shell("costs", run.id, "--csv", "--tokens").out))
    assert (cells["cached"], cells["in all 1h cache writes"]) == (f"{100 * share:.1f}%", str(stored))
    assert json.loads(shell("costs", run.id, "--json").out)[0]["in_all"]["cached_share"] == share
    assert f"{100 * share:.1f}%" in shell("costs", run.id).out
