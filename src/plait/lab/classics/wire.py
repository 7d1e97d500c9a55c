"""The requests and responses of a run as sent, with what is new in each request marked.

A request is compared with the earlier request of the run that shares the longest beginning with it, as a server's
prefix cache does. Equal messages from the start on are old. The first different message may continue an old one, and is
split there. Everything after it is new. In text the margin shows the mark of each line: `=` was sent before, `+` is
new, `<` was received.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

import msgspec
from msgspec import Struct, structs

from plait.core import Usage
from plait.core.text import clean, count_shared
from plait.journal.entries import ModelAttempt
from plait.journal.timeline import Timeline
from plait.lab.classics import published
from plait.lab.classics.tables import ESTIMATED, PUBLISHED
from plait.lab.grid import WIDTH, ReportTable, make_column, show_value, wrap_lines
from plait.models.wires.turns import arguments

PROMPT = "prompt"
"""The role of a raw prompt."""
OLD, NEW, BACK = "=", "+", "<"
_NOT_OTHER = ("model", "messages", "prompt", "stop", "tools", "stream", "stream_options")


class MessagePart(Struct, frozen=True):
    """Text of a request. `role` is the message's; `new`: not sent before; `goes_on`: the rest of a message."""

    role: str
    text: str
    new: bool
    goes_on: bool = False


class SentRequest(Struct, frozen=True):
    """A request. `number` counts from 1, `attempt` too; `other` are the body's other fields, such as temperature.
    `messages_before` and `letters_before` are the whole messages and the characters that were sent before."""

    number: int
    step: int
    phase: str
    model: str
    path: str
    attempt: int
    stop: tuple[str, ...]
    tools: tuple[str, ...]
    other: dict[str, Any]
    pieces: tuple[MessagePart, ...]
    messages_before: int
    letters_before: int


class ReceivedResponse(Struct, frozen=True):
    """A response: its HTTP status (0: none came), the text of the reply and its native calls, or the error. `usage` has
    its tokens, None if it took none."""

    status: int
    seconds: float
    text: str
    calls: tuple[str, ...] = ()
    reasoning: str = ""
    error: str = ""
    usage: Usage | None = None


class WireExchange(Struct, frozen=True):
    """A request and its response; None if it is not recorded."""

    sent: SentRequest
    answered: ReceivedResponse | None


def read_exchanges(timeline: Timeline) -> tuple[WireExchange, ...]:
    """Return the exchanges of a run's record, in the order of the requests."""
    made: list[WireExchange] = []
    bodies: list[list[tuple[str, str]]] = []
    for number, (call, attempt) in enumerate(timeline.attempts, 1):
        sent, texts = _read_request(number, call.step, attempt, bodies)
        bodies.append(texts)
        seen, reply, answered = attempt.response, call.reply if attempt is call.last else None, None
        if seen is not None:
            answered = ReceivedResponse(seen.status, seen.seconds, "", error=seen.error, usage=seen.usage)
        if answered is not None and reply is not None:
            calls = tuple(f"{each.tool} {arguments(each)}" for each in reply.calls)
            said = {"text": reply.text, "calls": calls, "reasoning": reply.reasoning, "usage": reply.usage}
            answered = structs.replace(answered, **said)
        made.append(WireExchange(sent, answered))
    return tuple(made)


def _read_request(
    number: int, step: int, attempt: ModelAttempt, before: Sequence[list[tuple[str, str]]]
) -> tuple[SentRequest, list[tuple[str, str]]]:
    try:
        told = msgspec.json.decode(attempt.request)
    except msgspec.DecodeError:
        told = None
    if not isinstance(told, dict):
        told = {"prompt": attempt.request.decode(errors="backslashreplace")}
    texts = [(PROMPT, str(told.get("prompt", "")))]
    if "messages" in told:
        texts = [(str(message.get("role", "")), _message_text(message)) for message in told["messages"]]

    def count_old_letters(old: Sequence[tuple[str, str]]) -> int:
        return sum(len(piece.text) + 1 for piece in _split_messages(texts, old) if not piece.new)

    nearest = max(before, key=count_old_letters, default=[])
    stop = told.get("stop") or ()
    pieces = tuple(_split_messages(texts, nearest))
    old = [piece for piece in pieces if not piece.new]
    sent = SentRequest(
        number=number,
        step=step,
        phase=attempt.phase,
        model=attempt.model,
        path=attempt.path,
        attempt=attempt.number + 1,
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        tools=tuple(str(tool.get("function", {}).get("name", "?")) for tool in told.get("tools") or ()),
        other={name: value for name, value in told.items() if name not in _NOT_OTHER},
        pieces=pieces,
        messages_before=len(old) - any(piece.goes_on for piece in pieces),
        letters_before=sum(len(piece.text) for piece in old),
    )
    return sent, texts


def _message_text(message: dict[str, Any]) -> str:
    """Return the text of a message; native calls are lines of it."""
    content = message.get("content")
    text = content if isinstance(content, str) else "" if content is None else msgspec.json.encode(content).decode()
    functions = [call.get("function", {}) for call in message.get("tool_calls") or ()]
    calls = [f"{function.get('name', '?')} {function.get('arguments', '')}" for function in functions]
    return "\n".join((*([text] if text else []), *calls)) or text


def _split_messages(texts: Sequence[tuple[str, str]], before: Sequence[tuple[str, str]]) -> Iterable[MessagePart]:
    whole = count_shared(before, texts)
    for at, (role, text) in enumerate(texts):
        if at < whole:
            yield MessagePart(role, text, new=False)
            continue
        old = 0
        if at == whole and at < len(before) and before[at][0] == role:
            earlier = before[at][1]  # all of it is shared, or whole lines
            old = len(earlier) if text.startswith(earlier) else text.rfind("\n", 0, count_shared(earlier, text)) + 1
        if old:
            yield MessagePart(role, text[:old], new=False)
        yield MessagePart(role, text[old:], new=True, goes_on=bool(old))


def make_wire_table(exchanged: Sequence[WireExchange], *, beside: bool = True) -> ReportTable:
    """Return the tokens of each request and their sums; `beside`: with the published ones. An error replaces both."""
    own = [each.answered.usage if each.answered else None for each in exchanged]
    theirs = [Usage(*each) for each in published.REQUEST_TOKENS] if beside else []
    pairs = [*zip_longest(own, theirs), (sum(filter(None, own), Usage()), sum(theirs, Usage()))]
    crashes = [each.answered.error if each.answered else "" for each in exchanged] + [""] * (len(pairs) - len(own))
    names = [*(str(number) for number in range(1, len(pairs))), "in all"]
    sides = ("", f"{PUBLISHED} ") if beside else ("",)
    rows = [
        {"request": name, "crash": crash}
        | {f"{side}in": used and used.input_tokens for side, used in zip(sides, pair, strict=False)}
        | {f"{side}out": used and used.output_tokens for side, used in zip(sides, pair, strict=False)}
        for name, pair, crash in zip(names, pairs, crashes, strict=True)
    ]
    heads = [f"{side}{kind}" for side in sides for kind in ("in", "out")]
    columns = [make_column(rows, "request", show_value("request"), left=True)]
    columns += [make_column(rows, head, show_value(head, ",")) for head in heads]
    notes = [ESTIMATED.removeprefix("~: ").capitalize()] if any(each and each.estimated for each in own) else []
    notes += [f"Published: {published.WIRE_SOURCE}, with gpt-3.5-turbo and its own question."] if beside else []
    return ReportTable(tuple(rows), tuple(columns), tuple(notes), "Tokens of each request")


# -- as text


def render_exchanges(
    question: str, exchanged: Sequence[WireExchange], *, full: bool = False, width: int | None = WIDTH
) -> str:
    """Render exchanges for a terminal. What was sent before is one line, or with `full` written out. A line with more
    than `width` letters goes on in the next one, which has no mark."""
    lines = [f"Question: {clean(question)}"]
    for each in exchanged:
        sent = each.sent
        again = f" · attempt {sent.attempt}" if sent.attempt > 1 else ""
        title = f"step {sent.step} · {clean(sent.phase)} · {clean(sent.model)} · {sent.path}{again}"
        lines += ["", f"--- request {sent.number} · {title}"]
        lines += ["stop: " + "  ".join(map(_quote, sent.stop))] if sent.stop else []
        lines += [f"tools: {clean(', '.join(sent.tools))}"] if sent.tools else []
        for name, value in sent.other.items():
            text = _quote(value)
            short = text if len(text) <= 100 else f"{text[:100]}… ({len(text):,} characters)"
            lines.append(f"{clean(name)}: {short}")
        if sent.letters_before and not full:  # `2 messages as before, 1,962 characters`
            whole = sent.messages_before
            parts = [f"{whole:,} message{'s' * (whole != 1)}"] if whole else []
            parts += ["the beginning of one"] if any(piece.goes_on for piece in sent.pieces) else []
            lines.append(f"{OLD} {' and '.join(parts)} as before, {sent.letters_before:,} characters")
        for piece in sent.pieces:
            if not piece.new and not full:
                continue
            if not piece.goes_on or not full:
                lines.append(f"[{clean(piece.role)}]" + " goes on" * piece.goes_on)
            lines += _mark_lines(NEW if piece.new else OLD, piece.text)
        seen, status = each.answered, " · none is on record"
        if seen is not None:
            status = f" · {str(seen.status) if seen.status else 'none came'} · {seen.seconds:.3f} s"
        lines += ["", f"--- response {sent.number}{status}"]
        if seen is not None:
            error = f"error: {seen.error}" if seen.error else ""
            thought = f"(reasoning) {seen.reasoning}" if seen.reasoning else ""
            lines += _mark_lines(BACK, "\n".join(filter(None, (error, thought, seen.text, *seen.calls))))
    return wrap_lines("\n".join(lines), width)


def _quote(value: object) -> str:
    return clean(json.dumps(value, ensure_ascii=False))


def _mark_lines(mark: str, text: str) -> list[str]:
    return [f"{mark} {each}".rstrip() for each in clean(text).split("\n")]
