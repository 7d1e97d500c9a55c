"""`plait.compare`: the same tasks through every loop and model, in one comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from plait.agent import Agent
from plait.core import Event, Loop
from plait.core.errors import ConfigError
from plait.journal.results import Results
from plait.journal.store import Journal, wait_for
from plait.lab.cells import NOT_MEASURED, read_result
from plait.lab.comparison import Comparison, Contender, NotMeasured
from plait.lab.graders import load_grader
from plait.lab.plan import AnyModel, make_plan, make_variants
from plait.lab.schedule import OnProgress, Scheduler
from plait.lab.suites import make_suite
from plait.lab.tasks import Suite, SuiteTask
from plait.lab.workers import CellWorkers
from plait.models.settings import NO_SETTINGS, AgentSettings
from plait.runtime.background import run_blocking
from plait.runtime.recorded_events import make_events, recorded_loop


def compare(suite: str | Suite | Iterable[SuiteTask | Mapping[str, Any]], **options: Any) -> Comparison:
    """Run tasks through loops and models, blocking. `acompare` describes the options."""
    return run_blocking(acompare(suite, **options))


async def acompare(
    suite: str | Suite | Iterable[SuiteTask | Mapping[str, Any]],
    *,
    loops: Iterable[str | Loop] | str | None = None,
    models: Iterable[AnyModel] | AnyModel | None = None,
    phases: Mapping[str, Iterable[AnyModel] | AnyModel] | None = None,
    rows: Iterable[Mapping[str, AnyModel]] | None = None,
    settings: Iterable[AgentSettings] | AgentSettings = NO_SETTINGS,
    agents: Mapping[str, Agent] | Iterable[Agent] | Agent = (),
    texts: Mapping[str, Mapping[str, Any]] | None = None,
    tools: Iterable[object] = (),
    repeat: int = 1,
    limit: int | None = None,
    jobs: int = 1,
    budget: float | None = None,
    name: str = "",
    again: bool = False,
    journal: str | Path | None = None,
    workers: CellWorkers | None = None,
    tell: OnProgress = lambda _: None,
    **fields: Any,
) -> Comparison:
    """Run tasks through loops and models, and return the comparison with everything that could be finished.

    `suite`: its word (`basics:report`, `tasks.jsonl`), a `Suite`, or tasks: values, or mappings as a line of a file has
    them. `loops`: "all" (the default if there are no agents), words such as `react(dialect=lines)`, loops. `agents` are
    compared with their own loops, or each with all `loops`. They keep their tools, settings and, without `models`,
    their models; a mapping names them. `texts` maps names to other prompts: `{"short": {"instructions": "Be brief."}}`,
    with the fields `prompts`, `system` and `instructions`; each is compared. `models` are for all phases; `phases` maps
    a phase to models of its own, and every combination is compared; `rows` are the wanted combinations only, each a
    mapping of phases to models. `settings` are those of the models, as `Agent.settings` has them; of several, each is
    compared. `tools` are for every task, in addition to the suite's. Each task runs `repeat` times, only the first
    `limit` tasks, `jobs` runs at once. No run starts once `budget` USD are spent, or when the average run would exceed
    it. The `journal` stores runs, results and the table; finished cells do not run again, unless `again`. Several
    processes that compare the same in one journal share the cells; `workers` starts some, in place of this one.
    `fields` are those of `Agent` for the loops: limits, prompts, sandbox ...

    Cancelling it cancels the current runs. Raises `ConfigError` for invalid options before anything runs.
    """
    if jobs < 1:
        raise ConfigError(f"{jobs} runs at once are not possible.", hint="Give jobs=1 or more.")
    whole = make_suite(suite).first(limit)
    if loops is None:
        loops = () if agents else "all"
    variants = make_variants(loops, models, phases, rows, settings, agents, texts)
    for field in ("loop", "model", "models", "can_ask"):
        if field in fields:
            raise ConfigError(f"{field} is not a setting of a comparison.", hint="See loops, models and phases.")
    template = Agent(variants[0].loop, journal=journal, can_ask=False, **{"grounding": "note", **fields})
    if template.journal is False:
        raise ConfigError("A comparison needs a journal: it is where results are kept.", hint="Leave journal out.")
    plan = make_plan(whole, variants, repeat=repeat, name=name, agent=template, tools=tuple(tools))
    graders = {word: load_grader(word, journal=journal) for word in dict.fromkeys(cell.grader for cell in plan.cells)}
    results = Results(Journal.at(journal).store)
    if again:
        await results.forget(cell.digest for cell in plan.cells)
    await results.save(plan.name, plan.head())
    scheduler = Scheduler(plan, results, graders, jobs, budget, tell)
    unfinished = await (scheduler.run() if workers is None else workers.run(scheduler))
    made = await _read_comparison(plan.name, plan.head(), results, unfinished)
    table = {"rows": msgspec.to_builtins(made.rows), "pairs": msgspec.to_builtins(made.pairs)}
    await results.save(plan.name, plan.head(), {**table, "unfinished": made.unfinished})
    return made


def load_comparison(name: str, journal: str | Path | None = None) -> Comparison:
    """Load a comparison from the journal by its name or the beginning of it; "last" is the newest.

    Raises `ConfigError` if there is none.
    """
    results = Results(Journal.at(journal).store)
    row = wait_for(results.find_comparison(name))
    unfinished = str((row.summary or {}).get("unfinished", ""))
    return wait_for(_read_comparison(row.name, row.head, results, unfinished))


def events_reader(comparison: Comparison) -> Callable[[str], list[Event]]:
    """Return a function that reads a run's events by its id from the comparison's journal. It raises `JournalError`."""
    journal = Journal.at(comparison.journal)
    return lambda run: make_events(journal.timeline(run, bodies=False), recorded_loop(journal.head(run)))


async def _read_comparison(name: str, head: Mapping[str, Any], results: Results, unfinished: str) -> Comparison:
    """Read a comparison from its head (see `ComparisonPlan.head`) and the results in the journal."""
    suite = msgspec.convert(head["suite"], Suite)
    contenders = msgspec.convert(head["contenders"], tuple[Contender, ...])
    repeat, cells = int(head["repeat"]), head["cells"]
    done = await results.read(cells)
    tried = await results.find_runs(cell for cell in cells if cell not in done)
    found, not_measured = [], []
    for at, cell in enumerate(cells):
        key = contenders[at // (len(suite.tasks) * repeat)].key
        task = suite.tasks[at // repeat % len(suite.tasks)].id
        if cell in done:
            # It may have been finished in another comparison, or as an equal task, where these had other names.
            result = read_result(done[cell])
            found.append(msgspec.structs.replace(result, variant=key, task=task, repeat=at % repeat))
        elif cell in tried and (tried[cell][0].outcome or {}).get("error") in NOT_MEASURED:
            run, outcome = tried[cell][0], tried[cell][0].outcome or {}
            not_measured.append(
                NotMeasured(
                    variant=key,
                    task=task,
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
        journal=results.store.place,
        unfinished=unfinished if len(found) < len(cells) else "",
    )
