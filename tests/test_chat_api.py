"""The routes of the chat page: conversations go on, branch, are answered again, and belong to their callers."""

from __future__ import annotations

import base64
import http.client
import json
import time
from pathlib import Path
from typing import Any

import plait
from lazily import skip_without
from window_support import Held, action, answer, population, react, send

skip_without("server", "starlette", "uvicorn", "prometheus_client", "markdown_it", "nh3", "pygments")

from window_server import FULL, Here, serving  # noqa: E402

AT = "/api/conversations"


class Talker:
    """A caller of the routes."""

    def __init__(self, server: Here, token: str | None = None) -> None:
        self.server, self.token = server, token

    def get(self, path: str, status: int = 200) -> Any:
        found, _, body = self.server.ask("GET", f"{AT}{path}", token=self.token)
        assert found == status, body
        return body

    def act(self, what: str, status: int = 201, **body: Any) -> Any:
        found, _, told = self.server.ask("POST", f"{AT}/{what}", body, token=self.token)
        assert found == status, told
        return told

    def say(self, text: str, session: str | None = None, **more: Any) -> tuple[str, str]:
        """Say something and wait for the end: the session and the run."""
        got = self.act("messages", **{"agent": "plait", "text": text, "session": session, **more})
        self.wait(got["run"])
        return got["session"], got["run"]

    def wait(self, run: str) -> str:
        while (status := self.server.manager.journal.run(run).status) == "running":
            time.sleep(0.02)
        return status

    def turns(self, session: str) -> list[dict[str, Any]]:
        """The versions that count."""
        turns = self.get(f"/turns?session={session}")["turns"]
        return [next(each for each in turn["versions"] if each["run"] == turn["run"]) for turn in turns]

    def seen(self, run: str) -> list[tuple[str, str]]:
        """The earlier turns that a run saw."""
        return [(each.question, each.answer) for each in self.server.manager.journal.run(run).head.history]


def one_by_one(journal: Path, replies: list[str], **fields: Any) -> plait.Agent:
    return react(journal, model=plait.Scripted(replies, by_turn=False), **fields)


def answers(journal: Path, *texts: str, **fields: Any) -> plait.Agent:
    return one_by_one(journal, [answer(each) for each in texts], **fields)


def test_a_conversation_goes_on_and_is_found_renamed_exported_and_deleted(tmp_path: Path) -> None:
    with serving(answers(tmp_path / "j.db", "**Lyon**", "It is in France.", "other")) as server:
        talker = Talker(server)
        session, _ = talker.say("What is\nthe town?")
        again, second = talker.say("Where is it?", session)
        talker.say("Something else")
        assert again == session and talker.seen(second) == [("What is\nthe town?", "**Lyon**")]
        listed = talker.get("")["conversations"]
        assert [each["title"] for each in listed] == ["Something else", "What is the town?"]
        assert [each["session"] for each in talker.get("?words=FRANCE%20where")["conversations"]] == [session]
        assert [each["html"] for each in talker.turns(session)] == [
            "<p><strong>Lyon</strong></p>\n",
            "<p>It is in France.</p>\n",
        ]
        talker.act("title", 200, session=session, title="  Éclairs\n ")
        assert [each["title"] for each in talker.get("?words=%C3%89clairs")["conversations"]] == ["Éclairs"]
        talker.act("title", 400, session=session, title=" ")
        talker.act("title", 404, session="none", title="x")
        text = talker.get(f"/export?session={session}&format=markdown")
        assert text.startswith("# Éclairs\n") and "## You\n\nWhere is it?" in text and "**Lyon**" in text
        kept = json.loads(talker.get(f"/export?session={session}&format=json"))
        assert [turn["versions"][0]["answer"] for turn in kept["turns"]] == ["**Lyon**", "It is in France."]
        talker.get(f"/export?session={session}&format=pdf", 400)
        assert talker.act("delete", 200, session=session) == {"deleted": 2}
        talker.get(f"/turns?session={session}", 404)
        talker.act("delete", 404, session=session)
        assert len(talker.get("")["conversations"]) == 1


def test_an_edited_message_begins_a_branch_that_both_know(tmp_path: Path) -> None:
    with serving(answers(tmp_path / "j.db", "one", "two", "three", *"abcd")) as server:
        talker = Talker(server)
        session, first = talker.say("first")
        _, second = talker.say("second", session)
        branch, other = talker.say("second, edited", session, edits=second)
        assert branch != session and talker.seen(other) == [("first", "one")]
        assert [each["question"] for each in talker.turns(session)] == ["first", "second"]
        assert [each["question"] for each in talker.turns(branch)] == ["first", "second, edited"]
        assert [each["edited"] for each in talker.get("")["conversations"]] == [True, False]
        begun, one = [], session
        for _ in range(2):  # the second is the edit of an edit
            one, first = talker.say("another", one, edits=first)
            begun.append(one)
        for at, one, versions in (
            *((1, each, [session, branch]) for each in (session, branch)),
            *((0, each, [session, *begun]) for each in (session, branch, *begun)),
        ):
            assert talker.get(f"/turns?session={one}")["turns"][at]["branches"] == versions
        _, third = talker.say("third", branch)
        assert talker.seen(third) == [("first", "one"), ("second, edited", "three")]
        talker.act("delete", 200, session=session)  # the branch stays, and knows what was said before
        found = talker.get(f"/turns?session={branch}")
        assert [(each["question"], each["html"]) for each in found["earlier"]] == [("first", "<p>one</p>\n")]
        assert found["turns"][0]["branches"] == [branch]
        assert talker.get(f"/turns?session={begun[1]}")["turns"][0]["branches"] == begun
        _, fourth = talker.say("fourth", branch)
        assert talker.seen(fourth)[0] == ("first", "one") and len(talker.seen(fourth)) == 3
        talker.act("messages", 404, agent="plait", text="x", session=branch, edits="none")


def test_a_retry_is_another_version_and_the_one_that_was_seen_counts(tmp_path: Path) -> None:
    with serving(answers(tmp_path / "j.db", "one", "again", "next", "last")) as server:
        talker = Talker(server)
        session, first = talker.say("first")
        again = talker.act("retry", session=session, run=first)["run"]
        talker.wait(again)
        (turn,) = talker.get(f"/turns?session={session}")["turns"]
        assert turn["run"] == again and [each["text"] for each in turn["versions"]] == ["one", "again"]
        _, second = talker.say("second", session, after=first)
        assert talker.seen(second) == [("first", "one")]
        _, third = talker.say("third", session, after=second)
        assert talker.seen(third) == [("first", "one"), ("second", "next")]
        assert talker.act("messages", 409, agent="plait", text="x", session=session, after=first)["error"]["code"]
        talker.act("retry", 409, session=session, run=first)


def test_a_run_goes_on_after_a_limit_as_the_turn_that_later_messages_see(tmp_path: Path) -> None:
    script = [
        action("population", {"town": "Lyon"}),
        answer("Lyon only"),
        action("population", {"town": "Nice"}),
        answer("both"),
        answer("next"),
    ]
    limits = plait.Limits(calls=2)
    with serving(one_by_one(tmp_path / "j.db", script, limits=limits)) as server:
        talker = Talker(server)
        session, first = talker.say("both towns?")
        (turn,) = talker.turns(session)
        assert turn["status"] == "stopped" and turn["text"] == "Lyon only"
        longer = talker.act("continue", session=session, run=first)["run"]
        assert talker.wait(longer) == "answered"
        assert server.manager.journal.run(longer).head.settings["limits"]["calls"] == 4
        assert [each["text"] for each in talker.turns(session)] == ["both"]
        _, second = talker.say("next", session, after=longer)
        assert talker.seen(second) == [("both towns?", "both")]
        talker.act("continue", 409, session=session, run=second)


def test_files_go_with_a_message_and_with_its_branch(tmp_path: Path) -> None:
    with serving(answers(tmp_path / "j.db", "a", "b")) as server:
        talker = Talker(server)
        name = '"><img src=x onerror=alert(1)>.txt'
        files = [{"name": name, "content": base64.b64encode(b"some text").decode()}]
        session, run = talker.say("", files=files)
        (turn,) = talker.turns(session)
        assert turn["question"] == "" and turn["files"][0]["kind"] == "text"
        digest = turn["files"][0]["digest"]
        status, headers, body = server.ask("GET", f"{AT}/file?session={session}&digest={digest}")
        assert (status, body) == (200, "some text") and headers["content-disposition"].startswith("attachment")
        assert "sandbox" in headers["content-security-policy"]
        assert headers["content-type"] == "application/octet-stream"
        branch, _ = talker.say("with it", session, edits=run, kept=[digest])
        assert talker.turns(branch)[0]["files"][0]["digest"] == digest
        talker.get(f"/file?session={session}&digest=0", 404)
        for wrong in (
            {"name": "x", "content": "?"},
            {"name": "x", "content": base64.b64encode(b"PK\x03\x04\0\xff\xfe").decode()},
        ):
            talker.act("messages", 400, agent="plait", text="x", files=[wrong])
        talker.act("messages", 400, agent="plait", text=" ")
        talker.act("messages", 404, agent="nobody", text="x")


def test_a_run_that_waits_takes_no_message_and_is_answered_after_a_restart(tmp_path: Path) -> None:
    script = [action("send", {"text": "Call Lyon."}), answer("sent")]
    with serving(one_by_one(tmp_path / "j.db", script, approve="effects")) as server:
        session, run = Talker(server).say("send it")
        refused = Talker(server).act("messages", 409, agent="plait", text="hello", session=session)
        assert "waits" in refused["error"]["message"]
    with serving(one_by_one(tmp_path / "j.db", script[1:], approve="effects")) as server:
        talker = Talker(server)
        assert [each["status"] for each in talker.get("")["conversations"]] == ["waiting"]
        (asked,) = server.ask("GET", f"/api/runs/{run}")[2]["waiting"]
        told = {"answer": "yes", "question": asked["question"]}
        assert server.ask("POST", f"/v1/runs/{run}/answer", told)[0] == 202 and talker.wait(run) == "answered"
        assert [each["text"] for each in talker.turns(session)] == ["sent"]


def test_conversations_belong_to_their_users(tmp_path: Path) -> None:
    agent = answers(tmp_path / "j.db", *"abcdefgh")
    tokens = {"alice": "alices-token-of-the-tests", "bob": "bobs-token-of-the-tests"}
    with serving(agent, tokens=(FULL,), users=tuple(tokens.items())) as server:
        alice, bob, full = (Talker(server, each) for each in (*tokens.values(), FULL))
        session, run = alice.say("hers")
        other, _ = full.say("nobody's")
        assert session.startswith("chat-")
        assert [each["session"] for each in alice.get("")["conversations"]] == [session]
        assert bob.get("")["conversations"] == []
        assert [each["session"] for each in full.get("")["conversations"]] == [other]
        hers = server.manager.journal.run(run).head
        assert hers.user == "alice" and hers.session != session
        for talker, names in ((bob, (session, hers.session, other)), (full, (hers.session,))):
            for name in names:
                talker.get(f"/turns?session={name}", 404)
                talker.get(f"/export?session={name}", 404)
                talker.act("title", 404, session=name, title="mine")
                talker.act("delete", 404, session=name)
                talker.act("retry", 409 if talker is bob else 404, session=name, run=run)
        assert bob.get("?words=hers")["conversations"] == []
        mine, _ = bob.say("his", session)  # a name is the caller's own
        assert mine == session and [each["question"] for each in bob.turns(session)] == ["his"]
        assert [each["question"] for each in alice.turns(session)] == ["hers"]


def test_an_answer_is_streamed_as_html_while_it_is_written(tmp_path: Path) -> None:
    model = Held([answer("**one** and `two`\n\n" + " ".join(map(str, range(3_000))))])
    agent = plait.Agent(loop="react", model=model, tools=(population, send), journal=tmp_path / "j.db")
    with serving(agent) as server:
        talker = Talker(server)
        got = talker.act("messages", agent="plait", text="go")
        connection, page = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60), list[str]()
        connection.request("GET", f"/api/runs/{got['run']}/events?answers=1")
        try:
            with connection.getresponse() as stream:
                while len("".join(page)) < 5_000:  # a text is sent whole, not only its end
                    if '"blocks"' in (line := stream.readline().decode()):
                        (step,) = json.loads(line.removeprefix("data: "))["steps"]
                        page[step["answer"]["from"] :] = step["answer"]["blocks"]
        finally:
            model.go.set()
            connection.close()
        assert page[0] == "<p><strong>one</strong> and <code>two</code></p>\n" and len(page) == 2
        assert [kind for kind, _ in step["parts"]] == ["thought"]
        assert talker.wait(got["run"]) == "answered"
