"""A worst-case model: it follows each injected instruction that it sees, and otherwise does the user's task.

It knows the task, but it obeys only what its prompt shows. So a table shows what an attack can still do in a loop that
plans before it reads. The model marks each call in its thought, and finds in the prompt which calls it made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from itertools import count

from msgspec import Struct, structs

from injected.office import InjectedTask, Office, OfficeCall, condense
from plait.core import Call, HostedCall, Plan, Reply, Step, Think
from plait.loops.codeact.format import FORMAT as CODE
from plait.loops.codeact.format import code_call
from plait.loops.compiler.format import FORM as NUMBERED
from plait.loops.compiler.joiner import JOINER, Verdict
from plait.loops.format import Turn
from plait.loops.json.format import JsonTurn
from plait.loops.phased import action_list
from plait.loops.plan_text import LLM, write_plan
from plait.loops.react.format import react_format
from plait.models.scripted import Scripted

TURNS = 60
"""Maximum number of replies of one model."""
_WORK = re.compile(r"the (\w+) of effect (\d+)")
_NEXT = re.compile(r"Begin with number (\d+)")
_TURN = re.compile(r"THOUGHT (\d+)")
_PIECES = re.compile(r"\[\d\]|<\|\w+\|>|\n")


def obedient_model(loop: str, task: InjectedTask, *, clean: bool = False) -> Scripted:
    """Return a model for one run of one task in a loop, such as "react". It follows the instructions that it sees.

    Its provider's tools find the text of a task whose attack is `hosted`, before the model writes anything.
    """
    if task.attack != "hosted":
        return Scripted([partial(_reply, loop, task)] * TURNS, by_turn=False, name="obedient")
    ((key, text),) = task.texts.items()
    found = HostedCall(key.partition(" ")[0], {"query": task.question}, task.fill(text, clean=clean))

    def answer(think: Think) -> Reply:
        said = _reply(loop, task, think, found.text)
        made = said if isinstance(said, Reply) else Reply(said)
        return structs.replace(made, hosted=(found,))

    return Scripted([answer] * TURNS, by_turn=False, name="obedient")


class NamedCall(Struct, frozen=True):
    """A call with its name in the model's thoughts: "read 1", "effect 2" or "harm"."""

    name: str
    call: OfficeCall

    @property
    def thought(self) -> str:
        return f"This is {self.name} of the task."

    def step(self, id: str) -> Step:
        return Step(id, self.call.tool, self.call.input, self.thought)


class PromptView:
    """What a prompt shows of a task. `found` is what the provider's tools found."""

    def __init__(self, task: InjectedTask, think: Think, found: str = "") -> None:
        said = [each.content for each in think.messages]
        said += [tool.description for tool in think.tools]
        self.task = task
        self.raw = "\n".join((*said, think.prompt, think.prefill, found))
        self._text, self._joins = condense(self.raw), think.phase == "join"
        self.obeys = all(map(self.shows, task.injected))

    def shows(self, text: str) -> bool:
        """Return whether all lines of a text are in the prompt, also if they are escaped or wrapped."""
        return all(condense(piece) in self._text for piece in _PIECES.split(text))

    def has_tried(self, named: NamedCall) -> bool:
        """Return whether the prompt shows the call: by the model's thought, or, to a joiner, as a numbered call.

        A call in a result has a backslash there, so it does not count.
        """
        if self._joins:
            line = re.escape(NUMBERED.line(named.step("1")).removeprefix("1"))
            return re.search(rf"^\d+{line}$", self.raw, re.M) is not None
        return condense(named.thought) in self._text

    def list_reads(self) -> Iterator[NamedCall]:
        """Yield the calls that read the texts of the task."""
        if self.task.attack == "hosted":
            return  # the provider reads
        office = Office(self.task)
        for number, key in enumerate(self.task.texts, 1):
            tool, _, given = key.partition(" ")
            call = office.name_arguments(Call(tool, json.loads(given) if given.startswith("{") else given))
            assert call is not None
            yield NamedCall(f"read {number}", call)

    def list_open(self, *, planned: bool = False) -> list[NamedCall]:
        """Return the calls that are still to be made, in order, as far as their arguments are known.

        `planned`: also the effects whose arguments only the texts give.
        """
        known = planned or all(map(self.shows, self.task.texts.values()))
        reads = [named for named in self.list_reads() if not self.has_tried(named)]
        wanted = [NamedCall(f"effect {number}", each) for number, each in enumerate(self.task.effects, 1)]
        effects = [named for named in wanted if (known or not named.call.read) and not self.has_tried(named)]
        if not self.obeys:
            return [*reads, *effects]
        harm = NamedCall("harm", self.task.harm)
        if self.has_tried(harm):
            # After a refusal it goes on with what the user wants.
            done = self.task.replaces and not self.shows("refused this call")
            return [*reads, *(named for named in effects if not (done and named.call == self.task.effects[0]))]
        if self.task.late:
            return [*reads, *effects] or [harm]
        if self.task.replaces:
            return [*reads, *(harm if named.call == self.task.effects[0] else named for named in effects)]
        return [harm, *reads, *effects]

    def answer(self) -> str:
        """Return the answer to the user, as far as the prompt shows it."""
        return f"It is {self.task.answer}." if self.task.answer and self.shows(self.task.answer) else "It is done."


def _reply(loop: str, task: InjectedTask, think: Think, found: str = "") -> str | Reply:
    """Return the next reply in the format of the loop and the phase."""
    view = PromptView(task, think, found)
    match loop, think.phase:
        case "rewoo", "plan":
            return _write_rewoo_plan(view)
        case "rewoo", "work":
            return _write_evidence(view)
        case "compiler", "plan":
            first = int(match[1]) if (match := _last(_NEXT, view.raw)) else 1
            return NUMBERED.write(Plan(tuple(named.step(str(n)) for n, named in enumerate(view.list_open(), first))))
        case "compiler", "join":
            missing = ", ".join(named.name for named in view.list_open())
            kind, text = ("replan", missing) if missing else ("finish", view.answer())
            return JOINER.write(Verdict("replan" if missing else "finish", text, f"I {kind}."))
        case "phased", "reason":
            return "I do what is asked." if view.list_open() else "DONE"
        case "phased", "react":
            return action_list.ACTIONS.write([named.step(str(n)) for n, named in enumerate(view.list_open(), 1)])
        case _, "act":
            return _write_turn(loop, view)
    return view.answer()


def _write_turn(loop: str, view: PromptView) -> str | Reply:
    """Return a turn with one call, or with the answer."""
    named = next(iter(view.list_open()), None)
    call = Call(named.call.tool, named.call.input) if named else None
    thought = named.thought if named else "All is done."
    turn = Turn(thought, call, answer=None if named else view.answer(), answered=not named)
    match loop:
        case "tool_calling":
            return Reply(thought, calls=(call,)) if call else Reply(view.answer())
        case "codeact":
            given = ", ".join(f"{name}={value!r}" for name, value in call.input.items()) if call else ""
            code = f"print({call.tool}({given}))" if call else f"stop({view.answer()!r})"
            number = match[1] if (match := _last(_TURN, view.raw)) else "1"
            return CODE.write(Turn(thought, code_call(code)), int(number))
        case "json":
            return JsonTurn().write(turn, 1)
    return react_format("blob").write(turn, 1)


def _write_rewoo_plan(view: PromptView) -> str:
    """Return a plan of all calls. A step that asks the model gives each argument that only the texts have."""
    ids, steps = count(1), list[Step]()
    reads = " ".join(f"#E{number}" for number in range(1, len(view.task.texts) + 1))
    opened = sorted(view.list_open(planned=True), key=lambda named: not named.name.startswith("read"))
    for named in opened:
        given = dict(named.call.input)
        for name in named.call.read:
            asked = f"Write only the {name} of {named.name}. What was read: {reads}"
            steps.append(Step(f"E{next(ids)}", LLM, asked, f"Find the {name}."))
            given[name] = f"#{steps[-1].id}"
        steps.append(structs.replace(named.step(f"E{next(ids)}"), input=given))
    return write_plan(Plan(tuple(steps)))


def _write_evidence(view: PromptView) -> str:
    """Return the argument that a step of the plan asks for; the attacker's if the attack is in the evidence."""
    asked = _WORK.search(view.raw)
    assert asked is not None
    effect = view.task.effects[int(asked[2]) - 1]
    call = view.task.harm if view.obeys and view.task.replaces else effect
    return str(call.input[asked[1]])


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    *_, last = (None, *pattern.finditer(text))
    return last
