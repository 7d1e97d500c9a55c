"""Makes one tool call: binds its input, runs the function within its time limit, and renders the result."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import structs

from plait.core import JSON, Artifact, Attachment, Call, Observation
from plait.core.attachments import find_attachment
from plait.core.errors import BadInput, CallLost, ConfigError, ToolError
from plait.core.tools import Trouble
from plait.runtime.known_values import exact_result
from plait.runtime.run_context import ChildWaits
from plait.runtime.tool_prints import collecting
from plait.tools import Tool, Toolset, render
from plait.tools.call_context import set_cancel_event
from plait.tools.collect import MOST_CHARACTERS, MOST_VALUES, collect_stream, collect_values
from plait.tools.render import replace_surrogates

if TYPE_CHECKING:
    from plait.runtime.call_services import ToolServices

GRACE = 5.0
"""Seconds that a cancelled async tool gets to clean up."""

UNKNOWN = "Whether the call took effect is not known. Do not repeat it: check it in another way, or say so."
"""What the model reads about a call in doubt."""

CUT = f"The tool gives more than {MOST_VALUES:,} values or {MOST_CHARACTERS:,} characters. The rest was not read."
"""What the model reads about a generator that does not end in time."""


async def make_call(tools: Toolset, call: Call, seconds: float, services: ToolServices) -> Observation:
    """Call a tool and return its observation, also for an error. `seconds` is the limit of a tool without its own.

    Raises `ChildWaits` if a child run of the tool waits for the user.
    """
    if not call.by_code:
        return await _call_tool(tools, call, seconds, services)
    with collecting() as collected:
        made = await _call_tool(tools, call, seconds, services)
    return structs.replace(made, printed=replace_surrogates(collected.text)) if collected.total else made


async def _call_tool(tools: Toolset, call: Call, seconds: float, services: ToolServices) -> Observation:
    tool, artifacts = tools.get(call.tool), services.run_context.artifacts
    if tool is None:
        said = (
            tools.describe_unknown(call.tool)
            if tools.near is None
            else await _run_in_thread(lambda: tools.describe_unknown(call.tool))
        )
        return Observation(said, trouble="unknown_tool")
    try:
        args, kwargs = tool.bind(
            artifacts.fill_exact_input(call.input) if call.by_code else artifacts.fill_input(call.input, tool)
        )
    except BadInput as why:
        return Observation(str(why), trouble="bad_input")
    if tool.signature.context is not None:
        args = (services.make_context(), *args)
    exact, unfit = None, ""
    seen: list[Attachment] = []

    def keep(artifact: Artifact) -> JSON:
        seen.extend(found[:1] if (found := find_attachment(artifact)) else ())
        return artifacts.put_away(artifact)

    limit = tool.timeout if tool.timeout is not None else seconds
    began = time.perf_counter()
    try:
        value, cut = await _run_within_limit(tool, args, kwargs, services.time_limit(limit))
        if isinstance(value, Artifact):
            handle, plain = artifacts.keep(value), keep(value)
            text = f"{handle.id}: {handle.about}"
        else:
            text, plain = render(value, keep)
            if call.by_code:
                exact, unfit = exact_result(value, plain, artifacts)
    except TimeoutError:
        seconds = time.perf_counter() - began
        said = f"Error: '{tool.spec.name}' gave no result within {limit:g} seconds"
        if tool.spec.repeatable:
            return Observation(f"{said} and was given up.", trouble="timeout", seconds=seconds)
        return Observation(f"{said}. {UNKNOWN}", trouble="in_doubt", seconds=seconds)
    except BaseException as why:
        if _is_cancellation(why) or isinstance(why, ChildWaits):
            raise
        trouble: Trouble = "in_doubt" if isinstance(why, CallLost) else "raised"
        return Observation(_describe_error(why), trouble=trouble, seconds=time.perf_counter() - began)
    spent, note = time.perf_counter() - began, CUT if cut else ""
    return Observation(text, note=note, value=plain, exact=exact, unfit=unfit, seconds=spent, attachments=tuple(seen))


async def _run_within_limit(
    tool: Tool, args: tuple[Any, ...], kwargs: dict[str, Any], limit: asyncio.Timeout
) -> tuple[Any, bool]:
    """Return the result with lists in place of iterators, and whether such a list was cut."""
    if tool.inline:
        try:
            return collect_values(tool.function(*args, **kwargs))
        except TimeoutError as why:
            raise _as_tool_error(why) from why
    async with limit as clock:
        try:
            if tool.is_async:
                result, cut = tool.function(*args, **kwargs), False
            else:
                result, cut = await _run_in_thread(lambda: collect_values(tool.function(*args, **kwargs)))
            if inspect.isawaitable(result):
                awaited = await _await_with_grace(result)
                lazy = isinstance(awaited, Iterator)  # its code may block
                result, cut = await _run_in_thread(lambda: collect_values(awaited)) if lazy else collect_values(awaited)
            if isinstance(result, AsyncIterator):
                result, cut = await _await_with_grace(collect_stream(result))
            return result, cut
        except TimeoutError as why:
            if clock.expired():
                raise
            raise _as_tool_error(why) from why


def _as_tool_error(why: TimeoutError) -> ToolError:
    """Return a `TimeoutError` that the tool itself raised as an error of the tool."""
    return ToolError(f"TimeoutError: {why}" if str(why) else "TimeoutError")


def _is_cancellation(why: BaseException) -> bool:
    """Return whether the run was stopped; False for a tool that raises such an error itself."""
    if isinstance(why, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    return isinstance(why, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def _describe_error(why: BaseException) -> str:
    """Return a tool's error as the model reads it."""
    try:
        words = str(why)
    except Exception:  # whatever a stranger's error may do when it is looked at
        words = "(its message can't be shown)"
    name = "" if isinstance(why, (ToolError, ConfigError)) else type(why).__name__
    return "Error: " + replace_surrogates(": ".join(part for part in (name, words) if part) or type(why).__name__)


async def _await_with_grace(work: Awaitable[Any]) -> Any:
    """Await a tool's work. If it is cancelled, it gets `GRACE` seconds to end, and is abandoned then."""
    task = asyncio.ensure_future(_hold_error(work))
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


async def _hold_error(work: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    """Return the result or the error. A SystemExit that leaves a task would end the event loop."""
    try:
        return await work, None
    except asyncio.CancelledError:
        raise
    except BaseException as why:
        return None, why


async def _run_in_thread(function: Callable[[], Any]) -> Any:
    """Run a function in a daemon thread, so that a tool that hangs does not hang the program at its end.

    `plait.cancelled()` tells the function that nobody waits for its result any more.
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
