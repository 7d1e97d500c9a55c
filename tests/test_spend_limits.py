"""Spend limits: what all runs together spend never passes a limit, in one process or in many, whatever dies."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import plait
from cli_support import Shell
from conftest import for_each
from fork_server import Child, start_forked
from plait.core import Reply, Usage
from plait.core.errors import ConfigError, ServerFailed
from plait.journal.records import NoteRecord
from plait.journal.spending import SpendCounter
from plait.journal.store import open_store, wait_for
from plait.models.base import Response
from plait.models.prices import NANO
from plait.runtime.guards import spending
from plait.server.chat_format import content_of
from plait.server.errors import RequestRejected
from postgres_server import shared_server
from spend_script import RATE, Metered, make_agent, read_ledger

SCRIPT = Path(__file__).with_name("spend_script.py")
FINAL = "Thought: so.\nFinal Answer: yes"
LOOK = 'Thought: I look.\nAction:\n```\n{"action": "look", "action_input": {"what": "x"}}\n```'


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spending, "PATIENCE", 0.2)


@pytest.fixture(params=["file", "postgres"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "runs.db") if request.param == "file" else shared_server().new_journal()


def said(text: str = FINAL, tokens: int = 20, **more: Any) -> Reply:
    return Reply(text, usage=Usage(10, tokens), **more)


def agent_of(journal: Any, *limits: Any, replies: Any = None, **more: Any) -> plait.Agent[Any]:
    model = more.pop("model", None) or plait.Scripted(replies or [said()], rate=RATE)
    return plait.Agent("react", model=model, journal=journal, spend=limits, **more)


def counters(journal: str) -> dict[str, SpendCounter]:
    """Return the counters of today, by user, agent and tag."""
    found = wait_for(open_store(journal).list_counters(time.time()))
    return {" ".join(str(each) for each in json.loads(it.name)[3:] if each is not None): it for it in found}


def run_script(journal: str, *words: object) -> Child:
    with open(os.devnull, "r+b") as nothing:
        streams = {"stdin": nothing.fileno(), "stdout": nothing.fileno(), "stderr": 2}
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        return start_forked([SCRIPT, journal, *map(str, words)], env=env, **streams)


# -- no limit is passed


def test_many_processes_never_pass_a_limit(journal: str, tmp_path: Path) -> None:
    ledger, usd = tmp_path / "ledger", 1.5
    processes = [run_script(journal, ledger, 12, usd) for _ in range(3)]
    run_script(journal, ledger, "die", usd).wait()
    assert [each.wait(60) for each in processes] == [0, 0, 0]
    most, sent = read_ledger(ledger)
    assert most <= usd and sent > 4
    counter = counters(journal)["ada"]
    assert counter.usd + counter.held_usd <= usd * NANO
    stopped, left = make_agent(journal, ledger, usd).run("Q?", user="ada"), 50
    while stopped.status == "answered" and (left := left - 1):
        stopped = make_agent(journal, ledger, usd).run("Q?", user="ada")
    assert read_ledger(ledger)[0] <= usd
    assert stopped.status == "stopped" and stopped.outcome.limit == "spend" and stopped.calls == 0
    assert "the limit per day of user 'ada' is reached" in str(stopped.reason).lower()
    with pytest.raises(RequestRejected) as why:
        content_of(stopped)
    assert why.value.status == 429 and not why.value.may_retry
    assert make_agent(journal, ledger, usd).run("Q?", user="ben").status == "answered"


def test_a_request_whose_process_died_counts_in_full_once_its_run_goes_on(journal: str, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    run_script(journal, ledger, "die", 1.0).wait()
    counter = counters(journal)["ada"]
    most, held = read_ledger(ledger)[0] * NANO, counter.held_usd
    assert counter.usd == 0 and counter.runs == 1 and held >= most > 0
    (row,) = plait.open_journal(journal).list()
    run = make_agent(journal, ledger, 1.0, model=Metered([said()], ledger)).resume(row.id, force=True)
    after = counters(journal)["ada"]
    assert run.status == "answered" and after.held_usd == 0 and after.runs == 1
    assert after.usd == held + RATE.cost(Usage(10, 20)) * NANO


def test_what_a_process_held_for_a_request_that_it_never_sent_is_free_once_its_run_goes_on(
    journal: str, tmp_path: Path
) -> None:
    run_script(journal, tmp_path / "ledger", "early", 1.0).wait()
    assert counters(journal)["ada"].held_usd > 0 and not (tmp_path / "ledger").exists()
    (row,) = plait.open_journal(journal).list()
    model = Metered([said()], tmp_path / "ledger")
    run = make_agent(journal, tmp_path / "ledger", 1.0, model=model).resume(row.id, force=True)
    counter = counters(journal)["ada"]
    assert run.status == "answered" and (counter.usd, counter.held_usd, counter.runs) == (700_000, 0, 1)


def test_a_request_waits_for_what_others_hold_and_is_not_shortened_for_them(
    journal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usd = float(RATE.cost(Usage(2_000, spending.LONGEST_REPLY)) or 0) * 1.2  # room for one at a time
    agent = agent_of(journal, plait.SpendLimit(usd=usd), model=Metered([said()], tmp_path / "ledger", delay=0.05))
    monkeypatch.setattr(spending, "PATIENCE", 10.0)

    async def run() -> list[Any]:
        return list(await asyncio.gather(*(agent.arun("Q?") for _ in range(3))))

    assert [each.status for each in asyncio.run(run())] == ["answered"] * 3
    assert read_ledger(tmp_path / "ledger")[0] <= usd and counters(journal)[""].usd == 3 * 700_000


# -- what counts


def test_replays_resumes_and_forks_count_only_what_they_newly_spend(tmp_path: Path) -> None:
    journal, asked = str(tmp_path / "runs.db"), []

    @plait.tool
    def look(what: str) -> str:
        """Look."""
        asked.append(what)
        return "seen"

    limit = plait.SpendLimit(usd=5, runs=9, user="*")
    agent = agent_of(journal, limit, replies=[said(LOOK), said()], tools=[look], approve="always", can_ask=False)
    run = agent.run("Q?", user="ada")
    one = round((RATE.cost(Usage(10, 20)) or 0) * NANO)
    assert run.status == "waiting" and counters(journal)["ada"].usd == one
    run = agent.resume(run, "yes")
    assert run.status == "answered" and counters(journal)["ada"].usd == 2 * one
    agent.replay(run)
    assert counters(journal)["ada"].usd == 2 * one
    assert agent.fork(run, 2).status == "answered"
    counter = counters(journal)["ada"]
    assert (counter.usd, counter.runs, counter.held_usd, counter.tokens) == (3 * one, 1, 0, 90)


def test_child_runs_and_questions_of_tools_count_for_the_run_at_the_top_and_their_own_agent(tmp_path: Path) -> None:
    journal = str(tmp_path / "runs.db")

    @plait.tool
    async def ask(ctx: plait.Context[Any], what: str) -> str:
        """Ask."""
        return await ctx.aask_model("Well?") if what else ""

    below = agent_of(None, plait.SpendLimit(tokens=500, agent="*"), replies=[said()], name="below")
    words = 'Thought: I ask.\nAction:\n```\n{"action": "%s", "action_input": {"%s": "x"}}\n```'
    replies = [said(words % ("ask", "what")), said(words % ("child", "question")), said()]

    def answer(think: Any) -> Reply:
        n = sum(message.role == "assistant" for message in think.messages)
        return replies[n] if len(think.messages) > 1 else said("well")

    limits = plait.SpendLimit(usd=5, runs=3, user="*"), plait.SpendLimit(usd=5, agent="*")
    agent = agent_of(
        journal, *limits, replies=answer, tools=[ask, below.as_tool("child", "Help.")], name="top", can_ask=False
    )
    run = agent.run("Q?", user="ada")
    assert run.status == "answered" and run.tree.calls == 5, run.reason
    found = counters(journal)
    assert {name: (it.tokens, it.runs) for name, it in found.items()} == {
        "ada": (150, 1),
        "top": (150, 1),
        "below": (30, 0),
    }
    stopped = agent_of(
        journal, plait.SpendLimit(tokens=20, agent="below"), replies=answer, tools=[below.as_tool("child")]
    )
    stopped = stopped.using(model=plait.Scripted([replies[1], said()], rate=RATE)).run("Q?")
    assert [child.status for child in stopped.children] == ["stopped"] and stopped.status == "answered"


def test_runs_are_counted_when_they_send_and_a_limit_of_runs_is_exact(journal: str) -> None:
    agent = agent_of(journal, plait.SpendLimit(runs=4, tag="*", per="month"), "runs=2,agent=other")

    async def run() -> list[str]:
        found = await asyncio.gather(*(agent.arun("Q?", tags=["a", "b"]) for _ in range(7)))
        return sorted(each.status for each in found)

    assert asyncio.run(run()) == ["answered"] * 4 + ["stopped"] * 3
    assert agent.run("Q?").status == "answered"  # it has no tag
    assert {name: it.runs for name, it in counters(journal).items()} == {"a": 4, "b": 4}


def test_attempts_that_fail_give_back_what_they_did_not_take_and_other_limits_hold_beside(tmp_path: Path) -> None:
    journal, said_twice = str(tmp_path / "runs.db"), []

    def answer(think: Any) -> Reply:
        said_twice.append(think.max_tokens)
        if len(said_twice) < 3:
            raise ServerFailed("out")
        return said()

    agent = agent_of(journal, "tokens=9000,runs=1", replies=answer, limits=plait.Limits(usd=0.05, tokens=5000))
    run = agent.run("Q?")
    assert run.status == "answered" and len(said_twice) == 3 and all(most < 2000 for most in said_twice), run.reason
    counter = counters(journal)[""]
    assert (counter.tokens, counter.runs, counter.held_tokens, counter.held_usd) == (30, 1, 0, 0)


def test_a_limit_that_is_changed_holds_for_the_next_request(tmp_path: Path) -> None:
    journal = str(tmp_path / "runs.db")
    agent = agent_of(journal, "tokens=30000,user=*")
    assert agent.run("Q?").status == "answered"
    assert agent.using(spend=["tokens=40,user=*"]).run("Q?").status == "stopped"
    assert agent.run("Q?").status == "answered"
    # Of two limits for one counter the smaller holds.
    assert agent.using(spend=["tokens=40,user=*", "tokens=90000,user=*", "runs=9,user=*"]).run("Q?").status == "stopped"


def test_a_cancelled_run_gives_back_what_it_held(journal: str, tmp_path: Path) -> None:
    agent = agent_of(journal, "usd=1", model=Metered([said()], tmp_path / "ledger", delay=5))

    async def cancel() -> None:
        task = asyncio.create_task(agent.arun("Q?"))
        while not (tmp_path / "ledger").exists():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert counters(journal)[""].held_usd == 0


def test_a_request_that_was_sent_and_brought_nothing_counts_in_full(tmp_path: Path) -> None:
    class Silent(plait.Scripted):
        async def send(self, request: Any, think: Any, on_text: Any = None) -> Response:
            try:
                await asyncio.sleep(60)
                raise AssertionError
            except asyncio.CancelledError as why:
                why.response = Response(0, b"")  # type: ignore[attr-defined]
                raise

    journal = str(tmp_path / "runs.db")
    agent = agent_of(journal, "tokens=9000", model=Silent([], rate=RATE))

    async def cancel() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(agent.arun("Q?"), 0.3)

    asyncio.run(cancel())
    counter = counters(journal)[""]
    assert counter.tokens > spending.LONGEST_REPLY and counter.held_tokens == 0


def test_a_run_that_is_cancelled_while_it_reserves_holds_nothing(
    journal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, reserved = agent_of(journal, "usd=1"), list[str]()
    store = open_store(journal)
    reserve = store.reserve

    async def slow(asked: Any, bounds: Any) -> Any:
        async def work() -> Any:
            reserved.append(asked.id)
            await asyncio.sleep(0.1)
            return await reserve(asked, bounds)

        return await asyncio.shield(asyncio.ensure_future(work()))  # as a database goes on, whoever waits

    monkeypatch.setattr(store, "reserve", slow)

    async def cancel() -> None:
        task = asyncio.create_task(agent.arun("Q?"))
        while not reserved:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.5)

    asyncio.run(cancel())
    counter = counters(journal)[""]
    assert (counter.held_usd, counter.runs, counter.usd) == (0, 0, 0)


# -- attacks


@pytest.mark.parametrize(
    ("usage", "cost", "usd", "beyond"),
    [
        (Usage(10**30, 10**30), None, spending.MOST, True),
        (Usage(-(10**6), -5), None, 0, False),  # is read as no usage at all, and estimated
        (Usage(10, 200_000), None, round((RATE.cost(Usage(10, 200_000)) or 0) * NANO), True),
    ],
)
def test_whatever_usage_an_endpoint_reports_is_counted_and_never_gives_room(
    journal: str, usage: Usage, cost: Any, usd: int, beyond: bool
) -> None:
    agent = agent_of(journal, "usd=1,user=*", replies=[Reply(FINAL, usage=usage)])
    run = agent.run("Q?", user="x")
    counter = counters(journal)["x"]
    assert run.status == "answered" and counter.usd >= usd and (counter.beyond_usd > 0) is beyond
    notes = [row.record.text for row in run.trace if isinstance(row.record, NoteRecord) and row.record.kind == "spend"]
    assert bool(notes) is beyond and all("more than was reserved" in note for note in notes)
    assert agent.run("Q?", user="x").status == ("stopped" if beyond else "answered")


@pytest.mark.parametrize("user", ["*", "", "null", "a'b\"c;--", "%s{}", "ü日本🚀", "x" * 256, '"], null, "'])
def test_users_with_odd_names_count_by_themselves(journal: str, user: str) -> None:
    agent = agent_of(journal, "tokens=9000,user=*", plait.SpendLimit(tokens=9000, user="other"))
    for name in (user, "bob"):
        run = agent.run("Q?", user=name)
        assert run.status == "answered"
    assert {json.loads(it.name)[3] for it in counters(journal).values()} == {user, "bob"}
    assert {it.tokens for it in counters(journal).values()} == {30}


def test_a_user_whose_name_is_redacted_counts_by_themselves(tmp_path: Path) -> None:
    from plait.journal import redaction

    journal = str(tmp_path / "runs.db")
    redaction.redact_with(lambda text: text.replace("ada@x.org", "***").replace("bob@x.org", "***"))
    try:
        agent = agent_of(journal, "runs=1,user=*")
        found = [agent.run("Q?", user=f"{name}@x.org").status for name in ("ada", "bob", "ada")]
        assert found == ["answered", "answered", "stopped"]
        assert len(counters(journal)) == 2 and not any("@" in name for name in counters(journal))
    finally:
        redaction.redact_with(None)


# -- days and months


@pytest.mark.parametrize(
    ("at", "zone", "per", "first", "hours"),
    [
        ("2026-03-29T12:00", "Europe/Berlin", "day", "2026-03-29", 23),
        ("2026-10-25T02:30", "Europe/Berlin", "day", "2026-10-25", 25),
        ("2026-10-25T23:59:59", "Europe/Berlin", "day", "2026-10-25", 25),
        ("2026-12-31T23:59:59", "UTC", "month", "2026-12-01", 31 * 24),
        ("2026-03-01T00:00", "Europe/Berlin", "month", "2026-03-01", 31 * 24 - 1),
        ("2026-02-28T00:00", "America/New_York", "month", "2026-02-01", 28 * 24),
        ("2026-04-24T00:30", "Africa/Cairo", "day", "2026-04-24", 23),  # has no midnight
    ],
)
def test_a_day_or_month_begins_and_ends_at_midnight_of_its_zone(
    at: str, zone: str, per: Any, first: str, hours: int
) -> None:
    limit, here = plait.SpendLimit(usd=1, per=per, zone=zone), ZoneInfo(zone)
    now = datetime.fromisoformat(at).replace(tzinfo=here).timestamp()
    bound = limit.make_bound((None, None, None), now)
    assert json.loads(bound.name)[:3] == [per, first, zone] and now < bound.until
    begins = datetime.fromisoformat(first).replace(tzinfo=here).timestamp()
    assert bound.until - begins == hours * 3600
    assert limit.make_bound((None, None, None), bound.until - 1).name == bound.name
    assert limit.make_bound((None, None, None), bound.until).name != bound.name


def test_at_midnight_a_new_day_begins_and_a_request_under_way_belongs_to_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, now = str(tmp_path / "runs.db"), [1_795_737_599.0]
    monkeypatch.setattr(spending.time, "time", lambda: now[0])

    def answer(think: Any) -> Reply:
        now[0] = 1_795_737_601.0
        return said()

    agent = agent_of(journal, "runs=1", replies=answer)
    assert [agent.run("Q?").status for _ in range(3)] == ["answered", "answered", "stopped"]
    found = wait_for(open_store(journal).list_counters(0))
    assert [(json.loads(it.name)[1], it.runs, it.tokens) for it in found] == [
        ("2026-11-26", 1, 30),
        ("2026-11-27", 1, 30),
    ]


# -- what is said


@for_each(
    "given",
    ["", "usd", "usd=x", "usd=-1", "per=day", "usd=1,per=week", "usd=1,zone=Mars/Base", "usd=1,zone=../etc", "usd=nan",
     "usd=1,a=b", 7, "usd=1,zone="],
)  # fmt: skip
def test_a_limit_that_is_none_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError):
        plait.Agent(model=plait.Scripted(["x"]), spend=[given])


def test_what_a_limit_needs_is_said_before_anything_is_sent(tmp_path: Path) -> None:
    sent = plait.Scripted([FINAL])
    with pytest.raises(ConfigError, match="price"):
        agent_of(str(tmp_path / "runs.db"), "usd=1", model=sent).run("Q?")
    with pytest.raises(ConfigError, match="journal"):
        agent_of(False, "runs=1", model=sent).run("Q?")
    assert sent.sent == 0
    assert agent_of(str(tmp_path / "runs.db"), "tokens=9000", model=sent).run("Q?").status == "answered"


def test_a_reply_is_shortened_to_what_is_left(tmp_path: Path) -> None:
    wanted: list[Any] = []

    def answer(think: Any) -> Reply:
        wanted.append(think.max_tokens)
        return said(tokens=think.max_tokens)

    agent = agent_of(str(tmp_path / "runs.db"), "tokens=12000", replies=answer)
    assert [agent.run("Q?").status for _ in range(3)] == ["answered", "answered", "stopped"]
    assert wanted[0] == spending.LONGEST_REPLY and 1000 < wanted[1] < 4000
    model = Metered(answer, tmp_path / "ledger", longest=700)
    assert agent_of(str(tmp_path / "runs.db"), "tokens=90000", model=model).run("Q?").status == "answered"
    assert wanted[2] == 700


def test_limits_are_shown(tmp_path: Path) -> None:
    shell, journal = Shell(tmp_path), str(tmp_path / "journal.db")
    limit = plait.SpendLimit(usd=1, runs=5, user="*", zone="Europe/Berlin")
    agent_of(journal).run("Q?", user="ada")
    assert "is here once a request obeys it" in shell("costs", "--limits").out
    agent_of(journal, limit).run("Q?", user="ada")
    shown = shell("costs", "--limits").out.splitlines()
    assert shown[0].split() == ["per", "user", "agent", "tag", "limit", "spent", "reserved", "left", "beyond", "ends"]
    assert shown[1].split()[:10] == [
        "day",
        "ada",
        "-",
        "-",
        "USD",
        "1.00000",
        "0.00070",
        "0.00000",
        "0.99930",
        "0.00000",
    ]
    assert shown[2].split()[:9] == ["day", "ada", "-", "-", "runs", "5", "1", "0", "4"] and "00:00+0" in shown[2]
    (listed,) = json.loads(shell("costs", "--limits", "--json").out)
    assert listed["usd"] == 700_000 and listed["name"][2:4] == ["Europe/Berlin", "ada"]


def test_limits_of_plait_toml_hold_for_every_agent_and_for_a_run_that_goes_on(tmp_path: Path) -> None:
    shell, file = Shell(tmp_path), tmp_path / "plait.toml"
    file.write_text('[[spend]]\nruns = 1\nuser = "ada"\n')
    model = shell.script(["Thought: so.\nFinal Answer: yes"])
    asked = ("run", "Q?", "--loop", "react", "--model", model)
    assert [shell(*asked, "--user", user).code for user in ("ada", "ben", "ada")] == [0, 0, 4]
    assert [shell(*asked, "--user", "ben", "--spend", "runs=1,user=*").code for _ in range(2)] == [0, 4]
    assert shell(*asked, "--spend", "runs").code == 2
    (tmp_path / "own.py").write_text(
        "import plait\nmodel = plait.Scripted(['Thought: so.\\nFinal Answer: yes'])\n"
        "agent = plait.Agent('react', model=model, spend=['runs=9,user=*'], name='own')\n"
    )
    assert [shell("run", "Q?", "-a", "own.py:agent", "--user", user).code for user in ("ada", "eve")] == [4, 0]
    look = ["Thought: so.\nAction: calculator[1 + 1]", "Thought: so.\nFinal Answer: yes"]
    more = ("--model", shell.script(look, "look.json"), "--tools", "calculator", "--approve", "always", "--user", "eve")
    assert shell("run", "Q?", "--loop", "react", *more, "--no-ask").code == 5
    file.write_text('[[spend]]\ntokens = 9\nuser = "eve"\n')
    (question,) = plait.open_journal(tmp_path / "journal.db").questions()
    stopped = shell("resume", "last", "--question", question.question, "--answer", "yes", "--tools", "calculator")
    assert stopped.code == 4 and "'eve'" in stopped.out + stopped.err
    file.write_text("[[spend]]\nper = 'week'\n")
    assert shell(*asked).code == 2 and "table [[spend]]" in shell(*asked).err


def test_a_file_of_a_folder_adds_limits_to_those_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "plait").mkdir()
    (tmp_path / "plait" / "plait.toml").write_text("[[spend]]\nruns = 1\n")
    (tmp_path / "near.toml").write_text('[[spend]]\nusd = 9\nper = "month"\n[[spend]]\nruns = 5\n')
    given = plait.SpendLimit(runs=1), plait.SpendLimit(usd=9, per="month"), plait.SpendLimit(runs=5)
    assert plait.Agent(model=plait.Scripted(["x"])).spend == given[:1]
    monkeypatch.setenv("PLAIT_CONFIG", str(tmp_path / "near.toml"))
    agent = plait.Agent(model=plait.Scripted(["x"]), spend=["runs=1"])
    assert agent.spend == given and agent.using(loop="react").spend == given
    assert pickle.loads(pickle.dumps(agent.using(model="local"))).spend == given


def test_limits_in_a_file_that_cannot_be_read_are_not_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "near.toml").write_text("[[spend]]\nruns = 1\n[srve]\n")
    monkeypatch.setenv("PLAIT_CONFIG", str(tmp_path / "near.toml"))
    with pytest.raises(ConfigError, match=r"\[srve\], which is not known"):
        plait.Agent(model=plait.Scripted(["x"]))
