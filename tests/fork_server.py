"""Runs Python programs in forked processes, which have Plait imported already.

    done = run_forked(["-c", "print(1)"], cwd=folder, env=env)
    child = start_forked(["script.py", "argument"], cwd=folder, env=env, stdin=..., stdout=..., stderr=...)

The arguments are those of the interpreter: a script, `-c CODE` or `-m MODULE`. Each program is a process with its own
folder, environment, standard streams, threads and exit code. So it can be killed, and it cannot change another test. It
starts in some 20 ms; a new interpreter that imports Plait needs half a second or more.

One server serves a test process. It runs one thread, so a fork never copies a lock that another thread holds.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from fork_client import SIZE, receive, send_order

PRELOADED = """
    aiohttp click jinja2 mcp.server.mcpserver msgspec numpy pydantic rich.console rich.live rich.markdown rich.table
    sqlite3 genai_prices
    plait.agent plait.models.chat plait.models.scripted plait.journal.store plait.runtime.engine plait.cli.commands
    plait.cli.run plait.cli.chat plait.cli.show plait.cli.plan plait.cli.compare plait.cli.costs plait.cli.resume
    plait.loops.react.loop plait.loops.tool_calling.loop plait.loops.codeact.loop plait.loops.phased.loop
    plait.loops.compiler.loop plait.loops.rewoo.loop plait.toolkits.calculator plait.journal.sqlite.store
    jinja2.sandbox encodings.ascii encodings.unicode_escape
"""
"""Modules that the server imports once. A module that is missing is left to the program."""

WARM_LOOPS = ("react", "json", "tool_calling", "phased", "compiler", "rewoo")
"""Loops whose prompts and patterns the server compiles once. Loops of code are missing: they start a sandbox."""

Words = Sequence[str | Path]


class Child:
    """A forked program: as much of `subprocess.Popen` as tests use."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self.pid = int.from_bytes(receive(control, SIZE), "big")
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, or minus the number of the signal. Raises `subprocess.TimeoutExpired`."""
        if self.returncode is None:
            self._control.settimeout(timeout)
            try:
                self.returncode = int.from_bytes(receive(self._control, SIZE), "big", signed=True)
            except TimeoutError:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0) from None
            self._control.close()
        return self.returncode

    def poll(self) -> int | None:
        """The exit code if the program has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0.001)
        return None

    def send_signal(self, number: int) -> None:
        """Send a signal unless the program has ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """A process that has imported Plait and forks for each program."""

    def __init__(self) -> None:
        self._socket, its = socket.socketpair()
        self._lock = threading.Lock()
        with its:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(its.fileno())],
                pass_fds=(its.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # threads do not survive a fork
            )

    def start(self, words: Words, *, cwd: str | Path, env: Mapping[str, str], streams: tuple[int, int, int]) -> Child:
        """Fork; the child runs `python WORDS` with these files as stdin, stdout and stderr."""
        with self._lock:
            control = send_order(self._socket, words, str(cwd), env, streams)
        return Child(control)

    def run_shell(self, command: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command in bash, where `plait` is a fork, with options of `subprocess.run`."""
        client = [sys.executable, "-IS", str(Path(__file__).with_name("fork_client.py")), str(self._socket.fileno())]
        plait = f'plait() {{ {shlex.join([*client, str(Path(sys.executable).with_name("plait"))])} "$@"; }}\n'
        return subprocess.run(["bash", "-c", plait + command], pass_fds=(self._socket.fileno(),), **options)

    def close(self) -> None:
        """End the server and the programs that still run."""
        self._socket.shutdown(socket.SHUT_RDWR)  # a process that a shell left behind may have it open too
        self._socket.close()
        self._process.wait(30)


@cache
def _server(pid: int) -> ForkServer:
    made = ForkServer()
    atexit.register(made.close)
    return made


def can_fork(env: Mapping[str, str]) -> bool:
    """Whether a fork equals a new interpreter: not if the environment changes how Python itself starts."""

    def at_start(of: Mapping[str, str]) -> dict[str, str]:
        names = ("PYTHON", "LC_", "LANG", "OTEL_PYTHON_CONTEXT")
        return {name: value for name, value in of.items() if name.startswith(names) and name != "PYTHONPATH"}

    return at_start(os.environ) == at_start(env)


def start_forked(
    words: Words, *, cwd: str | Path = ".", env: Mapping[str, str] | None = None, stdin: int, stdout: int, stderr: int
) -> Child:
    """Start `python WORDS` in a fork of this test process's server. The streams are numbers of open files."""
    where = os.path.abspath(cwd)
    return _server(os.getpid()).start(
        words, cwd=where, env=os.environ if env is None else env, streams=(stdin, stdout, stderr)
    )


def run_shell(command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command in bash, where `plait` is a fork, with options of `subprocess.run`."""
    return _server(os.getpid()).run_shell(command, **options)


def run_forked(
    words: Words,
    *,
    cwd: str | Path = ".",
    env: Mapping[str, str] | None = None,
    given: str | None = None,
    timeout: float = 120,
    together: bool = False,
    interrupt: tuple[float, int] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `python WORDS` in a fork to its end; `given` is its stdin, which is empty for None.

    With `together`, stderr goes to stdout. `interrupt`: the number of a signal that it gets after so many seconds.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, _stdin(given) as in_:
        streams = {"stdin": in_, "stdout": out.fileno(), "stderr": (out if together else err).fileno()}
        child = start_forked(words, cwd=cwd, env=env, **streams)
        try:
            if interrupt is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(interrupt[0])
                child.send_signal(interrupt[1])
            code = child.wait(timeout)
        except BaseException:
            child.kill()
            raise
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace").replace("\r\n", "\n"))
        return subprocess.CompletedProcess(list(words), code, *texts)


def run_together(programs: Sequence[Words], **options: Any) -> list[subprocess.CompletedProcess[str]]:
    """Run programs at the same time, each as `run_forked` does with these options."""
    _server(os.getpid())  # one for all of them
    with ThreadPoolExecutor(len(programs)) as pool:
        return list(pool.map(lambda words: run_forked(words, **options), programs))


@contextlib.contextmanager
def _stdin(given: str | None) -> Any:
    """A file with that text: a pipe, as a shell gives one."""
    if given is None:
        with open(os.devnull, "rb") as nothing:
            yield nothing.fileno()
        return
    reading, writing = os.pipe()

    def write() -> None:
        with contextlib.suppress(BrokenPipeError), open(writing, "wb") as file:
            file.write(given.encode())

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield reading
    finally:
        os.close(reading)
        writer.join(10)


# --- in the server


def _serve(source: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Fork for each order. Returns the order and the standard streams in a child, and None in the server at its end."""
    reading, writing = os.pipe()
    for end in (reading, writing):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(writing)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(source, selectors.EVENT_READ)
        selector.register(reading, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj == reading:
                    with contextlib.suppress(BlockingIOError):
                        os.read(reading, 4096)
                    _report(running)
                    continue
                head, files, _, _ = socket.recv_fds(source, SIZE, 4)
                if not head:
                    for pid in running:
                        os.kill(pid, signal.SIGKILL)
                    return None
                order = json.loads(receive(source, int.from_bytes(head, "big")))
                control = socket.socket(fileno=files[0])
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for each in (reading, writing):
                        os.close(each)
                    for each in (source, control, *running.values()):
                        each.close()
                    return order, files[1:]
                for each in files[1:]:
                    os.close(each)
                running[pid] = control
                control.sendall(pid.to_bytes(SIZE, "big"))


def _report(running: dict[int, socket.socket]) -> None:
    """Send the exit code of each child that has ended."""
    for pid, control in list(running.items()):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            with contextlib.suppress(OSError):  # nobody waits for it any more
                control.sendall(os.waitstatus_to_exitcode(status).to_bytes(SIZE, "big", signed=True))
            running.pop(pid).close()


def _become(order: dict[str, Any], streams: list[int]) -> None:
    """Take over the order's folder, environment and streams, then run its program as the interpreter would."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
        _open_stream(("stdin", "stdout", "stderr")[number], number)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    sys.path[1:1] = [
        folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder and folder not in sys.path
    ]
    first, *rest = order["words"]
    if first == "-m":
        sys.argv, sys.path[0] = rest, os.getcwd()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if first == "-c":
        code, name, sys.argv, sys.path[0] = rest[0], "<string>", ["-c", *rest[1:]], ""
    else:
        code, name, sys.argv, sys.path[0] = Path(first).read_text(), first, [first, *rest], str(Path(first).parent)
        main.__file__ = first
    exec(compile(code, name, "exec"), main.__dict__)


def _open_stream(name: str, number: int) -> None:
    errors = "backslashreplace" if name == "stderr" else "strict"
    lines = 1 if name == "stderr" or os.isatty(number) else -1
    stream = open(number, "r" if number == 0 else "w", lines, "utf-8", errors, closefd=False)  # noqa: SIM115
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)


def _warm_up() -> None:
    """Compile the prompts and patterns of the loops, which takes a program longer than its run.

    The runs have no journal, so they leave no file, connection or thread behind. How they end does not matter.
    """
    import plait

    reply = "Thought: I know.\nFinal Answer: so"

    async def run(loop: str) -> None:
        with contextlib.suppress(plait.PlaitError):
            await plait.Agent(loop, model=plait.Scripted([reply]), tools=["calculator"], journal=False).arun("?")

    for loop in WARM_LOOPS:
        asyncio.run(run(loop))
    plait.telemetry._tracer = None  # the environment of each command decides
    assert threading.active_count() == 1


def _main() -> None:
    for module in PRELOADED.split():
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    _warm_up()
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page
    ordered = _serve(socket.socket(fileno=int(sys.argv[1])))
    if ordered is None:
        return
    code = 1
    try:
        _become(*ordered)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    _end(code)


def _end(code: int) -> None:
    """End as the interpreter does, except that it does not take its modules apart: that takes 100 ms."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or 120
    os._exit(code)


if __name__ == "__main__":
    _main()
