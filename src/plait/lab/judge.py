"""A grader that asks a model to judge answers: the loop `judge` (`plait.loops.judge.loop`), run as an agent."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from plait import config
from plait.agent import Agent
from plait.core import Answered, Crashed, errors
from plait.core.errors import ConfigError, ModelError, PlaitError
from plait.lab.graders.answers import answer_text, list_golds
from plait.lab.graders.scores import describe_end, grade_of_run
from plait.lab.tasks import Grade, Grader, SuiteTask
from plait.loops.judge.loop import Judge
from plait.models.base import Model
from plait.models.resolve import resolve
from plait.runtime.run import Run
from plait.runtime.templates.prompts import PromptBook, shipped_prompts
from plait.user_files import read_file


def load_judge(settings: str, *, journal: str | Path | Literal[False] | None = None) -> Grader:
    """Return the grader of `MODEL[,template=FILE]`. Raises `ConfigError` for an invalid model or template."""
    model, _, file = settings.partition(",template=")
    if not model.strip():
        raise ConfigError("A judge needs a model.", hint="Write judge:openai:gpt-5 or judge:local.")
    return make_judge(model.strip(), template=file.strip() or None, journal=journal)


def judge_prompts(settings: str) -> dict[str, str]:
    """Return the prompts that the judge of `MODEL[,template=FILE]` uses, by name."""
    return {**shipped_prompts("judge"), **_load_template(settings.partition(",template=")[2].strip() or None)}


def make_judge(
    model: str | Model, *, template: str | Path | None = None, journal: str | Path | Literal[False] | None = None
) -> Grader:
    """Return a grader that asks a model. `template` is a file that replaces Plait's prompt; `journal` stores the runs.
    Raises `ConfigError` for an invalid model or template. The grade has the judging run and its cost. Grading raises
    `ModelError`, and gives no grade, if the model cannot be asked."""
    prompts = _load_template(template)
    asked = resolve(model, config.load().models) if isinstance(model, str) else model  # once for all its runs

    async def grade(task: SuiteTask, run: Run) -> Grade:
        if run.answer is None:
            return grade_of_run(run, Grade(False, 0.0, "wrong", describe_end(run)))
        gold = tuple(answer_text(each) for each in list_golds(task.answer) if each is not None)
        loop = Judge(answer_text(run.answer), gold, prompts)
        judging = await Agent(loop, model=asked, journal=journal, can_ask=False).arun(task.question)
        outcome, right = judging.outcome, False
        mark, why = "unreadable", outcome.reason or outcome.status
        if isinstance(outcome, Crashed):
            kind = getattr(errors, outcome.error, None)
            if isinstance(kind, type) and issubclass(kind, ModelError) and kind is not errors.Unsupported:
                raise kind(outcome.reason, hint=outcome.hint)
            raise PlaitError(f"The judge's run crashed: {outcome.reason}.", hint=outcome.hint)
        if isinstance(outcome, Answered):
            right = bool(outcome.answer["right"])
            mark, why = ("right", "") if right else ("wrong", " ".join(outcome.answer["said"].split())[:300])
        return grade_of_run(run, Grade(right, float(right), mark, why, cost_usd=judging.cost_usd, run=judging.id))

    return grade


def _load_template(file: str | Path | None) -> dict[str, str]:
    """Return the user's template as the loop's prompts, after one trial rendering."""
    if file is None:
        return {}
    path = Path(file).expanduser()
    try:
        text = read_file(path).decode()
    except OSError as error:
        raise ConfigError(f"The template {str(file)!r} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"The template {str(file)!r} is not UTF-8 text.") from error
    try:
        PromptBook("judge", None, {"judge": text}).render(
            "judge", {"tools": (), "question": "q", "answer": "a", "gold": ["g"]}
        )
    except ConfigError as error:
        hint = "It is given question, answer and gold (a list)."
        raise ConfigError(f"The template {str(file)!r}: {error.message}", hint=hint) from error
    return {"judge": text}
