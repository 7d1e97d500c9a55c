"""The worker process as its parent controls it: start, messages, pauses, end.

The parent checks all that the worker says: a message's length, its request's number, and that it arrives in time.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import json
import mmap
import os
import queue
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeAlias, TypeVar

from plait.core.errors import ConfigError
from plait.sandbox.base import HERE, PROGRAM
from plait.sandbox.worker_output import HEADER

_ADDR_NO_RANDOMIZE = 0x0040000  # linux/personality.h

INLINE_BYTES = 20_000
"""Longer messages are read outside the event loop."""

_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_ENVELOPE = struct.Struct(">IQ")
_T = TypeVar("_T")
Tasks: TypeAlias = queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]]


class Broken(Exception):
    """Raised when the worker is gone or broke the protocol."""


def _do_tasks(tasks: Tasks) -> None:
    """Start the workers and wait for their ends. The kernel ends a worker together with the *thread* that started it,
    so this thread lives as long as the program. An executor's thread ends earlier: with the main thread."""
    # Workers use the same memory layout each time, if the kernel allows it. Code can see addresses: in a `repr`, and in
    # the order of a set. A restored session should see the same ones.
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.personality(ctypes.c_ulong(libc.personality(ctypes.c_ulong(0xFFFFFFFF)) | _ADDR_NO_RANDOMIZE))
    while True:
        future, task = tasks.get()
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(task())
            except BaseException as problem:
                future.set_exception(problem)
        del future, task


def _written(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode()


def _read(data: bytes, items: int) -> Any:
    """Decode a message from the worker if it holds at most about `items` values, because each may take much memory."""
    if _marks(data) > items and _marks(_TEXT.sub(b"", data)) > items:
        raise Broken(f"a message of more than {items:,} values")
    return json.loads(data)


def _marks(data: bytes) -> int:
    return data.count(b",") + data.count(b"[") + data.count(b"{")


_starter: tuple[int, Tasks] | None = None
_starting = threading.Lock()


def _in_starter(task: Callable[[], _T]) -> Future[_T]:
    global _starter
    future: Future[_T] = Future()
    with _starting:
        if _starter is None or _starter[0] != os.getpid():
            _starter = os.getpid(), queue.SimpleQueue()
            threading.Thread(target=_do_tasks, args=_starter[1:], name="plait-sandbox", daemon=True).start()
        _starter[1].put((future, task))
    return future


class Child:
    def __init__(self, process: subprocess.Popen[bytes], folder: str, mine: socket.socket, shared: mmap.mmap) -> None:
        self.process = process
        self.folder = folder
        self.socket = mine
        self.shared = shared
        self.number = 0
        self.ended = False
        self.using = False

    @staticmethod
    async def start(output_bytes: int) -> Child:
        """Start a worker without sending it a message. Raises `ConfigError` if that fails."""
        future = _in_starter(lambda: _start(output_bytes))
        try:
            return await asyncio.shield(asyncio.wrap_future(future))
        except asyncio.CancelledError:
            future.add_done_callback(lambda f: f.exception() or f.result().kill())
            raise

    async def exchange(
        self, message: dict[str, Any], seconds: float, max_bytes: int, items: int
    ) -> tuple[int, dict[str, Any]]:
        """Send a message and return its answer with its length. The process is stopped between two exchanges.

        The answer has at most `max_bytes` bytes, about `items` values. Raises `TimeoutError` after `seconds`, or
        `Broken`.
        """
        data = await asyncio.to_thread(_written, message) if "results" in message else _written(message)
        loop = asyncio.get_running_loop()
        self.using = True
        try:
            self._signal(signal.SIGCONT)
            async with asyncio.timeout(seconds):
                await loop.sock_sendall(self.socket, len(data).to_bytes(4, "big") + data)
                length, number = _ENVELOPE.unpack(await self._read(_ENVELOPE.size))
                if length > max_bytes or number != self.number:
                    raise Broken("a message that was not asked for")
                data = await self._read(length)
            self._signal(signal.SIGSTOP)
            if length > INLINE_BYTES:
                answer = await asyncio.to_thread(_read, data, items)
            else:
                answer = _read(data, items)
        except (OSError, ValueError, RecursionError) as problem:
            if isinstance(problem, TimeoutError):
                raise
            raise Broken(str(problem)) from None
        finally:
            self.using = False
            if self.ended:
                self.socket.close()
        if not isinstance(answer, dict):
            raise Broken("no object")
        return length, answer

    async def _read(self, size: int) -> bytes:
        loop = asyncio.get_running_loop()
        data = bytearray()
        while len(data) < size:
            more = await loop.sock_recv(self.socket, min(size - len(data), 1 << 20))
            if not more:
                raise Broken("its process ended")
            data += more
        return bytes(data)

    def read_output(self) -> tuple[bytes, int]:
        """Return the shown part of the piece's output so far, and the number of characters printed in total."""
        length, printed = HEADER.unpack_from(self.shared, 0)
        return self.shared[HEADER.size : HEADER.size + min(length, len(self.shared) - HEADER.size)], printed

    async def end(self) -> int:
        """Kill the worker and wait for its end. Returns its exit status; negative for a signal."""
        return await asyncio.shield(asyncio.wrap_future(self.kill()))

    def kill(self) -> Future[int]:
        """Kill the worker. The future is done when it is gone. May be called again, also during an exchange."""
        self.ended = True
        if not self.using:
            self.socket.close()
        return _in_starter(self._reap)

    def _reap(self) -> int:
        # It may be about to exit by itself with a status that gives the reason.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(0)
        self.process.kill()
        status = self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)  # the worker removes it when it starts
        return status

    def _signal(self, number: int) -> None:
        if not self.ended and self.process.returncode is None:
            self.process.send_signal(number)


def _start(output_bytes: int) -> Child:
    if sys.platform != "linux":
        raise ConfigError(f"The process sandbox needs Linux; this is {sys.platform}.", hint="Use the sandbox monty.")
    if not sys.executable:
        raise ConfigError("The process sandbox can't find a Python to run.", hint="Use the sandbox monty.")
    try:
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as failed:
            mine, its = socket.socketpair()
            failed.callback(mine.close)
            ours.callback(its.close)
            memory = os.memfd_create("plait-output", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            ours.callback(os.close, memory)
            folder = tempfile.mkdtemp(prefix="plait-sandbox-")
            failed.callback(os.rmdir, folder)
            os.ftruncate(memory, HEADER.size + output_bytes)
            fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            shared = mmap.mmap(memory, 0)
            failed.callback(shared.close)
            python = [sys.executable, "-s", "-S", "-P", "-X", "utf8", "-c", PROGRAM]
            process = subprocess.Popen(
                [*python, "plait.sandbox.worker", HERE, str(its.fileno()), str(memory)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(its.fileno(), memory),
                env={"PYTHONHASHSEED": "0", "PYTHONCOERCECLOCALE": "0"},
                cwd=folder,
                start_new_session=True,
            )
            failed.pop_all()
    except OSError as problem:
        raise ConfigError(f"The process sandbox could not start its process: {problem}.") from None
    mine.setblocking(False)
    return Child(process, folder, mine, shared)
