"""The steps of a run as a page is told of them, the items in each, and what of them is new since it was last told.

Texts are cut at `most` characters, as [text, how many are left out]; `/api/runs/ID/text` gives the rest by item and
field.
"""

from __future__ import annotations

from typing import Any

from plait.journal.records import Row

LONG = 4_000
"""Characters of a text that the document holds."""

JSON = dict[str, Any]


class Steps:
    """Steps by number and items by id, in the order they came. `most` None: no text is cut."""

    def __init__(self, most: int | None = LONG) -> None:
        self.most = most
        self.items: dict[str, JSON] = {}
        self.steps: dict[int, JSON] = {}
        self._touched: dict[str, None] = {}
        self._changed: set[int] = set()
        self._last = 0

    def changes(self) -> list[JSON]:
        """The steps that changed since this was last asked, each with those of its items that did."""
        items: dict[int, list[JSON]] = {step: [] for step in sorted(self._changed)}
        for id in self._touched:
            items.setdefault(self.items[id]["step"], []).append(self.items[id])
        self._touched, self._changed = {}, set()
        return [{**self.steps[step], "items": each} for step, each in sorted(items.items())]

    def text(self, item: str, field: str) -> str | None:
        """A text of an item as far as it is held, None where there is none."""
        value = self.items.get(item, {}).get(field)
        return value[0] if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) else None

    # -- for who tells

    def _item(self, row: Row, step: int, id: str, kind: str, **fields: Any) -> None:
        self._last = max(self._last, step)
        if step not in self.steps:
            empty: JSON = {"phases": [], "models": [], "in": 0, "out": 0, "cached": 0, "estimated": False}
            self.steps[step] = {"n": step, "at": row.at, **empty, "cost": 0.0, "seconds": 0.0}
        self.items[id] = {"id": id, "kind": kind, "step": step, "at": row.at, **fields}
        self._touched[id] = None
        self._changed.add(step)

    def _change(self, id: str, **fields: Any) -> None:
        if id in self.items:
            self.items[id].update(fields)
            self._touched[id] = None
            self._changed.add(self.items[id]["step"])

    def _add(self, number: int, **amounts: float) -> None:
        step = self.steps[number]
        for name, amount in amounts.items():
            step[name] = round(step[name] + amount, 6)

    def _text(self, text: str) -> list[Any]:
        if self.most is None or len(text) <= self.most:
            return [text, 0]
        return [text[: self.most], len(text) - self.most]
