"""Hosted tools, which a provider runs by itself while it writes one reply: their words and their calls.

A word is `hosted:NAME` or `hosted:NAME:ARGUMENT`: domains to search (`web_search`, `web_fetch`), stores of files
(`file_search`), the address of a server (`mcp`).
"""

from __future__ import annotations

import json
import re
from typing import Any

from msgspec import Struct

from plait.core.errors import ConfigError
from plait.core.text import escape_hidden, suggest

HOSTED_WORDS = ("web_search", "web_fetch", "code_execution", "file_search", "image_generation", "mcp")
"""The hosted tools by their names in words: `hosted:web_search`."""
PREFIX = "hosted:"
NEEDS_ARGUMENT = {"file_search": "STORE", "mcp": "https://ADDRESS"}
CLOSED = frozenset({"code_execution", "image_generation"})
"""The hosted tools whose results hold nothing that strangers wrote."""
LONGEST = 20_000
"""Maximum characters of a result that are kept beside the provider's own blocks."""


class Citation(Struct, frozen=True, omit_defaults=True):
    """A source that a reply names: its address, its title, and the words that it quotes ("" where unknown)."""

    url: str
    title: str = ""
    quote: str = ""

    def __str__(self) -> str:
        return f"{self.title} {self.url}".strip()


class HostedCall(Struct, frozen=True, omit_defaults=True):
    """A call that the provider made while it wrote a reply.

    `tool` is the hosted tool, `name` the function of an MCP server or the kind of step that the provider names ("" for
    none). `input` is any JSON value, `text` the result as far as the provider sends it. `billed`: it counts for a price
    per call.
    """

    tool: str
    input: Any = None
    text: str = ""
    name: str = ""
    failed: bool = False
    billed: bool = True

    @property
    def title(self) -> str:
        """The tool and its input, in a line."""
        given = "" if self.input in (None, {}) else json.dumps(self.input, ensure_ascii=False, default=str)
        return escape_hidden(" ".join(filter(None, (self.tool, self.name, given))))

    @property
    def outside(self) -> bool:
        """Whether strangers may have written the result."""
        return self.tool not in CLOSED


class HostedTool(Struct, frozen=True, omit_defaults=True):
    """A hosted tool: its name, and the values behind the second colon of its word."""

    name: str
    values: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        return ":".join((f"{PREFIX}{self.name}", *([",".join(self.values)] if self.values else [])))


def is_hosted_word(word: str) -> bool:
    """Return whether a word names a hosted tool."""
    return word.strip().startswith(PREFIX)


def word_of_hosted(tool: object) -> str | None:
    """Return the word of a hosted tool among an agent's tools, which a record may describe; None for any other."""
    word = tool if isinstance(tool, str) else getattr(tool, "source", "")
    return word if isinstance(word, str) and is_hosted_word(word) else None


def read_hosted_word(word: str) -> HostedTool:
    """Return the hosted tool of a word. Raises `ConfigError` for an unknown name, or a missing or unusable argument."""
    name, _, argument = word.strip().removeprefix(PREFIX).partition(":")
    values = tuple(each.strip() for each in argument.split(",") if each.strip())
    if name not in HOSTED_WORDS:
        hint = suggest(name, HOSTED_WORDS) or f"There are: {', '.join(PREFIX + each for each in HOSTED_WORDS)}."
        raise ConfigError(f"There is no hosted tool {name!r}.", hint=hint)
    if name in NEEDS_ARGUMENT and not values:
        raise ConfigError(f"{word!r} needs an argument.", hint=f"Write {PREFIX}{name}:{NEEDS_ARGUMENT[name]}.")
    if name == "mcp" and (len(values) > 1 or not re.fullmatch(r"https://[^/@\s?#]+(?:/[^@\s]*)?", values[0])):
        hint = "Give one https address without a password. A server with a key is used from here: mcp:ADDRESS."
        raise ConfigError(f"{word!r} is not the address of an MCP server.", hint=hint)
    if values and name in CLOSED:
        raise ConfigError(f"{word!r}: {name} takes nothing after its name.", hint=f"Write {PREFIX}{name}.")
    return HostedTool(name, values)
