"""Checks a list of actions before one runs, and runs it: which are left out, which are made once, what each gave."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial

from msgspec import structs

from plait.core import JSON, Act, Call, Effects, LoopContext, Observation, Step, note
from plait.core.arguments import separate_inputs
from plait.core.loop import HISTORY
from plait.loops.grounding import find_ungrounded
from plait.loops.phased import action_list
from plait.loops.phased.chat import PhasedChat
from plait.loops.plan import Dispatch, Results, failed_needs
from plait.loops.references import RESULTS, words_in_formula
from plait.loops.tool_descriptions import add_search_results, are_exclusive

_CORRECTABLE = ("unknown_tool", "bad_input", "raised")
"""Errors of a call that a different call may avoid."""
# Scripts without blanks count each sign as a word.
_WORD = re.compile(r"[\u2e80-\uffff]|(?:(?![\u2e80-\uffff])\w)+")


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
        if found := (yield from find_ungrounded(calls=[Call(step.tool, RESULTS.without(step.input))])):
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
    """Return the inputs of the calls that one action means: `["IBM", "T"]` is two calls of a tool with one
    parameter."""
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
    """Run the actions concurrently, each as soon as the results that it names exist; show the results in the chat.

    The result of an action that is left out says why. Return the ids of those that another call may correct.
    """
    left_out = {id: Observation(f"It was left out: {why}.", "cancelled") for id, why in _find_left_out(chat, steps)}
    for id, seen in left_out.items():
        yield from note("cut", f"action {id} of the list: {seen.text}")
    same = _find_same(chat.context, [step for step in steps if step.id not in left_out])
    for id, first in same.items():
        yield from note("cut", f"action {id} of the list is the same as action {first}: one call is made")
    work = Dispatch(partial(_begin, chat.context, same), left_out)
    shown = [step for step in steps if step.id not in same]
    chat.show_results(shown, work.results)
    yield from work.add(*(structs.replace(s, needs=(same[s.id],)) if s.id in same else s for s in steps))
    yield from work.finish()
    chat.seen += [seen.with_note for seen in work.results.values()]
    chat.notes += [seen.note for seen in work.results.values()]
    for step in shown:
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


def _find_left_out(chat: PhasedChat, steps: Sequence[Step]) -> Iterator[tuple[str, str]]:
    """Yield the actions that are skipped, by id, and why: they got the raw question, or an earlier one excludes
    them."""
    kept: list[Step] = []
    for step in steps:
        rivals = [other.tool for other in kept if are_exclusive(chat.context.known_tools, step.tool, other.tool)]
        # A search by meaning also works with a whole question, if less well.
        if step.tool != HISTORY and is_whole_question(step, chat.task.question):
            yield step.id, "its argument is the whole question"
        elif rivals:
            yield step.id, f"{rivals[0]} does the same job"
        else:
            kept.append(step)


def _find_same(context: LoopContext, steps: Sequence[Step]) -> dict[str, str]:
    """Map each action that repeats an earlier one to that one's id. Repeating an effect may be intended; repeating a
    question is not, and many repeats would look like a loop."""
    first: dict[str, str] = {}
    same: dict[str, str] = {}
    for step in steps:
        tool = context.tool(step.tool)
        if tool is None or tool.repeatable:
            before = first.setdefault(json.dumps([step.tool, step.input], sort_keys=True), step.id)
            same |= {step.id: before} if before != step.id else {}
    return same
