"""What each family of models accepts: one table, with the source of each row and the month in which it was read.

The data saves a refused request. The first refusal (`Unsupported`) corrects a row that is out of date, and users can
set abilities in plait.toml. `docs/generate_reference.py` writes the table into docs/providers.md.
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct


class Family(Struct, frozen=True, kw_only=True):
    """Models that accept the same requests.

    `pattern` matches their names, also behind a maker's name (`anthropic/`). `host` is the maker's own host. `lacks`
    are abilities that the models lack at every host. `host_lacks` are those that they lack at `host` only: other hosts
    of the same weights have other rules. `wire` is their wire at the host's own address; "" is the host's.

    `efforts` are the values of the setting `effort` that all of them accept; none for a model without that setting.
    `has_budget`: they accept `thinking_tokens`. `example` is the name of one of them. `source` is a page of the
    documentation, `date` the month in which it, or a text that cites it, was read.
    """

    name: str
    host: str
    pattern: str
    example: str
    source: str
    date: str = "2026-11"
    lacks: tuple[str, ...] = ()
    host_lacks: tuple[str, ...] = ()
    wire: str = ""
    efforts: tuple[str, ...] = ()
    has_budget: bool = False


def _make_reasoner(name: str, pattern: str, example: str, efforts: str, *, wire: str = "responses") -> Family:
    """Return a row of OpenAI's reasoning models.

    Several of them exist only as Responses, newer ones call tools only there, and chat completions lose the reasoning
    between two calls of tools. A temperature is accepted with the effort "none" only. The API reference of chat
    completions has no stop strings for reasoning models.
    """
    return Family(
        name=name,
        host="openai",
        pattern=pattern,
        example=example,
        source="https://developers.openai.com/api/docs/guides/deployment-checklist",
        lacks=("stop", "temperature"),
        host_lacks=("max_tokens",),
        wire=wire,
        efforts=tuple(efforts.split()),
    )


_CLAUDE = "https://platform.claude.com/docs/en/about-claude/models/migration-guide"
_CLAUDE_SCHEMAS = "https://platform.claude.com/docs/en/build-with-claude/structured-outputs"
_GEMINI = "https://ai.google.dev/gemini-api/docs/generate-content/thinking"
_GEMINI_36 = "https://ai.google.dev/gemini-api/docs/generate-content/whats-new-gemini-3.6"
_GROK = "https://docs.x.ai/developers/model-capabilities/text/reasoning"
_KIMI = "https://platform.kimi.ai/docs/api/models-overview"

FAMILIES: tuple[Family, ...] = (
    _make_reasoner(
        "GPT-5 and later with search", r"gpt-[5-9](?![a-z0-9]).*search", "gpt-5-search-api", "", wire="chat"
    ),
    _make_reasoner("GPT-6", r"gpt-[6-9](?![a-z0-9])(?!.*chat)", "gpt-6-sol", "low medium high xhigh"),
    _make_reasoner("GPT-5.6", r"gpt-5\.[6-9](?!.*chat)", "gpt-5.6", "none low medium high xhigh max"),
    _make_reasoner("GPT-5.2 to 5.5", r"gpt-5\.[2-5](?!.*chat)", "gpt-5.5", "none low medium high xhigh"),
    _make_reasoner("GPT-5.1", r"gpt-5\.1(?!.*chat)", "gpt-5.1", "none low medium high"),
    _make_reasoner("GPT-5", r"gpt-5(?![a-z0-9.])(?!.*chat)", "gpt-5-mini", "minimal low medium high"),
    _make_reasoner("o1, o3, o4, codex-mini", r"(?:o[1-9]|codex-mini)(?![a-z0-9])(?!.*search)", "o3", "low medium high"),
    Family(
        name="GPT-4.1, GPT-4o and older, chat models",
        host="openai",
        pattern=r"(?:gpt-(?!oss)|chatgpt)",
        example="gpt-4.1-mini",
        source="https://help.openai.com/en/articles/5072263-how-do-i-use-stop-sequences-in-the-openai-api",
    ),
    Family(
        name="Claude 5 and later, Mythos",
        host="anthropic",
        pattern=r"claude-(?:mythos-preview|[a-z]+-(?:[5-9]|\d\d)(?!\d))",
        example="claude-opus-5",
        source="https://platform.claude.com/docs/en/models/opus-5/migration-guide",
        lacks=("prefill", "temperature"),
        efforts=("low", "medium", "high", "xhigh", "max"),
    ),
    Family(
        name="Claude Opus 4.7, 4.8",
        host="anthropic",
        pattern=r"claude-[a-z]+-4[-.](?:[7-9]|\d\d)(?!\d)",
        example="claude-opus-4-8",
        source=_CLAUDE,
        lacks=("prefill", "temperature"),
        efforts=("low", "medium", "high", "xhigh", "max"),
    ),
    Family(
        name="Claude 4.6",
        host="anthropic",
        pattern=r"claude-[a-z]+-4[-.]6(?!\d)",
        example="claude-sonnet-4-6",
        source=_CLAUDE,
        lacks=("prefill",),
        efforts=("low", "medium", "high", "max"),
        has_budget=True,
    ),
    Family(
        name="Claude Opus 4.5",
        host="anthropic",
        pattern=r"claude-opus-4[-.]5(?!\d)",
        example="claude-opus-4-5",
        source="https://platform.claude.com/docs/en/build-with-claude/effort",
        efforts=("low", "medium", "high"),
        has_budget=True,
    ),
    Family(
        name="Claude Sonnet 4.5, Haiku 4.5",
        host="anthropic",
        pattern=r"claude-[a-z]+-4[-.]5(?!\d)",
        example="claude-haiku-4-5",
        source=_CLAUDE_SCHEMAS,
        has_budget=True,
    ),
    Family(
        name="Claude 3.7 to 4.1",
        host="anthropic",
        pattern=r"claude-(?:3[-.]7|(?:opus|sonnet)-4(?!\d))",
        example="claude-opus-4-1",
        source=_CLAUDE_SCHEMAS,
        host_lacks=("schema",),
        has_budget=True,
    ),
    Family(
        name="Claude 3.5 and older",
        host="anthropic",
        pattern=r"claude-(?:[23]|instant)",
        example="claude-3-5-haiku-20241022",
        source=_CLAUDE_SCHEMAS,
        host_lacks=("schema",),
    ),
    Family(
        name="Gemini 3.5 Flash-Lite, 3.6 and later",
        host="gemini",
        pattern=r"gemini-(?:3\.5-flash-lite|3\.[6-9]|[4-9]|\d\d)",
        example="gemini-3.6-flash",
        source=_GEMINI_36,
        lacks=("temperature",),
        efforts=("low", "medium", "high"),
    ),
    Family(
        name="Gemini 3, 3.1, 3.5",
        host="gemini",
        pattern=r"gemini-3",
        example="gemini-3.5-flash",
        source=_GEMINI,
        efforts=("low", "high"),
    ),
    Family(
        name="Gemini 2.5",
        host="gemini",
        pattern=r"gemini-2\.5",
        example="gemini-2.5-flash",
        source=_GEMINI,
        has_budget=True,
    ),
    Family(
        name="Grok 2, Grok 3, non-reasoning Grok",
        host="xai",
        pattern=r"grok-(?:[23](?!-mini)|.*non-reasoning)",
        example="grok-4.20-non-reasoning",
        source=_GROK,
    ),
    Family(
        name="Grok 3 mini",
        host="xai",
        pattern=r"grok-3-mini",
        example="grok-3-mini",
        source="https://docs.x.ai/docs/guides/reasoning",
        lacks=("stop",),
        efforts=("low", "high"),
    ),
    Family(
        name="Grok 4.3 and later",
        host="xai",
        pattern=r"grok-(?:4\.[3-9](?!\d)|[5-9]|latest)",
        example="grok-4.5",
        source=_GROK,
        lacks=("stop",),
        efforts=("low", "medium", "high"),
    ),
    Family(
        name="Grok 4 to 4.20, Grok Code",
        host="xai",
        pattern=r"grok-(?:4|code|build)",
        example="grok-4-fast-reasoning",
        source=_GROK,
        lacks=("stop",),
    ),
    Family(
        name="DeepSeek V4",
        host="deepseek",
        pattern=r"deepseek-(?:v4|flash|pro)",
        example="deepseek-v4-pro",
        source="https://api-docs.deepseek.com/guides/thinking_mode",
        efforts=("low", "high", "max"),
    ),
    Family(
        name="Kimi K3",
        host="moonshot",
        pattern=r"kimi-k[3-9]",
        example="kimi-k3",
        source="https://platform.kimi.ai/docs/guide/use-thinking-effort",
        host_lacks=("temperature",),
        efforts=("low", "high", "max"),
    ),
    Family(
        name="Kimi K2.5 to K2.7",
        host="moonshot",
        pattern=r"kimi-k2\.[5-9]",
        example="kimi-k2.6",
        source=_KIMI,
        host_lacks=("temperature",),
    ),
    Family(
        name="GLM-5.2 and later",
        host="zai",
        pattern=r"glm-5\.[2-9]",
        example="glm-5.3",
        source="https://docs.bigmodel.cn/api-reference",
        efforts=("low", "high", "max"),
    ),
    Family(
        name="Mistral Small 4, Medium 3.5",
        host="mistral",
        pattern=r"mistral-(?:small-(?:latest|2603)|medium-(?:latest|3[-.]5|2604))",
        example="mistral-medium-3-5",
        source="https://docs.mistral.ai/capabilities/reasoning/adjustable",
        efforts=("none", "high"),
    ),
    Family(
        name="GPT-OSS",
        host="groq",
        pattern=r"gpt-oss",
        example="openai/gpt-oss-120b",
        source="https://console.groq.com/docs/reasoning",
        efforts=("low", "medium", "high"),
    ),
    Family(
        name="Llama 3",
        host="groq",
        pattern=r"(?:meta-)?llama-?3",
        example="llama-3.3-70b-versatile",
        source="https://console.groq.com/docs/structured-outputs",
        host_lacks=("schema",),
    ),
)
"""The families, newer ones first: the first pattern that matches a name counts."""


@lru_cache(maxsize=256)
def family_of(model: str) -> Family | None:
    """Return the family of a model's name; None for a model that the table does not have."""
    for family in FAMILIES:
        if re.search(rf"(?:^|[/.:~]){family.pattern}", model, re.I):
            return family
    return None
