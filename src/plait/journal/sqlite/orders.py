"""What the thread that writes to a journal is told to do."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from plait.journal.sqlite.rows import Ending

if TYPE_CHECKING:
    from plait.journal.sqlite.log import SqliteLog


class Item(NamedTuple):
    """Rows of a log to commit, with the run's ending if it ends. `until` is when to give up on a locked journal."""

    log: SqliteLog
    ending: Ending | None
    future: asyncio.Future[None]
    until: float


class Signal(Enum):
    """What else the thread is told to do."""

    CHECKPOINT = 0
    CLOSE = 1


class Transaction(NamedTuple):
    """A transaction of its own. Whoever takes the `ticket` decides: the thread begins it, or its caller drops it."""

    work: Callable[[sqlite3.Connection], Any]
    durable: bool
    future: asyncio.Future[Any]
    until: float
    ticket: list[None]
