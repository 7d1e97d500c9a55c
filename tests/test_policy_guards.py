"""The guards of policies, each by itself in a chain over a record in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec import UNSET, convert, to_builtins

import plait
from plait.core import Call, CheckAnswer, CheckGrounding, Execute, LimitNear, Note, Observation, Ran, Stopped
from plait.core.errors import BadInput
from plait.core.outcomes import Answered
from plait.core.tools import ToolSpec
from plait.journal.memory import MemoryLog
from plait.journal.records import Asking, ChildEnd, Decision, IntentRecord, ResultRecord, RunHead
from plait.runtime.calls.artifacts import ArtifactStore
from plait.runtime.calls.bound_calls import CallBinder
from plait.runtime.calls_in_doubt import CallInDoubt
from plait.runtime.chain import Admitted, Chain
from plait.runtime.grounding import Sources
from plait.runtime.guard import Entry, Finish, Guard, StartChild, Suspend
from plait.runtime.guards.approvals import DOUBT, ApprovalsGuard
from plait.runtime.guards.grounding import GroundingGuard, SourcesGuard
from plait.runtime.guards.loop_breaker import LoopBreaker
from plait.runtime.guards.taint import TaintGuard
from plait.runtime.performers.base import BasePerformer
from plait.runtime.performers.check import END, Check
from plait.runtime.run_journal import NOTHING, FoundEntry, RunJournal
from plait.tools import Toolset

REMARKS: list[tuple[str, str]] = []


@pytest.fixture(autouse=True)
def _no_remarks() -> None:
    REMARKS.clear()


@plait.tool(read_only=True)
def look(at: str) -> str:
    """Looks."""
    return at


@plait.tool(read_only=True, open_world=True)
def fetch(at: str) -> str:
    """Fetches a page."""
    return at


@plait.tool
def pay(to: str, amount: int = 5) -> str:
    """Pays."""
    return to


TOOLS = Toolset((look, fetch, pay))


class Calls(BasePerformer):
    """Makes calls: `perform` returns the observation of the day."""

    work = "call"

    def __init__(self, result: Callable[[Call], Observation]) -> None:
        self.result = result
        self.binder = CallBinder(TOOLS, ArtifactStore({}, bytes))

    def bind(self, entry: Entry) -> None:
        bound = self.binder.bind(entry.asked)
        if bound.error:
            raise BadInput(bound.error)
        entry.bound, entry.effect, entry.tool = bound, bound.call, TOOLS.get(bound.call.tool)

    def rebind(self, entry: Entry, changed: Any, decision: Decision) -> None:
        entry.bound = self.binder.bind(changed)
        entry.effect, entry.changed_by = entry.bound.call, "user" if decision.action == "edit" else "hook"

    def restore(self, entry: Entry, found: FoundEntry) -> None:
        self.bind(entry)

    def describe_unbound(self, entry: Entry, why: BadInput) -> Observation:
        return Observation(str(why), trouble="bad_input")

    def refuse(self, entry: Entry, reason: str, *, is_after: bool, by_user: bool) -> Any:
        return Observation(reason, trouble="refused")

    def ask(self, entry: Entry, question: str, result: Any) -> Asking:
        return Asking("approval", question, entry.effect)


class Desk:
    """A run of calls: its guards, and its record."""

    def __init__(self, *guards: Guard, rows: Sequence[Any] = (), run: str = "r") -> None:
        self.log = MemoryLog(RunHead(run, "?", {}, {}))
        self.log.buffer(*((row.record, row.body) for row in rows))
        self.journal = RunJournal(self.log, rows)
        self.chain = Chain(guards, self.journal, lambda kind, text, **_: REMARKS.append((kind, text)))
        self.run, self.n = run, 0

    async def act(self, *calls: Call, result: Any = "done", n: int | None = None, **how: Any) -> list[Observation]:
        """Make calls as one effect. Raises `Suspend` with all open questions."""
        n = self.n if n is None else n
        self.n = n + 1
        performer = Calls(lambda call: result(call) if callable(result) else Observation(result))
        admitted, waits = list[Admitted](), list[Suspend]()
        for i, call in enumerate(calls):
            entry = Entry(self.run, f"{n}.{i}", 0, call, call, **how)
            entry.remark = lambda kind, text: REMARKS.append((kind, text))
            try:
                admitted.append(await self.chain.admit(entry, performer))
            except Suspend as why:
                waits.append(why)
        results = [await self._carry_out(each) for each in admitted]
        if waits:
            for each, made in zip(admitted, results, strict=True):
                await each.tell(made)
            raise Suspend(*(question for why in waits for question in why.questions))
        return [await self.chain.settle(each, made) for each, made in zip(admitted, results, strict=True)]

    async def _carry_out(self, admitted: Admitted) -> Observation:
        entry, performer = admitted.entry, admitted.performer
        assert isinstance(performer, Calls)
        made: Any = admitted.result
        if admitted.found.value is not UNSET:
            return as_observation(admitted.found.value)
        if made is UNSET:
            self.journal.buffer(IntentRecord(entry.key, 0, "call", entry.asked))
            entry.begun, made = True, performer.result(entry.effect)
        self.journal.buffer(
            ResultRecord(entry.key, 0, "call", made, entry.asked if admitted.result is not UNSET else UNSET)
        )
        return as_observation(made)

    async def ask(self, *calls: Call, **how: Any) -> list[str]:
        """Make calls that wait for the user; return the questions."""
        with pytest.raises(Suspend) as why:
            await self.act(*calls, **how)
        return [each.text for each in why.value.questions]

    async def answer_and_ask(self, decision: Decision, *calls: Call, place: int = 0, **how: Any) -> str:
        """Answer an open question, after which the calls wait for another one; return its text."""
        with pytest.raises(Suspend) as why:
            await self.answer(decision, *calls, place=place, **how)
        return why.value.questions[-1].text

    async def answer(self, decision: Decision, *calls: Call, place: int = 0, **how: Any) -> list[Observation]:
        """Answer an open question of the last effect, and go on."""
        opened = [key for key in self.open_keys() if key.startswith(f"{self.n - 1}.{place}?")]
        await self.journal.write(ResultRecord(opened[-1], 0, "decision", decision))
        return await self.act(*calls, n=self.n - 1, **how)

    def open_keys(self) -> list[str]:
        keys = dict.fromkeys(row.record.key for row in self.log.read_rows())
        return [key for key in keys if "?" in key and self.journal.find(key).is_open]

    async def see(self, effect: Any, result: Any = None, key: str = "") -> Any:
        """Settle another effect of the loop."""
        key = key or str(self.n)
        self.n += "~" not in key
        entry = Entry(self.run, key, 0, effect, effect)
        entry.remark = lambda kind, text: REMARKS.append((kind, text))
        performer: Any = END if isinstance(effect, Finish) else Check(None)  # type: ignore[arg-type]
        guards = self.chain.at(type(effect)).after
        return await self.chain.settle(Admitted(entry, performer, guards, NOTHING), result)


def as_observation(value: Any) -> Observation:
    return convert(to_builtins(value), Observation)


def look_at(at: str) -> Call:
    return Call("look", {"at": at})


# -- the loop breaker


async def circle(desk: Desk, times: int = 4) -> list[Observation]:
    return [(await desk.act(look_at("x"), n=k))[0] for k in range(times)]


async def test_the_same_call_is_remarked_on_and_then_stopped() -> None:
    desk = Desk(LoopBreaker(4))
    seen = await circle(desk)
    assert [each.repeated for each in seen] == [False, True, True, True]
    assert seen[1].note.startswith("You made exactly this call before and the result is the same.")
    assert seen[3].note.startswith("This is the same call with the same result for the 4th time")
    with pytest.raises(LimitNear, match="brought the same result 4 times"):
        await desk.act(look_at("x"))
    assert (await desk.act(look_at("y")))[0].note == ""


@pytest.mark.parametrize("kept", range(12))
async def test_the_breaker_comes_to_the_same_state_from_every_record(kept: int) -> None:
    rows = Desk(LoopBreaker(4))
    await circle(rows)
    again = Desk(LoopBreaker(4), rows=rows.log.read_rows()[:kept])
    seen = await circle(again)
    assert [each.repeated for each in seen] == [False, True, True, True]
    with pytest.raises(LimitNear):
        await again.act(look_at("x"))


async def test_calls_of_one_turn_do_not_repeat_each_other_though_one_waits() -> None:
    desk = Desk(LoopBreaker(4), approvals(lambda call: call.input["at"] == "b"))
    calls = look_at("a"), look_at("b"), look_at("a")
    await desk.ask(*calls)
    assert [each.repeated for each in await desk.answer(Decision("yes"), *calls, place=1)] == [False] * 3
    assert (await desk.act(look_at("a")))[0].repeated is True


async def test_a_piece_of_code_may_repeat_a_call_and_compacting_forgets() -> None:
    desk = Desk(LoopBreaker(2))
    await desk.see(Execute("x"), Ran(""))
    for _ in range(4):
        assert not (await desk.act(look_at("x")))[0].repeated
    desk = Desk(LoopBreaker(2))
    for at in "xabc":
        await desk.act(look_at(at))
    await desk.see(Note("compacted", ""), None)
    assert not (await desk.act(look_at("x")))[0].repeated


# -- grounding


class Known:
    """As much of a `LoopContext` as grounding needs."""

    search = "search_tools"

    def tool(self, name: str) -> ToolSpec | None:
        found = TOOLS.get(name)
        return found.spec if found is not None else None


def grounding(policy: Any, near: LimitNear | None = None, repeats: int = 4) -> tuple[Guard, Guard]:
    context: Any = Known()
    learner = SourcesGuard(Sources(["Pay Ada 6 or 7."]), context)
    names = [tool.name for tool in TOOLS]
    return learner, GroundingGuard(policy, learner, context, others=names, repeats=repeats, find_near=lambda: near)


WRONG = Call("pay", {"to": "Ada", "amount": 4321})
INVENTED = "stands neither in the task nor in any observation: amount: 4321"


@pytest.mark.parametrize("policy", ["note", "warn", "refuse"])
async def test_an_invented_value_is_noted_warned_about_or_refused(policy: str) -> None:
    desk = Desk(*grounding(policy))
    (seen,) = await desk.act(WRONG)
    assert [("invented", f"pay: {INVENTED}")] == REMARKS
    assert (seen.trouble, seen.note[:17]) == {
        "note": ("", ""),
        "warn": ("", "Not from the task"),
        "refuse": ("refused", ""),
    }[policy]
    if policy == "refuse":
        assert seen.text.startswith("This call was not made: amount: 4321 stands neither in the task nor in any result")
        assert "First call another tool (look, fetch)" in seen.text


async def test_results_ground_the_calls_of_later_turns_only() -> None:
    desk = Desk(*grounding("refuse"))
    seen = await desk.act(look_at("Ada"), WRONG, result="4321")
    assert [each.trouble for each in seen] == ["", "refused"]
    assert (await desk.act(WRONG))[0].ok


async def test_a_made_up_answer_is_refused_again_and_again_and_then_the_loop_must_end() -> None:
    desk = Desk(*grounding("refuse", repeats=3))
    for k in range(2):
        said = await desk.see(CheckAnswer("It is 4321."), "", key=f"0~{k}")
        assert said.startswith("That can't be the answer: 4321 stands neither")
    with pytest.raises(LimitNear, match="the same answer was not taken 3 times"):
        await desk.see(CheckAnswer("It is 4321."), "", key="0~2")
    assert [kind for kind, _ in REMARKS] == ["unfounded"] * 3
    warned = Desk(*grounding("warn"))
    assert await warned.see(CheckAnswer("It is 4321."), "", key="0~0")
    assert await warned.see(CheckAnswer("It is 4321."), "", key="0~1") == ""
    assert await warned.see(CheckAnswer("It is 4321.", only_output=True), "", key="0~2") == ""
    assert await Desk(*grounding("refuse", LimitNear("steps", "x"))).see(CheckAnswer("4321"), "", key="0~0") == ""


async def test_doubtful_words_and_founded_answers() -> None:
    desk = Desk(*grounding("warn"))
    assert await desk.see(CheckGrounding("Born in 1948."), (), key="0~0") == ("1948",)
    assert await desk.see(CheckGrounding("Born in 1948.", strict=True), (), key="0~1") == ()
    near = LimitNear("loop", "it went in circles")
    for answer, outcome in (("Ada", Answered), ("4321", Stopped)):
        ended = await Desk(*grounding("warn", near)).see(Finish(), Stopped("loop", "It went in circles.", answer))
        assert isinstance(ended, outcome) and ended.answer == answer
    cut = Stopped("loop", "It went in circles. The model's last reply was cut.", "Ada")
    assert await Desk(*grounding("warn", near)).see(Finish(), cut) == cut


# -- content from outside, and approvals


def approvals(*policies: Any, **how: Any) -> ApprovalsGuard:
    return ApprovalsGuard(policies, TOOLS, Calls(lambda call: Observation("")).binder, **how)


PAY = Call("pay", ["Ada"])
QUESTION = """May 'pay' be called with {"to":"Ada","amount":5}?"""
OUTSIDE = "The run has read content from outside (the result of 'fetch'), which may have asked for this call."


def from_outside(call: Call) -> Observation:
    return Observation("page", outside=call.tool == "fetch")


async def test_content_from_outside_is_a_reason_to_ask_from_the_next_turn_on() -> None:
    desk = Desk(TaintGuard("ask"), approvals("never"))
    await desk.act(Call("fetch", "x"), PAY, result=from_outside)
    assert REMARKS == [
        ("outside", "The result of 'fetch' comes from outside. From here, calls with effects need approval.")
    ]
    assert await desk.ask(PAY) == [f"{QUESTION} {OUTSIDE}"]
    assert (await desk.act(PAY, fixed=True))[0].ok and (await desk.act(look_at("x")))[0].ok
    assert desk.chain.guards[0].carry() == ["the result of 'fetch'"]


async def test_children_bring_outside_content_and_get_the_stricter_policy() -> None:
    taint = TaintGuard("ask")
    desk = Desk(taint)
    await desk.see(StartChild(None, "?", "c"), ChildEnd("answered", {"guards": {"taint": ["x"]}}), key="0.0:c1.0")
    (seen,) = await desk.act(look_at("x"), n=0)
    assert seen.outside and taint.carry() == ["the result of 'look'"]
    child = taint.for_child(TaintGuard("off", ("mail",)))
    assert isinstance(child, TaintGuard) and child.policy == "ask" and child.given == ("the result of 'look'", "mail")
    assert await Desk(child, approvals()).ask(PAY, fixed=True)


async def test_policies_and_the_tools_mark_ask_in_one_question() -> None:
    assert await Desk(approvals("never", "effects", "always")).ask(PAY) == [QUESTION]
    assert (await Desk(approvals("effects", "plan")).act(look_at("x")))[0].ok
    assert await Desk(approvals(lambda call: call.input["amount"] > 4)).ask(PAY) == [QUESTION]
    desk = Desk(approvals("effects"), *grounding("ask"))
    (asked,) = await desk.ask(WRONG)
    assert asked == f"""May 'pay' be called with {{"to":"Ada","amount":4321}}? This {INVENTED}."""
    seen = await desk.answer(Decision("refuse", text="no", by_user=True), WRONG)
    assert seen[0].trouble == "refused"


def in_doubt(call: Call) -> Observation:
    return Observation("late", trouble="in_doubt")


async def test_a_call_in_doubt_is_asked_about_in_the_whole_tree_and_the_session() -> None:
    desk = Desk(approvals())
    await desk.act(PAY, result=in_doubt)
    assert await desk.ask(Call("pay", {"to": "Ada"})) == [f"{QUESTION} {DOUBT}"]
    assert (await desk.act(Call("pay", "Bob")))[0].ok
    guard = desk.chain.guards[0]
    carried = guard.carry()
    assert isinstance(carried, list)
    assert [each[2:] for each in carried] == [["pay", {"to": "Ada", "amount": 5}], ["pay", {"to": "Ada"}]]
    child = guard.for_child(approvals())
    assert child is not None and child.carry() is None and await Desk(child, run="c").ask(PAY)
    await Desk(child, run="c").act(Call("pay", "Eve"), result=in_doubt)
    assert await desk.ask(Call("pay", "Eve"))
    other = approvals()
    await Desk(other).see(StartChild(None, "?", "c"), ChildEnd("stopped", {"guards": {"approvals": guard.carry()}}))
    assert await Desk(other).ask(PAY) and other.carry() == guard.carry()
    earlier = [CallInDoubt("other", "0.0", PAY)]
    assert await Desk(approvals(session_calls=earlier)).ask(PAY)
    assert (await Desk(approvals(session_calls=earlier, repeats=True)).act(PAY))[0].ok


async def test_a_call_that_was_stopped_midway_is_in_doubt() -> None:
    guard = approvals()
    entry = Entry("r", "0.0", 0, PAY, PAY, tool=pay, begun=True)
    entry.remark = lambda kind, text: REMARKS.append((kind, text))
    guard.release(entry)
    assert [kind for kind, _ in REMARKS] == ["in_doubt"] and REMARKS[0][1].endswith('Its input: ["Ada"]')
    guard.release(replace(entry, begun=False))
    assert len(REMARKS) == 1 and await Desk(guard).ask(PAY)


async def test_calls_of_a_run_whose_rows_may_be_lost_are_asked_about() -> None:
    desk = Desk(approvals(is_damaged=True))
    (asked,) = await desk.ask(Call("pay", "Bob"))
    assert asked.endswith("The journal may have lost rows of this run, so this call may have been made before.")
    assert (await desk.act(look_at("x")))[0].ok


async def test_a_call_is_refused_late_if_the_same_call_beside_it_is_in_doubt_by_then() -> None:
    guard = approvals()
    entries = [Entry("r", f"0.{i}", 0, PAY, PAY, tool=pay, begun=True) for i in range(2)]
    for entry in entries:
        assert await guard.before(entry) == PAY
    assert guard.refuse_late(entries[1]) == ""
    guard.recall(entries[0], in_doubt(PAY))
    assert guard.refuse_late(entries[1]) == f"'pay' was not called. {DOUBT}"
