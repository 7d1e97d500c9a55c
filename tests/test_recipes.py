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


def open_client(service: ModuleType, user: str) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app=service.app)
    return httpx2.AsyncClient(transport=transport, base_url="http://chat", headers={"X-User": user})


def events_in(text: str) -> list[Any]:
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line]


async def test_only_the_user_of_a_chat_sees_and_answers_its_question_and_only_once(load: Load) -> None:
    service = load("chat-service", "chat_service")
    async with open_client(service, "ada") as ada, open_client(service, "eve") as eve:
        said = await ada.post("/chats/1", json={"text": "A table, please."})
        assert events_in(said.text)[-1]["status"] == "waiting"
        (question,) = (await ada.get("/chats/1")).json()
        assert (await eve.get("/chats/1")).json() == {}
        yes = {"text": "yes", "reply_to": question}
        assert (await eve.post("/chats/1", json=yes)).status_code == 409
        assert (await eve.get("/chats/..%2fada%2f1")).status_code == 404
        assert (await ada.post("/chats/1", json={"text": "yes"})).status_code == 409  # names no question
        both = await asyncio.gather(*(ada.post("/chats/1", json=yes) for _ in range(2)), return_exceptions=True)
        ended = [each for each in both if not isinstance(each, BaseException) and '"answered"' in each.text]
        assert len(ended) == 1
        assert (await ada.post("/chats/1", json=yes)).status_code == 409
    run = plait.open_journal("chats.db").load("last")
    assert [call.status for call in run.calls_of("book_table")] == ["ok"] and run.answer is not None


async def test_a_chat_can_be_cancelled_and_then_goes_on(load: Load) -> None:
    service = load("chat-service", "chat_service")
    agent = service.agent
    service.agent = agent.using(model=plait.Scripted(["Late."], delay=60))
    async with open_client(service, "ada") as ada, open_client(service, "eve") as eve:
        asked = asyncio.create_task(ada.post("/chats/1", json={"text": "Hello?"}))
        while not await service.runs.alist():
            await asyncio.sleep(0.01)
        assert (await ada.post("/chats/1", json={"text": "Hello??"})).status_code == 409
        await eve.delete("/chats/1")
        assert service.streams
        await ada.delete("/chats/1")
        assert events_in((await asked).text)[-1]["status"] == "cancelled" and not service.streams
        service.agent = agent.using(model=plait.Scripted(["Hello."]))
        assert events_in((await ada.post("/chats/1", json={"text": "Hello?"})).text)[-1]["status"] == "answered"


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


async def test_of_several_messages_at_once_one_starts_a_run(load: Load) -> None:
    service = load("chat-service", "chat_service")
    async with open_client(service, "ada") as ada:
        for chat in "abc":
            at_once = (ada.post(f"/chats/{chat}", json={"text": f"A table {n}."}) for n in range(3))
            assert sorted(each.status_code for each in await asyncio.gather(*at_once)) == [200, 409, 409]
            (question,) = (await ada.get(f"/chats/{chat}")).json()
            late = await ada.post(f"/chats/{chat}", json={"text": "no", "reply_to": question})
            assert events_in(late.text)[-1]["status"] == "answered" and not service.streams
    assert len(plait.open_journal("chats.db").list()) == 3


async def test_an_answer_that_cannot_be_taken_is_an_error_of_the_request_and_the_run_still_waits(load: Load) -> None:
    service = load("chat-service", "chat_service")
    async with open_client(service, "ada") as ada:
        await ada.post("/chats/1", json={"text": "A table, please."})
        (question,) = (await ada.get("/chats/1")).json()
        for words in ("edit {oops", 'edit {"day": 1, "x": 2}', "yes, please", ""):
            said = await ada.post("/chats/1", json={"text": words, "reply_to": question})
            assert said.status_code == 400 and "still waits" in said.json()["detail"], words
            assert not service.streams and question in (await ada.get("/chats/1")).json()
        service.agent = service.agent.using(journal="other.db")  # nothing asks there
        said = await ada.post("/chats/1", json={"text": "yes", "reply_to": question})
        assert said.status_code == 400 and not service.streams
