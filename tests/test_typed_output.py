"""Typed output: what `Agent(output=...)` returns, what it asks again, how it fails, and what a record needs."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

import plait
from conftest import for_each
from models_server import Asked, Server, completion, delta, whole_stream
from plait.core import Answered, LoopContext, LoopRun, OneKind, Task, system, think, user
from plait.core import Reply as ModelReply
from plait.core.events import Noted, PartialOutput
from plait.models.base import Abilities
from typed_support import BAD, GOOD, LOOPS, QUESTION, Trip, agent, script, write_answer


@dataclass
class Stay:
    city: str
    until: date


class Place(TypedDict):
    city: str


@pytest.mark.parametrize("loop", LOOPS)
def test_every_loop_gives_a_value_of_the_output_type(loop: str) -> None:
    run = agent(loop, Trip, GOOD).run(QUESTION)
    assert run.status == "answered", run.reason
    assert run.output == Trip(city="Lyon", days=3)
    assert run.answer == {"city": "Lyon", "days": 3}


@pytest.mark.parametrize("loop", LOOPS)
def test_every_loop_asks_again_with_the_error(loop: str, tmp_path: Path) -> None:
    made = agent(loop, Trip, BAD, GOOD, journal=tmp_path / "j.db")
    run = made.run(QUESTION)
    assert (run.status, run.output) == ("answered", Trip(city="Lyon", days=3)), run.reason
    notes = [event.text for event in run.events if isinstance(event, Noted) and event.kind == "output"]
    assert len(notes) == 1 and "answer.days is missing" in notes[0]
    last = run.timeline.model_calls[-1].attempts[0].request.decode()
    assert "answer.days is missing" in last and "Lyon" in last
    assert made.replay(run.id).whole


@pytest.mark.parametrize("loop", LOOPS)
def test_every_loop_fails_with_the_last_error(loop: str, tmp_path: Path) -> None:
    made = agent(loop, Trip, *[BAD] * 6, journal=tmp_path / "j.db")
    run = made.run(QUESTION)
    assert run.status == "failed" and run.outcome.kind == "output"  # type: ignore[union-attr]
    assert "answer.days is missing" in str(run.reason)
    assert len([1 for event in run.events if isinstance(event, Noted) and event.kind == "output"]) == 3
    assert made.replay(run.id).whole
    with pytest.raises(plait.OutputError, match=r"answer\.days is missing"):
        _ = run.output


@for_each(
    ("output", "answer", "value"),
    [
        (int, "42", 42),
        (float, "2.5", 2.5),
        (bool, "yes", True),
        (date, "2026-11-24", date(2026, 11, 24)),
        (list[int], "They are [1, 2].", [1, 2]),
        (list[int], "12, 15, 9", [12, 15, 9]),
        (dict[str, int], '```json\n{"a": 1,}\n```', {"a": 1}),
        (Literal["small", "large"], "Large", "large"),
        (Literal["small", "large"], '{"size": "large"}', "large"),
        (list[int], '{"numbers": [3, 4]}', [3, 4]),
        (dict[str, int], '{"answers": 3}', {"answers": 3}),
        (int | None, "null", None),
        (Trip | Stay, '{"city": "Lyon", "until": "2026-12-01"}', Stay("Lyon", date(2026, 12, 1))),
        (Place, '{"city": "Lyon"}', {"city": "Lyon"}),
        (Stay, '{"city": "Lyon", "until": "2026-12-01"}', Stay("Lyon", date(2026, 12, 1))),
        ({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}, '{"n": "3"}', {"n": 3}),
    ],
)
def test_an_output_may_be_any_of_these_types(output: Any, answer: str, value: Any) -> None:
    run = agent("tool_calling", output, answer).run(QUESTION)
    assert run.status == "answered", run.reason
    assert run.output == value


def test_a_type_without_a_json_schema_is_refused_when_the_agent_is_made() -> None:
    class Opaque:
        pass

    with pytest.raises(plait.ConfigError, match="The output Opaque has no JSON Schema"):
        plait.Agent(output=Opaque)


def test_without_an_output_type_the_output_is_the_text() -> None:
    run = plait.Agent("tool_calling", model=plait.Scripted(["Lyon."]), journal=False).run(QUESTION)
    assert (run.output, run.answer) == ("Lyon.", "Lyon.")


def test_a_check_objects_with_a_text_or_a_value_error(tmp_path: Path) -> None:
    calls: list[int] = []

    def is_short(trip: Trip) -> str | None:
        calls.append(trip.days)
        return "at most 5 days" if trip.days > 5 else None

    def is_in_france(trip: Trip) -> None:
        if trip.city != "Lyon":
            raise ValueError(f"{trip.city} is not in France")

    answers = ['{"city": "Lyon", "days": 9}', '{"city": "Rome", "days": 3}', GOOD]
    made = agent("react", plait.OutputType(Trip, [is_short, is_in_france]), *answers, journal=tmp_path / "j.db")
    run = made.run(QUESTION)
    assert run.output.days == 3
    notes = [event.text for event in run.events if isinstance(event, Noted) and event.kind == "output"]
    assert notes == ["The answer is not accepted: at most 5 days", "The answer is not accepted: Rome is not in France"]
    before = list(calls)
    assert made.replay(run.id).whole
    assert calls == before, "a replay takes the objections from the record"


def test_a_check_that_would_object_otherwise_does_not_change_a_replay(tmp_path: Path) -> None:
    answers = [GOOD, GOOD]
    verdicts = iter(["too early", None])
    made = agent(
        "tool_calling", plait.OutputType(Trip, [lambda _: next(verdicts)]), *answers, journal=tmp_path / "j.db"
    )
    run = made.run(QUESTION)
    assert run.status == "answered"
    assert made.using(output=plait.OutputType(Trip, [lambda _: "never"])).replay(run.id).whole


def test_text_answers_have_checks_too() -> None:
    made = agent("tool_calling", plait.OutputType(str, [lambda text: "say yes" if text == "no" else ""]), "no", "yes")
    assert made.run(QUESTION).output == "yes"


def test_a_check_that_breaks_ends_the_run_with_its_name() -> None:
    def divides(trip: Trip) -> str:
        return str(1 / 0)

    run = agent("react", plait.OutputType(Trip, [divides]), GOOD).run(QUESTION)
    assert run.status == "crashed" and "The output check 'divides' broke: ZeroDivisionError" in str(run.reason)


def test_retries_says_how_often_the_model_is_asked_again() -> None:
    run = agent("tool_calling", plait.OutputType(Trip, retries=0), BAD, BAD, GOOD).run(QUESTION)
    assert (run.status, run.calls) == ("failed", 1)


def test_a_run_is_resumed_only_with_the_type_it_began_with(tmp_path: Path) -> None:
    made = agent("tool_calling", Trip, GOOD, journal=tmp_path / "j.db")
    run = made.run(QUESTION)
    assert made.resume(run.id).output == Trip(city="Lyon", days=3)
    with pytest.raises(plait.ConfigError, match="was started with the output"):
        made.using(output=Stay).resume(run.id)
    with pytest.raises(plait.ReplayDiffers, match="JSON Schema"):
        made.using(output=str).replay(run.id)


def test_the_record_is_enough_to_replay_a_typed_run(tmp_path: Path) -> None:
    run = agent("rewoo", Trip, BAD, GOOD, journal=tmp_path / "j.db").run(QUESTION)
    from plait.journal.store import Journal

    head = Journal.at(tmp_path / "j.db").run(run.id).head
    recorded = plait.Agent.from_journal(head, journal=tmp_path / "j.db", model=plait.Scripted([]))
    assert recorded.replay(run.id).whole
    assert recorded.resume(run.id).output == {"city": "Lyon", "days": 3}


@pytest.mark.parametrize("loop", ["react", "json", "tool_calling", "rewoo"])
async def test_the_answer_is_followed_while_it_is_written(loop: str) -> None:
    text = script(loop, '{"city": "Lyon",\n"days": 3,\n"note": "by train"}')
    replies = iter(text)

    async def stream(asked: Asked) -> None:
        await asked.begin()
        for char in next(replies):
            await asked.piece(delta(char))
        await asked.piece(whole_stream(""))
        await asked.end()

    async with Server(stream) as server:
        made = plait.Agent(loop, model=server.model(), output=Trip, journal=False, can_ask=False)
        events = [each async for each in made.stream(QUESTION)]
    values = [each.value for each in events if isinstance(each, PartialOutput)]
    assert values[-1] == Trip(city="Lyon", days=3, note="by train")
    assert {"city": "Lyon"} in values or loop == "tool_calling", values


async def test_a_run_that_is_interrupted_after_an_objection_takes_it_from_the_record(tmp_path: Path) -> None:
    asked_again, objections = asyncio.Event(), iter(["too early"])

    async def handler(asked: Asked) -> None:
        if len(server.asked) == 2:
            asked_again.set()
            await asyncio.sleep(60)
        await asked.answer(200, completion(GOOD))

    async with Server(handler) as server:
        made = plait.Agent(
            "tool_calling",
            model=server.model(abilities=Abilities(stream=False, stream_usage=False)),
            output=plait.OutputType(Trip, [lambda _: next(objections, None)]),
            journal=tmp_path / "j.db",
        )
        running = asyncio.create_task(made.arun(QUESTION))
        await asked_again.wait()
        running.cancel()
        await asyncio.wait([running])
        run = await made.aresume("last")
    assert run.output == Trip(city="Lyon", days=3), run.reason
    bodies = [json.loads(asked.raw) for asked in server.asked]
    assert bodies[1]["messages"] == bodies[2]["messages"] and "too early" in str(bodies[2]["messages"][-1])
    assert made.replay(run.id).whole


def test_a_limit_that_is_near_ends_with_the_answer_that_fits(tmp_path: Path) -> None:
    made = agent("react", Trip, BAD, GOOD, journal=tmp_path / "j.db", limits=plait.Limits(calls=2))
    run = made.run(QUESTION)
    assert (run.status, run.answer) == ("stopped", {"city": "Lyon", "days": 3})
    assert run.output == Trip(city="Lyon", days=3)
    assert made.replay(run.id).whole


def test_a_loop_that_falls_back_keeps_the_type(tmp_path: Path) -> None:
    replies = ["No plan.", "No plan.", write_answer("react", BAD), write_answer("react", GOOD)]
    model = plait.Scripted(replies, by_turn=False)
    run = plait.Agent("rewoo", model=model, output=Trip, journal=False, instructions="Be kind.").run(QUESTION)
    assert run.output == Trip(city="Lyon", days=3), run.reason
    assert all("Be kind." in call.request.decode() for call in run.timeline.model_calls)


def test_an_answer_that_stands_alone_is_taken_by_every_loop_with_turns() -> None:
    for loop in ("react", "json", "codeact"):
        model = plait.Scripted([GOOD], by_turn=False)
        run = plait.Agent(loop, model=model, output=Trip, journal=False).run(QUESTION)
        assert run.output == Trip(city="Lyon", days=3), (loop, run.reason)


def test_a_union_of_objects_is_checked_also_without_python_types() -> None:
    schema = {"anyOf": [Trip.model_json_schema(), {"type": "object", "properties": {}, "required": ["n"]}]}
    run = agent("tool_calling", schema, BAD, GOOD).run(QUESTION)
    assert run.output == {"city": "Lyon", "days": 3}


def test_null_for_a_field_that_may_be_left_out_is_left_out() -> None:
    run = agent("tool_calling", Trip, '{"city": "Lyon", "days": 3, "note": null}').run(QUESTION)
    assert run.answer == {"city": "Lyon", "days": 3}


class Reply(BaseModel):
    answer: int


@pytest.mark.parametrize(("output", "shown"), [(Trip, '"year": 1815'), (int, '"value": 1815'), (list[int], '"value"')])
def test_the_example_of_the_json_loop_has_the_shape_of_the_output(output: Any, shown: str) -> None:
    run = agent("json", output, '{"thought": "x", "tool": "final_answer", "tool_input": 5}').run(QUESTION)
    asked = next(row for row in run.trace if row.body is not None)
    request = (asked.body or b"").decode().replace('\\"', '"')
    assert shown in request
    assert ('"author"' in request) == (output is Trip)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_type_with_a_field_named_like_the_loops_own_is_no_problem(loop: str) -> None:
    assert agent(loop, Reply, '{"answer": 5}').run(QUESTION).output == Reply(answer=5)


def test_a_lone_value_is_the_only_field_of_a_type() -> None:
    run = agent("tool_calling", Reply, '{"name": "final_answer", "arguments": {"answer": 5}}').run(QUESTION)
    assert run.output == Reply(answer=5), run.reason


def test_an_answer_that_is_cut_is_asked_for_again() -> None:
    replies = [
        ModelReply("So."),
        ModelReply('{"city": "Ly', finish="length"),
        ModelReply(".", finish="length"),
        ModelReply(GOOD),
    ]
    run = plait.Agent("phased", model=plait.Scripted(replies, by_turn=False), output=Trip, journal=False).run(QUESTION)
    assert run.output == Trip(city="Lyon", days=3), run.reason


@dataclass(frozen=True)
class Careless:
    """A loop of a user that does not check its answer."""

    name: ClassVar[str] = "careless"
    phases: ClassVar[tuple[str, ...]] = ("act",)

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        reply = yield from think("act", [system(context.output_rules()), user(task.question)])
        return Answered(reply.text)

    def splitter(self, phase: str) -> OneKind:
        return OneKind("answer")


def test_a_loop_that_does_not_check_its_answer_fails_instead_of_giving_a_wrong_one() -> None:
    good = plait.Agent(Careless(), model=plait.Scripted([GOOD]), output=Trip, journal=False).run(QUESTION)
    assert good.output == Trip(city="Lyon", days=3)
    assert '\\"required\\": [\\"city\\", \\"days\\"]' in good.timeline.model_calls[0].request.decode()
    bad = plait.Agent(Careless(), model=plait.Scripted([BAD]), output=Trip, journal=False).run(QUESTION)
    assert bad.status == "failed" and "answer.days is missing" in str(bad.reason)
