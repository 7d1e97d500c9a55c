"""Reason, react, act, reply: four phases, three of them asked of a model, each of a model of its own if one likes.

*Reason* says in words what is to be done; *react* chooses actions, as a JSON list; *act* carries them out, side by side
unless one needs another's result; *reply* is the only text the person sees. One chat runs through all of them: the
identity as system message, each phase's prompt as the user's, what its model wrote as the assistant's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar

from msgspec import structs

from plait.core import (
    JSON,
    Act,
    Answered,
    Call,
    Effect,
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
    going_round,
    note,
    propose,
    think,
    user,
)
from plait.core.arguments import separate_inputs
from plait.loops.format import Unreadable
from plait.loops.grounding import made_up, struck
from plait.loops.offered_tools import offered, searched
from plait.loops.phased import action_list
from plait.loops.phased.log import MEMORY, Log, Prompt
from plait.loops.plan import Dispatch, Results, troubled
from plait.loops.references import RESULTS, in_formula
from plait.loops.registry import check_options
from plait.loops.transcript import with_repair
from plait.loops.turn import Bad, fitting

_CORRECTABLE = ("unknown_tool", "bad_input", "raised")
"""Troubles of a call that another call may avoid."""
# Scripts without blanks count each sign as a word.
_WORD = re.compile(r"[\u2e80-\uffff]|(?:(?![\u2e80-\uffff])\w)+")


@dataclass(frozen=True)
class Phased:
    """Reason, react, act, reply.

    `rounds`: how often to reason, react and act at most; with more than one the model says when all is done. After an
    action that failed there is one round more, once. `most`: actions of one list that count. `constrain`: hand the
    endpoint the JSON schema of the list (at a second try it is in any case). `max_parse_errors`: replies without a
    readable list before the last one is taken as words for the reply phase. `max_tokens`: of one reply.
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

    def run(self, task: Task, kit: LoopContext) -> LoopRun:
        """The loop."""
        log, rounds, against = Log(task, kit), self.rounds, ""
        try:
            while True:
                yield from self._rounds(log, max(1, rounds), against)
                answer = yield from self._say(log, "reply", "reply")
                if not answer:
                    return Failed("The reply is empty.", kind="format")
                before, against = against, (yield from propose(answer))
                if not against:
                    return Answered(answer)
                if before or not kit.tools:
                    return Failed(against)
                rounds = 1
        except LimitNear as limit:
            answer = yield from self._say(log, "reply", "conclude", reason=limit.detail)
            return Stopped(limit.limit, limit.detail, answer or None)

    def _rounds(self, log: Log, rounds: int, against: str) -> Generator[Effect, Any, None]:
        """Reason, react and act; `against` is what spoke against the reply that there was."""
        done, retried = 0, False
        while done < rounds:
            if against:
                thought = yield from self._say(log, "reason", "refused", complaint=against)
            else:
                thought = yield from self._say(log, "reason", "again" if done else "reason")
            if not log.kit.tools or (done and action_list.says_done(thought)):
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
        """Tells the parts of a reply apart."""
        return action_list.splitter() if phase == "react" else OneKind("thought" if phase == "reason" else "answer")

    def _say(self, log: Log, phase: str, name: str, **values: Any) -> Generator[Effect, Any, str]:
        """One phase's words, put into the log."""
        prompt = log.prompt(name, **values)
        text = yield from self._think(log, phase, prompt, repair=bool(values))
        log.add(prompt, struck(text, (yield from made_up(text))))
        return text

    def _think(
        self, log: Log, phase: str, prompt: Prompt, tail: tuple[Message, ...] = (), **options: Any
    ) -> Generator[Effect, Any, str]:
        """One model call over the log and a prompt that follows it; results are shortened as far as they have to be."""

        def attempt(chars: int) -> Generator[Effect, Any, Any]:
            messages = (*log.messages(chars), user(prompt(chars)), *tail)
            size = self.max_tokens or (action_list.CHUNK if phase == "react" else None)
            return think(phase, messages, max_tokens=size, **options)

        reply, log.chars = yield from fitting(attempt, log.chars)
        text = str(reply.text).strip()
        if phase != "react" or not reply.how_cut:
            return text
        yield from note("cut", f"the list of actions {reply.how_cut}: those that are complete count")
        return action_list.whole(text)

    def _listed(self, text: str) -> bool:
        """A list that was broken off need not be continued: it has all the actions that count, or goes round."""
        return action_list.entries(text) >= self.most or going_round(text)

    # -- react

    def _react(self, log: Log) -> Generator[Effect, Any, tuple[Step, ...]]:
        """The actions to take; none where the model wants none, or talks."""
        prompt, kit = log.prompt("react"), log.kit
        bad: Bad | None = None
        max_parse_errors, warned = 0, False
        while True:
            tail = with_repair(bad[0], log.repair(bad[1])) if bad else ()
            schema = action_list.schema(offered(kit, log.seen), self.most) if self.constrain or bad else None
            text = yield from self._think(
                log, "react", prompt, tail, repair=bool(bad), schema=schema, enough=self._listed
            )
            try:
                read = action_list.read(text, kit.known, self.most)
            except Unreadable as why:
                max_parse_errors += 1
                if max_parse_errors >= self.max_parse_errors:
                    yield from note("unreadable", "no list of actions came: the text is taken for the reply phase")
                    log.add(prompt, text)
                    return ()
                bad = (text, str(why))
            else:
                against, found = yield from _against(log, read.steps)
                if not against or warned:
                    break
                warned = True
                bad = (struck(text, found), against)
            yield from note("unreadable", f"the list of actions can't be taken: {bad[1]}")
        for remark in read.remarks:
            yield from note(remark.kind, remark.text)
        log.add(prompt, struck(read.kept, found))
        return read.steps

    # -- act

    def _act(self, log: Log, steps: Sequence[Step]) -> Generator[Effect, Any, list[str]]:
        """Carry out the actions; what is left out has its reason for a result. Returns the ids of those that failed."""
        left_out = {id: Observation(f"It was left out: {why}.", "cancelled") for id, why in _left_out(log, steps)}
        for id, seen in left_out.items():
            yield from note("cut", f"action {id} of the list: {seen.text}")
        same = _same(log.kit, [step for step in steps if step.id not in left_out])
        for id, first in same.items():
            yield from note("cut", f"action {id} of the list is the same as action {first}: one call is made")
        work = Dispatch(partial(_begin, log.kit, same), left_out)
        log.fresh = ([step for step in steps if step.id not in same], work.results)
        yield from work.add(*(structs.replace(s, needs=(same[s.id],)) if s.id in same else s for s in steps))
        yield from work.finish()
        log.seen += [seen.text for seen in work.results.values()]
        for step in log.fresh[0]:
            if step.id not in left_out and any(troubled(step, work.results)):
                yield from note("skipped", f"action {step.id} of the list: {work.results[step.id].text}")
        return [step.id for step in steps if work.results[step.id].trouble in _CORRECTABLE]


def _against(log: Log, steps: Sequence[Step]) -> Generator[Effect, Any, tuple[str, Sequence[str]]]:
    """What speaks against a list of actions, before any of them runs, and the made-up values in it."""
    ids = {step.id for step in steps}
    wrong: list[str] = []
    for step in steps:
        for given in _inputs(log.kit, step.tool, step.input):
            problem = log.kit.find_problem(step.tool, given, RESULTS.is_open)
            wrong += [f"Action {step.id} {problem}"] if problem else []
        others = ids - {step.id}
        unknown = [f"${id}" for id in RESULTS.meant(step.input, others, log.task.question) if id not in others]
        if unknown:
            wrong.append(
                f"Action {step.id} names {', '.join(unknown)}, which no other action of the list gives. "
                "Write an amount of money without the sign $."
            )
    if wrong:
        return (yield from searched(log.kit, " ".join(dict.fromkeys(wrong)))), ()
    raw = next((step.tool for step in steps if whole_question(step, log.task.question)), "")
    if raw:
        return f"{raw} was given the user's whole question. Give it just what it takes.", ()
    for step in steps:
        if found := (yield from made_up(calls=[Call(step.tool, RESULTS.without(step.input))])):
            before = [other for other in steps if int(other.id) < int(step.id)]
            earlier = [f"${each.id} for what {action_list.call_words(each, each.input)} gives" for each in before]
            how = f"Write {', '.join(earlier)}." if earlier else "Let an action before it look that up."
            return f"In action {step.id} is made up what no result has given: {', '.join(found)}. {how}", found
        tool = log.kit.tool(step.tool)
        if tool is not None and tool.computes and (words := in_formula(step.input, RESULTS)):
            told = f"words stand in a formula: {', '.join(words)}"
            return f"In action {step.id} {told}. Let an action before it look that up, and write $ and its number.", ()
    return "", ()


def _inputs(kit: LoopContext, tool: str, given: JSON) -> list[JSON]:
    """The inputs of the calls that one action stands for: `["IBM", "T"]` is two calls of a tool with one parameter."""
    spec = kit.tool(tool)
    return separate_inputs(given, spec.parameters) if spec is not None else [given]


def _begin(kit: LoopContext, same: Mapping[str, str], step: Step, results: Results) -> Act | Observation:
    """An action's call, its references filled in; or what came of it already, or why it is not made."""
    if step.id in same:
        return results[same[step.id]]
    if missing := list(troubled(step, results)):
        # A tool is not called with words that stand for nothing: it may act on them.
        return Observation(f"It needs the result of action {', '.join(missing)}, which gave none.", "cancelled")
    given = RESULTS.fill_step(step, results)
    return Act(tuple(Call(step.tool, each) for each in _inputs(kit, step.tool, given)))


def _same(kit: LoopContext, steps: Sequence[Step]) -> dict[str, str]:
    """Actions that say what an earlier one says, by id, with that one's id. Twice the same effect may be meant; twice
    the same question is not, and so many of them would look like a loop."""
    first: dict[str, str] = {}
    same: dict[str, str] = {}
    for step in steps:
        tool = kit.tool(step.tool)
        if tool is None or tool.repeatable:
            before = first.setdefault(json.dumps([step.tool, step.input], sort_keys=True), step.id)
            same |= {step.id: before} if before != step.id else {}
    return same


def _left_out(log: Log, steps: Sequence[Step]) -> Iterator[tuple[str, str]]:
    """The actions that are not carried out, by id, and why: given the raw question, or shut out by an earlier one."""
    kept: list[Step] = []
    for step in steps:
        rivals = [other.tool for other in kept if action_list.excluded(log.kit.known, step.tool, other.tool)]
        # A search by meaning finds by a whole question, too, if not as well.
        if step.tool != MEMORY and whole_question(step, log.task.question):
            yield step.id, "its argument is the whole question"
        elif rivals:
            yield step.id, f"{rivals[0]} does the same job"
        else:
            kept.append(step)


def whole_question(step: Step, question: str) -> bool:
    """An argument says what the question says, word for word. One or two words (`Lyon?`, `2+2`) are no question."""
    asked = _words(question)
    if sum(any(map(str.isalpha, word)) for word in asked) < 3:
        return False
    given = step.input.values() if isinstance(step.input, dict) else step.input or ()
    return any(isinstance(value, str) and _words(value) == asked for value in given)


@lru_cache(maxsize=128)
def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(text.casefold()))
