"""What the window's pages ask for, over real HTTP."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from lazily import skip_without

skip_without("server", "starlette", "uvicorn", "prometheus_client")

from mcp_support import until  # noqa: E402
from plait.core.errors import ConfigError  # noqa: E402
from plait.journal.run_query import FILTERS, RunQuery, make_query  # noqa: E402
from plait.journal.store import Journal  # noqa: E402
from plait.server.improve_api import improve_routes  # noqa: E402
from plait.server.runs_api import viewer_routes  # noqa: E402
from plait.server.service import service_routes  # noqa: E402
from plait.view.run_search import PAGE, find_runs  # noqa: E402
from window_server import FULL, ONE, TWO, serving  # noqa: E402
from window_support import HIDDEN, HOSTILE, action, answer, begin, react, rewoo, written  # noqa: E402


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


FILES_AND_CODE = ({"tools": ["evil.py"]}, {"prompts": "/etc"}, {"system": "x"}, {"journal": "x.db"}, {"sandbox": "x"})
"""What a fork over HTTP may never change."""


def names(found: dict[str, Any]) -> list[str]:
    return [run["question"] for run in found["runs"]]


def test_the_pages_have_a_strict_policy_and_nothing_inline(journal: Path) -> None:
    with serving(react(journal)) as server:
        for name in ("/", "/page/main.js", "/page/page.css", "/page/icon.svg"):
            status, headers, text = server.ask("GET", name)
            assert status == 200 and text
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy and "script-src 'self'" in policy
        _, _, page = server.ask("GET", "/")
        assert "<script>" not in page and "style=" not in page and "onclick" not in page
        assert "http" not in page.replace('http-equiv="', "")
        for name in ("/page/index.html", "/page/README.md", "/page/__init__.py", "/page/none.js"):
            assert server.ask("GET", name)[0] == 404


def test_a_client_token_opens_the_endpoint_and_not_the_window(journal: Path) -> None:
    with serving(react(journal), tokens=(FULL,), clients=(ONE,)) as server:
        for path in ("/api/about", "/api/runs", "/api/events"):
            assert server.ask("GET", path)[0] == 401
            assert server.ask("GET", path, token=ONE)[0] == 403
        assert server.ask("GET", "/api/runs", token=FULL)[0] == 200
        assert server.ask("POST", "/login", {"token": ONE})[0] == 401
        status, headers, login = server.ask("POST", "/login", {"token": FULL})
        cookie = headers["set-cookie"]
        assert status == 200 and "HttpOnly" in cookie and "SameSite=strict" in cookie and FULL not in cookie
        known = {"cookie": cookie.partition(";")[0]}
        assert server.ask("GET", "/api/runs", headers={**known, "x-plait-page": login["page"]})[0] == 200
        assert server.ask("GET", f"/api/runs?page={login['page']}", headers=known)[0] == 200
        assert server.ask("GET", "/api/runs", headers=known)[0] == 401
        assert server.ask("GET", "/api/runs", headers={"x-plait-page": login["page"]})[0] == 401
        assert "log in" in server.ask("GET", "/")[2] and "log in" not in server.ask("GET", "/", token=FULL)[2]


def test_runs_are_paged_newest_first_without_gap_or_double(journal: Path) -> None:
    agent = react(journal, [answer("x")])
    for number in range(7):
        begin(agent, f"question {number}")
    with serving(react(journal)) as server:
        seen: list[str] = []
        before = 0
        while True:
            _, _, found = server.ask("GET", f"/api/runs?limit=3&before={before}")
            seen += names(found)
            before = found["runs"][-1]["n"]
            if not found["more"]:
                break
        assert seen == [f"question {number}" for number in reversed(range(7))]
        assert server.ask("GET", "/api/runs?limit=0")[0] == 400
        assert server.ask("GET", "/api/runs?before=x")[0] == 400
        assert server.ask("GET", "/api/runs?status=odd")[0] == 400


def test_each_filter_keeps_what_it_says(journal: Path) -> None:
    begin(react(journal, [answer("ÄRGER in 100% of cases")]), "What's_up?")
    begin(rewoo(journal), "How many people?")
    waiting = begin(react(journal, [action("send", {"text": "x"})], approve="effects"), "May I?")
    react(journal, [answer("y")]).run("In a session", session="trip")
    with serving(react(journal)) as server:
        assert server.ask("POST", "/v1/runs", {"agent": "plait", "question": "Served?"})[0] == 202
        for query, expected in (
            ("words=%C3%A4rger", ["What's_up?"]),
            ("words=100%25+what", ["What's_up?"]),
            ("words=_up", ["What's_up?"]),
            ("words=nothing+like+that", []),
            ("loop=rewoo", ["How many people?"]),
            ("status=waiting", ["May I?"]),
            ("session=trip", ["In a session"]),
            ("agent=plait", ["Served?"]),
            ("agent=pl*it", []),
            ("model=scripted:other", []),
        ):
            assert names(server.ask("GET", f"/api/runs?{query}")[2]) == expected, query
        assert len(names(server.ask("GET", "/api/runs?model=scripted:scripted")[2])) == 5
        _, _, plain = server.ask("GET", "/api/runs")
        assert waiting.id in [run["run"] for run in plain["live"]]
        said = {"model": "plait", "messages": [{"role": "user", "content": "Nameless?"}]}
        unnamed = server.ask("POST", "/v1/chat/completions", said)[1]["x-plait-session"]
        assert names(server.ask("GET", f"/api/runs?session={unnamed}")[2]) == ["Nameless?"]
        _, _, about = server.ask("GET", "/api/about")  # a session without a name of its own is none to choose
        assert about["choices"] == {
            "loops": ["react", "rewoo"],
            "sessions": ["trip"],
            "models": ["scripted:scripted"],
            "agents": [],
            "users": [],
            "tags": [],
        }


def test_a_journal_that_is_not_there_yet_has_no_runs(journal: Path) -> None:
    assert find_runs(Journal(journal), RunQuery(limit=PAGE)) == ([], False)
    with pytest.raises(ConfigError):
        find_runs(Journal(journal), make_query(status="odd", limit=PAGE))
    with serving(react(journal)) as server:
        assert server.ask("GET", "/api/runs")[2] == {"live": [], "runs": [], "more": False}
        assert server.ask("GET", "/api/runs/none")[0] == 404
        assert server.ask("GET", "/api/comparisons")[2] == []


def test_a_long_text_is_read_on_piece_by_piece(journal: Path) -> None:
    whole = "".join(chr(97 + i % 26) for i in range(900_000)) + "👩‍🔬\ud800"
    run = asyncio.run(written(journal, 1, observation=whole))
    with serving(react(journal)) as server:
        _, _, document = server.ask("GET", f"/api/runs/{run}")
        text, more = document["steps"][0]["items"][1]["text"]
        while more:
            at = f"/api/runs/{run}/text?item=c1.0&field=text&from={len(text)}"
            _, _, piece = server.ask("GET", at)
            text += piece["text"]
            more = piece["more"]
        assert text == whole
        assert server.ask("GET", f"/api/runs/{run}/text?item=c1.0&field=seconds")[0] == 404
        assert server.ask("GET", f"/api/runs/{run}/text?item=c1.0&field=text&from=-1")[0] == 400


def test_a_body_can_be_had_byte_for_byte_and_only_a_body(journal: Path) -> None:
    run = begin(react(journal))
    with serving(react(journal)) as server:
        for row in run.trace:
            status, headers, text = server.ask("GET", f"/api/runs/{run.id}/wire/{row.seq}")
            if getattr(row.record, "work", "") == "request":
                assert row.body is not None
                assert (status, text.encode()) == (200, row.body)
                assert headers["content-type"] == "application/octet-stream"
                assert headers["content-disposition"].startswith("attachment")
            else:
                assert status == 404
        assert server.ask("GET", f"/api/runs/{run.id}/wire?step=x")[0] == 400
        assert server.ask("GET", f"/api/runs/{run.id}/wire?step=99")[2]["exchanges"] == []


def test_what_cannot_be_done_is_refused_in_words(journal: Path) -> None:
    run = begin(react(journal)).id
    with serving(react(journal)) as server:
        for path, body, status in (
            ("/v1/runs", {"agent": "nobody", "question": "?"}, 404),
            ("/v1/runs", {"agent": "plait", "question": ""}, 400),
            ("/v1/runs", {"agent": "plait", "question": "?", "tools": ["evil.py"]}, 400),
            (f"/v1/runs/{run}/answer", {"answer": "yes"}, 409),
            (f"/api/runs/{run}/fork", {"at": 99}, 400),
            *((f"/api/runs/{run}/fork", {"at": 1, **change}, 400) for change in FILES_AND_CODE),
            (f"/api/runs/{run}/fork", {"at": 1, "loop": "odd"}, 400),
            (f"/v1/runs/{run}/cancel", {}, 409),
            ("/v1/runs/none/resume", {}, 404),
        ):
            found, _, told = server.ask("POST", path, body)
            assert (found, bool(told["error"]["message"])) == (status, True), (path, body, told)
        assert server.ask("POST", "/v1/runs", b"{", {"content-type": "application/json"})[0] == 400


def test_an_edit_that_does_not_fit_is_refused_and_the_run_waits_on(journal: Path) -> None:
    agent = react(journal, [action("send", {"text": "hello"}), answer("Sent.")], approve="effects")
    with serving(agent) as server:
        run = server.ask("POST", "/v1/runs", {"agent": "plait", "question": "Say hello."})[2]["run"]
        until(lambda: server.manager.journal.run(run).status == "waiting")
        before = server.ask("GET", f"/api/runs/{run}")[2]
        named = {"question": before["waiting"][0]["question"]}
        status, headers, told = server.ask(
            "POST", f"/v1/runs/{run}/answer", {"answer": 'edit {"txt": "hello"}', **named}
        )
        assert (status, told["error"]["code"], headers["x-should-retry"]) == (400, "bad_answer", "false")
        assert "no parameter 'txt'" in told["error"]["message"] and run in told["error"]["message"]
        assert server.ask("GET", f"/api/runs/{run}")[2] == before and before["run"]["status"] == "waiting"
        assert server.ask("POST", f"/v1/runs/{run}/answer", {"answer": 'edit {"text": "ho"}', **named})[0] == 202
        until(lambda: server.manager.journal.run(run).status == "answered")


def test_hostile_texts_come_through_as_they_are(journal: Path) -> None:
    said = f"{HOSTILE}{HIDDEN}".removesuffix("\ud800").strip()  # no response can hold half a pair
    run = begin(react(journal, [answer(said)]), HOSTILE)
    with serving(react(journal)) as server:
        status, headers, found = server.ask("GET", f"/api/runs/{run.id}")
        assert (status, headers["content-type"]) == (200, "application/json")
        assert headers["x-content-type-options"] == "nosniff"
        assert found["run"]["question"] == HOSTILE and found["run"]["answer"] == said
        assert "<script>" in json.dumps(found)


def test_two_runs_are_told_side_by_side(journal: Path) -> None:
    one = begin(react(journal)).id
    two = begin(react(journal, [answer("a guess")])).id
    with serving(react(journal)) as server:
        _, _, found = server.ask("GET", f"/api/sides?a={one}&b={two}")
        assert (found["first"]["step"], found["first"]["what"]) == (1, "what the model said")
        assert (found["a"]["run"]["run"], found["b"]["run"]["run"], found["same"]) == (one, two, [])
        _, _, same = server.ask("GET", f"/api/sides?a={one}&b={one}")
        assert same["first"] is None and same["same"] == [1, 2, 3]
        assert server.ask("GET", f"/api/sides?a={one}&b=none")[0] == 404


def test_what_is_no_number_is_refused_in_words(journal: Path) -> None:
    run, long = begin(react(journal)).id, "9" * 5000
    with serving(react(journal)) as server:
        for path in (
            f"/api/runs?before={long}",
            f"/api/runs?limit={long}",
            "/api/runs?before=%C2%B2",
            f"/api/runs/{run}/wire?step={long}",
            f"/api/runs/{run}/text?from={long}",
            f"/api/runs/{run}/wire/{long}",
            f"/api/runs/{run}/wire/x",
        ):
            status, _, told = server.ask("GET", path)
            assert (status, "is a number" in told["error"]["message"]) == (400, True), path[:60]
        deep = b'{"at": 1, "options": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001
        assert server.ask("POST", f"/api/runs/{run}/fork", deep)[0] == 400


def test_the_page_of_the_api_names_each_route(journal: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "api.md").read_text()
    with serving(react(journal)) as server:
        routes = [*viewer_routes(server.manager), *service_routes(server.manager), *improve_routes(server.manager)]
    known = {
        f"{method} {route.path}"
        for route in routes
        if route.path.startswith(("/api/", "/v1/"))
        for method in (route.methods or ()) - {"HEAD"}
    }
    assert set(re.findall(r"^\| `((?:GET|POST) /(?:api|v1)/[^`]*)`", page, re.MULTILINE)) == known
    named = re.findall(r"`(\w+)`", page[page.index("## Filters") :])
    assert {*FILTERS, "tag"} - {"tags", "children", "limit", "before"} <= set(named)
    fields = page[page.index("A run of `/api/runs` has") : page.index("## Filters")]
    with serving(react(journal)) as server:
        server.ask("POST", "/v1/runs", {"agent": "plait", "question": "?"})
        (run,) = server.ask("GET", "/api/runs")[2]["runs"]
    assert set(re.findall(r"`(\w+)`", fields)) <= set(run)


def test_runs_are_started_filtered_and_summed_by_user_and_tag(journal: Path) -> None:
    about = {"user": "ada", "tags": ["web", "beta"], "metadata": {"order": 17}}
    with serving(react(journal, [answer("x")] * 3)) as server:
        for more in (about, {}):
            run = server.ask("POST", "/v1/runs", {"agent": "plait", "question": "?", **more})[2]["run"]
            until(lambda run=run: server.ask("GET", f"/api/runs/{run}")[2]["run"]["status"] == "answered")
        found = server.ask("GET", "/api/runs?user=ada&tag=web&tag=beta&since=1h&agent=plait")[2]
        assert [each["tags"] for each in found["runs"]] == [["web", "beta"]] and found["live"] == []
        whole = server.ask("GET", f"/api/runs/{found['runs'][0]['run']}")[2]["run"]
        assert (whole["user"], whole["metadata"]) == ("ada", {"order": 17})
        assert server.ask("GET", "/api/runs?user=nobody")[2]["runs"] == []
        groups = server.ask("GET", "/api/costs?by=user")[2]["groups"]
        assert {each["key"]: each["runs"] for each in groups} == {"ada": 1, "": 1}
        found = server.ask("GET", "/api/costs?by=user&over=day&days=7")[2]  # whole days, today included
        assert found["since"] == (date.today() - timedelta(6)).isoformat() and len(found["groups"]) == 2
        (only,) = server.ask("GET", "/api/costs?by=agent&user=ada")[2]["groups"]
        assert (only["key"], only["runs"]) == ("plait", 1)
        assert server.ask("GET", "/api/questions")[2] == {"questions": []}
        for wrong in (
            "runs?since=x",
            "runs?status=odd",
            "runs?rated=odd",
            "costs?by=moon",
            "costs?min_cost=x",
            "costs?days=x",
            "questions?until=x",
        ):
            status, _, said = server.ask("GET", f"/api/{wrong}")
            assert status == 400 and said["error"]["message"], wrong
        for bad in ({"tags": "web"}, {"user": "u" * 300}, {"metadata": {"x": "y" * 20_000}}, {"user": "a\nb"}):
            assert server.ask("POST", "/v1/runs", {"agent": "plait", "question": "?", **bad})[0] == 400


def test_open_questions_are_listed_with_the_run_to_resume(journal: Path) -> None:
    script = [action("population", {"town": "Lyon"}), answer("4")]
    with serving(react(journal, script, approve="always")) as server:
        run = server.ask("POST", "/v1/runs", {"agent": "plait", "question": "?", "user": "ada"})[2]["run"]
        until(lambda: server.ask("GET", f"/api/runs/{run}")[2]["run"]["status"] == "waiting")
        (asked,) = server.ask("GET", "/api/questions?user=ada")[2]["questions"]
        assert (asked["run"], asked["asked_by"], asked["kind"], asked["tool"]) == (run, run, "approval", "population")
        sent = {"answer": "yes", "question": asked["question"]}
        assert server.ask("POST", f"/v1/runs/{asked['run']}/answer", sent)[0] == 202
        until(lambda: server.ask("GET", "/api/questions")[2]["questions"] == [])


def test_a_client_has_users_of_its_own_and_sees_no_runs_of_others(journal: Path) -> None:
    """The attack: a client says that its run is one of another client's users, or of the operator's own."""
    chat = {"model": "plait", "messages": [{"role": "user", "content": "?"}], "metadata": {"order": "17"}}
    with serving(react(journal, [answer("x")] * 9), tokens=(FULL,), clients=(ONE, TWO)) as server:
        ask = server.ask
        for token in (FULL, ONE, TWO):
            assert ask("POST", "/v1/chat/completions", {**chat, "user": "ada"}, token=token)[0] == 200
        listed = ask("GET", "/api/runs", token=FULL)[2]["runs"]
        users = [each["user"] for each in listed]
        assert users[2] == "ada" and len(set(users)) == 3 and all(each.endswith("/ada") for each in users[:2])
        assert ask("POST", "/v1/chat/completions", {**chat, "user": users[1]}, token=TWO)[0] == 200
        assert len(ask("GET", f"/api/runs?user={users[1]}", token=FULL)[2]["runs"]) == 1
        assert len(ask("GET", "/api/runs?user=ada", token=FULL)[2]["runs"]) == 1
        assert ask("GET", f"/api/runs/{listed[0]['run']}", token=FULL)[2]["run"]["metadata"] == {"order": "17"}
        for path in ("/api/runs?user=ada", "/api/costs", "/api/questions"):
            assert ask("GET", path, token=ONE)[0] == 403
        assert ask("POST", "/v1/chat/completions", chat, token=ONE)[0] == 200
        assert ask("GET", "/api/runs", token=FULL)[2]["runs"][0]["user"] == ""
        nested: Any = "x"
        for _ in range(900):
            nested = [nested]
        for wrong in ({"user": 7}, {"user": "u" * 300}, {"metadata": [1]}, {"metadata": {"x": nested}}):
            status, _, said = ask("POST", "/v1/chat/completions", {**chat, **wrong}, token=ONE)
            assert status == 400 and said["error"]["param"] in ("user", "metadata")
        assert ask("POST", "/v1/chat/completions", {**chat, "user": None, "metadata": None}, token=ONE)[0] == 200
