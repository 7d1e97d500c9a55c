"""A model behind an HTTP endpoint."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from functools import partial
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Struct, structs

from plait.core import Reply, Think
from plait.core.errors import BadResponse, ModelError
from plait.core.hosted import HostedTool
from plait.core.secrets import Scrubber, StreamScrubber
from plait.models import http
from plait.models.base import OPENAI, Abilities, FollowsInput, OnText, Request, Response
from plait.models.fallback import join_two
from plait.models.hosted import declare, prices_per_call
from plait.models.http import MAX_BODY
from plait.models.presets import HOSTS
from plait.models.prices import UNKNOWN, Rate
from plait.models.rate_limits import RateLimit
from plait.models.settings import NO_SETTINGS, ModelSettings, describe_settings
from plait.models.wires import replies
from plait.models.wires.contents import fill_contents
from plait.models.wires.error_bodies import error_of
from plait.models.wires.refusals import Target, bad_response, failure
from plait.models.wires.rejected_fields import OMITTABLE, fields_of, without_fields
from plait.models.wires.replies import ReplyReader
from plait.models.wires.wire import CHAT, WIRES, WireOptions, load_wire
from plait.pickles import require_no_credentials, require_variable

SILENCE = 600.0
_WITHOUT_TOOLS: Mapping[str, Any] = {"tool_choice": UNSET, "parallel_calls": UNSET}
EMPTY_STREAM, FRAMES, MAX_STREAM = 2 << 20, 256, 32 << 20
"""Bytes of a stream without any text, bytes of a stream for each byte of its text, and bytes of any stream."""


class ChatModel(Struct, frozen=True, kw_only=True):
    """One model at one endpoint: frozen, shared by any number of runs, on any event loop.

    `endpoint` is the base address (https://host/v1). `key` is sent as a header; "" sends none. `params` are more
    fields of the body; they override an effect's, and None leaves a field out. `headers` are sent with every request;
    `hidden` maps those with a secret value to the variable that holds it ("" for none). `timeout` is the longest
    silence of the endpoint in seconds. `provider` names the dialect ("openai", "vllm", "deepseek" ...; "" for none).
    Messages name `key_env` and `base_env`. `temperature` is sent if neither the effect nor `params` set one; None
    sends none.
    `special_tokens` are texts that the endpoint reads as control tokens (`special_tokens.py`). `wire` names the
    protocol (`wires/`). `settings` are the user's, and override what an effect asks for. `rate_limit` holds for all
    runs of this process.
    `stated_abilities` are those that the user stated in plait.toml.
    `context_tokens` is the size of the model's context, 0 if it is not known. `hosted` are the tools that the provider
    runs by itself (`with_hosted`).
    """

    spec: str
    name: str
    endpoint: str
    key: str = ""
    abilities: Abilities = Abilities()
    rate: Rate = UNKNOWN
    params: Mapping[str, Any] = {}
    headers: Mapping[str, str] = {}
    timeout: float = SILENCE
    provider: str = ""
    key_env: str = ""
    base_env: str = ""
    hidden: Mapping[str, str] = {}
    temperature: float | None = None
    special_tokens: tuple[str, ...] = ()
    wire: str = CHAT
    settings: ModelSettings = NO_SETTINGS
    rate_limit: RateLimit | None = None
    stated_abilities: tuple[str, ...] = ()
    context_tokens: int = 0
    hosted: tuple[HostedTool, ...] = ()

    @property
    def secrets(self) -> tuple[str, ...]:
        hidden = [self.headers[name] for name in self.hidden]
        # "Bearer KEY": a server may repeat the key alone.
        words = dict.fromkeys(each for value in hidden for each in (value, value.rpartition(" ")[2]))
        return (self.key, *words) if self.key else tuple(words)

    @property
    def target(self) -> Target:
        """Return the endpoint and model, for messages."""
        settings, user_set = self.settings, frozenset[str]()
        if settings != NO_SETTINGS:
            given = fields_of({**settings.set_values, **settings.extra_body}).keys()
            user_set = frozenset(name for name, fields in OMITTABLE.items() if not given.isdisjoint((name, *fields)))
        return Target(self.endpoint, self.name, self.key_env, self.base_env, self.secrets, user_set)

    def __repr__(self) -> str:
        return f"ChatModel({self.spec!r}, endpoint={self.endpoint!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        # msgspec's own repr would list every field, including the key.
        return [("spec", self.spec), ("endpoint", self.endpoint)]

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what a pickle holds: the names of the variables of keys, which the loading process reads. Raises
        `TypeError` for a key that was given as text."""
        plain = {name: value for name, value in self.headers.items() if name not in self.hidden}
        variables = {self.headers[name]: variable for name, variable in self.hidden.items()}
        for secret, variable in {self.key: self.key_env, **variables}.items():
            if secret:
                require_variable(self.spec, secret, variable)
        require_no_credentials(self.spec, plain)
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return _load_pickled, ({**values, "key": "", "headers": plain}, bool(self.key))

    def __deepcopy__(self, memo: object) -> ChatModel:
        return self

    def encode(self, think: Think) -> Request:
        return load_wire(self.wire).encode(think, self._options(think))

    async def send(self, request: Request, think: Think, on_text: OnText | None = None) -> Response:
        """Make one attempt. See `Model.send`. A stop string or a circle in the stream ends the request."""
        target = self.target
        wire = load_wire(self.wire)
        headers = {**wire.make_headers(self.key, self.name, self.hosted), **self.headers, **self.settings.extra_headers}
        answer = http.HttpAnswer()
        scrubber = target.scrubber
        hides = bool(scrubber)
        prefill = self._repeatable_prefill(think)
        watch = _Watch(ReplyReader(wire, think, prefill, self.provider), on_text, scrubber)
        broken: ModelError | None = None
        try:
            body = fill_contents(request.body, request.contents)
            count = partial(getattr, watch.reader.draft, "written")
            target = await http.post(target, request.path, body, headers, self.timeout, answer, watch.take, count)
        except asyncio.CancelledError as error:
            # For the usage of the call: the part that was received.
            error.response = Response(answer.status, target.clean_bytes(answer.body))  # type: ignore[attr-defined]
            raise
        except ModelError as error:
            if not answer.status:
                raise
            broken = error
        cut = answer.cut and bool(watch.reader.draft.cut)
        # Searching for pieces of secrets costs time; a whole reply shows below whether it has any.
        body = answer.body
        if hides:
            body = target.clean_bytes(body) if broken or cut else scrubber(body)
        response = Response(answer.status, body, cut)
        if broken and answer.status != 200:
            broken.response = response
            raise broken
        if answer.cut and not cut:
            flood = bad_response("sent far more than any reply.", response.body, target, response)
            flood.retry = False
            raise flood
        if answer.status != 200:
            if reply := replies.reply_in_error(error_of(body), think, wire, target):
                return structs.replace(response, body=body, reply=reply)
            asked, path = request.body, request.path
            raise failure(
                answer.status, body, target, asked=asked, path=path, headers=answer.headers, response=response
            )
        try:
            # Decode here too, so that half a stream or garbage is a failed attempt, which is retried.
            if body != answer.body:
                reply = self._decode(response, think, request.body)
            else:
                reply = watch.reader.finish(response, target, request.body)
        except BadResponse:
            if broken and answer.timed_out:
                broken.response = response
                raise broken from None
            raise
        if hides and scrubber(said := msgspec.json.encode(reply)) != said:
            response = structs.replace(response, body=target.clean_bytes(body))
            reply = self._decode(response, think, request.body)
            if scrubber(said := msgspec.json.encode(reply)) != said:
                response = structs.replace(response, body=b"")
                leak = bad_response("repeats a secret in pieces that Plait cannot find.", b"", target, response)
                leak.retry = False
                raise leak
        watch.show_rest(reply)
        return structs.replace(response, reply=reply)

    def decode(self, response: Response, think: Think) -> Reply:
        asked = self.encode(think).body if response.status != 200 else b""
        return self._decode(response, think, asked)

    __or__ = __ror__ = join_two

    def without(self, ability: str) -> ChatModel:
        return structs.replace(self, abilities=self.abilities.without(ability))

    def as_recorded(self, described: Mapping[str, Any]) -> ChatModel:
        """Return the model with the wire and the abilities of a recorded description. The wire's own address comes with
        it if it is on the same host. A record never redirects a key to another one."""
        model = structs.replace(self, abilities=self.abilities.as_recorded(described))
        wire, endpoint = str(described.get("wire", CHAT)), str(described.get("endpoint", ""))
        if wire == self.wire or wire not in WIRES:
            return model
        here = urlsplit(endpoint)[:2] == urlsplit(self.endpoint)[:2]
        return structs.replace(model, wire=wire, endpoint=endpoint if here else self.endpoint)

    def describe(self) -> dict[str, Any]:
        """Return what the journal stores: no key, and only the names of the headers."""
        return {
            "spec": self.spec,
            "name": self.name,
            "endpoint": self.endpoint,
            "provider": self.provider,
            "wire": self.wire,
            "settings": describe_settings(self.settings),
            "params": dict(self.params),
            "temperature": self.temperature,
            "headers": sorted({*self.headers, *self.settings.extra_headers}),
            "abilities": structs.asdict(self.abilities),
            "rate": msgspec.to_builtins(self.rate),
            **({"special_tokens": list(self.special_tokens)} if self.special_tokens else {}),
            **({"stated_abilities": list(self.stated_abilities)} if self.stated_abilities else {}),
            **({"hosted": [each.word for each in self.hosted]} if self.hosted else {}),
        }

    def with_hosted(self, tools: tuple[HostedTool, ...]) -> ChatModel:
        """Return the model with the hosted tools that its provider has. OpenAI has them on its Responses endpoint, so a
        model at OpenAI's own address is asked there."""
        wire, host = self.wire, HOSTS.get(self.provider)
        is_own = host is not None and self.provider in ("openai", "xai") and self.endpoint == host.base_url
        missing = any(declare(each, wire, self.provider, self.name) is None for each in tools)
        wire = "responses" if wire == CHAT and is_own and missing else wire
        own = tuple(each for each in tools if declare(each, wire, self.provider, self.name) is not None)
        if not own:
            return self
        prices = prices_per_call(self.provider, self.name)
        known = {each.name: prices[each.name] for each in own if each.name in prices}
        return structs.replace(self, wire=wire, hosted=own, rate=structs.replace(self.rate, per_call=known))

    def _options(self, think: Think) -> WireOptions:
        abilities = self.abilities
        params: Mapping[str, Any] = without_fields(self.params, abilities.lacking) if self.params else {}
        if self.settings != NO_SETTINGS:
            settings = self.settings if think.tools else structs.replace(self.settings, **_WITHOUT_TOOLS)
            named = load_wire(self.wire).name_settings(settings, self.provider)
            params = {**params, **named, **settings.extra_body}
            if "temperature" in named:  # a setting of the user is never left out
                abilities = structs.replace(abilities, temperature=True)
        dialect = HOSTS[self.provider].dialect if self.provider in HOSTS else OPENAI
        return WireOptions(self.name, abilities, self.provider, dialect, params, self.temperature, self.hosted)

    def _decode(self, response: Response, think: Think, asked: bytes) -> Reply:
        wire, prefill = load_wire(self.wire), self._repeatable_prefill(think)
        return replies.decode(response, think, wire, self.target, prefill=prefill, provider=self.provider, asked=asked)

    def _repeatable_prefill(self, think: Think) -> str:
        """Return the prefill to drop if a reply repeats it; "" if there is none. A short one may be meant, as "["."""
        if not think.prefill:
            return ""
        is_short = len(think.prefill.strip()) < 12
        return "" if is_short and load_wire(self.wire).continues_prefill(think, self._options(think)) else think.prefill


def _load_pickled(values: dict[str, Any], has_key: bool) -> ChatModel:
    """Return the model of a pickle, with the keys of this process."""
    hidden = {name: os.environ.get(variable, "").strip() for name, variable in values["hidden"].items()}
    key = os.environ.get(values["key_env"], "").strip() if has_key else ""
    return ChatModel(**{**values, "key": key, "headers": {**values["headers"], **hidden}})


class _Watch:
    """Watch a response as it arrives: pass on its text, and report when no more is wanted."""

    def __init__(self, reader: ReplyReader, on_text: OnText | None, scrubber: Scrubber) -> None:
        self.reader = reader
        self._on_text = on_text
        self._scrubber = StreamScrubber(scrubber)
        # A check of the protocol's class would look at each of its names, which takes long.
        self._follows = cast(FollowsInput, on_text) if getattr(on_text, "followed_tool", "") else None
        self._input_scrubber = StreamScrubber(scrubber)
        self._shown = self._size = 0

    def take(self, piece: bytes) -> bool | None:
        """Read a piece. Returns True if no more is wanted, or if far too much arrived; None if all has come."""
        draft = self.reader.draft
        self._size += len(piece)
        max_size = MAX_BODY if self.reader.kind == "json" else min(EMPTY_STREAM + FRAMES * draft.written, MAX_STREAM)
        if self._size > max_size:
            return True
        for text in self.reader.feed(piece):
            if self._on_text is not None and (text := self._scrubber.feed(text)):
                self._shown += len(text)
                self._on_text(text)
            if self._follows is not None:
                self._show_input(self._follows)
        if draft.is_done:
            return None
        # If the endpoint also ended the reply, its usage is still to come.
        return bool(draft.cut) and not draft.is_whole

    def _show_input(self, follows: FollowsInput) -> None:
        if text := self.reader.draft.new_input(follows.followed_tool):
            follows.add_input(self._input_scrubber.feed(text))

    def show_rest(self, reply: Reply) -> None:
        """Pass on the rest of the text, when the whole reply is known."""
        if self._follows is not None:
            self._show_input(self._follows)
        if self._on_text is not None and len(reply.text) > self._shown:
            self._on_text(reply.text[self._shown :])
