"""Decodes, cleans and shortens text. For display, it removes anything that could draw on the user's terminal."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

# Escape sequences with their parameters, then other control characters: no output may draw on the user's terminal.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, movements
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # titles, links
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

_LINE_ENDS = re.compile(r"\r\n|[\r\x85\u2028\u2029]")

_HIDDEN = (
    r"\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0d"
    r"\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Marks of direction, signs without a width, fillers and tags: what Unicode calls Default_Ignorable_Code_Point, and the
interlinear marks. `_UNSEEN` has the others, which belong to a character."""

_LETTER = r"[^\x00-\x7f\u200b-\u200f]"

_EMOJI = r"[\xa9\xae\u203c-\u3299\U0001f000-\U0001faff]"

# Joiners belong to emoji and to some scripts: they stay between two letters that are not ASCII. One selector of the
# colored or the plain form stays behind an emoji.
_UNSEEN = re.compile(
    rf"[{_HIDDEN}]|(?<!{_LETTER})[\u200c\u200d]|[\u200c\u200d](?!{_LETTER})|(?<!{_EMOJI})[\ufe0e\ufe0f]"
)

_ESCAPED = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200c\u200d\u2028\u2029\ufe0e\ufe0f{_HIDDEN}]")


def escape_hidden(json: str) -> str:
    """Return the same JSON with an escape, such as \\u200b, for every invisible character."""

    def escape(match: re.Match[str]) -> str:
        code = ord(match[0])
        if code > 0xFFFF:
            return f"\\u{0xD800 + (code - 0x10000 >> 10):04x}\\u{0xDC00 + (code - 0x10000 & 0x3FF):04x}"
        return f"\\u{code:04x}"

    return json if json.isascii() and json.isprintable() else _ESCAPED.sub(escape, json)


def clean(text: str) -> str:
    """Return the text without escape sequences, control and invisible characters. All line ends become newlines."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSEEN.sub("", _CONTROLS.sub("", _ESCAPES.sub("", _LINE_ENDS.sub("\n", text))))


_SHOWN = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]|{_UNSEEN.pattern}")


def show_hidden(text: str) -> str:
    """Replace each character that a page would not show by its number: `[U+202E]`. Tabs and line ends stay."""
    return _SHOWN.sub(lambda found: f"[U+{ord(found[0]):04X}]", text)


def one_line(text: str) -> str:
    """Return the text as it may be shown, on one line."""
    return " ".join(clean(text).split())


def sentence(text: str) -> str:
    """Capitalize a text and end it with a full stop."""
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def count_shared(a: Sequence[object], b: Sequence[object]) -> int:
    """Return the length of the beginning that two texts, or two lists, share. Slices compare faster than items."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def mark_lines(text: str) -> str:
    """Put a bar before each line, so that the text cannot pass for a part of the conversation around it."""
    return "\n".join(f"| {line}" for line in text.splitlines())


def format_count(number: int, word: str) -> str:
    """Return `1 step` or `2 steps`."""
    return f"{number:,} {word}" + ("" if number == 1 else "s")


_FOREIGN = re.compile(
    r"\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b\[(?!(?:[0-9;]*m|\?25[hl]|1A|2K))[0-?]*[ -/]*[@-~]?"  # not colors, the cursor, and lines of a spinner
    r"|\x1b(?!\[)[ -/]*[0-~]?|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u2028\u2029]"
)


def clean_drawn(text: str) -> str:
    """Return what a program draws on a terminal, with the colors and movements of Plait and without all others."""
    return text if text.isascii() and text.isprintable() else _UNSEEN.sub("", _FOREIGN.sub("", text))


def shorten(text: str, limit: int) -> tuple[str, int]:
    """Return at most `limit` characters of `text`, and how many were removed (0: none). Two thirds of the room go to
    the head and the rest to the tail, where results and errors tend to be. A line between them gives the number of
    missing characters. A limit too small for that line keeps only the head. Raises ValueError for a negative limit."""
    if limit < 0:
        raise ValueError(f"A limit of {limit} characters can't be kept; give 0 or more.")
    if len(text) <= limit:
        return text, 0
    # The note's length depends on its number: measure it with the longest possible number.
    room = limit - len(_note(len(text)))
    if room < 2:
        return text[:limit], len(text) - limit
    head = (room * 2 + 2) // 3
    tail = room - head
    cut = len(text) - room
    return text[:head] + _note(cut) + text[len(text) - tail :], cut


def _note(count: int) -> str:
    return f"\n[... {count} characters left out here ...]\n"


def cut_text(text: str, max_chars: int) -> str:
    """Cut a text to a number of characters; `...` marks the cut."""
    return text if len(text) <= max_chars else text[: max_chars - 3] + "..."


SENTENCES = ((". ", "! ", "? ", ".\n", "\n"), (" ",))
"""Where `split_text` cuts: behind a sentence or a line, else behind a word."""


def split_text(text: str, max_chars: int, ends: Sequence[Sequence[str]] = SENTENCES) -> list[str]:
    """Split a text into pieces of at most `max_chars` characters. An empty text has no pieces. A piece ends behind the
    last end of a group. The first group counts that has an end in the second half of the piece."""
    pieces: list[str] = []
    text = text.strip()
    while len(text) > max_chars:
        cuts = (max(text.rfind(end, max_chars // 2, max_chars) + len(end) for end in group) for group in ends)
        at = next((cut for cut in cuts if cut > max_chars // 2), max_chars)
        pieces.append(text[:at].rstrip())
        text = text[at:].lstrip()
    return [*pieces, text] if text else pieces


_BINARY = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_MARKED = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32"}
_MARKED |= {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_WIDE = ["utf_16_le", "utf_16_be", "utf_32_le", "utf_32_be"]
_USUAL = ["cp1252", "cp1250", "cp1251", "cp932", "gb18030", "big5", "euc_jp", "cp949", "cp1253", "cp1254", "cp1255"]
_USUAL += ["cp1256", "cp1257", "koi8_r"]
"""Encodings that are guessed, the most usual first. A short text of a rare one looks like any of them."""


def suggest(word: str, known: Iterable[str], otherwise: str = "", most: int = 1, cutoff: float = 0.6) -> str:
    """Return "Did you mean X or Y?" with known words of nearly the same spelling; `otherwise` if there are none."""
    near = get_close_matches(word, list(known), most, cutoff)
    return f"Did you mean {' or '.join(near)}?" if near else otherwise


def find_encoding(content: bytes) -> str:
    """Return the name of the encoding of a text in bytes, guessed if it is not UTF-8; "" if they are not text.

    A text that is mostly UTF-8 counts as such, although some of its bytes are not. So does UTF-8 with some zero bytes,
    such as a log whose program crashed: a text of wide characters has more of them, or bytes that are not UTF-8.
    """
    marked = next((name for mark, name in _MARKED.items() if content.startswith(mark)), "")
    lenient = content.decode(marked or "utf-8", "replace")
    damaged = lenient.count("\ufffd")
    is_text = not _BINARY.search(lenient.replace("\0", "") if lenient.count("\0") * 8 < len(lenient) else lenient)
    if is_text and (damaged == 0 or len(lenient) - sum(map(str.isascii, lenient)) > 2 * damaged):
        return marked or "utf-8"
    from charset_normalizer import from_bytes  # it takes 30 ms to import

    # Without a zero byte, any two bytes look like a wide character.
    found = from_bytes(content, cp_isolation=_WIDE if b"\0" in content else _USUAL)
    best = [match for match in found if (match.chaos, match.coherence) == (found[0].chaos, found[0].coherence)]
    names = [name for name in (*_USUAL, *_WIDE) if any(name in match.could_be_from_charset for match in best)]
    return names[0] if names and not _BINARY.search(content.decode(names[0], "replace")) else ""


def decode_text(content: bytes) -> str | None:
    """Return the text in bytes, without a byte order mark; None if they are not text. See `find_encoding`."""
    encoding = find_encoding(content)
    return content.decode(encoding, "replace") if encoding else None
