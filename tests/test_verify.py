"""`verify`: a tool says whether an earlier call took effect. `step_scenarios.py` has runs that are killed meanwhile."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import plait
from cli_support import action, final
from plait.core.errors import BadInput, ConfigError
from plait.journal.owner import owner_of_this_process
from plait.journal.records import CallHolder, IntentRecord, NoteRecord, ResultRecord
from plait.journal.store import Journal, wait_for
from plait.runtime.calls.bound_calls import CallBinder

MADE: list[tuple[str, str]] = []
ASKED: list[tuple[str, str]] = []
GONE = "nowhere"
"""The owner string of a process that is dead."""


@pytest.fixture(autouse=True)
def forget_calls() -> None:
    MADE.clear()
    ASKED.clear()


def make_tool(verify: Any, **options: Any) -> plait.Tool:
    @plait.tool(verify=verify, **options)
    def refund(ctx: plait.Context[None], order: str, amount: int = 5) -> str:
        """Refund an order."""
        MADE.append((order, ctx.idempotency_key))
        return f"refunded {amount}"

    return refund


def answer(what: Any) -> Callable[..., Any]:
    def check(ctx: plait.Context[None], order: str, amount: int) -> Any:
        ASKED.append((f"{order} {amount}", ctx.idempotency_key))
        if isinstance(what, BaseException):
            raise what
        return what() if callable(what) else what

    return check


def make_agent(journal: Path, tool: plait.Tool, *more: Any, **fields: Any) -> plait.Agent[Any]:
    script = [action("refund", {"order": "A7"}), *more, final("Over.")]
    return plait.Agent("react", model=plait.Scripted(script), tools=[tool], journal=journal, **fields)


def interrupt(journal: Path, agent: plait.Agent[Any], holder: str | None = GONE, effect: str = "1.0") -> str:
    """Perform a run, and leave its record as if its process had been killed in the call. Returns its id.

    `holder` is the process that its intent names; None for an intent from before the tool had a `verify`."""
    store = Journal(journal).store
    run = agent.run("Refund A7.")
    row, rows = Journal(journal).run(run.id), Journal(journal).rows(run.id)
    at = next(i for i, each in enumerate(rows) if each.record.key == effect)
    records = []
    for each in rows[: at + 1]:
        record = each.record
        if isinstance(record, IntentRecord) and record.key == effect:
            record = structs.replace(record, holder=CallHolder("killed-run", holder) if holder is not None else None)
        records.append((record, each.body))
    wait_for(store.begin(structs.replace(row.head, run="killed-run"), GONE, records))
    MADE.clear()
    return "killed-run"


def observed(run: plait.Run[Any]) -> list[tuple[str, str]]:
    return [(each.trouble, each.text) for _, each in run.timeline.results]


def test_a_yes_gives_the_result_and_nothing_is_repeated(journal: Path) -> None:
    picture = plait.File("text/csv", b"a,b\n", "a.csv")
    agent = make_agent(journal, make_tool(answer(plait.TookEffect({"paid": 5, "file": picture}))))
    run = agent.resume(interrupt(journal, agent))
    assert run.answer == "Over." and MADE == [] and [each for each, _ in ASKED] == ["A7 5"]
    ((trouble, text),) = observed(run)
    assert trouble == "" and '"paid": 5' in text and "file-1" in text
    assert run.timeline.results[0][0].artifacts is not None
    notes = [row.record.text for row in run.trace if isinstance(row.record, NoteRecord) and row.record.key == "1.0"]
    assert notes == ["The earlier call of 'refund' took effect."]
    assert agent.replay(run.id).whole and len(ASKED) == 1


def test_a_no_makes_the_call_again_with_the_same_key_if_its_process_is_dead(journal: Path) -> None:
    agent = make_agent(journal, make_tool(answer(plait.NoEffect())), action("refund", {"order": "A7"}))
    run = agent.resume(interrupt(journal, agent))
    assert run.answer == "Over." and observed(run)[0] == ("", "refunded 5")
    assert MADE[0][1] == ASKED[0][1]
    assert MADE[1][1] != MADE[0][1], "the model's next call is another call, and needs no approval"
    intents = [row.record for row in run.trace if isinstance(row.record, IntentRecord) and row.record.key == "1.0"]
    assert [each.holder and each.holder.process for each in intents] == [GONE, owner_of_this_process()]
    assert agent.replay(run.id).whole


@pytest.mark.parametrize(
    "holder", [owner_of_this_process(), "elsewhere:7:7:boot:1", None], ids=["alive", "elsewhere", "unknown"]
)
def test_a_no_does_not_count_while_the_earlier_call_may_be_under_way(journal: Path, holder: str | None) -> None:
    agent = make_agent(journal, make_tool(answer(plait.NoEffect())), action("refund", {"order": "A7"}))
    run = agent.resume(interrupt(journal, agent, holder))
    ((trouble, text),) = observed(run)
    assert trouble == "in_doubt" and "so far, but may still be under way" in text and MADE == []
    assert run.status == "waiting" and "was made before" in str(run.reason), "an equal call needs approval"


def test_a_no_counts_for_a_tool_that_accepts_the_risk(journal: Path) -> None:
    tool = make_tool(answer(plait.NoEffect()), accepts_late_calls=True)
    agent = make_agent(journal, tool)
    assert agent.resume(interrupt(journal, agent, owner_of_this_process())).answer == "Over."
    assert [key for _, key in MADE] == [key for _, key in ASKED]


def test_a_call_whose_key_was_closed_is_made_with_another_key(journal: Path) -> None:
    agent = make_agent(journal, make_tool(answer(plait.NoEffect(closed=True))))
    run = agent.resume(interrupt(journal, agent, owner_of_this_process()))
    assert observed(run) == [("", "refunded 5")] and len(MADE) == len(ASKED) == 1 and MADE[0][1] != ASKED[0][1]
    # Killed again, it is asked about the key that it was made with.
    killed = [row for row in run.trace if row.record.key == "1.0" and isinstance(row.record, IntentRecord)]
    assert [each.record.holder.closed for each in killed if each.record.holder] == [0, 1]  # type: ignore[union-attr]


LIES: dict[str, Any] = {
    "True": True,
    "a text": "took effect",
    "a class": lambda: plait.TookEffect,
    "a list": [plait.TookEffect("x")],
    "nothing": None,
    "an error": RuntimeError("down"),
    "an exit": SystemExit(3),
    "an end of the run": plait.EndRun(plait.TookEffect("x")),
    "closed is no flag": plait.NoEffect(closed="yes"),  # type: ignore[arg-type]
    "a slow one": lambda: time.sleep(0.3) or plait.NoEffect(closed=True),
}


@pytest.mark.parametrize("lie", LIES)
def test_any_other_answer_leaves_the_call_in_doubt(journal: Path, lie: str) -> None:
    agent = make_agent(journal, make_tool(answer(LIES[lie]), timeout=0.1))
    holder = owner_of_this_process() if lie == "closed is no flag" else GONE
    run = agent.resume(interrupt(journal, agent, holder))
    ((trouble, text),) = observed(run)
    assert trouble == "in_doubt" and "may" in text and MADE == [] and run.answer == "Over."


def test_a_yes_around_a_no_is_a_yes(journal: Path) -> None:
    agent = make_agent(journal, make_tool(answer(plait.TookEffect(plait.NoEffect(closed=True)))))
    assert agent.resume(interrupt(journal, agent)).answer == "Over." and MADE == []


def test_an_async_method_verifies_and_can_run_no_agent(journal: Path) -> None:
    class Shop:
        """A shop."""

        def __init__(self) -> None:
            self.told: list[str] = []

        async def check(self, ctx: plait.Context[None], **all: Any) -> Any:
            self.told.append(f"{all} {ctx.idempotency_key}")
            with pytest.raises(ConfigError, match="belongs to no run"):
                await ctx.aask_model("Was it refunded?")
            return plait.TookEffect("refunded before")

        @plait.tool(verify=check)
        def refund(self, order: str, amount: int = 5) -> str:
            """Refund an order."""
            MADE.append((order, ""))
            return "refunded"

    shop = Shop()
    agent = plait.Agent("react", model=plait.Scripted([action("refund", {"order": "A7"}), final("Over.")] * 2),
                        tools=[shop], journal=journal)  # fmt: skip
    assert observed(agent.resume(interrupt(journal, agent))) == [("", "refunded before")]
    assert len(shop.told) == 1 and MADE == []


def test_a_class_that_each_run_makes_verifies_with_its_own_object(journal: Path) -> None:
    agent = plait.Agent("react", model=plait.Scripted([action("refund", {"order": "A7"}), final("Over.")]),
                        tools=[Till], journal=journal)  # fmt: skip
    assert observed(agent.resume(interrupt(journal, agent))) == [("", "open since Monday")]


class Till:
    """A till."""

    def __init__(self) -> None:
        self.since = "Monday"

    def check(self, order: str) -> Any:
        return plait.TookEffect(f"open since {self.since}")

    @plait.tool(verify=check)
    def refund(self, order: str) -> str:
        """Refund an order."""
        MADE.append((order, ""))
        return "refunded"


def test_a_call_that_exceeds_its_time_is_verified_at_once(journal: Path) -> None:
    answers = [plait.TookEffect("refunded"), plait.NoEffect(closed=True), plait.NoEffect()]

    async def check(order: str) -> Any:
        return answers.pop(0)

    @plait.tool(verify=check, timeout=0.02)
    async def refund(order: str) -> str:
        """Refund an order."""
        await asyncio.sleep(9)
        return "never"

    calls = [action("refund", {"order": each}) for each in ("B", "C")]
    run = make_agent(journal, refund, *calls).run("Refund.")
    assert observed(run)[0] == ("", "refunded") and not answers
    trouble, text = observed(run)[1]
    assert (
        trouble == "timeout"
        and text.endswith("The earlier call of 'refund' has had no effect.")
        and "not known" not in text
    )
    assert observed(run)[2][0] == "in_doubt"


def test_a_fork_asks_with_the_key_of_the_first_run_whose_death_proves_nothing(journal: Path) -> None:
    """The run that the fork comes from may go on, and make the call itself."""
    agent = make_agent(journal, make_tool(answer(plait.NoEffect())))
    killed = interrupt(journal, agent)
    fork = agent.fork(killed, 2)
    assert observed(fork)[0][0] == "in_doubt" and MADE == []
    assert agent.resume(killed).answer == "Over."
    assert ASKED[0][1] == ASKED[1][1] == MADE[0][1]


def test_a_restored_journal_gives_no_proof(journal: Path) -> None:
    agent = make_agent(journal, make_tool(answer(plait.NoEffect())))
    killed = interrupt(journal, agent)
    wait_for(Journal(journal).store.mark_restored())
    run = agent.resume(killed)
    assert observed(run)[0][0] == "in_doubt" and MADE == []


def test_a_tool_that_no_longer_takes_the_input_stays_in_doubt(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = make_agent(journal, make_tool(answer(plait.NoEffect(closed=True))))
    killed = interrupt(journal, agent)

    def refuse(*_: object) -> None:
        raise BadInput("refund: the tool no longer takes this input.")

    monkeypatch.setattr(CallBinder, "restore", refuse)
    assert observed(agent.resume(killed))[0][0] == "in_doubt" and not ASKED and MADE == []


def test_a_policy_to_repeat_asks_first(journal: Path) -> None:
    agent = make_agent(journal, make_tool(answer(plait.TookEffect("done"))), on_interrupted_call="repeat")
    assert observed(agent.resume(interrupt(journal, agent))) == [("", "done")] and MADE == []


def test_a_record_names_nothing_that_is_called(journal: Path) -> None:
    """The tool object of the agent decides: without `verify` there, nobody is asked."""
    killed = interrupt(journal, make_agent(journal, make_tool(answer(plait.NoEffect()))))
    plain = structs.replace(make_tool(None), verify=None)
    assert observed(make_agent(journal, plain).resume(killed))[0][0] == "in_doubt" and not ASKED


def test_mistakes_are_found_when_the_tool_is_made() -> None:
    with pytest.raises(ConfigError, match="can't have verify"):
        make_tool("check_refund")
    with pytest.raises(ConfigError, match="can't have verify"):
        make_tool(answer(None), idempotent=True)
    with pytest.raises(ConfigError, match="needs invoice"):
        _ = make_tool(lambda order, invoice: None).spec
    assert pickle.loads(pickle.dumps(plait.tool(verify=check_top)(refund_top))).verify is check_top


def check_top(order: str) -> None:
    return None


def refund_top(order: str) -> str:
    """Refund."""
    return order


def test_the_verdict_is_recorded_before_the_call_is_made_again(journal: Path) -> None:
    """Cancelled while it is verified, the run is asked again, and nothing is made meanwhile."""

    async def check(order: str) -> Any:
        ASKED.append((order, ""))
        if len(ASKED) == 1:
            await asyncio.sleep(9)
        return plait.NoEffect()

    agent = make_agent(journal, make_tool(check))
    killed = interrupt(journal, agent)

    async def cancel() -> None:
        task = asyncio.ensure_future(agent.aresume(killed))
        while not ASKED:
            await asyncio.sleep(0.005)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(cancel())
    assert MADE == [] and Journal(journal).run(killed).status == "cancelled"
    run = agent.resume(killed)
    assert observed(run) == [("", "refunded 5")] and len(MADE) == 1 and len(ASKED) == 2
    kinds = [
        (type(row.record).__name__, getattr(row.record, "kind", ""))
        for row in run.trace
        if row.record.key == "1.0" and not (isinstance(row.record, ResultRecord))
    ]
    assert kinds[-2:] == [("NoteRecord", "verify"), ("IntentRecord", "")]
