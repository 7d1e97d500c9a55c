"""JSON ReAct: one JSON object a turn, `{"thought", "tool", "tool_input"}`.

Three tools are built in: `ask_user` (the run waits until someone answers), `final_answer` (any JSON value)
and `fail_task` (the model gives up, and says why).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from msgspec import structs

from plait.core import (
    JSON,
    Answered,
    Effect,
    Failed,
    Kit,
    LimitNear,
    Loop,
    Message,
    Observation,
    Outcome,
    Reply,
    Splitter,
    Stopped,
    Task,
    ToolSpec,
    act,
    ask,
    assistant,
    propose,
    system,
    think,
    user,
)
from plait.loops.escape import earlier, escape_of
from plait.loops.format import Turn, Unreadable
from plait.loops.grounding import doubts, without
from plait.loops.json.format import BUILT_INS, JsonTurn
from plait.loops.offered_tools import offered
from plait.loops.transcript import ObjectChat, ObjectLog
from plait.loops.turn import Bad, fitting, folded, is_repetition, plain_answer, read_turn


@dataclass(frozen=True)
class JsonReact:
    """JSON ReAct.

    `lenient`: read objects with fences, prose around, trailing commas or Python literals, too. `constrain`: hand
    the endpoint the JSON schema of a turn (at a second try it is in any case). `misses`: unreadable replies in a
    row before the run fails. `max_tokens`: of one reply.
    """

    lenient: bool = True
    constrain: bool = False
    misses: int = 3
    max_tokens: int | None = None

    name: ClassVar[str] = "json"
    phases: ClassVar[tuple[str, ...]] = ("act",)
    reserved: ClassVar[tuple[str, ...]] = BUILT_INS

    def run(self, task: Task, kit: Kit) -> Loop:
        """The loop."""
        page = self._page(task, kit)
        log: ObjectLog = ()
        chars, after = kit.observation_chars, ""
        seen: Observation | None = None
        try:
            while True:
                ask_turn = partial(self._turn, kit, page, log, after, is_repetition(seen))
                turn, chars = yield from fitting(ask_turn, chars)
                if not isinstance(turn, Turn):
                    return turn  # type: ignore[no-any-return]
                found = yield from doubts(turn)
                if turn.answered:
                    answer = _argument(turn.answer, "answer")
                    if not (against := (yield from propose(answer))):
                        return Answered(answer)
                    seen, after = Observation(against, "refused"), ""
                    log = (*log, without(found, turn, seen))
                    continue
                assert turn.call is not None
                if turn.call.tool == "fail_task":
                    return Failed(_words(_argument(turn.call.input, "reason")))
                if turn.call.tool == "ask_user" and kit.can_ask:
                    seen = Observation((yield from ask(_words(_argument(turn.call.input, "question")))))
                else:
                    (seen,) = yield from act(turn.call)
                    seen = _with_built_ins(seen, kit)
                after = folded(kit, turn.call, seen) if log else ""
                log = log if after else (*log, without(found, turn, seen))
        except LimitNear as limit:
            return (yield from self._conclude(kit, page, log, chars, limit))

    def splitter(self, phase: str) -> Splitter:
        """Tells the parts of a reply apart."""
        return self._format.splitter()

    @property
    def _format(self) -> JsonTurn:
        return JsonTurn(lenient=self.lenient)

    def _turn(
        self, kit: Kit, page: ObjectChat, log: ObjectLog, after: str, resample: bool, chars: int
    ) -> Generator[Effect, Any, Turn | Outcome]:
        def ask_model(bad: Bad | None) -> Generator[Effect, Any, Reply]:
            tail: tuple[Message, ...] = ()
            if bad:
                tail = (assistant(bad[0]), user(kit.prompt("repair", complaint=bad[1])))
            messages = (*page.messages(log, chars, after), *tail)
            return self._think(kit, page, log, messages, repair=bool(bad), resample=resample)

        known = (*page.tools, *kit.others)
        answer = plain_answer(kit) if self.lenient and not log else None
        return read_turn(
            ask_model, lambda text: self._format.read(text, len(log) + 1, known), self.misses, answer=answer
        )

    def _think(
        self, kit: Kit, page: ObjectChat, log: ObjectLog, messages: tuple[Message, ...], *, repair: bool, **options: Any
    ) -> Generator[Effect, Any, Reply]:
        found = offered(kit, (seen.text for _, seen in log))[len(kit.tools) :]
        form = JsonTurn(lenient=self.lenient, can_ask=kit.can_ask)
        schema = form.schema((*page.tools, *found)) if self.constrain or repair else None
        return think(
            "act",
            messages,
            stop_after_object=page.ends,
            schema=schema,
            max_tokens=self.max_tokens,
            repair=repair,
            **options,
        )

    def _page(self, task: Task, kit: Kit) -> ObjectChat:
        tools = self._tools(kit)
        rules = kit.system
        if rules is None:
            rules = kit.prompt(
                "system",
                described=self._format.describe(tools),
                names=", ".join(tool.name for tool in tools),
                can_ask=kit.can_ask,
            )
        escape = escape_of(kit, self._format.disarm)
        asked = kit.prompt("task", question=escape.question(task.question), history=earlier(task, escape))
        return ObjectChat((system(rules), user(asked)), kit, escape, tools)

    def _tools(self, kit: Kit) -> tuple[ToolSpec, ...]:
        """The user's tools and the built-in ones."""
        inputs = {"ask_user": "question", "final_answer": "answer", "fail_task": "reason"}
        return kit.tools + tuple(
            ToolSpec(name, kit.prompt(name).strip(), _one_argument(argument))
            for name, argument in inputs.items()
            if (kit.can_ask or name != "ask_user") and all(tool.name != name for tool in kit.tools)
        )

    def _conclude(
        self, kit: Kit, page: ObjectChat, log: ObjectLog, chars: int, limit: LimitNear
    ) -> Generator[Effect, Any, Outcome]:
        """The call kept in reserve: the answer from what there is."""
        request = user(kit.prompt("conclude", reason=limit.detail))
        reply, _ = yield from fitting(
            lambda size: self._think(kit, page, log, (*page.messages(log, size), request), repair=True), chars
        )
        answer: JSON = None
        try:
            turn = self._format.read(reply.text, len(log) + 1, (*page.tools, *kit.others))
            answer = _argument(turn.answer, "answer") if turn.answered else None
        except Unreadable:
            pass
        return Stopped(limit.limit, limit.detail, answer)


def _with_built_ins(seen: Observation, kit: Kit) -> Observation:
    """The observation; one that says which tools there are names the built-in ones as well."""
    if seen.trouble != "unknown_tool":
        return seen
    others = "ask_user, final_answer and fail_task" if kit.can_ask else "final_answer and fail_task"
    return structs.replace(seen, text=f"{seen.text} Always there: {others}.")


def _one_argument(name: str) -> dict[str, Any]:
    kind = {} if name == "answer" else {"type": "string"}
    return {"type": "object", "properties": {name: kind}, "required": [name]}


def _argument(value: JSON, name: str) -> JSON:
    """A built-in's one argument, given as itself, as a list of one, or by its name."""
    if isinstance(value, dict) and list(value) == [name]:
        return value[name]
    if isinstance(value, list) and len(value) == 1 and name != "answer":
        return value[0]
    return value


def _words(value: JSON) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)
