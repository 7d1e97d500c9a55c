"""Counts how often a program runs the statement of a refund, whatever its framework, and kills it after the first.

Python imports this file at its start, because `check.py` puts this folder into PYTHONPATH. Each statement adds a
line to the file REFUNDS. With KILL=1, the process then dies by SIGKILL, before the tool returns.
"""

import os
import signal
import sqlite3
from typing import Any

if "REFUNDS" in os.environ:
    connect = sqlite3.connect

    class Connection(sqlite3.Connection):
        refunds = False

        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            self.refunds = self.refunds or sql.startswith("UPDATE orders")
            return super().execute(sql, *values)

        def close(self) -> None:
            super().close()
            if self.refunds:
                with open(os.environ["REFUNDS"], "a") as file:
                    file.write("refund\n")
                if os.environ.get("KILL"):
                    os.kill(os.getpid(), signal.SIGKILL)

    def connect_counted(*words: Any, **given: Any) -> sqlite3.Connection:
        return connect(*words, **{"factory": Connection, **given})

    sqlite3.connect = connect_counted  # type: ignore[assignment]
