"""JSON as an answer over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from plait.journal.codec import encode


def json_answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON, whatever is in it: half a surrogate pair, which UTF-8 can't hold, is escaped."""
    return Response(encode(value), status, headers, media_type="application/json")
