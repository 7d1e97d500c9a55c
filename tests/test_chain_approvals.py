"""What the user approved is looked at once more: something may speak against a call that the question did not say."""

from __future__ import annotations

import pytest

from plait.core import Call, LimitNear
from plait.journal.records import Decision, NoteRecord
from plait.runtime.guards.approvals import DOUBT
from plait.runtime.guards.loop_breaker import LoopBreaker
from plait.runtime.guards.taint import TaintGuard
from test_policy_guards import INVENTED, PAY, QUESTION, WRONG, Desk, approvals, from_outside, grounding, in_doubt

YES = Decision("yes", by_user=True)


def edit(**given: object) -> Decision:
    return Decision("edit", given, by_user=True)


async def test_a_yes_that_came_before_a_doubt_does_not_count_and_the_next_question_is_another() -> None:
    desk = Desk(approvals("effects"))
    assert await desk.ask(PAY, PAY) == [QUESTION] * 2
    first, second = desk.open_keys()
    assert await desk.answer_and_ask(YES, PAY, PAY, result=in_doubt) == QUESTION
    assert await desk.answer_and_ask(YES, PAY, PAY, place=1) == f"{QUESTION} {DOUBT}"
    assert not {first, second} & {*desk.open_keys()}
    again = Desk(approvals("effects"), rows=desk.log.read_rows())
    again.n = desk.n
    seen = await again.answer(YES, PAY, PAY, place=1)
    assert [each.trouble for each in seen] == ["in_doubt", ""]


async def test_an_edit_is_approved_but_not_for_what_its_input_newly_raises() -> None:
    desk = Desk(*grounding("ask"), approvals("effects", lambda call: call.input["amount"] == 7))
    pay = Call("pay", {"to": "Ada"})
    await desk.ask(pay)
    assert (await desk.answer(edit(to="Ada", amount=6), pay))[0].ok
    await desk.ask(pay)
    assert INVENTED in await desk.answer_and_ask(edit(to="Ada", amount=4321), pay)
    assert (await desk.answer(YES, pay))[0].ok
    await desk.ask(pay)
    assert await desk.answer_and_ask(edit(to="Ada", amount=7), pay)  # the other policy had not asked
    assert (await desk.answer(edit(to="Ada", amount=7), pay))[0].ok
    desk = Desk(*grounding("ask"), approvals("effects"))
    await desk.ask(WRONG)
    assert (await desk.answer(edit(to="Ada", amount=5432), WRONG))[0].ok  # grounding had asked


async def test_an_edit_of_a_planned_call_is_no_longer_planned_and_one_into_a_doubt_asks() -> None:
    desk = Desk(TaintGuard("ask"), approvals("effects"))
    await desk.act(Call("fetch", "x"), result=from_outside)
    assert await desk.ask(PAY, fixed=True) == [QUESTION]
    assert "from outside" in await desk.answer_and_ask(edit(to="Bob"), PAY, fixed=True)
    desk = Desk(approvals("effects"))
    await desk.ask(PAY)
    await desk.answer(YES, PAY, result=in_doubt)
    await desk.ask(Call("pay", "Bob"))
    assert await desk.answer_and_ask(edit(to="Ada"), Call("pay", "Bob")) == f"{QUESTION} {DOUBT}"


async def test_an_edit_into_the_same_input_approves_it() -> None:
    desk = Desk(approvals("effects"))
    await desk.ask(PAY)
    assert (await desk.answer(edit(to="Ada", amount=5), PAY))[0].ok


async def test_calls_that_fit_no_tool_go_in_circles_too() -> None:
    desk = Desk(LoopBreaker(3))
    for _ in range(3):
        assert (await desk.act(Call("nope", 1)))[0].trouble == "bad_input"
    with pytest.raises(LimitNear, match="brought the same result 3 times"):
        await desk.act(Call("nope", 1))


def test_a_remark_about_an_entry_is_made_once() -> None:
    desk = Desk()
    assert desk.journal.note("0.0", 0, "invented", "x") and not desk.journal.note("0.0", 0, "invented", "x")
    assert desk.journal.note("0.0", 0, "invented", "y") and desk.journal.note("", 0, "close", "x")
    assert desk.journal.note("", 0, "close", "x") and desk.journal.note("n0", 0, "k", "x")
    again = Desk(rows=desk.log.read_rows())
    assert not again.journal.note("0.0", 0, "invented", "y") and not again.journal.note("n0", 0, "k", "z")
    assert sum(isinstance(row.record, NoteRecord) for row in again.log.read_rows()) == 5
