"""Checks a list of actions before any of them runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from plait.core import JSON, Call, Effects, LoopContext, Step
from plait.core.arguments import separate_inputs
from plait.loops.grounding import find_ungrounded
from plait.loops.phased import action_list
from plait.loops.phased.chat import PhasedChat
from plait.loops.references import RESULTS, words_in_formula
from plait.loops.tool_descriptions import add_search_results

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
