"""Search in one run: in all texts of its items, whole, also those that the page has cut."""

from __future__ import annotations

import re
from typing import Any

from plait.view.timeline import ViewerTimeline

MOST = 500
"""Hits that are returned. All are counted."""
AROUND = 60
"""Characters of an excerpt before and after the words."""


def search_texts(timeline: ViewerTimeline, words: str) -> dict[str, Any]:
    """Return where the words occur as they are written, in upper or lower case: `hits` in the order of the journal, and
    their `count`. A hit has its `step`, `item` and `field`, and the text `before`, `found` and `after`.
    """
    pattern = re.compile(re.escape(words), re.IGNORECASE)
    hits: list[dict[str, Any]] = []
    count = 0
    for item in timeline.items.values():
        texts = {name: value for name in item if (value := timeline.text(item["id"], name)) is not None}
        texts |= {f"attempt {error['attempt']}": error["text"][0] for error in item.get("errors", ())}
        if item["kind"] == "call":
            texts["tool"] = item["tool"]
        for field, text in texts.items():
            for match in pattern.finditer(text) if words else ():
                count += 1
                if count <= MOST:
                    start, end = match.span()
                    parts = {"before": text[max(0, start - AROUND) : start], "found": match[0]}
                    parts["after"] = text[end : end + AROUND]
                    hits.append({"step": item["step"], "item": item["id"], "field": field, **parts})
    return {"hits": hits, "count": count}
