"""The journal's page says what the file holds, and its example decodes it."""

from __future__ import annotations

import re
import sqlite3
import textwrap
import zlib
from pathlib import Path
from typing import Any, get_args

from journal_rows import request
from plait.journal.owner import new_run_id, owner_of_this_process
from plait.journal.records import Record, RunHead
from plait.journal.sqlite import schema
from plait.journal.store import Journal

PAGE = Path(__file__).parent.parent / "docs" / "journal.md"


async def make(path: Path) -> Journal:
    journal = Journal(path)
    log = await journal.store.begin(RunHead(new_run_id(), "q", {"name": "react"}, {}), owner_of_this_process())
    for n in range(5):
        body = b"system " * 400 + b"".join(b"turn %d " % k for k in range(n)) + b"the end, which is always the same"
        await log.append((request(f"{n}a0", n), body))
    await log.append((request("5a0", 5), b"unlike"))  # stands alone: shares nothing with its base
    await log.end("answered", {}, {})
    return journal


async def test_the_page_names_every_table_column_and_record_kind_of_a_real_file(tmp_path: Path) -> None:
    page = PAGE.read_text()
    journal = await make(tmp_path / "j.db")
    journal.close()
    connection = sqlite3.connect(tmp_path / "j.db")
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    columns = [row[1] for table in tables for row in connection.execute(f"PRAGMA table_info({table})")]
    marks = [connection.execute(f"PRAGMA {each}").fetchone()[0] for each in ("application_id", "user_version")]
    connection.close()
    assert sorted(tables) == ["contents", "events", "kept", "marks", "reservations", "runs", "spending"]
    assert len(columns) == 61
    for name in [*tables, *columns, *(str(each.__struct_config__.tag) for each in get_args(Record))]:
        assert f"`{name}`" in page, name
    assert marks == [schema.APPLICATION_ID, schema.VERSION]
    assert f"is {marks[0]} " in page and f"now {marks[1]}." in page


async def test_the_page_s_example_restores_bodies(tmp_path: Path) -> None:
    example = re.search(r"^    def body\(row, base_body\):\n(?:    .*\n)+", PAGE.read_text(), re.M)
    assert example
    names: dict[str, Any] = {"zlib": zlib}
    exec(textwrap.dedent(example[0]), names)
    journal = await make(tmp_path / "j.db")
    connection = sqlite3.connect(tmp_path / "j.db")
    connection.row_factory = sqlite3.Row
    bodies: dict[int, bytes] = {}
    for row in connection.execute("SELECT * FROM events ORDER BY seq"):
        bodies[row["seq"]] = names["body"](row, bodies.get(row["base"]))
    packed = [row["packed"] for row in connection.execute("SELECT packed FROM events ORDER BY seq")]
    connection.close()
    assert list(bodies.values()) == [row.body for row in journal.rows("last")]
    assert packed == [1, None, None, None, None, None]
