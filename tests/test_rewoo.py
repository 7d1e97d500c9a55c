"""ReWOO, the loop: planner, workers, solver; a graph of steps; failures, fallbacks, limits, approval, kept evidence."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import plait
from journal_rows import is_request
from plait import loops
from plait.core import (
    Act,
    Answered,
    Call,
    CheckAnswer,
    CheckGrounding,
    Exchange,
    LoopContext,
    Note,
    Observation,
    Plan,
    Reply,
    Start,
    Step,
    Task,
    Think,
    Waiting,
    WaitNext,
    WaitResult,
)
from plait.core.errors import ConfigError, ContextOverflow, ToolError
from plait.journal.entries import RecordedNote
from plait.journal.store import Journal
from plait.loops.plan_text import write_plan
from plait.loops.rewoo.loop import ReWOO
from plait.runtime.run import Run
from plait.runtime.templates.prompts import PromptBook

FACTS = {"a": "12", "b": "30", "c": "see #E2", "list": ["x", "y"], "long": "word " * 4_000}


@plait.tool(read_only=True)
def find(key: str) -> Any:
    """Finds an entry."""
    if key not in FACTS:
        raise ToolError(f"there is no {key}")
    return FACTS[key]


@plait.tool(read_only=True)
def join(first: Any, second: Any = "-") -> str:
    """Joins two things."""
    return f"{first}+{second}"


PLAN = "Plan: the first\n#E1 = find[a]\nPlan: the second\n#E2 = find[b]\nPlan: both\n#E3 = join[#E1, #E2]"


def agent(journal: Path, plan: Sequence[Any] | str = PLAN, *, options: Any = None, **more: Any) -> plait.Agent:
    """An agent whose planner, worker and solver answer from scripts; the solver says how long its prompt was."""
    scripts = {
        "plan": [plan] if isinstance(plan, str) else list(plan),
        "work": more.pop("work", ["worked"]),
        "solve": more.pop("solve", ["solved"]),
        "react.act": ["Final Answer: by react"],
    }
    settings = {"tools": [find, join], "journal": journal, "model": plait.Scripted(scripts), **more}
    return plait.Agent(ReWOO(**(options or {})), **settings)


def calls(run: Run) -> list[Call]:
    return [each.planned for each in run.timeline.tool_calls]


def prompts(run: Run, phase: str) -> list[list[str]]:
    """What a phase was asked: for each request the texts of its messages."""
    bodies = [row.body for row in run.trace if is_request(row.record) and row.record.asked.phase == phase]
    return [[message["content"] for message in json.loads(body or b"")["messages"]] for body in bodies]


def notes(run: Run, kind: str) -> list[str]:
    found = [each.entry for each in run.timeline.moments if isinstance(each.entry, RecordedNote)]
    return [each.text for each in found if each.kind == kind]


def solver(run: Run) -> str:
    return prompts(run, "solve")[-1][-1]


# ---- planner, workers, solver


def test_two_model_calls_for_any_number_of_tools_and_the_run_replays_byte_by_byte(journal: Path) -> None:
    made = agent(journal)
    run = made.run("How many?")
    assert (run.status, run.answer, run.calls) == ("answered", "solved", 2)
    assert sorted(call.input if isinstance(call.input, str) else "" for call in calls(run)) == ["", "a", "b"]
    assert calls(run)[-1] == Call("join", ["12", "30"])
    shown = solver(run)
    assert shown.index("Plan: the first\n#E1 = find[a]\nEvidence: 12\n") < shown.index("Evidence: 30\n")
    assert 'Plan: both\n#E3 = join[["#E1", "#E2"]]\nEvidence: 12+30\n' in shown
    replayed = made.replay(run.id)
    assert replayed.whole and replayed.requests == 2


def test_a_step_may_ask_the_model_which_is_shown_the_evidence_it_names_and_nothing_else(journal: Path) -> None:
    plan = "Plan: get it\n#E1 = find[a]\nPlan: ask\n#E2 = LLM[What is twice #E1?]\n#E3 = join[#E2]"
    made = agent(journal, plan, work=["24"])
    run = made.run("How many?")
    assert run.calls == 3 and calls(run)[-1] == Call("join", "24")
    ((worked,),) = prompts(run, "work")
    assert worked.startswith("What is twice 12?") and "How many" not in worked
    assert made.replay(run.id).whole


def test_each_phase_asks_its_own_model(journal: Path) -> None:
    models = {
        phase: plait.Scripted([text], name=phase)
        for phase, text in (("plan", "#E1 = LLM[x]"), ("work", "y"), ("solve", "z"))
    }
    run = plait.Agent("rewoo", models=models, tools=[find], journal=journal).run("q")
    asked = [(row.record.asked.phase, row.record.asked.model) for row in run.trace if is_request(row.record)]
    assert asked == [(phase, f"scripted:{phase}") for phase in ("plan", "work", "solve")]


def test_the_tools_and_the_model_are_told_numbered_and_an_own_system_prompt_is_sent_as_it_is(journal: Path) -> None:
    rules = prompts(agent(journal).run("q"), "plan")[0][0]
    assert "(1) find[input]: Finds an entry. Input: the key (string)." in rules
    assert "(2) join[input]: " in rules and "(3) LLM[input]: " in rules
    own = prompts(agent(journal, system="{{ mine }}\r\n").run("q"), "plan")[0]
    assert own[0] == "{{ mine }}\r\n" and own[1].startswith("Task: q")


def test_the_conversation_so_far_is_told_to_planner_and_solver() -> None:
    history = (Exchange("Who?", "Ann."), Exchange("How old?", "47."))
    task = Task("And her height?", history)
    context = LoopContext((), PromptBook("rewoo"))
    planner = ReWOO.plan_messages(context, task)[-1].content
    assert planner.index("Who?") < planner.index("Ann.") < planner.index("47.") < planner.index("And her height?")
    assert "How old?" in ReWOO.solve_messages(context, task, Plan(), {}, 100)[0].content
    assert "Who?" not in ReWOO.work_messages(context, task, Step("E1", "LLM", "x"), {})[0].content
    assert "arlier" not in ReWOO.plan_messages(context, Task("q"))[-1].content


# ---- evidence


def test_e1_is_not_the_head_of_e10_and_twelve_steps_are_carried_out(journal: Path) -> None:
    lines = [f"#E{n} = join[{n}, {n}]" for n in range(1, 12)]
    run = agent(journal, "\n".join([*lines, "#E12 = join[#E10 and #E1 and #E1x, #E11]"]), tools=[join, find]).run("q")
    last = calls(run)[-1].input
    assert last == "10, 10+- and 1, 1+- and #E1x, 11, 11+-"
    assert len(calls(run)) == 12 and solver(run).count("Evidence: ") == 12


def test_evidence_that_names_other_evidence_is_left_alone_and_harmless_when_shown(journal: Path) -> None:
    run = agent(journal, "#E1 = find[c]\n#E2 = find[a]\n#E3 = join[#E1]\n#E4 = join[#E2 #E1 #E2]").run("q")
    assert [call.input for call in calls(run)][2:] == ["see #E2", "12 see #E2 12"]
    assert "Evidence: see #\\E2\n" in solver(run)


def test_evidence_stands_in_json_inputs_and_a_whole_reference_keeps_its_value(journal: Path) -> None:
    run = agent(journal, '#E1 = find[list]\n#E2 = join[{"first": #E1, "second": "got #E1"}]').run("q")
    assert calls(run)[-1].input == {"first": ["x", "y"], "second": 'got ["x", "y"]'}


def test_a_step_that_nothing_depends_on_is_seen_by_the_solver(journal: Path) -> None:
    run = agent(journal, "#E1 = find[a]\nPlan: for its own sake\n#E2 = find[b]\nPlan: only a thought\n").run("q")
    assert "Plan: for its own sake\n#E2 = find[b]\nEvidence: 30\n" in solver(run)
    assert "Plan: only a thought" in solver(run)


def test_evidence_is_shortened_for_the_solver_and_for_the_model_but_not_for_tools(journal: Path) -> None:
    plan = "#E1 = find[long]\n#E2 = LLM[Sum up: #E1]\n#E3 = join[#E1]"
    run = agent(journal, plan, limits=plait.Limits(observation_chars=900)).run("q")
    assert len(calls(run)[-1].input) == 20_000
    assert len(prompts(run, "work")[0][0]) < 1_100 and "characters left out here" in prompts(run, "work")[0][0]
    assert len(solver(run)) < 3_000


def tight(room: int) -> Callable[[Think], str]:
    def reply(think: Think) -> str:
        if (size := sum(len(message.content) for message in think.messages)) > room:
            raise ContextOverflow(f"{size} is too long")
        return f"fits into {room}"

    return reply


def test_a_prompt_that_is_too_long_is_made_again_with_less_evidence(journal: Path) -> None:
    plan = "#E1 = find[long]\n#E2 = find[a]\n#E3 = LLM[Sum up: #E1]\n#E4 = join[#E3, #E2]"
    made = agent(journal, plan, work=[tight(2_500)], solve=[tight(4_500)])
    run = made.run("q")
    assert (run.status, run.answer) == ("answered", "fits into 4500")
    assert calls(run)[-1].input == ["fits into 2500", "12"] and len(notes(run, "shortened")) == 1
    assert made.replay(run.id).whole


def test_a_model_step_that_never_fits_has_no_evidence_and_a_solver_that_never_fits_stops_the_run(journal: Path) -> None:
    run = agent(journal, "#E1 = find[long]\n#E2 = LLM[#E1]\n#E3 = join[#E2]", work=[tight(10)]).run("q")
    assert run.status == "answered" and "Evidence: no evidence (Error: " in solver(run)
    run = agent(journal, "#E1 = find[long]", solve=[tight(10)]).run("q")
    assert (run.status, run.outcome.limit) == ("stopped", "context")


# ---- the graph

NEEDS = {1: (), 2: (), 3: (2,), 4: (1,), 5: (3,), 6: (4,), 7: (2, 4), 8: (6,)}
HELD = {1: 5, 5: 6}
"""A step that ends only when another one has begun: so the other one must not wait for it."""


def test_a_step_begins_as_soon_as_what_it_needs_is_there(journal: Path) -> None:
    """Level by level, step 1 would wait for ever for step 5, which is two levels further."""
    begun: list[int] = []

    @plait.tool(read_only=True)
    async def rest(given: str) -> str:
        """Ends when another step has begun."""
        n = int(given.split()[0])
        begun.append(n)
        while HELD.get(n, n) not in begun:
            await asyncio.sleep(0.005)
        return "0"

    plan = "\n".join(f"#E{n} = rest[{n} {' '.join(f'#E{need}' for need in needs)}]" for n, needs in NEEDS.items())
    made = agent(journal, plan, tools=[rest], limits=plait.Limits(seconds=60))
    run = made.run("q")
    assert run.status == "answered" and len(calls(run)) == 8 == len(begun)
    assert all(begun.index(need) < begun.index(n) for n, needs in NEEDS.items() for need in needs)
    assert made.replay(run.id).whole


def test_model_steps_and_tools_run_side_by_side(journal: Path) -> None:
    """Each of the two model steps and the call ends only when all three have begun."""
    begun: list[str] = []

    async def together(what: str) -> str:
        begun.append(what)
        while len(begun) < 3:
            await asyncio.sleep(0.005)
        return what

    class Model(plait.Scripted):
        async def send(self, request: Any, think: Any, on_text: Any = None) -> Any:
            if think.phase == "work":
                await together("model")
            return await super().send(request, think, on_text)

    @plait.tool(read_only=True)
    async def hold(key: str) -> str:
        """Ends when the model steps have begun."""
        return await together(key)

    scripts = {"plan": ["#E1 = LLM[a]\n#E2 = LLM[b]\n#E3 = hold[a]"], "work": ["w"], "solve": ["s"]}
    limits = plait.Limits(seconds=60)
    run = plait.Agent("rewoo", model=Model(scripts), tools=[hold], journal=journal, limits=limits).run("q")
    assert run.status == "answered" and run.calls == 4 and sorted(begun) == ["a", "model", "model"]


# ---- plans that can't be run


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("#E1 = find[a]\n#E1 = find[b]", "Step E1 is given twice."),
        ("#E1 = find[#E2]\n#E2 = find[a]", "Step E1 names E2, which comes only later."),
        ("#E1 = join[#E2]\n#E2 = join[#E1]", "These steps wait for each other: "),
        ("#E1 = find[#E5]", "Step E1 names E5, which no step gives."),
        ("#E1 = fetch[a]", "'fetch', which is no tool. There are: LLM, find, join."),
        ("Plan: I know it.", "There is no call in your plan"),
        ("", "Your reply is empty"),
    ],
)
def test_a_plan_that_can_not_be_run_gets_one_repair_turn(journal: Path, bad: str, said: str) -> None:
    made = agent(journal, [lambda think: bad if len(think.messages) == 2 else PLAN] * 2)
    run = made.run("q")
    assert run.answer == "solved" and len(calls(run)) == 3
    first, second = prompts(run, "plan")
    assert second[: len(first)] == first, "the prompt only grows at its end"
    assert said in second[-1] and (not bad or second[-2] == bad)
    assert len(notes(run, "unreadable")) == 1 and made.replay(run.id).whole


def test_after_two_bad_plans_the_loop_goes_on_as_react_and_says_so(journal: Path) -> None:
    made = agent(journal, ["I just know.", "No plan."])
    run = made.run("q")
    assert (run.status, run.answer) == ("answered", "by react")
    assert len(prompts(run, "plan")) == 2 and len(prompts(run, "react.act")) == 1
    (told,) = notes(run, "fallback")
    assert told.startswith("There is no plan to carry out.") and told.endswith("Going on with the loop 'react'.")
    assert made.replay(run.id).whole


def test_without_a_fallback_two_bad_plans_fail(journal: Path) -> None:
    run = agent(journal, ["x", "#E1 = find[#E9]"], options={"fallback": ""}).run("q")
    assert (run.status, run.outcome.kind) == ("failed", "format")
    assert "Step E1 names E9, which no step gives." in str(run.reason) and not calls(run)


def test_an_empty_reply_of_the_solver_is_no_answer(journal: Path) -> None:
    run = agent(journal, solve=["  "]).run("q")
    assert (run.status, run.outcome.kind) == ("failed", "format")


# ---- steps that fail

FAILING = "#E1 = find[nowhere]\n#E2 = find[a]\n#E3 = join[#E1, #E2]\n#E4 = LLM[Say #E1 or #E3.]\n#E5 = join[#E2, #E4]"


def test_a_failed_step_gives_no_evidence_tools_that_need_it_are_left_out_the_model_is_told(journal: Path) -> None:
    made = agent(journal, FAILING, work=["neither"])
    run = made.run("q")
    assert run.answer == "solved"
    assert [call.tool for call in calls(run)] == ["find", "find", "join"]
    assert calls(run)[-1].input == ["12", "neither"]
    assert prompts(run, "work")[0][0].startswith("Say no evidence or no evidence.")
    assert "#E1 = find[nowhere]\nEvidence: no evidence (Error: there is no nowhere)\n" in solver(run)
    assert "Evidence: no evidence (It needs the evidence of E1, which gave none.)" in solver(run)
    assert "Evidence: 12\n" in solver(run) and "Evidence: 12+neither\n" in solver(run)
    assert notes(run, "skipped") == ["Step E3 was not run. It needs the evidence of E1, which gave none."]
    assert made.replay(run.id).whole


def test_or_the_run_stops_there_and_says_which_step_failed_and_why(journal: Path) -> None:
    made = agent(journal, FAILING, options={"on_failure": "stop"})
    run = made.run("q")
    assert (run.status, run.outcome.kind) == ("failed", "gave_up")
    assert run.reason == "Step E1 (find) gave no evidence: Error: there is no nowhere"
    assert not prompts(run, "solve") and made.replay(run.id).whole


# ---- limits


def test_a_limit_while_planning_gives_an_answer_from_nothing(journal: Path) -> None:
    run = agent(journal, limits=plait.Limits(calls=1)).run("q")
    assert (run.status, run.answer, run.calls) == ("stopped", "solved", 1)
    assert "Evidence" not in solver(run) and "one of 1 model calls is left" in solver(run)


def test_a_limit_while_working_gives_an_answer_from_the_evidence_so_far(journal: Path) -> None:
    made = agent(journal, "#E1 = find[a]\n#E2 = LLM[#E1]\n#E3 = find[b]", limits=plait.Limits(calls=2))
    run = made.run("q")
    assert (run.status, run.outcome.limit, run.answer, run.calls) == ("stopped", "calls", "solved", 2)
    assert "#E1 = find[a]\nEvidence: 12\n" in solver(run) and "#E2 = LLM[#E1]\nEvidence: no evidence\n" in solver(run)
    assert "one of 2 model calls is left" in solver(run)
    assert made.replay(run.id).whole


# ---- a plan that is given

GIVEN = Plan(
    (Step("E1", "find", "a", "The first."), Step("E2", "find", "b"), Step("E3", "join", "#E1 and #E2")),
    {"E1": "kept"},
)


def test_a_given_plan_is_run_without_a_planner_and_kept_evidence_is_not_found_again(journal: Path) -> None:
    made = agent(journal, [], options={"plan": GIVEN})
    run = made.run("q")
    assert run.calls == 1 and [call.input for call in calls(run)] == ["b", "kept and 30"]
    assert "Plan: The first.\n#E1 = find[a]\nEvidence: kept\n" in solver(run)
    assert made.replay(run.id).whole


def test_a_given_plan_that_can_not_be_run_fails_before_anything_is_called(journal: Path) -> None:
    plan = Plan((Step("E1", "fetch", "#E2"),))
    run = agent(journal, [], options={"plan": plan}).run("q")
    assert (run.status, run.calls) == ("failed", 0)
    assert "'fetch', which is no tool" in str(run.reason) and "E2, which no step gives" in str(run.reason)


def test_only_the_plan_is_made_as_json_that_can_be_run_later(journal: Path) -> None:
    run = agent(journal, options={"only_plan": True}, approve="plan").run("q")
    assert run.status == "answered" and not calls(run) and run.calls == 1
    plan = msgspec.convert(run.answer, Plan)
    assert write_plan(plan).startswith("Plan: the first\n#E1 = find[a]\n")
    assert agent(journal, [], options={"plan": plan}).run("q").answer == "solved"
    assert agent(journal, ["no", "no"], options={"only_plan": True}).run("q").status == "failed"
    stopped = agent(journal, options={"only_plan": True}, limits=plait.Limits(calls=1)).run("q")
    assert (stopped.status, stopped.calls) == ("stopped", 0)


def test_the_options_survive_json() -> None:
    rewoo = ReWOO(plan=GIVEN, on_failure="stop", fallback="", max_tokens=9, constrain=True)
    options = json.loads(json.dumps(loops.options_of(rewoo)))
    assert loops.make("rewoo", options) == rewoo
    assert loops.phases_of(ReWOO()) == ("plan", "work", "solve", "react.act")
    with pytest.raises(ConfigError, match="go_on or stop"):
        loops.make("rewoo", {"on_failure": "explode"})


def test_a_recorded_run_with_a_given_plan_is_replayed_from_its_record_alone(journal: Path) -> None:
    run = agent(journal, [], options={"plan": GIVEN}).run("q")
    head = Journal(journal).run(run.id).head
    again = plait.Agent.from_journal(
        head, journal=journal, tools=[find, join], model=plait.Scripted([], name="scripted")
    )
    assert again.replay(run.id).whole


def test_constrained_planning_sends_a_grammar_of_the_users_tools(journal: Path) -> None:
    loop = ReWOO(constrain=True).run(Task("q"), LoopContext((find.spec, join.spec), PromptBook("rewoo")))
    effect = next(loop)
    assert isinstance(effect, Think) and 'name ::= "find" | "join" | "LLM"' in str(effect.grammar)


# ---- leave


def person(*answers: str) -> tuple[Callable[[Waiting], Any], list[Waiting]]:
    left, asked = list(answers), []

    async def answer(waiting: Waiting) -> str | None:
        asked.append(waiting)
        return left.pop(0) if left else None

    return answer, asked


def test_the_plan_is_shown_and_waits_for_leave(journal: Path) -> None:
    made = agent(journal, approve="plan")
    run = made.run("q")
    assert (run.status, run.outcome.kind) == ("waiting", "plan") and not calls(run)
    assert str(run.reason) == PLAN.replace("[#E1, #E2]", '[["#E1", "#E2"]]')
    done = made.resume(run, "Yes.")
    assert done.answer == "solved" and len(calls(done)) == 3 and made.replay(run.id).whole


@pytest.mark.parametrize("word", ["no", "No.", ""])
def test_a_refused_plan_ends_the_run(journal: Path, word: str) -> None:
    answer, _ = person(word)
    run = agent(journal, approve="plan").run("q", on_wait=answer)
    assert (run.status, run.reason) == ("failed", "The user refused the plan.") and not calls(run)


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_edited_plan_is_run_in_place_of_the_planners(journal: Path, form: str) -> None:
    edited = Plan((Step("E1", "find", "b", "Only this."),))
    answer, asked = person(write_plan(edited) if form == "text" else msgspec.json.encode(edited).decode())
    made = agent(journal, approve="plan")
    run = made.run("q", on_wait=answer)
    assert run.answer == "solved" and calls(run) == [Call("find", "b")] and len(asked) == 1
    assert made.replay(run.id).whole


def test_an_edited_plan_with_an_error_is_asked_for_once_more(journal: Path) -> None:
    answer, asked = person("#E1 = find[#E9]", "#E1 = find[b]")
    run = agent(journal, approve="plan").run("q", on_wait=answer)
    assert run.answer == "solved" and calls(run) == [Call("find", "b")]
    assert asked[1].reason.startswith("# That plan can't be carried out: Step E1 names E9, which no step gives.\nPlan:")
    answer, asked = person("#E1 = find[#E9]", '{"steps": []}', "yes")
    run = agent(journal, approve="plan").run("q", on_wait=answer)
    assert (run.status, run.outcome.kind, len(asked)) == ("failed", "format", 2) and not calls(run)


def test_other_words_are_told_to_the_planner_three_times_at_most(journal: Path) -> None:
    answer, asked = person("Only b, please", "ok")
    made = agent(journal, [PLAN, "Plan: b\n#E1 = find[b]"], approve="plan")
    run = made.run("q", on_wait=answer)
    assert calls(run) == [Call("find", "b")] and asked[1].reason == "Plan: b\n#E1 = find[b]"
    first, second = prompts(run, "plan")
    assert second[:2] == first and second[2] == asked[0].reason and "Only b, please" in second[3]
    assert made.replay(run.id).whole
    answer, asked = person(*["other"] * 5)
    run = agent(journal, [f"#E1 = find[{key}]" for key in "abcde"], approve="plan").run("q", on_wait=answer)
    assert run.status == "failed" and len(asked) == 4 and "any of 4 plans" in str(run.reason)


def test_a_given_plan_is_shown_as_well(journal: Path) -> None:
    answer, asked = person("go on")
    run = agent(journal, [], options={"plan": GIVEN}, approve="plan").run("q", on_wait=answer)
    assert run.answer == "solved" and asked[0].reason == write_plan(GIVEN)


# ---- as a generator


def test_the_loop_needs_no_runtime() -> None:
    """Every effect it yields, and what it is sent, by hand: no model, no tool, no clock."""
    loop = ReWOO().run(Task("q"), LoopContext((find.spec,), PromptBook("rewoo")))
    assert isinstance(next(loop), Think)
    plan = "Look:\nPlan: a\n#E1 = find[a]\n#E2 = find[#E1]"
    assert loop.send(Reply(plan)) == CheckGrounding(calls=(Call("find", "a"),))
    assert loop.send(()) == CheckGrounding(calls=(Call("find", ""),))
    assert loop.send(()) == Note("cut", "5 characters before the plan")
    assert loop.send(None) == Start((Act((Call("find", "a"),), fixed=True),))
    assert loop.send((7,)) == WaitNext((7,))
    assert loop.send(WaitResult(7, observations=(Observation("12"),))) == Start((Act((Call("find", "12"),)),))
    assert loop.send((9,)) == WaitNext((9,))
    solve = loop.send(WaitResult(9, observations=(Observation("13"),)))
    assert isinstance(solve, Think) and solve.phase == "solve" and "Evidence: 13" in solve.messages[0].content
    assert loop.send(Reply("It is 13.")) == CheckAnswer("It is 13.", only_output=True)
    assert loop.send("") == CheckAnswer("It is 13.")
    with pytest.raises(StopIteration) as end:
        loop.send("")
    assert end.value.value == Answered("It is 13.")


# -- checks before any call runs


@pytest.mark.parametrize("query", ["7-eleven", "catch-22, 1961", "mass of Jupiter - #E1"])
def test_a_search_that_looks_like_a_formula_costs_no_further_model_call(query: str, journal: Path) -> None:
    run = agent(journal, f"Plan: a\n#E1 = join[Ain]\nPlan: b\n#E2 = find[{query}]").run("q")
    assert len(calls(run)) == 2 and run.calls == 2


def test_an_input_that_a_tool_cannot_take_is_asked_for_again_before_any_call_runs(journal: Path) -> None:
    @plait.tool(read_only=True)
    def double(number: int) -> int:
        """Doubles a number."""
        return 2 * number

    bad = "Plan: a\n#E1 = join[Ain]\nPlan: b\n#E2 = double[a dozen]"
    run = agent(journal, [bad, "Plan: a\n#E1 = double[12]"], tools=[join, double]).run("q")
    assert [call.tool for call in calls(run)] == ["double"] and run.calls == 3
