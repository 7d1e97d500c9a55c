"""The sandbox "monty": a small Python of its own (pydantic-monty) in worker processes without access to anything.

A piece of code comes back at each call. Calls of the clock and of the machine are answered here (the machine's with
PermissionError); any other becomes a call of the turn. An awaited call (see `awaited.py`) gets a promise. When the code
cannot continue, all promises become one turn.

Plait saves the worker's state after each piece (less than a millisecond). It restores it after a time or memory limit,
a dead worker, or a piece that is given up. A state too large to save is lost then.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Sequence
from typing import Any, get_args

from msgspec import structs

from plait.core.code import CodeError, CodeLimit, CodeLimits
from plait.core.errors import ConfigError
from plait.sandbox.base import Result, SandboxTurn, Settings, check_results, code_error
from plait.sandbox.monty_piece import MontyPiece, Over, clock
from plait.sandbox.monty_refusals import find_unsupported
from plait.sandbox.monty_values import Unfit, Values, plain
from plait.sandbox.monty_worker import Worker, library
from plait.sandbox.piece_limits import describe_limit
from plait.sandbox.worker_values import clean

_HOLDS = re.compile(r"\b(try|with|return_exceptions|exec|eval|wait|wait_for|timeout|__exit__)\b")
"""Code without these words cannot catch or delay an exception."""

UNDONE = "Names are as they were before this piece."

_LACKS = re.compile(r"The monty syntax parser does not yet support (?P<what>.*)", re.DOTALL)
_INSTEAD = {
    "inheritance": "Write a plain class, a function, or a dict; raise ValueError for errors of your own.",
    "yield": "Build a list and return it.",
    "'del'": "Assign None instead, or pop() the item.",
    "async with": "Call the functions without a context manager.",
    "decorator": "Write a plain method or function.",
    "suspend": "Call the tool in a for loop or a comprehension, not from a key function, filter, or a mapped lambda.",
}


class MontySandbox:
    name = "monty"

    async def open(self, settings: Settings) -> MontySession:
        session = MontySession(settings)
        await session.worker.ready()
        return session


class MontySession:
    """One namespace in one worker. Made by `MontySandbox.open`."""

    def __init__(self, settings: Settings) -> None:
        self._monty: Any = library()
        self.settings = settings
        self.values = Values()
        self._exceptions = frozenset(get_args(self._monty.ExcType))
        self.worker = Worker(settings)
        self.sources: dict[str, str] = {}  # the pieces so far, by file name
        self._piece: MontyPiece | None = None
        self._busy = False
        self._closed = False

    # the interface

    async def run(self, code: str, now: float, zone: int | None = None) -> SandboxTurn:
        if self._busy:
            raise ConfigError("This session runs a piece of code already.", hint="Wait for it, or open another.")
        if self._closed:
            return SandboxTurn(error=CodeError("RuntimeError", "the session is closed"), lost=True)
        if self._piece is not None:
            await self._unwind(self._piece)
            self._piece = None
        if not await self.worker.ready():
            self._forget()
            gone = "what the session had can't be had again: its names are gone"
            return SandboxTurn(error=CodeError("RuntimeError", gone), lost=True)
        filename = f"<python-input-{self.worker.fed}>"
        self._piece = piece = MontyPiece(self, code, filename, clock(now, zone), self.worker.kill)
        try:
            code.encode()
        except UnicodeEncodeError:
            return self._end(CodeError("SyntaxError", "the code has lone surrogates, which no text may have"))
        if (found := find_unsupported(code, self.sources.values(), self.settings.functions)) is not None:
            line, why = found
            return self._end(code_error(code, "NotImplementedError", why, line))
        self.sources[filename] = piece.fed
        return await self._go(self.worker.feed(piece.fed, piece.print), piece)

    async def go_on(self, results: Sequence[Result]) -> SandboxTurn:
        piece = self._piece
        if piece is None or piece.at is None or self._busy:
            raise ConfigError("No code waits for results here.", hint="Run a piece of code first.")
        check_results(results, len(piece.calls))
        answers = [self._answer(result) for result in results]
        at, ids = piece.at, piece.ids
        piece.came_back()
        if ids is None:
            return await self._go(at.resume(answers[0]), piece)
        return await self._go(at.resume(dict(zip(ids, answers, strict=True))), piece)

    async def close(self) -> None:
        self._closed = True
        await self.worker.close(kill=self._piece is not None)

    # a piece from one turn to the next

    async def _go(self, step: Awaitable[Any], piece: MontyPiece) -> SandboxTurn:
        self._busy = True
        try:
            while True:
                began = time.perf_counter()
                try:
                    at = await step
                finally:
                    piece.use.seconds += time.perf_counter() - began
                if isinstance(at, self._monty.MontyComplete):
                    await self.worker.save()
                    return self._end(None)
                try:
                    after = piece.next_step(at)
                except Over as over:  # it waits at a call: none of its code runs any more
                    line, piece.at = piece.line(at.position), at
                    undone, lost = await self._unwind(piece)
                    error = self._limit(piece, over.limit, undone and not lost, line, over.message)
                    return self._end(error, lost)
                if after is None:
                    return piece.turn()
                step = after
        except asyncio.CancelledError:
            self._piece = None
            await asyncio.shield(self._back())
            raise
        except (self._monty.MontySyntaxError, self._monty.MontyRuntimeError) as problem:
            return await self._failed(problem, piece)
        except (self._monty.MontyError, RuntimeError) as problem:
            return await self._died(problem, piece)
        finally:
            self._busy = False

    def _end(self, error: CodeError | None, lost: bool = False) -> SandboxTurn:
        piece, self._piece = self._piece, None
        assert piece is not None
        return piece.turn(error, lost, last=True)

    async def _failed(self, problem: Any, piece: MontyPiece) -> SandboxTurn:
        error = read_error(problem, piece, self.settings.limits)
        if error.limit in ("time", "memory"):
            lost = await self._back()
            message = error.message if lost else f"{error.message}. {UNDONE}"
            return self._end(structs.replace(error, message=message), lost)
        await self.worker.save()
        return self._end(error)

    async def _died(self, problem: Exception, piece: MontyPiece) -> SandboxTurn:
        if self._closed:
            return self._end(CodeError("RuntimeError", "the session was closed"), lost=True)
        lost = await self._back()
        limit: CodeLimit = ""
        if piece.flooded:
            limit = "output"
        elif getattr(problem, "timed_out", False):
            limit = "time"
        elif "memory limit" in str(problem):
            limit = "memory"
        return self._end(self._limit(piece, limit, not lost, message=f"the sandbox's process ended ({problem})"), lost)

    def _limit(self, piece: MontyPiece, limit: CodeLimit, undone: bool, line: int = 0, message: str = "") -> CodeError:
        """Make the error for a limit; without one, from the message."""
        kind, words = describe_limit(limit, self.settings.limits)
        text = f"{words or message}. {UNDONE}" if undone else f"{words or message}."
        return code_error(piece.code, kind, text, line, limit)

    async def _unwind(self, piece: MontyPiece) -> tuple[bool, bool]:
        """End a waiting piece. Returns whether the piece was undone, and whether all names were lost. If the code
        cannot catch an exception, Plait raises one at the call and keeps the names made so far."""
        waits = getattr(piece.at, "pending_call_ids", None)
        earlier = (one for one in self.sources.values() if re.search(r"\b(def|class|lambda)\b", one))
        if piece.at is not None and waits != [] and not any(map(_HOLDS.search, (piece.code, *earlier))):
            given_up = {"exc_type": "KeyboardInterrupt", "message": "given up"}
            try:
                await piece.at.resume(given_up if waits is None else dict.fromkeys(waits, given_up))
            except self._monty.MontyRuntimeError as problem:
                if "given up" in str(problem):
                    await self.worker.save()
                    return False, False
            except (self._monty.MontyError, RuntimeError):
                pass
        return True, await self._back()

    async def _back(self) -> bool:
        """Restore the saved state. Returns True if nothing was saved, so all names are lost."""
        lost = not await self.worker.back()
        if lost:
            self._forget()
        return lost

    def _forget(self) -> None:
        self.worker.forget()
        self.values = Values()
        self.sources.clear()

    # answers

    def _answer(self, result: Result) -> Any:
        if result.error:
            return self.make_error_answer(result.error, result.message)
        try:
            return {"return_value": self.values.inward(result.value)}
        except Unfit as unfit:
            return self.make_error_answer("TypeError", str(unfit))

    def make_error_answer(self, kind: str, message: str) -> Any:
        """Return the answer that raises an exception. One unknown to Monty becomes a RuntimeError with its name."""
        if kind not in self._exceptions:
            kind, message = "RuntimeError", f"{kind}: {message}"
        return {"exc_type": kind, "message": clean(message)}


def read_error(problem: Any, piece: MontyPiece, limits: CodeLimits) -> CodeError:
    """Turn a `MontyRuntimeError` or `MontySyntaxError` of a piece into an error. The line is that of the innermost
    frame inside the piece. If a function of an earlier piece failed, it is the line of the call."""
    kind, _, message = problem.display("type-msg").partition(": ")
    kind, message = kind.rpartition(".")[2], plain(message)
    frames = [frame for frame in problem.traceback() if frame.filename == piece.filename]
    line = frames[-1].line if frames else 0
    limit: CodeLimit = "recursion" if kind == "RecursionError" else ""
    if kind == "TimeoutError" and not problem.traceback() and "time limit exceeded" in message:
        limit = "time"
    elif kind == "MemoryError" and ("memory limit" in message or not message):
        limit = "memory"
    message = describe_limit(limit, limits)[1] if limit else _clear(kind, message)
    return code_error(piece.code, kind, message, line, limit)


def _clear(kind: str, message: str) -> str:
    lacks = _LACKS.match(message)
    if lacks:
        message = f"This Python does not have {lacks['what']}."
    elif kind == "NotImplementedError" and "cannot suspend" in message:
        message = f"A tool can't be called from here ({message})."
    elif kind == "TypeError" and message.endswith("can't be awaited"):
        return f"{message} (what a tool gave is awaited where the tool is called, or not at all)"
    if kind == "NotImplementedError":
        hint = next((hint for word, hint in _INSTEAD.items() if word in message), "")
        return f"{message} {hint}".strip()
    return message
