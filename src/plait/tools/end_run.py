"""The signal by which a tool ends the run."""

from __future__ import annotations

from typing import Any

from plait.core.errors import ConfigError


class EndRun(BaseException):
    """Raised or returned by a tool to end the run: `EndRun(answer)` with an answer, `EndRun(failure=reason)` as failed.

    The answer is any value that a tool may return. It has to fit the output type and the checks of the run; if it does
    not, the model reads the objection and goes on. Calls beside this one come to their end first. It is not an
    `Exception`, so that no `except Exception` of the tool catches it. Raises `ConfigError` without an answer or a
    reason, or with both.
    """

    def __init__(self, answer: Any = None, *, failure: str = "") -> None:
        if (answer is None) == (not failure) or not isinstance(failure, str):
            hint = "Give an answer, or the reason of the failure as a text."
            raise ConfigError(f"EndRun(answer={type(answer).__name__}, failure={failure!r}) is invalid.", hint=hint)
        super().__init__(answer if answer is not None else failure)
        self.answer, self.failure = answer, failure


def find_ending(why: BaseException) -> EndRun | None:
    """Return what ends the run in an error of a tool, also in a group of errors; None if nothing does."""
    while isinstance(why, BaseExceptionGroup) and (ending := why.subgroup(EndRun)) is not None:
        why = ending.exceptions[0]
    return why if isinstance(why, EndRun) else None
