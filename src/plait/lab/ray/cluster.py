"""Starts or joins a Ray cluster. Plait suppresses Ray's output and usage reports."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

from plait.core.errors import ConfigError, PlaitError
from plait.installation import install_hint

PATIENCE = 5.0
"""Seconds in which a cluster's address must answer."""
STARTS = 3
"""Number of attempts to start a cluster: Ray gives its processes 30 seconds, too few on a loaded machine."""
STORE = 256 * 2**20
"""Bytes of shared memory in a cluster that Plait starts; larger data goes to the disk."""


def import_ray() -> Any:
    """Return the package ray. Raises `ConfigError` with the extra if it is missing."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # no usage statistics; read when the package is first used
    try:
        import ray
    except ImportError as error:
        raise ConfigError(
            f"--engine ray needs the package ray, and {error.name or 'ray'} is not there.", hint=install_hint("ray")
        ) from None
    return ray


class RayCluster:
    """A cluster that this process is part of, until `leave()`. Both calls block: see `engine.py`.

    `address`: HOST:PORT of an existing cluster ("auto": one on this machine). None starts one with `cpus` CPUs (None:
    all), and `leave` ends it. If the program has called `ray.init` itself, Plait uses that cluster and leaves it
    running. Raises `PlaitError` if the cluster cannot be reached or started.
    """

    def __init__(self, address: str | None, cpus: int | None = None) -> None:
        self.ray = import_ray()
        self.folder = ""
        """The folder for workers' files: in a cluster that Plait started, else ""."""
        self._leave = threading.Event()
        self._thread: threading.Thread | None = None
        if address is not None:
            _check_address(address)
        if self.ray.is_initialized():
            there = self.ray.get_runtime_context().gcs_address
            if address not in (None, "auto", there):
                raise ConfigError(
                    f"This process is part of the Ray cluster at {there}, and can't join {address} as well.",
                    hint="Call ray.shutdown() first, or leave the address out.",
                )
            return
        options: dict[str, Any] = {"include_dashboard": False} if address is None else {}
        if address is None:
            parent = tempfile.gettempdir()
            # Ray puts its sockets there; their paths may have about a hundred letters.
            self.folder = tempfile.mkdtemp(prefix="plait-ray-", dir=parent if len(parent) < 30 else "/tmp")
            options |= {"address": "local", "num_cpus": cpus, "object_store_memory": STORE, "_temp_dir": self.folder}
        else:
            options["address"] = address
        self._start(address, options)

    @property
    def cpus(self) -> int:
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)))

    def leave(self) -> None:
        """End a cluster that Plait started; leave any other."""
        if self._thread is not None:
            self._leave.set()
            self._thread.join()
            self._thread = None
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, address: str | None, options: dict[str, Any]) -> None:
        ready: list[BaseException | None] = []
        done = threading.Event()

        def live() -> None:
            # Ray's processes die with the thread that started them, so it lives as long as the cluster. On the main
            # thread Ray would replace Plait's handler of SIGTERM.
            with _quiet(self.ray, own=address is None):
                try:
                    self.ray.init(configure_logging=False, log_to_driver=False, **options)
                    ready.append(None)
                    done.set()
                    self._leave.wait()
                except BaseException as error:  # Ray ends its thread (SystemExit) for some errors
                    ready.append(error)
                finally:
                    done.set()
                    with contextlib.suppress(Exception):
                        self.ray.shutdown()

        for _ in range(STARTS if address is None else 1):
            ready.clear()
            done.clear()
            self._thread = threading.Thread(target=live, name="plait-ray", daemon=True)
            self._thread.start()
            done.wait()
            if ready == [None]:
                return
            self._thread.join()  # ends what the attempt had started
        if (error := ready[0]) is not None:
            self.leave()
            where = f"The Ray cluster at {address} can't be joined" if address else "Ray can't be started here"
            said = " ".join(str(error).split())
            raise PlaitError(
                f"{where}: {said.rstrip('.') or type(error).__name__}.",
                hint="Look at `ray status` on its machines; Ray and Python must be of the same version on all."
                if address
                else "Is there room in the temporary folder and in memory?",
            ) from error


def restore_sigterm() -> None:
    """Restore this program's handler of SIGTERM: Ray's prints a stack first. Works on the main thread."""
    if threading.current_thread() is threading.main_thread() and (handler := signal.getsignal(signal.SIGTERM)):
        signal.signal(signal.SIGTERM, handler)


@contextlib.contextmanager
def _quiet(ray: Any, *, own: bool) -> Iterator[None]:
    """Silence Ray: no banners, no lines about dead workers on stdout."""
    logger = logging.getLogger("ray")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    token = own and not {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & set(os.environ)
    if token:
        # Ray's ports are open on all interfaces, so this cluster needs a token. It is not stored in the home folder.
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    printing = getattr(ray._private.worker, "_worker_logs_enabled", None)
    if printing is not None:
        ray._private.worker._worker_logs_enabled = False
    try:
        yield
    finally:
        logger.setLevel(level)
        if printing is not None:
            ray._private.worker._worker_logs_enabled = printing
        if token:
            os.environ.pop("RAY_AUTH_TOKEN", None)
            os.environ.pop("RAY_AUTH_MODE", None)


def _check_address(address: str) -> None:
    """Raise `ConfigError` or `PlaitError` unless a Ray cluster (HTTP/2) answers at the address."""
    if address == "auto":
        return
    host, colon, port = address.rpartition(":")
    if "://" in address or not colon or not host or not port.isdecimal():
        hint = "Write HOST:PORT as `ray start --head` prints it, or auto for the one on this machine."
        raise ConfigError(f"{address!r} is not the address of a Ray cluster.", hint=hint)
    hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # RFC 9113, 3.4: empty SETTINGS
    try:
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
            connection.sendall(hello)
            connection.settimeout(PATIENCE)
            if connection.recv(9)[3:4] == b"\x04":
                return
            why = "what answers there is not a Ray cluster"
    except TimeoutError:
        why = f"nothing answers there within {PATIENCE:g} seconds"
    except (OSError, OverflowError) as error:
        why = f"{getattr(error, 'strerror', None) or error}"
    hint = "`ray start --head` prints a cluster's address; this machine must be part of it (`ray start --address`)."
    raise PlaitError(f"The Ray cluster at {address} can't be reached: {why}.", hint=hint)
