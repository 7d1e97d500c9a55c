"""Listens, and stops in good order.

The first signal: no connection is taken any more, runs under way have their time to end and are then cancelled, so that
they can be resumed. The second cancels them at once, the third ends the process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from plait.core.errors import PlaitError, UsageError
from plait.core.text import clean
from plait.window.app import build
from plait.window.desk import Desk
from plait.window.errors import Rejected

logger = logging.getLogger("plait.window")

HEADER_SECONDS = 20.0
"""How long a connection may take to send the headers of a request. They have 64 kB at most, by uvicorn."""


class Protocol(H11Protocol):
    """HTTP that does not wait for ever for the headers of a request."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._arm()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._disarm()
        elif self._timer is None:
            self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def _arm(self) -> None:
        self._timer = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Server(uvicorn.Server):
    """uvicorn, with the signals left to us."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _why(error: OSError) -> str:
    """The system's words alone: `create_server` adds the address, which is said already."""
    if isinstance(error, socket.gaierror) or error.errno is None:
        return error.strerror or str(error)
    return os.strerror(error.errno)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises `UsageError` when it can't."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except OSError as why:
        raise UsageError(
            f"Can't listen on {host} port {port}: {_why(why)}.", hint="Choose another with --host or --port."
        ) from why


def serve(desk: Desk, sock: socket.socket, ready: Callable[[], Any] = lambda: None, *, resume: bool = False) -> None:
    """Serve until a signal comes. `ready` is called when requests are taken; `resume`: go on with runs left behind."""
    asyncio.run(_serve(desk, sock, ready, resume))


async def _serve(desk: Desk, sock: socket.socket, ready: Callable[[], Any], resume: bool) -> None:
    server = server_for(desk)
    with _signals(desk, server):
        task = asyncio.ensure_future(server.serve([sock]))
        while not server.started and not task.done():
            await asyncio.sleep(0.01)
        if server.started:
            ready()
        again = asyncio.ensure_future(go_on(desk)) if resume else None
        try:
            await task
        finally:
            if again is not None:
                again.cancel()
            await desk.stop(0.0)


def server_for(desk: Desk) -> Server:
    """A server of the desk's application, not started."""
    return Server(
        uvicorn.Config(
            build(desk),
            http=Protocol,
            ws="none",
            loop="asyncio",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=desk.table.connections,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=int(desk.table.grace) + 15,
        )
    )


async def go_on(desk: Desk) -> int:
    """Resume the runs that a server left behind, as places are free; returns how many were begun.

    One that can't be resumed stays as it is, and the log says why.
    """
    begun = 0
    for row in await asyncio.to_thread(desk.left_behind):
        while not desk.stopping:
            try:
                await desk.resume(row.head.run)
                begun += 1
            except Rejected as why:
                if why.status == 429:  # the line is full of requests: they go first
                    await asyncio.sleep(1)
                    continue
                if not desk.stopping:
                    _left(row.head.run, why)
            except Exception as why:  # another process was quicker, the agent is no more: the others go on all the same
                _left(row.head.run, why)
            break
    return begun


def _left(run: str, why: Exception) -> None:
    words = clean(str(why)) if isinstance(why, PlaitError) else f"{type(why).__name__}: {clean(str(why))}"
    logger.warning("Run %s is not gone on with: %s", run, words, exc_info=None if isinstance(why, PlaitError) else why)


@contextmanager
def _signals(desk: Desk, server: uvicorn.Server) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    stopping: list[asyncio.Task[int]] = []

    def stop() -> None:
        if not stopping:
            stopping.append(loop.create_task(desk.stop()))
            server.should_exit = True
        elif desk.running and len(stopping) == 1:
            stopping.append(stopping[0])
            desk.hurry()
        else:
            with suppress(OSError):
                os.write(2, b"Quit at once.\n")
            os._exit(130)

    # What is ignored stays so: a shell starts its background jobs with Ctrl-C ignored.
    heeded = [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) != signal.SIG_IGN]
    before = {number: signal.getsignal(number) for number in heeded}
    for number in heeded:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
