"""What loops that plan share: the protocol `Planner`, carrying out the steps of a plan, and its approval.

Steps do not run level by level: a step waits for the results it names and for nothing else, so that the whole takes as
long as the longest chain of steps that need each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

from plait.core import (
    Act,
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
    WaitResult,
    ask,
    note,
    start,
    wait_next,
)
from plait.loops.format import Unreadable

Results: TypeAlias = Mapping[str, Observation]
Begin: TypeAlias = Callable[[Step, Results], Think | Act | Observation]
"""Makes a step's effect, given the results so far; an observation for a step that need not, or can't, be performed."""


@runtime_checkable
class Planner(Loop, Protocol):
    """A loop whose plan can be printed, priced, edited, approved and carried out later. Subclass it for the defaults.

    It is a dataclass. Its options are `plan`, a plan to carry out without asking for one, and `only_plan`: answer with
    the plan. Its phases are `plan`, `solve`, and `work` if steps ask the model. Steps have the ids E1, E2 ..., and
    inputs name results as `#E1`. `plait.loops.rewoo.planner.make_plan` serves both options and asks for approval.
    `makes_plan` says that a run has a plan, which a user can approve; `compiler` has it too.
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

    def plan_messages(self, context: LoopContext, task: Task) -> tuple[Message, ...]:
        """Return the request of the phase `plan`."""
        ...

    def work_messages(self, context: LoopContext, task: Task, step: Step, results: Results) -> tuple[Message, ...]:
        """Return the request of a step that asks the model; none for a step that calls a tool."""
        return ()

    def solve_messages(
        self, context: LoopContext, task: Task, plan: Plan, results: Results, chars: int
    ) -> tuple[Message, ...]:
        """Return the request of the phase `solve`, with at most `chars` characters of each result."""
        ...


class Dispatch:
    """Steps under way in one run. `results` maps the id of each step that ended to what came of it."""

    def __init__(self, begin: Begin, results: Results | None = None) -> None:
        self.results: dict[str, Observation] = dict(results or {})
        self._begin = begin
        self._waiting: list[Step] = []
        self._open: dict[int, Step] = {}

    def add(self, *steps: Step) -> Effects[None]:
        """Take on further steps, and start those that can."""
        self._waiting += [step for step in steps if step.id not in self.results]
        yield from self._start()

    def mine(self, taken: WaitResult) -> bool:
        """What was taken is a step's result."""
        return taken.ticket in self._open

    @property
    def open(self) -> Mapping[int, Step]:
        """The steps under way, by ticket."""
        return self._open

    def took(self, taken: WaitResult) -> Effects[Step]:
        """A step ended: keep its result, and start what waited for it."""
        reply = taken.reply
        seen = _together(taken.observations) if reply is None else observation_of_reply(reply)
        return (yield from self.end(taken.ticket, seen))

    def end(self, ticket: int, result: Observation) -> Effects[Step]:
        """The same, for a result that was come by in another way."""
        step = self._open.pop(ticket)
        self.results[step.id] = result
        yield from self._start()
        return step

    def finish(self) -> Effects[None]:
        """Wait for all steps that are under way, and for those that wait for them."""
        while self._open:
            yield from self.took((yield from wait_next(*self._open)))

    def _start(self) -> Effects[None]:
        while self._waiting and (ready := [step for step in self._waiting if self.results.keys() >= set(step.needs)]):
            self._waiting = [step for step in self._waiting if step not in ready]
            begun = [(step, self._begin(step, self.results)) for step in ready]
            self.results.update((step.id, made) for step, made in begun if isinstance(made, Observation))
            to_do = [(step, made) for step, made in begun if not isinstance(made, Observation)]
            if to_do:
                tickets = yield from start(*(made for _, made in to_do))
                self._open.update(zip(tickets, (step for step, _ in to_do), strict=True))


def observation_of_reply(reply: Reply) -> Observation:
    """The result of a step that asked a model. One that was cut says so, to whoever reads the result."""
    text = reply.text.strip()
    return Observation(f"{text}\n(This text {reply.how_cut}.)".lstrip() if reply.how_cut else text)


def _together(seen: Sequence[Observation]) -> Observation:
    """What came of a step that makes several calls: all their results, and no result if one of them has none."""
    if len(seen) == 1:
        return seen[0]
    return Observation(
        "\n".join(each.text for each in seen),
        next((each.trouble for each in seen if not each.ok), ""),
        " ".join(each.note for each in seen if each.note),
        [each.value for each in seen],
        max(each.seconds for each in seen),
    )


def failed_needs(step: Step, results: Results) -> Iterable[str]:
    """The ids that a step needs and that gave no result."""
    return (need for need in step.needs if not results[need].ok)


YES = ("yes", "y", "ok", "okay", "approve", "approved", "go", "go on", "run")
NO = ("", "no", "n", "refuse", "refused", "reject", "rejected", "cancel", "stop")
ROUNDS = 3
"""How often the planner is asked again with the person's words."""


def ask_approval(
    plan: Plan,
    write: Callable[[Plan], str],
    is_plan: Callable[[str], bool],
    read: Callable[[str], Plan],
    replan: Callable[[Plan, str], Effects[Plan | Outcome]],
) -> Effects[Plan | Outcome]:
    """The plan to carry out, or how the run ends without one.

    `write` makes the text that is shown. An answer for which `is_plan` holds is read by `read` (which may raise
    `Unreadable`; the person is asked once more) and carried out as it is. Other words go to `replan`, with the plan
    they are about, at most `ROUNDS` times.
    """
    complaint = ""
    rounds = 0
    while True:
        answer = (yield from ask(complaint + write(plan), kind="plan")).strip()
        word = answer.rstrip(".!").lower()
        if word in YES:
            return plan
        if word in NO:
            return Failed("The person refused the plan.")
        if is_plan(answer):
            try:
                return read(answer)
            except Unreadable as why:
                if complaint:
                    return Failed(f"The plan that the person gave can't be carried out: {why}", kind="format")
                complaint = f"# That plan can't be carried out: {why}\n"
                continue
        if rounds == ROUNDS:
            return Failed(f"The person did not agree to any of {ROUNDS + 1} plans. Their last words: {answer}")
        rounds, complaint = rounds + 1, ""
        yield from note("replan", f"The person wants another plan: {answer}")
        made = yield from replan(plan, answer)
        if not isinstance(made, Plan):
            return made
        plan = made
