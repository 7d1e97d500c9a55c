"""The errors of Plait. Every message says what was wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class PlaitError(Exception):
    """Any error of Plait's own. `hint` says what to do about it; `str()` is the whole message."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        return _load_error, (type(self), self.args, vars(self))

    def __str__(self) -> str:
        gap = "" if self.message.endswith("\n") else " "  # a message of several lines: the hint is a line of its own
        return f"{self.message}{gap}{self.hint}".strip()


def _load_error(kind: type[PlaitError], args: tuple[Any, ...], fields: dict[str, Any]) -> PlaitError:
    """Return an error of a pickle or a copy. The arguments of its class are not kept."""
    made = kind.__new__(kind, *args)
    made.__dict__.update(fields)
    return made


class ConfigError(PlaitError):
    """A request that Plait cannot interpret: an unknown name, an invalid option."""


class BadAnswer(ConfigError):
    """The user's answer to a waiting run is invalid. Nothing changed: `run` still waits, with the question `waits`."""

    def __init__(self, message: str, *, run: str, waits: Any = None) -> None:
        super().__init__(message, hint=f"Nothing was called, and run {run} still waits.")
        self.run = run
        self.waits = waits


class StaleAnswer(ConfigError):
    """An answer to a question that is not open: it was already answered, has changed, or was never asked. Nothing was
    changed. `waits` are the open questions of `run` (`plait.core.Waiting`)."""

    def __init__(self, message: str, *, run: str, waits: Sequence[Any], hint: str | None = None) -> None:
        asked = "; ".join(f"question {each.question}: {each.reason}" for each in waits)
        usual = f"It waits with {asked}" if asked else f"Resume run {run} without an answer, if it has not ended."
        super().__init__(message, hint=usual if hint is None else hint)
        self.run = run
        self.waits = tuple(waits)


class SessionBusy(PlaitError):
    """Raised when a run can't begin, because another turn of its session goes on (`status` "running"; a run that a
    tool starts does not wait for it), or waits in a queue ("queued"). `run` is that turn. "": another turn has come
    since the session was read."""

    def __init__(self, session: str, run: str, status: str = "") -> None:
        does = {"queued": "waits in a queue", "running": "goes on"}.get(status, "was added")
        super().__init__(
            f"In session '{session}' another turn {does}, run {run}.",
            hint="The turns of a session come one after another: begin this one when that has ended.",
        )
        self.run, self.status = run, status


class SessionWaits(StaleAnswer):
    """A message to a conversation whose `run` waits for the user. It names no question, so it is not the answer.
    Nothing was started. `waits` are the open questions."""


class LimitNear(Exception):
    """Thrown into a loop when one model call is left: answer with what there is.

    `limit` is the limit's name, `detail` the numbers in words.
    """

    def __init__(self, limit: str, detail: str) -> None:
        super().__init__(detail)
        self.limit = limit
        self.detail = detail


class ModelError(PlaitError):
    """A model could not be asked. `retry` says whether the same request may succeed later.

    `response` is the exact response (a `plait.models.base.Response`), None without one. `after` is how many seconds the
    endpoint asks to wait, None if unknown. `sent` says that the request went out, so the endpoint may have processed it
    without a response. `allows_fallback` says that the model or its endpoint is the problem, not the request: another
    model may be asked.
    """

    retry: bool = False
    allows_fallback: bool = False
    sent: bool = False
    response: Any = None
    after: float | None = None


class Unreachable(ModelError):
    """The endpoint's address does not respond, or the connection broke before a reply."""

    retry = True
    allows_fallback = True


class AuthenticationError(ModelError):
    """The endpoint refused the credentials (401, 403)."""

    allows_fallback = True


class RateLimited(ModelError):
    """The endpoint asks to slow down (429). `after` is its Retry-After in seconds, None if unknown."""

    retry = True
    allows_fallback = True

    def __init__(self, message: str, *, hint: str = "", after: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.after = after


class ServerFailed(ModelError):
    """The endpoint itself failed (5xx)."""

    retry = True
    allows_fallback = True


class BadResponse(ModelError):
    """The endpoint's response is not a reply: garbage, or half a stream."""

    retry = True
    allows_fallback = True


class BadRequest(ModelError):
    """The endpoint refuses the request (4xx)."""


class ContentFiltered(ModelError):
    """The endpoint's content filter refuses the request because of its content."""


class Unsupported(ModelError):
    """The endpoint does not support a part of the request. `ability` names it; omit it and ask again.

    Thrown into a loop if its request needs the ability. Today that is "tools". `said` are the words with which the
    endpoint rejected it in this run, "" if that was known before.
    """

    def __init__(self, message: str, ability: str, said: str = "") -> None:
        super().__init__(message)
        self.ability = ability
        self.said = said


class ContextOverflow(ModelError):
    """The prompt does not fit the endpoint's context. Thrown into the loop, so that it shows less.

    `tokens` is the prompt's length, `room` the endpoint's limit; 0 if unknown. `ticket`: the effect, at a `WaitNext`.
    """

    def __init__(self, message: str, *, hint: str = "", tokens: int = 0, room: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.tokens = tokens
        self.room = room
        self.ticket: int | None = None


class ModelMissing(ModelError):
    """A model's file is missing, cannot be downloaded, or does not match its hash."""

    allows_fallback = True


class JournalError(PlaitError):
    """The journal cannot be read or written."""


class RunExists(JournalError):
    """Raised when a new run has the id of a recorded one. `run` is that id."""

    def __init__(self, run: str, place: str) -> None:
        super().__init__(f"There is a run {run} already in the journal {place}.", hint="Give the new run another id.")
        self.run = run


class WrongJournal(JournalError):
    """The path of the journal is a folder, or no file can be there."""


class RecordChanged(JournalError):
    """Another process wrote to a run's record after it was read, so decisions based on it may be wrong."""


class UnknownRun(JournalError, ConfigError):
    """The journal does not exist, or the name matches no run or several."""


class ReplayDiffers(PlaitError):
    """A replayed run made a different effect than the recorded one. `expected` and `found` show both."""

    def __init__(self, message: str, *, at: int, expected: str, found: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.at = at
        self.expected = expected
        self.found = found


class BadInput(PlaitError):
    """A tool's input does not fit its parameters; the model gets the text as the observation."""


class OutputError(PlaitError):
    """A run has no output: it has no answer, or one that does not fit the agent's output type."""


class ToolError(PlaitError):
    """For tools to raise: the text reaches the model as the observation, with no traceback."""


class CallLost(ToolError):
    """For tools to raise if it is unknown whether the call took effect: its observation is "in doubt"."""
