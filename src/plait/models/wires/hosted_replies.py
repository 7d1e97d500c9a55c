"""The decoding of hosted calls and citations in the blocks, items and parts of a reply, on each wire. Pure.

Sources: those of `models/hosted.py`; OpenAI's reference of output items; recordings of 2025 and 2026. What a provider
keeps to itself, such as the encrypted text of Anthropic's search results, is missing here too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from plait.core.hosted import HOSTED_WORDS, LONGEST, Citation, HostedCall
from plait.core.text import cut_text
from plait.models.wires.odd_json import mend

Table: TypeAlias = Mapping[str, Any]
MAX_CITATIONS = 100
DEEPEST = 10
"""Levels of a result in which text is looked for."""
_RUNS_CODE = ("code_execution", "bash_code_execution", "text_editor_code_execution")


def tables_in(value: Any) -> list[dict[str, Any]]:
    """Return the tables in a list; none for any other value."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def read_citations(found: Iterable[Table]) -> tuple[Citation, ...]:
    """Return the sources of citations in any form, each address once."""
    kept: dict[str, Citation] = {}
    for each in found:
        inner = each.get("url_citation")
        each = inner if isinstance(inner, dict) else each
        url = _text(each.get("url") or each.get("uri") or each.get("file_id") or each.get("filename"))
        quote = _text(each.get("cited_text") or each.get("content"))[:300]
        if url and len(kept) < MAX_CITATIONS:
            kept.setdefault(url, Citation(url[:2000], _text(each.get("title") or each.get("filename"))[:300], quote))
    return tuple(kept.values())


def read_blocks(blocks: Iterable[Table]) -> tuple[tuple[HostedCall, ...], tuple[Citation, ...]]:
    """Return the hosted calls and the citations in the blocks of an Anthropic message."""
    blocks = list(blocks)
    answers = [each for each in blocks if _text(each.get("type")).endswith("_tool_result")]
    results = {_text(each.get("tool_use_id")): each for each in answers}
    calls: list[HostedCall] = []
    for block in blocks:
        if block.get("type") not in ("server_tool_use", "mcp_tool_use"):
            continue
        name, result = _text(block.get("name")), results.get(_text(block.get("id")), {})
        tool, content = "code_execution" if name in _RUNS_CODE else name, result.get("content")
        tool = "mcp" if block["type"] == "mcp_tool_use" else tool
        is_error = isinstance(content, dict) and _text(content.get("type")).endswith("_error")
        failed = is_error or result.get("is_error") is True
        text = _text(content.get("error_code")) if failed and isinstance(content, dict) else _show(content)
        calls.append(_call(tool, block.get("input"), text, "" if name == tool else name, failed))
    cited = [each for block in blocks if block.get("type") == "text" for each in tables_in(block.get("citations"))]
    return tuple(calls), read_citations(cited)


def read_items(items: Iterable[Table]) -> tuple[tuple[HostedCall, ...], tuple[Citation, ...]]:
    """Return the hosted calls and the citations in the output items of a Responses reply."""
    calls: list[HostedCall] = []
    cited: list[dict[str, Any]] = []
    for item in items:
        kind, failed = _text(item.get("type")), item.get("status") == "failed" or bool(item.get("error"))
        if kind == "message":
            parts = tables_in(item.get("content"))
            cited += [each for part in parts for each in tables_in(part.get("annotations"))]
        elif kind == "web_search_call":
            action = item["action"] if isinstance(item.get("action"), dict) else {}
            step, found = _text(action.get("type")), tables_in(action.get("sources"))
            given = {key: value for key, value in action.items() if key not in ("type", "sources")}
            name = "" if step == "search" else step  # only a search is billed
            calls.append(_call("web_search", given, _list_pages(found), name, failed, not name))
        elif kind == "file_search_call":
            found = tables_in(item.get("results"))
            text = "\n".join(f"{_text(each.get('filename'))}: {_text(each.get('text'))}" for each in found)
            calls.append(_call("file_search", {"queries": item.get("queries")}, text, failed=failed))
        elif kind == "code_interpreter_call":
            text = "\n".join(_text(each.get("logs") or each.get("url")) for each in tables_in(item.get("outputs")))
            calls.append(_call("code_execution", {"code": item.get("code")}, text, failed=failed))
        elif kind == "image_generation_call":
            text = f"an image ({len(_text(item.get('result'))) * 3 // 4:,} bytes)" if item.get("result") else ""
            calls.append(_call("image_generation", {"prompt": item.get("revised_prompt")}, text, failed=failed))
        elif kind == "mcp_call":
            text = _text(item.get("output")) or _show(item.get("error"))
            calls.append(_call("mcp", _parsed(item.get("arguments")), text, _text(item.get("name")), failed))
    return tuple(calls), read_citations(cited)


def read_parts(
    parts: Sequence[Table], grounding: Table, pages: Table, *, once: bool
) -> tuple[tuple[HostedCall, ...], tuple[Citation, ...]]:
    """Return the hosted calls and the citations of a Gemini candidate: those in its parts, else those in its metadata.
    `once`: a reply with several searches is billed as one."""
    calls: list[HostedCall] = []
    listed = tables_in(grounding.get("groundingChunks"))
    web, stored = _inner(listed, "web"), _inner(listed, "retrievedContext")
    answers = _inner(parts, "codeExecutionResult")
    responses = {_text(each.get("id")): each for each in _inner(parts, "toolResponse")}
    for code in _inner(parts, "executableCode"):
        result = answers.pop(0) if answers else {}
        failed = result.get("outcome", "OUTCOME_OK") != "OUTCOME_OK"
        calls.append(_call("code_execution", {"code": code.get("code")}, _text(result.get("output")), failed=failed))
    for asked in _inner(parts, "toolCall"):  # Gemini 3 shows them if functions are declared, too
        kind, answer = _text(asked.get("toolType")).lower(), responses.get(_text(asked.get("id")), {})
        tool = next((name for name in HOSTED_WORDS if name in kind), "web_fetch" if "url" in kind else "web_search")
        text = json.dumps(mend(answer["response"])[0], ensure_ascii=False) if answer.get("response") else ""
        calls.append(_call(tool, asked.get("args"), text, billed=tool == "web_search"))
    if not any(each.tool == "web_search" for each in calls):
        queries = grounding.get("webSearchQueries")
        for number, query in enumerate(queries if isinstance(queries, list) else ()):
            text = _list_pages(web) if not number else ""
            calls.append(_call("web_search", {"query": query}, text, billed=not (once and number)))
    for page in tables_in(pages.get("urlMetadata")):
        failed = not _text(page.get("urlRetrievalStatus")).endswith("SUCCESS")
        calls.append(_call("web_fetch", {"url": page.get("retrievedUrl")}, failed=failed))
    if stored and not any(each.tool == "file_search" for each in calls):
        calls.append(_call("file_search", None, _list_pages(stored)))
    if web and not calls:
        calls.append(_call("web_search", None, _list_pages(web)))
    return tuple(calls), read_citations([*web, *stored])


def read_message(
    annotations: Iterable[Table], executed: Iterable[Table]
) -> tuple[tuple[HostedCall, ...], tuple[Citation, ...]]:
    """Return the hosted calls and the citations of a chat completion. Groq lists its calls; the others only cite."""
    calls: list[HostedCall] = []
    for each in executed:
        found = each.get("search_results")
        pages = tables_in(found.get("results")) if isinstance(found, dict) else []
        kind = _text(each.get("type") or each.get("name"))
        tool = "code_execution" if "code" in kind or "python" in kind else "web_search"
        tool = kind if kind in HOSTED_WORDS else tool
        text = _list_pages(pages) or _text(each.get("output"))
        calls.append(_call(tool, _parsed(each.get("arguments")), text, kind if kind not in HOSTED_WORDS else ""))
    cited = read_citations(annotations)
    if cited and not calls:
        calls.append(HostedCall("web_search", None, "\n".join(f"{each.title} ({each.url})" for each in cited)))
    return tuple(calls), cited


def _inner(parts: Iterable[Table], key: str) -> list[dict[str, Any]]:
    return tables_in([part.get(key) for part in parts])


def _call(
    tool: str, given: Any, text: str = "", name: str = "", failed: bool = False, billed: bool = True
) -> HostedCall:
    return HostedCall(tool, mend(given)[0], cut_text(text, LONGEST), name, failed, billed)


def _show(content: Any, depth: int = DEEPEST) -> str:
    """Return a result of Anthropic's tools as text: pages that were found, a page, what code printed, parts."""
    if not depth or isinstance(content, str):
        return _text(content)
    if isinstance(content, list):
        pages = [each for each in tables_in(content) if each.get("url")]
        return _list_pages(pages) or "\n".join(filter(None, [_show(each, depth - 1) for each in tables_in(content)]))
    if not isinstance(content, dict):
        return ""
    inner = content.get("content")
    source = inner.get("source") if isinstance(inner, dict) else None
    if isinstance(source, dict):
        return _text(source.get("data"))
    printed = [_text(content.get(key)) for key in ("stdout", "stderr", "text", "message")]
    return "\n".join(filter(None, printed)) or (_show(inner, depth - 1) if inner else "")


def _list_pages(pages: Iterable[Table]) -> str:
    lines = []
    for number, each in enumerate(pages, 1):
        url, title = _text(each.get("url") or each.get("uri")), _text(each.get("title"))
        about = _text(each.get("content") or each.get("snippet") or each.get("text"))[:500]
        lines.append(f"{number}. {title or url}{f' ({url})' if title and url else ''}{f': {about}' if about else ''}")
    return "\n".join(lines)


def _parsed(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _text(value: Any) -> str:
    return str(mend(value)[0]) if isinstance(value, str) else ""
