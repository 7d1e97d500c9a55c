"""The sandbox "process": full CPython in a separate process that the kernel confines (see `confine`).

It starts only where it can confine: Linux with seccomp filters, on x86_64 or aarch64.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import secrets
import time
import zoneinfo
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from msgspec import structs

from plait.core.artifacts import ArtifactHandle
from plait.core.code import CodeError, CodeLimit
from plait.core.errors import ConfigError
from plait.sandbox.base import (
    PRELUDE,
    OutCall,
    Result,
    SandboxSession,
    SandboxTurn,
    Settings,
    check_results,
    code_error,
)
from plait.sandbox.packages import InstalledPackages, find_packages
from plait.sandbox.piece_limits import PieceUse, describe_limit
from plait.sandbox.process_child import INLINE_BYTES, Broken, Child
from plait.sandbox.worker_packages import FILES, NAME_CHARS
from plait.sandbox.worker_session import OUT_OF_MEMORY
from plait.sandbox.worker_values import RESULT_DEPTH, Budget, clean, pack, unpack

OTHER_BYTES = 100_000
"""Bytes that a message may hold besides the arguments of calls."""

STARTING = 60.0
"""Seconds that a worker may take to start."""


@dataclass(frozen=True)
class Process:
    """Full CPython in a separate process without files, network or further processes.

    `packages` are names of installed packages that code may import, such as ["pandas", "numpy", "matplotlib"]. Raises
    `ConfigError` if one of them is not installed.
    """

    packages: Sequence[str] = ()

    def __post_init__(self) -> None:
        if isinstance(self.packages, str):
            raise ConfigError("Process(packages=) is one text.", hint='Give a list: Process(packages=["pandas"]).')
        object.__setattr__(self, "packages", tuple(self.packages))
        find_packages(self.packages)

    @property
    def name(self) -> str:
        return f"process:{','.join(self.packages)}" if self.packages else "process"

    async def open(self, settings: Settings) -> SandboxSession:
        session = ProcessSession(settings, find_packages(tuple(self.packages)) if self.packages else None)
        await session.start()
        return session


class ProcessSession:
    """One namespace in one process. A limit of time or memory, or a crash, replaces it by an empty one.

    `walls` says what confines it: {"seccomp": true, "landlock": its version or 0, "namespaces": their names}.
    """

    def __init__(self, settings: Settings, packages: InstalledPackages | None = None) -> None:
        self.settings, self.packages = settings, packages
        self.walls: dict[str, Any] = {}
        self._child: Child | None = None
        self._closed = False
        self._tokens: dict[str, str] = {}
        self._handles: dict[str, ArtifactHandle] = {}
        self._waiting = 0
        self._use = PieceUse(settings.limits, _refuse)
        self._shown = 0
        self._code = ""

    async def start(self) -> None:
        limits = self.settings.limits
        first: dict[str, Any] = {
            "limits": structs.asdict(limits),
            "seed": self.settings.seed,
            "functions": sorted(self.settings.functions),
            "prelude": PRELUDE,
            "packages": None if self.packages is None else structs.asdict(self.packages),
        }
        bundled = find_spec("tzdata")  # a package with time zones
        places = (bundled.submodule_search_locations or ()) if bundled is not None else ()
        first["zones"] = [*zoneinfo.TZPATH, *(os.path.join(place, "zoneinfo") for place in places)]
        child = self._child = await Child.start(4 * limits.output_chars)
        first |= {"folder": child.folder, "parent": os.getpid()}
        said: dict[str, Any] = {}
        problem, status = "it ended without a word", 0
        try:
            _, said = await child.exchange(first, STARTING, OTHER_BYTES, OTHER_BYTES)
        except TimeoutError:
            problem = f"it was not ready within {STARTING:g} s"
        except Broken as broken:
            problem = str(broken)
        finally:
            if "ready" not in said:
                self._child = None
                status = await child.end()
        if "lacks" in said:
            hint = "It refuses to run unconfined. Use the sandbox monty, or a Linux kernel with seccomp filters."
            raise ConfigError(f"The process sandbox can't confine code on this machine: {said['lacks']}.", hint=hint)
        if "ready" not in said:
            raise ConfigError(
                f"The process sandbox could not start its process: {said.get('failed', problem)} (status {status}).",
                hint=f"It may take {self.settings.limits.memory_mb} MB of memory (memory_mb): is it enough, and there?",
            )
        self.walls = said["ready"]

    async def run(self, code: str, now: float, zone: int | None = None) -> SandboxTurn:
        if self._closed:
            raise ConfigError("This session of the process sandbox is closed.", hint="Open another.")
        if self._child is None:
            await self.start()
        self._use.begin()
        self._code, self._shown, self._waiting = code, 0, 0
        offset = time.localtime(now).tm_gmtoff if zone is None else zone
        return await self._turn({"code": clean(code), "now": now, "offset": offset})

    async def go_on(self, results: Sequence[Result]) -> SandboxTurn:
        check_results(results, self._waiting)
        self._waiting = 0
        if all(result.value is None or type(result.value) in (bool, int, float) for result in results):
            results_data = [self._encode_result(result) for result in results]
        else:  # a large value would block the event loop
            results_data = await asyncio.to_thread(lambda: [self._encode_result(result) for result in results])
        return await self._turn({"results": results_data})

    async def close(self) -> None:
        self._closed, self._waiting = True, 0
        child, self._child = self._child, None
        if child is not None:
            await child.end()

    async def _turn(self, request: dict[str, Any]) -> SandboxTurn:
        child = self._child
        assert child is not None
        child.number = secrets.randbits(63)
        limits = self.settings.limits
        began = time.monotonic()
        try:
            max_bytes = max(limits.sent_bytes - self._use.sent, 0) + OTHER_BYTES
            left = max(limits.seconds - self._use.seconds, 0.001)
            length, answer = await child.exchange(
                request | {"number": child.number}, left, max_bytes, 10 * limits.call_items
            )
            ran = time.monotonic() - began
            self._use.seconds += ran
            if answer.get("full"):
                raise Broken("too many pieces of code were given up")
            data = answer.pop("files", [])
            if not isinstance(data, list) or len(data) > FILES:
                raise Broken("no files")
            files = tuple((_name_file(name), base64.b64decode(content, validate=True)) for name, content in data)
            if answer.keys() not in ({"calls"}, {"error"}):
                raise Broken("no message")
            calls: tuple[OutCall, ...] = ()
            if "calls" in answer or files:
                self._use.sent += length
            if "calls" in answer:
                if length > INLINE_BYTES:
                    calls = await asyncio.to_thread(self._calls, answer["calls"], length)
                else:
                    calls = self._calls(answer["calls"], length)
            error = self._error(answer["error"]) if "error" in answer else None
            if "calls" in answer and not calls:
                raise Broken("no calls")
            self._use.add_calls(len(calls))
        except TimeoutError:
            return await self._lost(child, began, "time")
        except (Broken, LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as problem:
            if self._closed:
                return await self._lost(child, began, why="the session was closed")
            status, why = await child.end(), str(problem)
            if status == OUT_OF_MEMORY:
                return await self._lost(child, began, "memory")
            if why == "its process ended":
                how = f"ended by signal {-status}" if status < 0 else f"exited with status {status}"
                why = f"its process {how}"
            return await self._lost(child, began, why=f"the session broke off: {why}")
        except BaseException:
            await self._drop(child)
            raise
        self._waiting = len(calls)
        return SandboxTurn(self._output(child, ended=not calls), calls, error, seconds=ran, files=files)

    async def _lost(self, child: Child, began: float, limit: CodeLimit = "", why: str = "") -> SandboxTurn:
        await self._drop(child)
        kind, words = describe_limit(limit, self.settings.limits)
        error = CodeError(kind, words or why, limit=limit)
        return SandboxTurn(self._output(child, ended=True), (), error, True, time.monotonic() - began)

    async def _drop(self, child: Child) -> None:
        if self._child is child:
            self._child = None
        self._waiting = 0
        await child.end()

    def _output(self, child: Child, ended: bool) -> str:
        """Return the output since the last call; at the end, with a note of what is not shown."""
        data, self._use.printed = child.read_output()
        text = data.decode("utf-8", "replace")[: self.settings.limits.output_chars]
        new, self._shown = text[self._shown :], len(text)
        return new + self._use.end_output() if ended else new

    def _calls(self, data: Any, length: int) -> tuple[OutCall, ...]:
        def handle(stands: dict[str, Any]) -> ArtifactHandle:
            return self._handles[stands["$handle"]]

        calls = []
        for name, args, kwargs in data:
            if not isinstance(name, str) or not isinstance(args, list) or not isinstance(kwargs, dict):
                raise Broken("no call")
            calls.append(
                OutCall(
                    clean(name)[:200],
                    tuple(unpack(one, handle) for one in args),
                    {clean(key): unpack(one, handle) for key, one in kwargs.items()},
                    length,
                )
            )
        return tuple(calls)

    def _error(self, data: Any) -> CodeError | None:
        if data is None:
            return None
        limit = data["limit"]
        known: CodeLimit = limit if limit in ("time", "memory", "recursion", "output", "tool_calls") else ""
        line = data["line"] if type(data["line"]) is int and 0 < data["line"] <= len(self._code) + 1 else 0
        return code_error(self._code, clean(str(data["type"]))[:200], clean(str(data["message"])), line, known)

    def _encode_result(self, result: Result) -> dict[str, Any]:
        if result.error:
            return {"error": result.error, "message": result.message}
        things: dict[str, str] = {}
        try:
            return {
                "value": pack(
                    result.value, lambda value: self._token(value, things), Budget(depth=RESULT_DEPTH, figures=True)
                ),
                "things": things,
            }
        except (TypeError, ValueError) as problem:
            return {"error": "TypeError", "message": f"the result can't be passed to the code: {problem}"}

    def _token(self, value: Any, things: dict[str, str]) -> dict[str, str] | None:
        if not isinstance(value, ArtifactHandle):
            return None
        token = self._tokens.get(value.id)
        if token is None:
            token = self._tokens[value.id] = secrets.token_hex(16)
            self._handles[token] = value
        things[token] = value.about
        return {"$handle": token}


def _name_file(name: Any) -> str:
    """Return a name without folders, control characters and leading points."""
    return re.sub(r"[^\w .+()-]", "_", clean(str(name))).lstrip(" .")[:NAME_CHARS] or "file"


def _refuse(limit: str, _: int) -> None:
    raise Broken(f"its worker exceeds the limit of {limit}")
