"""What the models of unfinished runs write just now. The journal has a reply only when it is complete.

The process that performs a run has its unfinished replies (`PartialReplies`). Where a store is shared by machines, it
shows them there (`ShownTexts`), and others that watch the run read them (`WatchedTexts`), about a fifth of a second
later. Nothing of this is on record, and a text may be lost."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from plait.core import Event
from plait.core import events as ev
from plait.core.errors import JournalError
from plait.journal import codec
from plait.journal.queue import has_queue
from plait.journal.store import Store
from plait.models.stages import Stage
from plait.tools.render import replace_surrogates
from plait.view.run_view import format_answer

LONGEST = 4_000
"""Characters of one part of an unfinished reply: the last ones."""
PAUSE, UNWATCHED = 0.1, 1.0
"""Seconds between two showings, while somebody watches one of the runs, and while nobody does."""


class PartialReplies:
    """The unfinished replies of a run in this process. The journal has a reply only when it is complete."""

    def __init__(self) -> None:
        self._stages: dict[int, Stage] = {}
        self._replies: dict[int, list[tuple[str, str]] | None] = {}
        """The parts of each step's reply, as (kind, text). None if the step has two replies at once: they mix."""
        self._progress: dict[int, dict[str, Any]] = {}
        """What a tool call of a step reported last of its progress, until a call of the step ends."""

    def add(self, event: Event) -> None:
        """Add the next event of the run."""
        match event:
            case ev.Asked(step=step, model=model):
                self._stages[step] = Stage(model)
                self._replies[step] = None if step in self._replies else []
            case ev.Thought(step=step) | ev.Action(step=step) | ev.Answer(step=step) | ev.Text(step=step):
                parts = self._replies.get(step)
                if parts is None:
                    return
                kind = ev.kind_of(event)
                if kind != "text":
                    parts[:] = [part for part in parts if part[0] != "output"]
                joins = (kind, "text") if kind in ("thought", "answer") else (kind,)
                before = parts.pop()[1] if parts and parts[-1][0] in joins else ""
                parts.append((kind, (before + event.text)[-LONGEST:]))
            case ev.PartialOutput(step=step, value=value):
                # Only a typed answer that is a tool's input has no other event. Each value replaces the one before.
                parts = self._replies.get(step)
                if parts is not None and all(kind in ("thought", "output") for kind, _ in parts):
                    from pydantic_core import to_jsonable_python

                    with suppress(ValueError):  # a serializer of the user's type may not expect half a value
                        text = format_answer(to_jsonable_python(value, fallback=str))
                        parts[:] = [part for part in parts if part[0] != "output"] + [("output", text[-LONGEST:])]
            case ev.Noted(step=step, kind="progress"):
                self._progress[step] = {"text": replace_surrogates(event.text)[:LONGEST], "data": event.data}
            case ev.Observed(step=step):
                self._progress.pop(step, None)
            case ev.Noted(step=step, kind="retry" | "model_change") if self._replies.get(step):
                self._replies[step] = []  # the reply starts again
            case ev.Replied(step=step):
                self._replies.pop(step, None)

    def steps(self) -> list[dict[str, Any]]:
        """Return each unfinished reply: its `step` and its `parts` as [kind, text].

        Before the first part it has the `stage` of the model and its whole `seconds` instead. A step whose tool reports
        has that as its `progress`: a `text` and JSON `data`.
        """
        progress = [{"step": step, "parts": [], "progress": each} for step, each in list(self._progress.items())]
        return progress + [
            {
                "step": step,
                "parts": [[kind, replace_surrogates(text)] for kind, text in parts],
                **self._stage(step, parts),
            }
            for step, parts in list(self._replies.items())
            if parts is not None
        ]

    def _stage(self, step: int, parts: list[tuple[str, str]]) -> dict[str, Any]:
        if parts:
            return {}
        stage, seconds = self._stages[step].now()
        return {"stage": stage, "seconds": int(seconds)}


class ShownTexts:
    """Shows the unfinished replies of this process's runs to those who watch them elsewhere."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changed: dict[str, PartialReplies] = {}
        self._showing: asyncio.Task[None] | None = None

    def hear(self, run: str, replies: PartialReplies) -> None:
        """Note that the unfinished replies of a run may have changed."""
        if run and has_queue(self._store):
            self._changed[run] = replies
            if self._showing is None or self._showing.done():
                self._showing = asyncio.ensure_future(self._show())

    def listen(self) -> Callable[[Event], None]:
        """Return the listener for one run."""
        replies, run = PartialReplies(), ""

        def hear(event: Event) -> None:
            nonlocal run
            if isinstance(event, ev.Began):
                run = event.run
            replies.add(event)
            self.hear(run, replies)

        return hear

    async def _show(self) -> None:
        assert has_queue(self._store)
        while self._changed:
            changed, self._changed = self._changed, {}
            watched = 0
            with suppress(JournalError):  # the journal says so where it matters
                texts = {run: codec.encode(replies.steps()).decode() for run, replies in changed.items()}
                watched = await self._store.show_texts(texts)
            await asyncio.sleep(PAUSE if watched else UNWATCHED)


class WatchedTexts:
    """Reads the unfinished replies of runs that other processes perform."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watched: Counter[str] = Counter()
        self._texts: dict[str, str] = {}
        self._reading: asyncio.Task[None] | None = None

    @contextmanager
    def watch(self, run: str) -> Iterator[Callable[[], list[dict[str, Any]]]]:
        """Within it, the function returns the unfinished replies of a run, as `PartialReplies.steps` does."""
        self._watched[run] += 1
        if has_queue(self._store) and (self._reading is None or self._reading.done()):
            self._reading = asyncio.ensure_future(self._read())
        try:
            yield lambda: codec.decode_plain(self._texts.get(run) or "[]")
        finally:
            self._watched[run] -= 1
            self._watched = +self._watched

    async def _read(self) -> None:
        assert has_queue(self._store)
        while self._watched:
            begun = time.monotonic()
            with suppress(JournalError):
                self._texts = await self._store.watch_texts(self._watched)
                await self._store.wait_for_texts(1.0)
            await asyncio.sleep(max(0.0, 0.02 - (time.monotonic() - begun)))
        self._texts = {}
