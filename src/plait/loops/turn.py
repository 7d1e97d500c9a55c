"""One turn of a loop whose replies are read as text: ask, read, ask again when it can't be read.

Shared by the loops that read a thought and an action out of a reply. The bad reply and the complaint are
shown to the model once, for the repair, and then leave the prompt; the record keeps them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, TypeVar

from plait.core import Call, Effect, Failed, Kit, Observation, PromptTooLong, Reply, note
from plait.core.text import shorten
from plait.loops.format import Remark, Turn, Unreadable

Bad = tuple[str, str]
"""A reply that could not be read, and what is wrong with it."""


class Read(Protocol):
    """What a reader made of a reply: a turn, a plan."""

    @property
    def remarks(self) -> Sequence[Remark]:
        """What was repaired or cut."""
        ...


R = TypeVar("R", bound=Read)

_NO_PLAIN_TEXT = re.compile(
    r"[{}\[\]<>`]"
    r"|^[ \t>*_#-]{0,12}(?:thought|action|input|observation|tool|function|plan|step|call|result)\b[^\n]{0,20}[:：]"
    r"|\b(?:tool|function|action)s?\b|\w\(",
    re.I | re.M,
)
_ANNOUNCES = re.compile(
    r"\b(?:i(?:'|’)?ll|i will|i(?:'|’)?m going to|i am going to|let me|let(?:'|’)s|let us|i need|i should|i must"
    r"|i have to|i want to|we need|we should|we will|we can|we have to|to (?:answer|find|solve|determine|do)\b"
    r"|first,|first i\b|next,|one moment|please wait|looking up)",
    re.I,
)

FOLDED = 300
"""Characters of a result that came once more."""

SMALLEST_OBSERVATION = 500
"""Characters: when the prompt is still too long with observations of this size, it does not fit."""


def read_turn(
    ask: Callable[[Bad | None], Generator[Effect, Any, Reply]],
    read: Callable[[str], R],
    misses: int,
    check: Callable[[R], Generator[Effect, Any, str]] | None = None,
    answer: Callable[[str], R | None] | None = None,
) -> Generator[Effect, Any, R | Failed]:
    """The model's next turn, or plan: whatever `read` makes of a reply. `ask` makes the model call, given a bad reply
    to repair or None.

    After `misses` unreadable replies in a row: `Failed`. What the reader repaired or cut is noted. `check` says what
    speaks against a turn that was read; the last try is taken as it is. `answer` makes a turn of plain text, where the
    first reply of a run may be one: a model that simply answers is not asked for a form.
    """
    bad: Bad | None = None
    for miss in range(1, misses + 1):
        reply = yield from ask(bad)
        try:
            turn = read(reply.text)
            if reply.how_cut and is_open(reply.text, turn, read):
                raise Unreadable("Its action is not complete: write a shorter one.")
        except Unreadable as why:
            if miss == 1 and reply.finish == "stop" and (plain := _plainly(answer, reply.text)) is not None:
                yield from note("repaired", "the reply was plain text: it was taken for the answer")
                return plain
            complaint = f"Your reply {reply.how_cut}. {why}" if reply.how_cut else str(why)
            bad = (reply.text, complaint)
            yield from note("unreadable", f"reply {miss} of {misses} can't be read: {complaint}")
            continue
        if check is not None and miss < misses and (against := (yield from check(turn))):
            bad = (reply.text, against)
            yield from note("unreadable", f"reply {miss} of {misses} can't be taken: {against}")
            continue
        for remark in turn.remarks:
            yield from note(remark.kind, remark.text)
        if reply.how_cut:
            yield from note("cut", f"the reply {reply.how_cut}: what is complete in it counts")
        return turn
    assert bad is not None
    return Failed(f"{misses} replies in a row could not be read. The last complaint: {bad[1]}", kind="format")


def _plainly(answer: Callable[[str], R | None] | None, text: str) -> R | None:
    return answer(text.strip()) if answer is not None and is_plain_answer(text) else None


def plain_answer(kit: Kit) -> Callable[[str], Turn | None]:
    """Makes the turn of a plain answer; None for a text that names a tool: it may be meant for a call."""
    names = re.compile("|".join(rf"\b{re.escape(tool.name)}\b" for tool in kit.known) or r"(?!)", re.I)
    return lambda text: None if names.search(text) else Turn(answer=text, answered=True, kept=text)


def is_plain_answer(text: str) -> bool:
    """A text that can only be an answer: it has words, and no label, no JSON, no code, no announcement of a step."""
    return any(map(str.isalnum, text)) and not (_NO_PLAIN_TEXT.search(text) or _ANNOUNCES.search(text))


def is_open(text: str, turn: Any, read: Callable[[str], Any]) -> bool:
    """The calls in a text that was cut may be incomplete: if the text went on, they would be read otherwise."""
    made = calls_of(turn)
    if not made:
        return False
    try:
        return calls_of(read(f"{text} and so on")) != made
    except Unreadable:
        return True


def calls_of(turn: Any) -> Sequence[Any]:
    """The calls of a turn, or the steps of a plan."""
    call = getattr(turn, "call", None)
    return getattr(getattr(turn, "plan", turn), "calls", ()) if call is None else (call,)


def is_repetition(seen: Observation | None) -> bool:
    """The last call repeated an earlier one: at temperature 0 a model that copies itself would go on doing so."""
    return seen is not None and seen.repeated


def folded(kit: Kit, call: Call, seen: Observation) -> str:
    """What is said in place of a turn that only repeated a call, "" where the turn has to stay. A model copies what it
    sees of itself, so the repetition is not shown to it."""
    tool = kit.tool(call.tool)
    if not seen.repeated or (tool is not None and not tool.repeatable):
        return ""
    given = json.dumps(call.input, ensure_ascii=False, default=str)
    return (
        f"You then called {call.tool} once more with {given}, which gave: {shorten(seen.text, FOLDED)[0]}\n{seen.note}"
    )


def fitting(
    attempt: Callable[[int], Generator[Effect, Any, Any]], chars: int
) -> Generator[Effect, Any, tuple[Any, int]]:
    """Run `attempt(chars)`; when the endpoint says the prompt is too long, again with shorter observations.

    Returns what the attempt gave and the size it went through with. The trajectory itself is never cut.
    """
    while True:
        try:
            return (yield from attempt(chars)), chars
        except PromptTooLong as why:
            if chars <= SMALLEST_OBSERVATION:
                raise
            chars = max(SMALLEST_OBSERVATION, chars // 4)
            yield from note("shortened", f"{why.detail}: observations are cut to {chars:,} characters")
