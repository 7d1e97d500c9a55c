"""Which hosted models accept images and PDF files.

Sources, as of November 2026: OpenAI's page "Models", Anthropic's pages "Vision" and "PDF support", Google's pages
"Image understanding" and "Document understanding", xAI's page "Image understanding", Mistral's page "Vision", and
OpenRouter's pages "Image inputs" and "PDF inputs". A model that is not known here accepts none, until its abilities in
plait.toml say so.
"""

from __future__ import annotations

import re

_BOTH = re.compile(
    r"gpt-4o|gpt-4\.[15]|gpt-[5-9]|o1(?!-mini|-preview)|o3(?!-mini)|o4"
    r"|claude-(?:3-[57]|[a-z]+-[4-9]|[4-9])|gemini-"
)
_IMAGES = re.compile(
    r"gpt-4-turbo|claude-3|grok-[4-9]|grok-2-vision|pixtral|mistral-(?:large|medium|small)|ministral|gemma-[3-9]"
)
_TEXT = re.compile(r"audio|realtime|transcribe|tts|search|embedding|gpt-4-turbo-preview")
_HOSTS = ("openai", "anthropic", "gemini", "openrouter", "xai", "mistral")


def media_of(host: str, name: str) -> dict[str, bool]:
    """Return the abilities `images` and `files` of a model on a known host."""
    family = name.rsplit("/", 1)[-1]
    if host not in _HOSTS or _TEXT.search(family):
        return {"images": False, "files": False}
    both = _BOTH.match(family) is not None
    return {"images": both or _IMAGES.match(family) is not None, "files": both}
