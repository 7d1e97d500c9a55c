"""Makes one tool call: binds the input, runs the tool in its own thread or as a coroutine, within its time.

Whatever a tool does, an observation comes of it; only cancellation passes through.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
import time
from collections.abc import Callable
from typing import Any

from plait.core import Call, Observation
from plait.core.errors import BadInput, ToolError
from plait.tools import Tool, Toolset, render
from plait.tools.cancel import set_token


async def make_call(tools: Toolset, call: Call, seconds: float) -> Observation:
    """The observation of one call. `seconds` is its time where the tool has none of its own."""
    tool = tools.get(call.tool)
    if tool is None:
        return Observation(tools.unknown(call.tool), trouble="unknown_tool")
    try:
        args, kwargs = tool.bind(call.input)
    except BadInput as why:
        return Observation(str(why), trouble="bad_input")
    limit = tool.timeout if tool.timeout is not None else seconds
    began = time.perf_counter()
    try:
        value = await _within(tool, args, kwargs, limit)
        text, plain = render(value)
    except TimeoutError:
        return Observation(
            f"Error: '{tool.spec.name}' gave no result within {limit:g} seconds and was given up.",
            trouble="timeout",
            seconds=time.perf_counter() - began,
        )
    except asyncio.CancelledError:
        raise
    except ToolError as why:
        return Observation(f"Error: {why}", trouble="raised", seconds=time.perf_counter() - began)
    except BaseException as why:
        if isinstance(why, KeyboardInterrupt):
            raise
        text = f"Error: {type(why).__name__}: {why}" if str(why) else f"Error: {type(why).__name__}"
        return Observation(text, trouble="raised", seconds=time.perf_counter() - began)
    return Observation(text, value=plain, seconds=time.perf_counter() - began)


async def _within(tool: Tool, args: tuple[Any, ...], kwargs: dict[str, Any], limit: float) -> Any:
    if tool.inline:
        return tool.function(*args, **kwargs)
    token = threading.Event()
    try:
        async with asyncio.timeout(limit) as clock:
            try:
                if tool.is_async:
                    return await tool.function(*args, **kwargs)
                result = await _in_thread(lambda: tool.function(*args, **kwargs), token)
                return await result if inspect.isawaitable(result) else result
            except TimeoutError as why:
                if clock.expired():
                    raise
                # The tool's own TimeoutError is an error of the tool, not our time limit.
                raise ToolError(f"TimeoutError: {why}" if str(why) else "TimeoutError") from why
    finally:
        token.set()


async def _in_thread(function: Callable[[], Any], token: threading.Event) -> Any:
    """Run a function in a thread that nobody waits for at exit: a tool that hangs must not hang the program."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()
    context.run(set_token, token)

    def finish(result: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        elif isinstance(error, StopIteration):
            future.set_exception(RuntimeError(f"StopIteration: {error}"))
        else:
            future.set_exception(error)

    def work() -> None:
        result, error = None, None
        try:
            result = context.run(function)
        except BaseException as why:
            error = why
        if not loop.is_closed():
            # The loop may close in between: then nobody waits for this result.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(finish, result, error)

    threading.Thread(target=work, name="plait-tool", daemon=True).start()
    return await future
