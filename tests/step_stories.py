"""A loop that performs the effects of a short story and nothing else, so that a test knows each step of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from plait.core import (
    Act,
    Answered,
    Call,
    Effects,
    LimitNear,
    LoopContext,
    LoopRun,
    OneKind,
    Splitter,
    Stopped,
    Task,
    Think,
    act,
    ask,
    execute,
    go_on,
    start,
    think,
    user,
    wait_next,
)


@dataclass(frozen=True)
class Steps:
    """A loop that performs one of the `STORIES`."""

    story: str

    name: ClassVar[str] = "steps"
    phases: ClassVar[tuple[str, ...]] = ("act",)
    prompts: ClassVar[dict[str, str]] = {"none": "it renders none"}

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        return (yield from STORIES[self.story](task))

    def splitter(self, phase: str) -> Splitter:
        return OneKind("answer")


def say(text: str) -> Effects[str]:
    """Ask the model, and return what it says."""
    return (yield from think("act", (user(text),))).text


def call(*calls: tuple[str, Any]) -> Effects[list[str]]:
    """Make calls at once, and return what they gave."""
    seen = yield from act(*(Call(tool, given) for tool, given in calls))
    return [each.text for each in seen]


def think_twice(task: Task) -> LoopRun:
    first = yield from say("a")
    return Answered([first, (yield from say(first))])


def repeat(effects: Callable[[], Effects[Any]]) -> Callable[[Task], LoopRun]:
    """Return the story that does the same until a limit is near, and then asks the model to conclude."""

    def story(task: Task) -> LoopRun:
        try:
            while True:
                yield from effects()
        except LimitNear as near:
            return Stopped(near.limit, "enough", (yield from say("conclude")))

    return story


def ask_helper_and_think() -> Effects[None]:
    yield from call(("helper", "one"))
    yield from say("more")


def call_each(*turns: tuple[tuple[str, Any], ...]) -> Callable[[Task], LoopRun]:
    """Return the story that makes these calls, turn by turn, and asks the model about the results at the end."""

    def story(task: Task) -> LoopRun:
        seen: list[str] = []
        for calls in turns:
            seen += yield from call(*calls)
        yield from say("what now?")
        return Answered(seen)

    return story


def ask_user(task: Task) -> LoopRun:
    city = yield from ask("Which city?")
    seen = yield from call(("send", city))
    return Answered([city, *seen])


def run_ahead(task: Task) -> LoopRun:
    """Start effects, think meanwhile, take results as they come; the answer has them in the order of the start."""
    calls = (("send", "one"), ("fetch", "a"), ("post", "two"))
    tickets = yield from start(*(Act((Call(*each),)) for each in calls), Think("act", (user("b"),)))
    thought = yield from say("meanwhile")
    found: dict[int, str] = {}
    for _ in tickets:
        taken = yield from wait_next()
        found[taken.ticket] = taken.reply.text if taken.reply is not None else taken.observations[0].text
    return Answered([thought, *(found[each] for each in tickets)])


def run_ahead_and_ask(task: Task) -> LoopRun:
    """Start effects, and ask the user meanwhile."""
    tickets = yield from start(*(Act((Call("post", text),)) for text in ("one", "two")))
    said = yield from ask("Which city?")
    found = []
    for ticket in tickets:
        found.append((yield from wait_next(ticket)).observations[0].text)
    return Answered([said, *found])


def run_code(task: Task) -> LoopRun:
    """Run pieces of code, and print what their calls give."""
    printed = []
    for code in (
        "a = fetch('a')\nprint(a)\ntry:\n    print(send('one'))\nexcept Exception as why:\n    print(why)",
        "import asyncio\nprint(a)\ntry:\n    found = await asyncio.gather(fetch('b'), send('two'))\n"
        "    for each in found:\n        print(each)\nexcept Exception as why:\n    print(why)\n    print(why)",
    ):
        ran = yield from execute(code)
        printed.append(ran.output)
        while not ran.done:
            ran = yield from go_on(*(yield from act(*ran.calls)))
            printed.append(ran.output)
        if ran.error is not None:
            printed.append(f"{ran.error.type}: {ran.error.message}\n")
    return Answered("".join(printed).splitlines())


def answer_as_asked(task: Task) -> LoopRun:
    """Send the question as a text, and answer with what the tool gave: the work of a child run."""
    seen = yield from call(("send", task.question))
    return Answered(f"{(yield from say('done?'))} {seen[0]}")


def ask_and_send(task: Task) -> LoopRun:
    """Ask the user for a text to send: the work of a child run."""
    said = yield from ask(f"What to send for {task.question}?")
    seen = yield from call(("send", f"{task.question} {said}"))
    return Answered(seen[0])


STORIES: dict[str, Callable[[Task], LoopRun]] = {
    "think twice": think_twice,
    "think on and on": repeat(lambda: say("more")),
    "call on and on": repeat(lambda: call(("fetch", "a"))),
    "send on and on": repeat(lambda: call(("send", "one"))),
    "one effect": call_each((("send", "one"),)),
    "repeatable": call_each((("fetch", "a"),)),
    "turns": call_each((("fetch", "a"),), (("send", "one"),), (("fetch", "b"), ("send", "two")), (("send", "three"),)),
    "parallel": call_each((("fetch", "a"), ("send", "one"), ("post", "two"), ("fetch", "b"))),
    "pages": call_each((("read_page", "a"),), (("send", "one"), ("fetch", "a"))),
    "page": call_each((("read_page", "a"),)),
    "the same twice": call_each((("send", "one"), ("send", "one"))),
    "flaky": call_each((("flaky", "a"),)),
    "two helpers": call_each((("helper", "one"), ("helper", "two"))),
    "helper and effect": call_each((("send", "pay"), ("helper", "one"))),
    "helper and think on and on": repeat(ask_helper_and_think),
    "helper": call_each((("helper", "one"),)),
    "fetch, helper, send": call_each((("fetch", "a"),), (("helper", "one"),), (("send", "two"),)),
    "delegate": call_each((("delegate", "text"),)),
    "consult": call_each((("consult", ["x", "y"]),)),
    "consult and send": call_each((("consult", ["x", "y"]), ("send", "one"))),
    "consult in turn": call_each((("consult_in_turn", ["x", "y", "x"]),)),
    "consult equally": call_each((("consult", ["x", "x"]),)),
    "ask user": ask_user,
    "run ahead": run_ahead,
    "run ahead and ask": run_ahead_and_ask,
    "run code": run_code,
    "answer as asked": answer_as_asked,
    "ask and send": ask_and_send,
}
