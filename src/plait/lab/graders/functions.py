"""Users' functions as graders: `checks.py:right`, `python:module:function`.

Plait calls the function with (answer, gold), or with (task, run) if its parameters have these names. It may be async.
It returns true or false, a number from 0 to 1 (1 is right), or a `plait.lab.Grade`. An error in it is not a wrong
answer: it ends the comparison and names the line.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import traceback
from collections.abc import Callable
from importlib.util import find_spec
from numbers import Real
from pathlib import Path
from typing import Any

from plait.core.errors import ConfigError, PlaitError
from plait.lab.graders.scores import describe_end, grade_of_run
from plait.lab.tasks import Grade, Grader, SuiteTask
from plait.runtime.run import Run
from plait.tools.load import load_object
from plait.tools.user_code import add_to_path, read_file
from plait.user_functions import is_async


def load_function_grader(word: str) -> Grader:
    """Return the grader of `file.py:function` or `module:function`. Raises `ConfigError` if it cannot be called."""
    place, _, name = word.rpartition(":")
    if not place or not name:
        raise ConfigError(f"{word!r} names no function.", hint="Write checks.py:right or python:module:function.")
    function = load_object(f"{place}:{name}", "a grader")
    if not callable(function):
        raise ConfigError(f"{word!r} is a {type(function).__name__} and not a function.")
    whole = _takes_run(function, word)

    async def grade(task: SuiteTask, run: Run) -> Grade:
        if not whole and run.answer is None:
            return grade_of_run(run, Grade(False, 0.0, "wrong", describe_end(run)))
        try:
            given = (task, run) if whole else (run.answer, task.answer)
            value = function(*given) if is_async(function) else await asyncio.to_thread(function, *given)
            value = await value if inspect.isawaitable(value) else value
        except PlaitError:
            raise
        except Exception as error:  # a user's code may fail in any way
            ours = (str(Path(__file__).parents[2]), os.path.dirname(os.__file__), "<frozen")
            frames = [each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith(ours)]
            place = f"at {Path(frames[-1].filename).name}, line {frames[-1].lineno}, " if frames else ""
            raise ConfigError(
                f"The grader {word} fails {place}for the task {task.id!r}: {type(error).__name__}: {error}.",
                hint="Fix it and start again. Finished cells do not run again.",
            ) from error
        if isinstance(value, Grade):
            made = value
        elif isinstance(value, Real) and 0 <= float(value) <= 1:  # a bool is one too
            score, right = float(value), float(value) == 1.0
            why = "" if right else f"{word} says {'no' if isinstance(value, bool) else f'{score:g}'}"
            made = Grade(right, score, "right" if right else "wrong", why)
        else:
            hint = "It must return true or false, a number from 0 to 1, or a plait.lab.Grade."
            raise ConfigError(f"The grader {word} gave {value!r} for the task {task.id!r}.", hint=hint)
        return made if whole else grade_of_run(run, made)

    return grade


def read_source(place: str) -> str:
    """Return the source of `file.py` or a module, "" if it has none. Raises `ConfigError` if the file is missing."""
    if place.endswith(".py"):
        return read_file(place).decode(errors="replace")
    add_to_path(os.getcwd())
    try:
        spec = find_spec(place)
    except (ImportError, ValueError):
        return ""
    origin = spec.origin if spec is not None else None
    return read_file(origin).decode(errors="replace") if origin is not None and origin.endswith(".py") else ""


def _takes_run(function: Callable[..., Any], word: str) -> bool:
    try:
        signature = inspect.signature(function)
        signature.bind(None, None)
    except TypeError:
        hint = "Define it as f(answer, gold) or f(task, run)."
        raise ConfigError(f"The grader {word} can't be called with two values.", hint=hint) from None
    except ValueError:  # it does not show its parameters
        return False
    return list(signature.parameters)[:2] == ["task", "run"]
