"""Pieces of GBNF, the grammar language of llama.cpp, for the grammars of the text formats."""

from __future__ import annotations

import json
from collections.abc import Iterable

JSON_RULES = r"""
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ( pair ( ", " pair )* )? "}"
pair ::= string ": " value
array ::= "[" ( value ( ", " value )* )? "]"
string ::= "\"" char* "\""
char ::= [^"\\\x00-\x1f] | "\\" ( ["\\/bfnrt] | "u" hex hex hex hex )
hex ::= [0-9a-fA-F]
number ::= "-"? ( "0" | [1-9] [0-9]* ) ( "." [0-9]+ )? ( [eE] [-+]? [0-9]+ )?
""".strip()
"""Rules for any JSON value, spaced as Plait's writers space it."""

LINE_RULE = r"line ::= [^ \t\r\n] [^\r\n]*"
"""A line of text that is not blank."""

THOUGHT_RULE = r"thought ::= [^ \t\r\n] [^\r\n]{0,400}"
"""A thought: one line, at most 401 characters, because an unlimited small model may never stop."""

TEXT_RULE = r"text ::= line ( newline+ line )*" + "\n" + r"newline ::= [\n]"
"""One or several lines; the last one is not blank."""


def literal(text: str) -> str:
    """Return a GBNF literal of exactly this text."""
    # JSON's escapes of quote, backslash and line break are GBNF's as well.
    return json.dumps(text, ensure_ascii=False)


def one_of(texts: Iterable[str]) -> str:
    """Return an alternation of literals. Raises ValueError without any."""
    literals = [literal(text) for text in texts]
    if not literals:
        raise ValueError("A grammar needs at least one alternative.")
    return " | ".join(literals)
