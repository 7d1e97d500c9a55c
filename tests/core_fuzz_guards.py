"""Guards, a hook and a model for the fuzzer of the core (`core_fuzz.py`): they watch, or decide at random."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from msgspec import structs

import plait
from plait.core import Call, CheckAnswer, LimitNear, Observation, Reply, Think
from plait.core.effects import AskUser
from plait.core.errors import ServerFailed
from plait.journal.records import Decision
from plait.runtime.guard import AskApproval, Attempt, Entry, Finish, Guard, Refuse, StartChild


class Spy(Guard):
    """Checks that each `before` and `restore` is followed by one `after` or `release`, and that the guard was told all
    `recorded` work of the tree of runs before it decides about anything."""

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
        if self.untold:
            self.wrong.append(f"{self.name} decides about {entry.id}, and was not told {self.untold}")
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
