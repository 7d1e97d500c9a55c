"""How often each loop answers right with the embedded models, as they are.

    python benchmarks/embedded.py                          the table of benchmarks/results/embedded.md
    python benchmarks/embedded.py --split tuning --loops react --models local

Tasks of one to three steps over a table of made-up facts and the calculator. The `report` split is what is
published; prompts are tuned on `tuning` only. Each run is on the record in --journal.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from pathlib import Path

import plait

HERE = Path(__file__).parent / "tasks"
LOOPS = {
    "react": plait.React(),
    "react grammar": plait.React(constrain=True),
    "react lines": plait.React(dialect="lines"),
    "react numbered": plait.React(dialect="numbered"),
    "react user": plait.React(transcript="user"),
    "react completion": plait.React(transcript="completion"),
    "json": plait.JsonReact(),
    "json schema": plait.JsonReact(constrain=True),
}


def correct(answer: object, gold: str) -> bool:
    """The gold number (within 0.5 per cent of a per cent) or text stands in the answer."""
    text = answer if isinstance(answer, str) else json.dumps(answer)
    try:
        wanted = float(gold)
    except ValueError:
        return gold.lower() in text.lower()
    numbers = [float(n.replace(",", "")) for n in re.findall(r"-?\d[\d,]*(?:\.\d+)?", text)]
    return any(abs(number - wanted) <= 5e-5 * abs(wanted) for number in numbers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--split", choices=["report", "tuning"], default="report")
    parser.add_argument("--loops", default=",".join(LOOPS))
    parser.add_argument("--models", default="local,local:qwen2.5-coder-0.5b")
    parser.add_argument("--journal", default="benchmarks.db")
    parser.add_argument("--prompts", help="a folder of prompts to try in place of ours")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    table = HERE / ("facts.json" if options.split == "report" else "tuning.json")
    tasks = [json.loads(line) for line in (HERE / f"{options.split}.jsonl").read_text().splitlines()]
    print(f"{len(tasks)} tasks of the {options.split} split\n")
    print("| model | loop | answered right | of 1 / 2 / 3 steps | calls a task | tokens a task | seconds a task |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for model in options.models.split(","):
        for loop in options.loops.split(","):
            agent = plait.Agent(
                LOOPS[loop],
                model=model,
                tools=[f"lookup:{table}", "calculator"],
                limits=plait.Limits(steps=8),
                can_ask=False,
                journal=options.journal,
                prompts=options.prompts,
            )
            right: list[tuple[int, bool]] = []
            calls = tokens = 0
            began = time.perf_counter()
            for task in tasks:
                run = agent.run(task["question"])
                good = run.status == "answered" and correct(run.answer, task["answer"])
                right.append((task["steps"], good))
                calls += run.calls
                tokens += run.usage.tokens
                if options.verbose and not good:
                    print(f"  wrong: {task['question']} -> {run.status} {run.answer!r} {run.reason} ({run.run})")
            seconds = time.perf_counter() - began
            by_steps = " / ".join(
                f"{sum(g for s, g in right if s == k)} of {sum(1 for s, _ in right if s == k)}" for k in (1, 2, 3)
            )
            count = len(tasks)
            print(
                f"| {model} | {loop} | {sum(g for _, g in right)} of {count} | {by_steps} "
                f"| {calls / count:.1f} | {tokens / count:,.0f} | {seconds / count:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
