"""A Ray cluster: one of our own on this machine, or one that is there already. Quiet, and silent to the outside."""

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

from plait.core.errors import PlaitError, UsageError

PATIENCE = 5.0
"""Seconds in which a cluster's address must answer."""
STARTS = 3
"""How often starting our own is tried: Ray gives its processes 30 seconds, which a loaded machine may not have."""
STORE = 256 * 2**20
"""Bytes of shared memory for what travels within our own cluster; more of it goes to the disk."""


def ray_here() -> Any:
    """The package. Raises `UsageError` naming the extra where it is absent."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # read when the package is first used: nothing is told to anybody
    try:
        import ray
    except ImportError as error:
        raise UsageError(
            f"--engine ray needs the package ray, and {error.name or 'ray'} is not there.",
            hint='Install it: pip install "plait[ray]".',
        ) from None
    return ray


class Cluster:
    """A cluster that this process is part of, from `Cluster(...)` to `leave()`. Both block: see `on_ray.py`.

    `address`: HOST:PORT of a cluster that is there ("auto": one on this machine); None starts one, with `cpus` CPUs
    (None: all), and `leave` ends it. Where the program has called `ray.init` itself that cluster is used and left
    as it is. Raises `PlaitError` where it can't be reached or started.
    """

    def __init__(self, address: str | None, cpus: int | None = None) -> None:
        self.ray = ray_here()
        self.folder = ""
        """Where workers may keep what is theirs: a folder of our own cluster, "" in another's."""
        self._leave = threading.Event()
        self._thread: threading.Thread | None = None
        if address is not None:
            _answers(address)
        if self.ray.is_initialized():
            there = self.ray.get_runtime_context().gcs_address
            if address not in (None, "auto", there):
                raise UsageError(
                    f"This process is part of the Ray cluster at {there}, and can't join {address} as well.",
                    hint="Call ray.shutdown() first, or leave the address out.",
                )
            return
        options: dict[str, Any] = {"include_dashboard": False} if address is None else {}
        if address is None:
            parent = tempfile.gettempdir()
            # The paths of Ray's sockets are made below it, and may have a hundred letters at most.
            self.folder = tempfile.mkdtemp(prefix="plait-ray-", dir=parent if len(parent) < 30 else "/tmp")
            options |= {"address": "local", "num_cpus": cpus, "object_store_memory": STORE, "_temp_dir": self.folder}
        else:
            options["address"] = address
        self._start(address, options)

    @property
    def cpus(self) -> int:
        """CPUs of all its machines together."""
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)))

    def leave(self) -> None:
        """End a cluster of our own with all its processes; leave another's."""
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
            # Ray's processes die with the thread that started them, so it lives as long as the cluster. It is not
            # the main one: there Ray would take our handler of SIGTERM away.
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
            self._thread.join()  # what the try had started ends with it
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


def own_sigterm() -> None:
    """Put this program's handler of SIGTERM back: Ray's tells its stack on stderr first. For the main thread."""
    if threading.current_thread() is threading.main_thread() and (handler := signal.getsignal(signal.SIGTERM)):
        signal.signal(signal.SIGTERM, handler)


@contextlib.contextmanager
def _quiet(ray: Any, *, own: bool) -> Iterator[None]:
    """Ray says nothing meanwhile: no banners, no lines about workers that died on our stdout."""
    logger = logging.getLogger("ray")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    token = own and not {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & set(os.environ)
    if token:
        # Ray's ports are open on all interfaces, so nobody is to be let in without a token; ours is for this cluster
        # alone, and no file in the home folder.
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


def _answers(address: str) -> None:
    """Raise `UsageError` or `PlaitError` unless something at the address speaks as a Ray cluster does (HTTP/2)."""
    if address == "auto":
        return
    host, colon, port = address.rpartition(":")
    if "://" in address or not colon or not host or not port.isdecimal():
        raise UsageError(
            f"{address!r} is no address of a Ray cluster.",
            hint="Write HOST:PORT as `ray start --head` prints it, or auto for the one on this machine.",
        )
    hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # RFC 9113, 3.4: empty SETTINGS
    try:
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
            connection.sendall(hello)
            connection.settimeout(PATIENCE)
            if connection.recv(9)[3:4] == b"\x04":
                return
            why = "what answers there is no Ray cluster"
    except TimeoutError:
        why = f"nothing answers there within {PATIENCE:g} seconds"
    except (OSError, OverflowError) as error:
        why = f"{getattr(error, 'strerror', None) or error}"
    raise PlaitError(
        f"The Ray cluster at {address} can't be reached: {why}.",
        hint="`ray start --head` prints a cluster's address; this machine must be part of it (`ray start --address`).",
    )
