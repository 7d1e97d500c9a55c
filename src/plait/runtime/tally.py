"""What a run and its child runs use, counted while they use it. Nothing is decided here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from msgspec import structs

from plait.core import Usage
from plait.models.base import Model
from plait.models.wires.contents import count_referenced_tokens
from plait.runtime.spent import Spent

TOKENS_A_BYTE = 0.25
"""Tokens of a byte of a request, until an endpoint has reported some."""

LENGTH_FIELD = 32
"""Bytes by which a request grows that says how long its reply may be."""

LEAST_CONTEXT, BYTES_A_TOKEN = 1000, 12
"""Tokens of the smallest context of a server, and more bytes than a token of any text has on average."""

NOTHING = Spent()


class TokenEstimate:
    """Estimates the tokens of requests from the bytes of earlier ones, for each model by itself."""

    def __init__(self) -> None:
        self._tokens_a_byte: dict[str, float] = {}

    def learn(self, model: Model, body: bytes, usage: Usage) -> None:
        """Remember how many tokens a byte of this model's requests has."""
        if is_truncated(body, usage):
            return
        if usage.input_tokens and body and not usage.estimated and not count_referenced_tokens(body):
            self._tokens_a_byte[model.spec] = usage.input_tokens / len(body)

    def prompt_tokens(self, model: Model, body: bytes) -> int:
        """Return the estimated tokens of a request, its attached files included."""
        text = math.ceil((len(body) + LENGTH_FIELD) * self._tokens_a_byte.get(model.spec, TOKENS_A_BYTE))
        return text + count_referenced_tokens(body)


def is_truncated(body: bytes, usage: Usage) -> bool:
    """Return whether the endpoint reports far fewer tokens than any tokenizer makes of the request: it dropped a part.

    Ollama and others do so without an error if a prompt is longer than their context.
    """
    tokens = 0 if usage.estimated else usage.input_tokens
    return tokens >= LEAST_CONTEXT and tokens * BYTES_A_TOKEN < len(body) and not count_referenced_tokens(body)


class Tally:
    """Counts what one run uses. It begins with the sums of the run's record, so recorded work is not counted again.

    `own` are the sums of the run itself. `children` are the runs below by id: each its tally, or its sums if this
    process does not perform it.
    """

    def __init__(self, spent: Spent = NOTHING, children: Mapping[str, Spent] | None = None) -> None:
        self.own = structs.replace(spent, runs=1)
        self.children: dict[str, Tally | Spent] = dict(children or {})
        self.is_over = False
        """Whether the run has ended."""
        self.estimate = TokenEstimate()

    @property
    def tree_total(self) -> Spent:
        """Return what the run and its child runs used so far."""
        spent = self.own
        for child in list(self.children.values()):  # a tool's thread may add one meanwhile
            spent += child if isinstance(child, Spent) else child.tree_total
        return spent

    def json(self) -> dict[str, Any]:
        """Return the run's own sums as its totals hold them."""
        return {name: value for name, value in self.own.json().items() if name != "runs"}
