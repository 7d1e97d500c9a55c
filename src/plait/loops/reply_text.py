"""The part of a reply that is meant to be read: without thinking, special tokens and broken characters."""

from __future__ import annotations

import re

from plait.core.loose_json import without_halves
from plait.loops.format import Remark

_THINKING = re.compile(r"(?:^|(?<=thought:))[ \t]*<(think|thinking)>.*?</\1>\s*", re.S | re.M | re.I)
_UNOPENED = re.compile(r"(?:\n[ \t]*</think(?:ing)?>|</think(?:ing)?>[ \t]*\n)\s*(?=\S)", re.I)
_UNCLOSED = re.compile(r"\A\s*(?:thought:\s*)?<think(?:ing)?>", re.I)
_ANALYSIS = re.compile(
    r"<\|channel\|>analysis<\|message\|>(?:[^<]++|<(?!\|))*+(?:<\|end\|>)?(?:<\|start\|>assistant)?", re.S
)
_ANSWER_CHANNEL = re.compile(r"(?:<\|start\|>assistant)?<\|channel\|>final(?:[ ]?<\|constrain\|>\w*)?<\|message\|>")
_TURN_ENDS = (
    r"<\|(?:im_end|eot_id|eom_id|end|end_of_text|endoftext|end_of_turn|return|END_OF_TURN_TOKEN)\|>|<end_of_turn>"
)
_END = re.compile(rf"(?:{_TURN_ENDS}|<｜end▁of▁sentence｜>)(?=\s*(?:\Z|<\||\n))|</s>\s*\Z")


def read_part(text: str) -> tuple[str, list[Remark]]:
    """A reply without thinking (`<think>` blocks, an analysis channel) and without what follows the end of its turn."""
    remarks: list[Remark] = []
    text, halved = without_halves(text)
    if halved:
        remarks.append(Remark("repaired", "a broken character was replaced"))
    if "<" not in text:
        return text, remarks
    whole = text
    if "</think" in text.lower():
        text = _THINKING.sub("", text)
        unopened = list(_UNOPENED.finditer(text))
        if unopened and "<think" not in text.lower():
            text = text[unopened[-1].end() :]
    elif _UNCLOSED.match(text):
        text = ""
    if "<|channel|>" in text:
        text = _ANALYSIS.sub("", text)
        if (channel := _ANSWER_CHANNEL.search(text)) is not None:
            text = text[: channel.start()] + text[channel.end() :]
    if len(text) < len(whole):
        remarks.append(Remark("cut", f"{len(whole) - len(text)} characters of thinking before the reply"))
    if (end := _END.search(text)) is not None and text[: end.start()].strip():
        rest = text[end.end() :].strip()
        said = f"{len(rest)} characters after the end of the turn" if rest else "a token at the end of the turn"
        remarks.append(Remark("cut", said))
        text = text[: end.start()]
    return text, remarks
