"""Plans written from MuSiQue's gold decompositions: every reference is replaced by the gold answer it stands for."""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import plait
from conftest import data_file
from journal_rows import is_request
from plait.core import Plan, Step
from plait.loops.plan_text import read_plan_file, write_plan
from plait.loops.references import EVIDENCE


def gold_questions(hops: list[dict[str, Any]]) -> list[str]:
    """Each hop's question with the gold answers of the hops it names, by MuSiQue's own rule: `#1` is hop 1."""
    answers = [hop["answer"] for hop in hops]
    return [re.sub(r"#(\d+)", lambda match: answers[int(match[1]) - 1], hop["question"]) for hop in hops]


def test_every_hop_of_musique_is_asked_with_the_gold_sub_answers_in_it(journal: Path) -> None:
    with gzip.open(data_file("multihop", "musique100.jsonl.gz"), "rt", encoding="utf-8") as lines:
        tasks = [json.loads(line) for line in lines]
    plans: dict[str, str] = {}
    gold: dict[str, list[tuple[str, str]]] = {}
    answers: dict[str, dict[str, str]] = defaultdict(dict)
    references = 0
    for task in tasks:
        hops = task["question_decomposition"]
        steps = []
        for n, hop in enumerate(hops, 1):
            given = re.sub(r"#(\d+)", r"#E\1", hop["question"])
            references += len(EVIDENCE.find_ids(given))
            steps.append(Step(f"E{n}", "answer", given, f"Hop {n}.", EVIDENCE.find_ids(given)))
        plans[task["question"]] = write_plan(Plan(tuple(steps)))
        asked = gold_questions(hops)
        gold[task["question"]] = [(question, hop["answer"]) for question, hop in zip(asked, hops, strict=True)]
        for question, hop in zip(asked, hops, strict=True):
            assert answers[task["question"]].setdefault(question, hop["answer"]) == hop["answer"]

    right = sent = 0
    for task in tasks:
        known = answers[task["question"]]

        @plait.tool(read_only=True)
        async def answer(question: str, known: dict[str, str] | None = known) -> str:
            """Answers one question."""
            return (known or {})[question]

        def solve(think: Any) -> str:
            return str(re.findall(r"^Evidence: (.*)$", think.messages[-1].content, re.M)[-1])

        scripts = {"plan": [plans[task["question"]]], "solve": [solve]}
        agent = plait.Agent("rewoo", model=plait.Scripted(scripts), tools=[answer], journal=journal)
        run = agent.run(task["question"])
        assert (run.status, run.answer) == ("answered", gold[task["question"]][-1][1]), run.reason
        calls = {each.n: each.planned.input for each in run.timeline.tool_calls}
        expected = gold[task["question"]]
        assert sorted(map(str, calls.values())) == sorted(question for question, _ in expected)
        (solver,) = [
            json.loads(row.body or b"")["messages"][-1]["content"]
            for row in run.trace
            if is_request(row.record) and row.record.asked.phase == "solve"
        ]
        seen = re.findall(r"^Evidence: (.*)$", solver, re.M)
        assert seen == [answer for _, answer in expected]
        right += sum(text == answer for text, (_, answer) in zip(seen, expected, strict=True))
        sent += len(calls)
        assert read_plan_file(plans[task["question"]], [answer.spec]).calls[-1].needs
    assert (len(tasks), sent, right, references) == (100, 237, 237, 137)
