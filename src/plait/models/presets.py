"""The usual model hosts and local servers: their addresses, their keys, and what they can do.

This data saves a refused request. The first refusal (`Unsupported`) corrects outdated data, and users can set abilities
in plait.toml.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from msgspec import Struct

from plait.core.errors import ConfigError
from plait.models.base import OPENAI, Abilities, RequestDialect
from plait.models.wires.wire import CHAT

LOCAL_TEMPERATURE = 0.0
"""The temperature for models on the user's own machine, so that a run is repeatable. Plait sends none to hosted models,
because many of them refuse it."""


class Host(Struct, frozen=True):
    """A known host. A `local` server needs no key. `wire` names its protocol.

    `other_keys` are further environment variables that may hold the key. `overflow` is a pattern of its words for a
    prompt that is too long. `embeddings`: it has `/embeddings`. `span_name` is its name in OpenTelemetry's conventions,
    if they use another one.
    """

    name: str
    base_url: str
    abilities: Abilities
    dialect: RequestDialect = OPENAI
    local: bool = False
    wire: str = CHAT
    other_keys: tuple[str, ...] = ()
    overflow: str = ""
    embeddings: bool = False
    span_name: str = ""

    @property
    def base_env(self) -> str:
        """Return the environment variable that replaces `base_url`."""
        return f"{self.name.upper()}_BASE_URL"

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the environment variables that may hold the key. The first one that is set counts."""
        return (f"{self.name.upper()}_API_KEY", *self.other_keys)

    def find_access(self, spec: str, env: Mapping[str, str], instead: str) -> tuple[str, str, str]:
        """Return the address, the variable of the key, and the key. Raises `ConfigError` if a key is missing.

        `instead` is what the error suggests to users without a key.
        """
        moved = env.get(self.base_env, "").strip()
        address = check_address(moved, self.base_env) if moved else self.base_url
        for key_env in self.keys:
            if key := env.get(key_env, "").strip():
                return address, key_env, key
        if not self.local and address == self.base_url:
            raise ConfigError(
                f"{spec} needs a key, and {' or '.join(self.keys)} is not set.",
                hint=f"Set it in the environment (export {self.keys[0]}=...), or use {instead}.",
            )
        return address, self.keys[0], ""


HOSTS: dict[str, Host] = {
    host.name: host
    for host in (
        Host(
            "openai",
            "https://api.openai.com/v1",
            Abilities(schema=True, strict=True),
            RequestDialect(strict_subset=True),
            embeddings=True,
        ),
        Host("openrouter", "https://openrouter.ai/api/v1", Abilities(schema=True), RequestDialect(strict_subset=True)),
        Host(
            "groq",
            "https://api.groq.com/openai/v1",
            Abilities(schema=True, prefill=True),
            RequestDialect(strict_subset=True),
        ),
        # The beta address can continue an assistant message, and accepts everything else too.
        Host(
            "deepseek",
            "https://api.deepseek.com/beta",
            Abilities(prefill=True),
            RequestDialect(max_stop=16, prefill="prefix"),
        ),
        # Mistral reports usage in streams unasked and refuses unknown fields.
        Host(
            "mistral",
            "https://api.mistral.ai/v1",
            Abilities(schema=True, prefill=True, stream_usage=False),
            RequestDialect(prefill="prefix", repeats_prefill=True),
            overflow=r"prompt contains \d+ tokens",
            embeddings=True,
            span_name="mistral_ai",
        ),
        Host(
            "together",
            "https://api.together.xyz/v1",
            Abilities(schema=True, completion=True),
            overflow=r"tokens?.* must be <=",
            embeddings=True,
        ),
        Host(
            "fireworks",
            "https://api.fireworks.ai/inference/v1",
            Abilities(schema=True, grammar=True, completion=True),
            RequestDialect(grammar="response_format"),
            embeddings=True,
        ),
        Host(
            "anthropic",
            "https://api.anthropic.com/v1",
            Abilities(schema=True, prefill=True),
            RequestDialect(prefill="stripped"),
            wire="anthropic",
            overflow=r"prompt is too long|input length and .max_tokens. exceed",
        ),
        Host(
            "gemini",
            "https://generativelanguage.googleapis.com/v1beta",
            Abilities(schema=True),
            RequestDialect(max_stop=5),
            wire="gemini",
            other_keys=("GOOGLE_API_KEY",),
            overflow=r"input token count.*exceeds",
            span_name="gcp.gemini",
        ),
        Host("xai", "https://api.x.ai/v1", Abilities(schema=True), span_name="x_ai"),
        Host("moonshot", "https://api.moonshot.ai/v1", Abilities()),
        # Z.AI accepts one stop string and reports usage in streams unasked.
        Host("zai", "https://api.z.ai/api/paas/v4", Abilities(stream_usage=False), RequestDialect(max_stop=1)),
        Host("cerebras", "https://api.cerebras.ai/v1", Abilities(schema=True)),
        Host("huggingface", "https://router.huggingface.co/v1", Abilities(schema=True), other_keys=("HF_TOKEN",)),
        # Ollama also puts its chat template around raw prompts, so it cannot continue a prompt.
        Host("ollama", "http://127.0.0.1:11434/v1", Abilities(schema=True), local=True, embeddings=True),
        Host(
            "vllm",
            "http://127.0.0.1:8000/v1",
            Abilities(schema=True, grammar=True, prefill=True, completion=True),
            RequestDialect(grammar="structured_outputs", prefill="fields"),
            local=True,
            embeddings=True,
        ),
        Host(
            "llamacpp",
            "http://127.0.0.1:8080/v1",
            Abilities(schema=True, grammar=True, prefill=True, completion=True),
            RequestDialect(raw_schema="json_schema"),
            local=True,
            embeddings=True,
        ),
        Host(
            "lmstudio",
            "http://127.0.0.1:1234/v1",
            Abilities(schema=True, completion=True),
            local=True,
            overflow=r"context the overflows",
            embeddings=True,
        ),
    )
}
OVERFLOWS = "|".join(host.overflow for host in HOSTS.values() if host.overflow)
"""Matches each host's words for a prompt that is too long: a gateway passes on those of other hosts."""
_REASONERS = re.compile(r"(?:o[1-9]|gpt-[5-9]|codex-mini)(?![a-z0-9])(?!.*chat)")
_RESPONSES_ONLY = re.compile(r"computer-use")
_CHAT_ONLY = re.compile(r"search|^o1-(?:mini|preview)")
_NO_PREFILL = re.compile(r"claude-[a-z]+-(?:4-(?:[6-9]|\d\d)|[5-9]|\d\d)(?!\d)")
_NO_TEMPERATURE = re.compile(r"claude-(?:opus-4-[7-9]|[a-z]+-(?:[5-9]|\d\d))(?!\d)")
_NO_SCHEMA = re.compile(r"claude-(?:[23]|instant|(?:opus|sonnet)-4(?:-0|-20\d{6})?$)")


def abilities_of(host: str, name: str, wire: str = "") -> Abilities:
    """Return what a model can do on a host of `HOSTS` ("" is no known host).

    OpenAI's reasoning models (o1, o3, o4, gpt-5 and later) refuse `stop` and `temperature` and call max_tokens
    max_completion_tokens. Claude refuses a prefill from 4.6 on, a temperature from Opus 4.7 on, and a schema before
    4.1. Anthropic's compatible endpoint (`wire` "chat") ignores schemas.
    """
    found, family = HOSTS[host].abilities if host else Abilities(), name.rsplit("/", 1)[-1]
    if host in ("openai", "openrouter") and is_reasoner(name):
        found = found.without("stop", "temperature", *(("max_tokens",) if host == "openai" else ()))
    if host == "anthropic":
        found = found.without(
            *(("prefill",) if _NO_PREFILL.match(family) else ()),
            *(("temperature",) if _NO_TEMPERATURE.match(family) else ()),
            *(("schema",) if _NO_SCHEMA.match(family) or wire == CHAT else ()),
        )
    return found


def dialect_of(provider: str) -> RequestDialect:
    """Return how a provider's requests differ from OpenAI's; for an unknown provider they do not."""
    return HOSTS[provider].dialect if provider in HOSTS else OPENAI


def wire_of(host: str, name: str) -> str:
    """Return the wire of a model on a host of `HOSTS` ("" is no known host).

    OpenAI's reasoning models use Responses. Several of them exist only there (o1-pro, o3-pro, gpt-5-pro, the codex
    models), and chat completions lose the reasoning between two calls of tools (OpenAI's guides "Reasoning models" and
    "Migrate to the Responses API", November 2026). Its search models exist only as chat completions.
    """
    if host == "openai" and (is_reasoner(name) or _RESPONSES_ONLY.match(name)) and not _CHAT_ONLY.search(name):
        return "responses"
    return HOSTS[host].wire if host else CHAT


def is_reasoner(name: str) -> bool:
    """Return whether a name is that of one of OpenAI's reasoning models, at any host."""
    return bool(_REASONERS.match(name.rsplit("/", 1)[-1]))


def check_address(address: str, where: str) -> str:
    """Return a valid base address without secrets. Raises `ConfigError`."""
    try:
        parts = urlsplit(address.strip())
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError(f"{where} is not an address: {address!r}.", hint="It looks like https://host/v1.")
    if parts.username is not None or parts.password is not None:
        # Do not show it: addresses appear in messages and journals, secrets never.
        raise ConfigError(f"{where} holds a password.", hint="Put it in the environment and name it in key_env.")
    return address.strip().rstrip("/")
