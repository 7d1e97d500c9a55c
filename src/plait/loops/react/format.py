"""Text ReAct: its dialects by name."""

from __future__ import annotations

from plait.core.errors import ConfigError
from plait.loops.format import Format
from plait.loops.react.blob import Blob
from plait.loops.react.lines import Lines
from plait.loops.react.numbered import Numbered

DIALECTS = ("blob", "lines", "numbered", "original")
"""The dialects. "original" is "numbered", read as the environments of the published episodes did."""


def react_format(dialect: str) -> Format:
    """The format of a dialect of text ReAct. Raises `ConfigError` for a name it does not know."""
    if dialect == "blob":
        return Blob()
    if dialect == "lines":
        return Lines()
    if dialect in ("numbered", "original"):
        return Numbered(original=dialect == "original")
    raise ConfigError(f"There is no ReAct dialect {dialect!r}.", hint=f"Choose one of {', '.join(DIALECTS)}.")
