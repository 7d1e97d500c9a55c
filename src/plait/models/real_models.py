"""Forbids real models in tests: requests to endpoints, and the start of a model on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

SWITCH = "PLAIT_REAL_MODELS"
"""The environment variable that forbids real models if it is "forbid", in child processes too."""


class RealModelForbidden(BaseException):
    """A test asked a real model. It is no `Exception`, so that neither a tool nor a fallback model can hide it."""


def require_real_models(what: str) -> None:
    """Raise `RealModelForbidden` if real models are forbidden. `what` is the model, without secrets."""
    if os.environ.get(SWITCH) == "forbid":
        raise RealModelForbidden(
            f"A test asks a real model: {what}. Give the agent a script: agent.using(model=plait.Scripted([...])). "
            "If the test needs the real model, let it take the fixture `real_models`, or use "
            "`with plait.testing.allow_real_models():`."
        )


@contextmanager
def forbid_real_models(word: str = "forbid") -> Iterator[None]:
    """Raise `RealModelForbidden` at each request to an endpoint and each start of a local model meanwhile, in this
    process and its child processes. `PLAIT_REAL_MODELS=forbid` in the environment does the same."""
    before = os.environ.get(SWITCH)
    os.environ[SWITCH] = word
    try:
        yield
    finally:
        os.environ.pop(SWITCH)
        if before is not None:
            os.environ[SWITCH] = before
