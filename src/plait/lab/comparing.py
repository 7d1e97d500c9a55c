"""`plait.compare`: the same tasks through every loop and model, in one comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from plait.agent import Agent
from plait.core import Event, Strategy
from plait.core.errors import JournalError, UsageError
from plait.journal.results import Results
from plait.journal.store import Journal
from plait.lab import performing, running
from plait.lab.base import Grader, Suite, Task
from plait.lab.comparison import Comparison, Contender, NotMeasured
from plait.lab.planning import Wanted, plan
from plait.lab.running import Engine, Here, Tell
from plait.lab.variants import AnyModel, variants
from plait.runtime.background import run_blocking
from plait.runtime.retell import recorded_loop, retell


def compare(suite: str | Suite | Iterable[Task | Mapping[str, Any]], **options: Any) -> Comparison:
    """Run tasks through loops and models, blocking; see `acompare` for what can be said."""
    return run_blocking(acompare(suite, **options))


async def acompare(
    suite: str | Suite | Iterable[Task | Mapping[str, Any]],
    *,
    strategies: Iterable[str | Strategy] | str = "all",
    models: Iterable[AnyModel] | AnyModel = "local",
    phases: Mapping[str, Iterable[AnyModel] | AnyModel] | None = None,
    tools: Iterable[Any] = (),
    repeat: int = 1,
    limit: int | None = None,
    jobs: int = 1,
    budget: float | None = None,
    name: str = "",
    again: bool = False,
    journal: str | Path | None = None,
    engine: Engine | None = None,
    tell: Tell = lambda _: None,
    **settings: Any,
) -> Comparison:
    """The comparison, with all that could be finished.

    `suite`: its word (`basics:report`, `tasks.jsonl`), a `Suite`, or tasks, as values or as a line of a file has
    them. `strategies`: "all", words such as `react(dialect=lines)`, loops. `models` are for all phases; `phases`
    maps a phase to models of its own, and each combination is compared. `tools` are for every task, beside the
    suite's. Each task is run `repeat` times, the first `limit` tasks only; `jobs` runs at once; no run begins when
    `budget` USD are spent, or would be by what runs cost on average. Runs, results and the table are kept in the
    `journal`: what is finished there is not run again, unless `again`. `settings` are fields of `Agent`: limits,
    prompts, sandbox, show_tools ...

    Cancelling it cancels what is going on. Raises `UsageError` for what can't be run, before anything is.
    """
    if jobs < 1:
        raise UsageError(f"{jobs} runs at once are none.", hint="Give jobs=1 or more.")
    whole = suite_of(suite).first(limit)
    chosen = variants(strategies, models, phases)
    for field in ("strategy", "model", "models", "now", "can_ask"):
        if field in settings:
            raise UsageError(f"{field} is no setting of a comparison.", hint="See strategies, models and phases.")
    template = Agent(chosen[0].loop, journal=journal, can_ask=False, **{"provenance": "note", **settings})
    if template.journal is False:
        raise UsageError("A comparison needs a journal: it is where results are kept.", hint="Leave journal out.")
    wanted = plan(whole, chosen, repeat=repeat, name=name, agent=template, tools=tools)
    judges = graders_of(wanted, journal)
    kept = Journal.at(journal)
    results = Results(kept)
    if again:
        await results.forget(cell.digest for cell in wanted.cells)
    await results.save(wanted.name, wanted.head())
    engine = engine or Here(judges)
    why = await running.run(wanted, kept, engine, jobs=jobs, budget=budget, tell=tell)
    found = of(wanted, results, why)
    await results.save(wanted.name, wanted.head(), summary(found))
    return found


def of(wanted: Wanted, results: Results, unfinished: str = "") -> Comparison:
    """A comparison from what is on the record."""
    return _recorded(wanted.name, wanted.head(), results, unfinished)


def kept(name: str, journal: str | Path | None = None) -> Comparison:
    """A comparison in the journal, by its name or the beginning of one; "last" is the newest. Raises `UsageError`."""
    results = Results(Journal.at(journal))
    row = results.comparison(name)
    return _recorded(row.name, row.head, results, str((row.summary or {}).get("unfinished", "")))


def _recorded(name: str, head: Mapping[str, Any], results: Results, unfinished: str = "") -> Comparison:
    """A comparison from its head (see `Wanted.head`), with the results that are on the record."""
    suite = msgspec.convert(head["suite"], Suite)
    contenders = msgspec.convert(head["contenders"], tuple[Contender, ...])
    repeat, cells = int(head["repeat"]), head["cells"]
    done = results.results(cells)
    tried = results.runs(cell for cell in cells if cell not in done)
    found, not_measured = [], []
    for at, cell in enumerate(cells):
        contender = contenders[at // (len(suite.tasks) * repeat)]
        if cell in done:
            # The cell may have been finished in another comparison, where its contender had another name.
            found.append(msgspec.structs.replace(performing.read(done[cell]), variant=contender.key))
        elif cell in tried and (tried[cell][0].outcome or {}).get("error") in performing.NOT_MEASURED:
            run, outcome = tried[cell][0], tried[cell][0].outcome or {}
            not_measured.append(
                NotMeasured(
                    variant=contender.key,
                    task=suite.tasks[at // repeat % len(suite.tasks)].id,
                    repeat=at % repeat,
                    run=run.head.run,
                    error=outcome["error"],
                    reason=outcome.get("reason", ""),
                )
            )
    return Comparison(
        name=name,
        suite=suite,
        contenders=contenders,
        repeat=repeat,
        results=tuple(found),
        not_measured=tuple(not_measured),
        journal=str(results.journal.path),
        unfinished=unfinished if len(found) < len(cells) else "",
    )


def record_of(comparison: Comparison) -> Callable[[str], list[Event] | None]:
    """What gives a run's events by its id, read from the comparison's journal; None where they can't be."""
    journal = Journal.at(comparison.journal)

    def events(run: str) -> list[Event] | None:
        try:
            head, rows = journal.head(run), journal.rows(run)
        except JournalError:
            return None
        return retell(rows, recorded_loop(head))

    return events


def suite_of(given: str | Suite | Iterable[Task | Mapping[str, Any]]) -> Suite:
    """A suite from its word, from tasks, or as it is."""
    if isinstance(given, Suite):
        return given
    from plait.lab.suites import suite

    if isinstance(given, str):
        return suite(given)
    tasks = [each if isinstance(each, Task) else _task(each, number) for number, each in enumerate(given, 1)]
    return Suite(word="tasks", about="tasks given in Python", tasks=tuple(tasks))


def summary(comparison: Comparison) -> dict[str, Any]:
    """What the journal keeps of the table."""
    from plait.lab.table import pairs, rows

    return {
        "rows": [row.json() for row in rows(comparison)],
        "pairs": [pair.json() for pair in pairs(comparison)],
        "unfinished": comparison.unfinished,
    }


def _task(given: Mapping[str, Any], number: int) -> Task:
    from plait.lab.loaders.files import Entry
    from plait.lab.loaders.plain import task_of

    return task_of(Entry(f"task {number}", number, dict(given)))


def graders_of(wanted: Wanted, journal: str | Path | None) -> dict[str, Grader]:
    """The graders of all cells by their words, each made once. Raises `UsageError` before anything is run."""
    from plait.lab.graders import grader

    return {word: grader(word, journal=journal) for word in dict.fromkeys(cell.grader for cell in wanted.cells)}
