"""Points at which a run kills itself with SIGKILL: around model calls, effects of tools, writes to the journal."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from typing import Any

from journal_rows import name_of
from plait.journal.sqlite.log import SqliteLog


@dataclass
class KillPoints:
    """Counts the points that this process passes, and dies at one.

    `fatal` is the number of the point, or its kind ("after send": the first of it). "0" never dies.
    """

    fatal: str
    passed: list[str] = field(default_factory=list)

    def point(self, kind: str) -> None:
        """Pass a point of this kind, or die."""
        self.passed.append(kind)
        if self.fatal in (kind, str(len(self.passed))):
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, model: Any, *, is_postgres: bool = False) -> None:
        """Add points around each call of a class of models, and around each write to a journal."""
        send = model.send

        async def send_with_points(*args: Any, **kwargs: Any) -> Any:
            self.point("before model")
            response = await send(*args, **kwargs)
            self.point("after model")
            return response

        def add_points(kind: Any) -> None:
            append = kind.append

            async def append_with_points(log: Any, *entries: Any, **how: Any) -> None:
                kinds = "+".join(name_of(record) for record, _ in entries)
                self.point(f"before {kinds}")
                await append(log, *entries, **how)
                self.point(f"after {kinds}")

            kind.append = append_with_points

        model.send = send_with_points
        add_points(SqliteLog)
        if is_postgres:
            from plait.journal.postgres.log import PostgresLog

            add_points(PostgresLog)
