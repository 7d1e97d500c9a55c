"""Random programs of loops, for the fuzzer of the core (`core_fuzz.py`)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from core_runs import RUN, asks_model, texts
from plait.core import Call, CheckAnswer, LimitNear, LoopRun, Start, Think, WaitNext
from plait.core.effects import Act, AskUser, note


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
                        seen.append((yield structs.replace(step, prompt=f"{step.prompt} {seen}")).text)
                    case str():
                        yield from note("remark", step)
                    case _:
                        seen.append((yield step))
            seen.append((yield from _take_all(tickets)))
        except LimitNear as why:
            reply = yield asks_model(f"conclude {seen}")
            return [*seen, why.limit, reply.text]  # type: ignore[return-value]
        return seen  # type: ignore[return-value]


def _take_all(tickets: Sequence[int]) -> Any:
    found: dict[int, Any] = {}
    while left := [ticket for ticket in tickets if ticket not in found]:
        taken = yield WaitNext(tuple(left))
        found[taken.ticket] = taken.reply.text if taken.reply is not None else texts(taken.observations)
    return [found[ticket] for ticket in tickets]
