"""The usual model hosts and local servers: their addresses, and the environment variables that hold their keys."""

from __future__ import annotations

from msgspec import Struct


class Host(Struct, frozen=True):
    """A host that is known by name. `keys` are environment variables: the first one that is set counts.

    `base_env` is the environment variable that replaces `base_url`. A `local` server needs no key.
    """

    base_url: str
    base_env: str
    keys: tuple[str, ...]
    local: bool = False


HOSTS: dict[str, Host] = {
    "openai": Host("https://api.openai.com/v1", "OPENAI_BASE_URL", ("OPENAI_API_KEY",)),
    "openrouter": Host("https://openrouter.ai/api/v1", "OPENROUTER_BASE_URL", ("OPENROUTER_API_KEY",)),
    "groq": Host("https://api.groq.com/openai/v1", "GROQ_BASE_URL", ("GROQ_API_KEY",)),
    # The beta address continues an assistant message; it takes everything else as well.
    "deepseek": Host("https://api.deepseek.com/beta", "DEEPSEEK_BASE_URL", ("DEEPSEEK_API_KEY",)),
    "mistral": Host("https://api.mistral.ai/v1", "MISTRAL_BASE_URL", ("MISTRAL_API_KEY",)),
    "together": Host("https://api.together.xyz/v1", "TOGETHER_BASE_URL", ("TOGETHER_API_KEY",)),
    "fireworks": Host("https://api.fireworks.ai/inference/v1", "FIREWORKS_BASE_URL", ("FIREWORKS_API_KEY",)),
    "anthropic": Host("https://api.anthropic.com/v1", "ANTHROPIC_BASE_URL", ("ANTHROPIC_API_KEY",)),
    "gemini": Host(
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "GEMINI_BASE_URL",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    ),
    "xai": Host("https://api.x.ai/v1", "XAI_BASE_URL", ("XAI_API_KEY",)),
    "ollama": Host("http://127.0.0.1:11434/v1", "OLLAMA_BASE_URL", ("OLLAMA_API_KEY",), local=True),
    "vllm": Host("http://127.0.0.1:8000/v1", "VLLM_BASE_URL", ("VLLM_API_KEY",), local=True),
    "llamacpp": Host("http://127.0.0.1:8080/v1", "LLAMACPP_BASE_URL", ("LLAMACPP_API_KEY",), local=True),
    "lmstudio": Host("http://127.0.0.1:1234/v1", "LMSTUDIO_BASE_URL", ("LMSTUDIO_API_KEY",), local=True),
}
