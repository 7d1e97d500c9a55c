"""Claims about recorded runs as data: filters, open questions and costs, in Python and on the command line."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import plait as library
from cli_support import Shell, action, final
from conftest import for_each
from plait.core.errors import ConfigError, JournalError, UnknownRun
from plait.journal.run_query import make_query
from plait.models.prices import Rate
from test_spending import look, reply, scripted

CHEAP, DEAR = Rate("tokens", 1.0, 0.0), Rate("tokens", 1000.0, 0.0)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def made(journal: Path, price: Rate | None = CHEAP, **about: Any) -> Any:
    """A run of two calls of 500 and 700 input tokens."""
    turns = [reply("Thought: look.\nAction: look[a]", 500, 9), reply("Final Answer: a", 700, 5)]
    model = scripted("m", price, *turns) if price else library.Scripted([each.text for each in turns])
    return library.Agent("react", model=model, tools=[look], journal=journal).run("So?", **about)


def asking(journal: Path, **about: Any) -> Any:
    script = ["Thought: I add.\nAction: calculator\nAction Input: 2 + 2", "Final Answer: 4"]
    model = library.Scripted(script)
    return library.Agent("react", model=model, tools=["calculator"], approve="always", journal=journal).run(
        "Add.", **about
    )


def test_runs_are_listed_filtered_and_loaded(journal: Path) -> None:
    runs = library.open_journal(journal)
    assert runs.list() == [] == runs.costs("user") and not journal.exists()
    ada, ben = made(journal, user="ada", tags=["web"]), made(journal, DEAR, user="ben", tags=["web", "beta"])

    def found(**filters: Any) -> list[str]:
        listed = [row.head.run for row in runs.list(**filters)]
        assert listed == [row.head.run for row in asyncio.run(runs.alist(**filters))]
        return listed

    assert found() == [ben.id, ada.id] and found(limit=1) == [ben.id]
    assert found(user="ada") == [ada.id] and found(tags=["web", "beta"]) == [ben.id] == found(tags="beta")
    assert found(min_cost=0.1) == [ben.id] and found(max_cost="0.1") == [ada.id]
    assert found(since="1h") == found(until=datetime.now() + timedelta(1)) == [ben.id, ada.id]
    assert found(until=date.today()) == [ben.id, ada.id]  # the day is included
    assert found(until=date.today() - timedelta(1)) == [] == found(since=time.time() + 60)
    assert found(status="failed") == [] == found(agent="none")
    run = runs.load(ada.id)
    assert (run.messages(), run.user) == (ada.messages(), "ada")
    assert [each.text for each in run.timeline.questions] == []
    assert len(asyncio.run(runs.aload(ada.id)).events) == len(ada.events)
    with pytest.raises(UnknownRun):
        runs.load("none")


@for_each(
    "wrong",
    [
        {"users": "x"},
        {"status": "odd"},
        {"rated": "right"},
        {"since": "yesterday"},
        {"since": True},
        {"until": float("nan")},
        {"until": "9999-12-31"},
        {"min_cost": "much"},
        {"max_cost": -1},
        {"min_cost": float("inf")},
        {"user": 7},
        {"user": "\udcff"},
        {"tags": [7]},
        {"tags": 7},
        {"limit": "7"},
        {"limit": 2**63},
    ],
)
def test_a_wrong_filter_is_named(journal: Path, wrong: Any) -> None:
    (name,) = wrong
    with pytest.raises(ConfigError, match=name.removesuffix("s")) as why:
        library.open_journal(journal).list(**wrong)
    assert why.value.hint


def test_filters_are_values_and_never_sql(journal: Path) -> None:
    made(journal, user="ada")
    for text in ("' OR 1=1 --", "%", "*", '"', "a_a"):
        for name in ("user", "agent", "grade", "tags", "session", "model", "words"):
            assert library.open_journal(journal).list(**{name: text}) == []
    assert make_query(user="", tags=(), since=None) == make_query()


def test_open_questions_have_ids_that_an_answer_names_also_those_of_child_runs(journal: Path) -> None:
    helper = library.Agent(
        "react",
        model=library.Scripted(["Thought: I add.\nAction: calculator\nAction Input: 1 + 1", "Final Answer: 2"]),
        tools=["calculator"],
        approve="always",
        journal=journal,
    )
    ask = ["Thought: I ask.\nAction: helper\nAction Input: Add.", "Final Answer: 2"]
    parent = library.Agent(
        "react", model=library.Scripted(ask), tools=[helper.as_tool("helper", "Adds.")], journal=journal
    )
    one, two = asking(journal, user="ada"), parent.run("?")
    assert (one.status, two.status) == ("waiting", "waiting")
    runs = library.open_journal(journal)
    second, first = runs.questions()
    assert (first.run, first.asked_by, first.kind, first.tool) == (one.id, one.id, "approval", "calculator")
    assert first.question == one.outcome.question and "2 + 2" in json.dumps(first.input)
    (child,) = two.children
    assert (second.run, second.asked_by) == (two.id, child.id)
    assert runs.questions(user="ada") == [first] == asyncio.run(runs.aquestions(one.id))
    assert parent.resume(second.run, "yes", question=second.question).status == "answered"
    assert runs.questions() == [first] and runs.questions(two.id) == []


def test_a_run_that_has_not_ended_is_read_by_its_timeline(journal: Path) -> None:
    made(journal)
    with sqlite3.connect(journal) as connection:
        connection.execute("UPDATE runs SET status = 'running', outcome = NULL, rows = NULL, totals = '{}'")
        connection.execute("UPDATE runs SET crc = 0")
    runs = library.open_journal(journal)
    (row,) = runs.list(status="interrupted")
    with pytest.raises(JournalError):
        runs.load(row.head.run)


def test_costs_are_summed_by_day_user_tag_and_agent(journal: Path) -> None:
    made(journal, user="ada", tags=["web"])
    made(journal, user="ada", tags=["web", "beta"])
    made(journal, DEAR, user="ben")
    made(journal, None)  # no price
    runs = library.open_journal(journal)

    def sums(by: str, **filters: Any) -> dict[str, tuple[int, int, float, int]]:
        return {each.key: (each.runs, each.calls, each.cost_usd, each.unpriced) for each in runs.costs(by, **filters)}

    assert sums("user") == {"ben": (1, 2, 1.2, 0), "ada": (2, 4, 0.0024, 0), "": (1, 2, 0.0, 1)}
    assert sums("tag") == {"": (2, 4, 1.2, 1), "web": (2, 4, 0.0024, 0), "beta": (1, 2, 0.0012, 0)}
    assert sums("day", user="ada") == {date.today().isoformat(): (2, 4, 0.0024, 0)}
    assert sums("agent") == {"": (4, 8, 1.2024, 1)} and sums("user", tags="beta") == {"ada": (1, 2, 0.0012, 0)}
    assert next(each.cost_usd for each in asyncio.run(runs.acosts("user"))) == 1.2
    day, week = date.today(), (date.today() - timedelta(date.today().weekday())).isoformat()
    assert sums("week").keys() == {week} and sums("month").keys() == {day.isoformat()[:7]}
    over = runs.costs("user", over="week")
    assert {(each.key, each.period, each.runs) for each in over} == {("ben", week, 1), ("ada", week, 2), ("", week, 1)}
    assert sums("model").keys() == {"scripted:m", "scripted:scripted"}
    runs.rate(runs.list(user="ada")[0].id, good=False)
    found = {each.key: (each.answered, each.succeeded) for each in runs.costs("user")}
    assert found == {"ben": (1, 1), "ada": (2, 1), "": (1, 1)}
    asking(journal, user="eva")
    (only,) = runs.costs("user", user="eva")
    assert (only.waiting, only.answered, only.failed, only.stopped) == (1, 0, 0, 0)
    for wrong in ({"by": "moon"}, {"by": "day", "over": "moon"}):
        with pytest.raises(ConfigError, match="moon"):
            runs.costs(**wrong)


def test_each_cost_counts_once_with_child_runs_and_forks(journal: Path) -> None:
    """The sum over all groups is what the models were paid."""
    helper = library.Agent("react", model=scripted("m", CHEAP, reply("Final Answer: 1", 300, 1)), journal=journal)
    turns = [reply("Thought: t.\nAction: helper\nAction Input: q", 500, 9), reply("Final Answer: a", 700, 5)]
    model = scripted("m", CHEAP, *turns)
    agent = library.Agent("react", model=model, tools=[helper.as_tool("helper", "Helps.")], journal=journal)
    run = agent.run("?", user="ada")
    assert run.status == "answered" and run.tree.runs == 2, run.reason
    fork = agent.fork(run, at=2, user="ben")
    assert fork.status == "answered", fork.reason
    found = {each.key: each for each in library.open_journal(journal).costs("user")}
    assert (found["ada"].input_tokens, found["ada"].cost_usd) == (1500, 0.0015)
    assert (found["ben"].input_tokens, found["ben"].cost_usd, found["ben"].calls) == (700, 0.0007, 1)


def test_a_run_that_goes_on_costs_what_it_used_so_far_and_a_damaged_one_is_left_to_itself(journal: Path) -> None:
    seen: list[Any] = []

    @library.tool
    def spy() -> str:
        """Look."""
        seen.extend(library.open_journal(journal).costs("user"))
        return "x"

    model = scripted(
        "m", CHEAP, reply("Thought: t.\nAction: spy\nAction Input: {}", 500, 9), reply("Final Answer: a", 7, 5)
    )
    agent = library.Agent("react", model=model, tools=[spy], journal=journal)
    assert agent.run("?", user="ada").status == "answered"
    (going,) = seen
    assert (going.key, going.input_tokens, going.cost_usd) == ("ada", 500, 0.0005)
    made(journal, user="ben")
    with sqlite3.connect(journal) as connection:
        connection.execute("UPDATE runs SET totals = '{}' WHERE user = 'ada'")  # its check sum is wrong now
    found = {each.key: (each.cost_usd, each.unpriced) for each in library.open_journal(journal).costs("user")}
    assert found == {"ben": (0.0012, 0), "ada": (0.0, 1)}


# -- the command line


@pytest.fixture
def plait(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_the_command_line_writes_and_filters_them(plait: Shell) -> None:
    model = plait.script([action("calculator", "2 + 2"), final("4")])
    about = ("--user", "ada", "--tag", "web", "--tag", "beta", "--metadata", "order=17", "--metadata", "k=a=b")
    done = plait("run", "?", "--model", model, "--tools", "calculator", "--json", *about)
    assert done.code == 0, done.err
    assert done.object["user"] == "ada" and done.object["metadata"] == {"order": "17", "k": "a=b"}
    assert plait("run", "?", "--model", model, "--tools", "calculator", "--quiet").code == 0

    def count(*options: str) -> int:
        listed = plait("runs", "--json", *options)
        assert listed.code == 0, listed.err
        return len(json.loads(listed.out))

    for options in (["--user", "ada"], ["--tag", "web", "--tag", "beta"], ["--since", "1h", "--user", "ada"]):
        assert count(*options) == 1
    for options in (["--user", "a"], ["--tag", "none"], ["--until", "1h"], ["--min-cost", "1"], ["--grade", "wrong"]):
        assert count(*options) == 0
    assert "that match" in plait("runs", "--user", "a").err
    shown = plait("show", done.object["run"]).out
    assert 'user ada · tags web, beta · metadata {"order": "17", "k": "a=b"}' in shown
    fork = plait("fork", done.object["run"], "--at", "1", "--tag", "again", "--json")
    assert (fork.object["user"], fork.object["tags"]) == ("ada", ["again"])
    for wrong in (["run", "?", "--metadata", "x"], ["run", "?", "--tag", "t" * 65], ["runs", "--since", "x"]):
        refused = plait(*wrong, *(["--model", model] if wrong[0] == "run" else []))
        assert refused.code == 2 and "Traceback" not in refused.err and "Error" in refused.err


def test_open_questions_stand_in_show_and_in_the_list(plait: Shell) -> None:
    model = plait.script([action("calculator", "2 + 2"), final("4")])
    run = plait("run", "?", "--model", model, "--tools", "calculator", "--approve", "always", "--json").object
    (listed,) = json.loads(plait("runs", "--json").out)
    (asked,) = listed["questions"]
    assert asked["question"] == run["waits"]["question"] and asked["tool"] == "calculator"
    assert json.loads(plait("show", "last", "--json").out)["questions"] == [asked]
    assert f"--question {asked['question']} --answer" in plait("show", "last").out
    done = plait("resume", "last", "--question", asked["question"], "--answer", "yes", "--quiet")
    assert done.code == 0 and json.loads(plait("show", "last", "--json").out)["questions"] == []


def test_costs_by_user_as_a_table(plait: Shell) -> None:
    journal = plait.folder / "journal.db"
    made(journal, user="ada")
    made(journal, None, user="ben|x")
    table = plait("costs", "--by", "user")
    lines = [line.split() for line in table.out.splitlines()]
    assert [lines[0][-2:], *(line[-2:] for line in lines[1:3])] == [["USD", "unpriced"], ["0.00120", "0"], ["?", "1"]]
    assert lines[1][0] == "ada" and lines[2][0] == "ben|x" and "unknown price" in table.out
    (only,) = json.loads(plait("costs", "--by", "user", "--user", "ada", "--json").out)
    assert (only["key"], only["cost_usd"]) == ("ada", 0.0012)
    assert plait("costs", "--by", "day", "--csv").out.startswith("day,runs,succeeded,calls,in,out,USD")
    assert plait("costs", "--by", "user", "--last", "2").code == 2
    filtered = plait("costs", "--last", "5", "--user", "ada", "--csv")
    assert filtered.code == 0 and len(filtered.out.splitlines()) == 2


def test_a_run_with_two_tags_is_not_counted_as_two_without_a_price(plait: Shell) -> None:
    made(plait.folder / "journal.db", None, tags=["web", "beta"])
    table = plait("costs", "--by", "tag")
    assert [line.split()[-2:] for line in table.out.splitlines()[1:3]] == [["?", "1"], ["?", "1"]]
    assert "2" not in table.out.splitlines()[-1]
    assert plait("costs", "--by", "tag", "--csv").out.splitlines()[0].endswith(",USD,unpriced")
    priced = made(plait.folder / "journal.db", tags=["dear"])
    assert plait("costs", "--by", "tag", "--tag", "dear").out.splitlines()[0].split()[-1] == "USD" and priced


def test_a_rating_is_given_shown_and_filtered(plait: Shell) -> None:
    journal = plait.folder / "journal.db"
    one, two, three = (made(journal, user="ada") for _ in range(3))
    runs = library.open_journal(journal)
    runs.rate(one, good=False, why="it guessed")
    asyncio.run(runs.arate(two.id, good=True))
    assert [(row.id, row.rating) for row in runs.list()] == [(three.id, ""), (two.id, "good"), (one.id, "bad")]
    assert [row.id for row in runs.list(rated="bad")] == [one.id]
    assert [each.runs for each in runs.costs("user", rated="good")] == [1]
    with pytest.raises(UnknownRun):
        runs.rate("none", good=True)
    assert "answered, rated bad" in plait("runs", "--rated", "bad").out and "rated good" in plait("show", two.id).out
    assert [each["rating"] for each in json.loads(plait("runs", "--json").out)] == [None, "good", "bad"]
    assert plait("rate", one.id, "good").code == 0  # the last word counts
    assert len(json.loads(plait("runs", "--rated", "good", "--json").out)) == 2
    none = plait("runs", "--grade", "bad")
    assert "No runs that match" in none.err and "--rated" in none.err
    assert "--rated" not in plait("runs", "--grade", "flaw").err


def test_a_rating_that_cannot_be_read_hides_no_run(journal: Path) -> None:
    run = made(journal)
    library.open_journal(journal).rate(run, good=False)
    for broken in (b"{", b"[1]", b'"x"', b'{"good": {"a": 1}}'):
        with sqlite3.connect(journal) as connection:
            connection.execute("UPDATE kept SET data = ? WHERE kind = 'rating'", (broken.decode(),))
        (row,) = library.open_journal(journal).list()
        assert row.id == run.id and row.rating in ("", "good", "bad")


def test_an_agent_that_is_not_found_by_its_word_is_found_by_its_name(plait: Shell) -> None:
    made(plait.folder / "journal.db")
    none = plait("runs", "--agent", "orders:agent")
    assert "No runs that match" in none.err and "name=" in none.err
    assert "name=" not in plait("runs", "--agent", "orders").err


AGENT = """
import os, plait

@plait.tool
def refund(order: int, reason: str = "") -> dict:
    "Refund an order."
    with open("effects.txt", "a") as file:
        file.write(f"{order} ")
    if order == 8:
        raise plait.ToolError("no such order")
    return {"order": order}

def answer(think):
    seen = think.messages[-1].content
    if isinstance(seen, str) and "Refund" in seen:
        order = int(seen.split()[-1]) + int(os.environ.get("MORE", 0))
        return {"calls": [{"name": "refund", "input": {"order": order}}]}
    return {"answer": str(seen)}

agent = plait.Agent("tool_calling", name="support", tools=[refund], approve="never", model=plait.Scripted(answer),
                    instructions=os.environ.get("SAID", ""))
"""


def test_recorded_runs_are_checked_and_asked_again_without_their_effects(plait: Shell) -> None:
    (plait.folder / "support.py").write_text(AGENT)
    asked = [plait("run", f"Refund {order}", "-a", "support.py:agent", "--json").object["run"] for order in (7, 8)]
    replay = ["replay", "-a", "support.py:agent"]
    same = plait(*replay, "--last", "5")
    assert same.code == 0 and same.out.count("the same (2)") == 2
    changed = plait(*replay, "--last", "5", env={"SAID": "Be brief."})
    assert changed.code == 1 and changed.out.count("differs from its record at step 1") == 2
    again = plait(*replay, "--last", "5", "--run", "--json")
    changes = {each["run"]: each for each in json.loads(again.out)["changes"]}
    assert again.code == 0 and changes.keys() == {*asked}
    assert all(each["answers"][0] == each["answers"][1] for each in changes.values())
    assert changes[asked[1]]["calls"] == [["refund({'order': 8, 'reason': ''})"]] * 2
    other = plait(*replay, asked[0], "--run", env={"MORE": "5", "SAID": "a"})
    assert other.code == 1 and "refund was not called: it has effects" in other.out
    assert (plait.folder / "effects.txt").read_text() == "7 8 "
    plait(*replay, asked[0], "--run", "--effects", env={"MORE": "5", "SAID": "b"})
    assert (plait.folder / "effects.txt").read_text() == "7 8 12 "
