"""What the server refuses, with the status and the shape that chat-completions clients know."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from plait.core import Waiting
from plait.core.errors import BadAnswer, PlaitError, StaleAnswer, UnknownRun, UsageError


class Gone(Exception):
    """The client went away before it was answered: there is nobody to tell anything."""


class Rejected(PlaitError):
    """A request that is not carried out.

    `status` is HTTP's, `kind` and `code` what clients tell errors apart by, `param` the field that is wrong.
    `after`: seconds after which it may be asked again, None where that is no question; `again` False: clients must not
    ask again by themselves. `waits` are the questions that an answer might have been for.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        hint: str = "",
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        after: float | None = None,
        again: bool = True,
        waits: Sequence[Waiting] = (),
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.kind = kind
        self.code = code
        self.param = param
        self.after = after
        self.again = again
        self.waits = tuple(waits)

    @property
    def headers(self) -> dict[str, str]:
        """The headers that go with it."""
        found: dict[str, str] = {}
        if self.after is not None:
            found["Retry-After"] = str(max(1, math.ceil(self.after)))
        if not self.again:
            found["x-should-retry"] = "false"
        if self.status == 401:
            found["WWW-Authenticate"] = 'Bearer realm="plait"'
        return found

    def body(self) -> dict[str, Any]:
        """The error as an object."""
        waits = [{"question": each.question, "ask": each.kind, "text": each.reason} for each in self.waits]
        return {**error_body(str(self), self.kind, self.code, self.param), **({"waits": waits} if waits else {})}


def error_body(message: str, kind: str, code: str | None = None, param: str | None = None) -> dict[str, Any]:
    """An error in the shape that clients of chat completions know."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def rejected(why: Exception) -> Rejected:
    """Any error as one that can be told over HTTP. What is no error of Plait's own is told without its words."""
    match why:
        case Rejected():
            return why
        case UnknownRun():
            return Rejected(404, why.message, hint=why.hint, code="run_not_found")
        case StaleAnswer():
            return Rejected(
                409, why.message, hint=why.hint, code="stale_answer", param="question", again=False, waits=why.waits
            )
        case BadAnswer():
            return Rejected(400, why.message, hint=why.hint, code="bad_answer", again=False)
        case UsageError():
            return Rejected(400, why.message, hint=why.hint)
        case PlaitError():
            return Rejected(503, why.message, hint=why.hint, kind="server_error", code=type(why).__name__)
        case _:
            return Rejected(
                500, f"A defect of Plait: {type(why).__name__}.", hint="The server's log has more.", kind="server_error"
            )
