"""Recorded ReAct episodes as scripts: what the model said at each step, and what it was shown."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import plait


@dataclass(frozen=True)
class Episode:
    """One recorded episode: replies and observations, step by step, and what was logged of it."""

    question: str
    replies: tuple[str, ...]
    observations: tuple[str, ...]
    gold: str
    logged: dict[str, Any]


def hotpotqa(path: Path) -> list[Episode]:
    """FireAct's episodes: a chat, or one text with an instruction header."""
    with gzip.open(path, "rt") as lines:
        return [_hotpot(json.loads(line)) for line in lines]


def _hotpot(row: dict[str, Any]) -> Episode:
    trajectory = row["trajectory"]
    if isinstance(trajectory, list):
        question = trajectory[0]["content"]
        replies = [m["content"] for m in trajectory[1:] if m["role"] == "assistant"]
        seen = [m["content"] for m in trajectory[1:] if m["role"] == "user"]
    else:
        head, _, log = trajectory.partition("### Response:\n")
        question = head.rpartition("### Instruction:\n")[2].strip()
        # The environment's observations are the only lines that begin so, and each ends before a thought.
        parts = re.split(r"(?m)^(Observation: (?:.|\n)*?)(?=^Thought:|\Z)", log)
        replies, seen = [part for part in parts[::2] if part.strip()], parts[1::2]
    observations = tuple(text.removeprefix("Observation: ").rstrip("\n") for text in seen)
    return Episode(question, tuple(replies), observations, row["gold"], row)


def fever(path: Path) -> list[Episode]:
    """The ReAct paper's episodes: one numbered text."""
    with gzip.open(path, "rt") as lines:
        return [_fever(json.loads(line)) for line in lines]


def _fever(row: dict[str, Any]) -> Episode:
    head, _, log = row["text"].partition("\nThought 1:")
    replies, observations = [], []
    rest, n = "Thought 1:" + log, 1
    while rest:
        reply, mark, after = rest.partition(f"\nObservation {n}:")
        if not mark:
            break
        seen, _, following = after.partition(f"\nThought {n + 1}:")
        replies.append(reply)
        observations.append(seen.strip())
        rest = f"Thought {n + 1}:" + following if following else ""
        n += 1
    return Episode(head, tuple(replies), tuple(observations), row["result"]["gt_answer"], row["result"])


def play(episode: Episode, names: tuple[str, ...], steps: int | None = None) -> plait.Run:
    """The episode through the loop: the recorded replies are the model, the recorded observations the tools."""
    model = plait.Scripted([*episode.replies, ""], by_turn=False)

    def recorded(entity: str) -> str:
        """Answers with what was observed at this step."""
        return episode.observations[model.sent - 1]

    tools = [plait.tool(name=name, read_only=True, inline=True)(recorded) for name in names]
    agent = plait.Agent(
        plait.ReAct(dialect="original", max_parse_errors=10),
        model=model,
        tools=tools,
        limits=plait.Limits(steps=steps or len(episode.replies), repeats=0),
        journal=False,
    )
    return agent.run(episode.question)
