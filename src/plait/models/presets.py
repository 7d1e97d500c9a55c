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
from plait.models.base import Abilities
from plait.models.wires.wire import CHAT

LOCAL_TEMPERATURE = 0.0
"""The temperature for models on the user's own machine, so that a run is repeatable. Plait sends none to hosted models,
because many of them refuse it."""


class Host(Struct, frozen=True):
    """A known host. A `local` server needs no key. `wire` names its protocol."""

    name: str
    base_url: str
    abilities: Abilities
    local: bool = False
    wire: str = CHAT

    @property
    def base_env(self) -> str:
        """Return the environment variable that replaces `base_url`."""
        return f"{self.name.upper()}_BASE_URL"

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the environment variables that may hold the key. The first one that is set counts."""
        own = f"{self.name.upper()}_API_KEY"
        return (own, "GOOGLE_API_KEY") if self.name == "gemini" else (own,)

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
        Host("openai", "https://api.openai.com/v1", Abilities(schema=True)),
        Host("openrouter", "https://openrouter.ai/api/v1", Abilities(schema=True)),
        Host("groq", "https://api.groq.com/openai/v1", Abilities(schema=True, prefill=True)),
        # The beta address can continue an assistant message, and accepts everything else too.
        Host("deepseek", "https://api.deepseek.com/beta", Abilities(prefill=True)),
        # Mistral reports usage in streams unasked and refuses unknown fields.
        Host("mistral", "https://api.mistral.ai/v1", Abilities(schema=True, prefill=True, stream_usage=False)),
        Host("together", "https://api.together.xyz/v1", Abilities(schema=True, completion=True)),
        Host(
            "fireworks",
            "https://api.fireworks.ai/inference/v1",
            Abilities(schema=True, grammar=True, completion=True),
        ),
        Host("anthropic", "https://api.anthropic.com/v1", Abilities(schema=True, prefill=True), wire="anthropic"),
        Host("gemini", "https://generativelanguage.googleapis.com/v1beta", Abilities(schema=True), wire="gemini"),
        Host("xai", "https://api.x.ai/v1", Abilities(schema=True)),
        # Ollama also puts its chat template around raw prompts, so it cannot continue a prompt.
        Host("ollama", "http://127.0.0.1:11434/v1", Abilities(schema=True), local=True),
        Host(
            "vllm",
            "http://127.0.0.1:8000/v1",
            Abilities(schema=True, grammar=True, prefill=True, completion=True),
            local=True,
        ),
        Host(
            "llamacpp",
            "http://127.0.0.1:8080/v1",
            Abilities(schema=True, grammar=True, prefill=True, completion=True),
            local=True,
        ),
        Host("lmstudio", "http://127.0.0.1:1234/v1", Abilities(schema=True, completion=True), local=True),
    )
}
_REASONERS = re.compile(r"(?:o[1-9]|gpt-5)(?![a-z0-9])(?!.*chat)")
_NO_PREFILL = re.compile(r"claude-[a-z]+-(?:4-(?:[6-9]|\d\d)|[5-9]|\d\d)(?!\d)")
_NO_TEMPERATURE = re.compile(r"claude-(?:opus-4-[7-9]|[a-z]+-(?:[5-9]|\d\d))(?!\d)")
_NO_SCHEMA = re.compile(r"claude-(?:[23]|instant|(?:opus|sonnet)-4(?:-0|-20\d{6})?$)")


def abilities_of(host: str, name: str, wire: str = "") -> Abilities:
    """Return what a model can do on a host of `HOSTS` ("" is no known host).

    OpenAI's reasoning models (o1, o3, o4, gpt-5 and later) refuse `stop` and `temperature` and call max_tokens
    max_completion_tokens. Claude refuses a prefill from 4.6 on, a temperature from Opus 4.7 on and a schema before 4.1.
    Anthropic's compatible endpoint (`wire` "chat") ignores schemas.
    """
    found, family = HOSTS[host].abilities if host else Abilities(), name.rsplit("/", 1)[-1]
    if host in ("openai", "openrouter") and _REASONERS.match(family):
        found = found.without("stop", "temperature", *(("max_tokens",) if host == "openai" else ()))
    if host == "anthropic":
        found = found.without(
            *(("prefill",) if _NO_PREFILL.match(family) else ()),
            *(("temperature",) if _NO_TEMPERATURE.match(family) else ()),
            *(("schema",) if _NO_SCHEMA.match(family) or wire == CHAT else ()),
        )
    return found


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
