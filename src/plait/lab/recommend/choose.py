"""Chooses the cheapest row of a comparison that meets a demand, and computes how certain that is."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from plait.agent import Agent
from plait.core.errors import ConfigError
from plait.core.text import format_count
from plait.lab.recommend.rows import MeasuredLoop, read_rows
from plait.loops import loop_from, parts_of

_PARTS = {"success": "tasks done", "usd": "USD", "seconds": "seconds", "tokens": "tokens"}
FEW, UNSURE, SURE = 10, 0.8, 0.95
"""Fewer tasks, or less certainty, is reported as thin evidence; and the certainty that more tasks should give."""
MOST_TASKS = 1_000_000
"""The limit of `count_more_tasks`."""


class Demand(Struct, frozen=True):
    """The requirements on a loop with its models.

    `at_least` is the minimum share of successful tasks, from 0 to 1. `usd` and `tokens` (in and out) are the maximum
    average of a run, `seconds` the maximum median; None sets no limit. `include_changed` accepts rows with runs that
    continued as another loop, or wrote tool calls as text.
    """

    at_least: float = 0.8
    usd: float | None = None
    seconds: float | None = None
    tokens: float | None = None
    include_changed: bool = False

    def __post_init__(self) -> None:
        if not _number(self.at_least) or not 0 <= self.at_least <= 1:
            raise ConfigError(f"at_least is {self.at_least!r}.", hint="Give a share from 0 to 1, such as 0.8.")
        for name in ("usd", "seconds", "tokens"):
            value = getattr(self, name)
            if value is not None and not (_number(value) and math.isfinite(value) and value >= 0):
                raise ConfigError(f"{name} is {value!r}.", hint="Give a number from zero up, or None.")


class Candidate(Struct, frozen=True):
    """A row compared with a demand. `sure` is the probability that its true share is high enough.

    `unmet` lists the failed requirements: "success", "usd", "price" (unknown, with a budget), "seconds", "tokens",
    "runs" (it has none), "changed" (runs of another loop, or calls as text), "here". `unusable` says why it cannot run
    here.
    """

    row: MeasuredLoop
    sure: float
    unmet: tuple[str, ...] = ()
    unusable: str = ""


class Recommendation(Struct, frozen=True, kw_only=True):
    """The cheapest row that meets the demand (`chosen`, None if no row does), and the other rows.

    `candidates` are all rows, the cheapest first: by USD (unknown prices last), then by tokens, then by seconds.
    `runner_up` is the next row that meets the demand. `cheaper` are rows that cost less and succeeded too rarely. If no
    row meets the demand, `nearest` maps each requirement ("success", "usd", ...) to the nearest row that misses only
    this one. `more_tasks` estimates how many more tasks make the choice 95 % certain if the share stays the same; None
    if no number does. `name`, `suite` and `digest` identify the results.
    """

    demand: Demand
    name: str
    suite: str
    digest: str
    candidates: tuple[Candidate, ...]
    chosen: Candidate | None = None
    runner_up: Candidate | None = None
    cheaper: tuple[Candidate, ...] = ()
    nearest: dict[str, Candidate] = {}
    more_tasks: int | None = None
    unfinished: str = ""

    @property
    def agent(self) -> Agent:
        """The agent with the recommended loop and models. Raises `ConfigError` if no row meets the demand."""
        if self.chosen is None:
            raise ConfigError(str(self).replace("\n", " "), hint="Ask for less, or compare more loops and models.")
        row = self.chosen.row
        if row.agent:
            raise ConfigError(f"The chosen row is the agent {row.loop}.", hint="Use that agent with the row's models.")
        is_one = len(set(row.models.values())) == 1
        models: dict[str, Any] = {"model": next(iter(row.models.values()))} if is_one else {"models": row.models}
        return Agent(loop_from(row.loop), **{**models, **row.texts})

    @property
    def thin(self) -> bool:
        """Whether the evidence for the chosen row is thin: few tasks, or less than 80 % certain."""
        if self.chosen is None:
            return False
        return self.chosen.row.evidence[1] < FEW or self.chosen.sure < UNSURE

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    def sentences(self) -> list[str]:
        """Return the reasons, a sentence a line: the choice, its certainty, and objections to it."""
        said = []
        if (chosen := self.chosen) is not None:
            said.append(f"{describe_result(chosen, self.demand)}; {describe_cost(chosen.row)}.")
            if self.thin:
                tries = chosen.row.evidence[1]
                thin = f"This is thin evidence: {tries} task{'' if tries == 1 else 's'}."
                if self.more_tasks is None:
                    more = "no number of tasks would make it 95 % sure, if the share stays as it is"
                    thin += f" It is hardly above what is asked: {more}."
                elif self.more_tasks:
                    unit = 10 ** max(0, len(str(self.more_tasks)) - 2)  # the estimate is not more precise
                    more = f"{-(-self.more_tasks // unit) * unit:,}"
                    thin += f" About {more} more would make it 95 % sure, if the share stays as it is."
                said.append(thin)
            if (next_one := self.runner_up) is not None:
                said.append(f"Next: {describe_result(next_one, self.demand)}; {describe_cost(next_one.row)}.")
            said += [f"Cheaper, but seen to do too few: {describe_result(each, self.demand)}." for each in self.cheaper]
        else:
            demand = self.demand
            parts = [f"at least {demand.at_least * 100:g} % of the tasks"]
            parts += [f"at most {demand.usd:g} USD a run"] if demand.usd is not None else []
            parts += [f"at most {demand.tokens:,.0f} tokens a run"] if demand.tokens is not None else []
            parts += [f"at most {demand.seconds:g} s a run"] if demand.seconds is not None else []
            said.append(f"No row of {self.name} meets the demand: {', '.join(parts)}.")
            for part, each in self.nearest.items():
                said.append(
                    f"Nearest in {_PARTS[part]}: {describe_result(each, self.demand)}; {describe_cost(each.row)}."
                )
        unknown = [name_row(each.row) for each in self.candidates if each.row.cost_usd is None]
        if unknown and (self.demand.usd is not None or len(unknown) < len(self.candidates)):
            stands = "meets no budget" if self.demand.usd is not None else "stands last"
            said.append(
                f"A price that is not known {stands}: {', '.join(unknown)}."
                " The tables [prices] and [electricity] of plait.toml tell prices of new runs:"
                " plait compare ... --again."
            )
        changed = [name_row(each.row) for each in self.candidates if "changed" in each.unmet]
        if changed:
            said.append(
                f"Not chosen, because runs continued as another loop or wrote tool calls as text: {', '.join(changed)}."
                " --include-changed accepts them."
            )
        said += [
            f"Can't be run here: {name_row(each.row)}: {each.unusable}" for each in self.candidates if each.unusable
        ]
        if self.unfinished:
            said.append(f"The comparison is not finished: {self.unfinished.rstrip('.')}.")
        return said

    def json(self) -> dict[str, Any]:
        """Return everything as `plait recommend --json` prints it."""
        chosen, runner_up = self.chosen, self.runner_up
        return {
            "results": {"name": self.name, "suite": self.suite, "digest": self.digest},
            "demand": msgspec.to_builtins(self.demand),
            "chosen": _row_json(chosen) if chosen is not None else None,
            "runner_up": _row_json(runner_up) if runner_up is not None else None,
            "cheaper": [_row_json(each) for each in self.cheaper],
            "nearest": {part: _row_json(each) for part, each in self.nearest.items()},
            "thin": self.thin,
            "more_tasks": self.more_tasks,
            "candidates": [_row_json(each) for each in self.candidates],
            "unfinished": self.unfinished,
            "text": self.sentences(),
            "command": run_command(chosen.row) if chosen is not None else None,
        }


def recommend(
    results: object,
    demand: Demand | None = None,
    *,
    at_least: float | None = None,
    usd: float | None = None,
    seconds: float | None = None,
    tokens: float | None = None,
    include_changed: bool | None = None,
    only: Mapping[str, str] | None = None,
    journal: object = None,
) -> Recommendation:
    """Choose the cheapest loop and models that meet a demand, from the results of a comparison.

    `results` are what `read_rows` reads: a file, a mapping, anything with `rows`, or a name in `journal`; or a
    recommendation, which means its own results. The demand is a value, or given in parts; the default is 80 % of the
    tasks. `only` selects rows with these models: by phase, "" for every other. Raises `ConfigError` for invalid results
    and demands, and if `only` leaves no row.
    """
    parts = {"at_least": at_least, "usd": usd, "seconds": seconds, "tokens": tokens, "include_changed": include_changed}
    said = {name: value for name, value in parts.items() if value is not None}
    wanted = structs.replace(demand or Demand(), **said)
    source = results if isinstance(results, Recommendation) else read_rows(results, journal)
    rows = [each.row for each in source.candidates] if isinstance(source, Recommendation) else source.rows
    chosen_rows = [row for row in rows if only is None or _has_models(row, only)]
    if not chosen_rows:
        asked = ", ".join(f"{phase}={model}" if phase else model for phase, model in (only or {}).items())
        there = ", ".join(dict.fromkeys(map(name_row, rows)))
        raise ConfigError(f"{source.name} has no row with the model {asked}.", hint=f"There are: {there}.")
    candidates = [_compare_row(row, wanted) for row in chosen_rows]
    candidates.sort(key=lambda each: (_price(each.row), each.row.tokens, each.row.seconds))
    meeting = [each for each in candidates if not each.unmet]
    chosen = meeting[0] if meeting else None
    before = candidates[: candidates.index(chosen)] if chosen is not None else []
    return Recommendation(
        demand=wanted,
        name=source.name,
        suite=source.suite,
        digest=source.digest,
        candidates=tuple(candidates),
        chosen=chosen,
        runner_up=meeting[1] if len(meeting) > 1 else None,
        cheaper=tuple(each for each in before if each.unmet == ("success",)),
        nearest={} if meeting else _find_nearest(candidates, wanted),
        more_tasks=count_more_tasks(chosen.row.success, chosen.row.evidence[1], wanted.at_least) if chosen else None,
        unfinished=source.unfinished,
    )


def _compare_row(row: MeasuredLoop, demand: Demand) -> Candidate:
    unmet, unusable = [], ""
    if not row.n:
        unmet.append("runs")
    elif row.success < demand.at_least - 1e-9:
        unmet.append("success")
    if (row.fell_back or row.calls_as_text) and not demand.include_changed:
        unmet.append("changed")
    if demand.usd is not None and (row.cost_usd is None or row.cost_usd > demand.usd):
        unmet.append("usd" if row.cost_usd is not None else "price")
    if demand.seconds is not None and row.seconds > demand.seconds:
        unmet.append("seconds")
    if demand.tokens is not None and row.tokens > demand.tokens:
        unmet.append("tokens")
    try:
        phases = () if row.agent else loop_from(row.loop).phases
        lacking = [phase for phase in phases if not row.model_of(phase)]
        unusable = f"It names no model for the phase '{lacking[0]}'." if lacking else ""
    except ConfigError as why:
        unusable = str(why)
    if unusable:
        unmet.append("here")
    return Candidate(row, probability_of_share(*row.evidence, demand.at_least), tuple(unmet), unusable)


def _price(row: MeasuredLoop) -> float:
    return math.inf if row.cost_usd is None else row.cost_usd


def _find_nearest(candidates: list[Candidate], demand: Demand) -> dict[str, Candidate]:
    """Find for each requirement the nearest row that misses nothing else. If every row misses several requirements, it
    is the best row in each. Rows without runs, or that cannot run here, are skipped."""
    able = [each for each in candidates if not {"runs", "here"} & set(each.unmet)]
    parts = ("success", *(name for name in ("usd", "seconds", "tokens") if getattr(demand, name) is not None))
    found = {part: [each for each in able if each.unmet == (part,)] for part in parts}
    if not any(found.values()):
        found = dict.fromkeys(parts, able)
    ranked = {part: [(_distance(each.row, part), at) for at, each in enumerate(rows)] for part, rows in found.items()}
    best = {part: min(ranks) for part, ranks in ranked.items() if ranks}
    return {part: found[part][at] for part, (far, at) in best.items() if far < math.inf}


def _distance(row: MeasuredLoop, part: str) -> float:
    """Return a figure that is smaller, the nearer a row is to that requirement."""
    return {"success": -row.success, "usd": _price(row), "seconds": row.seconds, "tokens": row.tokens}[part]


def _has_models(row: MeasuredLoop, only: Mapping[str, str]) -> bool:
    """Return whether a row has every named phase, each with the wanted model."""
    fits = all(only.get(phase, only.get("")) in (None, model) for phase, model in row.models.items())
    return fits and only.keys() <= {"", *row.models}


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# -- certainty


def probability_of_share(successes: int, n: int, at_least: float) -> float:
    """Return the probability that the true share is at least `at_least`, after `successes` in `n` tries. If every share
    from 0 to 1 is equally likely before, the share after k successes in n tries has a Beta distribution, whose tail is
    binomial: P(share >= x | k of n) = P(Binomial(n + 1, x) <= k). The smaller side is summed."""
    if at_least <= 0 or at_least >= 1:
        return float(at_least <= 0)
    if successes < (n + 1) * at_least:
        return min(1.0, _sum_binomial(successes, n + 1, at_least, -1))
    return max(0.0, 1 - _sum_binomial(successes + 1, n + 1, at_least, 1))


def count_more_tasks(share: float, n: int, at_least: float) -> int | None:
    """Estimate how many tasks beyond `n` make it 95 % certain if the share stays the same. None if no number
    does, because the share is not above the demand, or if it is more than a million."""

    def is_enough(tasks: int) -> bool:
        return probability_of_share(math.floor(share * tasks + 1e-9), tasks, at_least) >= SURE

    if share <= at_least and at_least > 0:
        return None
    few, many = n, max(n, 1)
    while not is_enough(many):
        few, many = many, many * 2
        if many > MOST_TASKS:
            return None
    # Successes are whole numbers, so the certainty grows in small steps: the bound is exact up to one step.
    while few < many:
        middle = (few + many) // 2
        few, many = (few, middle) if is_enough(middle) else (middle + 1, many)
    return many - n


def _sum_binomial(start: int, n: int, p: float, step: int) -> float:
    """Sum the binomial probabilities from `start` on, downwards or upwards; each is smaller than the one before."""
    logs = math.lgamma(n + 1) - math.lgamma(start + 1) - math.lgamma(n - start + 1)
    term = math.exp(logs + start * math.log(p) + (n - start) * math.log1p(-p))
    total, at, odds = 0.0, start, p / (1 - p)
    while term > total * 1e-17 and term > 0:
        total += term
        term *= at / (n - at + 1) / odds if step < 0 else (n - at) / (at + 1) * odds
        at += step
    return total


# -- as text


def describe_result(candidate: Candidate, demand: Demand) -> str:
    """Return `rewoo with local: 84 % of 32 tasks (68-93); 70 % likely that its true success rate is 80 % or more`."""
    row = candidate.row
    if not row.n:
        return f"{name_row(row)}: no run is finished"
    _, tries = row.evidence
    runs = f" in {row.n:,} runs" if row.n != tries else ""
    between = f" ({row.interval[0] * 100:.0f}-{row.interval[1] * 100:.0f})" if row.interval is not None else ""
    sure = (
        f"; {show_probability(candidate.sure)} likely that its true success rate is {demand.at_least * 100:g} % or more"
    )
    tasks = format_count(tries, "task")
    return f"{name_row(row)}: {row.success * 100:.0f} % of {tasks}{runs}{between}{sure if demand.at_least else ''}"


def name_row(row: MeasuredLoop) -> str:
    """Return `rewoo with local`."""
    return f"{row.loop} with {row.who}"


def describe_cost(row: MeasuredLoop) -> str:
    """Return what a run costs."""
    taken = f"{row.tokens:,.0f} tokens, {show_short(row.seconds)} s"
    if row.cost_usd is None:
        return f"a run takes {taken}; its price is unknown"
    return f"a run takes {show_short(row.cost_usd)} USD, {taken}"


def show_short(number: float) -> str:
    """Return a number with two digits if it is small, whole if it is not: `0.0012`, `3.4`, `1,234`."""
    digits = max(0, 1 - math.floor(math.log10(number))) if number > 0 else 0
    return f"{number:,.{digits}f}"


def show_probability(probability: float) -> str:
    """Return a probability in whole percent; never 0 % or 100 %."""
    if probability < 0.01:
        return "less than 1 %"
    return "more than 99 %" if probability > 0.99 else f"{probability * 100:.0f} %"


def run_command(row: MeasuredLoop) -> str:
    """Return the command that runs a question with a row's loop and models."""
    names = set(row.models.values())
    models: Sequence[str] = sorted(names) if len(names) == 1 else [f"{p}={name}" for p, name in row.models.items()]
    words = ["-a", row.agent] if row.agent else []
    if row.loop != row.agent:
        name, options = parts_of(row.loop.removeprefix(f"{row.agent}/"))
        words += ["--loop", name, *(word for key, value in options.items() for word in ("--set", f"{key}={value}"))]
    words += [word for name, text in row.texts.items() for word in (f"--{name}", "FILE" if name == "system" else text)]
    words += [word for model in models for word in ("--model", model)]
    return f'plait run "..." {shlex.join(words)}'


def _row_json(each: Candidate) -> dict[str, Any]:
    made = {**msgspec.to_builtins(each.row), "success": each.row.success, "sure": each.sure, "unmet": list(each.unmet)}
    return {**made, "unusable": each.unusable} if each.unusable else made
