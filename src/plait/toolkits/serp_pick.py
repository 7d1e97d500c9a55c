"""Picks the answer out of a search result: answer box, sports, knowledge graph, then the pages that were found."""

from __future__ import annotations

import re
from typing import Any

LONGEST = 2000
RESULTS = 4
"""Pages told of where nothing answers directly."""

_ADMIN = re.compile(
    r"(_link|_links|link|links|image|images|thumbnail|_id|_token|kgmid|serpapi.*|source|displayed_link)$"
)

_LABELS = ("title", "type", "date")
"""Fields of an answer box that name it and answer nothing."""


def picked(read: dict[str, Any]) -> str:
    """The answer as a text of at most 2,000 characters; "" where the result has none."""
    for found in (_box(read), _sports(read), _graph(read), _pages(read)):
        if found:
            return found if len(found) <= LONGEST else f"{found[: LONGEST - 1]}…"
    return ""


def _box(read: dict[str, Any]) -> str:
    box = read.get("answer_box") or read.get("answer_box_list")
    if isinstance(box, list):
        box = next((one for one in box if isinstance(one, dict)), None)
    if not isinstance(box, dict):
        return ""
    for name in ("answer", "result", "snippet", "definition", "definitions", "list"):
        if box.get(name):
            unit = f" ({box['unit']})" if name == "result" and isinstance(box.get("unit"), str) else ""
            return _said(box[name]) + unit
    words = box.get("snippet_highlighted_words")
    if words:
        return _said(words)
    if box.get("temperature"):
        parts = (box.get("location"), f"{box['temperature']} {box.get('unit', '')}".strip(), box.get("weather"))
        return ", ".join(str(part) for part in parts if part)
    answer = {key: value for key, value in box.items() if key not in _LABELS}
    return _fields(box) if _fields(answer) else ""  # a title alone answers nothing: the next part may


def _sports(read: dict[str, Any]) -> str:
    sports = read.get("sports_results")
    if not isinstance(sports, dict):
        return ""
    game = sports.get("game_spotlight")
    title = str(sports.get("title", "")).strip()
    if isinstance(game, dict):
        score = _sides(game)
        when = ", ".join(str(game[name]) for name in ("league", "stage", "status", "date") if game.get(name))
        return f"{score} ({when})" if score and when else score or when
    if isinstance(game, str) and game.strip():
        return f"{title}: {_said(game)}" if title else _said(game)
    lines: list[str] = []
    for one in _listed(sports.get("games")):
        lines.append(_fields(one) if not one.get("teams") else _game(one))
    return "\n".join(line for line in (title, *lines[:5]) if line) if lines else _fields(sports)


def _game(game: dict[str, Any]) -> str:
    score = _sides(game)
    when = ", ".join(str(game[name]) for name in ("date", "status") if isinstance(game.get(name), str))
    return f"{score} ({when})" if when else score


def _sides(game: dict[str, Any]) -> str:
    teams = _listed(game.get("teams"))
    return " - ".join(f"{team.get('name', '?')} {_score(team.get('score'))}".strip() for team in teams)


def _listed(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _score(score: Any) -> str:
    """A score, which some sports give in parts: {"total": "3"}."""
    if isinstance(score, dict):
        score = score.get("total") or score.get("R") or next(iter(score.values()), "")
    return "" if score is None else str(score)


def _graph(read: dict[str, Any]) -> str:
    graph = read.get("knowledge_graph")
    if not isinstance(graph, dict):
        return ""
    head = ", ".join(str(graph[name]) for name in ("title", "type") if isinstance(graph.get(name), str))
    told = graph.get("description")
    rest = _fields({key: value for key, value in graph.items() if key not in ("title", "type", "description")})
    if not told and not rest:
        return ""
    return "\n".join(part for part in (head, _said(told) if told else "", rest) if part)


def _pages(read: dict[str, Any]) -> str:
    found: list[str] = []
    for one in _listed(read.get("organic_results")):
        about = _said(one.get("snippet") or one.get("snippet_highlighted_words") or "")
        told = ": ".join(part for part in (_said(one.get("title") or ""), about) if part)
        if not told:
            continue
        found.append(f"{len(found) + 1}. {told} ({_said(one.get('link') or 'no address')})")
        if len(found) == RESULTS:
            break
    return "\n".join(found)


def _fields(value: dict[str, Any]) -> str:
    """What an object says in plain values, a line each, without addresses and ids."""
    lines = [
        f"{key.replace('_', ' ')}: {_said(each)}"
        for key, each in value.items()
        if isinstance(each, (str, int, float)) and not _ADMIN.search(key) and not str(each).startswith("http")
    ]
    return "\n".join(lines[:15])


def _said(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(_said(one) for one in value if one)
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_said(each)}" for key, each in value.items() if isinstance(each, (str, int, float)))
    return " ".join(str(value).split())
