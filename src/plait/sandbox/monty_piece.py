"""One piece of code in Monty: what it used, what it waits for, and which calls are answered at once."""

from __future__ import annotations

import ast
import builtins
import datetime
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from plait.core.code import CodeError, CodeLimit
from plait.sandbox.awaited import awaited_calls, parse, returned_calls
from plait.sandbox.base import OutCall, SandboxTurn
from plait.sandbox.monty_values import Unfit, plain
from plait.sandbox.monty_worker import stub
from plait.sandbox.piece_limits import PieceUse
from plait.sandbox.worker_values import Budget

if TYPE_CHECKING:
    from plait.sandbox.monty import MontySession

TRIPS = 200
"""Maximum calls answered here in a row before Plait checks the clock. Monty does not count their time."""

ANALYSED = 50_000
"""Longer code (in characters) is not searched for awaited calls. Only a call right after `await` then counts."""


class Over(Exception):
    """Raised when a piece must end here: a limit that Monty does not check, or no way to continue."""

    def __init__(self, limit: CodeLimit, message: str = "") -> None:
        super().__init__(message or limit)
        self.limit: CodeLimit = limit
        self.message = message


class MontyPiece:
    """A piece of code from its start to its end. `fed` is the code as Monty runs it, with the same lines."""

    def __init__(
        self, session: MontySession, code: str, filename: str, now: datetime.datetime, stop: Callable[[], None]
    ) -> None:
        self.code = code
        self.fed = adapt_code(code, session.settings.functions)
        self.filename = filename
        self.use = PieceUse(session.settings.limits, self._over)
        self.flooded = False
        self.at: Any = None  # the snapshot where it waits
        self.ids: list[int] | None = None  # Monty's ids of the turn's calls, None for a plain call
        self.calls: tuple[OutCall, ...] = ()
        self._session = session
        self._now = now
        self._reported_seconds = 0.0
        self._trips = 0
        self._printed: list[str] = []
        self._stop = stop
        self._promised: dict[int, OutCall] = {}
        self._awaited: dict[str, set[tuple[int, int]]] = {}

    def turn(self, error: CodeError | None = None, lost: bool = False, last: bool = False) -> SandboxTurn:
        """Return what it did since the last turn, with the calls that it waits for."""
        seconds, self._reported_seconds = self.use.seconds - self._reported_seconds, self.use.seconds
        text = "".join(self._printed) + (self.use.end_output() if last else "")
        self._printed.clear()
        return SandboxTurn(plain(text), () if last else self.calls, error, lost, seconds)

    def print(self, stream: str, text: str) -> None:
        """Add printed characters. All streams count as one."""
        self.use.print(text, self._printed.append)

    def _over(self, limit: CodeLimit, _: int) -> None:
        if limit != "output":
            raise Over(limit)
        self.flooded = True
        self._stop()

    def came_back(self) -> None:
        """Mark its calls as answered."""
        self.at, self.ids, self.calls, self._trips = None, None, (), 0

    def line(self, position: Any) -> int:
        """Return the line of a place in this piece; 0 for another piece."""
        return _place(self.fed, position.start)[0] if position.filename == self.filename else 0

    def next_step(self, at: Any) -> Awaitable[Any] | None:
        """Answer the code's last request, or return None if it waits for the calls of a turn. Raises `Over`."""
        self._trips += 1
        if self._trips > TRIPS:
            self.use.sleep(0)
        if hasattr(at, "pending_call_ids"):
            ids = sorted(at.pending_call_ids)
            if not ids or not self._promised.keys() >= set(ids):
                raise Over("", "it awaits what an earlier piece of code began, or nothing at all: make the call again")
            self.at, self.ids = at, ids
            self.calls = tuple(self._promised.pop(one) for one in ids)
            return None
        if hasattr(at, "variable_name"):
            # An undefined name may be a tool; a handle has no attributes.
            is_tool = at.object_id is None and at.variable_name in self._session.settings.functions
            resume: Any = at.resume
            return resume(value=stub(at.variable_name)) if is_tool else resume()  # type: ignore[no-any-return]
        answer = self._inside(at)
        if answer is not None:
            return _resume(at, answer)
        try:
            call = self._call(at)
        except (Unfit, ValueError) as why:
            kind = "TypeError" if isinstance(why, Unfit) else "ValueError"
            return _resume(at, self._session.make_error_answer(kind, f"{at.function_name}(): {why}"))
        self.use.add_calls(1)
        if self._is_awaited(at):
            self._promised[at.call_id] = call
            return _resume(at, {"future": ...})
        self.at, self.ids, self.calls = at, None, (call,)
        return None

    def _call(self, at: Any) -> OutCall:
        values, limits = self._session.values, self._session.settings.limits
        budget = Budget(limits.call_items, limits.call_depth)
        args = tuple(values.outward(one, budget) for one in at.args)
        kwargs = {name: values.outward(one, budget) for name, one in at.kwargs.items()}
        size = limits.call_items - budget.items - budget.bytes
        self.use.check_call(size)
        self.use.send(size)
        return OutCall(at.function_name, args, kwargs, size)

    def _is_awaited(self, at: Any) -> bool:
        if at.allow_eager_await:
            return True
        where = at.position
        source = self._session.sources.get(where.filename, "")
        if where.filename not in self._awaited:
            # The result of a function of an earlier piece may be awaited in this one.
            both = source if where.filename == self.filename else f"{source}\n{self.fed}"
            self._awaited[where.filename] = awaited_calls(both) if len(both) <= ANALYSED and source else set()
        return _place(source, where.start) in self._awaited[where.filename]

    def _inside(self, at: Any) -> Any:
        """Return the answer to a call of the sandbox itself; None for a call of the runtime."""
        raised = self._session.make_error_answer
        name = at.function_name
        if at.object_id is not None:
            if name == "__call__":
                return raised("TypeError", "objects that a tool gave can't be called or made: give them to a tool")
            return raised("AttributeError", f"the object has no method {name!r}: give it to a tool that can do this")
        if not at.is_os_function:
            if hasattr(builtins, name) and name not in self._session.settings.functions:
                return raised("NotImplementedError", f"This Python does not have {name}().")
            return None
        if name in ("time.sleep", "asyncio.sleep", "system.sleep", "system.async_sleep"):
            self.use.sleep(at.args[0] if at.args else 0)
            return {"return_value": None}
        try:
            if name == "datetime.now":
                zone = at.args[0] if at.args else None
                return {"return_value": self._now.replace(tzinfo=None) if zone is None else self._now.astimezone(zone)}
            if name == "date.today":
                return {"return_value": self._now.date()}
        except (TypeError, ValueError, OverflowError, OSError) as problem:
            return raised("ValueError", str(problem))
        if name == "time.time":
            return {"return_value": self._now.timestamp()}
        if name == "import":
            return raised("ModuleNotFoundError", f"No module named {at.args[0]!r}: this Python does not have it.")
        return raised("PermissionError", f"{name}: there are no files, no environment and no network here")


def clock(now: float, zone: int | None) -> datetime.datetime:
    """Return the time that a piece sees, in its zone: `zone` seconds ahead of UTC, None for this machine's."""
    if zone is None:
        return datetime.datetime.fromtimestamp(now).astimezone()
    return datetime.datetime.fromtimestamp(now, datetime.timezone(datetime.timedelta(seconds=zone)))


def adapt_code(code: str, functions: frozenset[str]) -> str:
    """Adapt code for Monty, with the same lines.

    A tool called in a `return` of an `async def` gets an `await`, because Monty would return the promise. `map(tool,
    xs)` becomes `(tool(_x) for _x in (xs))`, because Monty's map cannot call out.
    """
    if not ("async def" in code or "map(" in code) or len(code) > ANALYSED:
        return code
    tree = parse(code)
    if tree is None:
        return code
    nodes = list(ast.walk(tree))
    functions -= {one.name for one in nodes if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
    functions -= {one.id for one in nodes if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)}
    lines = [line.encode() for line in code.split("\n")]
    edits: list[tuple[int, int, int, bytes]] = []  # line from 0, columns from and to, new text
    for call in returned_calls(tree):
        if isinstance(call.func, ast.Name) and call.func.id in functions:
            edits.append((call.lineno - 1, call.col_offset, call.col_offset, b"await "))
    for node in nodes:
        match node:
            case ast.Call(ast.Name("map"), [ast.Name(tool), each], []) if tool in functions:
                ends = each.end_lineno, each.end_col_offset, node.end_col_offset
                if node.lineno == each.lineno and ends[0] == node.end_lineno and not isinstance(each, ast.Starred):
                    head = f"({tool}(_x) for _x in (".encode()
                    edits.append((node.lineno - 1, node.col_offset, each.col_offset, head))
                    edits.append(((ends[0] or 1) - 1, ends[1] or 0, ends[2] or 0, b"))"))
    for line, start, end, text in sorted(edits, reverse=True):
        lines[line] = lines[line][:start] + text + lines[line][end:]
    return b"\n".join(lines).decode()


def _place(source: str, start: int) -> tuple[int, int]:
    """Return line (from 1) and column of a byte offset, as `ast` counts them."""
    before = source.encode()[:start]
    return before.count(b"\n") + 1, start - (before.rfind(b"\n") + 1)


def _resume(at: Any, answer: Any) -> Awaitable[Any]:
    step: Awaitable[Any] = at.resume(answer)
    return step
