"""The errors of a request, as HTTP statuses and as the JSON that chat-completions clients know."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from plait.core import Waiting
from plait.core.errors import BadAnswer, ConfigError, PlaitError, SessionWaits, StaleAnswer, UnknownRun
from plait.journal.codec import encode
from plait.tools.render import replace_surrogates

ENDPOINTS = (
    "In the client, choose an OpenAI-compatible API with chat completions or responses, and this server's address with "
    "/v1 as its base URL, such as http://127.0.0.1:8765/v1."
)
"""The hint for an address that does not exist."""


class ClientGone(Exception):
    """Raised when the client closed the connection before the answer."""


class RequestRejected(PlaitError):
    """Raised for a request that the server refuses.

    `status` is the HTTP status. Clients distinguish errors by `kind` and `code`; `param` is the wrong field.
    `retry_after`: seconds until a client may ask again. `may_retry` False: the client must not retry by itself. `waits`
    are the open questions of the run. `metric` is the reason under which the guard counts it; "" if the guard does not
    count it.
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
        retry_after: float | None = None,
        may_retry: bool = True,
        waits: Sequence[Waiting] = (),
        metric: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.status, self.kind, self.code, self.param = status, kind, code, param
        self.retry_after, self.may_retry, self.waits, self.metric = retry_after, may_retry, tuple(waits), metric

    @property
    def headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        if self.retry_after is not None:
            headers["Retry-After"] = str(max(1, math.ceil(self.retry_after)))
        if not self.may_retry:
            headers["x-should-retry"] = "false"
        if self.status == 401:
            headers["WWW-Authenticate"] = 'Bearer realm="plait"'
        return headers

    def body(self) -> dict[str, Any]:
        waits = [{"question": each.question, "ask": each.kind, "text": each.reason} for each in self.waits]
        return {**error_body(str(self), self.kind, self.code, self.param), **({"waits": waits} if waits else {})}


def missing_role(role: str) -> RequestRejected:
    """Return the refusal of a user without a role. "any" stands for each of them, "" is for no user."""
    text = {"": "This is not for users.", "any": "This needs a role."}.get(role, f"This needs the role '{role}'.")
    hint = "Whoever runs the server gives roles in [serve.roles] of plait.toml."
    return RequestRejected(403, text, hint=hint, kind="permission_error", code="forbidden", may_retry=False)


def error_body(message: str, kind: str, code: str | None = None, param: str | None = None) -> dict[str, Any]:
    """Return an error in the shape that chat-completions clients know."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def rejection_for(error: Exception) -> RequestRejected:
    """Return any error as one for HTTP. If the error is not Plait's own, its text goes only to the log."""
    match error:
        case RequestRejected():
            return error
        case UnknownRun():
            return RequestRejected(404, error.message, hint=error.hint, code="run_not_found")
        case StaleAnswer(message=message, hint=hint, waits=waits):
            code = "session_waits" if isinstance(error, SessionWaits) else "stale_answer"
            return RequestRejected(409, message, hint=hint, code=code, param="question", may_retry=False, waits=waits)
        case BadAnswer():
            return RequestRejected(400, error.message, hint=error.hint, code="bad_answer", may_retry=False)
        case ConfigError():
            return RequestRejected(400, error.message, hint=error.hint)
        case PlaitError(message=message, hint=hint):
            return RequestRejected(503, message, hint=hint, kind="server_error", code=type(error).__name__)
        case _:
            text = f"Plait has a defect: {type(error).__name__}."
            return RequestRejected(500, text, hint="The server's log has more.", kind="server_error")


def repair_halves(body: bytes, why: Exception) -> bytes:
    """Return a JSON body with "?" for half a character, which a browser sends as an escape if a user pasted it.
    Raises `why` if something else is wrong."""
    if "surrogate" not in str(why):
        raise why
    return replace_surrogates(json.dumps(json.loads(body), ensure_ascii=False)).encode()


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return any value as a JSON response. Half a surrogate pair, which UTF-8 cannot hold, is escaped."""
    return Response(encode(value), status, headers, media_type="application/json")
