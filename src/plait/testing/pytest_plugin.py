"""The pytest plug-in: a journal for each test, and fixtures that forbid or allow real models."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from plait.testing import allow_real_models, forbid_real_models, set_variable

_FOLDER = Path(tempfile.gettempdir()) / f"plait-tests-{os.getpid()}"
_numbers = count(1)


@pytest.fixture(autouse=True)
def plait_journal() -> Iterator[Path]:
    """The journal of this test, in place of the user's. The first run makes the file; it is deleted after the test."""
    path = _FOLDER / str(next(_numbers)) / "journal.db"
    with set_variable("PLAIT_JOURNAL", str(path)):
        yield path
    if path.parent.exists():
        if "plait.journal.sqlite.store" in sys.modules:
            from plait.journal.store import Journal

            Journal.at(path).close()
        shutil.rmtree(path.parent, ignore_errors=True)


def pytest_unconfigure() -> None:
    shutil.rmtree(_FOLDER, ignore_errors=True)


@pytest.fixture
def no_real_models() -> Iterator[None]:
    """Let each request to an endpoint, and each start of a local model, fail the test."""
    with forbid_real_models():
        yield


@pytest.fixture
def real_models(request: pytest.FixtureRequest) -> Iterator[None]:
    """Allow real models in this test, also where `no_real_models` is used for all tests."""
    if "no_real_models" in request.fixturenames:
        request.getfixturevalue("no_real_models")  # so that this one is set after it
    with allow_real_models():
        yield
