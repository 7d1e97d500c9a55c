"""Estimates how many tokens a request has, from what endpoints reported of earlier ones."""

from __future__ import annotations

import math

from plait.core import Usage
from plait.models.base import Model
from plait.models.wires.contents import count_referenced_tokens

TOKENS_A_BYTE = 0.25
"""Tokens of a byte of a request, until an endpoint has reported some."""

LENGTH_FIELD = 32
"""Bytes by which a request grows that says how long its reply may be."""


class TokenEstimates:
    """The tokens of a byte in the last request to each model of a run."""

    def __init__(self) -> None:
        self._tokens_a_byte: dict[str, float] = {}

    def learn(self, model: Model, body: bytes, usage: Usage) -> None:
        """Take what the endpoint reports of a request. A request with files says nothing about its text."""
        if usage.input_tokens and body and not usage.estimated and not count_referenced_tokens(body):
            self._tokens_a_byte[model.spec] = usage.input_tokens / len(body)

    def count(self, model: Model, body: bytes) -> int:
        """Return the estimated tokens of a request, its attached files included."""
        text = math.ceil((len(body) + LENGTH_FIELD) * self._tokens_a_byte.get(model.spec, TOKENS_A_BYTE))
        return text + count_referenced_tokens(body)
