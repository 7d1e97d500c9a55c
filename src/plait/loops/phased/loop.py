"""Reason, react, act, reply: four phases; three of them ask a model, and each can have its own.

*Reason* says in words what is to be done. *React* chooses actions, as a JSON list. *Act* runs them, concurrently unless
one needs another's result. *Reply* is the only text that the user sees. All phases share one chat: the identity as
system message, each phase's prompt as the user's, its model's reply as the assistant's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from msgspec import structs

from plait.core import (
    Act,
    Answered,
    Call,
    Effects,
    Failed,
    LimitNear,
    LoopContext,
    LoopRun,
    Message,
    Observation,
    OneKind,
    Splitter,
    Step,
    Stopped,
    Task,
    check_answer,
    is_going_round,
    note,
    think,
    user,
)
from plait.loops.format import Unreadable
from plait.loops.grounding import find_ungrounded, strike_values
from plait.loops.phased import action_list
from plait.loops.phased.checks import check_actions, find_left_out, find_same, separate_calls
from plait.loops.phased.log import PhasedChat, Prompt
from plait.loops.plan import Dispatch, Results, failed_needs
from plait.loops.references import RESULTS
from plait.loops.registry import check_options
from plait.loops.tool_descriptions import offered_tools
from plait.loops.transcript import with_repair
from plait.loops.turn import Bad, fit_prompt

_CORRECTABLE = ("unknown_tool", "bad_input", "raised")
"""Errors of a call that a different call may avoid."""


@dataclass(frozen=True)
class Phased:
    """Reason, react, act, reply.

    `rounds`: maximum rounds of reason, react and act; with more than one, the model says when all is done. After a
    failed action there is one extra round, once. `most`: maximum actions of one list. `constrain`: send the JSON schema
    of the list with every request (otherwise only with a second attempt). `max_parse_errors`: replies without a
    readable list before the last one is used as text for the reply phase. `max_tokens`: limit for one reply.
    """

    rounds: int = 1
    most: int = action_list.MOST
    constrain: bool = False
    max_parse_errors: int = 2
    max_tokens: int | None = None

    name: ClassVar[str] = "phased"
    phases: ClassVar[tuple[str, ...]] = ("reason", "react", "reply")
    reserved: ClassVar[tuple[str, ...]] = (action_list.BASIC,)

    def __post_init__(self) -> None:
        check_options(self)

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        log, rounds, against = PhasedChat(task, context), self.rounds, ""
        try:
            while True:
                yield from self._rounds(log, max(1, rounds), against)
                answer = yield from self._say(log, "reply", "reply")
                if not answer:
                    return Failed("The reply is empty.", kind="format")
                before, against = against, (yield from check_answer(answer))
                if not against:
                    return Answered(answer)
                if before or not context.tools:
                    return Failed(against)
                rounds = 1
        except LimitNear as limit:
            answer = yield from self._say(log, "reply", "conclude", reason=limit.detail)
            return Stopped(limit.limit, limit.detail, answer or None)

    def _rounds(self, log: PhasedChat, rounds: int, against: str) -> Effects[None]:
        """Reason, react and act; `against` is the objection to an earlier reply."""
        done, retried = 0, False
        while done < rounds:
            if against:
                thought = yield from self._say(log, "reason", "refused", complaint=against)
            else:
                thought = yield from self._say(log, "reason", "again" if done else "reason")
            if not log.context.tools or (done and action_list.says_done(thought)):
                return
            steps = yield from self._react(log)
            if not steps:
                return
            failed = yield from self._act(log, steps)
            done, against = done + 1, ""
            if failed and done == rounds and not retried:
                # Only the reply phase would see the error, and it has no actions.
                rounds, retried = rounds + 1, True
                yield from note("again", f"action {', '.join(failed)} failed: the model reasons and reacts once more")

    def splitter(self, phase: str) -> Splitter:
        return action_list.splitter() if phase == "react" else OneKind("thought" if phase == "reason" else "answer")

    def _say(self, log: PhasedChat, phase: str, name: str, **values: Any) -> Effects[str]:
        """Return one phase's text, after adding it to the log."""
        prompt = log.prompt(name, **values)
        text = yield from self._think(log, phase, prompt, repair=bool(values))
        log.add(prompt, strike_values(text, (yield from find_ungrounded(text))))
        return text

    def _think(
        self, log: PhasedChat, phase: str, prompt: Prompt, tail: tuple[Message, ...] = (), **options: Any
    ) -> Effects[str]:
        """Make one model call with the log and a prompt; shorten results as far as necessary."""

        def attempt(chars: int) -> Effects[Any]:
            messages = (*log.messages(chars), user(prompt(chars)), *tail)
            size = self.max_tokens or (action_list.CHUNK if phase == "react" else None)
            return think(phase, messages, max_tokens=size, **options)

        reply, log.chars = yield from fit_prompt(attempt, log.chars)
        text = str(reply.text).strip()
        if phase != "react" or not reply.how_cut:
            return text
        yield from note("cut", f"the list of actions {reply.how_cut}: those that are complete count")
        return action_list.whole(text)

    def _listed(self, text: str) -> bool:
        """Return whether an unfinished list need not be continued: it has enough actions, or the model is in a loop."""
        return action_list.entries(text) >= self.most or is_going_round(text)

    # -- react

    def _react(self, log: PhasedChat) -> Effects[tuple[Step, ...]]:
        """Return the actions to run; none if the model wants none, or only talks."""
        prompt, context = log.prompt("react"), log.context
        bad: Bad | None = None
        max_parse_errors, warned = 0, False
        while True:
            tail = with_repair(bad[0], log.repair(bad[1])) if bad else ()
            schema = action_list.schema(offered_tools(context, log.seen), self.most) if self.constrain or bad else None
            text = yield from self._think(
                log, "react", prompt, tail, repair=bool(bad), schema=schema, enough=self._listed
            )
            try:
                read = action_list.read(text, context.known, self.most)
            except Unreadable as why:
                max_parse_errors += 1
                if max_parse_errors >= self.max_parse_errors:
                    yield from note("unreadable", "no list of actions came: the text is taken for the reply phase")
                    log.add(prompt, text)
                    return ()
                bad = (text, str(why))
            else:
                against, found = yield from check_actions(log, read.steps)
                if not against or warned:
                    break
                warned = True
                bad = (strike_values(text, found), against)
            yield from note("unreadable", f"the list of actions can't be taken: {bad[1]}")
        for remark in read.remarks:
            yield from note(remark.kind, remark.text)
        log.add(prompt, strike_values(read.kept, found))
        return read.steps

    # -- act

    def _act(self, log: PhasedChat, steps: Sequence[Step]) -> Effects[list[str]]:
        """Run the actions; a skipped action's result is the reason. Return the ids of those that failed."""
        left_out = {id: Observation(f"It was left out: {why}.", "cancelled") for id, why in find_left_out(log, steps)}
        for id, seen in left_out.items():
            yield from note("cut", f"action {id} of the list: {seen.text}")
        same = find_same(log.context, [step for step in steps if step.id not in left_out])
        for id, first in same.items():
            yield from note("cut", f"action {id} of the list is the same as action {first}: one call is made")
        work = Dispatch(partial(_begin, log.context, same), left_out)
        log.fresh = ([step for step in steps if step.id not in same], work.results)
        yield from work.add(*(structs.replace(s, needs=(same[s.id],)) if s.id in same else s for s in steps))
        yield from work.finish()
        log.seen += [seen.text for seen in work.results.values()]
        for step in log.fresh[0]:
            if step.id not in left_out and any(failed_needs(step, work.results)):
                yield from note("skipped", f"action {step.id} of the list: {work.results[step.id].text}")
        return [step.id for step in steps if work.results[step.id].trouble in _CORRECTABLE]


def _begin(context: LoopContext, same: Mapping[str, str], step: Step, results: Results) -> Act | Observation:
    """Return an action's call with its references filled in, or an observation: its result, or why it is not made."""
    if step.id in same:
        return results[same[step.id]]
    if missing := list(failed_needs(step, results)):
        # Never call a tool with a placeholder for a missing result: it could act on it.
        return Observation(f"It needs the result of action {', '.join(missing)}, which gave none.", "cancelled")
    given = RESULTS.fill_step(step, results)
    return Act(tuple(Call(step.tool, each) for each in separate_calls(context, step.tool, given)))
