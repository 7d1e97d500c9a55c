"""The pytest plug-in: a journal for each test, and fixtures that forbid or allow real models."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from tempfile import gettempdir
from uuid import uuid4

import pytest

from plait.testing import allow_real_models, forbid_real_models


@pytest.fixture(autouse=True)
def plait_journal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The journal of this test, in place of the user's. The first run makes the file; it is deleted after the test."""
    path = Path(gettempdir()) / f"plait-test-{uuid4().hex}" / "journal.db"
    monkeypatch.setenv("PLAIT_JOURNAL", str(path))
    yield path
    if path.parent.exists():
        if (store := sys.modules.get("plait.journal.store")) is not None:
            store.Journal.at(path).close()
        rmtree(path.parent, ignore_errors=True)


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
