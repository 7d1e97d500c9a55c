"""Embedded servers of local models: one child process for each file and settings, shared by all runs.

llama.cpp holds Python's lock while it loads a model, prints messages, and may crash on a bad file, so it gets a
separate process. The child ends when its stdin does, so it cannot outlive us. Any thread or loop may ask for a server.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import importlib.util
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec

from plait.core.errors import ConfigError, ModelMissing
from plait.installation import install_hint
from plait.models.catalogue import CATALOGUE, DEFAULT
from plait.models.real_models import require_real_models
from plait.models.stages import measure_stage
from plait.user_files import open_file

_SCRIPT = Path(__file__).with_name("serve_gguf.py")
_SPINS = "500"
"""How often a model thread checks whether the others are done before it sleeps. With libgomp's default, some hundred
thousand, the threads block each other as soon as another program runs (benchmarks/threads.py)."""


class ServerSettings(msgspec.Struct, frozen=True):
    """The settings of a server. Each combination gets its own server.

    `n_ctx`: tokens of one request, prompt and reply together. `n_predict`: maximum tokens of a reply if its request
    sets no limit. `slots`: requests answered in parallel. `cache_mib`: memory (MiB) for prompts that lost their slot.
    Without `cache_prompt` a text does not depend on earlier requests, and each prompt is read whole.
    """

    n_ctx: Annotated[int, msgspec.Meta(ge=1)] = 8192
    n_predict: Annotated[int, msgspec.Meta(ge=1)] = 4096
    threads: Annotated[int, msgspec.Meta(ge=1)] = 1
    slots: Annotated[int, msgspec.Meta(ge=1)] = 1
    seed: Annotated[int, msgspec.Meta(ge=0, lt=2**32)] = 0
    cache_prompt: bool = True
    cache_mib: Annotated[int, msgspec.Meta(ge=0)] = 512


class ServerAddress(msgspec.Struct, frozen=True):
    """The base address (with /v1) of a running server, and the key it requires."""

    url: str
    key: str


def require_package(name: str) -> None:
    """Raise `ConfigError` if the package that runs local models is not installed. `name` is the model's; "" is the
    default."""
    if importlib.util.find_spec("xllamacpp") is not None:
        return
    known, needs = CATALOGUE.get(name or DEFAULT), ""
    if known is not None:
        memory = " and needs about 2 GB of memory" if known.name == DEFAULT else ""
        needs = f"\nPlait then downloads the model's file ({known.bytes / 1e6:,.0f} MB) at its first use{memory}."
    other = "set a provider's key, such as OPENAI_API_KEY or ANTHROPIC_API_KEY, or start Ollama"
    hint = f"{install_hint('local')}{needs}\nOr use another model: {other}, and name it, such as openai:gpt-4.1-mini."
    raise ConfigError(_needs_package(f"local:{name}" if name else "local"), hint=hint)


def _needs_package(name: str) -> str:
    return f"The model {name} runs on this machine, which needs the package xllamacpp. It is not installed."


class _Server:
    def __init__(self, name: str, settings: ServerSettings) -> None:
        self.name = name
        self.settings = settings
        self.up: Future[ServerAddress] = Future()
        self.up.set_running_or_notify_cancel()  # a cancelled waiter must not cancel the others
        self.process: subprocess.Popen[bytes] | None = None
        self.log: IO[bytes] | None = None

    @property
    def usable(self) -> bool:
        """Return whether it is loading, or ready and alive."""
        if not self.up.done():
            return True
        return self.up.exception() is None and self.process is not None and self.process.poll() is None

    def start(self, find: Callable[[], Path]) -> None:
        """Find the file and load it, in a thread. Sets `up`."""
        try:
            self.up.set_result(self._load(find()))
        except BaseException as error:
            self.close()
            self.up.set_exception(error)

    def _load(self, path: Path) -> ServerAddress:
        check_gguf(path)
        spec = importlib.util.find_spec("xllamacpp")
        if spec is None or not spec.submodule_search_locations:
            raise ModelMissing(_needs_package(self.name), hint=install_hint("local"))
        key = secrets.token_urlsafe(16)
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the child
        with _lock:
            if _ended:
                raise ModelMissing("This process is ending; no model is loaded any more.")
            # -P: the script's folder must not shadow modules. A new session, so that Ctrl-C reaches only us.
            self.process = subprocess.Popen(
                [sys.executable, "-P", str(_SCRIPT)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.log,
                start_new_session=True,
                env={"GOMP_SPINCOUNT": _SPINS, **os.environ},
            )
        assert self.process.stdin and self.process.stdout
        settings = {
            **msgspec.structs.asdict(self.settings),
            "path": str(path),
            "name": self.name,
            "key": key,
            "sys_path": [str(Path(place).parent) for place in spec.submodule_search_locations],
        }
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(msgspec.json.encode(settings) + b"\n")
            self.process.stdin.flush()
        with measure_stage("loading model", self.name):
            line = self.process.stdout.readline()
            if not line:
                raise self._load_error(path)
        return ServerAddress(msgspec.json.decode(line)["address"] + "/v1", key)

    def _load_error(self, path: Path) -> ModelMissing:
        assert self.process and self.log
        code = self.process.wait()
        if code < 0:
            size = path.stat().st_size / 1e9
            return ModelMissing(
                f"The process that loads {path} was ended by {signal.Signals(-code).name}.",
                hint=f"Most likely memory ran out (the file alone is {size:.1f} GB): take a smaller model, "
                "or a smaller n_ctx.",
            )
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").strip().splitlines()
        errors = [match[1] for line in lines if (match := re.match(r"[\d.]+ E (?:\w+ +)?\w+: (.+)", line))]
        reason = errors[0] if errors else lines[-1] if lines else f"it ended with code {code} and gave no reason"
        return ModelMissing(
            f"{path} can't be loaded: {reason.removeprefix('error loading model: ')}.",
            hint="The file is damaged, cut short, or not a model llama.cpp knows; fetch it again.",
        )

    def close(self) -> None:
        """End the child at once and reap it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
        if self.log is not None:
            self.log.close()


_lock = threading.RLock()
_servers: dict[tuple[str, ServerSettings], _Server] = {}
_owner = os.getpid()
_ended = False


def is_loading(name: str) -> bool:
    """Return whether this process is downloading or loading the file of a model, by its `local_key`."""
    with _lock:
        return any(key == name and not server.up.done() for (key, _), server in _servers.items())


def ended_how(name: str, settings: ServerSettings) -> str:
    """Return how a model's server ended ("signal 9", "code 1"); "" if it is running or never started."""
    with _lock:
        server = _servers.get((name, settings))
    code = server.process.poll() if server is not None and server.process is not None else None
    return "" if code is None else f"signal {-code}" if code < 0 else f"code {code}"


async def start_server(name: str, settings: ServerSettings, find: Callable[[], Path]) -> ServerAddress:
    """Return the server of a model, started if necessary. Raises `ModelMissing`. `find` returns the model's file; it
    may take long, so it runs in a thread. Cancelling stops the waiting, not the load."""
    global _owner
    require_real_models(f"local:{name}")
    with _lock:
        if _owner != os.getpid():  # after a fork: those children belong to our parent
            _servers.clear()
            _owner = os.getpid()
        server = _servers.get((name, settings))
        if server is None or not server.usable:
            if server is not None:
                server.close()
            server = _servers[name, settings] = _Server(name, settings)
            # A daemon thread: an executor's thread would delay the end of the process until the model is loaded.
            threading.Thread(target=server.start, args=(find,), name=f"load {name}", daemon=True).start()
    return await asyncio.wrap_future(server.up)


def close_all() -> None:
    """End every server of this process. The next request starts a new one."""
    with _lock:
        servers = list(_servers.values())
        _servers.clear()
    if _owner == os.getpid():
        for server in servers:
            server.close()


@atexit.register
def _end() -> None:
    global _ended
    _ended = True
    close_all()


def check_gguf(path: Path) -> None:
    """Raise `ModelMissing` unless the file begins like a GGUF file."""
    hint = "Give the path of a .gguf file, or a name from `plait models list`."
    try:
        with open_file(path) as file:
            magic: Any = file.read(4)
    except FileNotFoundError:
        raise ModelMissing(f"There is no model file {path}.", hint=hint) from None
    except OSError as error:
        raise ModelMissing(f"The model file {path} can't be read: {error.strerror}.", hint=hint) from error
    if not magic:
        raise ModelMissing(f"The model file {path} is empty.", hint=hint)
    if magic != b"GGUF":
        raise ModelMissing(f"{path} is not a GGUF file (it begins with {magic!r}).", hint=hint)
