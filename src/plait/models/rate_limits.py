"""Rate limits of endpoints: requests and tokens per minute, for all runs of this process.

An endpoint has one queue per process. A request joins it with an estimate of its tokens and gets the first time at
which no window of 60 seconds exceeds a limit. When the reply is known, its tokens replace the estimate.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Annotated

from msgspec import Meta, Struct

MINUTE = 60.0


class RateLimit(Struct, frozen=True):
    """How many requests and tokens (prompt and reply) an endpoint may get in a minute; None for no limit."""

    requests_per_minute: Annotated[int, Meta(ge=1)] | None = None
    tokens_per_minute: Annotated[int, Meta(ge=1)] | None = None

    def __str__(self) -> str:
        """Return the limits in words: `60 requests and 100,000 tokens per minute`."""
        given = ((self.requests_per_minute, "requests"), (self.tokens_per_minute, "tokens"))
        parts = [f"{count:,} {name}" for count, name in given if count is not None]
        return f"{' and '.join(parts)} per minute"


class RequestTurn(Struct, eq=False):
    """A request's place in the `queue` of its endpoint, if any. `at`: the time to send it; `tokens`: what it counts."""

    queue: RateLimiter | None = None
    at: float = 0.0
    tokens: int = 0

    def settle(self, tokens: int) -> None:
        """Replace the estimated tokens by those of the reply."""
        self.tokens = tokens

    def give_back(self) -> None:
        """Leave the queue: the request was not sent."""
        if self.queue is not None:
            self.queue.remove(self)


class RateLimiter:
    """The queue of one endpoint. Usable from any thread and event loop."""

    def __init__(
        self,
        limit: RateLimit,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.limit = limit
        self._clock = clock
        self._sleep = sleep
        self._turns: deque[RequestTurn] = deque()
        self._lock = threading.Lock()

    async def wait(self, tokens: int, on_wait: Callable[[float], None] = lambda _: None) -> RequestTurn:
        """Wait for a turn. `on_wait` gets the seconds before a wait. A cancelled wait gives its place back."""
        turn = self._reserve(tokens)
        try:
            if (seconds := turn.at - self._clock()) > 0:
                on_wait(seconds)
                await self._sleep(seconds)
        except BaseException:
            turn.give_back()
            raise
        return turn

    def remove(self, turn: RequestTurn) -> None:
        """Remove a turn whose request was not sent. The others keep their times."""
        with self._lock:
            if turn in self._turns:
                self._turns.remove(turn)

    def _reserve(self, tokens: int) -> RequestTurn:
        with self._lock:
            now = self._clock()
            turns = self._turns
            while turns and turns[0].at <= now - MINUTE:
                turns.popleft()
            at = max(now, turns[-1].at) if turns else now
            max_requests, max_tokens = self.limit.requests_per_minute, self.limit.tokens_per_minute
            if max_requests is not None and len(turns) >= max_requests:
                at = max(at, turns[-max_requests].at + MINUTE)
            if max_tokens is not None:
                # A request above the limit by itself waits until the minute before it is empty.
                room = max_tokens - min(tokens, max_tokens)
                for turn in reversed(turns):
                    room -= turn.tokens
                    if room < 0:
                        at = max(at, turn.at + MINUTE)
                        break
            made = RequestTurn(self, at, tokens)
            turns.append(made)
            return made


_limiters: dict[tuple[str, RateLimit], RateLimiter] = {}
_lock = threading.Lock()


def limiter_of(endpoint: str, limit: RateLimit) -> RateLimiter:
    """Return the queue that all runs of this process share for an endpoint."""
    with _lock:
        return _limiters.setdefault((endpoint, limit), RateLimiter(limit))
