"""Users and their roles: what each may see and do, and whom a header of a proxy names."""

from __future__ import annotations

import http.client
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conftest import for_each
from lazily import skip_without

skip_without("server", "starlette", "uvicorn", "prometheus_client")

from click.testing import CliRunner  # noqa: E402
from starlette.routing import Route  # noqa: E402

import plait  # noqa: E402
import window_axe  # noqa: E402
from browser import Browser, Page  # noqa: E402
from patience import patience  # noqa: E402
from plait.cli.commands import plait as command  # noqa: E402
from plait.config import ServeTable, load  # noqa: E402
from plait.core.errors import ConfigError  # noqa: E402
from plait.journal.open_questions import read_questions  # noqa: E402
from plait.journal.store import Journal, wait_for  # noqa: E402
from plait.server import guard  # noqa: E402
from plait.server.agents import serve_agent  # noqa: E402
from plait.server.app import build_app  # noqa: E402
from plait.server.auth import ANY, LOGGED_IN, ROLES, AccessTokens, Caller, load_tokens  # noqa: E402
from plait.server.errors import RequestRejected  # noqa: E402
from plait.server.guard import CLIENTS, OPEN, find_needs  # noqa: E402
from plait.server.openapi import RoleRoute  # noqa: E402
from plait.server.proxy_users import ProxyUsers  # noqa: E402
from postgres_server import shared_server  # noqa: E402
from test_service import read_events  # noqa: E402
from window_server import ALICE, BOB, FULL, ONE, USERS, Here, asked, serving  # noqa: E402
from window_support import action, answer, population, react, send, turn  # noqa: E402

SHOTS = Path(os.environ["PLAIT_SHOTS"]) if "PLAIT_SHOTS" in os.environ else None
"""A folder to keep the screenshots in, for a person to look at."""
CHAT = "/v1/chat/completions"
HEADER = "X-Forwarded-User"
OWN, ALL = ["use"], list(ROLES)


class Watching(plait.Hook):
    """Changes nothing."""


def told(journal: Path, **fields: Any) -> plait.Agent:
    """An agent that makes one call and answers, each time."""
    script = [action("population", {"town": "Lyon"}), answer("522250")] * 9
    model = plait.Scripted(script, by_turn=False)
    return plait.Agent("react", model=model, tools=(population, send), journal=journal, **fields)


@contextmanager
def behind_a_proxy(*agents: plait.Agent, proxies: tuple[str, ...] = ("127.0.0.1",), **more: Any) -> Iterator[Here]:
    with serving(*agents, user_header=HEADER, proxies=list(proxies), **more) as here:
        yield here


def named(name: str) -> dict[str, str]:
    return {HEADER: name.encode().decode("latin-1")}


def begin(here: Here, token: str, agent: str = "plait", **body: Any) -> str:
    """Start a run of that caller, and wait until it has ended or waits."""
    status, _, found = here.ask("POST", "/v1/runs", {"agent": agent, "question": "?", **body}, token=token)
    assert status == 202, found
    ended(here, found["run"])
    return str(found["run"])


def ended(here: Here, run: str, *statuses: str) -> str:
    until = time.monotonic() + patience(30)
    while (status := Journal.at(here.manager.journal.place).run(run).status) not in (
        statuses or ("answered", "waiting", "failed", "cancelled")
    ):
        assert time.monotonic() < until, status
        time.sleep(0.02)
    return status


def status_of(here: Here, method: str, path: str, token: str, body: Any = None) -> int:
    """The status of an answer, without its body: it may be a stream without an end."""
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    connection = http.client.HTTPConnection("127.0.0.1", here.port, timeout=60)
    try:
        connection.request(method, path, None if method in ("GET", "DELETE") else json.dumps(body or {}), headers)
        return connection.getresponse().status
    finally:
        connection.close()


# -- tokens and settings


@for_each(
    ("tokens", "why"),
    [
        ({"USER": ALICE}, "a token no name"),
        ({"USER": f"={ALICE}"}, "a name is empty"),
        ({"USER": f"*={ALICE}"}, "no commas"),
        ({"USER": f"@ab/cd={ALICE}"}, "no @"),
        ({"USER": f"al\u202eice={ALICE}"}, "not shown"),
        ({"USER": "alice=short"}, "16 or more"),
        ({"USER": "alice=has spaces in the token"}, "no spaces"),
        ({"USER": f"alice={ALICE},bob={ALICE}"}, "Two names in .* contain the same token"),
        ({"USER": f"alice={ALICE}", "": ALICE}, "contain the same token"),
        ({"USER": f"alice={ONE}", "CLIENT": ONE}, "contain the same token"),
    ],
)
def test_a_users_token_that_is_weak_or_has_two_meanings_is_not_taken(tokens: dict[str, str], why: str) -> None:
    names = {"": "PLAIT_SERVE_TOKEN", "CLIENT": "PLAIT_SERVE_CLIENT_TOKENS", "USER": "PLAIT_SERVE_USER_TOKENS"}
    with pytest.raises(ConfigError, match=why) as error:
        load_tokens({names[kind]: value for kind, value in tokens.items()})
    assert ALICE not in str(error.value) and ONE not in str(error.value)


def test_a_user_may_have_two_tokens_and_is_the_same_user() -> None:
    tokens = load_tokens({"PLAIT_SERVE_USER_TOKENS": f"alice={ALICE}, alice={BOB}=="})
    assert tokens.find_caller(ALICE) == tokens.find_caller(f"{BOB}==") == Caller.of_user("alice", {"*": ()})
    assert tokens.find_caller(ALICE) != AccessTokens(users=[("Alice", ALICE)]).find_caller(ALICE)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('user_header = "X-User"', "user_header without proxies"),
        ('proxies = ["127.0.0.1"]', "proxies without user_header"),
        ('user_header = "X_User"\nproxies = ["127.0.0.1"]', "not a header's name"),
        ('user_header = "X-User\\r\\nA"\nproxies = ["127.0.0.1"]', "not a header's name"),
        ('user_header = "X-User"\nproxies = ["10.0.0.1/8"]', "not a network"),
        ('user_header = "X-User"\nproxies = ["proxy.lan"]', "not a network"),
        ('user_header = "X-User"\nproxies = ["0.0.0.0/0"]', "everybody could choose"),
        ('user_header = "X-User"\nproxies = ["::/0"]', "everybody could choose"),
        ('user_header = "X-User"\nproxies = "127.0.0.1"', "proxies is '127.0.0.1', and must be a list"),
        ('[serve.roles]\nalice = ["view", "admin"]', "the role 'admin'"),
        ('[serve.roles]\nalice = ["View"]', "the role 'View'"),
        ('[serve.roles]\nalice = "view"', "alice is 'view', and must be a list"),
        ("[serve.roles]\nalice = [1]", "roles"),
        ('[serve.roles]\n"a,b" = ["view"]', "the user 'a,b'"),
    ],
)
def test_settings_that_make_no_sense_are_named(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "plait.toml").write_text(f"[serve]\n{text}\n")
    with pytest.raises(ConfigError, match=why):
        ProxyUsers(load(tmp_path / "plait.toml").serve)


def test_roles_are_those_of_the_table_and_use_for_all_others() -> None:
    roles = {"alice": ["view", "approve"], "nobody": []}
    assert Caller.of_user("alice", roles).roles == {"view", "approve"}
    assert Caller.of_user("bob", roles).roles == {"use"}
    assert Caller.of_user("bob", {**roles, "*": ["view"]}).roles == {"view"}
    assert not Caller.of_user("nobody", roles).may(ANY) and Caller.of_user("bob", roles).may(ANY)
    for lookalike in ("Alice", "alice ", "аlice", "ａlice", "al\u0131ce", "alicé"):
        assert Caller.of_user(lookalike, roles).roles == {"use"}


def test_the_owner_of_a_user_is_stable_and_no_owner_of_a_token() -> None:
    client = AccessTokens(clients=(ONE,)).find_caller(ONE)
    assert client is not None
    alice, disguised = Caller.of_user("alice", {}), Caller.of_user(client.owner, {})
    assert alice.owner == Caller.of_user("alice", {"alice": ALL}).owner == "u-ab42998603499ccf79c15e83"
    assert ":" not in alice.owner and len({client.owner, alice.owner, disguised.owner}) == 3
    assert alice.session("trip") == alice.session(alice.session("trip")) == f"@{alice.owner}/trip"
    assert alice.session(f"@{client.owner}/trip") == f"@{alice.owner}/@{client.owner}/trip"
    assert alice.user("bob") == alice.user("") == "alice" and client.user("alice") == f"@{client.owner}/alice"


# -- routes


def test_each_route_says_who_may_call_it_and_refuses_all_others(journal: Path) -> None:
    users = tuple((role, f"the-token-of-role-{role}") for role in (*ROLES, "none"))
    roles = {**{role: [role] for role in ROLES}, "none": []}
    with serving(told(journal), tokens=(FULL,), clients=(ONE,), users=users, roles=roles) as here:
        routes = build_app(here.manager).routes
        declared = {each.path: each.role for each in routes if isinstance(each, RoleRoute)}
        some = {"/api/runs/{id}/fork": "change", "/comparison": "view", CHAT: "use", "/mcp": "use"}
        assert some.items() <= declared.items()
        for route in routes:
            assert isinstance(route, Route)
            needs, role = find_needs(route.path), getattr(route, "role", "")
            if needs == OPEN:
                continue
            assert needs == guard.FULL or role in (*ROLES, ANY), f"{route.path} does not say which role it needs"
            path = route.path.format(**dict.fromkeys(route.param_convertors, "x"))
            for method in (route.methods or {"POST"}) - {"HEAD"}:
                for name, token in users:
                    may = needs != guard.FULL and (role == name or (role == ANY and name != "none"))
                    assert (status_of(here, method, path, token) != 403) == may, (method, path, name)
                assert (status_of(here, method, path, ONE) != 403) == (needs == CLIENTS), (method, path)
                assert status_of(here, method, path, FULL) not in (401, 403), (method, path)


# -- the header of a proxy


@for_each(
    ("peer", "counts"),
    [
        ("127.0.0.1", True),
        ("::ffff:127.0.0.1", True),
        ("10.9.8.7", True),
        ("fd00::5", True),
        ("11.0.0.1", False),
        ("127.0.0.2", False),
        ("::1", False),
        ("::ffff:11.0.0.1", False),
        ("::127.0.0.1", False),
        ("127.0.0.1, 10.0.0.1", False),
        ("", False),
        (None, False),
    ],
)
def test_the_header_counts_only_from_the_proxies(peer: str | None, counts: bool) -> None:
    users = ProxyUsers(ServeTable(user_header=HEADER, proxies=["127.0.0.1", "10.0.0.0/8", "fd00::/8"]))
    client = None if peer is None else (peer, 1234)
    scope = {"client": client, "headers": [(HEADER.lower().encode(), b"alice")]}
    assert users.find_name(scope) == ("alice" if counts else "")


@for_each(
    "values",
    [
        [b"alice", b"alice"],
        [b"alice", b""],
        [b"bob, alice"],
        [b""],
        [b" "],
        [b"*"],
        [b"@u-0123/alice"],
        [b"alice\r\nx: y"],
        [b"al\x00ice"],
        ["al\u200bice".encode()],
        ["\u202eecila".encode()],
        [b"\xff\xfe"],
        [b"a" * 201],
    ],
)
def test_a_name_that_a_proxy_cannot_have_meant_is_refused(values: list[bytes]) -> None:
    users = ProxyUsers(ServeTable(user_header=HEADER, proxies=["127.0.0.1"]))
    scope = {"client": ("127.0.0.1", 1), "headers": [(HEADER.lower().encode(), value) for value in values]}
    with pytest.raises(RequestRejected, match="user's name"):
        users.find_name(scope)


def test_whoever_comes_through_the_proxy_is_that_user(journal: Path) -> None:
    with behind_a_proxy(told(journal), roles={"Zoë": ALL}, tokens=(FULL,)) as here:
        me = here.ask("GET", "/api/me", None, named("Zoë"))[2]
        assert me == {"name": "Zoë", "roles": ALL, "full": False, "login": False}
        assert here.ask("GET", "/api/me", None, {HEADER.upper(): "alice"})[2]["roles"] == OWN
        assert "main.js" in here.ask("GET", "/", None, named("alice"))[2]
        assert "login.js" in here.ask("GET", "/")[2]
        # A proxy may pass on how it asked its user; a token wins.
        assert here.ask("GET", "/api/me", None, {**named("alice"), "Authorization": "Basic eDp5"})[0] == 200
        assert here.ask("GET", "/api/me", None, named("alice"), token=FULL)[2]["full"]
        assert here.ask("GET", "/api/me", None, named("alice"), token="a-wrong-token-of-nobody")[0] == 401
        assert here.ask("GET", "/metrics", None, named("Zoë"))[0] == 403


@pytest.mark.parametrize("name", ["X_Forwarded_User", "X-Forwarded-Users", "X-Forwarded_User", "X-Remote-User", "none"])
def test_no_other_header_names_a_user(journal: Path, name: str) -> None:
    with behind_a_proxy(told(journal), roles={"alice": ALL}) as here:
        status, _, refused = here.ask("GET", "/api/me", None, {name: "alice"})
        assert (status, refused["error"]["code"]) == (401, "invalid_api_key") and "proxy" in str(refused)
        assert here.ask("GET", "/")[0] == 401 and here.ask("GET", "/health")[0] == 200


def test_from_elsewhere_a_header_is_ignored_and_nobody_may_do_anything(journal: Path) -> None:
    with behind_a_proxy(told(journal), proxies=("10.0.0.0/8",), roles={"alice": ALL}) as here:
        forwarded = {"X-Forwarded-For": "10.0.0.1", "Forwarded": "for=10.0.0.1", "X-Real-IP": "10.0.0.1"}
        for more in ({}, forwarded):
            assert here.ask("GET", "/api/runs", None, {**named("alice"), **more})[0] == 401
            assert here.ask("POST", CHAT, asked("?"), {**named("alice"), **more})[0] == 401
        assert not journal.exists()


def test_a_page_whose_host_was_made_to_point_here_cannot_name_a_user(journal: Path) -> None:
    with behind_a_proxy(told(journal), hosts=["studio.example"], tokens=(FULL,)) as here:
        assert here.ask("GET", "/api/me", None, {**named("alice"), "Host": "evil.example"})[0] == 421
        assert here.ask("GET", "/api/me", None, {**named("alice"), "Host": "studio.example"})[0] == 200
        assert here.ask("GET", "/api/me", None, {"Host": "other.example"}, token=FULL)[0] == 200
        foreign = {**named("alice"), "Host": "studio.example", "Origin": "https://evil.example"}
        assert here.ask("POST", CHAT, asked("?"), foreign)[0] == 403


# -- what is another's


def test_one_users_conversations_are_not_anothers_whichever_way_they_ask(journal: Path) -> None:
    with serving(told(journal), tokens=(FULL,), clients=(ONE,), users=USERS, roles={"*": ["use", "change"]}) as here:

        def ask(token: str, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, str]:
            status, _, found = here.ask(method, path, body, headers, token=token)
            return status, found if isinstance(found, str) else json.dumps(found)

        secret = "the surprise party of Monday"
        done = here.ask("POST", CHAT, asked(secret, session="trip", user="bob", metadata={"x": 1}), token=ALICE)
        run, name = done[1]["x-plait-run"], done[1]["x-plait-session"]
        assert name == "trip" and Journal.at(journal).run(run).head.user == "alice"
        alice = Caller.of_user("alice", {})
        session = Journal.at(journal).run(run).head.session
        assert session == f"@{alice.owner}/trip"
        body = {"answer": "yes", "question": "abcdefgh"}
        one, api = f"/v1/runs/{run}", f"/api/runs/{run}"
        places: list[tuple[str, str, Any]] = [
            *(("GET", f"{at}{more}", None) for at in (one, api) for more in ("", "/events")),
            *(("GET", f"{api}/{more}", None) for more in ("text?item=m0&field=text", "wire?step=1", "wire/2")),
            *(("GET", f"{api}/files/image-1", None), ("GET", f"/api/sides?a={run}&b={run}", None)),
            *(("POST", f"{one}/{act}", body if act == "answer" else {}) for act in ("answer", "resume", "cancel")),
            ("POST", f"{api}/fork", {"at": 1}),
            *(("GET", f"/v1/responses/resp_{run}{more}", None) for more in ("", "?stream=true", "/input_items")),
            ("POST", f"/v1/responses/resp_{run}/cancel", {}),
            ("DELETE", f"/v1/responses/resp_{run}", None),
            ("POST", "/v1/responses", {"model": "plait", "input": "?", "previous_response_id": f"resp_{run}"}),
        ]
        for method, path, sent in places:
            status, text = ask(BOB, method, path, sent)
            assert status == 404 and secret not in text and alice.owner not in text, path
        for path in (f"/api/runs/{run[:-1]}", "/api/runs/last", f"/v1/runs/{run[:-1]}"):
            assert ask(BOB, "GET", path)[0] == 404
        for filters in ("", "?session=trip", f"?session=@{alice.owner}/trip", "?user=alice", "?words=surprise"):
            assert json.loads(ask(BOB, "GET", f"/v1/runs{filters}")[1])["runs"] == []
            assert json.loads(ask(BOB, "GET", f"/api/runs{filters}")[1])["runs"] == []
        assert json.loads(ask(BOB, "GET", "/api/costs?by=user")[1])["groups"] == []
        assert not any(json.loads(ask(BOB, "GET", "/api/about")[1])["choices"].values())
        connection = http.client.HTTPConnection("127.0.0.1", here.port, timeout=60)
        connection.request("GET", "/api/events", headers={"authorization": f"Bearer {BOB}"})
        reply = connection.getresponse()
        assert next(line for line in reply if line.startswith(b"data: ")) == b'data: {"runs":[]}\n'
        connection.close()
        # The same words in the same session begin a conversation of bob's own.
        for sent in (asked("?", session="trip"), asked("?", session=f"@{alice.owner}/trip")):
            theirs = here.ask("POST", CHAT, sent, token=BOB)[1]["x-plait-run"]
            head = Journal.at(journal).run(theirs).head
            assert head.session.startswith(f"@{Caller.of_user('bob', {}).owner}/") and not head.history
        history = [{"role": "user", "content": secret}, {"role": "assistant", "content": "522250"}]
        guessed = {"model": "plait", "messages": [*history, {"role": "user", "content": "And?"}]}
        run_of_bob = here.ask("POST", CHAT, guessed, token=BOB)[1]["x-plait-run"]
        assert Journal.at(journal).run(run_of_bob).head.session != session
        # What is alice's own is there for alice, and for a full token; a client of the server has none of it.
        assert [each["run"] for each in here.ask("GET", "/api/runs?session=trip", token=ALICE)[2]["runs"]] == [run]
        assert here.ask("GET", "/v1/runs?session=trip", token=ALICE)[2]["runs"][0]["session"] == "trip"
        assert here.ask("GET", "/api/costs?by=user", token=ALICE)[2]["groups"][0]["key"] == "alice"
        assert here.ask("GET", f"/v1/responses/resp_{run}", token=ALICE)[0] == 200
        for token, expected in ((ALICE, 200), (FULL, 200), (ONE, 403)):
            assert [ask(token, *each[:2])[0] for each in places[2:3]] == [expected]
        assert ask(ONE, "GET", one)[0] == 404 and ask(ONE, "GET", "/api/me")[0] == 403


def test_who_sees_all_runs_still_continues_only_own_conversations(journal: Path) -> None:
    with serving(told(journal), users=USERS, roles={"bob": ["view", "use"]}) as here:
        run = here.ask("POST", CHAT, asked("?", session="trip"), token=ALICE)[1]["x-plait-run"]
        session = Journal.at(journal).run(run).head.session
        assert here.ask("GET", f"/api/runs/{run}", token=BOB)[2]["may"] == {
            **dict.fromkeys(("approve", "answer", "change", "fork"), False)
        }
        assert here.ask("GET", "/v1/runs", token=BOB)[2]["runs"][0]["session"] == session
        for sent in (asked("?", session="trip"), asked("?", session=session)):
            theirs = here.ask("POST", CHAT, sent, token=BOB)[1]["x-plait-run"]
            assert Journal.at(journal).run(theirs).head.session != session
        sent = {"model": "plait", "input": "?", "previous_response_id": f"resp_{run}"}
        assert here.ask("GET", f"/v1/responses/resp_{run}", token=BOB)[0] == 200
        assert here.ask("POST", "/v1/responses", sent, token=BOB)[0] == 404
        for method, path in (("POST", f"/v1/runs/{run}/cancel"), ("DELETE", f"/v1/responses/resp_{run}")):
            status, _, refused = here.ask(method, path, {} if method == "POST" else None, token=BOB)
            assert (status, refused["error"]["code"]) == (403, "forbidden")
        assert len(wait_for(Journal.at(journal).store.list_turns(session))) == 1


# -- answers


def test_only_the_role_approve_approves_and_a_question_is_for_its_asker(journal: Path) -> None:
    roles = {"bob": ["view", "approve"], "carol": ["view", "use"]}
    carol = "the-own-token-of-carol"
    agents = {
        "sends": react(journal, [action("send", {"text": "hi"}), answer("sent")], approve="effects"),
        "asks": react(
            journal, [turn("ask_user", "Which town?"), turn("final_answer", {"answer": "Lyon"})], loop="json"
        ),
    }
    served = [serve_agent(name, each, ServeTable()) for name, each in agents.items()]
    with serving(*served, users=(*USERS, ("carol", carol)), roles=roles) as here:

        def reply(token: str, run: str, answer: str) -> int:
            asked = here.ask("GET", f"/v1/runs/{run}", token=ALICE)[2]["questions"][0]["question"]
            body = {"answer": answer, "question": asked}
            return here.ask("POST", f"/v1/runs/{run}/answer", body, token=token)[0]

        run = begin(here, ALICE, "sends", session="s")
        assert here.ask("GET", f"/api/runs/{run}", token=ALICE)[2]["may"]["approve"] is False
        for text in ("yes", "no", 'edit {"text": "x"}'):
            assert reply(ALICE, run, text) == reply(carol, run, text) == 403
        question = here.ask("GET", f"/v1/runs/{run}", token=ALICE)[2]["questions"][0]["question"]
        said = {**asked(f"yes {question}", session="s"), "model": "sends"}
        status, _, refused = here.ask("POST", CHAT, said, token=ALICE)
        assert (status, refused["error"]["code"]) == (403, "forbidden") and "'approve'" in refused["error"]["message"]
        assert ended(here, run) == "waiting"
        assert reply(BOB, run, "yes") == 202
        assert ended(here, run, "answered")
        run = begin(here, ALICE, "asks")
        assert reply(carol, run, "Nice") == 403  # she sees it, and it is not hers
        assert reply(ALICE, run, "Lyon") == 202
        assert ended(here, run, "answered")
        run = begin(here, ALICE, "sends")
        assert here.ask("POST", f"/v1/runs/{run}/cancel", {}, token=carol)[0] == 403
        assert here.ask("POST", f"/v1/runs/{run}/resume", {}, token=carol)[0] == 403
        assert here.ask("POST", f"/v1/runs/{run}/cancel", {}, token=ALICE)[0] == 202


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_the_record_names_who_answered_and_nobody_can_claim_anothers_name(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place: Any = tmp_path / "j.db" if store == "sqlite" else shared_server().new_journal()
    script = [action("send", {"text": "hi"}), answer("sent")] * 3
    agent = react(place, model=plait.Scripted(script, by_turn=False), approve="effects")
    roles = {"alice": ["use", "approve"], "bob": ["view", "approve"]}
    with serving(agent, users=USERS, roles=roles) as here:

        def ask(run: str) -> str:
            return str(here.ask("GET", f"/v1/runs/{run}", token=BOB)[2]["questions"][0]["question"])

        run = begin(here, ALICE)
        said = {"answer": 'edit {"text": "ho"}', "question": ask(run)}
        path, forged = f"/v1/runs/{run}/answer", {HEADER: "alice"}
        assert here.ask("POST", path, {**said, "by": "alice"}, token=BOB)[0] == 400
        assert here.ask("POST", path, said, forged, token=BOB)[0] == 202
        assert ended(here, run, "answered")
        steps = here.ask("GET", f"/api/runs/{run}", token=ALICE)[2]["steps"]
        call, wait = [item for step in steps for item in step["items"] if item["kind"] in ("call", "wait")]
        for item in (call, wait):
            assert (item["by"], item["approved"], item["changed"]) == ("bob", True, '{"text": "ho"}')
            assert time.time() - 60 < item["answered"] <= time.time()
        (told,) = [data for _, kind, data in read_events(here.port, run, token=BOB) if data.get("kind") == "told"]
        assert told["data"] == {"by": "bob", "at": wait["answered"]}
        shown = CliRunner().invoke(command, ["show", run, "--journal", str(place)]).output
        assert re.search(r"Note \(told\): approved, with .* \(bob, 20\d\d-.*\)", shown)

        # An own question in the chat: the name in the body is that of nobody.
        run = begin(here, ALICE, session="s")
        said = {**asked(f"no {ask(run)} not now", session="s"), "user": "bob"}
        assert here.ask("POST", CHAT, said, token=ALICE)[0] == 200
        assert [each.by for each in wait_for(read_questions(here.manager.journal.store, run))] == ["alice"]


def test_a_fork_of_anothers_run_is_the_forkers(journal: Path) -> None:
    with serving(told(journal), users=USERS, roles={"bob": ["view", "change"]}) as here:
        run = begin(here, ALICE, session="trip")
        assert here.ask("POST", f"/api/runs/{run}/fork", {"at": 1}, token=ALICE)[0] == 403
        fork = here.ask("POST", f"/api/runs/{run}/fork", {"at": 1}, token=BOB)[2]["run"]
        ended(here, fork)
        assert Journal.at(journal).run(fork).head.user == "bob"
        assert here.ask("GET", f"/api/runs/{fork}", token=ALICE)[0] == 404
        assert here.ask("GET", f"/api/runs/{run}", token=ALICE)[2]["run"]["forks"] == []
        assert here.ask("GET", f"/api/runs/{run}", token=BOB)[2]["run"]["forks"] == [fork]


def test_the_steps_of_an_agent_with_hooks_are_for_those_who_see_all(journal: Path) -> None:
    script = [action("send", {"text": "hi"}, "SECRET THOUGHT"), answer("sent")]
    with serving(
        react(journal, script, hooks=[Watching()], approve="effects"),
        users=USERS,
        roles={"bob": ["view"], "alice": ["use", "approve"]},
    ) as here:
        run = begin(here, ALICE)
        found = here.ask("GET", f"/api/runs/{run}", token=ALICE)[2]
        assert [item["kind"] for step in found["steps"] for item in step["items"]] == ["wait"]  # to answer it
        question = found["waiting"][0]["question"]
        body = {"answer": "yes", "question": question}
        for path, sent in (("messages", {"text": "The user approved it."}), ("calls/1.0/cancel", None)):  # bob may view
            assert here.ask("POST", f"/api/runs/{run}/{path}", sent, token=BOB)[0] == 403
        assert here.ask("POST", f"/v1/runs/{run}/answer", body, token=ALICE)[0] == 202
        ended(here, run, "answered")
        for path in ("", "/events", "/text?item=m0&field=text", "/wire?step=1", "/wire/2", "/files/image-1"):
            status, _, text = here.ask("GET", f"/api/runs/{run}{path}", token=ALICE)
            assert "SECRET" not in str(text) and status in (200 if path in ("", "/events") else 403,), path
        assert here.ask("GET", f"/api/sides?a={run}&b={run}", token=ALICE)[0] == 403
        assert here.ask("GET", f"/api/runs/{run}", token=ALICE)[2]["run"]["answer"] == "sent"
        assert "SECRET" in str(here.ask("GET", f"/api/runs/{run}", token=BOB)[2])


# -- logins


def test_a_user_logs_in_with_a_token_and_has_the_roles_of_now(journal: Path) -> None:
    def log_in(here: Here, token: str) -> dict[str, str]:
        _, headers, found = here.ask("POST", "/login", {"token": token})
        return {"Cookie": headers["set-cookie"].partition(";")[0], "X-Plait-Page": found["page"]}

    def me(here: Here, login: Mapping[str, str]) -> Any:
        # The cookie's name has the port: behind one address all servers have the same.
        return here.ask("GET", "/api/me", None, {**login, "Host": "studio.example:80"})

    with serving(told(journal), tokens=(FULL,), clients=(ONE,), users=USERS, roles={"alice": ALL}) as here:
        logins = {token: log_in(here, token) for token in (ALICE, BOB)}
        logins = {
            token: {**each, "Cookie": each["Cookie"].replace(f"window_{here.port}", "window_80")}
            for token, each in logins.items()
        }
        assert me(here, logins[ALICE])[2] == {"name": "alice", "roles": ALL, "full": False, "login": True}
        assert me(here, logins[BOB])[2]["roles"] == OWN
        mixed = {"Cookie": logins[ALICE]["Cookie"], "X-Plait-Page": logins[BOB]["X-Plait-Page"]}
        assert me(here, mixed)[0] == me(here, {"Cookie": logins[ALICE]["Cookie"]})[0] == 401
        assert here.ask("POST", "/login", {"token": ONE})[0] == 401
        assert here.manager.tokens.find_login("", None) is None
        old = here.manager.tokens.login(ALICE, now=time.time() - LOGGED_IN - 5)
        assert old is not None
        assert me(here, {"Cookie": f"plait_window_80={old.cookie}", "X-Plait-Page": old.page})[0] == 401
        _, headers, _ = here.ask("POST", "/logout", {}, logins[ALICE])
        assert "Max-Age=0" in headers["set-cookie"] and "HttpOnly" in headers["set-cookie"]
        assert here.ask("POST", "/logout", {}, {"Origin": "https://evil.example"})[0] == 403
    # The server starts again with other roles, and without bob's token.
    with serving(told(journal), users=USERS[:1], roles={"alice": ["view"]}) as here:
        assert me(here, logins[ALICE])[2]["roles"] == ["view"]
        assert here.ask("POST", CHAT, asked("?"), {**logins[ALICE], "Host": "a:80"})[0] == 403
        assert me(here, logins[BOB])[0] == 401
    with behind_a_proxy(told(journal), tokens=(FULL,), users=USERS, hosts=["studio.example"]) as here:
        assert me(here, {**logins[ALICE], **named("bob")})[2]["name"] == "bob"


# -- the pages


@pytest.mark.asyncio
async def test_the_page_offers_what_its_user_may_do(journal: Path) -> None:
    roles = {"bob": ["view", "approve", "change"]}
    script = [action("send", {"text": "hi"}), answer("sent")]
    with serving(react(journal, script, approve="effects"), users=USERS, roles=roles) as server:
        run = begin(server, ALICE)
        async with Browser.shared() as browser:
            for token, width, dark in ((ALICE, 390, False), (BOB, 1280, True)):
                page = await browser.page(width=width, dark=dark)
                await page.goto(f"{server.url}/#/runs/{run}")
                await page.wait_for_selector("#token")
                await page.type(token, "#token")
                await page.press("Enter")
                await page.wait_for_selector(".caller")
                await page.wait_for_selector("#step-1")
                await shot(page, f"run-{width}")
                is_bob = token == BOB
                assert await page.evaluate("!!document.querySelector('form.answer .approve')") == is_bob
                assert ("waits for a user with the role approve" in await page.text("#step-1")) == (not is_bob)
                assert ("run again from here" in await page.text("#step-1")) == is_bob
                assert await page.evaluate("document.querySelector('nav [href=\"#/improve\"]').hidden") != is_bob
                await page.click(".caller")
                await page.wait_for_selector("dialog[open]")
                await shot(page, f"caller-{width}")
                assert ("approves calls" in await page.text("dialog")) == is_bob
                assert await window_axe.found(page, "moderate", "dialog") == []
                assert await page.poor_contrast() == []
                assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
                if is_bob:
                    await page.evaluate("document.querySelector('dialog .buttons button:last-child').click()")
                    await page.click("form.answer .approve")
                    await page.wait_for("document.querySelector('.outcome').innerText === 'sent'")
                    assert "Approved by bob." in (shown := await page.text("#step-1")) and "\nby bob · " in shown
                    await shot(page, "approved-1280")
                    await page.click(".caller")
                await page.click("dialog .main-act")
                await page.wait_for_selector("#token")
                assert await page.evaluate("localStorage.getItem('plait-page')") is None
                # A request that was under way when the user logged out is refused.
                assert [each for each in page.problems if "401" not in each] == []
                await page.close()


async def shot(page: Page, name: str) -> None:
    if SHOTS is not None:
        await page.screenshot(SHOTS / f"roles-{name}.png")
