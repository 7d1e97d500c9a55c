"""Runs a model's code: holds the run's Python session, and makes it again when a run goes on.

Code does nothing outside but by calls, which come back to the loop. So a piece of code needs no intent on the record:
what came of it is written together with the intents of the calls it made, before they begin. A process that finds
recorded pieces feeds them to a fresh session with the times and results on record, and goes on where the record ends.
"""

from __future__ import annotations

import asyncio
import builtins
import logging
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from math import isfinite
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from plait.core import ArtifactHandle, Call, Continue, Execute, Observation, PlaitError, Ran
from plait.core import events as ev
from plait.core.artifacts import MARK, replace_handles
from plait.core.attachments import Attachment, File, find_attachment
from plait.journal.records import CodeResult
from plait.runtime.guard import Entry
from plait.runtime.performers.base import BasePerformer
from plait.runtime.run_spec import differs
from plait.sandbox import OutCall, Result, SandboxSession, SandboxTurn, Settings, sandbox
from plait.sandbox.worker_values import Budget, pack, unpack
from plait.tools import Toolset
from plait.tools.render import NO_RESULT, describe_bytes

if TYPE_CHECKING:
    from plait.runtime.engine import Engine

logger = logging.getLogger("plait")

LARGE = 20_000
"""Bytes of a call that are not read on the event loop."""

DEEPEST = 200
"""Maximum depth of values from a sandbox, above the limit of each sandbox."""

_RAISED = re.compile(r"Error: (\w+): (.*)", re.DOTALL)
_ADDRESS = re.compile(rb" at 0x[0-9a-f]+")


@dataclass
class RunningPiece:
    """A piece of code that ran in the session: with what it was given, so that it can run again, and what came last."""

    code: str
    now: float
    zone: int | None
    ran: Ran
    results: list[tuple[Result, ...]] = field(default_factory=list)


class RunCode(BasePerformer):
    """Performs `Execute` and `Continue`: holds the run's Python session, and makes it again when a run goes on."""

    work = "code"
    subject = ("code", "result of the code")

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._session: SandboxSession | None = None
        self._pieces: list[RunningPiece] = []
        self._seed: int | None = None

    async def perform(self, entry: Entry) -> tuple[CodeResult, bytes | None]:
        """Run a piece, or go on with it."""
        engine, effect, step = self.engine, entry.effect, entry.step
        results = () if isinstance(effect, Execute) else self._read_results(effect)
        session = await self._open_session()
        code = effect.code if isinstance(effect, Execute) else None
        now, zone = 0.0, None
        if code is not None:
            now = time.time() if engine.run_spec.now is None else engine.run_spec.now
            zone = time.localtime(now).tm_gmtoff
            engine.say(ev.Executing(step, code))
        with engine.span.code(step, code) as span:
            turn = session.go_on(results) if code is None else session.run(code, now, zone)
            made = await turn
            ran = await self._read_turn(made)
            handles: list[ArtifactHandle] = []
            seen: list[Attachment] = []
            for name, data in made.files:
                file = File.from_bytes(data, name)
                if file.media_type == "text/plain" and name.endswith(".csv"):
                    file = File("text/csv", file.data, name)
                handles.append(engine.artifacts.keep(file))
                seen += found[:1] if (found := find_attachment(file)) else ()
            ran = structs.replace(ran, made=tuple(handles), attachments=tuple(seen)) if handles else ran
            if ran.lost:
                ran = await self._restore(ran, self._pieces if code is not None else self._pieces[:-1])
            span.ran(ran)
        engine.say(ev.Executed(step, ran))
        result = CodeResult(ran, code, now, (self._seed or 0) if code is not None else 0, zone)
        return result, engine.artifacts.encode_new([each.json() for each in ran.made])

    async def _restore(self, ran: Ran, before: list[RunningPiece]) -> Ran:
        """Run the pieces before a lost one again, with their recorded results. Returns what the loop is told."""
        session = self._session
        assert session is not None
        for piece in before:
            if not await self._runs_alike(session, piece):
                self._session = None
                await session.close()
                return ran
        return structs.replace(ran, lost=False, undone=True)

    async def take(self, key: str, effect: Execute | Continue, *, started: bool, beside: int) -> Ran:
        """Return what became of the code, performed or recorded. Both are kept, to make the session again."""
        results = () if isinstance(effect, Execute) else self._read_results(effect)
        entry = Entry(self.engine.run_id, key, self.engine.steps, effect, effect)
        with await self.engine.chain.admit(entry, self) as admitted:
            made: CodeResult = await self.engine.carry_out(admitted)
        code = effect.code if isinstance(effect, Execute) else None
        if code != made.code:
            raise differs(key, entry.step, made.code or "", code or "")
        if made.code is not None:
            self._seed = made.seed
            self._pieces.append(RunningPiece(made.code, made.now, made.zone, made.ran))
        else:
            self._pieces[-1].results.append(results)
            self._pieces[-1].ran = made.ran
        if made.ran.lost:
            self._pieces.clear()
        elif made.ran.undone:
            self._pieces.pop()
        ran: Ran = await self.engine.chain.settle(admitted, made.ran)
        return ran

    async def close(self) -> None:
        """End the session."""
        if self._session is not None:
            try:
                await self._session.close()
            except Exception:  # how the run ended is not to be lost to this
                logger.debug("the session did not close", exc_info=True)

    async def _open_session(self) -> SandboxSession:
        """Return the session: fresh, or made again as the record says it was."""
        if self._session is not None:
            return self._session
        run_spec = self.engine.run_spec
        if self._seed is None:
            self._seed = secrets.randbelow(2**31)
        made = sandbox(run_spec.sandbox) if isinstance(run_spec.sandbox, str) else run_spec.sandbox
        if run_spec.fallback and not self._pieces:
            self.engine.remark("sandbox", run_spec.fallback)
        names = frozenset(spec.name for spec in (*run_spec.context.tools, *run_spec.context.others))
        self._session = session = await made.open(Settings(names, run_spec.agent.limits.code, self._seed))
        for piece in self._pieces:
            if not await self._runs_alike(session, piece):
                raise PlaitError(
                    "The run's Python session can't be made again: its code did otherwise than on record.",
                    hint="The sandbox or its limits have changed since. Fork the run before its first piece of code.",
                )
        return session

    async def _runs_alike(self, session: SandboxSession, piece: RunningPiece) -> bool:
        """Run a piece again; return whether it came to the same calls and ended as it did. A limit may have fallen
        otherwise."""
        turn = await session.run(piece.code, piece.now, piece.zone)
        for results in piece.results:
            if len(turn.calls) != len(results):
                return False
            turn = await session.go_on(results)
        ran = await self._read_turn(turn)
        return (
            _without_addresses(ran) == _without_addresses(piece.ran)
            and not ran.lost
            and _ended(ran) == _ended(piece.ran)
        )

    async def _read_turn(self, turn: SandboxTurn) -> Ran:
        def read_calls() -> tuple[Call, ...]:
            return tuple(call_of(each, self.engine.run_spec.tools) for each in turn.calls)

        large = any(each.size > LARGE for each in turn.calls)
        calls = await asyncio.to_thread(read_calls) if large else read_calls()
        return Ran(turn.output, calls, turn.error, turn.lost, round(turn.seconds, 6))

    def _read_results(self, effect: Continue) -> tuple[Result, ...]:
        waits = self._pieces[-1].ran.calls if self._pieces else ()
        if len(waits) != len(effect.observations) or not waits:
            raise ValueError(f"{len(effect.observations)} results for {len(waits)} calls that the code waits for")
        return tuple(map(result_of, waits, effect.observations))


def _without_addresses(ran: Ran) -> tuple[Call, ...] | bytes:
    """The calls, without addresses in memory: those in a `repr` may differ on another machine."""
    written = msgspec.json.encode(ran.calls)
    return _ADDRESS.sub(b" at 0x", written) if b" at 0x" in written else ran.calls


def _ended(ran: Ran) -> tuple[str, str]:
    return (ran.error.type, ran.error.limit) if ran.error is not None else ("", "")


def call_of(out: OutCall, tools: Toolset) -> Call:
    """Return a call that the code made as a call like any other, with arguments by name if the tool is known."""
    tool = tools.get(out.name)
    if not out.args and not out.kwargs:
        return Call(out.name, by_code=tool is not None)
    write = _plain if tool is None else _written
    args, kwargs = [write(each) for each in out.args], {_key(name): write(each) for name, each in out.kwargs.items()}
    names, spread = (tool.signature.names, tool.signature.spread) if tool is not None else ([], "")
    placed = dict(zip(names, args, strict=False))
    if spread and len(args) > len(names):
        placed[spread] = args[len(names) :]
    if tool is not None and (spread or len(args) <= len(names)) and not kwargs.keys() & placed.keys():
        return Call(out.name, placed | kwargs, by_code=True)
    return Call(out.name, {"args": args, **kwargs} if kwargs else args, by_code=tool is not None)


def result_of(call: Call, observation: Observation) -> Result:
    """Return what the code gets for a call: the value, or an exception for the trouble."""
    match observation.trouble:
        case "" if observation.exact is not None:
            return Result(unpack(observation.exact, ArtifactHandle.read))
        case "":
            text = None if observation.text == NO_RESULT else observation.text
            value = observation.value
            return Result(text if value is None else replace_handles(value, lambda handle, _: handle))
        case "unknown_tool":
            return Result(error="NameError", message=f"name '{call.tool}' is not defined")
        case "bad_input":
            return Result(error="TypeError", message=observation.text)
        case "timeout":
            return Result(error="TimeoutError", message=observation.text.removeprefix("Error: "))
        case "refused":
            return Result(error="PermissionError", message=observation.text)
    raised = _RAISED.fullmatch(observation.text)
    kind = getattr(builtins, raised[1], None) if raised else None
    if raised and isinstance(kind, type) and issubclass(kind, Exception):
        return Result(error=raised[1], message=raised[2])
    return Result(error="RuntimeError", message=observation.text.removeprefix("Error: "))


def _written(value: Any) -> Any:
    """A value from the sandbox as the input of a call holds it, nothing of it changed."""
    return pack(value, lambda one: one.json() if isinstance(one, ArtifactHandle) else None, Budget(depth=DEEPEST))


def _key(name: str) -> str:
    # The code must not imitate a handle that it did not get, or another kind of value.
    return name.lstrip("$")


def _plain(value: Any) -> Any:
    """A value from the sandbox as JSON holds it, for a call of no tool: what JSON has no word for becomes text."""
    if isinstance(value, ArtifactHandle):
        return value.json()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, Mapping):
        # The code must not imitate a handle that it did not get.
        return {"thing" if key == MARK else str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (set, frozenset)):
        return [_plain(each) for each in sorted(value, key=repr)]
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return [_plain(each) for each in value]
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return describe_bytes(bytes(value)) if isinstance(value, (bytes, bytearray)) else str(value)
