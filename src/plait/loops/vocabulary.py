"""The words with which models name a tool, its input, a thought and the answer.

The keys, tags and labels that readers accept are made from these, so a new spelling is added here. A format adds only
what no other one has. If an object has several of the keys, the first one counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

TOOL_WORDS = ("tool", "tool_name", "action")
NAME_WORDS = (*TOOL_WORDS, "name", "function")
NAME_KEYS = ("name", *TOOL_WORDS, "function_name", "api_name", "recipient_name")
"""Keys for a tool's name in an object of any format."""

PLAIN_INPUTS = ("arguments", "args", "parameters", "input")
LONG_INPUTS = ("action_input", "tool_input")
INPUT_WORDS = (*LONG_INPUTS, "input", "arguments", "args", "parameters", "params")
INPUT_LABELS = (*PLAIN_INPUTS, "params", "argument", "parameter")
INPUT_KEYS = (*INPUT_WORDS, "action input", "actionInput", "kwargs", "function_args", "function_arguments")
"""Keys for the input in an object of any format."""

THOUGHT_WORDS = ("thought", "thinking", "reasoning")
ANSWER_NAMES = ("final_answer", "finalanswer", "final answer")
"""Names of tools by which models give their answer."""
FINISH_NAMES = (*ANSWER_NAMES, "finish")


def own_first(word: str, words: Iterable[str]) -> tuple[str, ...]:
    """Return the words with a format's own word before the others."""
    return tuple(dict.fromkeys((word, *words)))


def either(words: Iterable[str]) -> str:
    """Return the pattern of any of the words."""
    return "|".join(map(re.escape, words))
