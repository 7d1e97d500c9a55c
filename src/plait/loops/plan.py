"""Shared by loops that plan: the protocol `Planner`, making and approving a plan, and running its steps.

A step starts as soon as the results it names exist. So a plan takes as long as its longest chain of dependent steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import msgspec

from plait.core import (
    Act,
    Answered,
    Effects,
    Failed,
    Loop,
    LoopContext,
    Message,
    Observation,
    Outcome,
    Plan,
    Reply,
    Step,
    Task,
    Think,
    ToolSpec,
    WaitResult,
    ask,
    assistant,
    continue_turn,
    note,
    start,
    user,
    wait_next,
)
from plait.loops import plan_text
from plait.loops.format import Unreadable

Results: TypeAlias = Mapping[str, Observation]
Begin: TypeAlias = Callable[[Step, Results], Think | Act | Observation]
"""Makes a step's effect from the results so far, or an observation if the step need not or cannot run."""

NO_EVIDENCE = "no evidence"
"""What a prompt shows in place of a missing result."""


@runtime_checkable
class Planner(Loop, Protocol):
    """A loop whose plan can be printed, priced, edited, approved and run later. Subclass it for the defaults.

    It is a dataclass with two options: `plan`, a plan to run without asking for one, and `only_plan`, which ends the
    run with the plan as the answer. Its phases are `plan`, `solve`, and `work` if steps ask the model. Steps have the
    ids E1, E2 ..., and inputs name results as `#E1`. `make_plan` implements both options and asks for approval.
    `makes_plan`: a run has a plan that a user can approve; `compiler` has it too.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    makes_plan: ClassVar[bool] = True

    @property
    def plan(self) -> Plan | None: ...

    @property
    def only_plan(self) -> bool: ...

    def read_plan(self, text: str, context: LoopContext) -> Plan:
        """Return the plan in a reply of the phase `plan`. Raises `Unreadable`."""
        ...

    def plan_messages(self, context: LoopContext, task: Task) -> tuple[Message, ...]: ...

    def work_messages(self, context: LoopContext, task: Task, step: Step, results: Results) -> tuple[Message, ...]:
        """Return the request of a step that asks the model; empty for a step that calls a tool."""
        return ()

    def solve_messages(
        self, context: LoopContext, task: Task, plan: Plan, results: Results, chars: int
    ) -> tuple[Message, ...]:
        """Return the request of the phase `solve`, with at most `chars` characters of each result."""
        ...


def list_callable(loop: Loop, tools: Iterable[ToolSpec]) -> tuple[ToolSpec, ...]:
    """Return what a plan of this loop may call: the tools, and the model if the loop has a phase `work` for it."""
    return plan_text.with_llm(tools) if "work" in loop.phases else tuple(tools)


def make_plan(
    loop: Planner, context: LoopContext, ask_planner: Callable[[tuple[Message, ...]], Effects[Plan | Outcome]]
) -> Effects[Plan | Outcome]:
    """Return the plan to run, or the run's outcome without one. An `only_plan` run ends with the plan as its answer.

    `ask_planner` makes the plan with a model call. It gets the comments on earlier plans, for the end of its request.
    """
    tools = list_callable(loop, context.known_tools)

    def check(plan: Plan) -> Plan:
        return plan_text.check_plan(plan, tools, check_inputs=True)

    if loop.plan is None:
        made = yield from ask_planner(())
    else:
        try:
            made = check(loop.plan)
        except Unreadable as why:
            return Failed(f"The plan that was given can't be carried out: {why}", kind="format")
    if not isinstance(made, Plan):
        return made
    if loop.only_plan:
        return Answered(msgspec.json.decode(msgspec.json.encode(made)))
    if not context.approve_plan:
        return made
    said: list[Message] = []

    def replan(plan: Plan, words: str) -> Effects[Plan | Outcome]:
        said.extend((assistant(plan_text.write_plan(plan)), user(context.prompt("feedback", words=words))))
        return (yield from ask_planner(tuple(said)))

    def read(text: str) -> Plan:
        return check(plan_text.read_plan_file(text, tools))

    return (yield from ask_approval(made, plan_text.write_plan, plan_text.reads_as_plan, read, replan))


class Dispatch:
    """The steps of one run: `open` are running, by ticket, `waiting` need others, `results`: the ended, by id."""

    def __init__(self, begin: Begin, results: Results | None = None) -> None:
        self.results: dict[str, Observation] = dict(results or {})
        self._begin = begin
        self.waiting: list[Step] = []
        self.open: dict[int, Step] = {}
        self._begun: dict[int, Think | Act] = {}

    def add(self, *steps: Step) -> Effects[None]:
        """Add steps, and start those that can start."""
        self.waiting += [step for step in steps if step.id not in self.results]
        yield from self._start()

    def add_plan(self, plan: Plan) -> Effects[None]:
        """Add the calls of a plan. Those that have evidence do not run."""
        self.results.update((id, Observation(text)) for id, text in plan.evidence.items())
        yield from self.add(*plan.calls)

    def end_with(self, taken: WaitResult) -> Effects[Step]:
        """Store what the runtime returned for a step, and start the steps that waited for it."""
        several = taken.observations
        if taken.reply is not None:
            asked = self._begun[taken.ticket]
            assert isinstance(asked, Think)
            seen = observation_of_reply((yield from continue_turn(asked, taken.reply)))
        elif len(several) == 1:
            seen = several[0]
        else:
            seen = Observation(
                "\n".join(each.text for each in several),
                next((each.trouble for each in several if not each.ok), ""),
                " ".join(each.note for each in several if each.note),
                [each.value for each in several],
                max(each.seconds for each in several),
            )
        return (yield from self.end(taken.ticket, seen))

    def end(self, ticket: int, result: Observation) -> Effects[Step]:
        """Store a result from elsewhere for a step, and start the steps that waited for it."""
        step = self.open.pop(ticket)
        self.results[step.id] = result
        yield from self._start()
        return step

    def finish(self) -> Effects[None]:
        """Wait for all running steps, and for those that depend on them."""
        while self.open:
            yield from self.end_with((yield from wait_next(*self.open)))

    def _start(self) -> Effects[None]:
        while self.waiting and (ready := [step for step in self.waiting if self.results.keys() >= set(step.needs)]):
            self.waiting = [step for step in self.waiting if step not in ready]
            begun = [(step, self._begin(step, self.results)) for step in ready]
            self.results.update((step.id, made) for step, made in begun if isinstance(made, Observation))
            to_do = [(step, made) for step, made in begun if not isinstance(made, Observation)]
            if to_do:
                tickets = yield from start(*(made for _, made in to_do))
                self.open.update(zip(tickets, (step for step, _ in to_do), strict=True))
                self._begun.update(zip(tickets, (made for _, made in to_do), strict=True))


def observation_of_reply(reply: Reply) -> Observation:
    """Return the result of a step that asked a model, with a note if the reply was cut."""
    reply = reply.without_unopened_reasoning()
    text = reply.text.strip() or reply.only_reasoning
    return Observation(f"{text}\n(This text {reply.how_cut}.)".lstrip() if reply.how_cut else text)


def failed_needs(step: Step, results: Results, mark: str = "") -> str:
    """Name the needed results that are missing, or "". A tool that got the text of an error could act on it."""
    return ", ".join(f"{mark}{need}" for need in step.needs if not results[need].ok)


YES = ("yes", "y", "ok", "okay", "approve", "approved", "go", "go on", "run")
NO = ("", "no", "n", "refuse", "refused", "reject", "rejected", "cancel", "stop")
ROUNDS = 3
"""How often the planner is asked again with the user's comments."""


def ask_approval(
    plan: Plan,
    write: Callable[[Plan], str],
    is_plan: Callable[[str], bool],
    read: Callable[[str], Plan],
    replan: Callable[[Plan, str], Effects[Plan | Outcome]],
) -> Effects[Plan | Outcome]:
    """Ask the user to approve a plan. Return the approved plan, or the run's outcome without one.

    `write` makes the text that is shown. `is_plan` recognises an answer that is a plan: `read` reads it (if it raises
    `Unreadable`, the user is asked once more), and it runs as it is. Other words go to `replan` with the plan, at most
    `ROUNDS` times.
    """
    complaint = ""
    rounds = 0
    while True:
        answer = (yield from ask(complaint + write(plan), kind="plan")).strip()
        word = answer.rstrip(".!").lower()
        if word in YES:
            return plan
        if word in NO:
            return Failed("The user refused the plan.")
        if is_plan(answer):
            try:
                return read(answer)
            except Unreadable as why:
                if complaint:
                    return Failed(f"The plan that the user gave can't be carried out: {why}", kind="format")
                complaint = f"# That plan can't be carried out: {why}\n"
                continue
        if rounds == ROUNDS:
            return Failed(f"The user did not agree to any of {ROUNDS + 1} plans. Their last words: {answer}")
        rounds, complaint = rounds + 1, ""
        yield from note("replan", f"The user wants another plan: {answer}")
        made = yield from replan(plan, answer)
        if not isinstance(made, Plan):
            return made
        plan = made
