"""The recipes keep what their pages promise beyond the output that they show: cancelling, kills, other users."""

from __future__ import annotations

import asyncio
import importlib
import json
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import pytest

import plait
from docs_support import ROOT, files_of
from fork_server import run_forked

Load = Callable[[str, str], ModuleType]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Write the files of a recipe into the folder of this test, work there, and import a module of it."""

    def load_recipe(page: str, module: str) -> ModuleType:
        for name, text in files_of(ROOT / "docs" / "recipes" / f"{page}.md").items():
            (tmp_path / name).write_text(text)
            monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setenv("MODEL", "scripted:replies.json")
        return importlib.import_module(module)

    return load_recipe


async def test_only_the_user_of_a_thread_sees_and_answers_its_question_and_only_once(load: Load) -> None:
    service = load("chat-service", "chat_service")

    def open_client(user: str) -> httpx2.AsyncClient:
        transport = httpx2.ASGITransport(app=service.app)
        return httpx2.AsyncClient(transport=transport, base_url="http://chat", headers={"X-User": user})

    async def ask(client: httpx2.AsyncClient, run: str, **given: Any) -> Any:
        body = {"threadId": "1", "runId": run, "messages": [], **given}
        text = (await client.post("/assistant/ag-ui", json=body)).text
        return (
            [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line]
            if "data: " in text
            else text
        )

    async with open_client("ada") as ada, open_client("eve") as eve, open_client("") as nobody:
        asked = [{"id": "1", "role": "user", "content": "A table, please."}]
        (interrupt,) = (await ask(ada, "r1", messages=asked))[-1]["outcome"]["interrupts"]
        yes = {"resume": [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}]}
        assert (await ask(eve, "r2", **yes))[-1]["code"] == "stale_answer"
        assert "knows no such thread" in await ask(eve, "r3")
        assert "no_user" in await ask(nobody, "r4", **yes)
        both = await asyncio.gather(*(ask(ada, name, **yes) for name in ("r5", "r6")))
        assert sorted(each[-1].get("code", "") for each in both) == ["", "stale_answer"]
    run = plait.open_journal("chats.db").load("last")
    assert [call.status for call in run.calls_of("book_table")] == ["ok"] and run.answer is not None


KILLED = """
import os, sqlite3
import plait, support

class Dies(sqlite3.Connection):
    def execute(self, sql, *values):
        if {before} and sql.startswith("update"):
            os._exit(9)
        found = super().execute(sql, *values)
        if sql.startswith("update"):
            os._exit(9)
        return found

async def main():
    async with support.open_shop():
        db = sqlite3.connect("shop.db", isolation_level=None, check_same_thread=False, factory=Dies)
    await support.agent.using(model="scripted:replies.json").arun("Refund it.", deps=db, on_wait=lambda waits: "yes")

import asyncio
asyncio.run(main())
"""


@pytest.mark.parametrize("before", [True, False])
def test_a_refund_whose_process_is_killed_happens_once_and_is_not_asked_about_again(load: Load, before: bool) -> None:
    support = load("support-agent", "support")
    assert run_forked(["-c", KILLED.format(before=before)], cwd=".").returncode == 9
    agent = support.agent.using(model="scripted:replies.json")
    run = agent.resume("last")
    assert run.answer == "Order 1042 is refunded."
    assert [(call.status, call.result) for call in run.calls_of("refund")] == [("ok", "Order 1042 is refunded.")]
    with closing(sqlite3.connect("shop.db")) as db:
        assert db.execute("select count(*) from orders where refund is not null").fetchone() == (1,)


def test_citations_of_other_files_lines_and_words_are_refused(load: Load, tmp_path: Path) -> None:
    folder = tmp_path / "examples" / "documents"
    folder.mkdir(parents=True)
    (folder / "warranty.md").write_text("# Warranty\n\nLamps have a warranty of three years.\n")
    (folder / "empty.md").write_text("")
    (tmp_path / "secret.md").write_text("Words of a secret file.\n")
    research = load("research", "research")

    def check(file: str, line: int, quote: str) -> str | None:
        claim = research.Claim(text="", file=file, line=line, quote=quote)
        said = research.check_quotes(research.Report(claims=[claim], not_found=[]))
        assert said is None or isinstance(said, str)
        return said

    assert check("warranty.md", 3, "warranty of three years") is None
    for file, line, quote in [
        ("warranty.md", 1, "warranty of three years"),
        ("warranty.md", 3, "warranty of four years"),
        ("warranty.md", 99, "warranty of three years"),
        ("empty.md", 1, "warranty of three years"),
        ("missing.md", 1, "warranty of three years"),
        ("../../secret.md", 1, "Words of a secret file."),
        (str(tmp_path / "secret.md"), 1, "Words of a secret file."),
    ]:
        assert check(file, line, quote), file
    for wrong in ({"line": 0}, {"quote": "years"}):
        with pytest.raises(ValueError):
            research.Claim(**{"text": "", "file": "warranty.md", "line": 3, "quote": "three years long", **wrong})
