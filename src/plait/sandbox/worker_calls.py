"""Calls out of the worker: objects for tools and for handles, the event loop of awaited calls, and how code that is not
strict about `await` runs correctly.

A tool looks at the place of its call to find out whether it is awaited (see `awaited`). An undefined name does the
same, to find out whether it is called or read. Stdlib only.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import inspect
import sys
import types
from asyncio.base_events import BaseEventLoop
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from plait.sandbox.worker_determinism import Clock

Place = tuple[int, int]

SOFT, SOFT_RETURN = " await", " return"
"""The functions that awaited values pass through. No code can write their names."""


@dataclass
class WorkerPiece:
    """A piece of code: its file name, its text, and the places of its awaited calls and of its called names."""

    file: str
    code: str
    awaited: set[Place] = field(default_factory=set)
    called: set[Place] = field(default_factory=set)


@dataclass
class WorkerCall:
    """A call out as JSON, and the line of the call."""

    data: list[Any]
    line: int


class HandleTable:
    """The handles of the session, by tokens that cannot be guessed."""

    def __init__(self) -> None:
        self.by_token: dict[str, WorkerHandle] = {}
        self.tokens: dict[int, str] = {}

    def make(self, token: str, about: str) -> WorkerHandle:
        if token not in self.by_token:
            handle = object.__new__(WorkerHandle)
            _words[id(handle)] = about
            self.by_token[token] = handle
            self.tokens[id(handle)] = token
        return self.by_token[token]

    def token(self, value: Any) -> dict[str, str] | None:
        token = self.tokens.get(id(value))
        return None if token is None else {"$handle": token}


_words: dict[int, str] = {}


class WorkerHandle:
    """An object that tools return and accept. It is empty."""

    __slots__ = ()

    def __new__(cls, *_: Any) -> WorkerHandle:
        raise TypeError("a handle can't be made; tools give them")

    def __repr__(self) -> str:
        return _words.get(id(self), "<a thing>")

    __str__ = __repr__

    def __hash__(self) -> int:
        return hash(repr(self))  # not its address, so that sets of them have the same order each time

    def __eq__(self, other: object) -> bool:
        return self is other

    def __copy__(self) -> WorkerHandle:
        return self

    def __deepcopy__(self, _: Any) -> WorkerHandle:
        return self

    def __reduce_ex__(self, _: Any) -> Any:
        raise TypeError("a handle can't be written down")


WorkerHandle.__name__ = WorkerHandle.__qualname__ = "Handle"  # the name that code sees


class CallSender:
    """Make calls: `ask` takes calls, waits, and returns their results, each a value or an exception."""

    def __init__(
        self,
        ask: Callable[[list[WorkerCall]], list[Any]],
        pack: Callable[[str, tuple[Any, ...], dict[str, Any]], list[Any]],
    ) -> None:
        self.ask = ask
        self.pack = pack
        self.pieces: dict[str, WorkerPiece] = {}
        self.loop: LoopRun | None = None
        self.raisable: dict[str, type[Exception]] = {}

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], frame: types.FrameType) -> Any:
        piece, place = self.place(frame)
        if piece is None or place not in piece.awaited:
            (result,) = self.ask([WorkerCall(self.pack(name, args, kwargs), place[0] if piece else 0)])
            if isinstance(result, Raised):
                raise result.exception
            return result
        later: Any = self.later(name, args, kwargs, place[0])
        later.__name__ = later.__qualname__ = name
        return later

    async def later(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], line: int) -> Any:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, LoopRun)
        return await loop.out(WorkerCall(self.pack(name, args, kwargs), line))

    def place(self, frame: types.FrameType) -> tuple[WorkerPiece | None, Place]:
        """Return the place of a frame in a piece of code: line and column (in bytes) of its current expression."""
        piece = self.pieces.get(frame.f_code.co_filename)
        if piece is None:
            return None, (0, 0)
        for at, (line, _, column, _) in enumerate(frame.f_code.co_positions()):
            if at == frame.f_lasti // 2:
                return piece, (line or 0, -1 if column is None else column)
        return piece, (0, 0)

    def exception(self, name: str, message: str) -> Exception:
        """Return an exception of that name: Python's own, or one made for it."""
        known = getattr(builtins, name, None)
        if isinstance(known, type) and issubclass(known, Exception) and not issubclass(known, StopIteration):
            try:
                return known(message)
            except TypeError:
                pass
        if name not in self.raisable:
            self.raisable[name] = type(name, (Exception,), {"__module__": "builtins"})
        return self.raisable[name](message)


@dataclass
class Raised:
    """A result that is an exception."""

    exception: Exception


class ToolFunction:
    """A function whose calls go out."""

    __slots__ = ("__name__", "_call")

    def __init__(self, name: str, call: Callable[..., Any]) -> None:
        self.__name__ = name
        self._call = call

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._call(self.__name__, args, kwargs, sys._getframe(1))

    def __repr__(self) -> str:
        return f"<tool {self.__name__}>"


ToolFunction.__name__ = ToolFunction.__qualname__ = "Tool"  # the name that code sees


class Names(dict[str, Any]):
    """The builtins, including the tools. An unknown name counts as a tool where it is called."""

    calls: CallSender

    def __missing__(self, name: str) -> Any:
        piece, place = self.calls.place(sys._getframe(1))
        if piece is None or place not in piece.called:
            raise KeyError(name)
        return ToolFunction(name, self.calls.call)


class LoopRun(BaseEventLoop):
    """An event loop without sockets. When idle, it makes all awaited calls, or else skips to the next timer."""

    def __init__(self, ask: Callable[[list[WorkerCall]], list[Any]], clock: Clock) -> None:
        super().__init__()
        self._selector = self
        self._ask = ask
        self._clock = clock
        self._now = 0.0
        self._out: list[tuple[WorkerCall, asyncio.Future[Any]]] = []

    def out(self, call: WorkerCall) -> asyncio.Future[Any]:
        future = self.create_future()
        self._out.append((call, future))
        return future

    def time(self) -> float:
        return self._now

    def select(self, timeout: float | None) -> list[Any]:
        if timeout == 0:
            return []
        waiting = [(call, future) for call, future in self._out if not future.done()]
        self._out.clear()
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        if waiting:
            results = self._ask([call for call, _ in waiting])
            for (_, future), result in zip(waiting, results, strict=True):
                if isinstance(result, Raised):
                    future.set_exception(result.exception)
                else:
                    future.set_result(result)
        elif scheduled:
            when = scheduled[0].when()
            self._clock.sleep(max(0.0, when - self._now))
            self._now = max(self._now, when)
        else:
            raise RuntimeError("the code awaits something that will never come")
        return []

    def _process_events(self, events: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


class Ready:
    """A value as an awaitable."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __await__(self) -> Generator[Any, None, Any]:
        return self.value
        yield


class Soft(ast.NodeTransformer):
    """Make `await` of a plain value return the value, and `return tool(...)` in an `async def` return its result.
    `returned` are the awaited calls that an `async def` returns."""

    def __init__(self, returned: list[ast.Call]) -> None:
        self.returned = returned

    def visit_Await(self, node: ast.Await) -> ast.AST:
        self.generic_visit(node)
        node.value = self._call(SOFT, node.value)
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        call = node.value
        self.generic_visit(node)
        if isinstance(call, ast.Call) and call in self.returned:
            node.value = ast.copy_location(ast.Await(self._call(SOFT_RETURN, call)), call)
        return node

    def _call(self, name: str, value: ast.expr) -> ast.expr:
        function = ast.copy_location(ast.Name(name, ast.Load()), value)
        return ast.copy_location(ast.Call(function, [value], []), value)


def soft(value: Any) -> Any:
    return value if inspect.isawaitable(value) else Ready(value)


def soft_return(value: Any) -> Any:
    return value if inspect.iscoroutine(value) else Ready(value)
