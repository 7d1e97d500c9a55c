"""What the known hosts and models can do.

What is known here saves a refused request. The first refusal (`Unsupported`) corrects what is out of date, and users
can set abilities in plait.toml.
"""

from __future__ import annotations

import re

from plait.models.base import Abilities

LOCAL_TEMPERATURE = 0.0
"""Plait asks models on the user's own machine at this temperature, so that a run can be made again. It sends none to
hosted models: many of them refuse one."""

_OF_HOSTS: dict[str, Abilities] = {
    "openai": Abilities(schema=True),
    "openrouter": Abilities(schema=True),
    "groq": Abilities(schema=True, prefill=True),
    "deepseek": Abilities(prefill=True),
    # Mistral reports usage in streams unasked and refuses fields that it does not know.
    "mistral": Abilities(schema=True, prefill=True, stream_usage=False),
    "together": Abilities(schema=True, completion=True),
    "fireworks": Abilities(schema=True, grammar=True, completion=True),
    # Its compatible endpoint takes response_format and ignores it.
    "anthropic": Abilities(prefill=True),
    "gemini": Abilities(schema=True),
    "xai": Abilities(schema=True),
    # Ollama puts its chat template around raw prompts too, so it has no completion of ours.
    "ollama": Abilities(schema=True),
    "vllm": Abilities(schema=True, grammar=True, prefill=True, completion=True),
    "llamacpp": Abilities(schema=True, grammar=True, prefill=True, completion=True),
    "lmstudio": Abilities(schema=True, completion=True),
}
_REASONERS = re.compile(r"(?:o[1-9]|gpt-5)(?![a-z0-9])(?!.*chat)")
_NO_PREFILL = re.compile(r"claude-(?:opus|sonnet|haiku|fable)-(?:4-[6-9]|[5-9])")


def abilities_of(host: str, name: str) -> Abilities:
    """Return what a model can do on a host of `HOSTS` ("" is none in particular).

    OpenAI's reasoning models (o1, o3, o4, gpt-5 and later) refuse `stop` and `temperature` and call max_tokens
    max_completion_tokens. Claude from 4.6 on refuses a prefill.
    """
    found, family = _OF_HOSTS.get(host, Abilities()), name.rsplit("/", 1)[-1]
    if host in ("openai", "openrouter") and _REASONERS.match(family):
        found = found.without("stop", "temperature", *(("max_tokens",) if host == "openai" else ()))
    if host == "anthropic" and _NO_PREFILL.match(family):
        found = found.without("prefill")
    return found
