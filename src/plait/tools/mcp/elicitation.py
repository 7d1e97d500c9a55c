"""Questions of servers to the user (elicitation), as text, and the user's answers as the values that a server wants.

A server may ask anything, also in the words of Plait or of the user's bank. So its words are quoted line by line, and
the question says where the answer goes.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from plait.core.call_check import find_faults
from plait.core.json_schema import show_place
from plait.core.text import clean
from plait.tools.call_context import REFUSALS
from plait.tools.mcp.schema import repair_schema

MAX_MESSAGE, MAX_FIELDS = 2_000, 40
"""Characters of a server's words that the user sees, and fields of a form."""
_YES, _NO = ("yes", "y", "true", "ok"), ("no", "n", "false")


def write_question(label: str, params: dict[str, Any], is_repeatable: bool) -> str:
    """Return the question that the user sees for a request of a server. Raises `ValueError` if it cannot be asked."""
    url = params.get("url")
    if "url" in params:
        if not isinstance(url, str) or urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise ValueError("The address that the user should open is not a web address.")
        host = (urlsplit(url).hostname or "").encode("idna").decode()
        lines = [f"The MCP server {label} asks you to open an address. It says:", _quote(params.get("message"))]
        lines += [f"The address, at the host {host}:", _quote(url)]
        lines += ["Answer yes when you have done so, or decline."]
    else:
        schema = repair_schema(params.get("requestedSchema"))
        fields = schema.get("properties", {})
        if len(fields) > MAX_FIELDS:
            raise ValueError(f"The form has more than {MAX_FIELDS} fields.")
        lines = [f"The MCP server {label} asks you. It says:", _quote(params.get("message"))]
        for name, field in fields.items():
            optional = "" if name in schema.get("required", ()) else ", optional"
            words = " ".join(filter(None, (_words(field.get("title")), _words(field.get("description")))))
            lines.append(_quote(f"{_words(name)} ({_describe_kind(field)}{optional}){f': {words}' if words else ''}"))
        how = {0: "Answer yes", 1: "Answer with the value"}.get(len(fields), 'Answer with JSON: {"NAME": VALUE, ...}')
        lines.append(f"{how}, or decline. The answer goes to this server and is stored: give no passwords or keys.")
    if not is_repeatable:
        lines.append(
            "The server has begun a call for this. If Plait ends before you answer, it makes this call from the start."
        )
    return "\n".join(lines)


def read_elicited(answer: str, params: dict[str, Any]) -> dict[str, Any] | str:
    """Return the result for the server of a user's answer; a sentence if the answer does not fit."""
    text = answer.strip()
    if text.lower() in REFUSALS:
        return {"action": text.lower()}
    schema = repair_schema(params.get("requestedSchema"))
    fields = schema.get("properties", {})
    if not fields or "url" in params:
        if text.lower() in _YES:
            return {"action": "accept"} if "url" in params else {"action": "accept", "content": {}}
        return {"action": "decline"} if text.lower() in _NO else "Answer yes or decline."
    given: Any = None
    with suppress(ValueError):
        given = json.loads(text)
    if not isinstance(given, dict):
        if len(fields) > 1:
            return 'Answer with JSON: {"NAME": VALUE, ...}'
        name, field = next(iter(fields.items()))
        given = {name: _read_value(text, field)}
    content = {name: _choose(value, fields[name]) if name in fields else value for name, value in given.items()}
    for path, fault in find_faults(content, schema, schema):
        return f"{show_place('answer', path)} {fault}."
    return {"action": "accept", "content": content}


def _describe_kind(field: dict[str, Any]) -> str:
    choices = [shown for _, shown in _choices_of(field)]
    kind = " or ".join(map(_words, choices[:20])) if choices else _words(field.get("type", "text"))
    kind = {"string": "text", "boolean": "yes or no"}.get(kind, kind)
    return f"{kind}, usually {_words(json.dumps(field['default'], ensure_ascii=False))}" if "default" in field else kind


def _choices_of(field: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Return the values that a field may have, each with the words for it."""
    items = field["items"] if isinstance(field.get("items"), dict) else field
    if isinstance(values := items.get("enum"), list):
        names = items.get("enumNames")
        if not isinstance(names, list) or len(names) != len(values):
            names = values
        return list(zip(values, names, strict=True))
    pairs = [each for each in items.get("oneOf", items.get("anyOf", ())) if isinstance(each, dict) and "const" in each]
    return [(each["const"], each.get("title", each["const"])) for each in pairs]


def _read_value(text: str, field: dict[str, Any]) -> Any:
    match field.get("type"):
        case "boolean" if text.lower() in (*_YES, *_NO):
            return text.lower() in _YES
        case "integer" | "number" | "array":
            try:
                return json.loads(text)
            except ValueError:
                return [each.strip() for each in text.split(",")] if field["type"] == "array" else text
    return text


def _choose(value: Any, field: dict[str, Any]) -> Any:
    """Return a value; for the words that stand for one, the value itself."""
    known = {str(shown).lower(): each for each, shown in _choices_of(field)}
    if isinstance(value, list):
        return [known.get(str(each).lower(), each) for each in value]
    return known.get(str(value).lower(), value) if isinstance(value, str) else value


def _words(text: Any) -> str:
    return " ".join(clean(str(text if text is not None else "")).split())[:300]


def _quote(text: Any) -> str:
    shown = clean(text if isinstance(text, str) else "").strip() or "(nothing)"
    shown = shown if len(shown) <= MAX_MESSAGE else f"{shown[:MAX_MESSAGE]} ..."
    return "\n".join(f"> {line}" for line in shown.splitlines())
