"""Reasoning in the text of a reply: the markers of model families, and the reply without it.

An endpoint without a parser for its model leaves the reasoning in the text. `MARKERS` is the only table of the markers.
They count where a reply or a line begins, never within prose, code or quotes. All reading is linear in the text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import product

from msgspec import Struct


class Markers(Struct, frozen=True):
    """How the models of some families mark a part of a reply. Markers are in lower case here; letter case is ignored.

    `opens` begin the part and `closes` end it. `follows` begin the next part, which also ends this one. The part is
    reasoning, or the answer if `is_answer`. `is_word`: the marker may be a tag of the answer's own, so it counts only
    where the reply begins.
    """

    families: str
    opens: tuple[str, ...]
    closes: tuple[str, ...]
    follows: tuple[str, ...] = ()
    is_answer: bool = False
    is_word: bool = False


def _channel(name: str) -> tuple[str, ...]:
    """Return the headers of gpt-oss's channel, also where the endpoint dropped the first tokens."""
    starts = ("<|start|>assistant<|channel|>", "assistant<|channel|>", "<|channel|>", "")
    ends = ("", "<|constrain|>json", " <|constrain|>json")
    return tuple(f"{start}{name}{end}<|message|>" for start, end in product(starts, ends))


MARKERS = (
    Markers("DeepSeek, Qwen, GLM, MiniMax M2, Nemotron, Hunyuan, ERNIE, Granite 3.3", ("<think>",), ("</think>",)),
    Markers("Reflection, and models that a prompt asks for it", ("<thinking>",), ("</thinking>",)),
    Markers("Gemini through chat completions, EXAONE Deep", ("<thought>",), ("</thought>",), is_word=True),
    Markers("Reka Flash", ("<reasoning>",), ("</reasoning>",), is_word=True),
    Markers("Magistral", ("[think]",), ("[/think]",)),
    Markers("Seed-OSS", ("<seed:think>",), ("</seed:think>",)),
    Markers("MiniMax M3", ("<mm:think>",), ("</mm:think>",)),
    Markers("LongCat", ("<longcat_think>",), ("</longcat_think>",)),
    Markers("Kimi-VL", ("◁think▷",), ("◁/think▷",)),
    Markers("Command R7B and later", ("<|start_thinking|>",), ("<|end_thinking|>",)),
    Markers("Apertus", ("<|inner_prefix|>",), ("<|inner_suffix|>",)),
    Markers("OpenThinker, Sky-T1", ("<|begin_of_thought|>",), ("<|end_of_thought|>",)),
    Markers("MedGemma", ("<unused94>thought",), ("<unused95>",)),
    Markers("Gemma 4", ("<|channel>thought",), ("<channel|>",)),
    Markers("gpt-oss", _channel("analysis"), ("<|end|>", "<|return|>"), ("<|start|>", "<|channel|>")),
    Markers("gpt-oss, before calls", _channel("commentary"), ("<|end|>", "<|return|>"), ("<|start|>", "<|channel|>")),
    Markers("gpt-oss", _channel("final"), ("<|return|>", "<|end|>"), is_answer=True),
    Markers("Command R7B and later", ("<|start_response|>",), ("<|end_response|>",), is_answer=True),
    Markers("OpenThinker, Sky-T1", ("<|begin_of_solution|>",), ("<|end_of_solution|>",), is_answer=True),
    Markers("Hunyuan, GLM-4.1V", ("<answer>",), ("</answer>",), is_answer=True, is_word=True),
    Markers("ERNIE, Granite 3.3", ("<response>",), ("</response>",), is_answer=True, is_word=True),
    Markers("Reflection", ("<output>",), ("</output>",), is_answer=True, is_word=True),
)
"""The markers by family. Each counts with every model: names do not tell which one answers."""

_SIGN = re.compile(r"[<\[◁]")
"""What every marker holds."""
_TOKEN = re.compile(r"<\|\w+\|>")
_LONGEST = max(len(each) for markers in MARKERS for each in (*markers.opens, *markers.closes))
_FIRST = frozenset(each[0] for markers in MARKERS for each in markers.opens)
_BEGINNINGS = frozenset(each[:end] for markers in MARKERS for each in markers.opens for end in range(len(each) + 1))
_PLACES = re.compile(r"\A\s*|(?:^|(?<=thought:))[ \t]{0,40}(?=[<\[◁])", re.M | re.I)
_START = re.compile(r"\s*(?:thought:\s*)?", re.I)
_BLANKS = re.compile(r"\s*")
_BLANKS_PAST_END = 16

_PAIRS = tuple(each for each in MARKERS if not (each.is_answer or each.follows))
_CLOSES = tuple(each.closes[0] for each in _PAIRS)
_CLOSE = "|".join(map(re.escape, _CLOSES))
# The end of reasoning whose beginning the prompt held: at an end of a line, or between a sentence and the answer.
_UNOPENED = re.compile(
    rf"^[ \t]{{0,40}}(?:{_CLOSE})(?![ \t]*(?-i:[a-z,.;:)!?]))|(?<![ \t'\"`(\[{{,;])(?:{_CLOSE})[ \t]*$"
    rf"|(?<=[.!?…。！？])(?P<inside>{_CLOSE})(?=[^\s.,;:!?…。！？)\]}}'\"`’”»-])",
    re.M | re.I,
)
# The same of gpt-oss: with its tokens, and where the endpoint dropped them all.
_UNOPENED_CHANNEL = re.compile(
    rf"(?:.*(?=<\|end\|><\|)|\s*analysis(?=[A-Z\d\"'*]).*(?=assistantfinal))"
    rf"(<\|end\|>(?:{'|'.join(map(re.escape, _channel('final')))})|assistantfinal)",
    re.S,
)


def find_opening(text: str, at: int = 0, *, behind: bool = False) -> tuple[Markers, int] | None:
    """Return the markers that open a part at `at`, and where its content begins; None for none. `behind`: reasoning
    comes before it. Only there a word such as `<answer>` is a marker of the answer."""
    start = text[at : at + _LONGEST].lower()
    for markers in MARKERS if start[:1] in _FIRST else ():
        for opens in markers.opens if behind or not (markers.is_answer and markers.is_word) else ():
            if start.startswith(opens):
                return markers, at + len(opens)
    return None


def reasoning_marks() -> tuple[str, ...]:
    """Return the texts without which there is no marker, longest first."""
    marked = [word for each in MARKERS if not (each.is_answer and each.is_word) for word in (*each.opens, *each.closes)]
    parts = {part for word in marked for part in (_TOKEN.findall(word) or (word,))}
    return (*sorted(parts, key=len, reverse=True), "assistantfinal")


def may_open(text: str, at: int) -> bool:
    """Return whether `text[at:]` may be the beginning of an opening marker."""
    return text[at : at + _LONGEST + 1].lower() in _BEGINNINGS


@lru_cache
def end_of(markers: Markers) -> re.Pattern[str]:
    """Return the pattern of what ends a part."""
    follows = (f"(?={re.escape(each)})" for each in markers.follows)
    return re.compile("|".join((*map(re.escape, markers.closes), *follows)), re.I)


def count_unsure(text: str, markers: Markers) -> int:
    """Return the length of the end of a text that may be what ends a part, or its beginning."""
    tail = text[-_LONGEST:].lower()
    whole = len(text) - len(drop_closing(text, markers))
    return max(whole, *(overlap(tail, word) for word in (*markers.closes, *markers.follows)))


def drop_closing(text: str, markers: Markers) -> str:
    """Return a text without the marker that closes an answer at its end."""
    bare = text.rstrip()
    length = next((len(each) for each in markers.closes if bare[-_LONGEST:].lower().endswith(each)), 0)
    return bare[: len(bare) - length] if length and len(text) - len(bare) <= _BLANKS_PAST_END else text


def drop_reasoning(text: str) -> str:
    """Return a whole reply without reasoning where it begins, at the start of a line, or behind `Thought:`."""
    if not _SIGN.search(text):
        return text
    kept: list[str] = []
    done = counted = fences = 0
    first = _START.match(text).end()  # type: ignore[union-attr]
    endless: set[Markers] = set()
    answer: Markers | None = None
    for place in _PLACES.finditer(text):
        if (begin := place.end()) < done:
            continue
        fences, counted = fences + text.count("```", counted, begin), begin
        at, is_start = begin, begin <= first
        while found := find_opening(text, at, behind=at > begin):
            markers, inside = found
            if not is_start and (fences % 2 or markers.is_word or markers in endless):
                break
            if markers.is_answer:
                answer, at = markers, skip_blanks(text, inside)
            elif end := end_of(markers).search(text, inside):
                at = skip_blanks(text, end.end())
            elif is_start:
                return ""
            else:
                endless.add(markers)
                break
        if at > begin:
            kept.append(text[done : place.start()])
            done = counted = at
    rest = text[done:]
    return "".join((*kept, drop_closing(rest, answer) if answer else rest))


def split_unopened(text: str) -> tuple[str, str]:
    """Return the reasoning in a whole reply whose opening marker is missing ("" for none), and the text behind it."""
    if not _SIGN.search(text) and "assistantfinal" not in text:
        return "", text
    low = text.lower()
    start = end = 0
    if found := _UNOPENED_CHANNEL.match(text):
        start, end = found.span(1)
    elif any(map(low.__contains__, _CLOSES)) and text.lstrip()[:1] not in ("{", "["):
        counted = fences = quotes = 0
        opened = {each.closes[0] for each in _PAIRS if each.opens[0] in low}
        for found in _UNOPENED.finditer(text):
            fences += text.count("```", counted, found.start())
            quotes += text.count('"', counted, found.start())
            counted = found.start()
            is_quoted = fences % 2 or (found["inside"] and quotes % 2)
            if not is_quoted and found[0].strip().lower() not in opened:
                start, end = found.span()
    return text[:start].strip(), text[end:].lstrip() if end else text


def overlap(text: str, word: str) -> int:
    """Return the length of the longest end of `text` that is a proper beginning of `word`."""
    start = max(0, len(text) - len(word) + 1)
    at = text.find(word[0], start)
    while at >= 0:
        if word.startswith(text[at:]):
            return len(text) - at
        at = text.find(word[0], at + 1)
    return 0


def skip_blanks(text: str, at: int) -> int:
    return _BLANKS.match(text, at).end()  # type: ignore[union-attr]  # it matches the empty string too
