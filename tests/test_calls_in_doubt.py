"""A call that may have taken effect is in doubt: the model is told so, and an identical call needs approval."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

import plait
from cli_support import action, final
from journal_rows import is_result
from plait.core import Call, Observation, Reply, Waiting
from plait.core import events as ev
from plait.core.errors import CallLost
from plait.journal.records import NoteRecord
from plait.journal.store import Journal

PAID: list[str] = []
DOUBT = "The same call was made before, and whether it took effect is not known."


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    PAID.clear()


@plait.tool(timeout=0.02)
async def pay(to: str, note: str = "rent") -> str:
    """Pays, and then takes too long to say so."""
    PAID.append(to)
    await asyncio.sleep(60)
    return "paid"


@plait.tool(timeout=0.02, read_only=True)
async def look(at: str) -> str:
    """Looks, and takes too long."""
    PAID.append(at)
    await asyncio.sleep(60)
    return "seen"


def turn(tool: str, given: Any) -> str:
    return json.dumps({"thought": "x", "tool": tool, "tool_input": given})


def code(tool: str, given: str) -> str:
    return f"x\n```python\ntry:\n    {tool}({given!r})\nexcept Exception as why:\n    print(why)\n```\n"


LOOPS: dict[str, Any] = {
    "react": [action("pay", {"to": "Ada"}), action("pay", {"to": "Ada"}), final("Over.")],
    "json": [turn("pay", {"to": "Ada"}), turn("pay", "Ada"), turn("final_answer", "Over.")],
    "codeact": [code("pay", "Ada"), code("pay", "Ada"), "x\n```python\nstop('Over.')\n```\n"],
    "compiler": {
        "plan": ['1. pay("Ada")\n2. join()', '3. pay("Ada")\n4. join()'],
        "join": ["Replan: x", "Finish: Over."],
    },
}


def seen(run: plait.Run) -> list[Observation]:
    return [row.record.value for row in run.trace if is_result(row.record)]


def agent(journal: Path, loop: str = "react", script: Any = None, **fields: Any) -> plait.Agent:
    model = plait.Scripted(script or LOOPS[loop])
    return plait.Agent(loop, **{"model": model, "tools": [pay, look], "journal": journal, **fields})


@pytest.mark.parametrize("loop", ["react", "json", "codeact"])
def test_a_call_that_exceeds_its_time_is_in_doubt_and_the_same_call_needs_approval(journal: Path, loop: str) -> None:
    run = agent(journal, loop).run("Pay Ada.")
    (first,) = seen(run)
    assert first.trouble == "in_doubt" and "Whether the call took effect is not known" in first.text
    assert run.status == "waiting" and PAID == ["Ada"]
    assert "The same call was made before" in str(run.reason)
    refused = agent(journal, loop).resume(run, "no")
    assert (refused.status, refused.answer, PAID) == ("answered", "Over.", ["Ada"])
    assert agent(journal, loop).replay(run.id).whole


def test_in_a_plan_too_the_same_call_needs_approval(journal: Path) -> None:
    run = agent(journal, "compiler").run("Pay Ada.")
    assert (run.status, PAID) == ("waiting", ["Ada"])
    assert agent(journal, "compiler").resume(run, "yes").answer == "Over." and PAID == ["Ada", "Ada"]


def test_another_input_needs_no_approval_and_a_tool_that_may_be_repeated_has_no_doubt(journal: Path) -> None:
    script = [action("look", "x"), action("look", "y"), action("pay", "Ada"), action("pay", "Bob"), final("Over.")]
    run = agent(journal, script=script).run("?")
    assert run.answer == "Over." and PAID == ["x", "y", "Ada", "Bob"]
    assert [each.trouble for each in seen(run)] == ["timeout", "timeout", "in_doubt", "in_doubt"]
    assert seen(run)[0].text == "Error: 'look' gave no result within 0.02 seconds and was given up."


def test_whoever_says_that_calls_in_doubt_are_repeated_is_not_asked(journal: Path) -> None:
    assert agent(journal, on_interrupted_call="repeat").run("?").answer == "Over." and PAID == ["Ada", "Ada"]


def test_the_doubt_outlives_the_process_and_is_there_in_a_fork(journal: Path) -> None:
    script = [action("pay", "Ada"), action("look", "x"), action("pay", {"to": "Ada"}), final("Over.")]
    run = agent(journal, script=script).run("?")
    assert run.status == "waiting" and PAID == ["Ada", "x"]
    again = agent(journal, script=script).resume(run.id)
    assert again.status == "waiting" and PAID == ["Ada", "x"]
    fork = agent(journal, script=script).fork(run.id, 2)
    assert fork.status == "waiting" and PAID == ["Ada", "x", "x"]


def test_a_call_whose_server_was_lost_is_in_doubt_too(journal: Path) -> None:
    @plait.tool
    def wire(to: str) -> str:
        """Wires."""
        PAID.append(to)
        raise CallLost("the server is gone")

    run = agent(journal, script=[action("wire", "Ada")] * 2, tools=[wire]).run("?")
    assert (run.status, PAID) == ("waiting", ["Ada"])


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> plait.Tool:
    """A tool with effects that has begun and does not end."""

    @plait.tool
    async def transfer(to: str) -> str:
        """Transfers."""
        PAID.append(to)
        await asyncio.sleep(60)
        return "done"

    return transfer


def noted(run: plait.Run) -> list[str]:
    return [
        row.record.text for row in run.trace if isinstance(row.record, NoteRecord) and row.record.kind == "in_doubt"
    ]


def test_a_call_under_way_when_a_limit_stops_the_run_is_recorded_as_in_doubt(journal: Path, slow: plait.Tool) -> None:
    script = [action("transfer", "Ada"), action("transfer", "Ada"), final("Over.")]
    limited = agent(journal, script=script, tools=[slow], limits=plait.Limits(seconds=0.3))
    run = limited.run("?")
    assert (run.status, PAID) == ("stopped", ["Ada"])
    (note,) = noted(run)
    assert "'transfer'" in note and "not known" in note and '"Ada"' in note
    assert [each.text for each in run.events if isinstance(each, ev.Noted) and each.kind == "in_doubt"] == [note]
    fork = limited.using(limits=plait.Limits()).fork(run.id, 2)
    assert (fork.status, PAID) == ("waiting", ["Ada"]) and seen(fork)[0].trouble == "in_doubt"


async def test_a_call_under_way_when_the_run_is_cancelled_is_in_doubt_when_it_goes_on(
    journal: Path, slow: plait.Tool
) -> None:
    made = agent(journal, script=[action("transfer", "Ada"), action("transfer", "Ada"), final("Over.")], tools=[slow])
    going = asyncio.create_task(made.arun("?"))
    while not PAID:
        await asyncio.sleep(0.001)
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    run = await made.aresume("last")
    assert (run.status, PAID) == ("waiting", ["Ada"]) and len(noted(run)) == 1
    assert seen(run)[0].trouble == "in_doubt"
    assert (await made.aresume(run, "no")).answer == "Over." and PAID == ["Ada"]


def test_calls_under_way_end_before_the_run_waits_for_a_person(journal: Path) -> None:
    @plait.tool
    async def ship(to: str) -> str:
        """Ships, in a while."""
        await asyncio.sleep(0.1)
        PAID.append(f"ship {to}")
        return "shipped"

    plan = "Plan: a\n#E1 = ship[Ada]\nPlan: b\n#E2 = pay[Ada]\n"
    script = {"plan": [plan], "solve": ["Over."]}
    asks = agent(journal, "rewoo", script, tools=[ship, pay], approve=lambda call: call.tool == "pay")
    run = asks.run("?")
    assert (run.status, PAID, noted(run)) == ("waiting", ["ship Ada"], [])


# -- a doubt that arises within a turn


BOTH = Reply("", calls=tuple(Call("pay", {"to": "Ada"}, id=id) for id in "12"))
SAME_TURN: dict[str, tuple[str, Any]] = {
    "native": ("tool_calling", [BOTH, "Over."]),
    "rewoo": ("rewoo", {"plan": ["Plan: a\n#E1 = pay[Ada]\nPlan: b\n#E2 = pay[Ada]"], "solve": ["Over."]}),
    "code": (
        "codeact",
        [
            "x\n```python\nimport asyncio\nawait asyncio.gather(pay('Ada'), pay('Ada'), return_exceptions=True)\n```\n",
            "x\n```python\nstop('Over.')\n```\n",
        ],
    ),
}


@pytest.mark.parametrize(
    ("case", "last"), [("native", "no"), ("native", "yes"), ("rewoo", 'edit {"to": "Bob"}'), ("code", "no")]
)
def test_the_second_question_of_a_turn_names_the_doubt(case: str, last: str, journal: Path) -> None:
    loop, script = SAME_TURN[case]
    made = agent(journal, loop, script, approve="effects")
    run = made.run("Pay Ada twice.")
    while run.status == "waiting" and "The same call was made before" not in str(run.reason):
        assert len(PAID) < 2
        run = made.resume(run, "yes")
    assert (run.status, PAID) == ("waiting", ["Ada"])
    run = made.resume(run, last)
    assert (run.status, ["Ada", *{"no": [], "yes": ["Ada"]}.get(last, ["Bob"])]) == ("answered", PAID), run.reason
    assert made.replay(run.id).whole


@pytest.mark.parametrize("to", ["Ada", f"Ada {DOUBT}"], ids=["plain", "words of the doubt in the input"])
def test_an_answer_that_came_before_the_doubt_does_not_count(to: str, journal: Path) -> None:
    asked: list[str] = []

    async def answer(waiting: Waiting) -> str:
        asked.append(waiting.reason)
        while len(asked) > 1 and not PAID:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0 if len(asked) == 1 else 0.1)  # the second answer comes when the first call is in doubt
        return "no" if waiting.reason.endswith(DOUBT) else "yes"

    script = {"plan": [f"Plan: a\n#E1 = pay[{to}]\nPlan: b\n#E2 = pay[{to}]"], "solve": ["Over."]}
    run = agent(journal, "rewoo", script, approve="effects").run("?", on_wait=answer)
    assert (run.status, PAID, len(asked)) == ("answered", [to], 3)


class Bank:
    """Pays one at a time."""

    @plait.tool(timeout=0.02)
    async def pay(self, to: str) -> str:
        """Pays, and then takes too long to say so."""
        PAID.append(to)
        await asyncio.sleep(60)
        return "paid"


@pytest.mark.parametrize("case", [*SAME_TURN, "children"])
def test_a_call_that_waits_for_its_object_is_not_made_if_the_same_call_is_in_doubt_by_then(
    case: str, journal: Path
) -> None:
    bank = Bank()
    if case == "children":
        child = agent(journal, script=[action("pay", "Ada"), final("?")], tools=[bank])
        calls = tuple(Call("ask", {"question": id}, id=id) for id in "12")
        made = agent(journal, "tool_calling", [Reply("", calls=calls), "Over."], tools=[child.as_tool("ask")])
    else:
        made = agent(journal, *SAME_TURN[case], tools=[bank])
    run = made.run("Pay Ada twice.")
    assert (run.status, PAID) == ("answered", ["Ada"]), run.reason
    if case == "native":
        assert [each.trouble for each in seen(run)] == ["in_doubt", "refused"]
        assert seen(run)[1].text.startswith("'pay' was not called. The same call was made before")
    assert made.replay(run.id).whole


# -- in a tree of runs, and in a session


def asks(*questions: str, end: str = "Over.") -> list[str]:
    """A parent's replies that call an agent once for each question."""
    return [*(action("ask_agent", {"question": each}) for each in questions), final(end)]


def payer(journal: Any, to: Any = "Ada", loop: str = "react", **fields: Any) -> plait.Agent:
    script = [code("pay", "Ada"), "x\n```python\nstop('Paid, or not.')\n```\n"] if loop == "codeact" else None
    return agent(journal, loop, script or [action("pay", to), final("It is not known.")], **fields)


def parent(journal: Any, *tools: Any, script: list[str], **fields: Any) -> plait.Agent:
    return agent(journal, script=script, **{"tools": tools, **fields})


TREES: dict[str, Any] = {
    "the next child run": lambda j: parent(j, payer(j).as_tool(), script=asks("Pay Ada.", "Pay Ada.")),
    "with other words": lambda j: parent(j, payer(j).as_tool(), script=asks("Pay Ada.", "Please pay Ada.")),
    "a sibling with another form of the input": lambda j: parent(
        j,
        payer(j, {"to": "Ada"}).as_tool(),
        payer(j, ["Ada"]).as_tool("other"),
        script=[*asks("Pay.")[:1], action("other", {"question": "Pay."}), final("Over.")],
    ),
    "a sibling of another loop": lambda j: parent(
        j,
        payer(j).as_tool(),
        payer(j, loop="codeact").as_tool("other"),
        script=[*asks("Pay.")[:1], action("other", {"question": "Pay."}), final("Over.")],
    ),
    "a child, after its parent": lambda j: parent(
        j, pay, payer(j).as_tool(), script=[action("pay", "Ada"), *asks("Pay Ada.")]
    ),
    "a parent, after its child": lambda j: parent(
        j, pay, payer(j).as_tool(), script=[*asks("Pay Ada.")[:1], action("pay", {"to": "Ada"}), final("Over.")]
    ),
    "a grandchild, after its sibling": lambda j: parent(
        j,
        parent(j, payer(j).as_tool(), script=asks("Pay Ada.")).as_tool("boss"),
        payer(j).as_tool(),
        script=[*asks("Pay Ada.")[:1], action("boss", {"question": "Pay."}), final("Over.")],
    ),
    "the parent's tool, repeated by a hook": lambda j: parent(
        j,
        payer(j, output=plait.OutputType(int, retries=0)).as_tool(),
        script=asks("Pay Ada."),
        hooks=[plait.hooks.RetryTools(attempts=2)],
    ),
    "a child that its time limit stopped": lambda j: parent(
        j,
        agent(
            j, script=[action("transfer", "Ada"), final("?")], tools=[TRANSFER], limits=plait.Limits(seconds=0.1)
        ).as_tool(),
        script=asks("Pay Ada.", "Again."),
    ),
}


@plait.tool(name="transfer")
async def TRANSFER(to: str) -> str:
    """Transfers, and never says so."""
    PAID.append(to)
    await asyncio.sleep(60)
    return "done"


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("name", TREES)
def test_a_call_in_doubt_needs_approval_in_all_runs_of_a_tree(name: str, kept: bool, journal: Path) -> None:
    made = TREES[name](journal if kept else False)
    run = made.run("?")
    assert (run.status, PAID) == ("waiting", ["Ada"]), run.reason
    assert "whether it took effect is not known" in str(run.reason)
    if kept:
        last = made.resume(run, "no")  # a question asked twice is not shown twice to the model, which asks it again
        assert (last.answer == "Over." or name == "the next child run") and PAID == ["Ada"]


def test_another_input_in_a_tree_needs_no_approval(journal: Path) -> None:
    tools = payer(journal).as_tool(), payer(journal, "Bob").as_tool("other")
    run = parent(
        journal, *tools, script=[*asks("Pay.")[:1], action("other", {"question": "Pay."}), final("Over.")]
    ).run("?")
    assert run.answer == "Over." and PAID == ["Ada", "Bob"]


@pytest.mark.parametrize("by_child", [False, True])
def test_a_call_in_doubt_needs_approval_in_the_later_turns_of_its_session(journal: Path, by_child: bool) -> None:
    made = parent(journal, payer(journal).as_tool(), script=asks("Pay Ada.")) if by_child else payer(journal)
    assert made.run("Pay Ada.", session="bills").status == "answered"
    run = made.run("Pay Ada, I said.", session="bills")
    assert (run.status, PAID) == ("waiting", ["Ada"])
    assert made.resume(run, "yes").status == "answered" and PAID == ["Ada", "Ada"]
    assert made.run("Pay Ada.", session="others").status == "answered" and len(PAID) == 3


async def test_a_cancelled_turn_of_a_session_leaves_its_doubts(journal: Path) -> None:
    made = agent(journal, script=[action("transfer", "Ada"), final("?")], tools=[TRANSFER])
    going = asyncio.create_task(made.arun("?", session="bills"))
    while not PAID:
        await asyncio.sleep(0.001)
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    run = await made.arun("?", session="bills")
    assert (run.status, PAID) == ("waiting", ["Ada"])


async def test_a_call_under_way_in_another_turn_needs_approval_too(journal: Path) -> None:
    made = agent(journal, script=[action("transfer", "Ada"), final("?")], tools=[TRANSFER])
    before = await made.using(model=plait.Scripted([final("Over.")])).arun("?", session="bills")
    going = asyncio.create_task(made.arun("?", session="bills"))
    while not PAID:
        await asyncio.sleep(0.001)
    # Turns wait for each other, forks do not.
    assert (await made.afork(before, 1)).status == "waiting" and PAID == ["Ada"]
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going


def test_a_fork_knows_the_doubts_of_the_child_runs_of_its_steps(journal: Path) -> None:
    made = parent(journal, pay, payer(journal).as_tool(), script=[*asks("Pay Ada."), final("Over.")])
    run = made.run("?")
    again = [*asks("Pay Ada.")[:1], action("pay", "Ada"), final("Over.")]
    fork = made.using(model=plait.Scripted(again)).fork(run.id, 2)
    assert (fork.status, PAID) == ("waiting", ["Ada"])
    assert made.using(model=plait.Scripted(again)).resume(fork, "no").answer == "Over." and PAID == ["Ada"]


def test_a_process_that_died_over_a_call_leaves_its_doubt_to_the_tree_and_the_session(journal: Path) -> None:
    paid = Path(f"{journal}.paid")

    @plait.tool(name="pay")
    def pay_and_die(to: str) -> str:
        """Pays, and the process dies over it."""
        with paid.open("a") as file:
            file.write(to)
        os._exit(9)

    child = agent(journal, script=[action("pay", "Ada"), final("?")], tools=[pay_and_die])
    top = parent(journal, child.as_tool(), script=asks("Pay Ada.", "Pay her, I said."))
    process = multiprocessing.get_context("fork").Process(target=top.run, args=["?"], kwargs={"session": "bills"})
    process.start()
    process.join()
    assert process.exitcode == 9
    turn = top.run("?", session="bills")  # before anybody goes on with the other one
    resumed = top.resume(next(row.head.run for row in Journal(journal).runs() if row.head.run != turn.id))
    assert (turn.status, resumed.status, paid.read_text()) == ("waiting", "waiting", "Ada")
    assert top.resume(resumed, "no").answer == "Over." and paid.read_text() == "Ada"
