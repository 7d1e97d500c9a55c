"""The effects that a loop can ask for, and helper generators that request them.

Theory of operation. A loop is a generator. It yields an effect and receives the effect's result. The caller that drives
the generator decides what an effect means: perform it, return a recorded result, or stop. Replay compares effects by
value, so an effect holds everything that shapes a request, and nothing more.

The driver can throw one of three exceptions into the generator at a yield. `LimitNear`: one model call is left, so the
loop should answer with what it has. `ContextOverflow`: the prompt was too long, so the loop should show less.
`Unsupported`: the endpoint has no native tools, so the loop should describe them in text. If a loop does not catch the
first two, the run ends as stopped; the third ends it as crashed.

`Execute` and `Continue` serve loops whose action is code. Code runs in the run's Python session until it ends or
reaches calls to tools. The loop makes these calls with `Act` and continues the code with the results.

`Start` and `WaitNext` serve loops that run ahead of their results. `Start` returns a ticket for each effect; `WaitNext`
returns results in the order they finish. The journal records this order, so replay is deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Struct, structs

from plait.core.code import Ran
from plait.core.messages import Message
from plait.core.output import OutputSpec, strip_fence
from plait.core.replies import Reply
from plait.core.tools import Call, Observation, ToolSpec

UNKNOWN = "(unknown)"
"""Replaces an invented value when a model is shown its own words."""


class Think(Struct, frozen=True, omit_defaults=True, tag="think"):
    """One model call by a named phase of the loop. Its result is a `Reply`. An empty system message is dropped.

    Give either `messages` (chat) or `prompt` (raw completion). `prefill` is the beginning of the model's reply. `stop`
    strings end the reply and are not part of it. `stop_after_object` strings end it only behind its first JSON object;
    Plait applies them itself, because endpoints cannot. `schema` (JSON Schema) or `grammar` (GBNF) constrain the reply
    if the endpoint supports them. `tools` are offered as native tools. `repair` marks a second attempt at the same
    step. `watch` requests the text in whole lines while the model writes it (with `Start` and `WaitNext`); the last
    line arrives with the reply.

    `temperature` is sent if it is set. `resample` follows a repetition: it raises a set temperature, so that the model
    does not repeat itself again.
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
            if not each.content and each.role == "system":  # an empty system message is dropped
                messages = tuple(each for each in self.messages if each.role != "system" or each.content)
                structs.force_setattr(self, "messages", messages)
                return


class Act(Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True, tag="act"):
    """One or several tool calls that run concurrently. Its result is a tuple of observations, in order. `fixed`: the
    run's plan has these calls with their inputs, and was made before the loop saw any result."""

    calls: tuple[Call, ...]
    fixed: bool = False


class AskUser(Struct, frozen=True, omit_defaults=True, tag="ask"):
    """A question to the user. The run waits for the answer; the result is its text.

    `kind` "plan" shows a plan and asks for approval: the answer is yes, no, or the edited plan.
    """

    question: str
    kind: Literal["question", "plan"] = "question"


class CheckAnswer(Struct, frozen=True, omit_defaults=True, tag="propose"):
    """A check of an answer before the loop ends with it. Its result is the objection, or "" if there is none.

    It checks the answer's type (`Agent.output`), then the user's own checks, then grounding. `only_output`: it leaves
    out grounding. An objection to the output needs another answer, one to the grounding may need more tool calls.
    """

    answer: Any
    only_output: bool = False


class CheckGrounding(Struct, frozen=True, omit_defaults=True, tag="doubt"):
    """A check of the model's text or code before the loop uses it. Its result is the invented values that the model
    should be shown. `strict`: report them only if the policy refuses such values. `calls` are always checked this way.
    """

    text: str = ""
    code: str = ""
    calls: tuple[Call, ...] = ()
    strict: bool = False


class Note(Struct, frozen=True, omit_defaults=True, tag="note"):
    """A remark for the journal: a repair, a cut, a fallback. Its result is None."""

    kind: str
    text: str


class Execute(Struct, frozen=True, tag="execute"):
    """A piece of Python to run in the run's session, which keeps its variables. Its result is a `Ran`.

    If a piece waits for calls and is not continued, it is abandoned; the session continues with the next piece.
    """

    code: str


class Continue(Struct, frozen=True, tag="continue"):
    """The results for code that waits: one observation for each of its calls, in order. Its result is a `Ran`. The code
    sees a failed observation as an exception."""

    observations: tuple[Observation, ...]


class Start(Struct, frozen=True, tag="start"):
    """Effects to start without waiting. Its result is a tuple of tickets, one for each effect."""

    effects: tuple[Think | Act, ...]


class WaitNext(Struct, frozen=True, tag="take"):
    """A wait for the next result among `tickets` (empty: all open ones). Its result is a `WaitResult`."""

    tickets: tuple[int, ...] = ()


class WaitResult(Struct, frozen=True, omit_defaults=True):
    """The result of a `WaitNext`: that of a started effect, or the next piece of a watched reply.

    `done` is False for a piece; `piece` then holds the lines that the model has written since the last one. `again`:
    the request was repeated, and this piece is the beginning of the new reply. Discard the earlier pieces.
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
"""A generator that yields effects, receives their results, and returns a `T`."""

MAX_PAUSES = 10
"""Times that a turn is continued which the provider paused."""
SHARED_BEGINNING = 16
"""Characters that a reply, or its last line, shares with its rest if the model began again."""


def is_going_round(text: str) -> bool:
    """Return whether the text ends in a phrase that repeats over and over, as of a model caught in a loop."""
    return text.count(text[-60:]) > 3


def think(
    phase: str,
    messages: Iterable[Message] = (),
    *,
    stop: Iterable[str] = (),
    enough: Callable[[str], bool] = is_going_round,
    is_answer: Callable[[str], bool] = lambda text: False,
    **options: Any,
) -> Effects[Reply]:
    """Ask the phase's model. Request the rest of a reply that its token limit cut, once, unless `enough` accepts it.

    `options` are the fields of `Think`. Returns one `Reply` with the whole text, without unmarked reasoning. Reasoning
    in its place counts as the text if `is_answer` accepts it, or if it is JSON that fits the request's schema. Raises
    `LimitNear` and `ContextOverflow`.
    """
    effect = Think(phase, tuple(messages), stop=tuple(stop), **options)
    reply: Reply = yield from continue_turn(effect, (yield effect))
    if (rest := ask_for_rest(effect, reply)) is not None and not enough(reply.text):
        reply = join_replies(reply, (yield rest))
    reply = reply.without_unopened_reasoning()
    if reply.only_reasoning:
        said = strip_fence(reply.reasoning)
        fits = effect.schema is not None and not effect.tools and OutputSpec("reply", effect.schema).fits(said)
        if fits or is_answer(said):
            return structs.replace(reply, text=said, reasoning="")
    return reply


def continue_turn(asked: Think, reply: Reply) -> Effects[Reply]:
    """Return the whole reply of a turn, which goes on as often as the provider pauses it between calls of its own."""
    for _ in range(MAX_PAUSES):
        if reply.finish != "paused":
            break
        paused = Message("assistant", asked.prefill + reply.text, state=reply.state)
        again = structs.replace(asked, messages=(*asked.messages, paused), prefill="", repair=True, watch=False)
        reply = _join_paused(reply, (yield again))
    return reply


def ask_for_rest(asked: Think, reply: Reply) -> Think | None:
    """Return the request for the rest of a reply that its token limit cut; None if there is nothing to continue. Native
    calls cannot be continued. A grammar or a schema describes a whole reply, so the rest is not held to it."""
    if reply.finish != "length" or reply.calls or not reply.text.strip():
        return None
    return structs.replace(asked, prefill=asked.prefill + reply.text, schema=None, grammar=None, repair=True)


def _join_paused(first: Reply, rest: Reply) -> Reply:
    """Return one reply: that of a turn which the provider paused between calls of its own, and how it went on."""
    a, b = first.state, rest.state
    state = b
    if a is not None and isinstance(a.data, list):
        more = b.data if b is not None and isinstance(b.data, list) else [{"type": "text", "text": rest.text}]
        state = structs.replace(a, data=[*a.data, *more])
    hosted, citations = first.hosted + rest.hosted, first.citations + rest.citations
    text, usage = first.text + rest.text, first.usage + rest.usage
    return structs.replace(rest, text=text, usage=usage, state=state, hosted=hosted, citations=citations)


def join_replies(first: Reply, rest: Reply) -> Reply:
    """Return one reply: the first one and its rest. A model that cannot continue begins the reply, or its last line,
    again: then that is left out of the first one."""
    text = first.text
    begun = rest.text.lstrip(" ")[:SHARED_BEGINNING]
    for at in (len(text) - len(text.lstrip()), text.rfind("\n") + 1):
        if len(begun) == SHARED_BEGINNING and text.startswith(begun, at):
            text = text[:at]
    hosted, citations = first.hosted + rest.hosted, first.citations + rest.citations
    usage = first.usage + rest.usage
    return structs.replace(rest, text=text + rest.text, usage=usage, hosted=hosted, citations=citations)


def act(*calls: Call) -> Effects[tuple[Observation, ...]]:
    """Call tools concurrently; return their observations in the order of the calls."""
    seen: tuple[Observation, ...] = yield Act(calls)
    return seen


def ask(question: str, kind: Literal["question", "plan"] = "question") -> Effects[str]:
    """Ask the user, and wait for the answer, possibly for days."""
    answer: str = yield AskUser(question, kind)
    return answer


def note(kind: str, text: str) -> Effects[None]:
    """Add a remark to the journal."""
    yield Note(kind, text)


def check_answer(answer: Any, *, only_output: bool = False) -> Effects[str]:
    """Return the objection to an answer, in words for the model, or "" if it may be given. `only_output`: the objection
    to its type, or by the user's own checks."""
    against: str = yield CheckAnswer(answer, only_output)
    return against


def execute(code: str) -> Effects[Ran]:
    """Run a piece of code until it ends or waits for calls."""
    ran: Ran = yield Execute(code)
    return ran


def go_on(*observations: Observation) -> Effects[Ran]:
    """Continue the code that waits, with the results of its calls."""
    ran: Ran = yield Continue(observations)
    return ran


def start(*effects: Think | Act) -> Effects[tuple[int, ...]]:
    """Start effects without waiting; return a ticket for each."""
    tickets: tuple[int, ...] = yield Start(effects)
    return tickets


def wait_next(*tickets: int) -> Effects[WaitResult]:
    """Wait for the next result among the tickets (none given: all open ones)."""
    result: WaitResult = yield WaitNext(tickets)
    return result
