"""The estimate of what running a plan will take: calls, tokens, USD.

The loop itself renders the prompts, with placeholders for missing evidence. The lengths of results and replies, and the
tokens per character, come from the journal's last runs. Without such data, Plait assumes lengths, and takes the tokens
per character from the planner's own call or `TOKENS_A_CHAR`. The range is not a bound.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct, structs

from plait.core import LoopContext, Message, Observation, Plan, Task, Usage
from plait.core.errors import JournalError
from plait.journal.records import RunHead
from plait.journal.run_query import RunQuery
from plait.journal.store import Store, read_timeline
from plait.journal.timeline import Timeline
from plait.loops.plan import NO_EVIDENCE, Planner
from plait.models.prices import total
from plait.runtime.costs import PhaseSpending, in_all, spending
from plait.runtime.phase_models import Phases

TOKENS_A_CHAR = 0.25
"""Tokens per character, roughly, for English text. Used if the planner was not asked or its endpoint reports none."""


class Amount(Struct, frozen=True):
    """Tokens and USD. `usd` is None if a price is unknown."""

    input_tokens: int
    output_tokens: int
    usd: float | None


class PhaseExpected(Struct, frozen=True):
    """The estimate of one phase: its model calls and what they take, as a usual value and a range."""

    phase: str
    model: str
    calls: int
    usual: Amount
    low: Amount
    high: Amount


class Expected(Struct, frozen=True):
    """The estimate of running a plan. `spent` is what making the plan took (None: nothing, or unknown).

    `tool_calls` counts the plan's tool calls, whose cost is unknown. `results` gives, for each tool, the assumed
    characters of a result, and the number of earlier calls that this comes from (0: a plain assumption).
    """

    phases: tuple[PhaseExpected, ...]
    tool_calls: int
    results: dict[str, tuple[int, int]]
    spent: PhaseSpending | None = None

    @property
    def calls(self) -> int:
        """Return the number of model calls."""
        return sum(each.calls for each in self.phases)

    @property
    def usual(self) -> Amount:
        """Return the usual total."""
        return _sum([each.usual for each in self.phases])

    @property
    def low(self) -> Amount:
        """Return the total for short results and replies."""
        return _sum([each.low for each in self.phases])

    @property
    def high(self) -> Amount:
        """Return the total for long results and replies."""
        return _sum([each.high for each in self.phases])

    def json(self) -> dict[str, Any]:
        """Return the object that `plait plan --json` prints."""
        return {
            "calls": self.calls,
            "tool_calls": self.tool_calls,
            **_json(self.usual),
            "low": _json(self.low),
            "high": _json(self.high),
            "phases": [
                {"phase": each.phase, "model": each.model, "calls": each.calls, **_json(each.usual)}
                for each in self.phases
            ],
            "results": {tool: {"characters": size, "seen": count} for tool, (size, count) in self.results.items()},
            "spent": self.spent.json() if self.spent is not None else None,
        }


def estimate_plan(
    loop: Planner,
    context: LoopContext,
    task: Task,
    plan: Plan,
    phases: Phases,
    timeline: Timeline,
    seen: Seen | None = None,
) -> Expected:
    """Estimate what the plan's steps and the answer will take. `timeline` is that of the run that made the plan, or
    empty. `seen` is what earlier runs had."""
    seen = seen or Seen()
    tokens_a_char, seconds_a_token, timed_model = TOKENS_A_CHAR, 0.0, ""
    if timeline.replies and timeline.model_calls[0].phase == "plan":  # as in the planner's own call
        call, reply = timeline.replies[0]
        if reply.usage.input_tokens and not reply.usage.estimated:
            tokens_a_char = reply.usage.input_tokens / _chars(loop.plan_messages(context, task))
        if reply.usage.tokens:
            seconds_a_token, timed_model = reply.seconds / reply.usage.tokens, call.model
    still = [step for step in plan.calls if step.id not in plan.evidence]
    asking = [step for step in still if loop.work_messages(context, task, step, {})]
    by_tool = [step for step in still if step not in asking]
    solver = phases.of("solve").spec
    worker = phases.of("work").spec if asking else ""

    def amounts(phase: str, guess: Guess) -> Amount:
        said = seen.reply("work", worker, guess)
        sizes = {step.id: seen.result(step.tool, guess) for step in by_tool}
        sizes |= {step.id: round(said / tokens_a_char) for step in asking}
        results = {id: Observation(("evidence " * (size // 9 + 1))[:size]) for id, size in sizes.items()}
        results |= {id: Observation(text) for id, text in plan.evidence.items()}
        requests = [loop.work_messages(context, task, step, results) for step in asking]
        if phase != "work":
            requests = [loop.solve_messages(context, task, plan, results, context.observation_chars)]
        model = phases.of(phase)
        output = seen.reply(phase, model.spec, guess)
        rate = seen.tokens_a_char(phase, model.spec, guess) or tokens_a_char
        usages = [Usage(math.ceil(_chars(messages) * rate), output, estimated=True) for messages in requests]
        is_timed = model.rate.kind != "watts" or model.spec == timed_model
        costs = [model.rate.cost(usage, usage.tokens * seconds_a_token) if is_timed else None for usage in usages]
        whole = sum(usages, Usage())
        return Amount(whole.input_tokens, whole.output_tokens, total(costs))

    found = [
        PhaseExpected(phase, model, calls, *(amounts(phase, guess) for guess in (USUAL, LOW, HIGH)))
        for phase, model, calls in (("work", worker, len(asking)), ("solve", solver, 1))
        if calls
    ]
    spent = [each for each in spending(timeline) if each.phase == "plan"]
    return Expected(
        tuple(found),
        len(by_tool),
        {step.tool: (seen.result(step.tool, USUAL), len(seen.results.get(step.tool, ()))) for step in by_tool},
        structs.replace(in_all(spent), phase="plan") if spent else None,
    )


def _chars(messages: Iterable[Message]) -> int:
    return max(1, sum(len(message.content) for message in messages))


def _sum(amounts: Sequence[Amount]) -> Amount:
    return Amount(
        sum(each.input_tokens for each in amounts),
        sum(each.output_tokens for each in amounts),
        total(each.usd for each in amounts),
    )


def _json(amount: Amount) -> dict[str, Any]:
    return {"input_tokens": amount.input_tokens, "output_tokens": amount.output_tokens, "cost_usd": amount.usd}


RUNS = 20
"""Number of the journal's last runs to read."""

Asked: TypeAlias = tuple[str, str]
"""A phase and its model."""


class Guess(Struct, frozen=True):
    """An assumption: characters of a tool's result, and tokens of each reply of the phases `work` and `solve`."""

    evidence: int
    work: int
    solve: int


LOW, USUAL, HIGH = Guess(20, 5, 10), Guess(200, 30, 40), Guess(2000, 150, 200)


class Seen(Struct, frozen=True):
    """Data of earlier runs: characters of each tool's results by tool name, and, by phase and model, tokens of a loop's
    replies and (tokens, characters) of each request."""

    results: Mapping[str, Sequence[int]] = {}
    replies: Mapping[Asked, Sequence[int]] = {}
    requests: Mapping[Asked, Sequence[tuple[int, int]]] = {}

    def result(self, tool: str, guess: Guess) -> int:
        """Return the characters of a tool's result: shortest, mean or longest seen, or the guess."""
        return _of(self.results.get(tool, ()), guess) or guess.evidence

    def reply(self, phase: str, model: str, guess: Guess) -> int:
        """Return the tokens of a phase's reply: shortest, mean or longest seen, or the guess."""
        return _of(self.replies.get((phase, model), ()), guess) or (guess.work if phase == "work" else guess.solve)

    def tokens_a_char(self, phase: str, model: str, guess: Guess) -> float | None:
        """Return the tokens per character of a phase's requests, with all that the endpoint adds; None if unknown."""
        known = self.requests.get((phase, model), ())
        if not known:
            return None
        if guess is USUAL:
            return sum(tokens for tokens, _ in known) / sum(characters for _, characters in known)
        return (min if guess is LOW else max)(tokens / characters for tokens, characters in known)


async def seen_in(store: Store | None, loop: str) -> Seen:
    """Return what a journal's last runs had, for a plan of that loop; nothing if the journal cannot be read."""
    if store is None:
        return Seen()
    try:
        rows = await store.list_runs(RunQuery(limit=RUNS))
        return seen_of([(row.head, await read_timeline(store, row.head.run)) for row in rows], loop)
    except JournalError:
        return Seen()


def seen_of(runs: Iterable[tuple[RunHead, Timeline]], loop: str) -> Seen:
    """Return what these runs had, with the replies of that loop only. A failed call counts with its error's text."""
    results: dict[str, list[int]] = {}
    replies: dict[Asked, list[int]] = {}
    requests: dict[Asked, list[tuple[int, int]]] = {}
    for head, timeline in runs:
        for call, observation in timeline.results:
            size = len(observation.text) + (0 if observation.ok else len(f"{NO_EVIDENCE} ()"))
            results.setdefault(call.planned.tool, []).append(size)
        for asked, reply in timeline.replies if head.loop["name"] == loop else ():
            key = (asked.phase, asked.model)
            replies.setdefault(key, []).append(reply.usage.output_tokens)
            size = 0 if reply.usage.estimated else sum(map(len, texts_in(asked.last.request)))
            if size:
                requests.setdefault(key, []).append((reply.usage.input_tokens, size))
    return Seen(results, replies, requests)


def texts_in(body: bytes) -> list[str]:
    """Return the texts of a request's messages; none if they cannot be read."""
    try:
        found = [message["content"] for message in json.loads(body)["messages"]]
    except (ValueError, LookupError, TypeError):
        return []
    return [text for text in found if isinstance(text, str)]


def _of(lengths: Sequence[int], guess: Guess) -> int:
    """Return the shortest, mean or longest length, at least 1; 0 if there are no lengths."""
    if not lengths:
        return 0
    if guess is USUAL:
        return max(1, round(sum(lengths) / len(lengths)))
    return max(1, min(lengths) if guess is LOW else max(lengths))
