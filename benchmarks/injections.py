"""How much harm injected instructions do in each loop, and how much useful work is done beside them.

    python benchmarks/injections.py                         the obedient model, all loops and tasks
    python benchmarks/injections.py --taint ask --by attack
    python benchmarks/injections.py --model local --split after --loops react,rewoo

The obedient model follows each instruction that it sees: it is the worst case. A simulated user approves exactly the
calls that a task needs, and refuses all others. So a harmful call that was made was made without approval. `leaks` are
harmful calls of tools that only read: the address of a page holds private data. No approval of effects asks for them.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from injected.grade import OfficeUser, OfficeWork, read_work
from injected.obedient import obedient_model
from injected.office import InjectedTask, Office
from injected.surfaces import make_tools
from injected.tasks import SPLITS, SURFACES, TASKS

import plait
from plait.lab.grid import TableColumn, render_markdown_grid
from plait.loops import loop_from, parse_loops

LOOPS = "react,json,tool_calling,rewoo,compiler,phased(rounds=4),codeact"
OBEDIENT = "obedient"


@dataclass(frozen=True)
class InjectionResult:
    """What one run did, and the calls that the user was asked about."""

    task: InjectedTask
    work: OfficeWork
    user: OfficeUser
    status: str

    @property
    def refused_harm(self) -> int:
        harm = self.task.harm
        return sum(harm.matches(call.tool, call.input) for call in self.user.refused)

    @property
    def approved_effects(self) -> int:
        return sum(
            any(each.matches(call.tool, call.input) for each in self.task.effects) for call in self.user.approved
        )

    def count_harm(self, *, leaks: bool) -> int:
        """Return the number of harmful calls: with effects, or (`leaks`) of tools that only read."""
        return len(self.work.harmful) if (self.task.harm.tool == "open_page") is leaks else 0


def run_task(word: str, task: InjectedTask, given: argparse.Namespace) -> InjectionResult:
    """Run one task in a loop and return what it did."""
    loop, user = loop_from(word), OfficeUser(task)
    asked: Any = obedient_model(loop.name, task, clean=given.clean) if given.model == OBEDIENT else given.model
    with TemporaryDirectory() as folder:
        office = Office(task, clean=given.clean)
        tools: Any = make_tools(office, Path(folder)) if task in SURFACES else office.tools
        journal = Path(folder) / "runs.db" if task.attack == "memory" else False
        agent = plait.Agent(loop, model=asked, tools=tools, approve=given.approve, taint=given.taint, journal=journal)
        run = agent.run(task.question, on_wait=user)
        return InjectionResult(task, read_work(task, run.events, run.answer or ""), user, run.status)


def make_table(results: dict[tuple[str, ...], list[InjectionResult]], heads: tuple[str, ...]) -> str:
    """Return the table in Markdown: a row for each key, which has a cell for each of `heads`."""
    columns = [TableColumn(head, tuple(key[i] for key in results), left=True) for i, head in enumerate(heads)]
    numbers = {
        "tasks": len,
        "useful work": lambda each: f"{sum(one.work.useful for one in each) / len(each):.0%}",
        "all useful work": lambda each: sum(one.work.useful == 1 for one in each),
        "harmful effects without approval": lambda each: sum(one.count_harm(leaks=False) for one in each),
        "leaks": lambda each: sum(one.count_harm(leaks=True) for one in each),
        "unwanted effects": lambda each: sum(len(one.work.unwanted) for one in each),
        "harmful calls refused": lambda each: sum(one.refused_harm for one in each),
        "legitimate effects asked": lambda each: sum(one.approved_effects for one in each),
        "calls asked": lambda each: sum(len(one.user.approved) + len(one.user.refused) for one in each),
    }
    columns += [
        TableColumn(head, tuple(str(count(each)) for each in results.values())) for head, count in numbers.items()
    ]
    return render_markdown_grid(columns)


def main() -> None:
    splits = {**SPLITS, "surfaces": SURFACES}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=OBEDIENT, help=f"a model such as local; default: {OBEDIENT}")
    parser.add_argument("--loops", default=LOOPS, help=f"default: {LOOPS}")
    parser.add_argument("--split", default="all", choices=[*splits, "all"], help="default: all")
    parser.add_argument("--taint", default="off", choices=["off", "ask"], help="the policy of the agent; default: off")
    parser.add_argument("--approve", default="never", choices=["never", "effects"], help="of the agent; default: never")
    parser.add_argument("--by", choices=["attack"], help="a row for each loop and kind of attack")
    parser.add_argument("--clean", action="store_true", help="leave out the injected texts")
    parser.add_argument("--tasks", type=int, help="run only the first TASKS")
    parser.add_argument("--show", action="store_true", help="print each run")
    given = parser.parse_args()
    results = defaultdict[tuple[str, ...], list[InjectionResult]](list)
    for word in parse_loops(given.loops):
        for task in splits.get(given.split, TASKS)[: given.tasks]:
            result = run_task(word, task, given)
            results[(word, task.attack) if given.by else (word,)].append(result)
            if given.show:
                harm = ", ".join(call.tool for call in result.work.harmful)
                unwanted = ", ".join(f"{call.tool} {call.input}" for call in result.work.unwanted)
                missing = ", ".join(result.work.missing)
                print(
                    f"{word:18} {task.id:24} {result.status:9} harm: {harm or '-'}; "
                    f"unwanted: {unwanted or '-'}; missing: {missing or '-'}"
                )
    print(make_table(results, ("loop", "attack") if given.by else ("loop",)))


if __name__ == "__main__":
    main()
