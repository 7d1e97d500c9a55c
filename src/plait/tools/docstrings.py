"""Reads a function's docstring: its description, its parameters, its result.

It supports three styles: sections with an indented list (Google), sections underlined with dashes (NumPy), and `:param
name:` fields (Sphinx).
"""

from __future__ import annotations

import re
from inspect import cleandoc
from textwrap import dedent

from msgspec import Struct, field

_PARAMETERS = {"args", "arguments", "parameters", "params", "keyword args", "other parameters"}
_RETURNS = {"returns", "return", "yields"}
_OTHERS = {"raises", "example", "examples", "note", "notes", "see also", "references", "warning", "warnings"}
_FIELD = re.compile(r"^:(\w+)(?:\s+([^:]*))?:\s*(.*)$")
_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?:\(([^)]*)\))?\s*:\s*(.*)$")
_TYPED = re.compile(r"^(?:str|int|float|bool|bytes|list|dict|tuple|set|None|Any|[\w.]+\[.*\])\s*:\s+")

LONGEST = 2_000
"""Maximum characters of a description: each prompt pays for it."""


class DocString(Struct, frozen=True):
    """The parts of a docstring. `parameters` maps a name to its description; each text is one line."""

    summary: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    returns: str = ""


def read_docstring(text: str | None) -> DocString:
    """Read a docstring; missing texts are empty. Never raises."""
    lines = cleandoc(text or "").splitlines()
    parameters: dict[str, str] = {}
    returns = ""
    body, sections = _split_sections(lines)
    for name, content in sections:
        if name in _PARAMETERS:
            parameters |= _read_entries(content)
        elif name in _RETURNS:
            returns = _read_returns(content)
    body, fields = _split_fields(body)
    for kind, name, said in fields:
        if kind in ("param", "parameter", "arg", "argument", "key", "keyword") and name:
            parameters[name.split()[-1].lstrip("*")] = said
        elif kind in ("return", "returns"):
            returns = said
    return DocString(_join_paragraphs(body), parameters, returns)


def _split_sections(lines: list[str]) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Return the lines before the first section, and the name and lines of each section."""
    body: list[str] = []
    sections: list[tuple[str, list[str]]] = []
    rest = iter(zip(lines, [*lines[1:], ""], strict=False))
    for line, following in rest:
        name = line.strip().rstrip(":").lower()
        is_underlined = re.fullmatch(r"\s*-{3,}\s*", following) is not None
        is_known = name in _PARAMETERS | _RETURNS | _OTHERS and not line[:1].isspace()
        if is_known and (is_underlined or line.rstrip().endswith(":")):
            sections.append((name, []))
            if is_underlined:
                next(rest)
        else:
            (sections[-1][1] if sections else body).append(line)
    return body, sections


def _read_entries(lines: list[str]) -> dict[str, str]:
    """Read a section's parameters: `name (type): text`, or `name : type` with the text indented below."""
    found: dict[str, list[str]] = {}
    names: list[str] = []
    is_numpy = any(line and not line[0].isspace() for line in lines)
    for line in dedent("\n".join(lines)).splitlines():
        if line[:1].isspace():
            for name in names:
                found[name].append(line.strip())
        elif is_numpy:
            names = [name.strip().lstrip("*") for name in line.partition(":")[0].split(",") if name.strip()]
            found |= {name: [] for name in names}
        elif match := _ENTRY.match(line):
            names = [match[1]]
            found[match[1]] = [match[3]]
        elif names and line.strip():  # a text that continues without an indent
            found[names[0]].append(line.strip())
    return {name: " ".join(part for part in parts if part) for name, parts in found.items()}


def _read_returns(lines: list[str]) -> str:
    """Read a section about the result, without the type at its beginning."""
    content = [line for line in lines if line.strip()]
    if len(content) > 1 and not content[0][0].isspace() and content[1][0].isspace():
        content = content[1:]  # NumPy style: the type is alone on the first line
    return _TYPED.sub("", " ".join(line.strip() for line in content))


def _split_fields(lines: list[str]) -> tuple[list[str], list[tuple[str, str, str]]]:
    """Return the other lines, and the `:kind name: text` fields."""
    other: list[str] = []
    fields: list[tuple[str, str, str]] = []
    for line in lines:
        if match := _FIELD.match(line.strip()):
            fields.append((match[1], match[2] or "", match[3]))
        elif fields and line[:1].isspace() and line.strip():
            kind, name, said = fields[-1]
            fields[-1] = (kind, name, f"{said} {line.strip()}".strip())
        else:
            other.append(line)
    return other, fields


def _join_paragraphs(lines: list[str]) -> str:
    """Join all paragraphs to one line. Cuts a longer text than `LONGEST` after a sentence, or ends it with `...`."""
    blocks = "\n".join(line.strip() for line in lines).split("\n\n")
    paragraphs = [" ".join(block.split()) for block in blocks if block.strip()]
    ended = [text if text[-1] in ".!?:;," else f"{text}." for text in paragraphs[:-1]]
    said = " ".join(ended + paragraphs[-1:])
    if len(said) <= LONGEST:
        return said
    cut = said[: LONGEST - 4]
    end = max(cut.rfind(mark) for mark in (". ", "! ", "? "))
    return cut[: end + 1] if end > LONGEST // 2 else cut.rsplit(" ", 1)[0] + " ..."
