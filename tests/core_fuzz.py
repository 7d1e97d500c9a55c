"""Random runs of the core, killed at random points and answered by other processes: for the tests and the campaign.

A seed draws the programs of a run and of its child runs, the policies, guards that decide at random, when processes die,
and what the user answers. `try_seed` takes the run to its end and raises `AssertionError` if a promise is broken:

- No effect is repeated. An effect with a result was made once, one in doubt at most once, any other never. Nothing is in
  doubt unless a process died.
- No effect is made without the approval that the policies ask for, and none that was refused.
- A signal does not take back what has begun, nobody reads what a guard hides, and no answer of a child is lost.
- No more requests are sent, and no more child runs begin, than the limits allow.
- Each `before` that returned, and each `restore`, is followed by exactly one `after` or `release` of the same process.
  Before a guard decides, it has been told what is on record.
- There is an open question whenever the run waits, and an answer that was given is not taken again.
- The replay of each run, without guards, ends as the run did.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

import plait
from core_runs import RUN, TOOLS, WORLD, Killed, Steps, Tried, agent_of, asks_model, did, do, is_attempt, texts
from plait.core import Call, CheckAnswer, LimitNear, LoopRun, Observation, Reply, Start, Think, WaitNext
from plait.core.effects import Act, AskUser, note
from plait.core.errors import BadAnswer, ServerFailed, StaleAnswer
from plait.journal.keys import read_key
from plait.journal.records import Decision, Intent, Note, Raised, Result
from plait.runtime.guard import AskApproval, Attempt, Entry, Finish, Guard, Refuse, StartChild

EFFECTS = ("pay", "post", "delegate")
"""The tools that must not be called twice."""


# -- programs


@dataclass
class Programs:
    """The random programs of a run and of its child runs, by question. All payments and texts differ."""

    chance: random.Random
    steps: dict[str, list[Any]] = field(default_factory=dict)
    planned: set[str] = field(default_factory=set)
    """The calls that the plan of a run has: they follow from nothing that it reads."""
    count: int = 0

    def add(self, question: str, depth: int) -> None:
        size = self.chance.randint(1, 5 if depth == 0 else 3)
        self.steps[question] = []
        self.steps[question] = [self._make_step(depth) for _ in range(size)]

    def _make_step(self, depth: int) -> Any:
        match self.chance.choices(("act", "think", "start", "ask", "check", "note"), (6, 3, 3, 1, 1, 1))[0]:
            case "act":
                return self._make_act(depth)
            case "think":
                return asks_model(self._next("q"), max_tokens=self.chance.choice((None, 50)))
            case "start":
                return [self._make_started(depth) for _ in range(self.chance.randint(1, 3))], self.chance.random() < 0.5
            case "ask":
                return AskUser(self._next("Which"))
            case "check":
                return CheckAnswer(self._next("answer"))
        return self._next("note")

    def _make_started(self, depth: int) -> Any:
        return asks_model(self._next("s")) if self.chance.random() < 0.3 else self._make_act(depth)

    def _make_act(self, depth: int) -> Act:
        count = self.chance.choice((1, 1, 2, 3))
        calls = tuple(self._make_call(depth) for _ in range(count))
        fixed = self.chance.random() < 0.1
        self.planned |= {repr(call) for call in calls} if fixed else set()
        return Act(calls, fixed=fixed)

    def _make_call(self, depth: int) -> Call:
        names = ["pay", "pay", "post", "post", "look", "browse", "odd"]
        if depth < 2:
            names += ["helper", "helper", "delegate", "delegate"]
        match self.chance.choice(names):
            case "pay":
                self.count += 1
                return Call("pay", {"amount": self.count})
            case "post":
                return Call("post", {"text": self._next("t"), "pause": self.chance.randint(0, 3)})
            case "look":
                return Call("look", {"city": self.chance.choice(("Lyon", "Nice"))})
            case "browse":
                return Call("browse", {"page": self._next("p")})
            case "odd":
                return self.chance.choice((Call("pay", {"amount": "much"}), Call("none", {})))
            case name:
                question = self._next("child")
                self.add(question, depth + 1)
                return Call(name, {"question": question})

    def _next(self, word: str) -> str:
        self.count += 1
        return f"{word}{self.count}"

    def walk(self, question: str) -> LoopRun:
        """Go through a program. After a limit, ask the model once more, and end."""
        seen: list[Any] = []
        tickets: list[int] = []
        """Those of started effects that are taken at the end."""
        try:
            for step in self.steps.get(question, self.steps[RUN]):
                match step:
                    case (effects, is_later):
                        started = yield Start(tuple(effects))
                        if is_later:
                            tickets += started
                        else:
                            seen.append((yield from _take_all(started)))
                    case Act():
                        seen.append(texts((yield step)))
                    case Think():
                        seen.append((yield step).text)
                    case str():
                        yield from note("remark", step)
                    case _:
                        seen.append((yield step))
            seen.append((yield from _take_all(tickets)))
        except LimitNear as why:
            reply = yield asks_model("conclude")
            return [*seen, why.limit, reply.text]  # type: ignore[return-value]
        return seen  # type: ignore[return-value]


def _take_all(tickets: Sequence[int]) -> Any:
    found: dict[int, Any] = {}
    while left := [ticket for ticket in tickets if ticket not in found]:
        taken = yield WaitNext(tuple(left))
        found[taken.ticket] = taken.reply.text if taken.reply is not None else texts(taken.observations)
    return [found[ticket] for ticket in tickets]


# -- guards


class Spy(Guard):
    """Checks that each `before` and `restore` is followed by one `after` or `release`, and that the guard was told
    `recorded` calls and attempts of a run before it decides about anything of that run."""

    points = (Think, Attempt, Call, StartChild, AskUser, CheckAnswer, Finish)
    may_ask = holds_text = False

    def __init__(self, place: str, order: float, recorded: Iterable[tuple[str, str]], wrong: list[str]) -> None:
        self.place, self.order, self.wrong = place, order, wrong  # type: ignore[misc]
        self.held: set[tuple[str, str]] = set()
        self.untold = set(recorded)

    @property
    def name(self) -> str:
        return f"spy at the {self.place}"

    def start(self, context: Any) -> Guard:
        return self

    def for_child(self, own: Guard | None) -> Guard:
        return self

    async def before(self, entry: Entry) -> Any:
        untold = {key for run, key in self.untold if run == entry.run}
        if untold:
            self.wrong.append(f"{self.name} decides about {entry.id}, and was not told {untold}")
        self._hold(entry)
        return entry.effect

    def restore(self, entry: Entry, decision: Decision | None) -> None:
        self._hold(entry)

    def recall(self, entry: Entry, result: Any) -> None:
        self.untold.discard(entry.id)

    def _hold(self, entry: Entry) -> None:
        if entry.id in self.held:
            self.wrong.append(f"{self.name}: {entry.id} is held twice")
        self.held.add(entry.id)

    async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
        self.held.discard(entry.id)
        return result

    def release(self, entry: Entry) -> None:
        if entry.id not in self.held:
            self.wrong.append(f"{self.name}: {entry.id} is released, but not held")
        self.held.discard(entry.id)


class Whims(Guard):
    """Changes, refuses, asks and raises at random. It never undoes a payment's amount or a text: these tell effects."""

    points = (Think, Attempt, Call, StartChild)
    points_after = (Think, Call, CheckAnswer, Finish)

    def __init__(self, chance: random.Random, often: float) -> None:
        self.chance, self.often = chance, often

    def start(self, context: Any) -> Guard:
        return self

    def for_child(self, own: Guard | None) -> Guard:
        return self

    async def before(self, entry: Entry) -> Any:
        effect = entry.effect
        if self.chance.random() >= self.often:
            return effect
        kind = self.chance.choice(("change", "change", "refuse", "ask", "signal"))
        match effect, kind:
            case Call(), "signal":
                raise LimitNear("whim", "a whim")
            case Call(), "refuse":
                return Refuse("a whim")
            case Call(), "ask":
                return AskApproval("Really?")
            case Call(tool="pay"), _:
                return structs.replace(effect, input={**effect.input, "to": self.chance.choice(("Ann", "Bob", "Eve"))})
            case StartChild(), "refuse":
                return Refuse("no child")
            case Think(), "change" if not entry.by_tool:
                return structs.replace(effect, prompt=f"{effect.prompt}{self.chance.choice('!?.')}")
        return effect

    async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
        if not fresh or self.chance.random() >= self.often:
            return result
        kind = self.chance.choice(("change", "change", "refuse", "ask"))
        match result, kind:
            case Observation(), "refuse":
                return Refuse("hidden")
            case Observation(), "ask":
                return AskApproval("Show it?")
            case Observation(), _:
                return structs.replace(result, text=f"{result.text}{self.chance.choice('*+')}")
            case Reply(), "change":
                return structs.replace(result, text=f"{result.text}{self.chance.choice('*+')}")
            case "", "refuse" if isinstance(entry.effect, CheckAnswer):
                return Refuse("another answer")
            case "", "ask" if isinstance(entry.effect, CheckAnswer):
                return AskApproval("This answer?")
        return result


class Hides(Guard):
    """Hides each page that was read. It comes before the other guards."""

    points_after = (Call,)
    order = 21.0

    def for_child(self, own: Guard | None) -> Guard:
        return self

    async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
        if fresh and isinstance(result, Observation) and "page p" in result.text:
            return structs.replace(result, text="hidden", value="hidden")
        return result


class HookWhims(plait.Hook):
    """The same, as a hook."""

    def __init__(self, chance: random.Random, often: float) -> None:
        self.chance, self.often = chance, often

    def before_tool(self, context: Any, call: Call) -> Any:
        if self.chance.random() < self.often:
            if call.tool == "pay":
                return structs.replace(call, input={**call.input, "to": self.chance.choice(("Ann", "Bob", "Eve"))})
            return self.chance.choice((None, plait.Refuse("the hook's whim"), plait.AskApproval("The hook asks.")))
        return None

    def after_tool(self, context: Any, call: Call, result: Observation) -> Any:
        if self.chance.random() < self.often:
            return self.chance.choice((structs.replace(result, text="(hook)"), plait.AskApproval("Show the hook's?")))
        return None


class Flaky(plait.Scripted):
    """A model that sometimes fails. `log` counts what was sent, in all processes."""

    def __init__(self, chance: random.Random, often: float, log: list[str]) -> None:
        super().__init__(["x"] * 3)
        self.chance, self.often, self.log = chance, often, log

    async def send(self, request: Any, think: Think, on_text: Any = None) -> Any:
        self.log.append(think.prompt)
        if self.chance.random() < self.often:
            why = ServerFailed("busy")
            why.after = 0.0
            raise why
        return await super().send(request, think, on_text)


# -- one seed


class Fuzzed:
    """The run of a seed."""

    def __init__(self, seed: int) -> None:
        WORLD.clear()
        chance = random.Random(seed)
        self.programs = Programs(chance)
        self.programs.add(RUN, 0)
        self.limits = plait.Limits(
            calls=chance.choice((None, None, 2, 4, 8)),
            children=chance.choice((0, 1, 3, 32, 32)),
            repeats=chance.choice((0, 4)),
            retries=1,
        )
        self.approve: Any = chance.choice(("never", "effects", "effects", "always"))
        self.taint: Any = chance.choice(("off", "ask"))
        self.whims = chance.choice((0.0, 0.0, 0.1, 0.3))
        self.failures = chance.choice((0.0, 0.0, 0.2))
        self.has_hook = chance.random() < 0.5
        self.deadly = chance.choice((0.0, 0.5, 0.9))
        self.chance = random.Random(seed + 1_000_003)
        """What differs from process to process."""
        self.sent: list[str] = []
        self.spies: list[Spy] = []
        self.wrong: list[str] = []
        """What the spies have found."""
        self.deaths = 0
        self.tried = Tried(self.make_agent, self.make_guards, pause=lambda: self.chance.choice((0, 0, 1, 2)))

    def make_agent(self) -> plait.Agent[Any]:
        child = self._agent(_tools_below(self._agent(())))
        return self._agent(_tools_below(child), approve=self.approve, taint=self.taint, limits=self.limits)

    def _agent(self, more: Sequence[Any], **settings: Any) -> plait.Agent[Any]:
        loop = Steps(self.programs.walk, asks=True)
        return agent_of(loop, Flaky(self.chance, self.failures, self.sent), (*TOOLS, *more), **settings)

    def make_guards(self) -> list[Any]:
        runs = self.tried.disk.runs
        recorded = [(run, each) for run in runs for each in self.tried.disk.records(run, Result)]
        ended = [(run, each.key) for run, each in recorded if each.work in ("call", "request")]
        self.spies = [Spy("front", -1.0, ended, self.wrong), Spy("end", 99.0, ended, self.wrong)]
        whims = [Whims(self.chance, self.whims)] if self.whims else []
        return [*self.spies, Hides(), *whims, *([HookWhims(self.chance, self.whims / 2)] if self.has_hook else [])]

    def run(self) -> int:
        """Take the run to its end, and check it. Returns the number of processes."""
        number = 0
        while True:
            number += 1
            assert number < 200, "the run does not end"
            dies_at = self.chance.randint(1, 25) if self.chance.random() < self.deadly / (1 + number / 20) else None
            open_before = self.tried.questions
            which = self.chance.randrange(len(open_before)) if open_before else 0
            answer = self._answer(open_before[which]) if open_before else None
            try:
                run = self.tried.go(answer, which, dies_at=dies_at)
            except Killed:
                assert not self.wrong, self.wrong
                self.deaths += 1
                continue
            except BadAnswer:
                assert self.tried.questions == open_before, "an answer that does not fit has changed something"
                continue
            assert not self.wrong, self.wrong
            for spy in self.spies:
                assert not spy.held, f"{spy.name} still holds {spy.held} ({run.status})"
            questions = self.tried.questions
            assert questions or run.status != "waiting", "the run waits, and no question is open"
            if answer is not None:
                self._answer_again(open_before[which].question)
            if run.status not in (
                "waiting",
                "crashed",
            ):  # a model has failed too often, which another process may not see
                self.check(run)
                return number

    def _answer(self, question: Any) -> str | None:
        if question.kind != "approval":
            return self.chance.choice(("Ann", "Bob", None))
        answers: list[str | None] = ["yes"] * 6 + ["no, not this", "no", None]
        if question.call is not None and question.call.tool == "pay":
            amount = question.call.input["amount"]
            answers += [f'edit {{"amount": {amount}, "to": "Zoe"}}', 'edit {"amount": "much"}']
        return self.chance.choice(answers)

    def _answer_again(self, question: str) -> None:
        """An answer that arrives twice changes nothing."""
        if (
            any(each.question == question for each in self.tried.questions)
            or self.tried.disk.runs[RUN].status != "waiting"
        ):
            return
        before = self.tried.disk.copy()
        try:
            asyncio.run(self.tried.ago("yes", question))
        except StaleAnswer:
            assert {k: len(v.rows) for k, v in before.runs.items()} == {
                k: len(v.rows) for k, v in self.tried.disk.runs.items()
            }
            return
        raise AssertionError("an answer was taken twice")

    # -- what must hold at the end

    def check(self, run: Any) -> None:
        assert run.status in ("answered", "stopped", "failed"), f"{run.status}: {run.reason}"
        self._check_effects()
        self._check_limits()
        for name in self.tried.disk.runs:
            self._check_rows(name)
        assert "page p" not in repr(run.outcome), "a guard's decision was lost"
        for name, stored in self.tried.disk.runs.items():
            assert stored.outcome is not None or name != RUN
            if stored.status in ("answered", "stopped", "failed"):
                found = self.tried.replay(name)
                assert found.whole, f"the replay of {name} stops before its end"

    def _check_effects(self) -> None:
        made = Counter(id for id, _ in WORLD)
        amounts = Counter(text.partition(" to ")[0] for text in did() if not text.startswith(("look", "page")))
        assert max(amounts.values(), default=0) <= 1, f"repeated: {amounts.most_common(3)}"
        decided: dict[tuple[str, str], list[Decision]] = {}
        results: dict[tuple[str, str], Observation] = {}
        tools: dict[tuple[str, str], str] = {}
        for run in self.tried.disk.runs:
            for each in self.tried.disk.records(run, Result | Intent):  # type: ignore[arg-type]
                at = read_key(each.key)
                if isinstance(each, Result) and each.work == "decision" and at.mark == "?" and at.guard == "approvals":
                    decided.setdefault((run, at.owner), []).append(each.value)
                elif each.work == "call":
                    if isinstance(each, Result):
                        assert (run, each.key) not in results, f"two results of {run} {each.key}"
                        results[run, each.key] = each.value
                    if isinstance(each.asked, Call):
                        tools[run, each.key] = each.asked.tool
        for id, result in results.items():
            if tools[id] not in EFFECTS:
                continue
            times = made[id]
            if result.trouble == "in_doubt":
                assert self.deaths, f"{id} is in doubt, and no process died"
                assert times <= 1, f"{id} is in doubt, and was done {times} times"
            elif result.trouble:
                assert times == 0, f"{id} is {result.trouble}, and was done"
            else:
                assert times == 1, f"{id} has a result, and was done {times} times"
        for run, stored in self.tried.disk.runs.items():
            caller = stored.head.caller
            id = (caller.run, caller.key.partition(":")[0]) if caller is not None else ("", "")
            if tools.get(id) == "helper" and id in results and stored.status == "answered":
                assert results[id].ok, f"{run} has answered, and its call {id} says {results[id].text}"
        for id in made:
            if tools.get(id) in EFFECTS and self.approve != "never":
                given = decided.get(id, [])
                assert given and given[-1].action in ("yes", "edit"), f"{id} was done, approved by {given}"

    def _check_rows(self, run: str) -> None:
        """Check signals, and that content from outside of earlier processes was known when an effect was admitted."""
        begun: set[int] = set()
        known: set[int] = set()
        new: set[int] = set()
        approved: set[str] = set()
        for each in self.tried.disk.records(run):
            if isinstance(each, Note):
                known |= new if each.kind == "resumed" else set()
                continue
            at = read_key(each.key)
            if isinstance(each, Raised):
                assert each.kind == "Suspend" or at.n not in begun, f"{run} {each.key} has begun, and got a {each.kind}"
            elif each.work == "decision":
                if at.guard == "approvals" and isinstance(each, Result) and each.value.action in ("yes", "edit"):
                    approved.add(at.owner)
            elif each.work == "call" and isinstance(each, Intent):
                begun.add(at.n)
                follows = each.asked.tool in EFFECTS and repr(each.asked) not in self.programs.planned
                sources = known - {at.n} if self.taint == "ask" and follows else set()
                assert not sources or each.key in approved, f"{run} {each.key} was not approved after {sources}"
            elif each.work == "call" and each.value.outside:
                new.add(at.n)

    def _check_limits(self) -> None:
        keys = {(run, key) for run in self.tried.disk.runs for key in self.tried.disk.keys(run, Intent)}
        requests = sum(is_attempt(key) for _, key in keys)
        most = self.limits.calls
        assert most is None or requests <= most, f"{requests} requests, with a limit of {most}"
        assert len(self.sent) <= requests, f"{len(self.sent)} sent, {requests} on record"
        children = len(self.tried.disk.runs) - 1
        assert children <= self.limits.children, f"{children} child runs, with a limit of {self.limits.children}"


def _tools_below(agent: plait.Agent[Any]) -> tuple[Any, ...]:
    @plait.tool
    async def delegate(ctx: plait.Context[Any], question: str) -> str:
        """Have it done, and note that."""
        run = await ctx.arun(agent, question)
        do(ctx, f"delegate {question}")
        return str(run.answer)

    return agent.as_tool("helper", "Have it done."), delegate


def try_seed(seed: int) -> int:
    """Take the run of a seed to its end. Returns the number of processes. Raises `AssertionError`."""
    return Fuzzed(seed).run()


def find_failures(seeds: Sequence[int], *, most: int = 1) -> list[str]:
    """Return what is wrong with the runs of some seeds, up to `most` failures."""
    found: list[str] = []
    for seed in seeds:
        try:
            try_seed(seed)
        except Exception as why:
            found.append(f"seed {seed}: {type(why).__name__}: {why}")
            if len(found) == most:
                break
    return found
