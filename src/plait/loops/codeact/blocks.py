"""Finds the code in a reply of the code format: in a fence, in a line, or bare."""

from __future__ import annotations

import ast
import re
import textwrap
import warnings

from msgspec import Struct

from plait.loops.codeact.labels import FENCE, IN_CODE, LABEL
from plait.loops.format import Remark
from plait.loops.label_scan import Label, cut, repair_remark

PYTHON = frozenset({"python", "py", "python3", "py3", "tool_code", "repl", "pycon", "ipython"})
_OTHER = re.compile(
    r"json5?|java|javascript|jsx?|typescript|ts|bash|sh|shell|zsh|console|terminal|output|results?|observation|te?xt|plain"
    r"|plaintext|sql|html|xml|ya?ml|toml|css|c|cpp|csharp|go|rust|ruby|php|r|markdown|md|diff|csv|log"
)
"""Words of fences around text that is not Python."""
_BEFORE_FENCE = re.compile(r"^[ \t]*</?code>[ \t]*\n?(?=[ \t]*```)", re.M | re.I)
_BEHIND_FENCE = re.compile(r"^([ \t]*```)[ \t]*\n?[ \t]*</?code>[ \t]*$", re.M | re.I)
_TAGGED = re.compile(r"<code>[ \t]*\n?(.*?)\n?[ \t]*(?:</code>|\Z)", re.S | re.I)
_LANGUAGE_LINE = re.compile(r"(?i:python3?|py)[ \t\r]*\n")
_MAX_BARE = 20_000
"""Maximum number of characters of code without a fence."""
_PROMPTED = re.compile(r"^(?:(?:>>>|\.\.\.)(?: |$))+")


class Block(Struct, frozen=True):
    """Code found in a reply: text[start:end] includes its fences. `closed`: the fence is closed; `remarks`: repairs."""

    code: str
    start: int
    end: int
    closed: bool
    remarks: tuple[Remark, ...] = ()


def parse_python(code: str) -> ast.Module | None:
    """Parse a piece of code; return None for a syntax error, which the sandbox reports."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def is_python(text: str) -> bool:
    """Return whether the text is Python that does something, rather than prose that happens to parse."""
    if len(text) > _MAX_BARE or not ("(" in text or "=" in text):
        return False
    tree, does = parse_python(plain_code(_without_language(text), [])), (ast.Call, ast.Await)
    return tree is not None and any(
        not isinstance(one, ast.Expr) or any(isinstance(x, does) for x in ast.walk(one)) for one in tree.body
    )


def without_tags(text: str, remarks: list[Remark]) -> str:
    """Replace the tags `<code>` and `</code>`, which some models write, by a fence."""
    if "code>" not in text.lower():
        return text
    if "```" in text:
        bare = _BEHIND_FENCE.sub(r"\1", _BEFORE_FENCE.sub("", text))
    else:
        bare = _TAGGED.sub(lambda match: f"\n```python\n{match[1]}\n```\n", text, count=1)
    if bare != text:
        remarks.append(repair_remark("tags around the code were taken for its fence"))
    return bare


def holds_code(block: Block, fence: re.Match[str]) -> bool:
    """Return whether a block is meant to run: it is marked as Python, or it is unmarked Python. A fence that only
    closes opens a block of prose, and an invented output is in a fence of its own."""
    word = (fence["word"] or fence["word2"] or "").lower()
    return bool(block.code) and (word in PYTHON or (_OTHER.fullmatch(word) is None and is_python(block.code)))


def plain_code(text: str, remarks: list[Remark]) -> str:
    """Return code without blank lines at its ends, common indentation, and terminal prompts."""
    code = text.replace("\r\n", "\n").strip("\n").rstrip()
    while code[:1].isspace() and code.lstrip(" \t")[:1] == "\n":
        code = code.lstrip(" \t").strip("\n")
    if code[:1] in (" ", "\t"):
        flat = textwrap.dedent(code)
        # Code without a common indentation stays as it is: Python reports the error.
        if flat != code:
            remarks.append(repair_remark("the code was indented as a whole"))
        code = flat
    if code.startswith((">>> ", ">>>\n")):
        lines = code.split("\n")
        code = "\n".join(_PROMPTED.sub("", line) for line in lines if _PROMPTED.match(line)).strip("\n").rstrip()
        remarks.append(repair_remark("the prompts of a terminal before the code were dropped"))
    return code


class Ahead:
    """Finds the next label and the next fence of a text, from left to right in one pass. Only fences that open a block
    count: on a line of its own, or behind other text with a language's word."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._label: re.Match[str] | None = None
        self._fence: re.Match[str] | None = None
        self._labels_over = self._fences_over = False

    def label(self, at: int) -> re.Match[str] | None:
        """Return the next label that begins at `at` or later."""
        if not self._labels_over and (self._label is None or self._label.start() < at):
            self._label = LABEL.search(self._text, at)
            self._labels_over = self._label is None
        return self._label

    def fence(self, at: int) -> re.Match[str] | None:
        """Return the next fence that begins at `at` or later."""
        if not self._fences_over and (self._fence is None or self._fence.start() < at):
            self._fence = next(filter(self._opens, FENCE.finditer(self._text, at)), None)
            self._fences_over = self._fence is None
        return self._fence

    def _opens(self, match: re.Match[str]) -> bool:
        before = self._text[max(0, match.start() - 12) : match.start()].rpartition("\n")[2]
        return bool(match["tildes"]) or (match["line"] is not None and (not before.strip() or bool(match["word"])))


def read_fence(text: str, fence: re.Match[str]) -> Block:
    """Return the block that a fence opens, up to its closing fence, else to the next label, or to the end."""
    ticks, begin = fence["ticks"] or fence["tildes"], fence.end()
    mark = re.escape(ticks[0])
    # One search for both, so that a text of many blocks is read once.
    close = rf"^[ \t]{{0,12}}(?P<close>{mark}{{{len(ticks)},}}+)[ \t\r]*$|{IN_CODE.pattern}"
    ending = re.compile(close, IN_CODE.flags).search(text, begin)
    if ending is not None and ending["close"]:
        return _block(text[begin : ending.start()], fence, ending.end(), True, [])
    upto = ending.start() if ending else len(text)
    notes = [repair_remark("the action's fence was not closed")]
    glued = re.compile(rf"(?<!{mark}){mark}{{{len(ticks)},}}+[ \t\r]*$", re.M).search(text, begin, upto)
    if glued is not None:
        return _block(text[begin : glued.start()], fence, glued.end(), True, notes)
    return _block(text[begin:upto].rstrip(ticks[0]), fence, upto, False, notes)


def _block(raw: str, fence: re.Match[str], end: int, closed: bool, notes: list[Remark]) -> Block:
    word = fence["word"] or fence["word2"] or ""
    if not word:
        raw = _without_language(raw)
    if word != "python" or fence["tildes"]:
        notes.append(repair_remark("the action's fence was not ```python"))
    code = plain_code(raw, notes)
    return Block(code, fence.start(), end, closed, tuple(notes))


def code_after(text: str, label: Label, ahead: Ahead) -> Block | None:
    """Return the code of an action: the first block before the next label, a fence in the line, or unfenced code."""
    following = ahead.label(label.end)
    upto = following.start() if following else len(text)
    inline = re.compile(r"[ \t]*(`{3,}+)(?:(?i:python3?|py)\b)?([^`\n]+)\1").match(text, label.end)
    if inline is not None and inline.end() <= upto and inline[2].strip():
        notes = [repair_remark("the action's fence was in its line")]
        return Block(plain_code(inline[2].strip(), notes), inline.start(), inline.end(), True, tuple(notes))
    at = label.end
    while (fence := ahead.fence(at)) is not None and fence.start() <= upto:
        block = read_fence(text, fence)
        if holds_code(block, fence):
            between = text[label.end : fence.start()].strip().strip(":`*")
            if between:
                notes = [*block.remarks, cut(f"{len(between)} characters between the action's label and its code")]
                block = Block(block.code, block.start, block.end, block.closed, tuple(notes))
            return block
        at = end_of_skipped(block, fence)
    if at > label.end:
        return None
    raw = text[label.end : upto].strip()
    if raw[:1] == "`" and raw[-1:] == "`":
        raw = raw.strip("`").strip()
    if not is_python(raw):
        return None
    notes = [repair_remark("the action had no fence")]
    return Block(plain_code(_without_language(raw), notes), label.end, upto, True, tuple(notes))


def end_of_skipped(block: Block, fence: re.Match[str]) -> int:
    """Return where to continue after a block that is not meant to run: a fence without a word may be a closing one."""
    return max(block.end, fence.end()) if fence["word"] or fence["word2"] else fence.end()


def _without_language(code: str) -> str:
    match = _LANGUAGE_LINE.match(code.lstrip("\n"))
    return code.lstrip("\n")[match.end() :] if match else code
