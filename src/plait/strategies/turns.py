"""One turn of a loop whose replies are read as text: ask, read, ask again when it can't be read.

Shared by the loops that read a thought and an action out of a reply. The bad reply and the complaint are
shown to the model once, for the repair, and then leave the prompt; the record keeps them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, TypeVar

from plait.core import Call, Effect, Failed, Kit, Observation, PromptTooLong, Reply, note
from plait.formats import Remark, Unreadable, shorten

Bad = tuple[str, str]
"""A reply that could not be read, and what is wrong with it."""


class Read(Protocol):
    """What a reader made of a reply: a turn, a plan."""

    @property
    def remarks(self) -> Sequence[Remark]:
        """What was repaired or cut."""
        ...


R = TypeVar("R", bound=Read)

FOLDED = 300
"""Characters of a result that came once more."""

SMALLEST_OBSERVATION = 500
"""Characters: when the prompt is still too long with observations of this size, it does not fit."""


def read_turn(
    ask: Callable[[Bad | None], Generator[Effect, Any, Reply]],
    read: Callable[[str], R],
    misses: int,
    check: Callable[[R], Generator[Effect, Any, str]] | None = None,
) -> Generator[Effect, Any, R | Failed]:
    """The model's next turn, or plan: whatever `read` makes of a reply. `ask` makes the model call, given a bad reply
    to repair or None.

    After `misses` unreadable replies in a row: `Failed`. What the reader repaired or cut is noted. `check` says what
    speaks against a turn that was read; the last try is taken as it is.
    """
    bad: Bad | None = None
    for miss in range(1, misses + 1):
        reply = yield from ask(bad)
        try:
            turn = read(reply.text)
            if reply.how_cut and is_open(reply.text, turn, read):
                raise Unreadable("Its action is not complete: write a shorter one.")
        except Unreadable as why:
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
