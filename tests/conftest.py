"""What all tests share: one thread for models, a journal of their own, the data beside the checkout."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("PLAIT_THREADS", "1")

# A job that a script starts in the background ignores Ctrl-C, and so would all that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How fast examples are made depends on what else the machine does: that is no fault of what is tested.
settings.register_profile("plait", suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("plait")

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(autouse=True)
def _own_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test touches the user's journal or configuration."""
    monkeypatch.setenv("PLAIT_JOURNAL", str(tmp_path / "journal.db"))
    monkeypatch.delenv("PLAIT_CONFIG", raising=False)
    for name in ("PLAIT_MODEL", "PLAIT_STRATEGY", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal file that is not there yet."""
    return tmp_path / "runs.db"


def data_file(*parts: str) -> Path:
    """A file of the development data; the test is skipped, loudly, where it is absent."""
    path = DATA.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"NOT CHECKED: the development data {path} is absent")
    return path
