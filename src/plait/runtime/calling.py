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
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import structs

from plait.core import Call, Observation, Thing
from plait.core.errors import BadInput, CallLost, ToolError, UsageError
from plait.core.tools import Trouble
from plait.runtime.exact import exact_result
from plait.runtime.printing import collecting
from plait.runtime.things import Things
from plait.tools import Tool, Toolset, render
from plait.tools.call_context import set_cancel_event
from plait.tools.render import sound

GRACE = 5.0
"""Seconds a cancelled async tool gets to clean up. One that takes no notice must not hold up the run."""

UNKNOWN = "Whether the call took effect is not known. Do not repeat it: check it in another way, or say so."
"""What the model is told of a call in doubt."""


async def make_call(tools: Toolset, call: Call, seconds: float, things: Things) -> Observation:
    """The observation of one call. `seconds` is its time where the tool has none of its own."""
    if not call.by_code:
        return await _make(tools, call, seconds, things)
    with collecting() as collected:
        made = await _make(tools, call, seconds, things)
    return structs.replace(made, printed=sound(collected.text)) if collected.total else made


async def _make(tools: Toolset, call: Call, seconds: float, things: Things) -> Observation:
    tool = tools.get(call.tool)
    if tool is None:
        said = tools.unknown(call.tool) if tools.near is None else await _in_thread(lambda: tools.unknown(call.tool))
        return Observation(said, trouble="unknown_tool")
    try:
        takes = tool.signature.takes_things
        args, kwargs = tool.bind(things.exactly(call.input) if call.by_code else things.given(call.input, takes))
    except BadInput as why:
        return Observation(str(why), trouble="bad_input")
    exact, unfit = None, ""
    limit = tool.timeout if tool.timeout is not None else seconds
    began = time.perf_counter()
    try:
        value = await _within(tool, args, kwargs, limit)
        if isinstance(value, Thing):
            handle = things.keep(value)
            text, plain = f"{handle.id}: {handle.about}", handle.json()
        else:
            text, plain = render(value, things.put_away)
            if call.by_code:
                exact, unfit = exact_result(value, plain, things)
    except TimeoutError:
        seconds = time.perf_counter() - began
        said = f"Error: '{tool.spec.name}' gave no result within {limit:g} seconds"
        if tool.spec.repeatable:
            return Observation(f"{said} and was given up.", trouble="timeout", seconds=seconds)
        return Observation(f"{said}. {UNKNOWN}", trouble="in_doubt", seconds=seconds)
    except BaseException as why:
        if _is_ours(why):
            raise
        trouble: Trouble = "in_doubt" if isinstance(why, CallLost) else "raised"
        return Observation(_said(why), trouble=trouble, seconds=time.perf_counter() - began)
    return Observation(text, value=plain, exact=exact, unfit=unfit, seconds=time.perf_counter() - began)


async def _within(tool: Tool, args: tuple[Any, ...], kwargs: dict[str, Any], limit: float) -> Any:
    if tool.inline:
        try:
            return tool.function(*args, **kwargs)
        except TimeoutError as why:
            raise _own(why) from why
    async with asyncio.timeout(limit) as clock:
        try:
            if tool.is_async:
                return await _in_task(tool.function(*args, **kwargs))
            result = await _in_thread(lambda: tool.function(*args, **kwargs))
            return await _in_task(result) if inspect.isawaitable(result) else result
        except TimeoutError as why:
            if clock.expired():
                raise
            raise _own(why) from why


def _own(why: TimeoutError) -> ToolError:
    """The tool's own TimeoutError is an error of the tool, not our time limit."""
    return ToolError(f"TimeoutError: {why}" if str(why) else "TimeoutError")


def _is_ours(why: BaseException) -> bool:
    """Someone stopped the run; as against a tool that raises what looks so."""
    if isinstance(why, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    return isinstance(why, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def _said(why: BaseException) -> str:
    """A tool's error as the model is told it."""
    try:
        words = str(why)
    except Exception:  # whatever a stranger's error may do when it is looked at
        words = "(its message can't be shown)"
    name = "" if isinstance(why, (ToolError, UsageError)) else type(why).__name__
    return "Error: " + sound(": ".join(part for part in (name, words) if part) or type(why).__name__)


async def _in_task(work: Awaitable[Any]) -> Any:
    """Await a tool's work; once cancelled it has `GRACE` to end, then it is left behind."""
    task = asyncio.ensure_future(_held(work))
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait([task], timeout=GRACE)
        # Left behind for good: that the loop closes over it is known, and nothing to warn of.
        setattr(task, "_log_destroy_pending", False)  # noqa: B010
        raise
    result, error = task.result()
    if error is not None:
        raise error
    return result


async def _held(work: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    """The result or the error, held: a SystemExit that leaves a task would end the event loop."""
    try:
        return await work, None
    except asyncio.CancelledError:
        raise
    except BaseException as why:
        return None, why


async def _in_thread(function: Callable[[], Any]) -> Any:
    """Run a function in a thread that nobody waits for at exit: a tool that hangs must not hang the program.

    Once nobody waits for the result any more, the function can learn it from `plait.cancelled()`.
    """
    loop = asyncio.get_running_loop()
    token = threading.Event()
    future: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()
    context.run(set_cancel_event, token)

    def finish(result: Any, error: BaseException | None) -> None:
        # Not as the future's exception: a GeneratorExit would close every coroutine that waits here.
        if not future.done():
            future.set_result((result, error))

    def work() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = context.run(function)
        except (KeyboardInterrupt, asyncio.CancelledError, StopIteration) as why:
            # Ctrl-C and cancellation never reach this thread: it is the tool that says so, and it must not look
            # as if somebody else did.
            error = ToolError(": ".join((type(why).__name__, *map(str, why.args))))
        except BaseException as why:
            error = why
        if not loop.is_closed():
            # The loop may close in between: then nobody waits for this result.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(finish, result, error)

    threading.Thread(target=work, name="plait-tool", daemon=True).start()
    try:
        result, error = await future
    finally:
        token.set()
    if error is not None:
        raise error
    return result
