"""A model that answers from a list, for tests and examples whose output must be the same each time.

The request determines the reply. Plait finds the replies that are already in the conversation, in order, and returns
the next one. So any number of runs may share one script, and a run that is resumed or forked in another process
continues at the right place.
"""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, cast

import msgspec
from msgspec import UNSET, structs

from plait.core import Call, Reply, Think, errors
from plait.core.errors import BadRequest, ConfigError, ModelError, PlaitError
from plait.core.loose_json import read_float
from plait.core.notebook import repr_short
from plait.models.base import Abilities, FollowsInput, OnText, Request, Response
from plait.models.fallback import join_two
from plait.models.prices import UNKNOWN, Price, Rate
from plait.models.wires import chat_completions
from plait.models.wires import replies as reading
from plait.models.wires.odd_json import mend
from plait.models.wires.refusals import Target
from plait.models.wires.turns import chat_call
from plait.models.wires.wire import CHAT, WireOptions, load_wire
from plait.user_files import read_file
from plait.user_functions import call_plain


class ScriptedTurn(msgspec.Struct, frozen=True):
    """A reply whose calls or answer are written as the request wants: natively, or as text in the loop's format."""

    reply: Reply
    answer: Any = UNSET


Said: TypeAlias = str | Reply | ScriptedTurn | Mapping[str, Any]
Script: TypeAlias = Said | BaseException | Callable[[Think], Said]
Replies: TypeAlias = Sequence[object] | Callable[[Think], Said]  # each a `Script`: mixed lists are lists of objects
WriteReply: TypeAlias = Callable[[str, Sequence[Call], Any, str, int], str]
"""Writes calls or an answer as text, for a phase: see `loops.registry.write_reply`."""

ABILITIES = Abilities(schema=True, grammar=True, prefill=True, completion=True)


class _ScriptFile(msgspec.Struct, forbid_unknown_fields=True):
    """A script as in its file: an object with these keys, or only the replies."""

    replies: Any = None
    delay: float = 0.0
    chunk: int = 0
    by_turn: bool = True


class Scripted:
    """Answer from `replies`: a list for all phases, or a mapping of phases to lists ("" is for the others).

    A reply is text or a `Reply`, which is given as it is; an object such as {"calls": [{"name": "refund", "input":
    {"order": 7}}]} or {"answer": 42}, which fits every loop that makes such a turn; an exception to raise; or a
    function of the request that returns one of these. A function in place of a list answers every request.

    Exceptions belong to the next reply in the list: each attempt at that turn raises the next one, until the reply.
    Attempts are counted by request, in this process alone. With `by_turn` False the replies of each phase come one
    after another, whatever the request (one run, not resumed). `sent` counts the attempts.

    `delay`: seconds before a reply. `chunk`: characters of a streamed piece, 0 for all at once. A reply is cut at the
    stop strings, like an endpoint's. `params` are further fields of each request's body.
    `rate` is the price of its calls, `context_tokens` the size of the context that the model claims to have; 0 for an
    unknown one. Raises `ConfigError` for replies that are not in a list.
    """

    def __init__(
        self,
        replies: Replies | Mapping[str, object],
        *,
        by_turn: bool = True,
        delay: float = 0.0,
        chunk: int = 0,
        name: str = "scripted",
        spec: str = "",
        rate: Rate | Price = UNKNOWN,
        abilities: Abilities | None = None,
        params: Mapping[str, Any] = MappingProxyType({}),
        context_tokens: int = 0,
    ) -> None:
        by_phase = replies if isinstance(replies, Mapping) else {"": replies}
        where = {phase: f"Scripted, phase {phase}" if phase else "Scripted" for phase in by_phase}
        self.scripts = {phase: _list_replies(script, where[phase]) for phase, script in by_phase.items()}
        self.by_turn = by_turn
        self.delay = delay
        self.chunk = chunk
        self.name = name
        self.spec = spec or f"scripted:{name}"
        self.endpoint = ""
        self.rate = rate.rate if isinstance(rate, Price) else rate
        if abilities is None:  # a function may make native calls
            given = [each for script in self.scripts.values() for each in ([script] if callable(script) else script)]
            made = [each.reply if isinstance(each, ScriptedTurn) else each for each in given]
            has_calls = any(each.calls if isinstance(each, Reply) else callable(each) for each in made)
            abilities = structs.replace(ABILITIES, tools=has_calls)
        self.abilities = abilities
        self.params = dict(params)
        self.context_tokens = context_tokens
        self.secrets: tuple[str, ...] = ()
        self._state = _State()
        self._write: WriteReply | None = None
        self._earlier: tuple[str, ...] = ()

    __or__ = join_two

    @property
    def sent(self) -> int:
        """Return the attempts of this process."""
        return self._state.sent

    def for_run(self, write: WriteReply, earlier: tuple[str, ...]) -> Scripted:
        """Return the same script for a run. Its loop's `write` writes calls and answers as text. `earlier` are the
        questions and answers of its conversation before it, and its own question: their replies do not count."""
        made = copy(self)
        made._write, made._earlier = write, earlier
        return made

    def __repr__(self) -> str:
        return f"Scripted({self.spec!r})"

    @classmethod
    def from_file(
        cls, path: str | Path, *, rate: Rate | Price = UNKNOWN, params: Mapping[str, Any] = MappingProxyType({})
    ) -> Scripted:
        """Load a script from a JSON file. Raises `ConfigError`, which says what is wrong in it.

        The file has a list of replies, or {"replies": list or {phase: list}, "delay", "chunk", "by_turn"}. A reply is
        text, {"text", "finish", "reasoning", "calls": [{"tool", "input", "id"}], "usage": {...}}, or {"error":
        "RateLimited", "message": ...} with the name of one of Plait's model errors.
        """
        where = str(path)
        try:
            value = msgspec.json.Decoder(float_hook=read_float).decode(read_file(path))
        except OSError as error:
            raise ConfigError(f"The script {where} can't be read: {error.strerror}.") from None
        except msgspec.DecodeError as error:
            raise ConfigError(f"The script {where} is not JSON: {error}.") from None
        try:
            script = msgspec.convert(value if isinstance(value, dict) else {"replies": value}, _ScriptFile)
        except msgspec.ValidationError as error:
            hint = 'Replies by phase are {"replies": {"act": ["..."]}}; beside it delay, chunk, by_turn.'
            raise ConfigError(f"The script {where} is wrong: {error}.", hint=hint) from None
        replies: Any
        if isinstance(script.replies, dict):
            replies = {phase: _list_replies(part, f"{where}, {phase}") for phase, part in script.replies.items()}
        else:
            replies = _list_replies(script.replies, where)
        return cls(
            replies,
            spec=f"scripted:{where}",
            name=Path(path).stem,
            delay=script.delay,
            chunk=script.chunk,
            by_turn=script.by_turn,
            rate=rate,
            params=params,
        )

    def encode(self, think: Think) -> Request:
        """Return the request that a chat-completions endpoint with these abilities would receive."""
        return chat_completions.encode(think, WireOptions(self.name, self.abilities, params=self.params))

    async def send(self, request: Request, think: Think, on_text: OnText | None = None) -> Response:
        """Return the next reply as the bytes of a chat completion. Raises the script's exceptions."""
        self._state.sent += 1
        script = self._next(request, think)
        if self.delay:
            await asyncio.sleep(self.delay)
        if callable(script):
            try:
                script = call_plain(script, think)
            except PlaitError:
                raise
            except Exception as why:
                place = traceback.extract_tb(why.__traceback__)[-1]
                said = f"{type(why).__name__}: {why} ({Path(place.filename).name}, line {place.lineno})"
                raise ConfigError(f"A function of the script {self.spec} raised {said}.") from why
            script = _read_reply(script, f"{self.spec}, a function")
        if isinstance(script, BaseException):
            raise script
        n = 1 + sum(message.role == "assistant" for message in think.messages)
        said = self._render(script, think, think.phase, n, is_given=True)
        response = Response(200, _encode_body(said if isinstance(said, Reply) else Reply(said), self.name))
        if on_text is not None:
            reply = self.decode(response, think)
            shown = [(on_text, reply.text)]
            if isinstance(on_text, FollowsInput) and on_text.followed_tool:
                inputs = [call.input for call in reply.calls if call.tool == on_text.followed_tool]
                shown += [(on_text.add_input, json.dumps(given, ensure_ascii=False)) for given in inputs[:1]]
            for show, text in shown:
                size = self.chunk or max(1, len(text))
                for start in range(0, len(text), size):
                    show(text[start : start + size])
                    if self.chunk:
                        await asyncio.sleep(0)
        return response

    def decode(self, response: Response, think: Think) -> Reply:
        return reading.decode(response, think, load_wire(CHAT), Target(self.spec, self.name))

    def without(self, ability: str) -> Scripted:
        made = copy(self)
        made.abilities, made._state = self.abilities.without(ability), _State()
        return made

    def describe(self) -> dict[str, Any]:
        """Return what the journal stores. The replies stay in the script."""
        return {
            "spec": self.spec,
            "name": self.name,
            "endpoint": "",
            "wire": CHAT,
            "params": self.params,
            "abilities": msgspec.structs.asdict(self.abilities),
            "rate": msgspec.to_builtins(self.rate),
        }

    def _render(self, said: Any, think: Think, phase: str, n: int, *, is_given: bool = False) -> Any:
        """Return a turn as the reply to a request. If the phase cannot take it, it is returned as it is, or raises
        `ConfigError` if it is the one that `is_given`."""
        if not isinstance(said, ScriptedTurn):
            return said
        reply, answer = said.reply, None if said.answer is UNSET else said.answer
        if think.tools or self._write is None:
            shown = answer if isinstance(answer, str | None) else msgspec.json.encode(mend(answer)[0]).decode()
            return structs.replace(reply, text=reply.text if shown is None else shown)
        try:
            text = self._write(phase, reply.calls, answer, reply.text, n)
        except ValueError as why:
            if not is_given:
                return said
            hint = 'Give the replies by phase, such as {"plan": [...], "solve": [...]}, or text.'
            raise ConfigError(f"{self.spec} has a reply that phase {phase!r} cannot take: {why}.", hint=hint) from None
        return structs.replace(reply, text=text, calls=())

    def _next(self, request: Request, think: Think) -> Script:
        phase = think.phase if think.phase in self.scripts else ""
        given = self.scripts.get(phase, ())
        if callable(given):
            return given
        if not self.by_turn:
            place = self._state.given[phase] = self._state.given.get(phase, 0) + 1
            if place > len(given):
                raise self._script_over(len(given), think)
            return cast(Script, self._render(given[place - 1], think, think.phase, place))
        script = [self._render(each, think, think.phase, n) for n, each in enumerate(given, 1)]
        # Where the turns are in the script. Each turn's exceptions come before it.
        at = [i for i, reply in enumerate(script) if not isinstance(reply, BaseException)]
        lists = {name: each for name, each in self.scripts.items() if name != think.phase and not callable(each)}
        others = [self._render(each, think, name, n) for name, said in lists.items() for n, each in enumerate(said, 1)]
        place = _turns_in([script[i] for i in at], think, others if think.phase in self.scripts else (), self._earlier)
        if place > len(at):  # the conversation has turns of which the script knows nothing
            raise self._script_over(len(at), think)
        start = at[place - 1] + 1 if place else 0
        end = at[place] if place < len(at) else len(script)
        failed = self._state.failed.get(request.body, 0)
        if start + failed < end:
            self._state.failed[request.body] = failed + 1
            return cast(Script, script[start + failed])
        if place >= len(at):
            raise self._script_over(len(at), think)
        return cast(Script, script[end])

    def _script_over(self, count: int, think: Think) -> ModelError:
        return BadRequest(
            f"{self.spec} has {count} {'reply' if count == 1 else 'replies'} for the phase {think.phase!r}, and the "
            "run needs one more.",
            hint="Add a reply to the script.",
        )


class _State(msgspec.Struct):
    """What a script has given: the attempts, the failed ones by request, the replies by phase."""

    sent: int = 0
    failed: dict[bytes, int] = {}
    given: dict[str, int] = {}


def _turns_in(turns: Sequence[Script], think: Think, others: Sequence[Script], earlier: Sequence[str]) -> int:
    """Return how many of the replies were given: the place after the last one in the conversation.

    Each model turn is searched from the place of the last match, so a reply that was removed again (a bad one, after
    its repair) is skipped. A turn that a loop rewrote, or that a function wrote, has no text to find: it takes the next
    place. Replies of another phase (one of `others`), and those up to the texts `earlier`, do not count.
    """
    texts = [_text_of(turn, think.stop) for turn in turns]
    place = begin = 0
    spoken = [message for message in think.messages if message.role in ("user", "assistant")]
    for text in earlier:
        places = [i for i in range(begin, len(spoken)) if spoken[i].content.strip() == text.strip()]
        begin = places[0] + 1 if places else begin
    said = [message for message in spoken[begin:] if message.role == "assistant"]
    for message in said:
        wanted = message.content.strip()
        found = next((i for i in range(place, len(texts)) if wanted and _is_same(texts[i], wanted)), None)
        if found is not None or not any(_is_same(_text_of(other, ()), wanted) for other in others):
            place = (place if found is None else found) + 1
    # Some loops keep their turns in one text: in a raw prompt, in the last user message, or in the opened reply.
    last = think.messages[-1].content if think.messages and not said else ""
    for log in (think.prompt or last, think.prefill):
        at = 0
        for text in earlier[:-1]:
            if len(text) >= 8 and (found_at := log.find(text, at)) >= 0:
                at = found_at + len(text)
        for i, reply in enumerate(texts[place:], place):
            if reply and (len(reply) >= 8 or log is think.prefill) and (found_at := log.find(reply, at)) >= 0:
                place, at = i + 1, found_at + len(reply)
    return place


def _is_same(reply: str | None, turn: str) -> bool:
    return bool(reply) and (reply == turn or turn.startswith(str(reply)) or str(reply).startswith(turn))


def _text_of(turn: Script, stop: Sequence[str]) -> str | None:
    text = turn.text if isinstance(turn, Reply) else turn
    if not isinstance(text, str):
        return None
    text = str(mend(text)[0])  # as the conversation has it
    ends = [at for s in stop if s and (at := text.find(s)) >= 0]
    return text[: min(ends, default=len(text))].strip()


def _encode_body(reply: Reply, model: str) -> bytes:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.calls:
        calls = enumerate(reply.calls)
        message["tool_calls"] = [chat_call(call.id or f"call_{i}", call.tool, _arguments(call)) for i, call in calls]
    if reply.hosted:  # as Groq lists them
        made = [(each.tool, json.dumps(each.input), each.text) for each in reply.hosted]
        message["executed_tools"] = [{"type": tool, "arguments": given, "output": text} for tool, given, text in made]
    finish = {"calls": "tool_calls", "filter": "content_filter"}.get(reply.finish, reply.finish)
    if reply.calls and finish == "stop":
        finish = "tool_calls"
    choice = {"index": 0, "message": message, "finish_reason": finish}
    body: dict[str, Any] = {"object": "chat.completion", "model": reply.model or model, "choices": [choice]}
    if reply.usage.tokens:
        body["usage"] = {
            "prompt_tokens": reply.usage.input_tokens,
            "completion_tokens": reply.usage.output_tokens,
            "total_tokens": reply.usage.tokens,
            "prompt_tokens_details": {"cached_tokens": reply.usage.cached_tokens},
        }
        if stored := reply.usage.cache_write_tokens:
            body["usage"]["prompt_tokens_details"]["cache_write_tokens"] = stored
        if reasoning := reply.usage.reasoning_tokens:
            body["usage"]["completion_tokens_details"] = {"reasoning_tokens": reasoning}
    return msgspec.json.encode(mend(body)[0])


def _arguments(call: Call) -> str:
    if isinstance(call.input, str):
        return call.input  # a model may write text that is not JSON
    return "{}" if call.input is None else msgspec.json.encode(mend(call.input)[0]).decode()


def _list_replies(given: Any, where: str) -> tuple[Any, ...] | Callable[[Think], Said]:
    """Return the replies of a phase as a tuple, or its function. Raises `ConfigError` for what is no reply."""
    if callable(given):
        return cast(Callable[[Think], Said], given)
    if isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping):
        return tuple(_read_reply(each, f"{where}, reply {i}") for i, each in enumerate(given, 1))
    hint = 'Give a list of replies, such as ["Final Answer: 4"].'
    raise ConfigError(f"The replies of a scripted model ({where}) are {repr_short(given)}.", hint=hint)


def _read_reply(item: Any, where: str) -> Script:
    if isinstance(item, str | Reply | ScriptedTurn | BaseException) or callable(item):
        return cast(Script, item)
    if not isinstance(item, Mapping):
        raise ConfigError(f"{where} should be text or an object, not {repr_short(item)}.")
    if "error" in item:
        kind = getattr(errors, str(item["error"]), None)
        if not (isinstance(kind, type) and issubclass(kind, ModelError)):
            raise ConfigError(f"{where}: {item['error']!r} is not a model error.", hint="Such as RateLimited.")
        message = str(item.get("message", f"scripted {item['error']}"))
        return kind(message, str(item.get("ability", "stop"))) if kind is errors.Unsupported else kind(message)
    given = {_CHAT_KEYS.get(key, key): value for key, value in item.items() if key != "role"}
    answer = given.pop("answer", UNSET)
    for key in given:
        if key not in Reply.__struct_fields__:
            raise ConfigError(f"{where} has a key {key!r}.", hint=f"There are: {_KEYS}.")
    if not given and answer is UNSET:
        raise ConfigError(f"{where} is empty.", hint='Give {"text": ""} for a reply without text.')
    try:
        given["calls"] = [_read_call(each) for each in given.get("calls") or ()]
        reply = msgspec.convert({**given, "text": given.get("text") or ""}, Reply)
    except (msgspec.ValidationError, msgspec.DecodeError, TypeError, KeyError) as error:
        hint = 'A call is {"name": TOOL, "input": {...}}.'
        raise ConfigError(f"{where} is not a reply: {error}.", hint=hint) from None
    return ScriptedTurn(reply, answer) if reply.calls or answer is not UNSET else reply


_CHAT_KEYS = {"content": "text", "tool_calls": "calls", "reasoning_content": "reasoning"}
_KEYS = "text, calls, answer, finish, usage, reasoning, error"


def _read_call(given: Any) -> dict[str, Any]:
    """Return a call of a script, also in the form of chat completions, as the fields of a `Call`."""
    call = {**given, **given.get("function", {})}
    found = call.get("input", call.get("arguments"))
    if "input" not in call and isinstance(found, str):  # chat completions send the input as a text of JSON
        found = msgspec.json.decode(found)
    return {"tool": call["tool"] if "tool" in call else call["name"], "input": found, "id": call.get("id", "")}
