"""The guards of hooks: what hooks decide about one entry, what is recorded, and what a resumed run does with that."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

import plait
from guarded_run import GuardedRun, TestPerformer, make_context
from plait.core import Answered, Call, Failed, LimitNear, Message, Observation, Reply, Stopped, Think
from plait.core.errors import ConfigError
from plait.journal.records import Decision
from plait.runtime.guard import EndedByRefusal, Guard, Suspend
from plait.runtime.guards.hooks import HookedRun, guard_hook
from plait.runtime.hooks import MissingHook
from plait.runtime.make_guards import join_guards

CALL = Call("send", {"text": "one"})
SENT = Observation("sent", value="sent")
THINK = Think("act", (Message("user", "the secret is 7"),))


def hook(name: str, **methods: Any) -> plait.Hook:
    """A hook whose methods get the last value, and return what these functions make of it."""

    def method(function: Any) -> Any:
        return lambda self, context, *values: function(values[-1])

    made: plait.Hook = type(name, (plait.Hook,), {point: method(each) for point, each in methods.items()})()
    return made


def guards(*hooks: plait.Hook, **fields: Any) -> list[Guard]:
    run = HookedRun(make_context, **fields)
    return [guard for each in hooks for guard in guard_hook(each, run)]


def add(letter: str) -> Any:
    return lambda call: structs.replace(call, input={"text": call.input["text"] + letter})


# -- calls


async def test_a_hook_decides_before_and_after_a_call_and_is_named_in_texts_and_remarks() -> None:
    refuses = hook("No", before_tool=lambda call: plait.Refuse("not on Sundays"))
    run = GuardedRun(guards(refuses))
    seen = await run.call("3.0", CALL, SENT)
    assert seen == Observation("The call is refused: not on Sundays", trouble="refused")
    assert run.remarks == [("hook", "The hook No refused the call: not on Sundays.")]
    withholds = hook("Private", after_tool=lambda seen: plait.Refuse("private"))
    run = GuardedRun(guards(withholds))
    assert (await run.call("3.0", CALL, SENT)).text == "Error: the result of 'send' is withheld. Private."
    assert run.decisions == [
        ("3.0!Private", Decision("refuse", text="Error: the result of 'send' is withheld. Private."))
    ]
    unmade = Observation("Error: unknown", trouble="unknown_tool")
    assert await run.call("3.1", CALL, unmade) == unmade


async def test_a_hook_gets_a_context_and_a_copy_of_the_call_with_the_tools_own_name() -> None:
    got: list[Any] = []

    class Watch(plait.Hook):
        def before_tool(self, context: plait.Context[Any], call: Call) -> Call:
            got.append((context.deps, context.run_id, context.step, call.tool))
            call.input["text"] = "changed in place"
            return structs.replace(call, input={"text": "two"})

    run = GuardedRun(guards(Watch(), with_own_name=lambda call: structs.replace(call, tool="mail.send")))
    await run.call("3.0", CALL, SENT)
    assert got == [("db", "run", 1, "mail.send")]
    assert run.decisions == [("3.0?Watch", Decision("change", {"input": {"text": "two"}}))]
    assert CALL.input == {"text": "one"}


async def test_a_hook_sees_its_own_change_again_only_if_another_one_changes_the_call_after_it() -> None:
    seen: list[str] = []

    def first(call: Call) -> Call | None:
        seen.append(call.input["text"])
        return None if "a" in call.input["text"] else add("a")(call)

    run = GuardedRun(guards(hook("A", before_tool=first), hook("B", before_tool=add("b"))))
    await run.call("3.0", CALL, SENT)
    assert seen == ["one", "oneab"]
    assert [key for key, _ in run.decisions] == ["3.0?A", "3.0?B"]
    both = GuardedRun(guards(hook("A", before_tool=add("a")), hook("B", before_tool=add("b"))))
    assert "again and again" in (await both.call("3.0", CALL, SENT)).text


async def test_an_input_that_the_tool_does_not_take_is_the_hooks_fault_by_name() -> None:
    run = GuardedRun(guards(hook("Odd", before_tool=lambda call: structs.replace(call, input=7))))
    text = (await run.call("3.0", CALL, SENT)).text
    assert text.startswith("The call is refused: The hook Odd gave it an input that the tool does not take. The input")


async def test_two_hooks_that_ask_about_a_call_are_two_questions_and_a_resume_asks_neither_again() -> None:
    def asking() -> list[Guard]:
        return guards(*(hook(name, before_tool=lambda call: plait.AskApproval("Sure?")) for name in "AB"))

    run = GuardedRun(asking())
    for name in "AB":
        with pytest.raises(Suspend) as why:
            await run.call("3.0", CALL, SENT)
        [question] = why.value.questions
        assert question.key.startswith(f"3.0?{name}@")
        assert question.text == """May 'send' be called with {"text":"one"}? Sure?"""
        run = run.go_on(asking())
        run.answer(question, Decision("yes", by_user=True))
    assert await run.call("3.0", CALL, SENT) == SENT


async def test_what_the_runtime_says_of_a_result_no_hook_takes_back() -> None:
    made = Observation("from outside", value=7, exact=7, seconds=2.0, outside=True, ends="answer", note="a note")
    run = GuardedRun(guards(hook("New", after_tool=lambda seen: Observation("new", value=8, exact=7))))
    seen = await run.call("3.0", CALL, made)
    assert seen == Observation("new", value=8, seconds=2.0, outside=True, ends="answer", note="a note")
    run = GuardedRun(guards(hook("Fails", after_tool=lambda seen: Observation("no", trouble="raised"))))
    assert (await run.call("3.0", CALL, made)).ends == ""


# -- model calls


async def test_a_changed_request_and_a_changed_reply_are_on_record_and_replay_without_the_hook() -> None:
    def hide(request: Think) -> Think:
        messages = [structs.replace(each, content=each.content + "!") for each in request.messages]
        return structs.replace(request, messages=tuple(messages))

    asked: list[str] = []

    class Attempts(TestPerformer):
        async def perform(self, entry: Any) -> Any:
            asked.append(entry.effect.messages[0].content)
            return self.result, None

    changing = hook("Hide", before_model=hide, after_model=lambda reply: structs.replace(reply, text="All done"))
    run = GuardedRun(guards(changing))
    reply: Reply = await run.perform("3", THINK, Attempts(Reply("Over")))
    assert (asked, reply.text) == (["the secret is 7!"], "All done")
    assert [(key, each.value) for key, each in run.decisions] == [
        ("3?Hide", {"messages": {"0": {"role": "user", "content": "the secret is 7!"}}}),
        ("3!Hide", {"text": "All done"}),
    ]
    for others in ([], guards(MissingHook("Hide")), guards(changing)):
        replay = run.go_on(others, replay=True)
        assert (await replay.perform("3", THINK, TestPerformer(Reply("Over")))).text == "All done"


async def test_a_refused_request_ends_the_run_and_what_a_tool_asks_a_model_cannot_wait() -> None:
    refuses = hook("No", before_model=lambda request: plait.Refuse("too late."))
    with pytest.raises(EndedByRefusal, match=r"^The hook No refused the request: too late\.$"):
        await GuardedRun(guards(refuses)).perform("3", THINK, TestPerformer(Reply("")))
    asks = hook("Asks", after_model=lambda reply: plait.AskApproval("Is that right?"))
    run = GuardedRun(guards(asks))
    with pytest.raises(EndedByRefusal, match=r"^Is that right\? A question that a tool asks a model cannot wait"):
        await run.perform("3.0:mabc.0", THINK, TestPerformer(Reply("")), by_tool=True)
    assert run.remarks == []


# -- answers


async def test_a_changed_answer_becomes_the_runs_answer_and_each_hook_sees_what_the_ones_before_it_made() -> None:
    calls: list[str] = []

    def noting(name: str, letter: str) -> plait.Hook:
        def change(answer: str) -> str:
            calls.append(f"{name} {answer}")
            return answer + letter

        return hook(name, before_answer=change, after_answer=change)

    run = GuardedRun(guards(noting("A", "a"), noting("B", "b")))
    assert await run.check("3~0", "x") == ""
    assert await run.check("3~1", "x") == ""  # accepted already
    assert await run.finish(Answered("x")) == Answered("xbaba")
    assert calls == ["B x", "A xb", "B xba", "A xbab"]
    assert [key for key, _ in run.decisions] == ["!B", "!A", "!B (after_answer)", "!A (after_answer)"]
    assert await run.go_on([], replay=True, has_ended=True).finish(Answered("x")) == Answered("xbaba")


async def test_a_refused_answer_is_an_objection_and_on_record() -> None:
    def decide(answer: str) -> plait.Refuse | None:
        return plait.Refuse("say it in other words") if answer == "first" else None

    run = GuardedRun(guards(hook("Words", before_answer=decide)))
    assert await run.check("3~0", "first") == "The answer is not accepted: say it in other words"
    run.think(3)
    resumed = run.go_on(guards(hook("Words", before_answer=lambda answer: None)))
    for each in (resumed, run.go_on([], replay=True)):
        assert await each.check("3~0", "first") == "The answer is not accepted: say it in other words"
    assert await resumed.check("4~0", "second") == ""


async def test_an_answer_that_was_not_checked_or_in_another_process_passes_the_hook_at_the_end() -> None:
    hides = hook("Hide", before_answer=lambda answer: answer.replace("secret", "(removed)"))
    run = GuardedRun(guards(hides))
    assert await run.check("3~0", "the secret") == ""
    run.think(3)
    resumed = run.go_on(guards(hides))
    assert await resumed.check("3~0", "the secret") == ""
    assert await resumed.finish(Answered("the secret")) == Answered("the (removed)")
    refuses = hook("No", before_answer=lambda answer: plait.Refuse("no"))
    near = GuardedRun(guards(refuses, is_near=lambda: True))
    assert await near.check("3~0", "x") == ""
    ended = await near.finish(Stopped("calls", "One call is left.", "x"))
    assert ended == Failed("The answer is not accepted: no", kind="refused")


async def test_a_hook_that_asks_about_an_answer_asks_once_and_its_after_answer_still_decides() -> None:
    def asking() -> list[Guard]:
        return guards(
            hook("Asks", before_answer=lambda answer: plait.AskApproval("Sure?"), after_answer=lambda answer: "final")
        )

    for is_checked in (True, False):
        run = GuardedRun(asking())
        with pytest.raises(Suspend) as why:
            await (run.check("3~0", "x") if is_checked else run.finish(Answered("x")))
        assert why.value.questions[0].text == "Sure?\nThe answer: x"
        run = run.go_on(asking())
        run.answer(why.value.questions[0], Decision("yes", by_user=True))
        assert not is_checked or await run.check("3~0", "x") == ""
        assert await run.finish(Answered("x")) == Answered("final")


# -- child runs, errors, retries


async def test_a_child_run_inherits_hooks_on_calls_but_not_on_answers() -> None:
    top = guards(hook("Same", before_tool=_once("o")), hook("Answers", before_answer=str, after_answer=str))
    middle = GuardedRun(join_guards(top, guards(hook("Middle", after_tool=lambda seen: None))))
    run = GuardedRun(join_guards(middle.chain.guards, guards(hook("Same", before_tool=_once("i")))))
    assert [each.name for each in run.chain.guards] == ["^^Same", "^Middle", "Same"]
    await run.call("3.0", CALL, SENT)
    changes = [(key, each.value["input"]["text"]) for key, each in run.decisions]
    assert changes == [("3.0?^^Same", "oneo"), ("3.0?Same", "oneoi")]
    assert run.remarks[0] == ("hook", "The hook Same changed the call.")


def _once(letter: str) -> Any:
    return lambda call: call if letter in call.input["text"][3:] else add(letter)(call)


async def test_wrong_values_and_errors_are_config_errors_by_the_hooks_name() -> None:
    for returned, message in (
        (lambda call: Call("other", {}), "The hook Odd returned a call of 'other' in before_tool."),
        (lambda call: "text", "The hook Odd returned 'text' in before_tool."),
        (lambda call: 1 / 0, "The hook Odd failed in before_tool: ZeroDivisionError: division by zero."),
    ):
        with pytest.raises(ConfigError, match="^" + message.replace(".", r"\.")):
            await GuardedRun(guards(hook("Odd", before_tool=returned))).call("3.0", CALL, SENT)


async def test_a_signal_or_a_recorded_result_calls_no_hook() -> None:
    never = hook(
        "Never", after_tool=lambda seen: 1 / 0, before_answer=lambda answer: 1 / 0, after_model=lambda r: 1 / 0
    )
    run = GuardedRun([])
    assert await run.call("3.0", CALL, SENT) == SENT
    run.think(4)
    resumed = run.go_on(guards(never))
    assert await resumed.call("3.0", CALL, SENT) == SENT
    for guard in resumed.chain.guards:
        for entry_effect in (CALL, THINK):
            entry = type("E", (), {"id": ("run", "9"), "effect": entry_effect, "decided": {}})()
            near = LimitNear("calls", "One call is left.")
            assert await guard.after(entry, near, False) is near


async def test_a_hook_says_when_to_repeat_a_failed_call() -> None:
    [guard] = guards(hook("Retry", on_tool_error=lambda attempt: 0.5 * attempt))
    assert guard.points_after == (Call,)
    entry = type("E", (), {"effect": CALL, "run": "run", "step": 1, "by_tool": False})()
    assert await guard.retry_after(entry, SENT, 2) == 1.0
    [guard] = guards(hook("Retry", on_tool_error=lambda attempt: True))
    with pytest.raises(ConfigError, match="The hook Retry returned True in on_tool_error"):
        await guard.retry_after(entry, SENT, 1)
