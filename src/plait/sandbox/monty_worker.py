"""The worker processes of pydantic-monty: one pool per process for all sessions, loops and threads, and the worker of a
session, which is taken on demand, saved after each piece, and restored.

A session that waits for its model or its tools holds a worker but uses no CPU, so there may be many more workers than
cores. The pool replaces a killed worker.
"""

from __future__ import annotations

import asyncio
import atexit
import builtins
import contextlib
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from plait.core.errors import ConfigError, PlaitError
from plait.installation import install_hint
from plait.sandbox.base import PRELUDE, Settings

if sys.platform == "linux":
    import resource

if TYPE_CHECKING:
    from pydantic_monty import AsyncMonty, AsyncMontySession

MAX_PROCESSES = 256
"""Maximum open sessions in one process. Each takes about 14 MB plus the data of its code."""

WAIT_SECONDS = 10.0
"""How long a session waits for a worker when all are in use."""

GRACE_SECONDS = 0.4
"""How long after its time limit Plait kills a worker that does not end by itself, for example in one multiplication."""

SETTLE_SECONDS = 0.5
"""How long the end of the program waits for the package's own threads."""

SAVED_BYTES = 1_000_000
"""A larger state is not saved again, because that would take some milliseconds per piece."""

_lock = threading.Lock()
_pools: dict[int, AsyncMonty] = {}  # by process id: a forked child does not own its parent's workers
_live: set[int] = set()


class NoWorker(PlaitError):
    """Raised when no worker is available: all are in use, or none could be started."""


def library() -> ModuleType:
    """Return the package pydantic_monty. Raises `ConfigError` if it is not installed."""
    try:
        import pydantic_monty
    except ImportError as missing:
        hint = install_hint("code")
        raise ConfigError("The sandbox 'monty' needs the package pydantic-monty.", hint=hint) from missing
    return pydantic_monty


def _apart(begin: Callable[[], Awaitable[Any]]) -> BaseException | None:
    """Await the result of `begin` in a separate event loop. Returns the exception that it raised, if any."""
    failed: list[BaseException] = []

    async def whole() -> None:
        await begin()

    def run() -> None:
        try:
            asyncio.run(whole())
        except BaseException as why:  # the package's panics are not an `Exception`
            failed.append(why)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join()
    return failed[0] if failed else None


def _unstarted(why: BaseException) -> NoWorker:
    return NoWorker(
        f"A process of the sandbox could not be started: {why}.",
        hint="Look for a limit on processes, open files or memory.",
    )


def pool() -> AsyncMonty:
    """Return this process's pool. The first call creates it (some milliseconds). Raises `NoWorker`."""
    with _lock:
        mine = _pools.get(os.getpid())
        if mine is None:
            try:
                mine = library().AsyncMonty(
                    max_processes=MAX_PROCESSES, checkout_timeout=WAIT_SECONDS, feed_duration_limit_grace=GRACE_SECONDS
                )
            except OSError as lost:  # the program of the package
                raise ConfigError(f"The sandbox 'monty' does not start: {lost}.", hint=install_hint("code")) from lost
            if (why := _apart(mine.__aenter__)) is not None:
                raise _unstarted(why)
            _pools[os.getpid()] = mine
            atexit.register(_close, os.getpid())
        return mine


async def checkout(settings: Settings) -> AsyncMontySession:
    """Take an empty worker. Raises `NoWorker` and `ConfigError`."""
    limits = settings.limits
    session = pool().checkout(
        script_name="code",
        limits={
            "max_feed_duration_secs": limits.seconds,
            "max_memory": limits.memory_mb << 20,
            "max_recursion_depth": limits.recursion,
            "max_suspensions": 2**31,  # the piece counts its calls; these limits hold for the worker's whole life
        },
        assert_message_annotations=False,
        os_policy={"datetime": "call_host", "sleep": "call_host", "random_start": {"seed": settings.seed}},
    )
    try:
        await session.__aenter__()
    except TimeoutError as full:
        raise NoWorker(
            f"All {MAX_PROCESSES} processes of the sandbox are taken, and none came free in {WAIT_SECONDS:g} s.",
            hint="Close sessions that are over, or run fewer at once.",
        ) from full
    except (library().MontyError, OSError, RuntimeError) as why:
        raise _unstarted(why) from why
    if session.worker_pid is not None:
        _live.add(session.worker_pid)
    return session


def stop(pid: int) -> None:
    if pid in _live:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))


def limit_cpu(pid: int, seconds: float) -> None:
    """Let the kernel end a worker after this much more CPU time, even if this process is gone."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, ValueError):
            used = time.clock_gettime((~pid << 3) | 2)  # linux: the processor time of a process, by its number
            cpu_limit = math.ceil(used + seconds + GRACE_SECONDS)
            hard = resource.prlimit(pid, resource.RLIMIT_CPU)[1]
            resource.prlimit(pid, resource.RLIMIT_CPU, (cpu_limit if hard < 0 else min(cpu_limit, hard), hard))


def _close(owner: int) -> None:
    """End all workers. A worker that still runs would call into an interpreter that has ended."""
    if os.getpid() != owner or owner not in _pools:
        return
    for pid in list(_live):
        stop(pid)
    _live.clear()
    with contextlib.suppress(Exception):
        mine = _pools.pop(owner)
        _apart(lambda: mine.__aexit__(None, None, None))
    # The package's threads still release Python objects. Doing that while the interpreter ends would abort it.
    deadline, still = time.monotonic() + SETTLE_SECONDS, 0
    while still < 4 and time.monotonic() < deadline:
        time.sleep(0.012)
        still = 0 if _running() else still + 1


def _running() -> bool:
    """Return whether another thread of this process runs or wants to, as far as the system reports it."""
    with contextlib.suppress(OSError):
        for thread in os.listdir("/proc/self/task"):
            if int(thread) != threading.get_native_id():
                with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/stat") as stat:
                    if stat.read().rpartition(")")[2].split()[0] == "R":
                        return True
    return False


class Worker:
    """A namespace in a worker process, or in a saved state until it is needed again."""

    def __init__(self, settings: Settings) -> None:
        self.fed = 0  # number of pieces fed: Monty uses it in the names of their files
        self._settings = settings
        self._monty: Any = library()
        self._session: AsyncMontySession | None = None
        self.pid: int | None = None
        """The worker's process id; None if there is none."""
        self._saved: tuple[bytes, int] | None = None
        self._saving = True
        self._closed = False

    async def ready(self) -> bool:
        """Get a worker with the saved state. Returns False if all names are lost. Raises `NoWorker`."""
        if self._session is not None:
            return True
        session = await checkout(self._settings)
        self._session, self.pid = session, session.worker_pid
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
        if self.pid is not None:
            limit_cpu(self.pid, self._settings.limits.seconds)
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
        if self.pid is not None:
            stop(self.pid)

    async def close(self, kill: bool) -> None:
        """Return the worker to the pool for good."""
        self._closed = True
        await self._drop(kill)

    async def _drop(self, kill: bool) -> None:
        session, pid, self._session, self.pid = self._session, self.pid, None, None
        if session is None:
            return
        if pid is not None:
            if kill:
                stop(pid)
            _live.discard(pid)
        with contextlib.suppress(Exception):
            await session.__aexit__(None, None, None)


def stub(name: str) -> Any:
    """Return a function of that name for a tool. Monty calls it by coming out."""

    def tool(*args: Any, **kwargs: Any) -> None:
        raise NotImplementedError

    tool.__name__ = name
    return tool
