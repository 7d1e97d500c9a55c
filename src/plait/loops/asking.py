"""Ask, read, ask again: how every loop gets from a model what it can use.

Only `ask_until_read` asks again. At temperature 0 a model gives the same reply to the same request, so each request
differs from the ones before it. The first repair shows the bad reply and what is wrong with it. If a reply comes again,
the next request does not show it, says so, and raises the temperature. The third such request, or the last one, also
changes the format, if the loop has another one. When a reply can be used, bad replies and complaints leave the prompt;
the record keeps them. Answers that were rejected stay in it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Protocol, TypeVar

from msgspec import structs

from plait.core import Effects, Failed, LoopContext, Message, Reply, assistant, check_answer, is_going_round, note, user
from plait.loops.format import Remark, Turn, Unreadable


class Read(Protocol):
    """The result of reading a reply: a turn, a plan or a decision."""

    @property
    def remarks(self) -> Sequence[Remark]:
        """The repairs and cuts."""
        ...


A = TypeVar("A")
T = TypeVar("T")
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

BROKEN_ANSWERS = 3
"""The broken reply that is no longer asked for again."""


class Rejected(Unreadable):
    """A reply that can be read but not used, or whose note has other words: `ask_until_read` does not note it.

    `shown` is what the next request shows of the reply, None for all. `counts`: it counts towards giving up.
    """

    def __init__(self, complaint: str, shown: str | None = None, *, counts: bool = True) -> None:
        super().__init__(complaint)
        self.shown, self.counts = shown, counts


@dataclass(frozen=True)
class BadReply:
    """A reply that could not be used, and what the request for another one changes.

    `reply` is what the loop's `ask` returned, `text` what requests show of it, `counts` as in `Rejected`. `note` is
    what the next request says if the reply came before. `resample` and `reform`: from that request on, the temperature
    is raised, or the format is another one.
    """

    reply: Any
    text: str
    complaint: str
    counts: bool = True
    note: str = ""
    resample: bool = False
    reform: bool = False

    def ask_again(self, request: str, text: str | None = None) -> tuple[Message, ...]:
        """Return the bad reply (or `text`, as the loop shows it), and what is asked of the model now."""
        if self.note:  # a model copies what it sees of itself
            return (user(f"{request.rstrip()}\n\n{self.note}"),)
        shown = self.text if text is None else text
        return (assistant(shown), user(request)) if shown.strip() else (user(request),)


def ask_until_read(
    ask: Callable[[BadReply | None], Effects[A]],
    read: Callable[[A, int], Effects[T]],
    most: float = math.inf,
    *,
    text_of: Callable[[A], str] = attrgetter("text"),
    failure: Callable[[BadReply], str] | None = None,
) -> Effects[T | Failed]:
    """Ask a model until `read` can use its reply; return what `read` returns.

    `ask` makes the request, given the bad reply to repair, None at first. `read` gets what `ask` returned, and the
    number that it has among the bad replies if it is one, from 1. To ask again, it raises `Unreadable`, which is noted,
    or `Rejected`. After `most` bad replies: `Failed`, for the reason that `failure` gives. `text_of` is the text of a
    reply: it is shown in the next request, and with the complaint it tells whether the reply came before.
    """
    earlier: list[BadReply] = []
    counted = 0
    while True:
        reply = yield from ask(earlier[-1] if earlier else None)
        try:
            return (yield from read(reply, counted + 1))
        except Unreadable as why:
            bad = _reject(reply, text_of(reply), why, earlier, most)
            if not isinstance(why, Rejected):
                yield from note("unreadable", f"reply {counted + 1} of {most} can't be read: {why}")
        earlier.append(bad)
        counted += bad.counts
        if counted >= most:
            said = f"{counted} replies in a row could not be read. The last complaint: {bad.complaint}"
            return Failed(failure(bad) if failure is not None else said, kind="format")


def _reject(reply: Any, text: str, why: Unreadable, earlier: Sequence[BadReply], most: float) -> BadReply:
    """Return a bad reply that follows the `earlier` ones, with what the next request changes."""
    counts, complaint, number, remark = True, str(why), len(earlier) + 1, ""
    if isinstance(why, Rejected):
        text, counts = text if why.shown is None else why.shown, why.counts
    if any((text, complaint) == (each.text, each.complaint) for each in earlier):
        remark = f"None of your last {number} replies could be used. Write something else."
    repeats = sum(bool(each.note) for each in earlier) + bool(remark)
    reform = repeats > 1 or (repeats > 0 and number == most - 1) or any(each.reform for each in earlier)
    return BadReply(reply, text, complaint, counts, remark, resample=repeats > 0, reform=reform)


def ask_for_answer(
    context: LoopContext, ask: Callable[..., Effects[Reply]], *, concluding: bool, max_tokens: int | None
) -> Effects[str | Failed]:
    """Return a reply that is only the answer; `Failed` for an empty one. The model is asked again for an answer that
    does not fit the output, and twice after a call that cannot be read.

    `ask` makes the model call, given the messages at its end and options of `think`. `concluding`: one call is left, so
    none for the rest of a reply that was cut. The runtime ends the run after too many answers.
    """
    options: dict[str, Any] = {"is_answer": partial(is_typed_answer, context), "max_tokens": max_tokens}
    spec = context.output
    options["schema"] = spec.request_schema if spec is not None and spec.method != "prompt" else None
    options |= {"enough": bool} if concluding else {}

    def ask_for_text(bad: BadReply | None) -> Effects[Reply]:
        if bad is None:
            return ask((), repair=concluding, **options)
        return ask(bad.ask_again(bad.complaint), repair=True, resample=bad.resample, **options)

    def read(reply: Reply, miss: int) -> Effects[str | Failed]:
        answer = reply.text.strip()
        if reply.finish == "broken" and miss < BROKEN_ANSWERS:
            raise Rejected(f"Your reply {reply.how_cut}. No tool can be called now. Write the answer in words.")
        if not answer:
            return Failed(reply.only_reasoning or "The reply is empty.", kind="format")
        if against := (yield from check_answer(answer, only_output=True)):
            raise Rejected(against, counts=False)
        return answer

    return ask_until_read(ask_for_text, read, text_of=lambda reply: reply.text.strip())


def read_reply(
    reply: Reply,
    miss: int,
    read: Callable[[str], R],
    check: Callable[[R], Effects[None]] | None = None,
    answer: Callable[[str], R | None] | None = None,
) -> Effects[R]:
    """Return the turn, or plan, that `read` makes of a reply's text. Note what it repaired or cut.

    `check` raises `Rejected` if something speaks against it. `answer` makes a turn of a reply that is plainly an
    answer, None of any other: a model that simply answers is not asked for a form. It only gets the first reply
    (`miss` 1). Raises `Unreadable`, also if the reply was cut within a call.
    """
    cut = reply.how_cut
    try:
        turn = read(reply.text)
        if cut and is_cut_within_call(reply.text, turn, read):
            raise Unreadable("Its action is not complete: write a shorter one.")
    except Unreadable as why:
        plain = answer(reply.text.strip()) if answer is not None and reply.finish == "stop" and miss == 1 else None
        if plain is not None:
            yield from note("repaired", "the reply was only an answer: it was taken for the answer")
            return plain
        flaw = reply.only_reasoning or (f"Your reply {cut}." if cut else "")
        raise Unreadable(f"{flaw} {str(why).removeprefix('Your reply is empty. ')}" if flaw else str(why)) from None
    if check is not None:
        yield from check(turn)
    for remark in turn.remarks:
        yield from note(remark.kind, remark.text)
    if cut:
        yield from note("cut", f"the reply {cut}: what is complete in it counts")
    return structs.replace(turn, reply=reply.text) if isinstance(turn, Turn) else turn


def needs_no_rest(text: str, read: Callable[[str], Any]) -> bool:
    """Return whether a reply that was cut is not continued: its one call is complete, or it goes round."""
    try:
        turn = read(text)
    except Unreadable:
        return is_going_round(text)
    return is_going_round(text) or (bool(calls_of(turn)) and not is_cut_within_call(text, turn, read))


def is_cut_within_call(text: str, turn: Any, read: Callable[[str], Any]) -> bool:
    """Return whether the calls in a text that was cut may be incomplete: were it longer, they would differ."""
    made = calls_of(turn)
    if not made:
        return False
    try:
        return calls_of(read(f"{text} and so on")) != made
    except Unreadable:
        return True


def calls_of(turn: Any) -> Sequence[Any]:
    """Return the calls of a turn, or the steps of a plan."""
    call = getattr(turn, "call", None)
    return getattr(getattr(turn, "plan", turn), "calls", ()) if call is None else (call,)


def read_plain_answer(context: LoopContext, labels: Sequence[str], text: str) -> Turn | None:
    """Return the turn of a plain answer, in words or as JSON of the output type; None for a text that names a tool or
    has one of the labels, as that may be meant for a call."""
    fits = is_plain_answer(text) if context.output is None else context.output.fits(text)
    words = [rf"\b{re.escape(tool.name)}\b" for tool in context.known_tools]
    words += [rf"^[ \t>*_#-]{{0,12}}{re.escape(label)}(?: ?\d{{1,3}})?[*_ \t]{{0,4}}[:：]" for label in labels]
    is_call = bool(words) and re.search("|".join(words), text, re.I | re.M) is not None
    return Turn(answer=text, answered=True, kept=text) if fits and not is_call else None


def is_plain_answer(text: str) -> bool:
    """Return whether a text can only be an answer: it has words, and no label, JSON, code or announcement of a step."""
    return any(map(str.isalnum, text)) and not (_NO_PLAIN_TEXT.search(text) or _ANNOUNCES.search(text))


def is_typed_answer(context: LoopContext, text: str) -> bool:
    """Return whether a whole reply is JSON of the output type, and names no tool, so that it is no call."""
    return (
        context.output is not None
        and not any(tool.name in text for tool in context.known_tools)
        and context.output.fits(text)
    )
