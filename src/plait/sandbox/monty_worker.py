"""The worker of one session: taken from the pool on demand, saved after each piece, and restored."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from plait.sandbox.base import PRELUDE, Settings
from plait.sandbox.monty_pool import checkout, give_back, library, limit_cpu, stop

if TYPE_CHECKING:
    from pydantic_monty import AsyncMontySession

SAVED_BYTES = 1_000_000
"""A larger state is not saved again, because that would take some milliseconds per piece."""


class Worker:
    """A namespace in a worker process, or in a saved state until it is needed again."""

    def __init__(self, settings: Settings) -> None:
        self.fed = 0  # number of pieces fed: Monty uses it in the names of their files
        self._settings = settings
        self._monty: Any = library()
        self._session: AsyncMontySession | None = None
        self._pid: int | None = None
        self._saved: tuple[bytes, int] | None = None
        self._saving = True
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Return the worker's process id; None if there is none."""
        return self._pid

    async def ready(self) -> bool:
        """Get a worker with the saved state. Returns False if the state could not be restored, so all names are lost.

        Raises `NoWorker`.
        """
        if self._session is not None:
            return True
        session = await checkout(self._settings.limits, self._settings.seed)
        self._session, self._pid = session, session.worker_pid
        kept = True
        try:
            if self._saved is None:
                await self._begin(session)
            else:
                state, self.fed = self._saved
                await session.load_session(state)
        except (self._monty.MontyError, RuntimeError):
            kept = self._saved is None
            await self.back()
            self.forget()
            if kept:
                raise
        except BaseException:
            await self.back()
            raise
        if self._closed:
            await self.back()
        return kept

    async def _begin(self, session: AsyncMontySession) -> None:
        # A tool named like a builtin must be defined first: only undefined names come out.
        own = {name: stub(name) for name in self._settings.functions if hasattr(builtins, name)}
        await session.feed_run(PRELUDE, external_lookup={}, inputs=own or None)
        self.fed, self._saving = 1, True
        await self.save()

    def feed(self, code: str, printed: Callable[[str, str], None]) -> Awaitable[Any]:
        """Start a piece of code. Call `ready` first."""
        assert self._session is not None
        self.fed += 1
        if self._pid is not None:
            limit_cpu(self._pid, self._settings.limits.seconds)
        return self._session.feed_start(code, print_callback=printed)

    async def save(self) -> None:
        if not self._saving or self._session is None:
            return
        try:
            state = await self._session.dump()
        except (self._monty.MontyError, RuntimeError):
            self._saved = None
            return
        self._saved = (state, self.fed)
        if len(state) > SAVED_BYTES:
            self._saved, self._saving = None, False

    async def back(self) -> bool:
        """Drop the worker and use the saved state. Returns False if there is none, so all names are lost."""
        await self._drop(kill=True)
        return self._saved is not None

    def forget(self) -> None:
        """Start with an empty state next time."""
        self._saved, self._saving, self.fed = None, True, 0

    def kill(self) -> None:
        """Kill its process. The current work fails."""
        if self._pid is not None:
            stop(self._pid)

    async def close(self, kill: bool) -> None:
        """Return the worker to the pool for good."""
        self._closed = True
        await self._drop(kill)

    async def _drop(self, kill: bool) -> None:
        session, pid, self._session, self._pid = self._session, self._pid, None, None
        if session is not None:
            await give_back(session, pid, kill)


def stub(name: str) -> Any:
    """Return a function of that name for a tool. Monty calls it by coming out."""

    def tool(*args: Any, **kwargs: Any) -> None:
        raise NotImplementedError

    tool.__name__ = name
    return tool
