"""Keeps the prompts of a long run within the model's context.

A loop keeps its whole log and shows the model a `View` of it. When the next prompt would exceed the share
`compact_at` of the context, `Compaction` changes the view:

1. Placeholders replace the oldest results, and their images and files are left out. This needs no model call.
2. If that is not enough, a model call of the phase `compact` writes a summary, which replaces the oldest turns.

Each compaction frees about half of the share, and then the prompt only grows at its end, so that a server's prefix
cache stays useful. A call and its result are shown, folded and dropped together. If the endpoint refuses a prompt as
too long, the same is done, and then all results are shortened.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from msgspec import Struct, structs

from plait.core import (
    Attachment,
    ContextOverflow,
    Effect,
    Effects,
    LoopContext,
    Reply,
    Think,
    continue_turn,
    note,
    user,
)
from plait.core.artifacts import HANDLE_IN_TEXT
from plait.core.text import shorten
from plait.loops.escape import without_tokens
from plait.loops.pass_effects import pass_effects

COMPACT = "compact"
"""The phase of the model call that writes a summary."""

TOKENS_A_BYTE = 0.25
"""Tokens of a byte of a prompt, until a reply has reported some."""

KEPT_TURNS = 2
"""Turns at the end of the log that stay as they are."""

TARGET = 0.5
"""The part of the allowed tokens that a prompt has after a compaction."""

WORTH = 0.25
"""The part of the allowed tokens that a summary must save, at least."""

SHORT_RESULT = 300
"""Characters: a result up to this length is never folded."""

SMALLEST_OBSERVATION = 500
"""Characters: when the prompt is still too long with observations of this size, it does not fit."""


class View(Struct, frozen=True):
    """Which part of its log a loop shows the model. Entries count from 0.

    `chars` is the maximum number of characters of one result. Placeholders replace the results of the entries before
    `folded`. `summary` replaces the entries from `first` to before `dropped`; "" if there is none.
    """

    chars: int
    folded: int = 0
    first: int = 0
    dropped: int = 0
    summary: str = ""

    def find_shown(self, count: int) -> tuple[int, ...]:
        """Return the indexes of the shown entries of a log with `count` entries."""
        return (*range(min(self.first, count)), *range(max(self.first, self.dropped), count))

    def of_entry(self, index: int) -> View:
        """Return what shapes the text of one entry: equal views give equal texts."""
        return View(self.chars, int(index < self.folded))

    def show_attachments(self, attachments: tuple[Attachment, ...]) -> tuple[Attachment, ...]:
        """Return the shown attachments of an entry, given the view `of_entry`: none if its results are folded."""
        return () if self.folded else attachments

    def show_result(self, context: LoopContext, tool: str, text: str) -> str:
        """Return a result of an entry, given the view `of_entry`: shortened, or its placeholder."""
        if self.folded and len(text) > SHORT_RESULT and tool != context.search:
            handles = ", ".join(HANDLE_IN_TEXT.findall(text))
            return context.prompt("folded", tool=tool, chars=f"{len(text):,}", handles=handles).strip()
        return shorten(text, self.chars)[0]

    def show_summary(self, context: LoopContext) -> str:
        """Return the summary as the model sees it; "" if there is none."""
        return context.prompt("summary", summary=self.summary).strip() if self.summary else ""


def with_summary(question: str, summary: str) -> str:
    """Return the question, and below it the summary of old turns, if there is one."""
    return f"{question}\n\n{summary}" if summary else question


Attempt: TypeAlias = Callable[[View], Effects[Any]]
"""Asks the model with a view of the log. Its first effect is the model call."""


class Compaction:
    """Chooses what the model sees of one run's log. One a run.

    `question` is the task. `describe` returns an entry of the log as text, for a summary. The first `first` entries
    stay, such as a plan. `on_change` is called when the model is shown less than before.
    """

    def __init__(
        self,
        context: LoopContext,
        question: str,
        describe: Callable[[Any], str],
        *,
        first: int = 0,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._context, self._question, self._describe = context, question, describe
        self._on_change = on_change
        self._view = View(context.observation_chars, first=first)
        self._room: float = context.context_tokens
        self._tokens_a_byte = TOKENS_A_BYTE
        self._answered: tuple[Think, int] | None = None
        """The last answered request and its tokens, until they are needed."""

    def ask(self, attempt: Attempt, log: Sequence[Any], *, concluding: bool = False) -> Effects[Any]:
        """Run `attempt(view)` with a view of the log that fits, and return its result.

        `concluding`: only the reserved model call is left, so no summary is written. Raises `ContextOverflow` if the
        prompt is too long even with short results.
        """
        steps = attempt(self._view)
        first = next(steps)  # the prompt is rendered once if it fits
        if self._context.compact_at and self._room and self._count(first) > self._allowed:
            steps.close()
            yield from self._compact(attempt, log, concluding)
            steps = attempt(self._view)
            first = next(steps)
        while True:
            try:
                return (yield from pass_effects(steps, first, on_result=self._note_answered))
            except ContextOverflow as why:
                before = self._view
                # Learn from a refused prompt how many tokens fit, or how many tokens it has.
                tokens = self._count_tokens(attempt, self._view)
                if why.room:
                    self._tokens_a_byte *= max(1.0, (why.tokens or why.room) / tokens)
                self._room = why.room or min(self._room or math.inf, tokens)
                yield from self._compact(attempt, log, concluding)
                if self._view == before:
                    chars = yield from shorten_results(before.chars, why)
                    self._view = structs.replace(before, chars=chars)
                steps = attempt(self._view)
                first = next(steps)

    @property
    def _allowed(self) -> float:
        return self._room * (self._context.compact_at or 1.0)

    def _compact(self, attempt: Attempt, log: Sequence[Any], concluding: bool) -> Effects[None]:
        """Fold the results of as few old turns as necessary; if this does not suffice, summarize the turns."""
        before, target = self._view, self._allowed * TARGET
        last = max(before.folded, len(log) - KEPT_TURNS)

        def fits(folded: int) -> bool:
            return self._count_tokens(attempt, structs.replace(before, folded=folded)) <= target

        folded = before.folded + bisect_left(range(before.folded, last), True, key=fits)
        self._view = structs.replace(before, folded=folded)
        tokens = self._count_tokens(attempt, self._view)
        if tokens > target and not concluding and self._context.compact_at:
            saved = tokens - self._count_tokens(attempt, structs.replace(self._view, dropped=last))
            if saved > WORTH * self._allowed:
                yield from self._summarize(log, last)
                tokens = self._count_tokens(attempt, self._view)
        if tokens > self._allowed:
            self._view = structs.replace(self._view, folded=max(folded, len(log) - 1))
            tokens = self._count_tokens(attempt, self._view)
        if (more := self._count_tokens(attempt, before)) > tokens:
            how = "summarized" if self._view.dropped > before.dropped else "folded"
            self._on_change()
            yield from note("compacted", f"old turns are {how}: about {tokens:,.0f} tokens instead of {more:,.0f}")

    def _summarize(self, log: Sequence[Any], last: int) -> Effects[None]:
        """Replace the turns before `last` by a summary that the model writes. Without one, nothing changes."""
        view = self._view
        turns = [self._describe(entry) for entry in log[max(view.first, view.dropped) : last]]
        chars = int(self._allowed * TARGET / self._tokens_a_byte)
        texts = [without_tokens(shorten(turn, chars // len(turns))[0], self._context.special_tokens) for turn in turns]
        request = self._context.prompt(COMPACT, question=self._question, summary=view.summary, turns=texts)
        try:
            asked = Think(COMPACT, (user(request),), repair=True)
            reply: Reply = yield from continue_turn(asked, (yield asked))
        except ContextOverflow as why:
            yield from note("compacted", f"there is no summary: {why}")
            return
        if text := shorten(reply.text.strip(), chars // 2)[0]:
            self._view = structs.replace(view, dropped=last, summary=text)

    def _count_tokens(self, attempt: Attempt, view: View) -> float:
        return self._count(next(attempt(view)))

    def _count(self, effect: Effect) -> float:
        if self._answered is not None:
            (asked, reported), self._answered = self._answered, None
            self._tokens_a_byte = reported / measure_prompt(asked)[0]
        size, tokens = measure_prompt(effect)
        return size * self._tokens_a_byte + tokens

    def _note_answered(self, effect: Effect, result: Any) -> None:
        if not (isinstance(effect, Think) and isinstance(result, Reply) and result.usage.input_tokens):
            return
        if not any(message.attachments for message in effect.messages):  # whose tokens are only estimated
            self._answered = effect, result.usage.input_tokens


def measure_prompt(effect: Effect) -> tuple[int, int]:
    """Return the bytes of a prompt's texts, calls and tools (at least 1), and the estimated tokens of its files."""
    if not isinstance(effect, Think):
        return 1, 0
    parts: list[Any] = [effect.prompt, *effect.tools]
    tokens = 0
    for message in effect.messages:
        parts += (message.content, *message.calls)
        for file in message.attachments:
            tokens += file.tokens
    return max(1, len("".join(map(str, parts)).encode(errors="replace"))), tokens


def shorten_results(chars: int, why: ContextOverflow) -> Effects[int]:
    """Return a smaller number of characters for each result. Raises `why` if it is the smallest already."""
    if chars <= SMALLEST_OBSERVATION:
        raise why
    chars = max(SMALLEST_OBSERVATION, chars // 4)
    yield from note("shortened", f"{why}: observations are cut to {chars:,} characters")
    return chars


def fit_prompt(attempt: Callable[[int], Effects[Any]], chars: int) -> Effects[tuple[Any, int]]:
    """Run `attempt(chars)`; when the endpoint says the prompt is too long, again with shorter observations. Returns
    what the attempt gave and the size it went through with. For loops without a log that grows."""
    while True:
        try:
            return (yield from attempt(chars)), chars
        except ContextOverflow as why:
            chars = yield from shorten_results(chars, why)
