"""The process that runs the code. It locks itself, then obeys messages on its only socket. Stdlib only.

It starts with the file numbers of the socket and of the output's shared memory. It gets only the files of this folder
from the package (see `PROGRAM` in `base`), and those of installed packages that its user names.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import threading
from typing import Any

# What code may import. It is loaded before the lock, because nothing can be read afterwards.
MODULES = """
abc argparse array ast asyncio base64 binascii bisect builtins calendar cmath cmd codecs collections
collections.abc colorsys concurrent.futures.thread contextlib contextvars copy csv dataclasses datetime
decimal difflib email.utils encodings.ascii encodings.cp1252 encodings.hex_codec encodings.idna
encodings.latin_1 encodings.punycode encodings.raw_unicode_escape encodings.rot_13 encodings.unicode_escape
encodings.utf_16 encodings.utf_32 encodings.utf_8_sig enum errno fnmatch fractions functools gc getpass glob
graphlib gzip hashlib heapq hmac html html.parser http inspect io ipaddress itertools json keyword linecache
locale logging math numbers operator os pathlib pickle pprint queue random re sched secrets select shlex
shutil signal statistics string stringprep struct subprocess sys tempfile textwrap threading time timeit token
tokenize traceback types typing unicodedata urllib urllib.parse uuid warnings weakref xml.etree.ElementTree
zlib zoneinfo _strptime
"""
BLOCKED = ("ssl", "_ssl", "_hashlib", "_uuid", "_zoneinfo", "_datetime")
"""Not loaded: Python's own versions suffice, without large libraries. Its `datetime` asks `time` for the time. Packages
with parts in C need `_datetime`."""


class Closed:
    """Find no module. All available modules are loaded already."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        raise ModuleNotFoundError(f"No module named {name!r} in this sandbox: it can load no files", name=name)


def read(fd: int, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = os.read(fd, min(size - len(data), 1 << 20))
        if not more:
            os._exit(0)
        data += more
    return bytes(data)


def receive(fd: int) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(read(fd, int.from_bytes(read(fd, 4), "big")))
    return message


def send(fd: int, message: bytes, number: int = 0) -> None:
    left = memoryview(len(message).to_bytes(4, "big") + number.to_bytes(8, "big") + message)
    while left:
        left = left[os.write(fd, left) :]


def load(needed: str) -> None:
    """Import the standard modules that code may import. `needed` is loaded although it is blocked."""
    for name in (name for name in BLOCKED if name != needed):
        sys.modules[name] = None  # type: ignore[assignment]
    for name in MODULES.split():
        with contextlib.suppress(ImportError):
            __import__(name)
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__


def main(fd: int, memory: int) -> None:
    from plait.sandbox import worker_privacy

    worker_privacy.hide_file_names()
    from plait.sandbox import confine, worker_determinism

    settings = receive(fd)
    confine.require_filter()
    confine.die_with(settings["parent"])
    packages, folder = settings.pop("packages"), settings.pop("folder")
    load("_datetime" if packages else "")
    import asyncio
    import ctypes
    import mmap

    from plait.sandbox import worker_packages
    from plait.sandbox.worker_session import WorkerSession

    clock = worker_determinism.Clock()
    worker_determinism.install_clock(clock, settings["seed"])
    worker_packages.load_zones(settings.pop("zones"))
    files = None
    if packages:
        site = f"{worker_privacy.LIBRARY}/site-packages"  # how code sees the files of installed packages
        worker_privacy.FOLDERS.update((os.path.abspath(place), site) for place in packages["folders"])
        files = worker_packages.load_packages(packages, folder)
        for thread in threading.enumerate():  # namespaces need a process with one thread
            if thread is not threading.current_thread():
                thread.join(5)
    shutil.rmtree(folder, ignore_errors=True)
    ctypes.CDLL(None).mallopt(-8, 1)  # M_ARENA_MAX: otherwise every thread takes 64 MB of address space
    shared = mmap.mmap(memory, 0)
    os.closerange(3, fd)
    os.closerange(fd + 1, 1 << 20)  # includes the copy of `memory` that mmap made for itself
    address_space = open("/proc/self/statm")  # noqa: SIM115
    confine.drop_privileges()
    spaces = confine.namespaces()
    confine.die_with(settings["parent"])
    landlock = confine.landlock()
    worker_determinism.install_identity()
    if files is not None:
        files.install()
    session = WorkerSession(settings, shared, clock, files)
    _asyncio_without_sockets(asyncio, session)
    exec(settings["prelude"], session.namespace)
    sys.stdout = sys.__stdout__ = session.output  # type: ignore[misc, assignment]
    sys.stderr = sys.__stderr__ = session.output  # type: ignore[misc, assignment]
    import io

    sys.stdin = sys.__stdin__ = io.StringIO()  # type: ignore[misc, assignment]
    confine.limits(settings["limits"]["memory_mb"] << 20, fd, address_space)
    confine.lock()
    worker_privacy.hide_paths()
    for name in [name for name in sys.modules if name.partition(".")[0] in ("plait", "ctypes", "_ctypes")]:
        del sys.modules[name]
    sys.modules["__main__"] = session.module
    os.environ.clear()
    sys.meta_path = [Closed]
    send(fd, json.dumps({"ready": {"seccomp": True, "landlock": landlock, "namespaces": spaces}}).encode())
    while True:
        request = receive(fd)
        if "code" in request:
            answer = session.run(request["code"], request["now"], request["offset"])
        else:
            answer = session.go_on(request["results"])
        send(fd, answer, request["number"])


def _asyncio_without_sockets(asyncio: Any, session: Any) -> None:
    """Make asyncio use the session's loop, and its `gather` accept plain values."""
    from plait.sandbox.worker_calls import LoopRun, soft

    def new_event_loop() -> Any:
        return LoopRun(session.ask, session.clock)

    asyncio.new_event_loop = asyncio.events.new_event_loop = new_event_loop
    if sys.version_info < (3, 14):  # later, `get_event_loop` makes no loop, and policies go
        asyncio.get_event_loop_policy().new_event_loop = new_event_loop
    gather = asyncio.gather

    def soft_gather(*awaitables: Any, **options: Any) -> Any:
        return gather(*(soft(one) for one in awaitables), **options)

    soft_gather.__name__ = soft_gather.__qualname__ = "gather"
    asyncio.gather = soft_gather


def start(socket: str, memory: str) -> None:
    """Run, or report why that is not possible."""
    fd = int(socket)
    try:
        main(fd, int(memory))
    except MemoryError:
        os._exit(77)  # worker_session.OUT_OF_MEMORY
    except BaseException as problem:
        kind = type(problem).__name__  # the module of `CannotConfine` may be gone
        said = {"lacks": str(problem)} if kind == "CannotConfine" else {"failed": f"{kind}: {problem}"[:2000]}
        send(fd, json.dumps(said).encode())
    os._exit(1)
