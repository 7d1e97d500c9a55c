"""The model `local`: a GGUF file, served by an embedded llama.cpp over HTTP.

A `LocalModel` is a description. It encodes and decodes without a file, a server or the package that runs one, so a
recorded run replays anywhere. The first `send` finds the file (it downloads a catalogue model once) and starts the
server. From then it is a `ChatModel` like any other.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from plait.core import Reply, Think
from plait.core.errors import ConfigError, ModelError, ServerFailed, Unreachable
from plait.models import embedded
from plait.models.base import Abilities, OnText, Request, Response
from plait.models.catalogue import catalogue_model, local_key
from plait.models.chat import ChatModel
from plait.models.config import convert_table
from plait.models.embedded import ServerSettings
from plait.models.fetch import model_file, proved_state
from plait.models.presets import LOCAL_TEMPERATURE, THREADS
from plait.models.prices import LOCAL, Rate
from plait.models.settings import NO_SETTINGS, ModelSettings, describe_settings
from plait.models.special_tokens import has_form_for_tools, tokens_of_file

ABILITIES = Abilities(schema=True, grammar=True, prefill=True, completion=True, tools=False)
"""What llama.cpp's server can do with any model. With `tools`, it shows them as the model's chat template does."""

_HEADERS = {"Connection": "close"}
"""llama.cpp's server promises to keep a connection but closes it after a streamed reply, so every third request would
fail. A new connection on this machine costs little compared with a model."""


class LocalModel(Struct, frozen=True, kw_only=True):
    """A local model: frozen, shared by any number of runs and event loops of one process.

    `name` is its name in the catalogue, or the file's name where `file` (an absolute path) is given.
    `server` says how it is served, `settings` what its requests hold.
    """

    spec: str
    name: str
    file: str = ""
    server: ServerSettings = ServerSettings()
    abilities: Abilities = ABILITIES
    rate: Rate = LOCAL
    settings: ModelSettings = NO_SETTINGS

    @property
    def endpoint(self) -> str:
        """Return "": the server belongs to this process and has another port each time."""
        return ""

    @property
    def secrets(self) -> tuple[str, ...]:
        return ()

    @property
    def writes_calls_as_text(self) -> bool:
        """Return True: small models find no native calls, so Plait reads their calls from the text, if any."""
        return True

    @property
    def context_tokens(self) -> int:
        """Return the tokens that a prompt and its reply may have together."""
        return self.server.n_ctx

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """Return the special tokens of the vocabulary: the catalogue's, or those in the user's file."""
        return tokens_of_file(Path(self.file)) if self.file else catalogue_model(self.name).special_tokens

    def encode(self, think: Think) -> Request:
        return self._chat().encode(think)

    def decode(self, response: Response, think: Think) -> Reply:
        return self._mark_full(self._chat().decode(response, think), think)

    async def send(self, request: Request, think: Think, on_text: OnText | None = None) -> Response:
        """Make one attempt. See `Model.send`. The first one downloads the file and starts the server.

        Also raises `ModelMissing`: the file does not exist, is not a model or cannot be downloaded, or xllamacpp is not
        installed. A dead server is a `ServerFailed`; the next attempt starts another one.
        """
        began = time.perf_counter()
        up = await embedded.start_server(self._key, self.server, self._find)
        startup = time.perf_counter() - began
        try:
            response = await self._chat(up.url, up.key).send(request, think, on_text)
            reply = response.reply and self._mark_full(response.reply, think)
            return structs.replace(response, startup=startup, reply=reply)
        except ModelError as error:
            if not ((error.retry or isinstance(error, Unreachable)) and await self._ended()):
                raise
            how = embedded.ended_how(self._key, self.server)
            failed = ServerFailed(
                f"The process that runs {self.name} ended ({how}) while it was answering.",
                hint="Most likely memory ran out: take a smaller model, or a smaller n_ctx.",
            )
            failed.response = getattr(error, "response", None)
            raise failed from None

    def without(self, ability: str) -> LocalModel:
        return structs.replace(self, abilities=self.abilities.without(ability))

    def as_recorded(self, described: Mapping[str, Any]) -> LocalModel:
        """Return the model with the abilities of a recorded description: its file may be missing."""
        return structs.replace(self, abilities=self.abilities.as_recorded(described))

    def describe(self) -> dict[str, Any]:
        """Return what the journal stores: the spec, how it is served, and the sha256 of a catalogue model's file.

        A load fails if the file has another hash than `sha256`. `checked` is what was verified of the file; None if the
        next load will hash it. A user's own file is not checked.
        """
        return {
            "spec": self.spec,
            "name": self.name,
            "endpoint": "",
            "provider": "local",
            "params": msgspec.to_builtins(self.server),
            "settings": describe_settings(self.settings),
            "sha256": "" if self.file else catalogue_model(self.name).sha256,
            "checked": None if self.file else proved_state(self.name),
            "abilities": msgspec.to_builtins(structs.asdict(self.abilities)),
            "rate": msgspec.to_builtins(self.rate),
            "special_tokens": list(self.special_tokens),
        }

    def _mark_full(self, reply: Reply, think: Think) -> Reply:
        """Return the reply; mark one that ended at `n_predict`, so that no loop continues it."""
        is_full = reply.finish == "length" and think.max_tokens is None
        if is_full and reply.usage.output_tokens >= self.server.n_predict:
            return structs.replace(reply, finish="full")
        return reply

    @property
    def _key(self) -> str:
        return self.file or self.name

    async def _ended(self) -> bool:
        for _ in range(10):  # a dying process closes its connections a moment before it is gone
            if embedded.ended_how(self._key, self.server):
                return True
            await asyncio.sleep(0.02)
        return False

    def _find(self) -> Path:
        return Path(self.file) if self.file else model_file(self.name)

    def _chat(self, url: str = "", key: str = "") -> ChatModel:
        return ChatModel(
            spec=self.spec,
            name=self.name,
            endpoint=url or "local",
            key=key,
            abilities=self.abilities,
            rate=self.rate,
            provider="llamacpp",
            headers=_HEADERS,
            temperature=LOCAL_TEMPERATURE,
            settings=self.settings,
        )


def local_model(
    name: str = "",
    settings: Mapping[str, Any] | None = None,
    *,
    rate: Rate = LOCAL,
    env: Mapping[str, str] = os.environ,
) -> LocalModel:
    """Return the local model of that name: "" is the default, a catalogue name, or the path of a .gguf file.

    `settings` are the fields of `ServerSettings`; `PLAIT_THREADS` in `env` (the environment by default) overrides
    `threads`. Does not download or start anything, and reads only the head of a user's file. Raises `ConfigError` for
    an unknown name or a wrong setting.
    """
    checked = _settings(settings or {}, env)
    spec = f"local:{name}" if name else "local"
    if (path := Path(local_key(name))).is_absolute():
        able = structs.replace(ABILITIES, tools=has_form_for_tools(path))
        return LocalModel(spec=spec, name=path.name, file=str(path), server=checked, abilities=able, rate=rate)
    known = catalogue_model(name)
    able = structs.replace(ABILITIES, tools=known.tools)
    return LocalModel(spec=spec, name=known.name, server=checked, abilities=able, rate=rate)


def _settings(table: Mapping[str, Any], env: Mapping[str, str]) -> ServerSettings:
    known = ServerSettings.__struct_fields__
    if strange := sorted(set(table) - set(known)):
        raise ConfigError(f"local.{strange[0]} is not a setting.", hint=f"There are: {', '.join(known)}.")
    # More than two threads gain little at these sizes, and lose it when another program runs.
    own = {
        "threads": min(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1),
        **table,
    }
    if threads := env.get(THREADS):
        if not threads.isdecimal():
            raise ConfigError(f"PLAIT_THREADS should be a number of threads, not {threads!r}.")
        own["threads"] = int(threads)
    return convert_table(own, ServerSettings, "local")
