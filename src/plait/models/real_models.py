"""Forbids real models in tests: requests to endpoints, and the start of a model on this machine."""

from __future__ import annotations

import os

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
