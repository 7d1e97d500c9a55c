"""The HTTP server: it listens, resumes unfinished runs, and stops on signals.

At the first signal it accepts no more connections and gives active runs their grace period. Then it cancels them; they
can be resumed. The second signal cancels them at once, the third ends the process.
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

from plait.core.errors import ConfigError, PlaitError
from plait.core.text import clean
from plait.server.app import build_app
from plait.server.errors import RequestRejected
from plait.server.runs import RunManager

logger = logging.getLogger("plait.server")

HEADER_SECONDS = 20.0
"""How long a connection may take to send the headers of a request."""


class HeaderTimeoutProtocol(H11Protocol):
    """Close a connection whose request headers take too long. uvicorn has no setting for that."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_timer()
        elif self._timer is None:
            self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket. Raises `ConfigError`."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        sock = socket.create_server(address[:2], family=family, backlog=2048)
        # Its connections inherit this. Without it, the second part of an answer waits 40 ms for the client.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock
    except OSError as error:
        # `create_server` adds the address to the system's text, and the error names it already.
        is_plain = isinstance(error, socket.gaierror) or error.errno is None
        why = (error.strerror or str(error)) if is_plain else os.strerror(error.errno or 0)
        hint = "Choose another with --host or --port."
        raise ConfigError(f"Can't listen on {host} port {port}: {why}.", hint=hint) from error


def make_http_server(manager: RunManager) -> HttpServer:
    """Return a server of the application that is not started."""
    return HttpServer(
        uvicorn.Config(
            build_app(manager),
            http=HeaderTimeoutProtocol,
            ws="none",
            loop="asyncio",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=manager.table.connections,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=int(manager.table.grace) + 15,
        )
    )


async def serve_until_signal(
    manager: RunManager, sock: socket.socket, on_ready: Callable[[], Any] = lambda: None, *, resume: bool = False
) -> None:
    """Serve until a signal. `on_ready` is called when the server accepts requests; `resume`: resume unfinished runs."""
    server = make_http_server(manager)
    with _handle_signals(manager, server):
        serving = asyncio.ensure_future(server.serve([sock]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        if server.started:
            on_ready()
        resuming = asyncio.ensure_future(resume_unfinished(manager)) if resume else None
        try:
            await serving
        finally:
            if resuming is not None:
                resuming.cancel()
            await manager.stop(0.0)


async def resume_unfinished(manager: RunManager) -> None:
    """Resume the runs that a server did not end, as places become free, and then its changes over runs. A run that
    cannot be resumed stays unchanged, and the log says why."""
    for row in await asyncio.to_thread(manager.unfinished_runs):
        run = row.head.run
        while not manager.stopping:
            try:
                await manager.resume(run)
            except Exception as error:  # another process was faster, or the agent is gone; resume the other runs
                if isinstance(error, RequestRejected) and error.status == 429:
                    await asyncio.sleep(1)  # requests go first
                    continue
                if isinstance(error, PlaitError) and not manager.stopping:
                    logger.warning("Run %s is not resumed: %s", run, clean(str(error)))
                elif not manager.stopping:
                    logger.warning("Run %s is not resumed: %s", run, clean(repr(error)), exc_info=error)
            break
    if manager.resume_more is not None:
        await manager.resume_more()


@contextmanager
def _handle_signals(manager: RunManager, server: uvicorn.Server) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    stopping: list[asyncio.Task[int]] = []
    count = 0

    def stop() -> None:
        nonlocal count
        count += 1
        if count == 1:
            stopping.append(loop.create_task(manager.stop()))  # keep a reference: the loop holds tasks only weakly
            server.should_exit = True
        elif count == 2 and manager.running:
            manager.end_grace()
        else:
            with suppress(OSError):
                os.write(2, b"Quit at once.\n")
            os._exit(130)

    # Keep ignoring an ignored signal: a shell starts its background jobs with Ctrl-C ignored.
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = {number: handler for number, handler in before.items() if handler != signal.SIG_IGN}
    for number in before:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
