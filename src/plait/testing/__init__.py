"""Tests of agents (docs/testing.md). pytest loads `pytest_plugin.py` by itself."""

from contextlib import AbstractContextManager

from plait.models.real_models import RealModelForbidden as RealModelForbidden
from plait.models.real_models import forbid_real_models as forbid_real_models


def allow_real_models() -> AbstractContextManager[None]:
    """Allow real models meanwhile, where they are forbidden."""
    return forbid_real_models("allow")
