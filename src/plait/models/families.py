"""The abilities of each family of models: one table, with the source of each row and the month in which it was read.

The table is `families.json`. It saves a refused request. The first refusal (`Unsupported`) corrects a row that is out
of date, and users can set abilities in plait.toml. `docs/generate_reference.py` writes it into docs/providers.md.

Several of OpenAI's reasoning models exist only as Responses, newer ones call tools only there, and chat completions
lose the reasoning between two calls of tools. A temperature is accepted with the effort "none" only. The API reference
of chat completions has no stop strings for reasoning models.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import msgspec
from msgspec import Struct


class Family(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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


FAMILIES = msgspec.json.decode(Path(__file__).with_name("families.json").read_bytes(), type=tuple[Family, ...])
"""The families, newer ones first: the first pattern that matches a name counts."""

_SEE_IMAGES_AND_FILES = re.compile(
    r"gpt-4o|gpt-4\.[15]|gpt-[5-9]|o1(?!-mini|-preview)|o3(?!-mini)|o4"
    r"|claude-(?:3-[57]|[a-z]+-[4-9]|[4-9])|gemini-"
)
_SEE_IMAGES = re.compile(
    r"gpt-4-turbo|claude-3|grok-[4-9]|grok-2-vision|pixtral|mistral-(?:large|medium|small)|ministral|gemma-[3-9]"
)
_ONLY_TEXT = re.compile(r"audio|realtime|transcribe|tts|search|embedding|gpt-4-turbo-preview")
_MEDIA_HOSTS = ("openai", "anthropic", "gemini", "openrouter", "xai", "mistral")
"""Which hosted models accept images, and which PDF files too. Sources, as of November 2026: OpenAI's page "Models",
Anthropic's pages "Vision" and "PDF support", Google's pages "Image understanding" and "Document understanding", xAI's
page "Image understanding", Mistral's page "Vision", and OpenRouter's pages "Image inputs" and "PDF inputs"."""


@lru_cache(maxsize=256)
def family_of(model: str) -> Family | None:
    """Return the family of a model's name; None for a model that the table does not have."""
    for family in FAMILIES:
        if re.search(rf"(?:^|[/.:~]){family.pattern}", model, re.I):
            return family
    return None


def media_of(host: str, name: str) -> dict[str, bool]:
    """Return the abilities `images` and `files` of a model on a known host. An unknown model has neither."""
    family = name.rsplit("/", 1)[-1]
    if host not in _MEDIA_HOSTS or _ONLY_TEXT.search(family):
        return {"images": False, "files": False}
    both = _SEE_IMAGES_AND_FILES.match(family) is not None
    return {"images": both or _SEE_IMAGES.match(family) is not None, "files": both}
