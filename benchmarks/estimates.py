"""What plans were expected to take against what they took: `python benchmarks/estimates.py JOURNAL`.

For each answered run of `rewoo` in a journal: the estimate is made anew from its plan alone, without the run's
evidence, and held against the calls and tokens of its phases `work` and `solve`. Once with what is assumed where
nothing was seen before ("first"), once with the lengths of the results and replies of all other runs there ("later").
"""

from __future__ import annotations

import statistics
import sys

from plait.core import Plan, Task
from plait.core.errors import PlaitError
from plait.journal.store import Journal
from plait.loops.rewoo.loop import ReWOO
from plait.runtime.costs import spending
from plait.runtime.phase_models import Phases
from plait.runtime.planning.plan_estimate import Expected, Seen, estimate_plan, seen_of
from plait.runtime.planning.plans import kit_of, recorded_plan


def main(path: str) -> None:
    """Print a line a run, and the ratios of all."""
    journal = Journal(path)
    runs = [run for run in journal.runs(1000) if run.head.loop["name"] == "rewoo" and run.status == "answered"]
    timelines = {run.head.run: journal.timeline(run.head.run) for run in runs}
    found: dict[str, list[tuple[Expected, int, int, int]]] = {"first": [], "later": []}
    for run in runs:
        spent = spending(timelines[run.head.run])
        if not any(row.phase == "solve" for row in spent):
            continue  # it fell back to another loop, or only planned
        try:
            plan = Plan(recorded_plan(run.head, timelines[run.head.run]).steps)
        except PlaitError as why:
            print(f"{run.head.run}: {why}")
            continue
        took = [row for row in spent if row.phase in ("work", "solve")]
        calls, read, written = (
            sum(row.calls for row in took),
            sum(row.usage.input_tokens for row in took),
            sum(row.usage.output_tokens for row in took),
        )
        others = [(each.head, timelines[each.head.run]) for each in runs if each is not run]
        task, context = Task(run.head.question, run.head.history), kit_of(run.head)
        for name, seen in (("first", Seen()), ("later", seen_of(others, "rewoo"))):
            asked = Phases({"": _Asked(run.head.models)})  # type: ignore[dict-item]
            expected = estimate_plan(ReWOO(), context, task, plan, asked, timelines[run.head.run], seen)
            found[name].append((expected, calls, read, written))
        first, later = found["first"][-1][0].usual, found["later"][-1][0].usual
        print(
            f"{run.head.run}: {calls} calls, {read} + {written} tokens; expected {found['first'][-1][0].calls} calls,"
            f" {first.input_tokens} + {first.output_tokens}, later {later.input_tokens} + {later.output_tokens}"
        )
    for name, all_ in found.items():
        if all_:
            _ratios(name, all_)


class _Asked:
    """The model as it was named in the record: nothing is asked of it here."""

    def __init__(self, models: dict[str, dict[str, object]]) -> None:
        from plait.models.prices import UNKNOWN

        self.spec, self.rate = str(next(iter(models.values()))["spec"]), UNKNOWN


def _ratios(name: str, runs: list[tuple[Expected, int, int, int]]) -> None:
    """Expected over actual: of the sums, and the median run; and how many lie in the range."""
    read = [(each.usual.input_tokens, took) for each, _, took, _ in runs]
    written = [(each.usual.output_tokens, took) for each, _, _, took in runs]
    inside = sum(each.low.input_tokens <= took <= each.high.input_tokens for each, _, took, _ in runs)
    exact = sum(each.calls == calls for each, calls, _, _ in runs)
    print(
        f"{name}: {len(runs)} runs; calls exact in {exact};"
        f" input {sum(a for a, _ in read) / sum(b for _, b in read):.2f}"
        f" (median {statistics.median(a / b for a, b in read):.2f}), in the range {inside};"
        f" output {sum(a for a, _ in written) / max(1, sum(b for _, b in written)):.2f}"
    )


if __name__ == "__main__":
    main(sys.argv[1])
