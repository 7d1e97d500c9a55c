"""Which part of a request a rejection names, whatever its wording, and what Plait may leave out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from plait.models.wires.error_bodies import named_paths

OMITTABLE: Mapping[str, tuple[str, ...]] = {
    "temperature": ("temperature",),
    "top_p": ("top_p", "topP"),
    "seed": ("seed",),
    "stop": ("stop", "stop_sequences", "stopSequences"),
    "verbosity": ("verbosity",),
    "service_tier": ("service_tier", "serviceTier"),
    "stream_usage": ("stream_options",),
}
"""The abilities that a request can do without, and their fields in the requests of all wires."""

_OTHERS: Mapping[str, tuple[str, ...]] = {
    "max_tokens": ("max_tokens",),
    "schema": ("response_format", "json_schema", "format", "responseJsonSchema", "responseMimeType"),
    "grammar": ("grammar", "structured_outputs"),
    "tools": ("tools", "tool_choice"),
    "stream": ("stream",),
    "prefill": ("continue_final_message", "add_generation_prompt"),
}
_WORDS: Mapping[str, str] = {
    "temperature": r"temperature",
    "top_p": r"top[ _-]?p",
    "seed": r"seed",
    "stop": r"stop(?:[ _-]?(?:sequences?|strings?|words?|tokens?))?(?! (?:sending|using|asking|the|and|to|it))",
    "verbosity": r"verbosity",
    "service_tier": r"service[ _-]?tiers?",
    "stream_usage": r"stream[ _-]?options?|include[ _-]?usage",
    "max_tokens": r"max_tokens",
    "schema": r"response[ _]?(?:format|(?:json[ _]?)?schema|mime[ _]?type)|json_?schema|json mode|structured outputs?"
    r"|output[_. ]format|output_config(?!\.effort)|text\.format|grammar",  # llama.cpp makes a grammar of a schema
    "grammar": r"grammar|structured_outputs",
    "tools": r"(?<!role ['\"`])tools?(?![.\[]\d)|tool[_ ](?:choice|use|calling)|function[ _]calling",
    "stream": r"stream(?:ing)?(?! options?)",
    "prefill": r"continue_final_message|add_generation_prompt",
}
"""How rejections name a part in their sentence. Letter case makes no difference, so this finds `topP` as well."""

_CONTAINERS = {"body", "request", "generation_config", "generationConfig", "text", "output_config", "outputConfig"}
_REFUSES = re.compile(
    r"unsupported|not (?:currently )?support|n't support|unrecogni[sz]ed|unknown|unexpected|not permitted"
    r"|not allowed|extra (?:inputs|fields)|not available|not enabled|not implemented|no endpoints found"
    r"|requires -|must be verified|failed to (?:parse|initialize)|invalid (?:schema|parameter|field)"
    r"|remove it|deprecated for this model",
    re.I,
)
"""What a sentence says of a part that must not be left out because of a wrong value alone, such as tools."""
_REFUSES_5XX = re.compile(r"requires -|not support|n't support|not implemented|failed to parse grammar", re.I)
"""A failing server sends many texts; only these concern the request."""
_TAKES_NONE = re.compile(
    r"unsupported|not (?:currently )?support|n't support|not (?:enabled|available|implemented|permitted)"
    r"|no endpoints found|requires -|unrecogni[sz]ed|unknown (?:parameter|field|argument|name)",
    re.I,
)
"""What a sentence says of tools as a whole: a wrong call or a wrong schema is no rejection of tools."""
_TEMPLATE = re.compile(
    r"(?!.*\bsystem\b)(?:.*\bat row \d+, column \d+|.*parser for this template"
    r"|.*(?:render|apply|pars)\w* .{0,40}(?:jinja|chat template))",
    re.I | re.S,
)
"""How local servers say that the model's chat template cannot write this request: most cannot write the tools."""
_RENAMED = re.compile(r"use ['\"`]?max_completion_tokens", re.I)
_PREFILL = re.compile(
    r"prefill|must end with a user|last (?:message|role).{0,40}(?:user|assistant)|last role|\bprefix\b", re.I
)
_ONE_TOOL = r"functions?(?= ['\"`])|tools(?=[.\[]\d)|function_?declarations"
"""How rejections name one tool, whose schema is wrong. That is no rejection of tools."""
_CONDITION = re.compile(r"\b(?:with|when|while|if|unless|using|alongside)\W+(?:(?:the|a)\W+)?$", re.I)


def find_missing_ability(status: int, error: Mapping[str, Any], said: str, asked: bytes, path: str) -> str:
    """Return the ability that an endpoint lacks by its rejection of the request `asked`; "" for none.

    With 400 or 422, any sentence that names a field of `OMITTABLE` counts, if it names no other field of the request
    first. The other abilities, and other statuses, need words such as "not supported".
    """
    if status in (404, 405, 501) and path == "completions" and "model" not in said.lower():
        return "completion"
    try:
        sent = fields_of(msgspec.json.decode(asked))
    except msgspec.DecodeError:
        return ""
    last = (sent.get("messages") or sent.get("contents") or [{}])[-1]
    if isinstance(last, dict) and last.get("role") in ("assistant", "model") and _PREFILL.search(said):
        return "prefill"
    if "tools" in sent and _TEMPLATE.match(said):
        return "tools"
    refuses = (_REFUSES_5XX if status >= 500 else _REFUSES).search(f"{error.get('code')} {said}") is not None
    by_path = _read_paths(error, sent)
    # "With reasoning_effort set, temperature must be 1" names reasoning_effort as a condition, which counts last.
    ability = min(_mentions(said, sent), default=(False, 0, ""))[2] if by_path is None else by_path
    if ability in OMITTABLE:
        return ability if refuses or status in (400, 422) else ""
    tools = ({**tool, **tool.get("function", {})} for tool in sent.get("tools") or () if isinstance(tool, dict))
    if ability in ("", "tools") and status in (400, 422) and any(tool.get("strict") is True for tool in tools):
        is_inside = any(re.match(r"(?:body\.)?tools?[.\[]", path) for path in named_paths(error))
        if is_inside or re.search(rf"{_ONE_TOOL}|\bstrict\b", said):  # the schema of one tool, or `strict`
            return "strict"
    if ability == "tools" and not by_path and not _TAKES_NONE.search(said):
        return ""
    is_renamed = ability == "max_tokens" and _RENAMED.search(said)
    return ability if refuses or is_renamed or (ability == "schema" and by_path) else ""


def fields_of(body: Any) -> dict[str, Any]:
    """Return the fields of a request's body, with those of the tables that some wires put settings into."""
    if not isinstance(body, dict):
        return {}
    inner = [body[name] for name in ("text", "generationConfig", "output_config") if isinstance(body.get(name), dict)]
    fields = {name: value for table in (body, *inner) for name, value in table.items()}
    form = fields.get("response_format")
    if isinstance(form, dict) and form.get("type") == "grammar":  # Fireworks
        fields["grammar"] = fields.pop("response_format")
    return fields


def without_fields(params: Mapping[str, Any], lacking: frozenset[str]) -> dict[str, Any]:
    """Return more fields of a body without those of abilities in `lacking`."""
    names = {name for ability in lacking for name in OMITTABLE.get(ability, ())}
    return {
        name: {key: each for key, each in value.items() if key not in names}
        if name in ("text", "generationConfig") and isinstance(value, Mapping)
        else value
        for name, value in params.items()
        if name not in names
    }


def _read_paths(error: Mapping[str, Any], sent: Mapping[str, Any]) -> str | None:
    """Return the ability that the error's paths name: "" for another field, None if they name no field of the request.

    The first path counts: without its field, the request would be rejected as before.
    """
    for path in named_paths(error):
        parts = [part for part in re.split(r"[.\[\]]+", path) if part]
        name = next((part for part in parts if part not in _CONTAINERS), parts[-1] if parts else "")
        for ability, fields in {**OMITTABLE, **_OTHERS}.items():
            if name in fields or re.fullmatch(_WORDS[ability], name, re.I):
                is_inside_tool = ability == "tools" and name != parts[-1]
                return ability if _is_sent(ability, sent) and not is_inside_tool else ""
        if name in sent and name != "model":  # "model" says for which model it holds
            return ""
    return None


def _mentions(said: str, sent: Mapping[str, Any]) -> Iterator[tuple[bool, int, str]]:
    """Yield the fields of the request that a sentence names: whether as a condition, where, and the ability or ""."""
    patterns = [(ability, words) for ability, words in _WORDS.items() if _is_sent(ability, sent)]
    known = {name for fields in (*OMITTABLE.values(), *_OTHERS.values()) for name in fields}
    for field in sent.keys() - known - _CONTAINERS - {"model"}:
        name = re.escape(field)
        if "_" not in field and field.islower():  # it could be an ordinary word, so it must stand like a name
            name = rf"(?:(?<=['\"`]){name}(?=['\"`])|{name}(?=[\[:.]))"
        patterns.append(("", name))
    patterns += [("", _ONE_TOOL)]
    for ability, words in patterns:
        # ASCII: in Chinese, a name stands in the text without blanks.
        if match := re.search(rf"(?<![\w-])(?:{words})(?![\w-])", said, re.I | re.A):
            yield _CONDITION.search(said[: match.start()]) is not None, match.start(), ability


def _is_sent(ability: str, sent: Mapping[str, Any]) -> bool:
    return any(name in sent for name in OMITTABLE.get(ability, ()) or _OTHERS[ability])
