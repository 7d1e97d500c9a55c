"""GSM8K (Cobbe et al. 2021, arXiv:2110.14168): grade-school mathematics, each answer one number."""

from __future__ import annotations

from fractions import Fraction

from plait.lab.base import Suite, Task
from plait.lab.graders.numbers import last_number
from plait.lab.loaders import files


def load(argument: str) -> Suite:
    """`gsm8k:FILE`: records with `question` and `answer`, the number alone or after `####` behind its solution."""
    name, _ = files.parted(argument, (), "gsm8k")
    path = files.found(name)
    tasks = []
    for entry in files.records(path):
        answer = entry.text("answer")
        number = last_number(answer.rpartition("####")[2])
        if number is None:
            raise entry.wrong("the answer has no number in it.", "It is to be 18, or a solution and then #### 18.")
        tasks.append(Task(id=f"gsm8k-{entry.number}", question=entry.text("question"), answer=_plain(number), about={}))
    return Suite(
        word=f"gsm8k:{path}",
        about="grade-school mathematics, with a calculator",
        tasks=tuple(tasks),
        grader="number",
        tools=("calculator",),
    )


def _plain(number: Fraction) -> int | float:
    return int(number) if number.denominator == 1 else float(number)
