"""The record of every run. Names are loaded when first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plait.journal.memory import MemoryLog
    from plait.journal.owner import new_run_id, owner_of_this_process
    from plait.journal.records import Record, Row, RunHead, RunRow, SessionRow, SessionTurn
    from plait.journal.redaction import redact_with
    from plait.journal.store import RecordAndBody, RunLog

_HOMES = {
    "Journal": "store",
    "MemoryLog": "memory",
    "Record": "records",
    "RecordAndBody": "store",
    "Row": "records",
    "RunHead": "records",
    "RunLog": "store",
    "RunRow": "records",
    "SessionRow": "records",
    "SessionTurn": "records",
    "Store": "store",
    "default_path": "store",
    "new_run_id": "owner",
    "owner_of_this_process": "owner",
    "redact_with": "redaction",
}

__all__ = [
    "Journal",
    "MemoryLog",
    "Record",
    "RecordAndBody",
    "Row",
    "RunHead",
    "RunLog",
    "RunRow",
    "SessionRow",
    "SessionTurn",
    "Store",
    "default_path",
    "new_run_id",
    "owner_of_this_process",
    "redact_with",
]


def __getattr__(name: str) -> Any:
    # Importing sqlite3 takes half as long as msgspec, and `import plait` works without it.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
