"""Graders of answers, and of what a run did. An answer succeeds only if its run ended as *answered*."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeAlias

from msgspec import structs

from plait.core.errors import ConfigError
from plait.core.events import Observed
from plait.core.text import cut_text
from plait.lab.graders import answers
from plait.lab.graders.answers import answer_text, list_golds
from plait.lab.tasks import Grade, Grader, SuiteTask
from plait.lab.world import task_of, world_of
from plait.lab.world.again import collect_evidence, replay_events
from plait.runtime.run import Run

Scorer: TypeAlias = Callable[[SuiteTask, Any], Grade]
"""Judges an answer alone."""


def grade_answers(scorer: Scorer) -> Grader:
    """Return a grader of runs from a scorer of answers."""

    async def grade(task: SuiteTask, run: Run) -> Grade:
        return grade_of_run(run, scorer(task, run.answer if run.answer is not None else ""))

    return grade


def grade_of_run(run: Run, grade: Grade) -> Grade:
    """Return the grade of a run from the grade of its answer. The answer of a stopped run keeps its score and measures,
    but is not a success. A run without an answer scores 0."""
    if run.answer is None:
        why = describe_end(run) if run.status != "answered" else "the answer is empty"
        measures = dict.fromkeys(grade.measures, 0.0)
        return structs.replace(grade, success=False, score=0.0, mark="wrong", why=why, measures=measures)
    if run.status != "answered":
        why = "its answer is right" if grade.success else grade.why
        return structs.replace(
            grade, success=False, mark="wrong", why="; ".join(filter(None, [describe_end(run), why]))
        )
    return grade


def describe_end(run: Run) -> str:
    """Return a run's status and reason as text."""
    return f"{run.status}: {run.reason}" if run.reason else str(run.status)


def score_exact(task: SuiteTask, answer: Any) -> Grade:
    """EM: the answer and a gold answer are the same normalized text, or the same value if they are not text."""
    same = any(type(answer) is type(gold) and answer == gold for gold in _golds(task))
    text = answer_text(answer)
    right = same or any(answers.is_exact_match(text, answer_text(gold)) for gold in _golds(task))
    return _right_or_wrong(right, _expected(task, answer))


def score_f1(task: SuiteTask, answer: Any, threshold: float | None = None) -> Grade:
    """F1 is the score; right is an exact match, or an F1 of the threshold. The best gold answer counts."""
    text, golds = answer_text(answer), [answer_text(each) for each in _golds(task)]
    same = max(answers.is_exact_match(text, each) for each in golds)
    score = max(answers.f1_score(text, each) for each in golds)
    right = same if threshold is None else score >= threshold
    why = "" if right else _expected(task, answer)
    return Grade(right, score, "right" if right else "wrong", why, {"em": float(same), "f1": score})


def score_yes_no(task: SuiteTask, answer: Any) -> Grade:
    """The answer says yes or no, as the gold answer does."""
    (gold, *_) = _golds(task)
    wanted = gold if isinstance(gold, bool) else answers.parse_yes_no(answer_text(gold))
    if wanted is None:
        raise ConfigError(f"The answer of task {task.id!r} is neither yes nor no: {gold!r}.")
    said = answers.parse_yes_no(answer_text(answer))
    return _right_or_wrong(said == wanted, "it says neither yes nor no" if said is None else _expected(task, answer))


def score_label(task: SuiteTask, answer: Any, labels: tuple[str, ...] = answers.LABELS) -> Grade:
    """The answer has the gold label, and no other label."""
    wanted = {answers.find_label(answer_text(gold), labels) for gold in _golds(task)}
    if "" in wanted:
        raise ConfigError(f"The answer of task {task.id!r} is not a label.", hint=f"Labels: {', '.join(labels)}.")
    said = answers.find_label(answer_text(answer), labels)
    return _right_or_wrong(said in wanted, _expected(task, answer) if said else "it names no label, or several")


def score_number(task: SuiteTask, answer: Any, tolerance: Fraction = answers.CLOSE) -> Grade:
    """The number that the answer ends with is the gold number, within a relative tolerance."""
    golds = []
    for gold in _golds(task):
        read = answers.read_last_number(gold)
        if read is None:
            hint = "Choose another grader."
            raise ConfigError(f"The answer of task {task.id!r} is not a number: {gold!r}.", hint=hint)
        golds.append(read)
    said = answers.read_last_number(answer)
    if said is None:
        return _right_or_wrong(False, "there is no number in the answer")
    value = str(said.value.numerator) if said.value.denominator == 1 else f"{float(said.value):g}"
    right = any(answers.is_close(said, each, tolerance) for each in golds)
    return _right_or_wrong(right, f"{answer_text(task.answer)} was expected, {value} came")


def score_has(task: SuiteTask, answer: Any) -> Grade:
    """A gold number is among the numbers of the answer, or a gold text is in it."""
    text = answer_text(answer)
    for gold in _golds(task):
        wanted = _as_number(gold)
        if wanted is None:
            right = answers.contains_text(answer_text(gold), text)
        else:
            right = any(answers.is_close(each, wanted) for each in answers.read_numbers(text))
        if right:
            return _right_or_wrong(True, "")
    return _right_or_wrong(False, _expected(task, answer))


def score_contains(task: SuiteTask, answer: Any) -> Grade:
    """A gold text is in the answer, in whole words, both normalized as for EM."""
    text = f" {answers.normalize(answer_text(answer))} "
    wanted = [answers.normalize(answer_text(gold)) for gold in _golds(task)]
    return _right_or_wrong(any(each and f" {each} " in text for each in wanted), _expected(task, answer))


async def grade_calls(task: SuiteTask, run: Run) -> Grade:
    """Grade a run by its tool calls: every gold tool was called and gave a result, however the run ended. The score and
    the measure `recall` are the share of gold tools that were called; `precision` is the share of called tools that are
    gold."""
    gold = {str(name) for name in list_golds(task.answer) if name}
    if not gold:
        raise ConfigError(f"The task {task.id!r} names no tool to call.", hint="Its answer is a list of tools' names.")
    called = {event.call.tool for event in run.events if isinstance(event, Observed) and event.observation.ok}
    right, missing = gold & called, sorted(gold - called)
    recall, precision = len(right) / len(gold), len(right) / len(called) if called else 0.0
    why = f"not called: {', '.join(missing)}" if missing else ""
    measures = {"recall": recall, "precision": precision}
    return Grade(not missing, recall, "wrong" if missing else "right", why, measures)


async def grade_errand(task: SuiteTask, run: Run, name: str = "") -> Grade:
    """Grade an errand in the world by what was sent: done (1, the only success), with a flaw (0.5), not done (0).

    `name` is the task's in `plait.lab.world`, "" if it is the task's id.
    """
    return await asyncio.to_thread(_replay_errand, task, run, name or task.id)


def _replay_errand(task: SuiteTask, run: Run, name: str) -> Grade:
    word = next((word for word in task.tools if word.partition(":")[0] == "world"), "")
    if not word:
        raise ConfigError(f"The task {task.id!r} is in no world.", hint="Give it a tool such as world:1.")
    events = run.events
    state = replay_events(world_of(word), events)
    grade = task_of(name).grade(state, collect_evidence(run.answer, events, clock=run.timeline.code_clock))
    score = {"done": 1.0, "flaw": 0.5}.get(grade.mark, 0.0)
    return Grade(grade.mark == "done", score, grade.mark, "; ".join(grade.why[:5]))


def _right_or_wrong(right: bool, why: str) -> Grade:
    return Grade(True, 1.0, "right") if right else Grade(False, 0.0, "wrong", why)


def _golds(task: SuiteTask) -> list[Any]:
    """Return a task's right answers. Raises `ConfigError` if it has none."""
    found = [gold for gold in list_golds(task.answer) if gold is not None]
    if not found:
        hint = "Give it one, or another grader."
        raise ConfigError(f"The task {task.id!r} has no answer to compare with.", hint=hint)
    return found


def _as_number(gold: Any) -> answers.ReadNumber | None:
    """Return a gold answer that is only a number; None for a text."""
    if isinstance(gold, (int, float)) and not isinstance(gold, bool):
        return answers.read_exactly(gold)
    try:
        return answers.ReadNumber(Fraction(str(gold).strip().replace(",", "")))
    except (ValueError, ZeroDivisionError):
        return None


def _expected(task: SuiteTask, answer: Any) -> str:
    gold = " or ".join(answer_text(each) for each in list_golds(task.answer)[:3])
    return f"{_cut(gold)} was expected, {_cut(answer_text(answer)) or 'nothing'} came"


def _cut(text: str) -> str:
    return cut_text(" ".join(text.split()), 120)
