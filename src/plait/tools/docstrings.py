"""Reads a function's docstring: what it does, what each parameter means, what comes back.

Takes the three styles in use: sections with an indented list (Google), sections underlined with dashes
(NumPy), and `:param name:` fields (Sphinx).
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
"""Characters of a description: each prompt pays for it."""


class DocString(Struct, frozen=True):
    """A docstring, read. `parameters` maps a name to its description; all texts are one line each."""

    summary: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    returns: str = ""


def read_docstring(text: str | None) -> DocString:
    """What a docstring says; empty texts where it says nothing. Never raises."""
    if not text or not text.strip():
        return DocString()
    lines = cleandoc(text).splitlines()
    parameters: dict[str, str] = {}
    returns = ""
    body, sections = _parted(lines)
    for name, content in sections:
        if name in _PARAMETERS:
            parameters |= _entries(content)
        elif name in _RETURNS:
            returns = _returned(content)
    kept: list[str] = []
    for kind, name, said in _fields(body, kept):
        if kind in ("param", "parameter", "arg", "argument", "key", "keyword") and name:
            parameters[name.split()[-1].lstrip("*")] = said
        elif kind in ("return", "returns"):
            returns = said
    return DocString(_description(kept), parameters, returns)


def _parted(lines: list[str]) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """The lines before the first section, and each section's name and lines."""
    body: list[str] = []
    sections: list[tuple[str, list[str]]] = []
    i = 0
    while i < len(lines):
        line = lines[i]
        name = line.strip().rstrip(":").lower()
        known = name in _PARAMETERS | _RETURNS | _OTHERS and not line[:1].isspace()
        ruled = i + 1 < len(lines) and re.fullmatch(r"\s*-{3,}\s*", lines[i + 1]) is not None
        if known and (ruled or line.rstrip().endswith(":")):
            sections.append((name, []))
            i += 2 if ruled else 1
            continue
        (sections[-1][1] if sections else body).append(line)
        i += 1
    return body, sections


def _entries(lines: list[str]) -> dict[str, str]:
    """A section's parameters: `name (type): text` or `name : type` with the text indented below."""
    found: dict[str, list[str]] = {}
    names: list[str] = []
    content = dedent("\n".join(lines)).splitlines()
    numpy = bool(lines) and any(line and not line[0].isspace() for line in lines)
    for line in content:
        if line[:1].isspace():
            for name in names:
                found[name].append(line.strip())
            continue
        match = _ENTRY.match(line)
        if numpy:
            names = [n.strip().lstrip("*") for n in line.partition(":")[0].split(",") if n.strip()]
            found.update({name: [] for name in names})
        elif match:
            names = [match[1]]
            found[match[1]] = [match[3]]
        elif names and line.strip():  # a text that goes on without being indented
            found[names[0]].append(line.strip())
    return {name: " ".join(part for part in parts if part) for name, parts in found.items()}


def _returned(lines: list[str]) -> str:
    """A section on what comes back, without the type it may begin with."""
    content = [line for line in lines if line.strip()]
    if len(content) > 1 and not content[0][0].isspace() and content[1][0].isspace():
        content = content[1:]  # NumPy style: the type stands alone on the first line
    return _TYPED.sub("", " ".join(line.strip() for line in content))


def _fields(lines: list[str], kept: list[str]) -> list[tuple[str, str, str]]:
    """The `:kind name: text` fields; the other lines go to `kept`."""
    found: list[tuple[str, str, str]] = []
    for line in lines:
        match = _FIELD.match(line.strip())
        if match:
            found.append((match[1], match[2] or "", match[3]))
        elif found and line[:1].isspace() and line.strip():
            kind, name, said = found[-1]
            found[-1] = (kind, name, f"{said} {line.strip()}".strip())
        else:
            kept.append(line)
    return found


def _description(lines: list[str]) -> str:
    """All paragraphs as one line. A text above `LONGEST` characters is cut after a sentence, or ends with `...`."""
    paragraphs: list[str] = []
    for block in "\n".join(line.strip() for line in lines).split("\n\n"):
        if flat := " ".join(block.split()):
            paragraphs.append(flat)
    said = " ".join(
        one if one[-1] in ".!?:;," or i == len(paragraphs) - 1 else one + "." for i, one in enumerate(paragraphs)
    )
    if len(said) <= LONGEST:
        return said
    cut = said[: LONGEST - 4]
    end = max(cut.rfind(mark) for mark in (". ", "! ", "? "))
    return cut[: end + 1] if end > LONGEST // 2 else cut.rsplit(" ", 1)[0] + " ..."
