"""The routes with which users improve agents: forks with changes, changes over runs, ratings, the review, data sets."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

import plait
from cli_support import trusting
from fork_server import run_forked
from lazily import skip_without
from plait.core import Think
from plait.journal.records import RunRow
from plait.journal.run_query import RunQuery
from plait.journal.store import Journal, wait_for
from test_forks import add, make_agent, place
from window_support import react

skip_without("server", "starlette", "uvicorn", "prometheus_client")

from plait.server.auth import Caller  # noqa: E402
from plait.server.changes import ForkChanges, LimitChanges, changed_agent  # noqa: E402
from plait.server.errors import RequestRejected  # noqa: E402
from window_server import ALICE, BOB, FULL, ONE, USERS, Here, Process, ask, script, serving  # noqa: E402

assert place  # a fixture


def until_ended(server: Here, run: str) -> dict[str, Any]:
    """Wait for the end of a run; its page."""
    for _ in range(600):
        _, _, body = server.ask("GET", f"/api/runs/{run}")
        if body["run"]["status"] not in ("running", "queued"):
            return dict(body["run"])
        time.sleep(0.02)
    raise TimeoutError(run)


def until_over(server: Here | Process, name: str) -> dict[str, Any]:
    """Wait until all forks of a change have ended; its page."""
    for _ in range(600):
        _, _, body = ask(server.port, "GET", f"/api/changes/{name}")
        if not body["is_active"]:
            return dict(body)
        time.sleep(0.02)
    raise TimeoutError(name)


def forked(server: Here, run: str, **changes: Any) -> dict[str, Any]:
    status, _, body = server.ask("POST", f"/api/runs/{run}/fork", changes)
    assert status == 201, body
    return until_ended(server, body["run"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "sets"


def test_a_fork_gets_every_change_that_the_page_can_make(journal: Path) -> None:
    agent = make_agent("tool_calling", journal, name="plait", instructions="Be kind.")
    run = agent.run("What is 2 + 3?").id
    with serving(agent) as server:
        _, _, now = server.ask("GET", f"/api/runs/{run}/change")
        assert (now["question"], now["instructions"], now["loop"]) == ("What is 2 + 3?", "Be kind.", "tool_calling")
        assert now["limits"]["steps"] == 25 and now["most"]["seconds"] == 600 and now["effects"] == []
        assert [(each["key"], each["tool"], each["text"]) for each in now["calls"]] == [("1.0", "add", "5")]
        prompt = "Short! " + now["prompts"]["tool_calling/system"]
        changes = {"instructions": "Be brief.", "limits": {"steps": 4, "seconds": 9}, "results": {"1.0": "6077"}}
        changes |= {"question": "What is it?", "prompts": {"tool_calling/system": prompt}}
        fork = forked(server, run, at=2, **changes)
        assert fork["status"] == "answered" and fork["question"] == "What is it?"
        assert fork["settings"]["limits"] == {"steps": 4, "seconds": 9.0}
        said = ["question", "instructions", "prompts.tool_calling/system", "limits.steps", "limits.seconds"]
        assert fork["settings"]["changed"] == [*said, "the result of call 1.0"]
        _, _, wire = server.ask("GET", f"/api/runs/{fork['run']}/wire?step=2")
        sent = wire["exchanges"][0]["request"]
        assert "6077" in sent and "Be brief." in sent and "Short! " in sent and "What is it?" in sent
        again = forked(server, fork["run"], at=1, loop="react")  # another loop has prompts of its own
        assert again["loop"] == "react" and "prompts" not in again["settings"]
        assert "instructions" in forked(server, run, at=1, instructions="", model="")["settings"]["changed"]


ATTACKS: dict[str, tuple[dict[str, Any], str]] = {
    "a template with code": ({"prompts": {"tool_calling/system": "{{ ''.__class__.__mro__ }}{{ f() }}"}}, "Call"),
    "a template with work": ({"prompts": {"tool_calling/system": "{{ 'x' * 10 ** 10 }}"}}, "not allowed here"),
    "a file as a prompt": ({"prompts": {"../../etc/passwd": "x"}}, "no prompt of this agent"),
    "a folder of prompts": ({"prompts": "/etc"}, "Expected `object`"),
    "a field that is not named": ({"system": "x"}, "unknown field"),
    "tools": ({"tools": ["os:system"]}, "unknown field"),
    "a result of no call": ({"results": {"7.7": "x"}}, "There is no call '7.7'"),
    "a result of a later step": ({"at": 1, "results": {"1.0": "x"}}, "There is no call '1.0' before step 1"),
    "more seconds than the server has": ({"limits": {"seconds": 99999}}, "can be at most 600"),
    "no limit of seconds": ({"limits": {"seconds": None}}, "can be at most 600"),
    "an invalid limit": ({"limits": {"steps": -1}}, "steps"),
    "an empty question": ({"question": " "}, "The question is empty"),
    "no such step": ({"at": 99}, "There is no step 99"),
}


def test_attacks_on_a_fork_are_refused_and_start_nothing(journal: Path) -> None:
    agent = make_agent("tool_calling", journal, name="plait")
    run = agent.run("What is 2 + 3?").id
    with serving(agent, body_mb=0.05) as server:
        for name, (changes, said) in ATTACKS.items():
            status, _, body = server.ask("POST", f"/api/runs/{run}/fork", {"at": 2, **changes})
            assert status == 400 and said in body["error"]["message"], (name, status, body)
        status, _, _ = server.ask("POST", f"/api/runs/{run}/fork", {"at": 2, "results": {"1.0": "x" * 60_000}})
        assert status == 413
    assert len(Journal.at(journal).runs()) == 1


def test_a_user_cannot_give_a_fork_more_than_the_agent_has(journal: Path) -> None:
    agent = make_agent("tool_calling", journal, name="plait", limits=plait.Limits(steps=5, tokens=1000))
    row = Journal.at(journal).run(agent.run("What is 2 + 3?").id)
    user = Caller("u1", False, "ada", frozenset(["use", "change"]))
    with serving(agent) as server:
        for limits in (LimitChanges(steps=6), LimitChanges(tokens=None), LimitChanges(steps=None)):
            with pytest.raises(RequestRejected, match="can be at most"):
                changed_agent(server.manager, row.head, ForkChanges(limits=limits), user)
        made = changed_agent(server.manager, row.head, ForkChanges(limits=LimitChanges(steps=4, usd=1.0)), user)
        assert (made.limits.steps, made.limits.usd) == (4, 1.0)
        assert changed_agent(server.manager, row.head, ForkChanges(limits=LimitChanges(steps=9)), Caller()).limits.steps


def test_a_change_is_run_over_runs_and_judged_in_pairs(place: str, folder: Path) -> None:
    journal: Any = place

    def reply(think: Think) -> str:
        asked = " ".join(each.content for each in think.messages)
        n = re.findall(r"Question (\d)", asked)[-1]
        return f"Thought: x\nFinal Answer: {9 if n == '3' and 'Think twice' in asked else n}"

    agent = react(journal, tools=(add,), name="plait", model=plait.Scripted(reply))
    runs = [agent.run(f"Question {n}?", user="ada").id for n in (1, 2, 3)]
    with serving(agent, datasets=str(folder)) as server:
        for n in (1, 2, 3):
            task = {"question": f"Question {n}?", "answer": str(n), "grader": "number"}
            assert server.ask("POST", "/api/datasets/numbers", task)[0] == 201
        _, _, selected = server.ask("POST", "/api/changes/estimate?user=ada", {})
        assert sorted(selected["runs"]) == sorted(runs) and selected["unpriced"] in (0, 3)
        body = {"change": {"instructions": "Think twice."}, "runs": runs}
        status, _, begun = server.ask("POST", "/api/changes", body)
        assert status == 201, begun
        found = until_over(server, begun["name"])
        forks = [each["after"] for each in found["rows"]]
        assert [each["status"] for each in forks] == ["answered"] * 3
        assert all(f"change:{begun['name']}" in each["tags"] and each["user"] == "ada" for each in forks)
        summary = found["summary"]
        assert (summary["pairs"], summary["judged"], summary["before"]) == (3, 3, 1.0)
        assert sorted(each["sign"] for each in found["rows"]) == ["same", "same", "worse"] and summary["worse"] == 1
        assert (
            summary["word"] == "1 got worse, 0 better; too few to be sure." and summary["sums"]["tokens"]["pairs"] == 3
        )
        assert [each["name"] for each in server.ask("GET", "/api/changes")[2]] == [begun["name"]]
        count = len(Journal.at(journal).runs())
        server.ask("POST", f"/api/changes/{begun['name']}/resume", {})  # nothing is missing
        until_over(server, begun["name"])
        assert len(Journal.at(journal).runs()) == count
        for bad in (
            {"change": {}, "runs": runs},
            {"change": {"loop": "none"}, "runs": runs},
            {"change": {}, "runs": []},
        ):
            assert server.ask("POST", "/api/changes", bad)[0] == 400


def test_answers_that_nobody_judged_are_no_success_and_never_the_same(journal: Path) -> None:
    def reply(think: Think) -> str:
        asked = " ".join(each.content for each in think.messages)
        n = re.findall(r"Question (\d)", asked)[-1]
        return f"Thought: x\nFinal Answer: {'Sydney' if n != '2' and 'Think twice' in asked else 'Canberra'}"

    agent = react(journal, tools=(add,), name="plait", model=plait.Scripted(reply))
    runs = [agent.run(f"Question {n}?").id for n in (1, 2, 3)]
    with serving(agent) as server:
        server.ask("POST", f"/api/runs/{runs[2]}/rating", {"good": False})
        body = {"change": {"instructions": "Think twice."}, "runs": runs}
        name = server.ask("POST", "/api/changes", body)[2]["name"]
        found = until_over(server, name)
        assert [each["sign"] for each in found["rows"]] == ["different", "alike", "bad"]
        assert found["rows"][0]["difference"][:2] == ["Sydney", "Canberra"]
        summary = found["summary"]
        assert (summary["pairs"], summary["answered"], summary["judged"], summary["before"]) == (3, 3, 0, None)
        for row, good in zip(found["rows"], (False, None, True), strict=True):
            server.ask("POST", f"/api/runs/{row['after']['run']}/rating", {"good": good})
        server.ask("POST", f"/api/runs/{runs[0]}/rating", {"good": True})
        found = server.ask("GET", f"/api/changes/{name}")[2]
        assert [each["sign"] for each in found["rows"]] == ["worse", "alike", "better"]
        summary = found["summary"]
        assert (summary["judged"], summary["before"], summary["after"]) == (2, 0.5, 0.5)
        assert summary["word"] == "1 got worse, 1 better; too few to be sure."


def test_the_list_s_filters_select_the_runs_of_a_change(journal: Path) -> None:
    agent = react(journal, ["Thought: x\nFinal Answer: 1"] * 2, tools=(add,), name="plait")
    run = agent.run("Question 1?", user="ada", tags=["eu", "new"]).id
    agent.run("Question 2?", user="bob")
    with serving(agent) as server:
        server.ask("POST", f"/api/runs/{run}/rating", {"good": True})
        model = server.ask("GET", f"/api/runs/{run}")[2]["run"]["models"][0]
        given = {"tag": "eu", "user": "ada", "status": "answered", "loop": "react", "agent": "plait", "rated": "good"}
        given |= {"model": model, "since": "2000-01-01", "until": "2999-01-01", "sort": "-cost", "limit": "1"}
        given |= {"words": "Question", "min_cost": "0", "max_cost": "9"}
        for name, value in given.items():
            wanted = server.ask("GET", f"/api/runs?{urlencode({name: value})}")
            status, _, body = server.ask("POST", f"/api/changes/estimate?{urlencode({name: value})}", {})
            assert status == wanted[0] == 200, (name, body)
        assert server.ask("POST", "/api/changes/estimate?tag=eu&tag=new", {})[2]["runs"] == [run]
        assert server.ask("POST", "/api/changes/estimate?tag=other", {})[2]["runs"] == []


def test_a_fork_has_its_agent_s_name_says_who_made_it_and_records_only_what_the_user_changed(journal: Path) -> None:
    program = make_agent("tool_calling", journal, name="capitals", limits=plait.Limits(seconds=None))
    run = program.run("What is 2 + 3?", metadata={"ticket": 7}).id
    with serving(program.using(), users=USERS, roles={"*": ["view", "change"]}) as server:
        body = {"at": 1, "instructions": "Be brief."}
        status, _, begun = server.ask("POST", f"/api/runs/{run}/fork", body, token=ALICE)
        assert status == 201, begun
        while server.ask("GET", f"/api/runs/{begun['run']}", token=ALICE)[2]["run"]["status"] == "running":
            time.sleep(0.02)
        fork = server.ask("GET", f"/api/runs/{begun['run']}", token=ALICE)[2]["run"]
        assert fork["agent"] == "capitals" and fork["metadata"] == {"ticket": 7, "forked_by": "alice"}
        assert fork["settings"]["changed"] == ["instructions"]
        listed = server.ask("GET", "/api/runs?agent=capitals", token=ALICE)[2]["runs"]
        assert {each["run"] for each in listed} == {run, fork["run"]}


def test_a_change_goes_on_at_another_server_where_it_was_left(journal: Path) -> None:
    agent = react(journal, [f"Thought: x\nFinal Answer: {n}" for n in (1, 2, 3, 4)], tools=(add,), name="plait")
    runs = [agent.run(f"Question {n}?").id for n in (1, 2)]
    with serving(agent) as server:
        name = server.ask("POST", "/api/changes", {"change": {"instructions": "x"}, "runs": runs[:1]})[2]["name"]
        until_over(server, name)
        store = server.manager.journal.store
        kept = json.loads(wait_for(store.list_kept("change", [name]))[0].data) | {"runs": runs}
        wait_for(store.keep("change", name, "", json.dumps(kept).encode()))  # as if it ended after the first fork
    with serving(agent) as server:
        before = server.ask("GET", f"/api/changes/{name}")[2]
        assert [each["after"] is None for each in before["rows"]] == [False, True] and not before["is_active"]
        server.ask("POST", f"/api/changes/{name}/resume", {})
        after = until_over(server, name)
        assert [each["after"]["status"] for each in after["rows"]] == ["answered"] * 2
        assert after["rows"][0]["after"]["run"] == before["rows"][0]["after"]["run"]


def test_all_changes_together_take_half_of_the_places(journal: Path) -> None:
    active, most = Counter[str](), list[int]()

    async def wait(ctx: plait.Context) -> str:
        """Wait."""
        active["now"] += 1
        most.append(active["now"])
        await asyncio.sleep(0.05)
        active["now"] -= 1
        return "waited"

    call = 'Thought: x\nAction:\n```\n{"action": "wait", "action_input": {}}\n```'
    agent = react(journal, [call, "Final Answer: 1"] * 4, tools=(plait.tool(wait, read_only=True),), name="plait")
    runs = [agent.run(f"Question {n}?").id for n in range(4)]
    most.clear()
    with serving(agent, concurrent=4) as server:
        change = {"change": {"instructions": "x"}, "runs": runs}
        names = [server.ask("POST", "/api/changes", change)[2]["name"] for _ in range(3)]
        for name in names:
            until_over(server, name)
    assert len(most) == 12 and max(most) == 2


def test_a_change_goes_on_by_itself_where_servers_that_resume_are_killed(place: str, tmp_path: Path) -> None:
    model = script(tmp_path, "Thought: x\nFinal Answer: 1", delay=0.2)
    agent = plait.Agent("react", model=model, name="plait", journal=place)
    runs = [agent.run(f"Question {n}?").id for n in range(3)]
    words = ("--loop", "react", "--model", model, "--journal", place, "--resume")
    (tmp_path / "plait.toml").write_text("[serve]\nconcurrent = 2\n")  # one fork at once
    with Process(*words, cwd=tmp_path) as one:
        _, _, begun = ask(one.port, "POST", "/api/changes", {"change": {"instructions": "x"}, "runs": runs})
        forks = wait_for_forks(place, begun["name"])
        os.kill(one.process.pid, signal.SIGKILL)
        one.process.wait(60)
    assert 0 < len(forks) < 3
    with Process(*words, cwd=tmp_path) as two, Process(*words, cwd=tmp_path) as three:
        for _ in range(600):
            rows = ask(two.port, "GET", f"/api/changes/{begun['name']}")[2]["rows"]
            if all(each["after"] and each["after"]["status"] == "answered" for each in rows):
                break
            time.sleep(0.05)
        for server in (two, three):
            page = until_over(server, begun["name"])
            assert [(each["after"]["status"], each["problem"]) for each in page["rows"]] == [("answered", "")] * 3
    count = len(Journal.at(place).find(RunQuery(tags=(f"change:{begun['name']}",))))
    assert count == 3 and {each.head.run for each in forks} <= {each["after"]["run"] for each in rows}


def wait_for_forks(place: str, name: str) -> list[RunRow]:
    for _ in range(600):
        if forks := Journal.at(place).find(RunQuery(tags=(f"change:{name}",))):
            return list(forks)
        time.sleep(0.02)
    raise TimeoutError(name)


def test_runs_are_rated_reviewed_and_rated_once(journal: Path) -> None:
    agent = react(journal, [f"Thought: x\nFinal Answer: {n}" for n in (1, 2)], tools=(add,), name="plait")
    runs = [agent.run(f"Question {n}?", user="ada").id for n in (1, 2)]
    with serving(agent, tokens=(FULL,), clients=(ONE,)) as server:
        queue = server.ask("GET", "/api/review?user=ada", token=FULL)[2]
        assert (queue["runs"], queue["left"], queue["rated"]) == (runs[::-1], 2, 0)
        rate = f"/api/runs/{runs[0]}/rating"
        _, _, rating = server.ask("POST", rate, {"good": False, "why": "wrong <b>"}, token=FULL)
        assert (rating["good"], rating["why"]) == (False, "wrong <b>")
        status, _, body = server.ask("POST", rate, {"good": True, "only_unrated": True}, token=FULL)
        assert status == 409 and "has been rated bad" in body["error"]["message"]
        queue = server.ask("GET", "/api/review?user=ada", token=FULL)[2]
        assert (queue["runs"], queue["left"], queue["rated"]) == (runs[1:], 1, 1)
        assert server.ask("POST", rate, {"good": None}, token=FULL)[2] is None
        assert server.ask("GET", rate, token=FULL)[2] is None
        assert server.ask("POST", rate, {"good": True, "why": "x" * 4001}, token=FULL)[0] == 400
        for path in (rate, "/api/review", "/api/datasets", "/api/changes"):
            assert server.ask("GET", path, token=ONE)[0] in (401, 403, 404)


# --- data sets


def test_a_data_set_is_a_suite_file_and_stays_as_people_wrote_it(journal: Path, folder: Path) -> None:
    folder.mkdir()
    own = '{"question": "By hand?",  "answer": [1, 2], "split": "dev"}\n\nnot json\n{"question": "Cut'
    (folder / "mine.jsonl").write_text(own)
    with serving(react(journal), datasets=str(folder)) as server:
        found = server.ask("GET", "/api/datasets/mine")[2]
        assert [each["question"] for each in found["tasks"]] == ["By hand?"] and len(found["problems"]) == 2
        assert "Line 3" in found["problems"][0] and "Line 4" in found["problems"][1]
        task = {"question": "By hand?", "answer": "1", "note": "again", "run": "r1"}
        status, _, body = server.ask("POST", "/api/datasets/mine", task)
        assert (status, body["same"]) == (201, 1)
        text = (folder / "mine.jsonl").read_text()
        assert text.startswith(own + "\n") and json.loads(text.splitlines()[-1])["run"] == "r1"
        found = server.ask("GET", "/api/datasets/mine")[2]
        assert found["twice"] == ["By hand?"]
        where = {name: found["tasks"][0][name] for name in ("line", "digest")}
        status, _, _ = server.ask("POST", "/api/datasets/mine/task", {**where, "answer": "3"})
        first = json.loads((folder / "mine.jsonl").read_text().splitlines()[0])
        assert status == 200 and first == {"question": "By hand?", "answer": "3", "split": "dev"}
        status, _, body = server.ask("POST", "/api/datasets/mine/task", {**where, "remove": True})  # an old page
        assert status == 409 and "has changed meanwhile" in body["error"]["message"]
        assert "not json\n" in (folder / "mine.jsonl").read_text()
        assert server.ask("GET", "/api/datasets/mine/file")[2] == (folder / "mine.jsonl").read_text()
        server.ask("POST", "/api/datasets/new", {"question": "Two?", "answer": "2", "grader": "number"})
    assert [task.answer for task in plait.lab.load_suite(str(folder / "new.jsonl")).tasks] == ["2"]


def test_the_command_of_a_data_set_makes_a_comparison_that_the_data_set_names(tmp_path: Path) -> None:
    model = script(tmp_path, "Thought: x\nFinal Answer: 2")
    table = f'[serve]\ndatasets = "data sets"\n[agents.counter]\nloop = "react"\nmodel = "{model}"\n'
    (tmp_path / "plait.toml").write_text(table)
    with Process("--journal", "own.db", cwd=tmp_path) as server:
        ask(server.port, "POST", "/api/datasets/small", {"question": "Two?", "answer": "2"})
        ask(server.port, "POST", "/api/datasets/other", {"question": "Two?", "answer": "2"})
        found = ask(server.port, "GET", "/api/datasets/small")[2]
        words = shlex.split(found["command"])
        assert words[2:5] == [str(tmp_path / "data sets" / "small.jsonl"), "-a", "counter"]
        assert words[5:] == ["--journal", str(tmp_path / "own.db")] and found["comparisons"] == []
        done = run_forked(["-m", *words], cwd=tmp_path, env={**os.environ, **trusting(tmp_path)})
        assert done.returncode == 0, done.stderr
        (made,) = ask(server.port, "GET", "/api/datasets/small")[2]["comparisons"]
        assert (made["finished"], made["loops"]) == (1, ["counter"])
        assert ask(server.port, "GET", "/api/datasets/other")[2]["comparisons"] == []


def test_a_data_set_is_never_another_file(journal: Path, folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    (tmp_path / "secret.jsonl").write_text('{"question": "secret"}\n')
    (folder / "link.jsonl").symlink_to(tmp_path / "secret.jsonl")
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "folder.jsonl").mkdir()
    task = {"question": "x?", "answer": "y"}
    with serving(react(journal), datasets=str(folder)) as server:
        names = (
            "..%2Fsecret",
            "%2Fetc%2Fpasswd",
            ".hidden",
            "a%00b",
            "con",
            "NUL",
            "x" * 65,
            "a%20b",
            "link",
            "folder",
            "pipe",
        )
        for name in names:
            for method, body in (("GET", None), ("POST", task)):
                status, _, answer = server.ask(method, f"/api/datasets/{name}", body)
                assert status in (400, 404, 405), (name, method, status, answer)
                assert "secret" not in str(answer).replace("../secret", "")
        for bad in ({"question": "", "answer": "y"}, {**task, "grader": "checks.py:run"}, {**task, "path": "/etc"}):
            assert server.ask("POST", "/api/datasets/good", bad)[0] == 400
    assert (tmp_path / "secret.jsonl").read_text() == '{"question": "secret"}\n'
    assert sorted(each.name for each in folder.iterdir() if each.is_file()) == [".lock", "link.jsonl"]


def test_users_change_only_what_their_roles_allow(journal: Path, folder: Path) -> None:
    agent = make_agent("tool_calling", journal, limits=plait.Limits(steps=5))
    users = {"users": USERS, "roles": {"bob": ["use", "change"]}, "datasets": str(folder)}
    with serving(agent, **users) as server:
        own, other = (begin(server, token) for token in (BOB, ALICE))
        for path in (
            f"/api/runs/{other}/change",
            f"/api/runs/{other}/rating",
            f"/api/sides/differences?a={own}&b={other}",
        ):
            assert server.ask("GET", path, token=BOB)[0] == 404  # another user's: bob does not see it
        assert (
            server.ask("POST", "/api/changes", {"change": {"loop": "json"}, "runs": [own, other]}, token=BOB)[0] == 404
        )
        for path in ("/api/review", "/api/datasets", "/api/changes", f"/api/runs/{other}/change"):
            assert server.ask("GET", path, token=ALICE)[0] == 403  # she may only use agents
        assert server.ask("POST", f"/api/runs/{other}/rating", {"good": True}, token=ALICE)[2]["by"] == "alice"
        assert server.ask("GET", "/api/review", token=BOB)[2]["runs"] == [own]
        assert server.ask("POST", "/api/changes/estimate?user=alice", {}, token=BOB)[2]["runs"] == []
        status, _, body = server.ask("POST", f"/api/runs/{own}/fork", {"at": 1, "limits": {"steps": 6}}, token=BOB)
        assert status == 400 and "'steps' can be at most 5" in body["error"]["message"]
        change = {"change": {"limits": {"steps": None}}, "runs": [own]}
        assert server.ask("POST", "/api/changes", change, token=BOB)[0] == 400
        change["change"] = {"instructions": "x"}
        name = server.ask("POST", "/api/changes", change, token=BOB)[2]["name"]
        while server.ask("GET", f"/api/changes/{name}", token=BOB)[2]["is_active"]:
            time.sleep(0.02)
        (row,) = server.ask("GET", f"/api/changes/{name}", token=BOB)[2]["rows"]
        assert row["after"]["user"] == "bob" and row["after"]["status"] == "answered"
        assert server.ask("GET", f"/api/runs/{row['after']['run']}", token=ALICE)[0] == 404


def begin(server: Here, token: str) -> str:
    """Start a run of that user and wait for its end."""
    run = str(server.ask("POST", "/v1/runs", {"agent": "plait", "question": "?"}, token=token)[2]["run"])
    while server.ask("GET", f"/v1/runs/{run}", token=token)[2]["status"] == "running":
        time.sleep(0.02)
    return run
