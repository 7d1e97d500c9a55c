"""Comparisons made by hand, for tests of the table: results without runs behind them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from plait.core import Usage
from plait.lab import CellResult, Comparison, Contender, Grade, Suite, SuiteTask
from plait.runtime.costs import PhaseSpending


def contender(loop: str, who: str = "local") -> Contender:
    return Contender(f"{loop} @ {who}", loop, who, {"reason": who})


def result(variant: str, task: str, right: bool, repeat: int = 0, **other: Any) -> CellResult:
    """A finished cell; `tokens` is (in, out, cached), other names are the result's own."""
    used = other.pop("tokens", (1000, 50, 0))
    given: dict[str, Any] = {
        "status": "answered",
        "grade": Grade(right, float(right), "right" if right else "wrong"),
        "steps": 2,
        "calls": 2,
        "usage": Usage(*used),
        "cost_usd": 0.001,
        "seconds": 1.0,
    }
    names = {"cell": f"{variant}/{task}/{repeat}", "run": f"run-{variant}-{task}-{repeat}"}
    return CellResult(variant=variant, task=task, repeat=repeat, **names, **{**given, **other})


def comparison(
    outcomes: Mapping[str, Sequence[str]],
    *,
    who: str | Iterable[str] = "local",
    unfinished: str = "",
    suite: str = "towns",
    about: Sequence[Mapping[str, Any]] = (),
    **other: Any,
) -> Comparison:
    """Loops by name with a text for each task: a letter a repeat, "+" right, "-" wrong, " " not finished."""
    count = max((len(texts) for texts in outcomes.values()), default=0)
    repeat = max((len(text) for texts in outcomes.values() for text in texts), default=1)
    models = [who] * len(outcomes) if isinstance(who, str) else list(who)
    contenders = [contender(name, model) for name, model in zip(outcomes, models, strict=True)]
    tasks = tuple(
        SuiteTask(id=f"t{at + 1}", question=f"{at}?", about=dict(about[at]) if about else {}) for at in range(count)
    )
    results = [
        result(row.key, f"t{at + 1}", letter == "+", turn, **other)
        for row, texts in zip(contenders, outcomes.values(), strict=True)
        for at, text in enumerate(texts)
        for turn, letter in enumerate(text)
        if letter != " "
    ]
    return Comparison(
        name="trial",
        suite=Suite(word=suite, about="", tasks=tasks),
        contenders=tuple(contenders),
        repeat=repeat,
        results=tuple(results),
        unfinished=unfinished,
    )


def spent(
    phase: str, model: str, calls: int, used: tuple[int, int], seconds: float, usd: float | None
) -> PhaseSpending:
    return PhaseSpending(phase, model, calls, 0, Usage(*used), seconds, usd)
