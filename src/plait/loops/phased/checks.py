"""Checks a list of actions before any of them runs, and finds actions to skip or to run only once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from plait.core import JSON, Call, Effects, LoopContext, Step
from plait.core.arguments import separate_inputs
from plait.loops.grounding import find_ungrounded
from plait.loops.phased import action_list
from plait.loops.phased.log import MEMORY, PhasedChat
from plait.loops.references import RESULTS, words_in_formula
from plait.loops.tool_descriptions import add_search_results

# Scripts without blanks count each sign as a word.
_WORD = re.compile(r"[\u2e80-\uffff]|(?:(?![\u2e80-\uffff])\w)+")


def check_actions(log: PhasedChat, steps: Sequence[Step]) -> Effects[tuple[str, Sequence[str]]]:
    """Return the objection to a list of actions before any of them runs, and the invented values in it."""
    ids = {step.id for step in steps}
    wrong: list[str] = []
    for step in steps:
        for given in separate_calls(log.context, step.tool, step.input):
            problem = log.context.find_problem(step.tool, given, RESULTS.is_open)
            wrong += [f"Action {step.id} {problem}"] if problem else []
        others = ids - {step.id}
        unknown = [f"${id}" for id in RESULTS.meant(step.input, others, log.task.question) if id not in others]
        if unknown:
            wrong.append(
                f"Action {step.id} names {', '.join(unknown)}, which no other action of the list gives. "
                "Write an amount of money without the sign $."
            )
    if wrong:
        return (yield from add_search_results(log.context, " ".join(dict.fromkeys(wrong)))), ()
    raw = next((step.tool for step in steps if is_whole_question(step, log.task.question)), "")
    if raw:
        return f"{raw} was given the user's whole question. Give it just what it takes.", ()
    for step in steps:
        if found := (yield from find_ungrounded(calls=[Call(step.tool, RESULTS.without(step.input))])):
            before = [other for other in steps if int(other.id) < int(step.id)]
            earlier = [f"${each.id} for what {action_list.call_words(each, each.input)} gives" for each in before]
            how = f"Write {', '.join(earlier)}." if earlier else "Let an action before it look that up."
            return f"In action {step.id} is made up what no result has given: {', '.join(found)}. {how}", found
        tool = log.context.tool(step.tool)
        if tool is not None and tool.computes and (words := words_in_formula(step.input, RESULTS)):
            told = f"words stand in a formula: {', '.join(words)}"
            return f"In action {step.id} {told}. Let an action before it look that up, and write $ and its number.", ()
    return "", ()


def separate_calls(context: LoopContext, tool: str, given: JSON) -> list[JSON]:
    """Return the inputs of the calls that one action means: `["IBM", "T"]` is two calls of a tool with one
    parameter."""
    spec = context.tool(tool)
    return separate_inputs(given, spec.parameters) if spec is not None else [given]


def find_same(context: LoopContext, steps: Sequence[Step]) -> dict[str, str]:
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


def find_left_out(log: PhasedChat, steps: Sequence[Step]) -> Iterator[tuple[str, str]]:
    """Yield the actions that are skipped, by id, and why: they got the raw question, or an earlier one excludes
    them."""
    kept: list[Step] = []
    for step in steps:
        rivals = [other.tool for other in kept if action_list.are_exclusive(log.context.known, step.tool, other.tool)]
        # A search by meaning also works with a whole question, if less well.
        if step.tool != MEMORY and is_whole_question(step, log.task.question):
            yield step.id, "its argument is the whole question"
        elif rivals:
            yield step.id, f"{rivals[0]} does the same job"
        else:
            kept.append(step)


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
