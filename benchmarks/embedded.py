"""How often each loop answers right with the embedded models, as they are.

    python benchmarks/embedded.py                          the table of benchmarks/results/embedded.md
    python benchmarks/embedded.py --split tuning --loops react --models local
    python benchmarks/embedded.py --out runs.jsonl       a line a task as well; what is there is not run again

Tasks of one to three steps over a table of made-up facts and the calculator. The `report` split is what is
published; prompts are tuned on `tuning` only. Each run is on the record in --journal.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import plait

HERE = Path(__file__).parent / "tasks"
HEAD = """\
| model | loop | answered right | of 1 / 2 / 3 steps | right when stopped | fell back | calls | tokens | median s |
|---|---|---|---|---|---|---|---|---|"""
LOOPS = {
    "react": plait.ReAct(),
    "react grammar": plait.ReAct(constrain=True),
    "react lines": plait.ReAct(dialect="lines"),
    "react numbered": plait.ReAct(dialect="numbered"),
    "react user": plait.ReAct(transcript="user"),
    "react completion": plait.ReAct(transcript="completion"),
    "json": plait.JsonReAct(),
    "json schema": plait.JsonReAct(constrain=True),
    "rewoo": plait.ReWOO(),
    "compiler": plait.LLMCompiler(),
    "phased": plait.Phased(),
    "phased 3 rounds": plait.Phased(rounds=3),
    "tool_calling": plait.ToolCalling(),
    "codeact": plait.CodeAct(),
    "codeact search": plait.CodeAct(),  # for its tools, where two are told at once
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


def measured(loop: str, model: str, task: dict[str, Any], options: argparse.Namespace, table: Path) -> dict[str, Any]:
    """One run, as a line of the results."""
    agent = plait.Agent(
        LOOPS[loop],
        model=model,
        tools=[f"lookup:{table}", "calculator"],
        can_ask=False,
        journal=options.journal,
        prompts=options.prompts,
        limits=plait.Limits(steps=8, tools=0 if loop == "codeact search" else None),
    )
    run = agent.run(task["question"])
    holds = run.answer is not None and correct(run.answer, task["answer"])
    if options.verbose and not (run.status == "answered" and holds):
        print(f"  wrong: {task['question']} -> {run.status} {run.answer!r} {run.reason} ({run.id})", flush=True)
    return {
        "model": model,
        "loop": loop,
        "split": options.split,
        "question": task["question"],
        "steps": task["steps"],
        "status": run.status,
        "answer": run.answer,
        "right": run.status == "answered" and holds,
        "right_when_stopped": run.status == "stopped" and holds,
        "fell_back": any("." in spent.phase for spent in run.phases),
        "calls": run.calls,
        "tokens": run.usage.tokens,
        "cached": run.usage.cached_tokens,
        "seconds": round(run.seconds, 1),
        "run": run.id,
    }


def row(lines: list[dict[str, Any]]) -> str:
    """One row of the table."""
    count = len(lines)
    by_steps = " / ".join(
        f"{sum(each['right'] for each in lines if each['steps'] == k)} of {sum(each['steps'] == k for each in lines)}"
        for k in (1, 2, 3)
    )
    cells = [
        lines[0]["model"],
        lines[0]["loop"],
        f"{sum(each['right'] for each in lines)} of {count}",
        by_steps,
        str(sum(each["right_when_stopped"] for each in lines)),
        str(sum(each["fell_back"] for each in lines)),
        f"{sum(each['calls'] for each in lines) / count:.1f}",
        f"{sum(each['tokens'] for each in lines) / count:,.0f}",
        f"{statistics.median(each['seconds'] for each in lines):.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def against_react(done: dict[tuple[str, str, str], dict[str, Any]], model: str, loops: list[str]) -> Iterator[str]:
    """Each loop's tokens beside those of react, on all tasks and on those that both answered right."""
    for loop in loops:
        pairs = [(line, done.get((model, "react", line["question"]))) for key, line in done.items() if key[1] == loop]
        both = [(line, react) for line, react in pairs if react is not None and line["model"] == model]
        right = [(line, react) for line, react in both if line["right"] and react["right"]]
        if loop == "react" or not both:
            continue
        said = []
        for name, part in (("all", both), ("both right", right)):
            if part:
                ratio = sum(a["tokens"] for a, _ in part) / sum(b["tokens"] for _, b in part)
                said.append(f"{ratio:.2f} ({name}, {len(part)} tasks)")
        yield f"{model}, {loop}: tokens against react {', '.join(said)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--split", choices=["report", "tuning"], default="report")
    parser.add_argument("--loops", default=",".join(LOOPS))
    parser.add_argument("--models", default="local,local:qwen2.5-coder-0.5b")
    parser.add_argument("--journal", default="benchmarks.db")
    parser.add_argument("--prompts", help="a folder of prompts to try in place of ours")
    parser.add_argument("--out", type=Path, help="write a line of JSON a task, and go on with what is there")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    table = HERE / ("facts.json" if options.split == "report" else "tuning.json")
    tasks = [json.loads(line) for line in (HERE / f"{options.split}.jsonl").read_text().splitlines()]
    models, loops = options.models.split(","), options.loops.split(",")
    done: dict[tuple[str, str, str], dict[str, Any]] = {}
    if options.out and options.out.exists():
        lines = [json.loads(line) for line in options.out.read_text().splitlines()]
        done = {(each["model"], each["loop"], each["question"]): each for each in lines}
    print(f"{len(tasks)} tasks of the {options.split} split\n\n{HEAD}", flush=True)
    for model in models:
        for loop in loops:
            for task in tasks:
                key = (model, loop, task["question"])
                if key not in done:
                    done[key] = measured(loop, model, task, options, table)
                    if options.out:
                        with options.out.open("a") as file:
                            file.write(json.dumps(done[key]) + "\n")
            print(row([done[model, loop, task["question"]] for task in tasks]), flush=True)
    print()
    for model in models:
        print("\n".join(against_react(done, model, loops)))


if __name__ == "__main__":
    main()
