"""Advice in words, and as a JSON object."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins

from plait.advice.choosing import Advice, Candidate, Demand
from plait.advice.rows import Row
from plait.loops import parts_of

_PARTS = {"success": "tasks done", "usd": "USD", "seconds": "seconds", "tokens": "tokens"}


def sentences(advice: Advice) -> list[str]:
    """What is advised, how sure that is, and what stands against it: a sentence a line."""
    said = []
    if (chosen := advice.chosen) is not None:
        said.append(f"{found(chosen, advice.demand)}; {takes(chosen.row)}.")
        if advice.thin:
            said.append(_thin(advice, chosen))
        if (next_one := advice.runner_up) is not None:
            said.append(f"Next: {found(next_one, advice.demand)}; {takes(next_one.row)}.")
        said += [f"Cheaper, but seen to do too few: {found(each, advice.demand)}." for each in advice.cheaper]
    else:
        said.append(f"No row of {advice.name} meets the demand: {asked(advice.demand)}.")
        for part, each in advice.nearest.items():
            said.append(f"Nearest in {_PARTS[part]}: {found(each, advice.demand)}; {takes(each.row)}.")
    unknown = [named(each.row) for each in advice.candidates if each.row.cost_usd is None]
    if unknown and (advice.demand.usd is not None or len(unknown) < len(advice.candidates)):
        stands = "meets no budget" if advice.demand.usd is not None else "stands last"
        said.append(
            f"A price that is not known {stands}: {', '.join(unknown)}."
            " The tables [prices] and [electricity] of plait.toml tell prices of new runs: plait compare ... --again."
        )
    changed = [named(each.row) for each in advice.candidates if "changed" in each.misses]
    if changed:
        said.append(
            f"Not chosen, because runs continued as another loop or wrote tool calls as text: {', '.join(changed)}."
            " --include-changed accepts them."
        )
    said += [f"Can't be run here: {named(each.row)}: {each.unusable}" for each in advice.candidates if each.unusable]
    if advice.unfinished:
        said.append(f"The comparison is not finished: {advice.unfinished.rstrip('.')}.")
    return said


def found(candidate: Candidate, demand: Demand) -> str:
    """`rewoo with local: 84 % of 32 tasks (68-93); sure to 70 % that it is at least 80 %`."""
    row = candidate.row
    if not row.n:
        return f"{named(row)}: no run is finished"
    _, tries = row.evidence
    runs = f" in {row.n:,} runs" if row.n != tries else ""
    between = f" ({row.interval[0] * 100:.0f}-{row.interval[1] * 100:.0f})" if row.interval is not None else ""
    sure = f"; sure to {certain(candidate.sure)} that it is at least {demand.at_least * 100:g} %"
    tasks = f"{tries:,} task" + ("" if tries == 1 else "s")
    return f"{named(row)}: {row.success * 100:.0f} % of {tasks}{runs}{between}{sure if demand.at_least else ''}"


def named(row: Row) -> str:
    """`rewoo with local`."""
    return f"{row.strategy} with {row.who}"


def takes(row: Row) -> str:
    """What a run takes."""
    taken = f"{row.tokens:,.0f} tokens, {few(row.seconds)} s"
    if row.cost_usd is None:
        return f"a run takes {taken}; its price is not known"
    return f"a run takes {few(row.cost_usd)} USD, {taken}"


def few(number: float) -> str:
    """Two digits where it is small, whole where it is not: `0.0012`, `3.4`, `1,234`."""
    digits = max(0, 1 - math.floor(math.log10(number))) if number > 0 else 0
    return f"{number:,.{digits}f}"


def certain(probability: float) -> str:
    """A probability in whole per cent, never as certain as it is not."""
    if probability < 0.01:
        return "less than 1 %"
    return "more than 99 %" if probability > 0.99 else f"{probability * 100:.0f} %"


def asked(demand: Demand) -> str:
    """A demand in words."""
    parts = [f"at least {demand.at_least * 100:g} % of the tasks"]
    parts += [f"at most {demand.usd:g} USD a run"] if demand.usd is not None else []
    parts += [f"at most {demand.tokens:,.0f} tokens a run"] if demand.tokens is not None else []
    parts += [f"at most {demand.seconds:g} s a run"] if demand.seconds is not None else []
    return ", ".join(parts)


def command(row: Row) -> str:
    """What runs a question with a row's loop and models, to be copied."""
    name, options = parts_of(row.strategy)
    names = set(row.models.values())
    models: Sequence[str] = sorted(names) if len(names) == 1 else [f"{p}={name}" for p, name in row.models.items()]
    words = ["--strategy", name, *(word for key, value in options.items() for word in ("--set", f"{key}={value}"))]
    words += [word for model in models for word in ("--model", model)]
    return f'plait run "..." {shlex.join(words)}'


def as_object(advice: Advice) -> dict[str, Any]:
    """Everything as one object; numbers with every digit."""
    chosen, runner_up = advice.chosen, advice.runner_up
    return {
        **_source(advice),
        "chosen": _row(chosen) if chosen is not None else None,
        "runner_up": _row(runner_up) if runner_up is not None else None,
        "cheaper": [_row(each) for each in advice.cheaper],
        "nearest": {part: _row(each) for part, each in advice.nearest.items()},
        "thin": advice.thin,
        "more_tasks": advice.more_tasks,
        "candidates": [_row(each) for each in advice.candidates],
        "unfinished": advice.unfinished,
        "text": sentences(advice),
        "command": command(chosen.row) if chosen is not None else None,
    }


def as_record(advice: Advice) -> dict[str, Any]:
    """What a run's settings keep of the advice that its loop was chosen by."""
    assert advice.chosen is not None
    row = advice.chosen.row
    return {**_source(advice), "strategy": row.strategy, "models": row.models, "sure": advice.chosen.sure}


def _source(advice: Advice) -> dict[str, Any]:
    return {
        "results": {"name": advice.name, "suite": advice.suite, "digest": advice.digest},
        "demand": to_builtins(advice.demand),
    }


def _row(each: Candidate) -> dict[str, Any]:
    shown = {**to_builtins(each.row), "success": each.row.success, "sure": each.sure, "misses": list(each.misses)}
    return {**shown, "unusable": each.unusable} if each.unusable else shown


def _thin(advice: Advice, chosen: Candidate) -> str:
    _, tries = chosen.row.evidence
    said = f"This is thin evidence: {tries} task{'' if tries == 1 else 's'}."
    if advice.more_tasks is None:
        more = "no number of tasks would make it 95 % sure, if the share stays as it is"
        return f"{said} It is hardly above what is asked: {more}."
    if advice.more_tasks == 0:
        return said
    return f"{said} About {_rough(advice.more_tasks)} more would make it 95 % sure, if the share stays as it is."


def _rough(number: int) -> str:
    """Two digits are as much as is known."""
    unit = 10 ** max(0, len(str(number)) - 2)
    return f"{-(-number // unit) * unit:,}"
