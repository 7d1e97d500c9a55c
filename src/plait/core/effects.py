"""What a loop may want done, and the helpers a loop asks with.

Theory of operation. A loop is a generator. It yields an effect and is sent back the effect's
result; it does nothing else. So whoever holds the generator decides what an effect means: perform it,
feed back a recorded result, or stop. Effects are compared by value when a run is replayed, so
everything that shapes a request stands in the effect and nothing else does.

Three things can come back instead of a result, each thrown into the generator at the yield:
`LimitNear` (one model call is left: answer with what you have), `ContextOverflow` (the endpoint
refused the prompt for its length: show less) and `Unsupported` (the endpoint has no native tools: say it in
text). A loop that lets the first two pass ends the run as stopped, the third as crashed.

`Execute` and `Continue` are for loops whose action is code: a piece of code runs in the run's Python session until
it ends or comes to calls out of it. These the loop makes as any other (`Act`) and continues the code with what came.

`Start` and `WaitNext` are for loops that run ahead of their results: start some effects, get a ticket for
each, take results in the order they finish. The order of taking is recorded, so replay holds.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, Literal, TypeAlias, TypeVar, cast

from msgspec import Struct, structs

from plait.core.code import Ran
from plait.core.messages import Message
from plait.core.replies import Reply
from plait.core.tools import Call, Observation, ToolSpec

UNKNOWN = "(unknown)"
"""Stands where a made-up value stood, in what a model is shown of its own words."""


class Think(Struct, frozen=True, omit_defaults=True, tag="think"):
    """One model call, by a named phase of the loop. Its result is a `Reply`. An empty system message is left out.

    Either `messages` (chat) or `prompt` (raw completion) is given. `prefill` opens the model's reply
    for it. `stop` strings end the reply and are not part of it. `stop_after_object` strings do so behind the first JSON
    object of the reply only: no endpoint can tell, so they are not sent. `schema` (JSON Schema) or `grammar`
    (GBNF) constrain the reply where the endpoint can; they are left out where it can't. `tools` are
    offered as native tools. `repair` marks a second try at the same step. `watch` asks for the text
    while it is being written, in whole lines (through `Start` and `WaitNext`); the last line comes with the reply.

    `temperature` is sent when it is set; None leaves it to the model. `resample` follows a repetition: a model that
    is asked at a temperature is asked at a higher one, so that it does not write the same once more.
    """

    phase: str
    messages: tuple[Message, ...] = ()
    prompt: str = ""
    prefill: str = ""
    stop: tuple[str, ...] = ()
    stop_after_object: tuple[str, ...] = ()
    schema: dict[str, Any] | None = None
    grammar: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    temperature: float | None = None
    max_tokens: int | None = None
    repair: bool = False
    watch: bool = False
    resample: bool = False

    def __post_init__(self) -> None:
        for each in self.messages:
            if not each.content and each.role == "system":  # an empty one is none
                messages = tuple(each for each in self.messages if each.role != "system" or each.content)
                structs.force_setattr(self, "messages", messages)
                return


class Act(Struct, frozen=True, tag="act"):
    """One or several tool calls, run side by side. Its result is a tuple of observations, in order."""

    calls: tuple[Call, ...]


class AskUser(Struct, frozen=True, omit_defaults=True, tag="ask"):
    """A question to the person. The run waits until someone answers; the result is the answer's text.

    `kind` "plan" shows a plan and asks for leave to carry it out: the answer is yes, no, or the plan as edited.
    """

    question: str
    kind: Literal["question", "plan"] = "question"


class CheckAnswer(Struct, frozen=True, tag="propose"):
    """An answer, before the loop ends with it. Its result is what speaks against it, "" when it may be given."""

    answer: Any


class CheckGrounding(Struct, frozen=True, omit_defaults=True, tag="doubt"):
    """What a model wrote, words or code, before it is built upon. Its result are the values in it that the model made
    up, where it is to be told of them; `strict` only where what has such values is not carried out at all, which is so
    for `calls` in any case."""

    text: str = ""
    code: str = ""
    calls: tuple[Call, ...] = ()
    strict: bool = False


class Note(Struct, frozen=True, omit_defaults=True, tag="note"):
    """A remark for the record: a repair, a cut, a fallback. Its result is None."""

    kind: str
    text: str


class Execute(Struct, frozen=True, tag="execute"):
    """Run a piece of Python in the run's session, whose names are kept from piece to piece. Its result is a `Ran`.

    A piece that waits for calls and is not continued is given up: its session goes on with the next piece.
    """

    code: str


class Continue(Struct, frozen=True, tag="continue"):
    """Go on with the code that waits: one observation for each of its calls, in order. Its result is a `Ran`.

    An observation with trouble is raised in the code as an exception.
    """

    observations: tuple[Observation, ...]


class Start(Struct, frozen=True, tag="start"):
    """Effects to begin now, without waiting. Its result is a tuple of tickets, one an effect."""

    effects: tuple[Think | Act, ...]


class WaitNext(Struct, frozen=True, tag="take"):
    """The next thing that finished among `tickets` (all that are open, when empty): a `WaitResult`."""

    tickets: tuple[int, ...] = ()


class WaitResult(Struct, frozen=True, omit_defaults=True):
    """What a `WaitNext` gave: a started effect's result, or the next piece of a watched reply.

    `done` is False for a piece; then `piece` is one or several lines the model has written since the last one.
    `again` says that the reply begins anew with this piece (the request was made again): what came before it is void.
    """

    ticket: int
    done: bool = True
    piece: str = ""
    again: bool = False
    reply: Reply | None = None
    observations: tuple[Observation, ...] = ()


Effect: TypeAlias = Think | Act | AskUser | CheckAnswer | CheckGrounding | Note | Execute | Continue | Start | WaitNext

T = TypeVar("T")
Effects: TypeAlias = Generator[Effect, Any, T]
"""Yields effects, is sent their results, and returns a `T`."""

MAX_CONTINUATIONS = 2


def is_going_round(text: str) -> bool:
    """The text ends in a phrase that it says over and over: a model caught in a loop, with nothing more to come."""
    return text.count(text[-60:]) > 3


def think(
    phase: str,
    messages: Iterable[Message] = (),
    *,
    stop: Iterable[str] = (),
    enough: Callable[[str], bool] = is_going_round,
    **options: Any,
) -> Effects[Reply]:
    """Ask the phase's model; a reply cut by its token limit is continued, at most twice, unless that is `enough`.

    `options` are the fields of `Think`. Returns one `Reply` whose text is all that was written.
    Raises `LimitNear` and `ContextOverflow`.
    """
    effect = Think(phase, tuple(messages), stop=tuple(stop), **options)
    reply = cast(Reply, (yield effect))
    for _ in range(MAX_CONTINUATIONS):
        if reply.finish != "length" or reply.calls or not reply.text.strip() or enough(reply.text):
            break
        longer = structs.replace(effect, prefill=effect.prefill + reply.text, repair=True)
        more = cast(Reply, (yield longer))
        reply = structs.replace(more, text=reply.text + more.text, usage=reply.usage + more.usage)
    return reply


def act(*calls: Call) -> Effects[tuple[Observation, ...]]:
    """Call tools side by side; returns their observations in the order of the calls."""
    return cast(tuple[Observation, ...], (yield Act(calls)))


def ask(question: str, kind: Literal["question", "plan"] = "question") -> Effects[str]:
    """Ask the person; the run waits, for days if need be, until there is an answer."""
    return cast(str, (yield AskUser(question, kind)))


def note(kind: str, text: str) -> Effects[None]:
    """Put a remark on the record."""
    yield Note(kind, text)


def check_answer(answer: Any) -> Effects[str]:
    """Ask whether that may be the answer: "", or what speaks against it, in words for the model."""
    return cast(str, (yield CheckAnswer(answer)))


def check_grounding(
    text: str = "", *, code: str = "", calls: Iterable[Call] = (), strict: bool = False
) -> Effects[tuple[str, ...]]:
    """Ask what in words, in code or in calls that are planned the model made up; nothing where that is let pass."""
    return cast(tuple[str, ...], (yield CheckGrounding(text, code, tuple(calls), strict)))


def execute(code: str) -> Effects[Ran]:
    """Run a piece of code until it ends or waits for calls."""
    return cast(Ran, (yield Execute(code)))


def go_on(*observations: Observation) -> Effects[Ran]:
    """Go on with the code that waits, given what its calls gave."""
    return cast(Ran, (yield Continue(observations)))


def start(*effects: Think | Act) -> Effects[tuple[int, ...]]:
    """Begin effects without waiting; returns a ticket for each."""
    return cast(tuple[int, ...], (yield Start(effects)))


def wait_next(*tickets: int) -> Effects[WaitResult]:
    """Wait for the next thing that finishes among the tickets (all open ones, when none is named)."""
    return cast(WaitResult, (yield WaitNext(tickets)))
