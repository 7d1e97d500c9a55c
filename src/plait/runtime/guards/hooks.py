"""Makes guards of the user's hooks. No other code calls a hook of a run.

Theory of operation. A guard acts at the points whose methods its hook overrides, and gives each method a `Context`
and copies of its own. Answers need more, because a check has no result but an objection. `before_answer` decides in
the check, and the guard remembers what it made of the answer. That becomes the answer at the end of the run, where
the record has it as the guard's change of the outcome. An answer that no check of this process accepted passes
`before_answer` there. `after_answer` has a guard of its own: it sees the answer as all `before_answer`s left it, and
decides also if the user was asked there.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from math import inf
from typing import Any

import msgspec
from msgspec import Struct, structs

from plait.core import JSON, Answered, Call, CheckAnswer, Observation, Reply, Stopped, Think
from plait.core.errors import ConfigError
from plait.core.notebook import repr_short
from plait.core.text import escape_hidden, sentence
from plait.runtime.agents.output import TEXT, OutputType
from plait.runtime.background import call_either
from plait.runtime.calls.bound_calls import replace_input
from plait.runtime.calls.context import Context
from plait.runtime.guard import USERS, AskApproval, Entry, Finish, Guard, Refuse
from plait.runtime.hooks import Hook, HookPoint, has_point
from plait.tools.user_code import show_error

_SUBJECTS: dict[str, str] = {
    "before_model": "request",
    "after_model": "reply",
    "before_tool": "call",
    "after_tool": "result",
    "before_answer": "answer",
    "after_answer": "final answer",
}


@dataclass
class HookedRun:
    """What the hook guards of one run share. `make_context` makes the context of a method, which gets `deps`.
    `with_own_name` gives a call the tool's own name, where the loop needs another one. `is_near` says whether a limit
    is near."""

    make_context: Callable[[Entry, Any], Context[Any]]
    deps: Any = None
    with_own_name: Callable[[Call], Call] = lambda call: call
    output: OutputType[Any] = TEXT
    is_near: Callable[[], bool] = lambda: False
    answer: tuple[str, JSON] = ("", None)
    """The key of the last check, and its answer as the hooks have left it so far."""


class HookGuard(Guard):
    """The guard of a hook. `name` is the hook's, or `inherited_name` in a child run."""

    sees_answers = True

    def __init__(self, hook: Hook, run: HookedRun, inherited_name: str = "") -> None:
        self.hook, self.run, self._name = hook, run, inherited_name or hook.name

        def find_points(**points: type) -> tuple[type, ...]:
            return tuple(dict.fromkeys(kind for point, kind in points.items() if has_point(hook, point)))

        self.points = find_points(before_model=Think, before_tool=Call)
        self.points_after = find_points(after_model=Think, after_tool=Call, on_tool_error=Call)
        if self.sees_answers and has_point(hook, "before_answer"):
            self.points_after += (CheckAnswer, Finish)
        self._changed: dict[tuple[str, str], Any] = {}
        """What the hook made of the effects that are under way."""
        self._accepted: tuple[JSON, JSON] | None = None
        """The last accepted answer, and what the hook made of it."""

    @property
    def name(self) -> str:
        return self._name

    @property
    def title(self) -> str:
        """Return the name of the guard in a sentence."""
        return f"hook {self.hook.name}"

    def for_child(self, own: Guard | None) -> Guard | None:
        """Return a guard beside the child's own ones. Whoever makes the child's guards sets its `run`."""
        made = InheritedHookGuard(self.hook, self.run, f"^{self.name}")
        return made if made.points or made.points_after else own

    # -- model calls and tool calls

    async def before(self, entry: Entry) -> Any:
        point: HookPoint = "before_tool" if isinstance(entry.effect, Call) else "before_model"
        if not has_point(self.hook, point) or self._is_own_change(entry):
            return entry.effect
        found = await self._decide(point, entry, entry.effect)
        match found, entry.effect:
            case Refuse(reason=reason), Call():
                return Refuse(f"The call is refused: {reason}")
            case AskApproval(question=question, reasons=reasons), Call(tool=tool, input=given):
                shown = escape_hidden(msgspec.json.encode(given).decode())
                return AskApproval(f"May '{tool}' be called with {shown}?", (question, *reasons))
            case Refuse() | AskApproval(), _:
                return self._refuse_or_ask(point, entry, found)
        if found != entry.effect:
            self._changed[entry.id] = found
        return found

    async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
        self._changed.pop(entry.id, None)
        match entry.effect:
            case CheckAnswer(answer=answer):
                return await self._check_answer(entry, self.run.output.read(answer), fresh) if result == "" else result
            case Finish() if fresh and isinstance(result, Answered | Stopped) and result.answer is not None:
                made = await self._accept(entry, result.answer)
                return made if isinstance(made, Refuse | AskApproval) else structs.replace(result, answer=made)
            case Think() if fresh and has_point(self.hook, "after_model"):
                return self._refuse_or_ask("after_model", entry, await self._decide("after_model", entry, result))
            case Call() as call if fresh and has_point(self.hook, "after_tool") and result.was_made:
                found = await self._decide("after_tool", entry, result, call)
                if isinstance(found, Refuse):
                    return Refuse(f"Error: the result of '{call.tool}' is withheld. {sentence(found.reason)}")
                if isinstance(found, AskApproval) or found == result:
                    return found
                found = structs.replace(
                    found,
                    # What the runtime says of a result, no hook takes back.
                    outside=result.outside or found.outside,
                    repeated=result.repeated,
                    seconds=result.seconds,
                    stopped=result.stopped,
                    ends=result.ends if found.ok or not result.ok else "",  # an error is no answer
                    note=found.note or result.note,
                )
                if found.value != result.value and found.exact == result.exact:
                    return structs.replace(found, exact=None)  # code gets the changed value, not the tool's
                return found
        return result

    def holds_result(self, entry: Entry, result: Any) -> bool:
        return has_point(self.hook, "after_tool")

    def _is_own_change(self, entry: Entry) -> bool:
        """Return whether the effect is what this hook made of it. It is asked again if another guard changes that."""
        last = entry.decided.get(self.name)
        if last is None or last.action != "change":
            return False
        if isinstance(entry.effect, Call) and last.value.get("input") == entry.effect.input:
            return True
        return bool(self._changed.get(entry.id) == entry.effect)

    async def retry_after(self, entry: Entry, result: Any, attempt: int) -> float | None:
        if not has_point(self.hook, "on_tool_error"):
            return None
        wait = await self._call("on_tool_error", entry, entry.effect, result, attempt)
        if wait is None or (type(wait) in (int, float) and 0 <= wait < inf):
            return wait if wait is None else float(wait)
        hint = "Return seconds from 0, or None for no repeat."
        raise ConfigError(f"The hook {self.hook.name} returned {repr_short(wait)} in on_tool_error.", hint=hint)

    # -- answers

    async def _check_answer(self, entry: Entry, answer: JSON, fresh: bool) -> Any:
        if self.run.is_near():  # no other answer would follow a refusal: `before_answer` decides at the end of the run
            return ""
        if self.run.answer[0] == entry.key:  # as the hooks before this one left it
            answer = self.run.answer[1]
        if not fresh:
            if (decision := entry.decided.get(self.name)) is not None and decision.action == "yes":
                self._accepted = (answer, answer)
            return ""
        made = await self._accept(entry, answer)
        if isinstance(made, Refuse | AskApproval):
            return made
        self.run.answer = (entry.key, made)
        return ""

    async def _accept(self, entry: Entry, answer: JSON) -> JSON | Refuse | AskApproval:
        """Return what `before_answer` makes of an answer, decided now or before."""
        if self._accepted is None or self._accepted[0] != answer:
            made = await self._decide("before_answer", entry, answer)
            if isinstance(made, Refuse):
                return Refuse(f"The answer is not accepted: {made.reason}")
            if isinstance(made, AskApproval):
                return made
            self._accepted = (answer, made)
        return self._accepted[1]

    # -- all points

    async def _decide(self, point: HookPoint, entry: Entry, value: Any, *more: Any) -> Any:
        """Return what the hook makes of a value, `Refuse` or `AskApproval`. `more` are arguments before the value."""
        found = await self._call(point, entry, *more, value)
        if found is None or found == value:
            return value
        did, text = "changed", ""
        match found:
            case Refuse(reason=reason):
                did, text = "refused", f": {reason}"
            case AskApproval(question=question):
                did, text = "asks about", f": {question}"
            case _:
                self._require_fit(point, value, found)
        if not entry.by_tool:
            entry.remark("hook", sentence(f"the hook {self.hook.name} {did} the {_SUBJECTS[point]}{text}"))
        return found

    def _refuse_or_ask(self, point: HookPoint, entry: Entry, found: Any) -> Any:
        """Return what a hook decided about a value without which the run cannot go on."""
        if isinstance(found, AskApproval) and entry.by_tool:
            return Refuse(f"{found.question} A question that a tool asks a model cannot wait for an approval.")
        if isinstance(found, Refuse):
            reason = found.reason.rstrip(".")
            return Refuse(f"The hook {self.hook.name} refused the {_SUBJECTS[point]}: {reason}.")
        return found

    def _require_fit(self, point: HookPoint, before: Any, after: Any) -> None:
        """Raise `ConfigError` if a hook returned a value that cannot replace the one before."""
        wrong = wanted = ""
        form, output = f"a {type(before).__name__}", self.run.output
        if isinstance(after, type):
            wrong, wanted = f"the class {after.__name__}", "an object"
        elif isinstance(before, Struct) and not isinstance(after, type(before)):
            wrong, wanted = repr_short(after), form
        elif isinstance(before, Call) and (before.tool, before.by_code) != (after.tool, after.by_code):
            wrong, wanted = f"a call of '{after.tool}'", "the same call with another input, or refuse it"
        elif isinstance(before, Think) and before.phase != after.phase:
            wrong, wanted = f"a request of phase '{after.phase}'", "a request of the same phase"
        elif "answer" in point and output.spec is None and type(after) is not type(before):
            wrong, wanted = repr_short(after), form
        elif "answer" in point and not output.fits(after):
            wrong, wanted = f"{repr_short(after)}, which does not fit the output type", "a JSON value of that type"
        if wrong:
            hint = f"Return {wanted}, Refuse(...), AskApproval(...) or None."
            raise ConfigError(f"The hook {self.hook.name} returned {wrong} in {point}.", hint=hint)

    async def _call(self, point: str, entry: Entry, *arguments: Any) -> Any:
        # The hook gets values of its own. What it writes into one changes nothing, unless it returns it.
        own = [_copy(each) for each in arguments]
        own = [self.run.with_own_name(each) if isinstance(each, Call) else each for each in own]
        try:
            found = await call_either(getattr(self.hook, point), self.run.make_context(entry, self.run.deps), *own)
        except (Exception, SystemExit) as why:
            hint = "Correct it, then resume the run."
            raise ConfigError(f"The hook {self.hook.name} failed in {point}: {show_error(why)}.", hint=hint) from why
        if isinstance(found, Call) and isinstance(own[-1], Call) and found.tool == own[-1].tool:
            return structs.replace(found, tool=arguments[-1].tool)
        return found


def _copy(value: Any) -> Any:
    """Return a value whose parts that can be written into are copies."""
    match value:
        case Call():
            return replace_input(value)
        case Observation():
            return structs.replace(value, value=deepcopy(value.value), exact=deepcopy(value.exact))
        case Reply(calls=calls) if calls:
            return structs.replace(value, calls=tuple(map(replace_input, calls)))
        case Think(messages=messages) if any(each.calls for each in messages):
            own = (structs.replace(each, calls=tuple(map(replace_input, each.calls))) for each in messages)
            return structs.replace(value, messages=tuple(own))
        case dict() | list():
            return deepcopy(value)
    return value


class InheritedHookGuard(HookGuard):
    """The guard of a hook of a run above: it decides about model calls and tool calls, before the run's own hooks and
    after them."""

    order = USERS - 1.0
    sees_answers = False


class FinalAnswerGuard(HookGuard):
    """The guard of a hook's `after_answer`: it decides when all hooks have accepted the answer."""

    order = USERS - 0.5

    def __init__(self, hook: Hook, run: HookedRun, name: str) -> None:
        super().__init__(hook, run, name)
        self.points, self.points_after = (), (Finish,)

    def for_child(self, own: Guard | None) -> Guard | None:
        return own

    async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
        if not fresh or not isinstance(result, Answered | Stopped) or result.answer is None:
            return result
        found = self._refuse_or_ask("after_answer", entry, await self._decide("after_answer", entry, result.answer))
        return found if isinstance(found, Refuse | AskApproval) else structs.replace(result, answer=found)


def guard_hook(hook: Hook, run: HookedRun) -> list[Guard]:
    """Return the guards of a hook: one of its name, and one for `after_answer` if it decides elsewhere, too."""
    guard = HookGuard(hook, run)
    if not has_point(hook, "after_answer"):
        return [guard]
    if not guard.points and not guard.points_after:
        return [FinalAnswerGuard(hook, run, hook.name)]
    return [guard, FinalAnswerGuard(hook, run, f"{hook.name} (after_answer)")]
