"""What can go wrong, by name. Every message says what was wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class PlaitError(Exception):
    """Any error of Plait's own. `hint` says what to do about it; `str()` is the whole sentence."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        gap = "" if self.message.endswith("\n") else " "  # a message of several lines: the hint is a line of its own
        return f"{self.message}{gap}{self.hint}".strip()


class ConfigError(PlaitError):
    """Something was asked for in a way that can't be understood: an unknown name, a bad option."""


class BadAnswer(ConfigError):
    """What the person said to a run that waits can't be taken. Nothing was done with it, and `run` waits still, with
    the question `waits` (`plait.core.Waiting`)."""

    def __init__(self, message: str, *, run: str, waits: Any = None) -> None:
        super().__init__(message, hint=f"Nothing was called, and run {run} still waits.")
        self.run = run
        self.waits = waits


class StaleAnswer(ConfigError):
    """An answer names no question that is open: it was answered before, changed since, or never asked. Nothing was done
    with the answer. `waits` are the questions of `run` that are open (`plait.core.Waiting`)."""

    def __init__(self, message: str, *, run: str, waits: Sequence[Any], hint: str | None = None) -> None:
        asked = "; ".join(f"question {each.question}: {each.reason}" for each in waits)
        usual = f"It waits with {asked}" if asked else "Resume it without an answer, if it has not ended."
        super().__init__(message, hint=usual if hint is None else hint)
        self.run = run
        self.waits = tuple(waits)


class LimitNear(Exception):
    """Thrown into a loop when one model call is left: answer with what there is.

    `limit` is the limit's name, `detail` the numbers in words.
    """

    def __init__(self, limit: str, detail: str) -> None:
        super().__init__(detail)
        self.limit = limit
        self.detail = detail


class ContextOverflow(Exception):
    """Thrown into a loop when the endpoint refused its prompt for length.

    `tokens` is the prompt's length and `room` what the endpoint takes; 0 where it did not say. `ticket` is that of
    a started effect, when it is thrown at a take.
    """

    def __init__(self, detail: str, tokens: int = 0, room: int = 0) -> None:
        super().__init__(detail)
        self.detail = detail
        self.tokens = tokens
        self.room = room
        self.ticket: int | None = None


class Unsupported(Exception):
    """Thrown into a loop when the endpoint lacks an ability that its request can't do without.

    `ability` is its name; today that is "tools": all else is emulated or left out.
    """

    def __init__(self, ability: str, detail: str) -> None:
        super().__init__(detail)
        self.ability = ability
        self.detail = detail


class ModelError(PlaitError):
    """A model could not be asked. `retry` says whether the same request may succeed later.

    `response` is what came, exactly (a `plait.models.base.Response`), None where nothing did. `after` is how
    many seconds the endpoint asks to wait, None if it did not say. `sent` says that the request went out, so that the
    endpoint may have worked on it although nothing came.
    """

    retry: bool = False
    sent: bool = False
    response: Any = None
    after: float | None = None


class Unreachable(ModelError):
    """Nothing answers at the endpoint's address, or the connection broke before a reply."""

    retry = True


class AuthenticationError(ModelError):
    """The endpoint refused the credentials (401, 403)."""


class RateLimited(ModelError):
    """The endpoint asks to slow down (429). `after` is its Retry-After in seconds, None if not said."""

    retry = True

    def __init__(self, message: str, *, hint: str = "", after: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.after = after


class ServerFailed(ModelError):
    """The endpoint itself failed (5xx)."""

    retry = True


class BadResponse(ModelError):
    """The endpoint answered with something that is not a reply: garbage, or half a stream."""

    retry = True


class BadRequest(ModelError):
    """The endpoint refuses the request as it is (4xx)."""


class ContentFiltered(ModelError):
    """The endpoint's content filter refuses the request. The cause is what the loop sent, not how it was sent."""


class Unsupported(ModelError):
    """The endpoint does not know a part of the request. `ability` names it; leave it out and ask again."""

    def __init__(self, message: str, ability: str) -> None:
        super().__init__(message)
        self.ability = ability


class TooLong(ModelError):
    """The prompt does not fit the endpoint's context. `tokens` and `room` are 0 where not said."""

    def __init__(self, message: str, *, hint: str = "", tokens: int = 0, room: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.tokens = tokens
        self.room = room


class ModelMissing(PlaitError):
    """A model's file is absent, can't be fetched, or is not what its hash says."""


class JournalError(PlaitError):
    """The journal can't be read or written."""


class RecordChanged(JournalError):
    """Another process wrote to a run's record after it was read: what was decided by it may be wrong."""


class UnknownRun(JournalError, ConfigError):
    """There is no run of that name in the journal, or more than one, or no journal."""


class ReplayDiffers(PlaitError):
    """A replayed run made another effect than the recorded one. `expected` and `found` show both."""

    def __init__(self, message: str, *, at: int, expected: str, found: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.at = at
        self.expected = expected
        self.found = found


class BadInput(PlaitError):
    """A tool's input does not fit its parameters; the text is the observation the model gets."""


class ToolError(PlaitError):
    """For tools to raise: the text reaches the model as the observation, with no traceback."""


class CallLost(ToolError):
    """For tools to raise when it is not known whether the call took effect: its observation is "in doubt"."""
