"""What the models of unfinished runs write just now. The journal has a reply only when it is complete.

The process that performs a run has its unfinished replies (`PartialReplies`). Where a store is shared by machines, it
shows them there, and others that watch the run read them about a fifth of a second later (`LiveTexts`). Nothing of this
is on record, and a text may be lost."""

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
from plait.journal import codec, redaction
from plait.journal.queue import has_queue
from plait.journal.store import Store
from plait.models.stages import Stage
from plait.tools.render import replace_surrogates
from plait.view.run_view import format_answer

LONGEST, LONGEST_ANSWER, LONGEST_SHARED = 4_000, 100_000, 16_000
"""Characters of one part of an unfinished reply: the last ones. Those of an answer; those that other processes get."""
ANSWERS = ("answer", "text", "output")
"""The kinds of parts that are the answer, as far as is known."""
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
                parts.append((kind, (before + event.text)[-LONGEST_ANSWER if kind in ANSWERS else -LONGEST :]))
            case ev.PartialOutput(step=step, value=value):
                # Only a typed answer that is a tool's input has no other event. Each value replaces the one before.
                parts = self._replies.get(step)
                if parts is not None and all(kind in ("thought", "output") for kind, _ in parts):
                    from pydantic_core import to_jsonable_python

                    with suppress(ValueError):  # a serializer of the user's type may not expect half a value
                        text = format_answer(to_jsonable_python(value, fallback=str))
                        parts[:] = [part for part in parts if part[0] != "output"] + [
                            ("output", text[-LONGEST_ANSWER:])
                        ]
            case ev.Noted(step=step, kind="progress"):
                self._progress[step] = {"text": replace_surrogates(event.text)[:LONGEST], "data": event.data}
            case ev.Observed(step=step):
                self._progress.pop(step, None)
            case ev.Noted(step=step, kind="retry" | "model_change") if self._replies.get(step):
                self._replies[step] = []  # the reply starts again
            case ev.Replied(step=step):
                self._replies.pop(step, None)

    def steps(self, longest: int = LONGEST) -> list[dict[str, Any]]:
        """Return each unfinished reply: its `step` and its `parts` as [kind, text], of which the end is `longest`.

        Before the first part it has the `stage` of the model and its whole `seconds` instead. A step whose tool reports
        has that as its `progress`: a `text` and JSON `data`.
        """
        found = [{"step": step, "parts": [], "progress": each} for step, each in list(self._progress.items())]
        for step, parts in list(self._replies.items()):
            if parts is not None:
                shown = [[kind, replace_surrogates(text[-longest:])] for kind, text in parts]
                found.append({"step": step, "parts": shown})
                if not parts:
                    stage, seconds = self._stages[step].now()
                    found[-1] |= {"stage": stage, "seconds": int(seconds)}
        return found


class LiveTexts:
    """The unfinished replies of runs. Where processes share the store, those of this process are shown to the others,
    and theirs are read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._own: dict[str, PartialReplies] = {}
        self._changed: dict[str, PartialReplies] = {}
        self._watched: Counter[str] = Counter()
        self._texts: dict[str, str] = {}
        self._showing: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None

    @contextmanager
    def listen(self) -> Iterator[Callable[[Event], None]]:
        """Within it, the function takes the events of a run that this process performs."""
        replies, run = PartialReplies(), ""

        def hear(event: Event) -> None:
            nonlocal run
            if isinstance(event, ev.Began):
                run, self._own[event.run] = event.run, replies
            replies.add(event)
            # The user's function redacts whole texts: of half a text it may leave what it would not leave of the whole.
            if run and has_queue(self._store) and not redaction.is_set():
                self._changed[run] = replies
                if self._showing is None or self._showing.done():
                    self._showing = asyncio.ensure_future(self._show())

        try:
            yield hear
        finally:
            self._own.pop(run, None)

    async def _show(self) -> None:
        assert has_queue(self._store)
        while self._changed:
            changed, self._changed = self._changed, {}
            watched = 0
            with suppress(JournalError):  # the journal says so where it matters
                texts = {run: codec.encode(replies.steps(LONGEST_SHARED)).decode() for run, replies in changed.items()}
                watched = await self._store.show_texts(texts)
            await asyncio.sleep(PAUSE if watched else UNWATCHED)

    @contextmanager
    def watch_answers(self, run: str) -> Iterator[Callable[[], list[dict[str, Any]]]]:
        """Within it, the function returns the same with the answer as HTML in place of its text: {"from": the first
        block that changed, "blocks": the HTML of each block from there}. The more streams there are, the slower each
        one is."""
        from plait.view.markdown import StreamedMarkdown

        answers: dict[int, tuple[StreamedMarkdown, dict[str, Any]]] = {}
        last: list[dict[str, Any]] = []
        due = 0.0

        def read() -> list[dict[str, Any]]:
            nonlocal last, due
            if (begun := time.monotonic()) < due:
                return last
            last = find()
            for step in last:
                text = "".join(text for kind, text in step["parts"] if kind in ANSWERS)
                if any(kind == "output" for kind, _ in step["parts"]):
                    text = f"```json\n{text}"
                step["parts"] = [[kind, text] for kind, text in step["parts"] if kind not in ANSWERS]
                if not text.strip() and step["step"] not in answers:
                    continue
                stream, shown = answers.setdefault(step["step"], (StreamedMarkdown(), {}))
                if (first := stream.update(text)) is not None:
                    answers[step["step"]] = stream, (shown := {"from": first, "blocks": stream.blocks[first:]})
                step["answer"] = shown
            spent = time.monotonic() - begun
            due = begun + max(10 * spent, PAUSE * self._watched.total() / 50)
            return last

        with self.watch(run, LONGEST_ANSWER) as find:
            yield read

    @contextmanager
    def watch(self, run: str, longest: int = LONGEST) -> Iterator[Callable[[], list[dict[str, Any]]]]:
        """Within it, the function returns the unfinished replies of a run, as `PartialReplies.steps` does, wherever it
        is performed."""

        def read() -> list[dict[str, Any]]:
            own = self._own.get(run)
            if own is not None:
                return own.steps(longest)
            found: list[dict[str, Any]] = codec.decode_plain(self._texts.get(run) or "[]")
            for step in found:
                step["parts"] = [[kind, text[-longest:]] for kind, text in step["parts"]]
            return found

        self._watched[run] += 1
        if has_queue(self._store) and (self._reading is None or self._reading.done()):
            self._reading = asyncio.ensure_future(self._read())
        try:
            yield read
        finally:
            self._watched[run] -= 1
            self._watched = +self._watched

    async def close(self) -> None:
        """End what shows and reads replies."""
        tasks = [each for each in (self._showing, self._reading) if each is not None and each.cancel()]
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self) -> None:
        assert has_queue(self._store)
        while self._watched:
            begun = time.monotonic()
            with suppress(JournalError):
                self._texts = await self._store.watch_texts(self._watched)
                await self._store.wait_for_texts(1.0)
            await asyncio.sleep(max(0.0, 0.02 - (time.monotonic() - begun)))
        self._texts = {}
