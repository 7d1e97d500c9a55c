"""Runs a plan of numbered calls while the model is still writing it.

The plan arrives in pieces. A call that may be repeated starts as soon as it is complete and its referenced results
exist. A call with effects waits until the whole plan has arrived and passed the checks. If the request is repeated
half-way, the plan is read from its beginning again. A started call that comes again is not made twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from msgspec import structs

from plait.core import Act, Call, Effects, Observation, Plan, Step, ToolSpec, note
from plait.core.call_check import find_call_problem
from plait.loops.compiler.reader import CallReader, NumberedCall
from plait.loops.format import Remark
from plait.loops.plan import Dispatch, Results, failed_needs
from plait.loops.references import RESULTS, refer_to_steps


class StreamedPlan(Dispatch):
    """The calls of one plan that is being written.

    `steps` are the plan's, by id. `results` also hold those of `earlier` plans, which this plan may reference. `held`:
    nothing starts before `start_plan`. Calls beyond the first `most` are not made, because a small model may never stop
    writing. `refused` maps calls that are not steps to the reason. `faults` are the errors that the planner is asked to
    correct.
    """

    def __init__(
        self,
        tools: tuple[ToolSpec, ...],
        earlier: Mapping[str, Step],
        results: Results,
        *,
        held: bool = False,
        most: int = 20,
        question: str = "",
    ) -> None:
        super().__init__(partial(_call, is_first=not earlier), results)
        self.steps: dict[str, Step] = {}
        self.refused: list[str] = []
        self._tools, self._earlier, self._held, self._most = tools, earlier, held, most
        self._by_name, self._question = {tool.name: tool for tool in tools}, question
        self._void: dict[str, Step] = {}
        self._problems: set[str] = set()
        self.restart()

    def release(self) -> Effects[None]:
        """Accept the plan as it is: start its calls with effects, and show the joiner which calls are not made."""
        self.refused += [f"Not made: {lost}." for lost in self.reader.lost]
        if not self._held:
            yield from self.add(*self._later)

    def restart(self) -> None:
        """Replace this plan by another one. A call that has started and comes again is not made twice."""
        begun = {step.id for step in self.open.values()} | (self.results.keys() & self.steps.keys()) - self._problems
        self._void |= {id: step for id, step in self.steps.items() if id in begun}
        for id in self._problems:
            self.results.pop(id, None)
        self.waiting = []
        self.steps, self.refused, self._problems = {}, [], set()
        self._faults: list[str] = []
        self._later: list[Step] = []
        self.reader = CallReader(self._tools)
        self._pieces: list[str] = []
        self._numbers: dict[str, Step] = {}  # as numbered in the plan
        self.renumbered: dict[str, str] = {}
        self._fresh: set[str] = set()
        self._full = False

    def read_piece(self, piece: str, *, again: bool = False) -> Effects[None]:
        """Read the next piece of the plan; `again`: the plan starts over with this piece."""
        if again:
            self.restart()
        self._pieces.append(piece)
        yield from self._add_calls(self.reader.feed(piece))

    def read_whole(self, text: str) -> Effects[None]:
        """Read the whole plan, which replaces all earlier pieces."""
        if not text.startswith("".join(self._pieces).rstrip()):
            self.restart()
        yield from self._add_calls(self.reader.feed(text[sum(map(len, self._pieces)) :]))
        yield from self._add_calls(self.reader.close())
        for id in list(self._void):
            yield from self._drop(id)
        for remark in self.reader.remarks:
            yield from note(remark.kind, remark.text)

    def finish(self) -> Effects[None]:
        """Wait for all running calls and those that depend on them; note which calls were not made."""
        yield from super().finish()
        for step in self.plan.calls:
            if missing := _missing(step, self.results):
                yield from note("skipped", f"Call {step.id} is not made: {missing}.")

    def start_plan(self, plan: Plan) -> Effects[None]:
        """Start the calls of a plan that was held, in its present form."""
        self._held = False
        self.steps = {step.id: step for step in plan.calls}
        yield from self.add(*plan.calls)

    @property
    def faults(self) -> list[str]:
        """Return the errors because of which the plan cannot run as written."""
        return [*self._faults, *self.reader.lost]

    @property
    def next(self) -> int:
        """Return the first unused number."""
        return max((int(id) for id in (*self._earlier, *self.steps)), default=0) + 1

    @property
    def plan(self) -> Plan:
        """Return the plan that will run: without the calls that cannot be made."""
        return Plan(tuple(step for step in self.steps.values() if step.id not in self._problems))

    def _add_calls(self, calls: Iterable[NumberedCall]) -> Effects[None]:
        ready: list[Step] = []
        for call in calls:
            if len(self._numbers) >= self._most:
                if not self._full:
                    self._full = True
                    self.refused.append(f"A plan has at most {self._most} calls: those after that were not made.")
                    yield from note("cut", f"the plan has more than {self._most} calls: the first ones are made")
                break
            step = yield from self._number_step(call.step)
            if step is None:
                continue
            there = {*self.steps, *self._earlier}
            step = structs.replace(step, needs=RESULTS.meant(step.input, there, self._question))
            problem = call.problem
            if not problem and (unknown := ", ".join(f"${need}" for need in step.needs if need not in there)):
                problem = f"it names {unknown}, which no earlier call gives"
            elif not problem:
                wrong = find_call_problem(step.tool, step.input, self._by_name, RESULTS.is_open)
                problem = f"it {wrong.rstrip('.')}" if wrong else ""
            self.steps[step.id] = step
            if (old := self._void.pop(step.id, None)) is not None:
                if _same(old, step) and not self._fresh.intersection(step.needs):
                    continue
                self._void[step.id] = old
                yield from self._drop(step.id)
            self._fresh.add(step.id)
            if problem:
                self._problems.add(step.id)
                self._faults.append(f"call {step.id}: {problem}")
                self.results[step.id] = Observation(f"Not made: {problem}.", trouble="refused")
                yield from note("refused", f"Call {step.id} is not made: {problem}.")
            elif not self._held:
                (ready if self._by_name[step.tool].repeatable else self._later).append(step)
        yield from self.add(*ready)

    def _number_step(self, step: Step) -> Effects[Step | None]:
        """Return the step under a number of its own, or None if it is not a new step."""
        number = step.id
        if self.renumbered:
            # If a number was given again, later references mean the call of this plan.
            moved = {old: Observation(f"${{{new}}}") for old, new in self.renumbered.items()}
            given = RESULTS.fill(step.input, moved)
            step = structs.replace(step, input=given, needs=RESULTS.find_ids(given))
        before = {**self._earlier, **self.steps}
        remarks: list[Remark] = []
        step = refer_to_steps("call", step, before.values(), "$", remarks)
        for remark in remarks:
            yield from note(remark.kind, remark.text)
        if (first := self._numbers.get(number)) is not None:
            if not _same(first, step):
                self.refused.append(f"A second call {number} ({step.tool}) was not made: the number was given before.")
                self._faults.append(f"call {number} is given twice")
            yield from note("cut", f"call {number} is given twice: the first one counts")
            return None
        self._numbers[number] = step
        old = self._earlier.get(number)
        if old is not None and _same(old, step) and self.results[number].ok:
            yield from note("repeated", f"call {number} was made before: its result is kept")
            return None
        if old is not None or number in self.steps:
            new = str(self.next)
            self.renumbered[number] = new
            yield from note(
                "repaired", f"call {number} of this plan was taken for number {new}: {number} was given before"
            )
            step = structs.replace(step, id=new)
        return step

    def _drop(self, id: str) -> Effects[None]:
        """Discard a call that was started for a replaced plan: it stays in the journal, its result is ignored."""
        step = self._void.pop(id)
        self.results.pop(id, None)
        self.open = {ticket: other for ticket, other in self.open.items() if other.id != id}
        yield from note("dropped", f"call {id} ({step.tool}) was begun for a plan that came to nothing: not used")


def _call(step: Step, results: Results, *, is_first: bool) -> Act | Observation:
    """Return a step's call, or an observation if a result is missing. `is_first`: of the run's first plan."""
    if missing := _missing(step, results):
        return Observation(f"Not made: {missing}.", trouble="refused")
    return Act((Call(step.tool, RESULTS.fill_step(step, results)),), fixed=is_first and not step.needs)


def _missing(step: Step, results: Results) -> str:
    """Return which results a step needs and lacks, as a reason; "" if it has all."""
    missing = failed_needs(step, results, "$")
    return missing and f"it needs {missing}, which gave no result"


def _same(one: Step, other: Step) -> bool:
    return (one.tool, one.input) == (other.tool, other.input)
