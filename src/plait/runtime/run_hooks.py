"""Calls the hooks of a run, records what they decide, and asks the user where they say so.

Theory of operation. `_decide` serves all points. It looks for the recorded decision first, so a resumed run does not
call the hooks again, and a replay never calls them. A decision is recorded also if the hooks changed nothing, so a
resumed run knows that they were called. The journal has a decision before the request, the call or the prompt that
depends on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct, convert, structs, to_builtins

from plait.core import JSON, Answered, Call, Failed, Observation, Outcome, Reply, Stopped, Think
from plait.core.errors import BadInput, ConfigError
from plait.core.notebook import repr_short
from plait.core.text import shorten
from plait.journal.records import HookRecord
from plait.journal.timeline import HookDecision
from plait.runtime.background import call_either
from plait.runtime.bound_calls import REBINDS, BoundCall, replace_input
from plait.runtime.context import Context
from plait.runtime.hooks import AskApproval, Hook, HookPoint, Refuse, has_point
from plait.runtime.output_check import check_as_answer
from plait.runtime.recorded_effects import PastEffect
from plait.runtime.run_context import RecordEnds, RunContext, input_of, sentence
from plait.tools.user_code import show_error

T = TypeVar("T")

SHOWN = 2_000
"""Characters of a result or an answer in a question to the user."""
_SUBJECTS: dict[HookPoint, str] = {
    "before_model": "request",
    "after_model": "reply",
    "before_tool": "call",
    "after_tool": "result",
    "before_answer": "answer",
    "after_answer": "final answer",
}


class HookRefused(Exception):
    """Raised when a hook refuses a request or a reply. The text names the hook and the reason."""


class Decided(Struct, Generic[T], frozen=True):
    """What the hooks made of a value: `value` is the one to use. `refusal` is the reason if they refused it, and
    `question` what the user has to approve first; "" for none. `hooks` are the names of those that decided it.
    `changed`: the value is not the one that they were given."""

    value: T
    refusal: str = ""
    question: str = ""
    hooks: tuple[str, ...] = ()
    changed: bool = False


class HookPlace(Struct, frozen=True):
    """Where hooks decide: the point, the effect `n`, the call `i`, the step, and what is recorded of the effect.
    `edits`: how often the user has edited the call."""

    point: HookPoint
    n: int
    i: int
    step: int
    past: PastEffect
    edits: int = 0


class ValueForm(Struct, Generic[T], frozen=True):
    """How a changed value is recorded: `write` makes JSON of the old and the new value, `read` the new value of the old
    one and the JSON."""

    write: Callable[[T, T], Any]
    read: Callable[[T, Any], T]


class RunHooks:
    """The hooks of one run: those of its agent, and of the runs above it, which see only model calls and tool calls."""

    def __init__(self, run_context: RunContext) -> None:
        self.run_context = run_context
        spec = run_context.run_spec
        self._hooks: dict[str, tuple[Hook, ...]] = {}
        for point in ("before_model", "before_tool", "before_answer"):
            inherited = () if point == "before_answer" else spec.inherited_hooks
            before, after = (*inherited, *spec.hooks), (*reversed(spec.hooks), *reversed(inherited))
            for name, hooks in ((point, before), (point.replace("before", "after"), after)):
                self._hooks[name] = tuple(hook for hook in hooks if has_point(hook, name))
        self._hooks["on_tool_error"] = tuple(
            hook for hook in (*spec.inherited_hooks, *spec.hooks) if has_point(hook, "on_tool_error")
        )
        self._answers: Counter[tuple[str, int]] = Counter()
        """How many decisions about answers were made, by point and by the number of the next effect."""
        self._accepted: tuple[JSON, JSON] | None = None
        """The last accepted answer, and what the hooks made of it."""

    def has(self, *points: str) -> bool:
        """Return whether the run has hooks for one of these points."""
        return any(self._hooks[point] for point in points)

    @property
    def decides_answers(self) -> bool:
        """Whether hooks decide, or did on record, about the answers that the loop checks."""
        return self.has("before_answer") or self._was_recorded("before_answer")

    def _was_recorded(self, point: HookPoint) -> bool:
        effects = self.run_context.run_spec.past.effects
        return any(name == point for past in effects.values() for name, _ in past.decided)

    # -- model calls

    async def before_model(self, n: int, step: int, request: Think, past: PastEffect) -> Think:
        """Return the request to send. Raises `HookRefused`, or `Suspend` to wait for the user."""
        return await self._decide_model(HookPlace("before_model", n, -1, step, past), request, REQUEST)

    async def after_model(self, n: int, step: int, reply: Reply, past: PastEffect) -> Reply:
        """Return the reply that the loop gets. Raises `HookRefused`, or `Suspend` to wait for the user."""
        return await self._decide_model(HookPlace("after_model", n, -1, step, past), reply, REPLY)

    async def _decide_model(self, place: HookPlace, value: T, form: ValueForm[T]) -> T:
        if not self._decides(place):
            return value
        made = await self._decide(place, value, form)
        if refusal := await self._settle(place, made):
            raise HookRefused(_describe_refusal(place.point, made.hooks, refusal))
        return made.value

    async def ask_about_tools_question(self, request: Think) -> Think:
        """Return the request that a tool sends to a model, as the hooks change it. Raises `HookRefused`.

        Nothing is recorded: a replay makes no tool call, and the journal has the request.
        """
        return _require_free("before_model", await self._call_hooks("before_model", request))

    async def read_reply_for_tool(self, reply: Reply) -> Reply:
        """Return a model's reply to a question of a tool, as the hooks change it. Raises `HookRefused`."""
        return _require_free("after_model", await self._call_hooks("after_model", reply))

    # -- tool calls

    @property
    def sees_tools(self) -> bool:
        """Return whether the run has hooks for tool calls."""
        return self.has("before_tool", "on_tool_error", "after_tool")

    async def before_tool(self, place: HookPlace, bound: BoundCall) -> tuple[BoundCall, Decided[Call]]:
        """Return the call to make, and what the hooks decide about it. If one changes it, the others see it again."""

        async def ask_hooks() -> Decided[Call]:
            nonlocal bound
            asked: dict[str, tuple[Call, str]] = {}  # what each hook saw or returned last, and its question
            changers: dict[str, None] = {}
            changes = 0
            while name := next((each for each in hooks if asked.get(each, (None,))[0] != bound.call), ""):
                made = await self._call_hooks("before_tool", bound.call, hooks=(hooks[name],))
                if made.refusal:
                    return structs.replace(made, hooks=(name,))
                asked[name] = (made.value, made.question)
                if made.value == bound.call:
                    continue
                try:
                    now = self.run_context.binder.bind_changed(made.value, bound)
                except BadInput as why:
                    said = f"The hook {name} gave it an input that the tool does not take. {why}"
                    return Decided(bound.call, said, hooks=(name,))
                if now.call == bound.call:
                    asked[name] = (bound.call, "")
                    continue
                bound, changes = now, changes + 1
                changers[name] = None
                if changes > REBINDS:
                    return Decided(bound.call, "Hooks changed its input again and again.", hooks=tuple(changers))
            questions = {name: question for name, (_, question) in asked.items() if question}
            return Decided(bound.call, "", "\n".join(questions.values()), tuple(questions or changers))

        hooks: dict[str, Hook] = {}
        for hook in self._hooks["before_tool"]:  # a hook of a run above may have the same name
            hooks[f"{hook.name} {len(hooks) + 1}" if hook.name in hooks else hook.name] = hook

        def write(before: Call, after: Call) -> Any:
            return CALL.write(before, after) | ({"words": bound.words} if bound.words else {})

        decided = await self._decide(place, bound.call, structs.replace(CALL, write=write), ask=ask_hooks)
        return bound, decided

    async def on_tool_error(self, call: Call, observation: Observation, attempt: int) -> float | None:
        """Return after how many seconds to repeat a failed call: the longest that a hook names; None for no repeat."""
        waits: list[float] = []
        for hook in self._hooks["on_tool_error"]:
            wait = await self._call(hook, "on_tool_error", call, observation, attempt)
            if wait is None:
                continue
            if type(wait) not in (int, float) or not 0 <= wait < inf:
                hint = "Return seconds from 0, or None for no repeat."
                raise ConfigError(f"The hook {hook.name} returned {repr_short(wait)} in on_tool_error.", hint=hint)
            waits.append(float(wait))
        return max(waits, default=None)

    async def after_tools(
        self, n: int, step: int, calls: Mapping[int, Call], seen: Mapping[int, Observation], past: PastEffect
    ) -> dict[int, Observation]:
        """Return the observations that the loop gets, by the index of their calls."""
        return {
            i: await self._after_tool(HookPlace("after_tool", n, i, step, past), calls[i], each)
            for i, each in seen.items()
        }

    async def _after_tool(self, place: HookPlace, call: Call, observation: Observation) -> Observation:
        if not observation.was_made or not self._decides(place):
            return observation

        async def ask_hooks() -> Decided[Observation]:
            made = await self._call_hooks("after_tool", observation, call)
            if observation.ends != "answer" or not made.value.ok or made.value.value == observation.value:
                return made
            return structs.replace(made, value=check_as_answer(self.run_context, call, made.value))

        made = await self._decide(place, observation, OBSERVATION, ask=ask_hooks)
        shown = f"\nThe result of {call.tool} {input_of(call)}: {shorten(observation.text, SHOWN)[0]}"
        if refusal := await self._settle(place, made, shown):
            text = f"Error: the result of '{call.tool}' is withheld. {sentence(refusal)}"
            return Observation(text, trouble="refused", seconds=observation.seconds, outside=observation.outside)
        found = structs.replace(made.value, **_marks(observation, made.value))
        if found.value != observation.value and found.exact == observation.exact:
            return structs.replace(found, exact=None)  # code gets the changed value, not the tool's
        return found

    # -- answers

    async def before_answer(self, answer: JSON, n: int, step: int) -> str:
        """Return the objection to an answer, "" if it may be given. `n` is the number of the next effect."""
        if self._accepted is not None and self._accepted[0] == answer:
            return ""
        made = await self._decide_answer("before_answer", answer, n, step)
        if made.refusal:
            return f"The answer is not accepted: {made.refusal}"
        self._accepted = (answer, made.value)
        return ""

    async def end_with(self, outcome: Outcome, n: int, step: int) -> Outcome:
        """Return the outcome of the run, after the hooks decided about its answer."""
        if not isinstance(outcome, Answered | Stopped) or outcome.answer is None:
            return outcome
        answer = outcome.answer
        if objection := await self.before_answer(answer, n, step):
            return Failed(objection, kind="refused")
        if self._accepted is not None:
            answer = self._accepted[1]
        made = await self._decide_answer("after_answer", answer, n, step)
        if made.refusal:
            return Failed(_describe_refusal("after_answer", made.hooks, made.refusal), kind="refused")
        return structs.replace(outcome, answer=made.value)

    async def _decide_answer(self, point: HookPoint, answer: JSON, n: int, step: int) -> Decided[JSON]:
        """Return what the hooks, and the user whom they ask, decide about an answer."""
        if not self._hooks[point] and not self._was_recorded(point):
            return Decided(answer)
        self._answers[point, n] += 1
        place = HookPlace(point, n, -self._answers[point, n], step, self.run_context.run_spec.past.effect(n))
        made = await self._decide(place, answer, ANSWER)
        text = answer if isinstance(answer, str) else input_of(Call("", answer))
        refusal = await self._settle(place, made, f"\nThe answer: {shorten(text, SHOWN)[0]}")
        return structs.replace(made, refusal=refusal, question="")

    # -- all points

    def _decides(self, place: HookPlace) -> bool:
        """Return whether hooks decide at a place, or did on record."""
        return bool(self._hooks[place.point]) or (place.point, place.i) in place.past.decided

    async def _decide(
        self,
        place: HookPlace,
        value: T,
        form: ValueForm[T],
        *more: Any,
        ask: Callable[[], Awaitable[Decided[T]]] | None = None,
    ) -> Decided[T]:
        """Return what the hooks decide about a value, or what is recorded of that. `more` are further arguments of the
        hooks, before the value. `ask` calls them in another way than one after the other."""
        recorded = next(iter(place.past.decided.get((place.point, place.i), ())[place.edits :]), None)
        if recorded is not None:
            return _read_decision(recorded, form.read(value, recorded.value) if recorded.changed else value)
        if not self._hooks[place.point] or self.run_context.run_spec.replay:
            return Decided(value)
        made = await (self._call_hooks(place.point, value, *more) if ask is None else ask())
        action: Literal["pass", "refuse", "ask"] = "refuse" if made.refusal else "ask" if made.question else "pass"
        text, changed = made.refusal or made.question, made.value != value
        written = form.write(value, made.value) if changed or place.point == "before_tool" else None
        at = (place.n, place.step, place.point, place.i)
        self.run_context.log.buffer((HookRecord(*at, action, made.hooks, text, changed, written), None))
        if made.hooks:
            did = "refused" if made.refusal else "asks about" if made.question else "changed"
            what = f"{did} the {_SUBJECTS[place.point]}{f': {text}' if text else ''}"
            names = f"{'hook' if len(made.hooks) == 1 else 'hooks'} {' and '.join(made.hooks)}"
            self.run_context.remark(place.step, "hook", sentence(f"the {names} {what}"))
        return structs.replace(made, changed=changed)

    async def _settle(self, place: HookPlace, made: Decided[Any], shown: str = "") -> str:
        """Return the reason of a refusal, by the hooks or by the user whom they ask; "" if there is none. `shown` is
        the end of the question."""
        if not made.question:
            return made.refusal
        point, n, i, past = place.point, place.n, place.i, place.past
        asked = past.hook_waits.get((point, i))
        answer = asked.answer if asked is not None else None
        if answer is None:
            if self.run_context.run_spec.replay:
                raise RecordEnds
            question = f"{made.question}{shown}"
            answer = await self.run_context.wait(n, place.step, i, "approval", question, past, point=point)
        if answer.approved:
            return ""
        return f"the person refused it: {answer.text}" if answer.text else "the person refused it"

    async def _call_hooks(
        self, point: HookPoint, value: T, *more: Any, hooks: tuple[Hook, ...] | None = None
    ) -> Decided[T]:
        questions: list[str] = []
        names: list[str] = []
        for hook in self._hooks[point] if hooks is None else hooks:
            found = await self._call(hook, point, *more, value)
            if found is None or found == value:
                continue
            names.append(hook.name)
            match found:
                case Refuse(reason=reason):
                    return Decided(value, reason, hooks=(hook.name,))
                case AskApproval(question=question):
                    questions.append(question)
                case _:
                    self._check_value(hook, point, value, found)
                    value = found
        return Decided(value, question="\n".join(questions), hooks=tuple(names))

    def _check_value(self, hook: Hook, point: HookPoint, before: Any, after: Any) -> None:
        """Raise `ConfigError` if a hook returned a value that cannot replace the one before."""
        wrong = wanted = ""
        form, output = f"a {type(before).__name__}", self.run_context.run_spec.output
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
            raise ConfigError(f"The hook {hook.name} returned {wrong} in {point}.", hint=hint)

    async def _call(self, hook: Hook, point: str, *arguments: Any) -> Any:
        run_spec = self.run_context.run_spec
        context = Context(run_spec.deps, self.run_context.log.run, self.run_context.meter.steps, run_spec.session)
        # Each hook gets an input of its own. What it writes into it changes nothing, unless it returns the call.
        with_own_name = run_spec.tools.with_own_name  # not the one that the loop needs
        own = [with_own_name(replace_input(each)) if isinstance(each, Call) else each for each in arguments]
        try:
            found = await call_either(getattr(hook, point), context, *own)
        except (Exception, SystemExit) as why:
            raise ConfigError(
                f"The hook {hook.name} failed in {point}: {show_error(why)}.", hint="Correct it, then resume the run."
            ) from why
        if isinstance(found, Call) and isinstance(own[-1], Call) and found.tool == own[-1].tool:
            return structs.replace(found, tool=arguments[-1].tool)
        return found


def _read_decision(recorded: HookDecision, value: T) -> Decided[T]:
    text = recorded.text
    refusal, question = (text if recorded.action == action else "" for action in ("refuse", "ask"))
    return Decided(value, refusal, question, recorded.hooks, recorded.changed)


def _marks(before: Observation, after: Observation) -> dict[str, Any]:
    """Return what the runtime says of a result, and no hook takes back."""
    return {
        "outside": before.outside or after.outside,
        "repeated": before.repeated,
        "seconds": before.seconds,
        "stopped": before.stopped,
        # A hook changes the answer, not that it is one. An error is no answer.
        "ends": before.ends if after.ok or not before.ok else "",
        "note": after.note or before.note,
    }


def _describe_refusal(point: HookPoint, hooks: tuple[str, ...], reason: str) -> str:
    named = f"{'hook' if len(hooks) == 1 else 'hooks'} {' and '.join(hooks)}"
    return f"The {named} refused the {_SUBJECTS[point]}: {reason.rstrip('.')}."


def _require_free(point: HookPoint, made: Decided[T]) -> T:
    """Return the value, for a request that cannot wait for the user. Raises `HookRefused`."""
    if made.question:
        raise HookRefused(f"{made.question} A question that a tool asks a model cannot wait for an approval.")
    if made.refusal:
        raise HookRefused(_describe_refusal(point, made.hooks, made.refusal))
    return made.value


def _struct_form(kind: type[T]) -> ValueForm[T]:
    return ValueForm(
        lambda before, after: to_builtins(after, enc_hook=repr), lambda before, value: convert(value, kind)
    )


def _changed_fields(before: Think, after: Think) -> dict[str, Any]:
    """Return the fields of a request that hooks changed. Of the messages only those that differ, by their place, if
    there are as many as before."""
    fields = {
        name: to_builtins(value)
        for name in Think.__struct_fields__
        if (value := getattr(after, name)) != getattr(before, name)
    }
    if "messages" in fields and len(before.messages) == len(after.messages):
        pairs = enumerate(zip(before.messages, after.messages, strict=True))
        fields["messages"] = {str(k): to_builtins(new) for k, (old, new) in pairs if old != new}
    return fields


def _with_fields(before: Think, fields: dict[str, Any]) -> Think:
    messages = fields.get("messages")
    if isinstance(messages, dict):
        merged = [messages.get(str(k), to_builtins(old)) for k, old in enumerate(before.messages)]
        fields = {**fields, "messages": merged}
    return convert({**to_builtins(before), **fields}, Think)


REQUEST = ValueForm(_changed_fields, _with_fields)
REPLY, CALL, OBSERVATION = _struct_form(Reply), _struct_form(Call), _struct_form(Observation)
ANSWER: ValueForm[JSON] = ValueForm(lambda before, after: after, lambda before, value: value)
