"""Reason, react, act, reply: four phases; three of them ask a model, and each can have its own.

*Reason* says in words what is to be done. *React* chooses actions, as a JSON list. *Act* runs them, concurrently unless
one needs another's result. *Reply* is the only text that the user sees. All phases share one chat: the identity as
system message, each phase's prompt as the user's, its model's reply as the assistant's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import ClassVar, cast

from msgspec import structs

from plait.core import (
    JSON,
    Act,
    Answered,
    Call,
    Effects,
    Failed,
    LimitNear,
    LoopContext,
    LoopRun,
    Observation,
    OneKind,
    Reply,
    Splitter,
    Step,
    Stopped,
    Task,
    check_answer,
    note,
)
from plait.core.arguments import separate_inputs
from plait.core.loop import HISTORY
from plait.loops.asking import BadReply, Rejected, ask_until_read
from plait.loops.format import Unreadable
from plait.loops.grounding import find_ungrounded, strike_values
from plait.loops.phased import action_list
from plait.loops.phased.chat import PhasedChat
from plait.loops.plan import Dispatch, Results, failed_needs
from plait.loops.references import RESULTS, words_in_formula
from plait.loops.registry import CheckedOptions
from plait.loops.tool_descriptions import add_search_results, are_exclusive, offered_tools, tools_found

_CORRECTABLE = ("unknown_tool", "bad_input", "raised")
"""Errors of a call that a different call may avoid."""
# Scripts without blanks count each sign as a word.
_WORD = re.compile(r"[\u2e80-\uffff]|(?:(?![\u2e80-\uffff])\w)+")


@dataclass(frozen=True)
class Phased(CheckedOptions):
    """Reason, react, act, reply.

    `rounds`: maximum rounds of reason, react and act; with more than one, the model says when all is done. After a
    failed action, or a result that is too long, there is one extra round, once. `most`: maximum actions of one list.
    `constrain`: send the JSON schema of the list with every request (otherwise only with a second attempt).
    `max_parse_errors`: replies without a readable list before the last one is used as text for the reply phase.
    `max_tokens`: limit for one reply.
    """

    rounds: int = 1
    most: int = action_list.MOST
    constrain: bool = False
    max_parse_errors: int = 2
    max_tokens: int | None = None

    name: ClassVar[str] = "phased"
    searches_history: ClassVar[bool] = True
    """The published set-up has the action that searches the conversation in every turn."""
    phases: ClassVar[tuple[str, ...]] = ("reason", "react", "reply")
    shared_prompts: ClassVar[tuple[str, ...]] = ("compaction",)
    links_calls: ClassVar[bool] = True
    reserved: ClassVar[tuple[str, ...]] = (action_list.BASIC,)

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        chat, rounds, objection = PhasedChat(task, context, self.max_tokens), self.rounds, ""
        try:
            while True:
                yield from self._reason_and_act(chat, max(1, rounds), objection)
                answer = yield from chat.reply("reply")
                if isinstance(answer, Failed):
                    return answer
                before, objection = objection, (yield from check_answer(answer))
                if not objection:
                    return Answered(answer)
                if before or not context.tools:
                    return Failed(objection)
                rounds = 1
        except LimitNear as limit:
            answer = yield from chat.reply("conclude", reason=limit.detail)
            return Stopped(limit.limit, limit.detail, None if isinstance(answer, Failed) else answer)

    def splitter(self, phase: str) -> Splitter:
        if phase == "react":
            return action_list.ACTIONS.stream()
        return OneKind("thought" if phase == "reason" else "answer")

    def _reason_and_act(self, chat: PhasedChat, rounds: int, objection: str) -> Effects[None]:
        """Reason, react and act; `objection` is what speaks against an earlier reply."""
        done, retried = 0, False
        while done < rounds:
            name = "refused" if objection else "again" if done else "reason"
            thought = yield from chat.say("reason", name, complaint=objection)
            if not chat.context.tools or (done and action_list.says_done(thought)):
                return
            steps = yield from self._react(chat)
            if not steps:
                return
            failed = yield from run_actions(chat, steps)
            done, objection = done + 1, ""
            cut = bool(tools_found(chat.context.others, chat.notes))  # a note names the tool that reads a long result
            if (failed or cut) and done == rounds and not retried:
                # Only the reply phase would see the error or the note, and it has no actions.
                rounds, retried = rounds + 1, True
                why = f"action {', '.join(failed)} failed" if failed else "a result was too long to be shown"
                yield from note("again", f"{why}: the model reasons and reacts once more")

    def _react(self, chat: PhasedChat) -> Effects[tuple[Step, ...]]:
        """Return the actions that the model chooses; none if it wants none, or only talks."""
        prompt, context, checked = chat.prompt("react"), chat.context, False
        codec = action_list.ActionList(self.most)

        def ask(bad: BadReply | None) -> Effects[Reply]:
            held = self.constrain or bool(bad)
            schema = codec.schema(offered_tools(context, chat.seen)) if held else None
            return chat.ask_for_list(prompt, bad, self.most, schema)

        def read(reply: Reply, miss: int) -> Effects[tuple[Step, ...]]:
            nonlocal checked
            shown, counts = reply.text, True
            try:
                actions = codec.read(reply.text, tools=context.known_tools)
            except Unreadable as why:
                if miss >= self.max_parse_errors:
                    yield from note("unreadable", "no list of actions came: the text is taken for the reply phase")
                    chat.add(prompt, reply.text)
                    return ()
                against = str(why)
            else:
                against, found = yield from check_actions(chat, actions.steps)
                if checked or not against:
                    for remark in actions.remarks:
                        yield from note(remark.kind, remark.text)
                    chat.add(prompt, strike_values(actions.kept, found))
                    return actions.steps
                checked, shown, counts = True, strike_values(reply.text, found), False
            yield from note("unreadable", f"the list of actions can't be taken: {against}")
            raise Rejected(against, shown, counts=counts)

        return cast(tuple[Step, ...], (yield from ask_until_read(ask, read)))


def check_actions(chat: PhasedChat, steps: Sequence[Step]) -> Effects[tuple[str, Sequence[str]]]:
    """Return the objection to a list of actions before any of them runs, and the invented values in it."""
    ids = {step.id for step in steps}
    wrong: list[str] = []
    for step in steps:
        for given in separate_calls(chat.context, step.tool, step.input):
            problem = chat.context.find_problem(step.tool, given, RESULTS.is_open)
            wrong += [f"Action {step.id} {problem}"] if problem else []
        others = ids - {step.id}
        unknown = [f"${id}" for id in RESULTS.meant(step.input, others, chat.task.question) if id not in others]
        if unknown:
            wrong.append(
                f"Action {step.id} names {', '.join(unknown)}, which no other action of the list gives. "
                "Write an amount of money without the sign $."
            )
    if wrong:
        return (yield from add_search_results(chat.context, " ".join(dict.fromkeys(wrong)))), ()
    raw = next((step.tool for step in steps if is_whole_question(step, chat.task.question)), "")
    if raw:
        return f"{raw} was given the user's whole question. Give it just what it takes.", ()
    for step in steps:
        if found := (yield from find_ungrounded(calls=(Call(step.tool, RESULTS.without(step.input)),))):
            before = [other for other in steps if int(other.id) < int(step.id)]
            earlier = [f"${each.id} for what {action_list.call_words(each, each.input)} gives" for each in before]
            how = f"Write {', '.join(earlier)}." if earlier else "Let an action before it look that up."
            return f"In action {step.id} is made up what no result has given: {', '.join(found)}. {how}", found
        tool = chat.context.tool(step.tool)
        if tool is not None and tool.computes and (words := words_in_formula(step.input, RESULTS)):
            told = f"words stand in a formula: {', '.join(words)}"
            return f"In action {step.id} {told}. Let an action before it look that up, and write $ and its number.", ()
    return "", ()


def separate_calls(context: LoopContext, tool: str, given: JSON) -> list[JSON]:
    """Return the inputs of the calls that an action means: `["IBM", "T"]` is two of a tool with one parameter."""
    spec = context.tool(tool)
    return separate_inputs(given, spec.parameters) if spec is not None else [given]


def is_whole_question(step: Step, question: str) -> bool:
    """Return whether an argument equals the question word for word. One or two words (`Lyon?`, `2+2`) do not count."""
    asked = _words(question)
    if sum(any(map(str.isalpha, word)) for word in asked) < 3:
        return False
    given = step.input.values() if isinstance(step.input, dict) else step.input or ()
    return any(isinstance(value, str) and _words(value) == asked for value in given)


@lru_cache(maxsize=128)
def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(text.casefold()))


def run_actions(chat: PhasedChat, steps: Sequence[Step]) -> Effects[list[str]]:
    """Run the actions concurrently, each as soon as the results that it names exist; show the results in the chat. The
    result of an action that is left out says why. Return the ids of those that another call may correct."""
    kept: list[Step] = []
    left_out: dict[str, Observation] = {}
    for step in steps:
        rivals = [other.tool for other in kept if are_exclusive(chat.context.known_tools, step.tool, other.tool)]
        # A search by meaning also works with a whole question, if less well.
        if step.tool != HISTORY and is_whole_question(step, chat.task.question):
            why = "its argument is the whole question"
        elif rivals:
            why = f"{rivals[0]} does the same job"
        else:
            kept.append(step)
            continue
        left_out[step.id] = Observation(f"It was left out: {why}.", "cancelled")
        yield from note("cut", f"action {step.id} of the list: {left_out[step.id].text}")
    same: dict[str, str] = {}
    begun: dict[str, str] = {}
    for step in kept:
        tool = chat.context.tool(step.tool)
        # Repeating an effect may be intended. Repeating a question is not, and many repeats would look like a loop.
        if tool is None or tool.repeatable:
            first = begun.setdefault(json.dumps([step.tool, step.input], sort_keys=True), step.id)
            if first != step.id:
                same[step.id] = first
                yield from note("cut", f"action {step.id} of the list is the same as action {first}: one call is made")
    work = Dispatch(partial(_begin, chat.context, same), left_out)
    shown = [step for step in steps if step.id not in same]
    chat.show_results(shown, work.results)
    yield from work.add(*(structs.replace(s, needs=(same[s.id],)) if s.id in same else s for s in steps))
    yield from work.finish()
    chat.seen += [seen.with_note for seen in work.results.values()]
    chat.notes += [seen.note for seen in work.results.values()]
    for step in shown:
        if step.id not in left_out and failed_needs(step, work.results):
            yield from note("skipped", f"action {step.id} of the list: {work.results[step.id].text}")
    return [step.id for step in steps if work.results[step.id].trouble in _CORRECTABLE]


def _begin(context: LoopContext, same: Mapping[str, str], step: Step, results: Results) -> Act | Observation:
    """Return an action's call with its references filled in, or an observation: its result, or why it is not made."""
    if step.id in same:
        return results[same[step.id]]
    if missing := failed_needs(step, results):
        return Observation(f"It needs the result of action {missing}, which gave none.", "cancelled")
    given = RESULTS.fill_step(step, results)
    return Act(tuple(Call(step.tool, each) for each in separate_calls(context, step.tool, given)))
