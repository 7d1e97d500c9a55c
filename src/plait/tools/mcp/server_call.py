"""A call that a server performs, and what the server asks for before it ends. It lives on the background loop."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import Any

from plait.tools.call_context import CallServices


class ServerRequest:
    """What a server asks its client for during a call, as in the protocol. `reply` gets the result as JSON, or
    {"error": TEXT}. `question` are the words with which Plait asked the user last. `state`: the server's result that
    has this request, with which the call can go on at any time; None if the server waits for the reply."""

    def __init__(self, method: str, params: dict[str, Any], state: Any) -> None:
        self.method, self.params, self.state = method, params, state
        self.question = ""
        self.reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    async def answer(self, reply: dict[str, Any]) -> None:
        """Give the server its reply, if it still waits for one."""
        if not self.reply.done():
            self.reply.set_result(reply)


class ServerCall:
    """One call of a tool. `send` makes it. `services` are those of the run for which it is made; None outside of one.
    `state`: the server's result with which an earlier process waited for the user, and its `round`. None: a new
    call.

    When the run waits for the user, the call goes on: `waiting` is what the server asks for. A run that continues in
    this process takes the call up again, with services of its own.
    """

    def __init__(self, send: Callable[[ServerCall], Awaitable[Any]], services: CallServices | None) -> None:
        self._send = send
        earlier = services.find_asked() if services is not None else []
        self.has_asked = bool(earlier)
        """Whether an earlier process made this call, and the server asked the user."""
        self.state = earlier[-1][1] if earlier else None
        self.round: int = self.state["round"] if self.state is not None else 0
        self._task: asyncio.Task[Any] | None = None
        self._requests: deque[ServerRequest] = deque()
        self._open: list[ServerRequest] = []
        self._changed = asyncio.Event()
        self.services = services
        self.report: Callable[[str], None] | None = None
        self.waiting: ServerRequest | None = None
        asked = [question for question, state in earlier if self.state is not None and state != self.state]
        self.asked = Counter(asked)
        """How often the user has answered a question, also before the `state`."""
        self.pass_turn: Callable[[], Awaitable[None]] | None = None
        """Lets the next call begin at a server that gets one after the other."""
        self.has_answered = False
        """Whether the server has got an answer of the user."""

    @property
    def is_asking(self) -> bool:
        """Whether the server waits for a reply."""
        return bool(self._open)

    async def next_request(self) -> ServerRequest | None:
        """Return what the server asks for next; None when the call has ended. Cancelling this cancels the call."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._send(self))
            self._task.add_done_callback(self._end)
        try:
            while not self._requests and not self._task.done():
                self._changed.clear()
                await self._changed.wait()
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        return None if self._task.done() else self._requests.popleft()

    async def result(self) -> Any:
        """Return the server's result, as JSON. Raises what the call came to."""
        assert self._task is not None
        return await self._task

    @property
    def is_lost(self) -> bool:
        """Whether the call ended with an error before the server had an answer."""
        assert self._task is not None
        return self._task.done() and not self.has_answered and (self._task.cancelled() or bool(self._task.exception()))

    async def cancel(self) -> None:
        """End the call at the server."""
        if self._task is not None:
            self._task.cancel()

    async def ask(self, method: str, params: dict[str, Any], state: Any = None) -> dict[str, Any]:
        """Return the reply to what the server asks for; see `ServerRequest`."""
        request = ServerRequest(method, params, state)
        if self.pass_turn is not None:
            await self.pass_turn()
        self._requests.append(request)
        self._open.append(request)
        self._changed.set()
        try:
            return await request.reply
        finally:
            self._open.remove(request)

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._changed.set()
        if not task.cancelled():
            task.exception()  # perhaps nobody waits for it any more
        for request in self._open:
            if not request.reply.done():
                request.reply.set_result({"error": "The call has ended."})

    def show_progress(self, text: str) -> None:
        """Report the server's progress to the run that waits for the call."""
        if self.report is not None:
            self.report(text)
