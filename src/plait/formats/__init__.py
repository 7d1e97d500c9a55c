"""What a turn looks like as text: strict writers, lenient readers, grammars, splitters. No I/O."""

from plait.formats.base import Format, Remark, Turn, Unreadable
from plait.formats.blob import Blob
from plait.formats.escape import Escape, earlier, escape_of
from plait.formats.json_turn import JsonTurn
from plait.formats.lines import Lines
from plait.formats.numbered import Numbered
from plait.formats.react_text import DIALECTS, react_format
from plait.formats.shorten import shorten

__all__ = [
    "DIALECTS",
    "Blob",
    "Escape",
    "Format",
    "JsonTurn",
    "Lines",
    "Numbered",
    "Remark",
    "Turn",
    "Unreadable",
    "earlier",
    "escape_of",
    "react_format",
    "shorten",
]
