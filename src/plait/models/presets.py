"""The usual hosts and local servers: address, where the key stands, and what they are known to be able to do.

What is known here spares a refused request; what is wrong or out of date is found out by the first refusal
(`Unsupported`), or set right by the user in plait.toml.
"""

from __future__ import annotations

import re

from msgspec import Struct

from plait.models.base import Abilities


class Preset(Struct, frozen=True, kw_only=True):
    """A host that is known by name. `keys` are environment variables, the first that is set counts.

    `base_env` is the environment variable that puts another address in place of `base_url`. `local` servers
    need no key and cost electricity at most.
    """

    base_url: str
    base_env: str
    keys: tuple[str, ...] = ()
    abilities: Abilities = Abilities()
    local: bool = False


LOCAL_TEMPERATURE = 0.0
"""What models on the user's own machine are asked at, so that a run can be made again. Hosted models are sent none:
many of them refuse it."""

PRESETS: dict[str, Preset] = {
    "openai": Preset(
        base_url="https://api.openai.com/v1",
        base_env="OPENAI_BASE_URL",
        keys=("OPENAI_API_KEY",),
        abilities=Abilities(schema=True),
    ),
    "openrouter": Preset(
        base_url="https://openrouter.ai/api/v1",
        base_env="OPENROUTER_BASE_URL",
        keys=("OPENROUTER_API_KEY",),
        abilities=Abilities(schema=True),
    ),
    "groq": Preset(
        base_url="https://api.groq.com/openai/v1",
        base_env="GROQ_BASE_URL",
        keys=("GROQ_API_KEY",),
        abilities=Abilities(schema=True, prefill=True),
    ),
    # The beta address is the one that continues an assistant message; it takes everything else as well.
    "deepseek": Preset(
        base_url="https://api.deepseek.com/beta",
        base_env="DEEPSEEK_BASE_URL",
        keys=("DEEPSEEK_API_KEY",),
        abilities=Abilities(prefill=True),
    ),
    # Mistral reports usage in streams unasked and refuses fields that it does not know.
    "mistral": Preset(
        base_url="https://api.mistral.ai/v1",
        base_env="MISTRAL_BASE_URL",
        keys=("MISTRAL_API_KEY",),
        abilities=Abilities(schema=True, prefill=True, stream_usage=False),
    ),
    "together": Preset(
        base_url="https://api.together.xyz/v1",
        base_env="TOGETHER_BASE_URL",
        keys=("TOGETHER_API_KEY",),
        abilities=Abilities(schema=True, completion=True),
    ),
    "fireworks": Preset(
        base_url="https://api.fireworks.ai/inference/v1",
        base_env="FIREWORKS_BASE_URL",
        keys=("FIREWORKS_API_KEY",),
        abilities=Abilities(schema=True, grammar=True, completion=True),
    ),
    # Its compatible endpoint takes response_format and leaves it unheeded.
    "anthropic": Preset(
        base_url="https://api.anthropic.com/v1",
        base_env="ANTHROPIC_BASE_URL",
        keys=("ANTHROPIC_API_KEY",),
        abilities=Abilities(prefill=True),
    ),
    "gemini": Preset(
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        base_env="GEMINI_BASE_URL",
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        abilities=Abilities(schema=True),
    ),
    "xai": Preset(
        base_url="https://api.x.ai/v1",
        base_env="XAI_BASE_URL",
        keys=("XAI_API_KEY",),
        abilities=Abilities(schema=True),
    ),
    # Ollama puts its chat template around raw prompts too, so it has no completion of ours.
    "ollama": Preset(
        base_url="http://127.0.0.1:11434/v1",
        base_env="OLLAMA_BASE_URL",
        keys=("OLLAMA_API_KEY",),
        abilities=Abilities(schema=True),
        local=True,
    ),
    "vllm": Preset(
        base_url="http://127.0.0.1:8000/v1",
        base_env="VLLM_BASE_URL",
        keys=("VLLM_API_KEY",),
        abilities=Abilities(schema=True, grammar=True, prefill=True, completion=True),
        local=True,
    ),
    "llamacpp": Preset(
        base_url="http://127.0.0.1:8080/v1",
        base_env="LLAMACPP_BASE_URL",
        keys=("LLAMACPP_API_KEY",),
        abilities=Abilities(schema=True, grammar=True, prefill=True, completion=True),
        local=True,
    ),
    "lmstudio": Preset(
        base_url="http://127.0.0.1:1234/v1",
        base_env="LMSTUDIO_BASE_URL",
        keys=("LMSTUDIO_API_KEY",),
        abilities=Abilities(schema=True, completion=True),
        local=True,
    ),
}

_REASONERS = re.compile(r"(?:o[1-9]|gpt-5)(?![a-z0-9])(?!.*chat)")
_NO_PREFILL = re.compile(r"claude-(?:opus|sonnet|haiku|fable)-(?:4-[6-9]|[5-9])")


def abilities_of(provider: str, name: str, start: Abilities) -> Abilities:
    """What a model of that name is known to lack, taken from what its host can do.

    OpenAI's reasoning models (o1, o3, o4, gpt-5 and on) refuse `stop` and `temperature` and call max_tokens
    max_completion_tokens; Claude from 4.6 on refuses a prefill.
    """
    family = name.rsplit("/", 1)[-1]
    lacking: list[str] = []
    if provider in ("openai", "openrouter") and _REASONERS.match(family):
        lacking += ["stop", "temperature"]
        if provider == "openai":
            lacking.append("max_tokens")
    if provider == "anthropic" and _NO_PREFILL.match(family):
        lacking.append("prefill")
    for ability in lacking:
        start = start.without(ability)
    return start
