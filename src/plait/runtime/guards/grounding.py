"""Keeps ungrounded values out of calls and answers, as far as the policy says (see `runtime/grounding.py`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import structs

from plait.core import (
    Answered,
    AskUser,
    Call,
    CheckAnswer,
    CheckGrounding,
    Continue,
    Execute,
    LimitNear,
    LoopContext,
    Observation,
    Ran,
    Reply,
    Stopped,
    Think,
)
from plait.core.messages import texts_in
from plait.core.text import sentence
from plait.runtime.grounding import Sources, describe_findings, refuse_invented, warning
from plait.runtime.guard import GROUNDING, LIMITS, Entry, Finish, Guard, Refuse, UserMessage
from plait.runtime.guards.last_act import LastAct
from plait.runtime.run_spec import Grounding

UNMADE = frozenset({"unknown_tool", "bad_input", "refused"})
"""The troubles of calls that were not made."""


class SourcesGuard(Guard):
    """Adds to the sources what the model is shown, as the other guards leave it: so it comes behind them."""

    name = "sources"
    order = LIMITS + 5
    holds_text = may_ask = holds_for_children = False
    points_after = (Call, Think, AskUser, Execute, Continue, CheckGrounding, CheckAnswer, UserMessage, Finish)

    def __init__(self, sources: Sources, context: LoopContext) -> None:
        self.sources, self._context = sources, context
        self._act = LastAct()

    async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
        self.learn_before(entry.key)
        match entry.effect:
            case Call() if isinstance(result, Observation):
                self._act.add(entry, result)
            case AskUser() if isinstance(result, str):
                self.sources.add(result)
            case Think() if isinstance(result, Reply):
                for each in (*result.hosted, *result.citations):
                    self.sources.add(" ".join(texts_in(structs.asdict(each))))
            case UserMessage():
                self.sources.add(result["text"])  # "" if it was refused
            case Execute(code=code) if isinstance(result, Ran):
                self.sources.add(result.output)
                self.sources.wrote(code)
            case Continue() if isinstance(result, Ran):
                self.sources.add(result.output)
        return result

    def holds_result(self, entry: Entry, result: Any) -> bool:
        return False

    def learn_before(self, key: str) -> None:
        """Add the results of the effect before this one, without made-up values that an error repeats. Results about
        tools are no sources: a search for tools, and the error for a call that fits no tool."""
        for entry, result in self._act.close(key):
            call = entry.asked
            if call.tool == self._context.search or result.trouble in ("unknown_tool", "bad_input"):
                continue
            text = result.text
            if not result.ok:
                for value in self.sources.find_invented(call, self._context.tool(call.tool)):
                    text = text.replace(value.rpartition(": ")[2], " ")
            self.sources.add(text)
            if entry.changed_by:  # the model is shown the changed input
                self.sources.add(msgspec.json.encode(entry.effect.input).decode())


class GroundingGuard(Guard):
    """Looks for ungrounded values in calls, answers, thoughts and code.

    `learner` follows the sources. `others` are the names of all tools. `fits` says whether an answer fits the output.
    `repeats` is how often the same answer may be refused, 0 for any number. `find_near` returns the signal that makes
    the loop conclude, once it was raised: from then on answers pass.
    """

    name = "grounding"
    order = GROUNDING
    holds_text = holds_for_children = False
    points = (Call,)
    points_after = (Call, CheckGrounding, CheckAnswer, Finish)

    def __init__(
        self,
        policy: Grounding,
        learner: SourcesGuard,
        context: LoopContext,
        *,
        others: Iterable[str] = (),
        fits: Callable[[Any], bool] = lambda answer: True,
        repeats: int = 0,
        find_near: Callable[[], LimitNear | None] = lambda: None,
    ) -> None:
        self._policy, self._learner, self._context = policy, learner, context
        self._sources, self.may_ask = learner.sources, policy == "ask"
        self._others, self._fits, self._repeats, self._find_near = tuple(others), fits, repeats, find_near
        self._invented: dict[tuple[str, str], tuple[str, ...]] = {}
        """What calls have invented that are under way."""
        self._has_objected = False
        self._refused: Counter[bytes] = Counter()
        """How often each answer was refused."""

    # -- calls

    async def before(self, entry: Entry) -> Any:
        self._learner.learn_before(entry.key)
        call, found = entry.effect, self._find_invented(entry)
        if found:
            is_of_user = entry.changed_by == "user"  # who knows what it says; "refuse" and "ask" look at it anyway
            if not is_of_user:
                entry.remark("invented", f"{call.tool}: {describe_findings(found)}")
            if self._policy == "refuse":
                return Refuse(refuse_invented(found, (name for name in self._others if name != call.tool)))
            if self._policy == "ask":
                entry.reasons.append(f"This {describe_findings(found)}.")
            if not is_of_user:
                self._invented[entry.id] = found
        return call

    def restore(self, entry: Entry, decision: Any) -> None:
        self._learner.learn_before(entry.key)
        warns = self._policy == "warn" and isinstance(entry.effect, Call) and entry.changed_by != "user"
        if warns and (found := self._find_invented(entry)):
            self._invented[entry.id] = found

    def release(self, entry: Entry) -> None:
        self._invented.pop(entry.id, None)

    def _find_invented(self, entry: Entry) -> tuple[str, ...]:
        call = entry.bound.written if entry.bound is not None else entry.effect
        if call.tool == self._context.search:
            return ()
        return self._sources.find_invented(call, self._context.tool(call.tool))

    # -- results

    def holds_result(self, entry: Entry, result: Any) -> bool:
        return self._policy == "warn" and entry.id in self._invented

    async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
        self._learner.learn_before(entry.key)
        match entry.effect:
            case Call():
                found = self._invented.pop(entry.id, ())
                if fresh and found and self._policy == "warn" and result.trouble not in UNMADE:
                    return structs.replace(result, note=f"{warning(found)} {result.note}".strip())
            case CheckGrounding() as check if fresh:
                return tuple(dict.fromkeys((*result, *self._find_doubtful(check))))
            case CheckAnswer() as check:
                if isinstance(result, LimitNear):
                    if result.limit == "loop":
                        self._count_refusal(check.answer)
                elif not result and not check.only_output:
                    return self._check_answer(entry, check.answer, fresh)
            case Finish() if isinstance(result, Stopped) and result.limit == "loop" and self._is_founded(result):
                return Answered(result.answer)
        return result

    def _find_doubtful(self, check: CheckGrounding) -> list[str]:
        """Return the made-up values that the model gets a note about, or that stop an effect."""
        if self._policy in ("off", "note") or (check.strict and self._policy != "refuse"):
            return []
        found = [*self._sources.in_words(check.text), *self._sources.in_code(check.code)]
        for call in check.calls if self._policy == "refuse" else ():
            if call.tool != self._context.search:
                found += self._sources.find_invented(call, self._context.tool(call.tool))
        return found

    def _check_answer(self, entry: Entry, answer: Any, fresh: bool) -> Any:
        """Refuse an answer with values that stand nowhere. Raises `LimitNear` if it was refused again and again."""
        found = self._sources.in_answer(answer)
        if not found:
            return ""
        if fresh:
            entry.remark("unfounded", f"the answer has what {describe_findings(found)}")
        is_last, self._has_objected = self._has_objected and self._policy != "refuse", True
        if self._policy == "note" or is_last or self._find_near() is not None:
            return ""
        times = self._refused[_key(answer)] + 1
        if fresh and self._repeats and times >= self._repeats:
            raise LimitNear("loop", f"the same answer was not taken {times} times")
        self._count_refusal(answer)
        return Refuse(
            f"That can't be the answer: {', '.join(found)} stands neither in the task nor in any observation. Look up "
            "what is missing, and have a tool compute what has to be computed; then answer."
        )

    def _count_refusal(self, answer: Any) -> None:
        self._has_objected = True
        self._refused[_key(answer)] += 1

    def _is_founded(self, outcome: Stopped) -> bool:
        """Return whether the loop only went in circles, and its answer was looked at and has nothing made up. Of a run
        whose last reply was cut, the reason says more than that of the signal."""
        answer, near = outcome.answer, self._find_near()
        if answer is None or near is None or self._policy == "note" or not self._fits(answer):
            return False
        return outcome.reason in (near.detail, sentence(near.detail)) and not self._sources.in_answer(answer)


def _key(answer: Any) -> bytes:
    return msgspec.json.encode(answer, order="deterministic")
