"""Child runs: agents as tools, with one journal, one set of limits, and approvals through the tree."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import plait
from cli_support import action, final, run_in_process
from models_server import Asked, Server, completion
from plait.core import Call, Reply, Usage
from plait.core.errors import ConfigError
from plait.journal.store import Journal
from plait.models import http
from plait.models.base import Abilities
from plait.models.prices import Rate
from plait.server.agents import ServedAgent
from plait.server.runs import RunManager
from plait.view.live import run_document

sent: list[str] = []


@plait.tool
def send(text: str) -> str:
    """Send a text; has an effect."""
    sent.append(text)
    return f"sent {text}"


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    sent.clear()


def scripted(*turns: Any, **options: Any) -> plait.Scripted:
    return plait.Scripted(list(turns), **{"by_turn": False, **options})


def seen(run: plait.Run) -> list[str]:
    return [observation.text for _, observation in run.timeline.results]


def child(*turns: Any, **options: Any) -> plait.Agent:
    return plait.Agent(model=scripted(*turns), journal=False, **options)


def parent(tools: Any, *turns: Any, journal: Any = False, **options: Any) -> plait.Agent:
    return plait.Agent(model=scripted(*turns), tools=tools, journal=journal, **options)


def test_an_agent_as_a_tool_is_a_child_run_in_the_journal_of_its_parent(journal: Path) -> None:
    helper = child(final("42")).as_tool("think", "Thinks hard.")
    run = parent([helper], action("think", "how much?"), final("It is 42"), journal=journal).run("q")
    assert (run.status, seen(run)) == ("answered", ["42"])
    [inner] = run.children
    head = Journal(journal).head(inner.id)
    [call] = run.timeline.tool_calls
    assert head.caller is not None and head.caller.run == run.id
    assert head.caller.key.startswith(f"{call.key}:c")
    assert (inner.question, inner.answer, head.parent) == ("how much?", "42", "")
    assert Journal(journal).run("last").head.run == run.id, "the newest run is never a child"
    assert [row.head.run for row in Journal(journal).runs()] == [run.id]
    assert {row.head.run for row in Journal(journal).runs(children=True)} == {run.id, inner.id}
    asyncio.run(Journal(journal).store.delete([run.id]))
    assert Journal(journal).runs(children=True) == []


def test_without_a_journal_the_children_are_known_as_well() -> None:
    run = parent([child(final("42")).as_tool("think")], action("think", "?"), final("ok")).run("q")
    assert [each.answer for each in run.children] == ["42"]


def test_an_agent_that_wants_52_calls_stops_at_the_limits_of_the_run_that_calls_it(journal: Path) -> None:
    inner = child(*[action("calculator", "1+1")] * 50, final("2"), tools=["calculator"])
    run = parent([inner.as_tool("ask")], action("ask", "x"), final("ok"), journal=journal, limits=plait.Limits(calls=5))
    done = run.run("q")
    [below] = done.children
    assert done.tree.requests == done.calls + below.calls == 5
    assert (done.status, below.status) == ("stopped", "stopped") and "model calls" in str(below.reason)


@pytest.mark.parametrize(
    ("limits", "own"), [(plait.Limits(tokens=6000), "tokens"), (plait.Limits(usd=0.06), "usd"), (None, "calls")]
)
def test_tokens_and_usd_of_children_count_against_the_parent(limits: plait.Limits | None, own: str) -> None:
    said = [Reply(action("calculator", f"1+{n}"), usage=Usage(500, 100)) for n in range(60)]
    inner = plait.Agent(
        model=plait.Scripted(said, by_turn=False, spec="scripted:inner", rate=Rate("tokens", 10.0, 10.0)),
        tools=["calculator"],
        journal=False,
    )
    outer = plait.Agent(
        model=plait.Scripted(
            [Reply(action("ask", "x"), usage=Usage(500, 100)), Reply(final("ok"), usage=Usage(500, 100))],
            by_turn=False,
            rate=Rate("tokens", 10.0, 10.0),
        ),
        tools=[inner.as_tool("ask")],
        limits=limits or plait.Limits(calls=6),
        journal=False,
    )
    run = outer.run("q")
    used = {"tokens": run.tree.usage.tokens, "usd": run.total_cost_usd, "calls": run.tree.requests}[own]
    most = {"tokens": 6000, "usd": 0.06, "calls": 6}[own]
    assert used is not None and used <= most
    [below] = run.children
    assert below.outcome.limit == own and below.calls >= 2, below  # type: ignore[union-attr]


def test_children_in_parallel_stay_within_the_limits_together(journal: Path) -> None:
    def research() -> plait.Agent:
        return child(*[action("calculator", "1+1")] * 20, final("2"), tools=["calculator"])

    @plait.tool(read_only=True)
    async def ask_all(ctx: plait.Context[None], topics: int) -> str:
        """Ask several agents at once."""
        runs = await asyncio.gather(*(ctx.arun(research(), f"topic {n}") for n in range(topics)))
        return " ".join(each.status for each in runs)

    limits = plait.Limits(calls=12)
    run = parent([ask_all], action("ask_all", 4), final("ok"), journal=journal, limits=limits).run("q")
    assert len(run.children) == 4 and seen(run) == ["stopped stopped stopped stopped"]
    assert run.tree.requests == sum(len(each.timeline.attempts) for each in (run, *run.children)) <= 12
    assert run.tree.requests >= 10


def test_a_synchronous_tool_runs_children_and_they_end_with_the_call(journal: Path) -> None:
    @plait.tool(read_only=True)
    def delegate(ctx: plait.Context[None], task: str) -> str:
        """Delegate."""
        return str(ctx.run(child(final("done below")), task).answer)

    run = parent([delegate], action("delegate", "x"), final("ok"), journal=journal).run("q")
    assert seen(run) == ["done below"] and [each.answer for each in run.children] == ["done below"]


def test_depth_and_number_of_children_are_limited() -> None:
    agent = child(final("bottom"))
    for _ in range(6):
        agent = plait.Agent(
            model=scripted(action("down", "go"), final("up")), tools=[agent.as_tool("down")], journal=False
        )
    run = agent.run("q")
    depth, below = 0, run
    while below.children:
        below, depth = below.children[0], depth + 1
    assert depth == 4 and "4 levels of child runs are allowed" in seen(below)[0]

    many = plait.Agent(
        model=scripted(*[action("ask", f"{n}") for n in range(4)], final("ok")),
        tools=[child(*[final("x")] * 9).as_tool("ask")],
        limits=plait.Limits(children=2),
        journal=False,
    ).run("q")
    assert len(many.children) == 2 and "has its 2 child runs" in seen(many)[2] == seen(many)[3]


def test_dependencies_are_passed_on_and_can_be_replaced() -> None:
    @plait.tool(read_only=True)
    def name(ctx: plait.Context[str]) -> str:
        """Name it."""
        return ctx.deps

    @plait.tool(read_only=True)
    async def both(ctx: plait.Context[str]) -> str:
        """Ask twice."""
        runs = [await ctx.arun(inner, "a"), await ctx.arun(inner, "b", deps="other")]
        return " ".join(seen(each)[0] for each in runs)

    inner = child(*[action("name"), final("x")] * 2, tools=[name], deps=str)
    run = plait.Agent(model=scripted(action("both"), final("ok")), tools=[both], deps=str, journal=False)
    assert seen(run.run("q", deps="mine")) == ["mine other"]


def test_approvals_of_a_child_wait_in_the_parent_and_are_answered_there(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def tree() -> plait.Agent:
        inner = child(action("send", "a"), action("send", "b"), final("sent both"), tools=[send])
        middle = child(action("inner", "go"), final("middle"), tools=[inner.as_tool("inner")])
        return parent(
            [middle.as_tool("middle")], action("middle", "x"), final("ok"), journal=journal, approve="effects"
        )

    agent = tree()
    run = agent.run("q")
    assert run.status == "waiting" and "May 'send' be called with" in str(run.reason) and sent == []
    second = agent.resume(run, "yes")
    assert second.status == "waiting" and sent == ["a"]
    assert second.outcome.question != run.outcome.question  # type: ignore[union-attr]
    with pytest.raises(plait.PlaitError, match="was answered before"):
        agent.resume(run, "yes")
    last = agent.resume(second, "no, not now")
    assert last.status == "answered" and sent == ["a"]
    [middle] = last.children
    [inner] = middle.children
    assert "refused this call: no, not now" in seen(inner)[1]
    assert agent.replay(last.id).whole
    assert run_in_process(["show", last.id, "--journal", str(journal)]) == 0
    shown = capsys.readouterr().out
    assert shown.count("Note (approval): May 'send' be called with") == 2
    assert "Note (told): approved (" in shown and "Note (told): refused: no, not now (" in shown


@dataclass
class Trip:
    city: str
    days: int


def test_a_typed_child_that_has_ended_is_typed_again_when_its_tool_is_called_again(journal: Path) -> None:
    typed = child('Final Answer: {"city": "Ghent", "days": 2}', output=Trip)
    asking = child(action("send", "two"), final("sent"), tools=[send], approve="effects")
    days: list[int] = []

    @plait.tool(idempotent=True)
    async def plan_trip(ctx: plait.Context[None]) -> str:
        """Plan a trip, then send it."""
        days.append((await ctx.arun(typed, "Plan.")).output.days)
        await ctx.arun(asking, "Send.")
        return "planned"

    agent = parent([plan_trip], action("plan_trip", None), final("done"), journal=journal)
    run = agent.run("Plan and send.")
    assert (run.status, days, sent) == ("waiting", [2], [])
    run = agent.resume(run, "yes")
    assert (run.answer, days, sent) == ("done", [2, 2], ["two"])
    assert [each.question for each in run.children] == ["Plan.", "Send."]


def test_an_edited_call_of_a_child_that_does_not_fit_is_asked_again(journal: Path) -> None:
    inner = child(action("send", "a"), final("x"), tools=[send])
    agent = parent([inner.as_tool("ask")], action("ask", "x"), final("ok"), journal=journal, approve="effects")
    run = agent.run("q")
    again = agent.resume(run, 'edit {"nothing": 1}')
    assert again.status == "waiting" and "does not fit" in str(again.reason) and sent == []
    assert agent.resume(again, 'edit {"text": "better"}').status == "answered" and sent == ["better"]


def test_the_person_at_the_terminal_is_asked_for_a_child_and_the_time_of_the_tool_stands_still() -> None:
    async def on_wait(waiting: Any) -> str:
        await asyncio.sleep(0.3)
        return "yes"

    inner = child(action("send", "a"), final("x"), tools=[send])
    limits = plait.Limits(tool_seconds=0.2)
    agent = parent([inner.as_tool("ask")], action("ask", "x"), final("ok"), approve="effects", limits=limits)
    run = agent.run("q", on_wait=on_wait)
    assert run.status == "answered" and sent == ["a"] and seen(run) == ["x"]


def test_parallel_children_end_before_the_parent_waits_for_one_of_them(journal: Path) -> None:
    asks = child(action("send", "a"), final("sent"), tools=[send], approve="always")
    works = child(action("calculator", "1+1"), final("2"), tools=["calculator"])

    @plait.tool(read_only=True)
    async def both(ctx: plait.Context[None]) -> str:
        """Ask both."""
        one, two = await asyncio.gather(ctx.arun(asks, "a"), ctx.arun(works, "b"))
        return f"{one.answer} {two.answer}"

    agent = parent([both], action("both"), final("ok"), journal=journal)
    run = agent.run("q")
    assert run.status == "waiting" and sorted(each.status for each in run.children) == ["answered", "waiting"]
    done = agent.resume(run, "yes")
    assert done.status == "answered" and seen(done) == ["sent 2"] and sent == ["a"]
    assert len(done.children) == 2


def test_a_cancelled_parent_cancels_its_children_and_resumes_them(journal: Path) -> None:
    waits = [True]

    @plait.tool(idempotent=True)
    async def slow() -> str:
        """Slow the first time."""
        if waits:
            waits.clear()
            started.set()
            await asyncio.sleep(60)
        return "at last"

    inner = child(action("send", "a"), action("slow"), final("ok below"), tools=[send, slow])
    agent = parent([inner.as_tool("ask")], action("ask", "x"), final("ok"), journal=journal)
    started = asyncio.Event()

    async def cancel() -> None:
        task = asyncio.ensure_future(agent.arun("q"))
        await started.wait()
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(cancel())
    store = Journal(journal)
    assert {row.status for row in store.runs(children=True)} == {"cancelled"}
    [below] = store.children(store.run("last").head.run)
    with pytest.raises(ConfigError, match="is a child of run"):
        agent.resume(below.head.run)
    run = agent.resume("last")
    assert (run.status, seen(run), sent) == ("answered", ["ok below"], ["a"])
    assert [each.status for each in run.children] == ["answered"]


def test_the_deadline_of_the_parent_ends_its_children(journal: Path) -> None:
    @plait.tool(read_only=True)
    async def hang() -> str:
        """Hang."""
        await asyncio.sleep(60)
        return ""

    inner = child(action("hang"), final("x"), tools=[hang])
    limits = plait.Limits(seconds=0.5)
    began = time.monotonic()
    run = parent([inner.as_tool("ask")], action("ask", "x"), final("ok"), journal=journal, limits=limits).run("q")
    assert (run.status, run.outcome.limit) == ("stopped", "seconds")  # type: ignore[union-attr]
    assert time.monotonic() - began < 5
    assert [each.status for each in run.children] == ["cancelled"]


def test_a_hand_off_makes_the_answer_of_the_child_that_of_the_parent(journal: Path) -> None:
    expert = child(final("from the expert")).as_tool("expert", "Knows it.", hand_off=True)
    agent = parent([expert], action("expert", "q"), journal=journal)
    run = agent.run("q")
    assert (run.status, run.answer, run.calls) == ("answered", "from the expert", 1)
    assert agent.replay(run.id).whole


@pytest.mark.parametrize("loop", ["react", "tool_calling"])
def test_a_handed_off_answer_that_does_not_fit_the_output_is_an_error_of_the_call(journal: Path, loop: str) -> None:
    def is_small(value: int) -> str | None:
        return None if value < 100 else "Give a number below 100."

    experts = child(final("from the expert"), final("500"), final("42"))
    asked = [
        Reply("", calls=(Call("expert", text),)) if loop == "tool_calling" else action("expert", text) for text in "abc"
    ]
    agent = plait.Agent(
        loop,
        model=scripted(*asked),
        tools=[experts.as_tool("expert", hand_off=True)],
        output=plait.OutputType(int, checks=[is_small]),
        journal=journal,
    )
    run = agent.run("q")
    assert (run.status, run.output, run.calls) == ("answered", 42, 3)
    first, second, third = seen(run)
    assert "does not fit" in first and "The result: from the expert" in first
    assert "Give a number below 100." in second and third == "42"
    assert agent.replay(run.id).whole


def test_a_run_whose_tool_hands_off_only_what_does_not_fit_is_never_answered() -> None:
    experts = child(final("no number")).as_tool("expert", hand_off=True)
    run = parent([experts], action("expert", "q"), final("not one either"), final("x"), final("x"), output=int).run("q")
    assert (run.status, run.answer) == ("failed", None)


def test_a_stopped_child_that_hands_off_makes_a_stopped_parent(journal: Path) -> None:
    turns = [action("calculator", "1+1"), final("as far as I came")]
    expert = child(*turns, tools=["calculator"], limits=plait.Limits(calls=2)).as_tool("expert", hand_off=True)
    agent = parent([expert], action("expert", "q"), journal=journal)
    run = agent.run("q")
    [below] = run.children
    assert (below.status, below.answer) == ("stopped", "as far as I came")
    assert run.outcome == below.outcome
    assert agent.replay(run.id).whole


@pytest.mark.parametrize("turns", [[], [final("no number")] * 3], ids=["crashed", "failed"])
def test_a_child_without_an_answer_that_should_hand_off_is_an_error_of_the_call(turns: list[str]) -> None:
    expert = child(*turns, output=int).as_tool("expert", hand_off=True)
    run = parent([expert], action("expert", "q"), final("by myself")).run("q")
    assert (run.status, run.answer) == ("answered", "by myself")
    assert "The agent gave no answer" in seen(run)[0]


def test_a_child_gets_files_and_has_them_when_it_is_resumed(journal: Path) -> None:
    inner = child(action("send", "a"), final("read"), tools=[send], approve="always")

    @plait.tool(idempotent=True)
    async def look(ctx: plait.Context[None]) -> str:
        """Look at a file."""
        return str((await ctx.arun(inner, ["look", plait.attach(b"a line of text", "notes.txt")])).answer)

    agent = parent([look], action("look"), final("ok"), journal=journal)
    run = agent.run("q")
    assert run.status == "waiting", run
    done = agent.resume(run, "yes")
    [below] = done.children
    assert (seen(done), below.question, sent) == (["read"], "look", ["a"])
    requests = [call.request for call in below.timeline.model_calls]
    assert len(requests) == 2 and all(b"a line of text" in each for each in requests)


def test_the_same_question_with_other_files_starts_another_child(journal: Path) -> None:
    inner = child(final("one"), final("two"))

    @plait.tool(read_only=True)
    async def look(ctx: plait.Context[None]) -> str:
        """Look at two files."""
        runs = [await ctx.arun(inner, ["look", plait.attach(data, "a.txt")]) for data in (b"first", b"second")]
        return " ".join(str(each.answer) for each in runs)

    run = parent([look], action("look"), final("ok"), journal=journal).run("q")
    assert seen(run) == ["one two"] and len(run.children) == 2


def test_an_agent_tool_with_a_wrong_name_or_description_is_reported() -> None:
    with pytest.raises(ConfigError, match=r"as_tool\(name=3\) is invalid"):
        child(final("x")).as_tool(3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"as_tool\(description=3\) is invalid"):
        child(final("x")).as_tool("x", 3)  # type: ignore[arg-type]


def test_a_plain_function_answers_for_the_user() -> None:
    run = parent([send], action("send", "a"), final("ok"), approve="effects").run("q", on_wait=lambda waiting: "yes")
    assert (run.status, sent) == ("answered", ["a"])


def test_an_answer_for_the_user_that_is_no_text_is_named() -> None:
    run = parent([send], action("send", "a"), approve="effects").run("q", on_wait=lambda waiting: True)  # type: ignore[arg-type,return-value]
    assert (run.status, sent) == ("crashed", []) and "on_wait= returned True" in str(run.reason)


def test_a_plan_ends_with_the_answer_that_a_step_hands_off_if_it_fits(journal: Path) -> None:
    experts = child(final("no number"), final("42")).as_tool("expert", hand_off=True)
    plans = ['1. expert("a")\n2. join()', '2. expert("b")\n3. join()']
    model = plait.Scripted({"plan": plans, "join": ["Thought: no number\nReplan: ask again"]})
    agent = plait.Agent("compiler", model=model, tools=[experts], output=int, journal=journal)
    run = agent.run("q")
    assert (run.status, run.answer) == ("answered", 42), run.reason
    assert agent.replay(run.id).whole


def test_costs_of_the_tree_are_counted_once(journal: Path) -> None:
    def priced(*turns: str) -> plait.Scripted:
        said = [Reply(each, usage=Usage(100, 10)) for each in turns]
        return plait.Scripted(said, by_turn=False, rate=Rate("tokens", 10.0, 100.0))

    inner = plait.Agent(model=priced(action("calculator", "1+1"), final("2")), tools=["calculator"], journal=False)
    outer = priced(action("ask", "x"), final("ok"))
    run = plait.Agent(model=outer, tools=[inner.as_tool("ask")], journal=journal).run("q")
    assert run.cost_usd and run.total_cost_usd == pytest.approx(2 * run.cost_usd)
    assert sum(part.cost_usd or 0 for part in run.phases) == pytest.approx(run.cost_usd)
    row = Journal(journal).run(run.id)
    assert row.totals["tree"]["cost_usd"] == run.total_cost_usd and row.totals["tree"]["runs"] == 2
    assert run.json()["tree"]["calls"] == 4


def test_a_fork_takes_children_before_the_fork_from_the_record(journal: Path) -> None:
    inner = child(action("send", "a"), final("below"), tools=[send])
    agent = parent([inner.as_tool("ask")], action("ask", "x"), final("one"), final("two"), journal=journal)
    run = agent.run("q")
    forked = agent.fork(run.id, 2)
    assert (forked.answer, seen(forked), sent) == ("two", ["below"], ["a"])


def output_of(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    run_in_process(list(args))
    return capsys.readouterr().out


def test_the_command_line_shows_the_tree_and_its_costs(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inner = child(action("calculator", "1+1"), final("2"), tools=["calculator"])
    run = parent([inner.as_tool("ask")], action("ask", "x"), final("ok"), journal=journal).run("q")
    [below] = run.children
    at = ("--journal", str(journal))
    first, second, whole = output_of(capsys, "show", "--tree", "last", *at).splitlines()
    assert (
        first.startswith(run.id)
        and second.startswith(f"└─ {below.id}")
        and whole.startswith("In all · 2 runs · 4 calls")
    )
    assert run_in_process(["show", "--tree", "--full", run.id, *at]) == 2
    assert "Leave out --full." in capsys.readouterr().err
    shown = json.loads(output_of(capsys, "show", "--tree", run.id, "--json", *at))
    assert [each["run"] for each in shown["children"]] == [below.id] and shown["tree"]["requests"] == 4
    assert shown["children"][0]["caller"] == run.id
    assert "with 1 child run: 4 calls" in output_of(capsys, "show", run.id, *at)
    assert f"child of {run.id}" in output_of(capsys, "show", below.id, *at)
    [costs] = json.loads(output_of(capsys, "costs", run.id, "--json", *at))
    assert {part["phase"]: part["calls"] for part in costs["phases"]} == {"act": 2, "tools": 1, "run:ask": 2}
    assert costs["in_all"]["calls"] == 4
    tokens = costs["in_all"]["usage"]
    assert tokens["input_tokens"] + tokens["output_tokens"] == run.tree.usage.tokens
    assert below.id not in output_of(capsys, "runs", *at)
    assert below.id in output_of(capsys, "runs", "--children", *at)


def test_the_tree_s_requests_and_tokens_are_those_that_the_endpoint_counted_and_it_replays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Over HTTP: a parent, two children at once, and a question of the tool."""

    async def answer(asked: Asked) -> None:
        messages = asked.body["messages"]
        text = "so" if messages[-1]["content"] == "Sum up." else final("done")
        if "begin here" in messages[-1]["content"]:
            text = action("research", "x")
        usage = {"prompt_tokens": 100, "completion_tokens": 10}
        await asked.answer(200, {**completion(text), "usage": usage})

    async def perform() -> tuple[plait.Run, int]:
        async with Server(answer) as server:
            model = server.model(spec="openai:m")
            inner = plait.Agent(model=model, tools=["calculator"])

            @plait.tool(idempotent=True)
            async def research(ctx: plait.Context[None], topic: str) -> str:
                """Research."""
                runs = await asyncio.gather(*(ctx.arun(inner, f"{topic} {n}") for n in range(2)))
                return " ".join(str(each.answer) for each in runs) + await ctx.aask_model("Sum up.")

            run = await plait.Agent(model=model, tools=[research], journal=tmp_path / "j.db").arun("begin here")
            await http.close()
            return run, len(server.asked)

    run, asked = asyncio.run(perform())
    assert run.status == "answered" and run.tree.requests == run.tree.calls == asked == 5
    assert run.tree.usage.tokens == 110 * asked
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-secret")
    told = output_of(capsys, "replay", "--tree", run.id, "--journal", str(tmp_path / "j.db")).splitlines()
    assert [line.split()[1] for line in told] == [run.id, *(each.id for each in run.children)]
    assert all("is the same, byte for byte" in line for line in told)


def test_a_cancelled_run_cancels_the_child_that_a_synchronous_tool_waits_for(journal: Path) -> None:
    @plait.tool(read_only=True)
    async def hang() -> str:
        """Hang."""
        started.set()
        await asyncio.sleep(60)
        return ""

    @plait.tool(read_only=True)
    def delegate(ctx: plait.Context[None]) -> str:
        """Delegate."""
        return str(ctx.run(child(action("hang"), final("x"), tools=[hang]), "wait").answer)

    started = asyncio.Event()

    async def cancel() -> float:
        task = asyncio.ensure_future(parent([delegate], action("delegate"), final("ok"), journal=journal).arun("q"))
        await started.wait()
        began = time.monotonic()
        task.cancel()
        await asyncio.wait([task])
        return time.monotonic() - began

    assert asyncio.run(cancel()) < 4
    assert {row.status for row in Journal(journal).runs(children=True)} == {"cancelled"}


def test_the_policy_of_the_parent_applies_to_a_child_and_a_stricter_child_keeps_its_own(journal: Path) -> None:
    def ask(inner_policy: Any, outer_policy: Any) -> str:
        inner = child(action("calculator", "1+1"), action("send", "a"), final("x"), tools=["calculator", send])
        inner = inner.using(approve=inner_policy)
        agent = parent([inner.as_tool("ask")], action("ask", "x"), final("ok"), journal=journal, approve=outer_policy)
        return str(agent.run("q").reason)

    assert "'send'" in ask("never", "effects")
    assert "'ask'" in ask("never", "always")
    assert "'calculator'" in ask("always", "effects")
    assert "'send'" in ask("never", lambda call: call.tool == "send")


def test_the_viewer_s_server_answers_a_child_s_question_on_the_page_of_either_run(journal: Path) -> None:
    inner = child(action("send", "a"), final("x"), tools=[send])
    agent = parent([inner.as_tool("ask")], action("ask", "x"), final("ok"), journal=journal, approve="effects")

    async def serve() -> tuple[str, list[dict[str, Any]], dict[str, Any], plait.Run]:
        manager = RunManager([ServedAgent("shop", agent)])
        waiting = await (await manager.start("shop", "q")).done()
        [below] = manager.journal.children(waiting.id)
        page = run_document(manager.journal, waiting.id)
        question = waiting.outcome.question  # type: ignore[union-attr]
        done = await (await manager.resume(below.head.run, "yes", question=question)).done()
        return below.head.run, page["waiting"], page["run"], done

    below, asked, facts, done = asyncio.run(serve())
    assert [each["ask"] for each in asked] == ["approval"] and [each["run"] for each in facts["children"]] == [below]
    assert (done.status, sent) == ("answered", ["a"])


def test_a_tool_that_may_not_be_repeated_gets_an_error_if_its_child_waits(journal: Path) -> None:
    @plait.tool
    async def delegate(ctx: plait.Context[None]) -> str:
        """Delegate."""
        inner = child(action("send", "a"), final("x"), tools=[send], approve="always")
        return str((await ctx.arun(inner, "go")).answer)

    run = parent([delegate], action("delegate"), final("ok"), journal=journal).run("q")
    assert run.status == "answered" and "waits for the user" in seen(run)[0] and "mark it idempotent" in seen(run)[0]


@pytest.mark.parametrize("limits", [plait.Limits(tokens=6000), plait.Limits(usd=0.06)])
def test_tokens_of_parallel_children_stay_within_the_limit_together(limits: plait.Limits) -> None:
    def reply(think: Any) -> Reply:
        turn = sum(message.role == "assistant" for message in think.messages)
        return Reply(action("calculator", f"1+{turn}"), usage=Usage(300, min(200, think.max_tokens or 200)))

    def research() -> plait.Agent:
        model = plait.Scripted([reply] * 60, by_turn=False, rate=Rate("tokens", 10.0, 10.0))
        return plait.Agent("react", model=model, tools=["calculator"], journal=False)

    @plait.tool(read_only=True)
    async def ask_all(ctx: plait.Context[None]) -> str:
        """Ask several agents at once."""
        return " ".join([run.status for run in await asyncio.gather(*(ctx.arun(research(), f"{n}") for n in range(5)))])

    turns = [Reply(each, usage=Usage(300, 50)) for each in (action("ask_all"), final("ok"))]
    model = plait.Scripted(turns, by_turn=False, rate=Rate("tokens", 10.0, 10.0))
    run = plait.Agent(model=model, tools=[ask_all], limits=limits, journal=False).run("q")
    assert len(run.children) == 5 and run.tree.usage.tokens > 3000
    assert run.tree.usage.tokens <= 6000 and run.total_cost_usd is not None and run.total_cost_usd <= 0.06
    assert run.answer == "ok"


def asked_by(run: plait.Run) -> list[str]:
    """Return the messages of the last request of a run."""
    return [message["content"] for message in json.loads(run.timeline.model_calls[-1].request or "")["messages"]]


PICTURE = plait.File.from_bytes(b"\x89PNG\r\n\x1a\n rest", "lamp.png")


@pytest.mark.parametrize("loop", ["react", "tool_calling", "phased"])
def test_an_agent_as_a_tool_sees_the_conversation_if_it_is_to(loop: str, journal: Path) -> None:
    replies = {"react": [final("Booked.")], "tool_calling": ["Booked."], "phased": ["Hm.", "Booked."]}[loop]
    desk = plait.Agent(loop, model=scripted(*replies * 2), journal=False)
    seer = plait.Agent(model=scripted(final("Noted."), abilities=Abilities(images=True)), journal=journal)
    seer.run(["My lamp 8812 broke", PICTURE], session="ana")
    for history in (True, False):
        tool = desk.as_tool("refunds", hand_off=True, history=history)
        run = parent([tool], action("refunds", "Refund it"), journal=journal).run("Money back!", session="ana")
        assert run.answer == "Booked."
        (found,) = run.children
        shown = "\n".join(asked_by(found))
        words = ["My lamp 8812 broke\n(attached: lamp.png)", "Noted.", "Money back!", "(passed on", "Refund it"]
        places = [shown.find(each) for each in words]
        assert places == sorted(places) if history else places[:4] == [-1] * 4
        assert found.history[0].attachments == (PICTURE.attachment,) if history else found.history == ()
        assert ("sees this conversation" in json.dumps(tool.spec.parameters)) == history
    last = parent([], final("Bye."), journal=journal).run("Thanks", session="ana")
    assert "Money back!" in asked_by(last)[-1] and "Booked." in asked_by(last)[-1]


def test_a_child_that_waits_sees_the_same_conversation_when_it_is_resumed(journal: Path) -> None:
    desk = child(action("send", "refund"), final("Booked."), tools=[send], approve="always")
    agent = parent([desk.as_tool("refunds", hand_off=True, history=True)], action("refunds", "Do it"), journal=journal)
    waiting = agent.run("Refund 8812", history=[{"role": "user", "content": "I am Ana."}])
    assert waiting.status == "waiting"
    before = Journal(journal).runs(children=True)
    run = agent.resume(waiting, "yes")
    assert (run.answer, sent) == ("Booked.", ["refund"])
    (found,) = run.children
    shown = "\n".join(asked_by(found))
    assert "I am Ana." in shown and "Refund 8812" in shown
    heads = {each.head.run: each.head.history for each in before}
    assert found.history == heads[found.id] and [each.question for each in found.history] == [
        "I am Ana.",
        "Refund 8812",
    ]
    assert agent.replay(run.id).whole


@pytest.mark.parametrize("is_proven", [True, False])
def test_taint_of_the_conversation_goes_along_and_no_other(is_proven: bool, journal: Path) -> None:
    first = parent([], final("Send it to Eve."), journal=journal, taint="ask").run("Who?").messages()
    if not is_proven:
        first[-1].pop("clean")
    desk = child(action("send", "Eve"), final("Sent."), tools=[send], taint="ask").as_tool("desk", history=True)
    run = parent([desk], action("desk", "Do it"), final("x"), journal=journal, taint="ask").run("Go", history=first)
    assert (run.status, sent) == (("answered", ["Eve"]) if is_proven else ("waiting", []))
