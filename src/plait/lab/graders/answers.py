"""The graders of answers. A run that did not end as *answered* does not succeed, whatever it said when stopped."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any, TypeAlias

from msgspec import structs

from plait.core.errors import UsageError
from plait.lab.base import Grade, Grader, Task
from plait.lab.graders import numbers, words
from plait.runtime.run import Run

Scorer: TypeAlias = Callable[[Task, Any], Grade]
"""Judges an answer alone."""


def over(scorer: Scorer) -> Grader:
    """A grader of runs, from one of answers."""

    async def grade(task: Task, run: Run) -> Grade:
        return of_run(run, scorer(task, run.answer if run.answer is not None else ""))

    return grade


def of_run(run: Run, grade: Grade) -> Grade:
    """The grade of a run, given that of its answer.

    What a stopped run answered keeps its score and its measures; a run without an answer has none.
    """
    if run.answer is None:
        why = ended(run) if run.status != "answered" else "the answer is empty"
        measures = dict.fromkeys(grade.measures, 0.0)
        return structs.replace(grade, success=False, score=0.0, mark="wrong", why=why, measures=measures)
    if run.status != "answered":
        said = "its answer is right" if grade.success else grade.why
        return structs.replace(grade, success=False, mark="wrong", why="; ".join(filter(None, [ended(run), said])))
    return grade


def ended(run: Run) -> str:
    """How a run ended that has no answer of its own accord."""
    return f"{run.status}: {run.reason}" if run.reason else str(run.status)


def right_or_wrong(right: bool, why: str) -> Grade:
    """A grade that knows no more; `why` only where it is wrong."""
    return Grade(right, float(right), "right", "") if right else Grade(False, 0.0, "wrong", why)


def golds(task: Task) -> list[Any]:
    """A task's right answers. Raises `UsageError` where it has none."""
    found = [gold for gold in words.golds_of(task.answer) if gold is not None]
    if not found:
        raise UsageError(f"The task {task.id!r} has no answer to compare with.", hint="Give it one, or another grader.")
    return found


def exact(task: Task, answer: Any) -> Grade:
    """EM: the answer and a gold one are the same text, normalized; of values that are no text, the same value."""
    text = words.text_of(answer)
    same = any(type(answer) is type(gold) and answer == gold for gold in golds(task))
    right = same or any(words.em(text, words.text_of(gold)) for gold in golds(task))
    return right_or_wrong(right, _expected(task, answer))


def f1(task: Task, answer: Any, threshold: float | None = None) -> Grade:
    """F1 is the score; right is what EM says, or an F1 of the threshold. The best over the gold answers."""
    text, gold = words.text_of(answer), [words.text_of(each) for each in golds(task)]
    same, score = max(words.em(text, each) for each in gold), max(words.f1(text, each) for each in gold)
    right = same if threshold is None else score >= threshold
    why = "" if right else _expected(task, answer)
    return Grade(right, score, "right" if right else "wrong", why, {"em": float(same), "f1": score})


def yesno(task: Task, answer: Any) -> Grade:
    """Yes or no, as `words.yes_or_no` reads them."""
    (gold, *_) = golds(task)
    wanted = gold if isinstance(gold, bool) else words.yes_or_no(words.text_of(gold))
    if wanted is None:
        raise UsageError(f"The answer of task {task.id!r} is neither yes nor no: {gold!r}.")
    said = words.yes_or_no(words.text_of(answer))
    why = "it says neither yes nor no" if said is None else _expected(task, answer)
    return right_or_wrong(said == wanted, why)


def label(task: Task, answer: Any, labels: tuple[str, ...] = words.LABELS) -> Grade:
    """The gold label stands in the answer, and no other."""
    wanted = {words.label_in(words.text_of(gold), labels) for gold in golds(task)}
    if "" in wanted:
        raise UsageError(f"The answer of task {task.id!r} is no label.", hint=f"Labels: {', '.join(labels)}.")
    said = words.label_in(words.text_of(answer), labels)
    return right_or_wrong(said in wanted, _expected(task, answer) if said else "it names no label, or several")


def number(task: Task, answer: Any, tolerance: Fraction = numbers.CLOSE) -> Grade:
    """The number that the answer ends with is the gold one, within a relative tolerance."""
    gold = [_gold_number(task, each) for each in golds(task)]
    said = numbers.last(answer)
    if said is None:
        return right_or_wrong(False, "there is no number in the answer")
    right = any(numbers.close(said, each, tolerance) for each in gold)
    return right_or_wrong(right, f"{words.text_of(task.answer)} was expected, {_plain(said.value)} came")


def has(task: Task, answer: Any) -> Grade:
    """A gold number is among those in the answer, or a gold text stands in it."""
    text, found = words.text_of(answer), None
    for gold in golds(task):
        wanted = _as_number(gold)
        if wanted is None:
            right = words.stands_in(words.text_of(gold), text)
        else:
            found = numbers.numbers(text) if found is None else found
            right = any(numbers.close(each, wanted) for each in found)
        if right:
            return right_or_wrong(True, "")
    return right_or_wrong(False, _expected(task, answer))


def contains(task: Task, answer: Any) -> Grade:
    """A gold text stands in the answer, in whole words, both normalized as for EM."""
    text = f" {words.normalized(words.text_of(answer))} "
    wanted = [words.normalized(words.text_of(gold)) for gold in golds(task)]
    return right_or_wrong(any(each and f" {each} " in text for each in wanted), _expected(task, answer))


def f1_above(threshold: float) -> Scorer:
    return partial(f1, threshold=threshold)


def label_of(labels: tuple[str, ...]) -> Scorer:
    return partial(label, labels=labels)


def number_within(tolerance: Fraction) -> Scorer:
    return partial(number, tolerance=tolerance)


def _gold_number(task: Task, gold: Any) -> numbers.Read:
    read = numbers.last(gold)
    if read is None:
        raise UsageError(f"The answer of task {task.id!r} is no number: {gold!r}.", hint="Choose another grader.")
    return read


def _as_number(gold: Any) -> numbers.Read | None:
    """A gold answer that is a number and nothing else; None for a text."""
    if isinstance(gold, (int, float)) and not isinstance(gold, bool):
        return numbers.exactly(gold)
    try:
        return numbers.Read(Fraction(str(gold).strip().replace(",", "")))
    except (ValueError, ZeroDivisionError):
        return None


def _expected(task: Task, answer: Any) -> str:
    gold = " or ".join(words.text_of(each) for each in words.golds_of(task.answer)[:3])
    return f"{_cut(gold)} was expected, {_cut(words.text_of(answer)) or 'nothing'} came"


def _plain(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{float(value):g}"


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 120 else text[:117] + "..."
