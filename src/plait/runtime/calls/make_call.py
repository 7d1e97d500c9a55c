"""Makes one tool call: runs the function within its time limit, and renders the result."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from types import AsyncGeneratorType, NoneType
from typing import TYPE_CHECKING, Any, cast

from msgspec import structs

from plait.core import JSON, Artifact, Attachment, Observation
from plait.core.attachments import find_attachment
from plait.core.errors import CallLost, ConfigError, PlaitError, ToolError
from plait.core.tools import Trouble
from plait.models.real_models import RealModelForbidden
from plait.runtime.background import is_cancelled, wait_to_end
from plait.runtime.calls.bound_calls import BoundCall
from plait.runtime.calls.tool_prints import collecting
from plait.runtime.known_values import exact_result
from plait.tools import Tool
from plait.tools.end_run import EndRun, find_ending
from plait.tools.render import CHARACTERS, ITEMS, CutList, render_simple, replace_surrogates, simplify
from plait.tools.threads import run_in_thread, start_thread
from plait.tools.tool import NoEffect, TookEffect
from plait.user_functions import call_plain

if TYPE_CHECKING:
    from plait.journal.entries import Question
    from plait.runtime.calls.call_services import ToolServices

GRACE = 5.0
"""Seconds that a cancelled async tool gets to clean up."""

UNKNOWN = "Whether the call took effect is not known. Do not repeat it: check it in another way, or say so."
"""What the model reads about a call in doubt."""


class ChildWaits(BaseException):
    """Raised in a tool that waits for the user, itself or with a child run, with the questions; or whose child run has
    begun and can't go on, with the `error`. Not an `Exception`, so that tools do not catch it."""

    def __init__(self, child: str, questions: Sequence[Question] = (), error: PlaitError | None = None) -> None:
        super().__init__(child)
        self.child, self.questions, self.error = child, tuple(questions), error


async def make_call(tool: Tool, bound: BoundCall, seconds: float, services: ToolServices) -> Observation:
    """Call a tool and return its observation, also for an error. `seconds` is the limit of a tool without its own.
    Raises `ChildWaits` if a child run of the tool waits for the user or can't go on."""
    if not bound.call.by_code:
        return await _call_tool(tool, bound, seconds, services)
    with collecting() as collected:
        made = await _call_tool(tool, bound, seconds, services)
    return structs.replace(made, printed=replace_surrogates(collected.text)) if collected.total else made


async def _call_tool(tool: Tool, bound: BoundCall, seconds: float, services: ToolServices) -> Observation:
    call, artifacts = bound.call, services.engine.artifacts
    args, kwargs = tool.signature.split(bound.values)
    if tool.signature.context is not None:
        args = (services.make_context(), *args)
    seen: list[Attachment] = []

    def keep(artifact: Artifact) -> JSON:
        try:
            handle = artifacts.put_away(artifact)
        except Exception:  # the call has been made: what else it returned is kept
            return f"(a {type(artifact).__name__} that can't be kept)"
        seen.extend(found[:1] if (found := find_attachment(artifact)) else ())
        return handle

    def observe(value: Any) -> Observation:
        if isinstance(value, Observation):  # that of a recorded call
            return value
        if isinstance(value, TookEffect | NoEffect):
            services.verified = services.verified or value
            return observe(value.result) if isinstance(value, TookEffect) else Observation("")
        if isinstance(value, EndRun):
            if value.failure:
                return Observation(replace_surrogates(value.failure), trouble="raised", ends="failure")
            made = observe(value.answer)
            return structs.replace(made, value=made.text if made.value is None else made.value, ends="answer")
        if isinstance(value, Artifact):
            handle, plain = artifacts.keep(value), keep(value)
            return Observation(f"{handle.id}: {handle.about}", value=plain)
        simple, note = simplify(value, for_code=call.by_code)
        text, plain = render_simple(simple, keep)
        if not call.by_code:
            return Observation(text, value=plain)
        return Observation(text, value=plain, exact=exact_result(simple, plain, artifacts), note=note)

    limit = tool.timeout if tool.timeout is not None else seconds
    began = time.perf_counter()
    returned: list[bool] = []
    try:
        made = await _run_within_limit(tool, args, kwargs, services, limit, observe, returned)
    except TimeoutError:
        seconds = time.perf_counter() - began
        if returned:
            said = f"(the result of '{tool.spec.name}' could not be read within {limit:g} seconds)"
            return Observation(said, seconds=seconds)
        more = f"{seconds:.3g} seconds despite its progress" if services.has_more_time else f"{limit:g} seconds"
        said = f"Error: '{tool.spec.name}' gave no result within {more}"
        if services.is_cancelled:
            said = f"The user cancelled this call of '{tool.spec.name}'"
            if tool.spec.repeatable:
                return Observation(f"{said}: it has no result.", trouble="cancelled", seconds=seconds)
        if tool.spec.repeatable:
            return Observation(f"{said} and was given up.", trouble="timeout", seconds=seconds)
        return Observation(f"{said}. {UNKNOWN}", trouble="in_doubt", seconds=seconds)
    except BaseException as why:
        if _is_cancellation(why) or isinstance(why, ChildWaits | RealModelForbidden):
            raise
        trouble: Trouble = "in_doubt" if isinstance(why, CallLost) else "raised"
        made = Observation(_describe_error(why), trouble)
        if (ending := find_ending(why)) is not None:
            with suppress(Exception):
                made = await run_in_thread(lambda: observe(ending))
    return structs.replace(made, seconds=time.perf_counter() - began, attachments=tuple(seen))


async def _run_within_limit(
    tool: Tool,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    services: ToolServices,
    seconds: float,
    observe: Callable[[Any], Observation],
    returned: list[bool],
) -> Observation:
    """Call the tool's function and observe its result. `returned` gets an item when the function has ended. What reads
    a result may run a stranger's code, which can take any time: it runs in the thread of the call."""

    def read(value: Any) -> Observation:
        if not hasattr(type(value), "__next__"):  # a generator goes on with its work while it is read
            returned.append(True)
        return observe(value)

    def call_function() -> Any:
        """Call the function. Return its observation, or what must be awaited before."""
        value = tool.function(*args, **kwargs)
        return value if inspect.isawaitable(value) or isinstance(value, AsyncIterator) else read(value)

    if tool.runs_inline:
        try:
            return read(call_plain(tool.function, *args, **kwargs))
        except TimeoutError as why:
            raise _as_tool_error(why) from why
    place = nullcontext(start_thread) if tool.owner is None else tool.owner.use(tool.name, seconds, tool.parallel)
    async with place as start, services.time_limit(seconds) as clock:
        if refusal := services.find_refusal():
            return Observation(refusal, trouble="refused")
        try:
            made = call_function() if tool.is_async else await run_in_thread(call_function, start)
            if not isinstance(made, Observation):
                value = await _await_with_grace(made) if inspect.isawaitable(made) else made
                if isinstance(value, AsyncIterator):
                    value = await _await_with_grace(_collect_stream(value))
                simple = type(value) in (str, NoneType, bool, int, float)
                made = read(value) if simple else await run_in_thread(lambda: read(value), start)
            return cast(Observation, made)
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
        return is_cancelled()
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
    task = asyncio.get_running_loop().create_task(_hold_error(work))
    try:
        await wait_to_end(task, GRACE)
    except asyncio.CancelledError:
        if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
            work.close()  # cancelled before its first step
        # Left behind for good: that the loop closes over it is known, and nothing to warn of.
        setattr(task, "_log_destroy_pending", False)  # noqa: B010
        raise
    result, error = task.result()
    if error is not None:
        raise error
    return result


async def _collect_stream(stream: AsyncIterator[Any]) -> list[Any]:
    """Return the values of an async iterator, up to the limits of `simplify`, in a `CutList` if there may be more. An
    async generator is closed at the end, also when the call is cancelled."""
    values: list[Any] = []
    room = CHARACTERS
    try:
        async for each in stream:
            values.append(each)
            room -= len(each) if isinstance(each, str | bytes) else 0
            if len(values) == ITEMS or room < 0:
                return CutList(values)
    finally:
        if isinstance(stream, AsyncGeneratorType):
            await stream.aclose()
    return values


async def _hold_error(work: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    """Return the result or the error. A SystemExit that leaves a task would end the event loop."""
    try:
        return await work, None
    except asyncio.CancelledError:
        raise
    except BaseException as why:
        return None, why
