"""Objects whose methods are tools: their calls run one at a time, and on one thread.

Theory of operation. A call waits for its turn, in the order of the calls. Calls that agents of a method make on the
same object form a line of their own: they run while the method waits for the agent. A call that waits for a call that
waits for itself is refused. The synchronous methods run on one thread, because some resources check that. A call that
was given up keeps the thread; the next ones are refused until it ends.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from functools import partial
from inspect import isawaitable, isroutine, signature
from types import ModuleType
from typing import Any
from weakref import WeakValueDictionary, finalize

from plait.core.errors import ToolError
from plait.tools.threads import ObjectThread, StartWork, Work, run_in_thread, start_thread
from plait.tools.user_code import show_error

_LOCK = threading.RLock()
_GIVEN: WeakValueDictionary[int, ToolObject] = WeakValueDictionary()
"""The objects that users made, by their identity."""
_uses: ContextVar[tuple[ObjectUse, ...]] = ContextVar("plait_object_uses", default=())
"""The uses of objects by the calls around this one, outermost first."""
_waiting: set[ObjectUse] = set()


def is_lifecycle(kind: type, name: str) -> bool:
    """Return whether a method opens or closes the object, and is no tool: `close`, `aclose`, and `open` beside them,
    without required parameters and without `@plait.tool`."""
    from plait.tools.tool import Tool

    method = getattr(kind, name, None)
    if not callable(method) or isinstance(method, Tool) or name not in ("open", "close", "aclose"):
        return False
    with suppress(TypeError, ValueError):  # a method in C does not show its parameters
        given = list(signature(method).parameters.values())[1:]
        if any(
            each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in given
        ):
            return False
    return name != "open" or is_lifecycle(kind, "close") or is_lifecycle(kind, "aclose")


class ObjectUse:
    """A call's use of an object. `before`: the use that it waits for; `last`: the last one by agents of this call."""

    def __init__(self, owner: ToolObject, within: tuple[ObjectUse, ...]) -> None:
        self.owner, self.within, self.process = owner, within, os.getpid()
        self.before: ObjectUse | None = None
        self.last: ObjectUse | None = None
        self.done: Future[None] = Future()
        self.done.set_running_or_notify_cancel()  # nobody who waits can cancel it

    def end(self, _: object = None) -> None:
        self.before = None
        self.done.set_result(None)


class ToolObject:
    """An object whose methods are tools. `item` is the user's own; `make` makes one for a run, which closes it.

    `is_async`: the object is made, opened and closed on the event loop, and not on its thread.
    """

    def __init__(self, item: Any = None, make: Callable[[], Any] | None = None, is_async: bool = False) -> None:
        self.item, self._make, self._is_async = item, make, is_async
        self.last: ObjectUse | None = None
        self._thread: ObjectThread | None = None
        self._is_open = self._is_over = False

    @classmethod
    def of(cls, item: Any) -> ToolObject:
        """Return the object that the user made, the same one for all its methods and all agents."""
        with _LOCK:
            return _GIVEN.setdefault(id(item), cls(item))

    @property
    def is_made(self) -> bool:
        """Whether it is an object that was made for a run."""
        return self._make is not None and self.item is not None

    def __reduce__(self) -> Any:
        return ToolObject.of, (self.item,)  # threads and turns stay in the process

    def start(self, job: Work) -> None:
        """Do a job on the object's thread."""
        with _LOCK:
            if self._thread is None or not self._thread.is_alive():  # a forked process does not have it
                self._thread = ObjectThread()
                finalize(self, self._thread.end)
            thread = self._thread
        thread.add(job)

    @asynccontextmanager
    async def use(self, tool: str, seconds: float, parallel: bool) -> AsyncIterator[StartWork]:
        """Wait for the call's turn, open the object, and give what starts the call: its thread, or with `parallel` a
        new one. Raises `ToolError` if the object is not free and open within `seconds` after the calls before it."""
        if parallel and (self._make is None or self._is_open):
            yield start_thread
            return
        async with self._turn(tool):
            try:
                async with asyncio.timeout(seconds) as clock:
                    await self._open()
            except Exception as why:
                busy = "it is still being opened, or busy with a call that was given up"
                said = busy if isinstance(why, TimeoutError) and clock.expired() else show_error(why)
                raise ToolError(f"'{tool}' was not called, because its object cannot be used: {said}.") from why
            if not parallel:
                yield self.start
                return
        yield start_thread

    @asynccontextmanager
    async def _turn(self, tool: str) -> AsyncIterator[None]:
        within = tuple(
            each for each in _uses.get() if not each.done.done()
        )  # a task may outlive the call that began it
        use = ObjectUse(self, within)
        line: ToolObject | ObjectUse = next((each for each in reversed(within) if each.owner is self), self)
        with _LOCK:
            if line.last is not None and line.last.process == use.process:  # the calls before a fork never end here
                use.before = line.last
            if _waits_for_itself(use):
                raise ToolError(f"'{tool}' was not called: its object is busy with a call that waits for this one.")
            line.last = use
            _waiting.add(use)
        _uses.set((*within, use))
        try:
            if use.before is not None:
                await asyncio.wait([asyncio.wrap_future(use.before.done)])
                use.before = None
            _waiting.discard(use)
            yield
        finally:
            _uses.set(within)
            _waiting.discard(use)
            if use.before is None:
                use.end()
            else:  # it was cancelled; the next one waits for those before it
                use.before.done.add_done_callback(use.end)

    async def _open(self) -> None:
        """Make and open the object if that is still to be done, and wait until its thread is free."""
        opening = self._begin() if self._is_async else None
        if not self._is_async or self._thread is not None:
            opening = await run_in_thread(lambda: None if self._is_async else self._begin(), self.start) or opening
        if opening is not None:
            await opening
            self._is_open = True

    def _begin(self) -> Any:
        """Make and open the object. Returns what is to be awaited."""
        if self._make is None or self._is_open:
            return None
        if self._is_over:
            raise ToolError("the run has ended")
        if self.item is None:
            self.item = self._make()
        kind = type(self.item)
        entering = [f"__{a}enter__" for a in self._prefixes if hasattr(kind, f"__{a}enter__")]
        enter = [*entering, *(["open"] if is_lifecycle(kind, "open") else [])][:1]
        opening = getattr(self.item, enter[0])() if enter else None
        self._is_open = not isawaitable(opening)
        return None if self._is_open else opening

    @property
    def _prefixes(self) -> tuple[str, str]:
        return ("a", "") if self._is_async else ("", "a")

    async def close(self) -> list[str]:
        """Close the object that a run made. Returns what failed, in words."""
        self._is_over = True
        kind, failed = type(self.item), list[str]()
        leave = [f"__{a}exit__" for a in self._prefixes if self._is_open and hasattr(kind, f"__{a}exit__")][:1]
        close = [f"{a}close" for a in self._prefixes if is_lifecycle(kind, f"{a}close")][:1]
        steps = [partial(getattr(self.item, name), *(None,) * 3 * (name in leave)) for name in (*leave, *close)]

        def work() -> Any:
            # All that need not be awaited is one job: the thread does it also when nobody waits any more.
            while steps:
                try:
                    if isawaitable(result := steps.pop(0)()):
                        return result
                except BaseException as why:  # also SystemExit: the thread goes on
                    failed.append(show_error(why))
            return None

        try:
            while steps:
                result = work() if self._is_async else await run_in_thread(work, self.start)
                try:
                    _ = result and await result
                except BaseException as why:
                    failed.append(show_error(why))
        finally:
            if self._thread is not None:
                self._thread.end()
        return failed


def _waits_for_itself(use: ObjectUse) -> bool:
    """Return whether a call around this one would wait for it, and it for that call."""
    reached = {use.before} if use.within and use.before is not None else set()
    while True:
        more = {
            each.before
            for each in _waiting
            if each.before is not None and (each in reached or not reached.isdisjoint(each.within))
        } - reached
        if not more:
            return not reached.isdisjoint(use.within)
        reached |= more


def find_owner(function: Any) -> ToolObject | None:
    """Return the object whose method a function is, also in `partial` and `wraps`, or that is called; else None."""
    while (item := getattr(function, "__self__", None)) is None:
        if isinstance(function, partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            item = None if isroutine(function) else function
            break
    return None if item is None or isinstance(item, type | ModuleType) else ToolObject.of(item)
