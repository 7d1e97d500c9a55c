"""The worker of one session: taken from the pool when it is needed, saved after each piece, gone back to."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from plait.sandbox.base import PRELUDE, Settings
from plait.sandbox.monty_pool import checkout, give_back, library, limit_cpu, stop

if TYPE_CHECKING:
    from pydantic_monty import AsyncMontySession

SAVED_BYTES = 1_000_000
"""A state that is bigger when saved is not saved again: it would take some milliseconds at each piece."""


class Worker:
    """A namespace in a worker process, or in what was saved of it until it is needed again."""

    def __init__(self, settings: Settings) -> None:
        self.fed = 0  # pieces that it was given: Monty counts them in the names of their files
        self._settings = settings
        self._monty: Any = library()
        self._session: AsyncMontySession | None = None
        self._pid: int | None = None
        self._saved: tuple[bytes, int] | None = None
        self._saving = True
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The worker's process id, None while there is none."""
        return self._pid

    async def ready(self) -> bool:
        """Have a worker, with what was saved. False when that could not be had again and all names are gone.

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
        # A tool that is called as a builtin is must be there before it: only names that are not defined come out.
        own = {name: stub(name) for name in self._settings.functions if hasattr(builtins, name)}
        await session.feed_run(PRELUDE, external_lookup={}, inputs=own or None)
        self.fed, self._saving = 1, True
        await self.save()

    def feed(self, code: str, printed: Callable[[str, str], None]) -> Awaitable[Any]:
        """Begin a piece of code. `ready` comes before it."""
        assert self._session is not None
        self.fed += 1
        if self._pid is not None:
            limit_cpu(self._pid, self._settings.limits.seconds)
        return self._session.feed_start(code, print_callback=printed)

    async def save(self) -> None:
        """Keep what is there now, to go back to."""
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
        """Drop the worker, whatever it does, for what was saved. False when nothing was: all names are gone."""
        await self._drop(kill=True)
        return self._saved is not None

    def forget(self) -> None:
        """Begin anew when next needed."""
        self._saved, self._saving, self.fed = None, True, 0

    def kill(self) -> None:
        """End its process; what it was doing fails."""
        if self._pid is not None:
            stop(self._pid)

    async def close(self, kill: bool) -> None:
        """Give the worker back for good."""
        self._closed = True
        await self._drop(kill)

    async def _drop(self, kill: bool) -> None:
        session, pid, self._session, self._pid = self._session, self._pid, None, None
        if session is not None:
            await give_back(session, pid, kill)


def stub(name: str) -> Any:
    """A function of that name, for a tool: Monty calls it by coming out."""

    def tool(*args: Any, **kwargs: Any) -> None:
        raise NotImplementedError

    tool.__name__ = name
    return tool
