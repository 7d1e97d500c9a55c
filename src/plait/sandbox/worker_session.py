"""The namespace of a session, and the threads that run its pieces of code, one at a time. Stdlib only.

A piece that waits for calls blocks its thread. A piece that is given up stays blocked for ever, without `except` or
`finally`; another thread takes over. All threads start before the process is locked, because none can start later.
"""

from __future__ import annotations

import _thread
import ast
import asyncio
import inspect
import json
import mmap
import os
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

from plait.sandbox.awaited import awaited_in, returned_calls
from plait.sandbox.piece_limits import MESSAGE_CHARS, PieceUse, describe_limit
from plait.sandbox.worker_calls import (
    SOFT,
    SOFT_RETURN,
    CallSender,
    HandleTable,
    LoopRun,
    Names,
    Raised,
    Soft,
    ToolFunction,
    WorkerCall,
    WorkerPiece,
    soft,
    soft_return,
)
from plait.sandbox.worker_determinism import Clock
from plait.sandbox.worker_output import Output
from plait.sandbox.worker_packages import MemoryFiles, plain_value
from plait.sandbox.worker_values import Budget, pack, unpack

PARKED = 24
"""Maximum number of pieces that may be given up."""

OUT_OF_MEMORY = 77
"""The exit status for running out of memory."""

VALUE = " value"
"""The function that the value of a piece passes through, if there are packages."""

_exit = os._exit


class Runner:
    """A thread that runs pieces of code one after the other."""

    def __init__(self, session: WorkerSession) -> None:
        self.session = session
        self.wake = _thread.allocate_lock()
        self.wake.acquire()
        self.task: tuple[str, float, int] = ("", 0.0, 0)
        self.results: list[Any] = []
        began = _thread.allocate_lock()
        began.acquire()
        _thread.start_new_thread(self._run, (began.release,))
        began.acquire()  # a thread cannot start after the lock

    def _run(self, began: Callable[[], None]) -> None:
        began()
        while True:
            self.wake.acquire()
            try:
                self.session.hand({"error": self.session.perform(*self.task)})
            except MemoryError:
                _exit(OUT_OF_MEMORY)
            except BaseException:
                _exit(1)


class WorkerSession:
    """One namespace. The main thread calls `run` and `go_on`; each returns the message that the code came back with."""

    def __init__(
        self, settings: dict[str, Any], shared: mmap.mmap, clock: Clock, files: MemoryFiles | None = None
    ) -> None:
        self.limits = SimpleNamespace(**settings["limits"])
        self.use = PieceUse(self.limits, self._end)
        self.clock, self.files = clock, files
        clock.use = self.use
        self.output = Output(shared, self.use)
        self.things = HandleTable()
        self.calls = CallSender(self.ask, self._packed)
        self.names = Names(vars(sys.modules["builtins"]))
        self.names.calls = self.calls
        self.names.update({name: ToolFunction(name, self.calls.call) for name in settings["functions"]})
        self.names.update({SOFT: soft, SOFT_RETURN: soft_return, VALUE: self._keep_value})
        self.module = ModuleType("__main__")
        self.namespace: dict[str, Any] = vars(self.module)
        self.namespace["__builtins__"] = self.names
        self.back = _thread.allocate_lock()
        self.back.acquire()
        self.message = b""
        self.piece = WorkerPiece("", "")
        self.waits = False
        _thread.stack_size((4 << 20) + self.limits.recursion * 8192 // 4096 * 4096)
        self.spare = [Runner(self) for _ in range(PARKED)]
        self.runner = self.spare.pop()

    # the main thread

    def run(self, code: str, now: float, offset: int) -> bytes:
        if self.waits:
            if not self.spare:
                return b'{"full": true}'
            self.runner = self.spare.pop()
            self.calls.loop = None
        self.runner.task = (code, now, offset)
        return self._until_back()

    def go_on(self, results: list[Any]) -> bytes:
        self.runner.results = results
        return self._until_back()

    def _until_back(self) -> bytes:
        self.waits = False
        self.runner.wake.release()
        self.back.acquire()
        return self.message

    # the thread of the piece

    def hand(self, message: dict[str, Any]) -> None:
        self.message = self._written(message)
        self.back.release()

    def _written(self, message: dict[str, Any]) -> bytes:
        """Return a message with the files that were made since the last one."""
        data = json.dumps(message)
        room = self.limits.sent_bytes - self.use.sent - len(data)
        if self.files is not None and self.files.new and (new := self.files.take_new(room)):
            data = json.dumps(message | {"files": new})
        return data.encode()

    def _keep_value(self, value: Any) -> Any:
        """Keep the value of the piece if it is a figure or a table, and print a table."""
        if self.files is not None and self.files.keep_value(value).startswith("table"):
            print(value)
        return value

    def perform(self, code: str, now: float, offset: int) -> dict[str, Any] | None:
        """Run a piece of code; returns what ended it early, if anything did."""
        self.clock.set(now, offset)
        self.output.begin()
        sys.stdout = sys.stderr = self.output
        self.use.begin()
        piece = self.piece = WorkerPiece(f"<code {len(self.calls.pieces) + 1}>", code)
        self.calls.pieces[piece.file] = piece
        sys.setrecursionlimit(_depth() + self.limits.recursion + 8)
        try:
            compiled = self._compile(piece)
            if compiled.co_flags & inspect.CO_COROUTINE:
                # A new one after an error, and after a piece was given up.
                if self.calls.loop is None or self.calls.loop.is_closed():
                    self.calls.loop = LoopRun(self.ask, self.clock)
                    asyncio.set_event_loop(self.calls.loop)
                sys.setrecursionlimit(_depth() + self.limits.recursion + 16)
                self.calls.loop.run_until_complete(eval(compiled, self.namespace))
            else:
                exec(compiled, self.namespace)
        except BaseException as problem:
            self.calls.loop = None
            return self._error(problem)
        return None

    def _compile(self, piece: WorkerPiece) -> Any:
        tree = ast.parse(piece.code, piece.file)
        piece.awaited = awaited_in(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                piece.called.add((node.func.lineno, node.func.col_offset))
        if self.files is not None and tree.body and isinstance(last := tree.body[-1], ast.Expr):
            function = ast.copy_location(ast.Name(VALUE, ast.Load()), last.value)
            last.value = ast.copy_location(ast.Call(function, [last.value], []), last.value)
        tree = Soft([call for call in returned_calls(tree) if (call.lineno, call.col_offset) in piece.awaited]).visit(
            tree
        )
        return compile(tree, piece.file, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)

    def _packed(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        budget = Budget(self.limits.call_items, self.limits.call_depth)

        def token(value: Any) -> Any:
            if self.files is not None and (plain := plain_value(value)) is not value:
                return pack(plain, token, budget)
            return (self.files.keep_value(value) if self.files is not None else "") or self.things.token(value)

        budget.take(len(args) + len(kwargs))
        packed = [
            name,
            [pack(a, token, budget) for a in args],
            {key: pack(a, token, budget) for key, a in kwargs.items()},
        ]
        self.use.check_call(len(json.dumps(packed)))
        return packed

    def ask(self, calls: list[WorkerCall]) -> list[Any]:
        message = self._written({"calls": [call.data for call in calls]})
        self.use.send(len(message))
        self.use.add_calls(len(calls), calls[0].line)
        runner = self.runner
        self.message, self.waits = message, True
        self.back.release()
        runner.wake.acquire()
        return [self._result(one) for one in runner.results]

    def _result(self, data: dict[str, Any]) -> Any:
        if "error" in data:
            return Raised(self.calls.exception(data["error"], data["message"]))
        return unpack(
            data["value"], lambda stands: self.things.make(stands["$handle"], data["things"][stands["$handle"]])
        )

    def _end(self, limit: str, line: int) -> None:
        """End the piece here, because of a limit, by giving it up, so that it cannot prevent that."""
        frame = sys._getframe(1)
        while line == 0 and frame is not None:
            line = frame.f_lineno if frame.f_code.co_filename == self.piece.file else 0
            frame = frame.f_back  # type: ignore[assignment]
        runner, self.waits = self.runner, True
        self.hand({"error": _describe_error(*describe_limit(limit, self.limits), line, limit)})
        while True:
            runner.wake.acquire()

    def _error(self, problem: BaseException) -> dict[str, Any]:
        while isinstance(problem, BaseExceptionGroup) and problem.exceptions:
            problem = problem.exceptions[0]
        line = 0
        if isinstance(problem, SyntaxError) and problem.filename == self.piece.file:
            line, message = problem.lineno or 0, problem.msg
        else:
            step = problem.__traceback__
            while step is not None:
                line = step.tb_lineno if step.tb_frame.f_code.co_filename == self.piece.file else line
                step = step.tb_next
            try:
                message = str(problem)
            except BaseException:
                message = ""
        limits: dict[type, str] = {RecursionError: "recursion", MemoryError: "memory"}
        kind = next((kind for kind in limits if isinstance(problem, kind)), type(problem))
        limit = limits.get(kind, "")
        if limit == "memory":
            message = message or "out of memory"
            bytearray(8 << 20)  # without this much memory nothing more works here: see main
        return _describe_error(kind.__name__, message, line, limit)


def _describe_error(kind: str, message: str, line: int, limit: str) -> dict[str, Any]:
    return {"type": kind, "message": message[:MESSAGE_CHARS], "line": line, "limit": limit}


def _depth() -> int:
    frame, depth = sys._getframe(0), 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1  # type: ignore[assignment]
    return depth
