"""What the worker loads before its lock for code to use later: installed packages, their data, time zones.

Nothing can be read after the lock. So all modules of the packages are imported, and their data is kept in memory. A
name without folders opens a file in memory. Such files, figures and tables leave the worker as data. Stdlib only.
"""

from __future__ import annotations

import base64
import builtins
import contextlib
import io
import os
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable
from importlib.machinery import PathFinder
from pkgutil import iter_modules
from typing import Any

ONE_THREAD = ("OPENBLAS", "OMP", "MKL", "NUMEXPR", "VECLIB", "BLIS")
"""Libraries whose threads cannot start: each gets the variable `_NUM_THREADS`."""

FILES, NAME_CHARS = 20, 100
"""Maximum files that leave with one message, and characters of a name."""

DATA_BYTES = 2_000_000
"""Larger files of a package are not kept in memory."""

_SKIPPED = frozenset({"tests", "test", "testing", "conftest", "__main__", "sample_data", "sphinxext", "__pycache__"})
_NOT_DATA = (".py", ".pyc", ".pyi", ".so", ".pyx", ".pxd", ".pxi", ".h", ".a", ".c", ".typed")
_stat, _walk, _open = os.stat, os.walk, io.open
_DENIED = PermissionError(1, "Operation not permitted")


class MemoryFile(io.BytesIO):
    """An open file in memory. `keep` gets its content when it is flushed or closed; None: it is read-only."""

    def __init__(self, name: str, mode: str, content: bytes, keep: Callable[[str, bytes], None] | None) -> None:
        super().__init__(content)
        self.name, self._keep = name, keep
        self.seek(0, io.SEEK_END if "a" in mode else io.SEEK_SET)
        self.flush()

    def writable(self) -> bool:
        return self._keep is not None

    def write(self, data: Any) -> int:
        if self._keep is None:
            raise io.UnsupportedOperation("not writable")
        return super().write(data)

    def flush(self) -> None:
        if self._keep is not None and not self.closed:
            self._keep(self.name, self.getvalue())

    def close(self) -> None:
        self.flush()
        super().close()


class MemoryFiles:
    """The files that code can open: `data` of packages by their path, and `made`, those that it has made by their name.
    `new` are the names of those that have not left the worker."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self.made: dict[str, bytes] = {}
        self.new: dict[str, None] = {}
        self.counts: dict[str, int] = {}

    def keep(self, name: str, data: bytes) -> None:
        if self.made.get(name) != data:
            self.made[name], self.new[name] = data, None

    def keep_value(self, value: Any) -> str:
        """Keep a figure or a table as a file. Return its name, or that of an open file; "" for any other value."""
        figure, pandas = sys.modules.get("matplotlib.figure"), sys.modules.get("pandas")
        if figure is not None and isinstance(value, figure.Figure):
            out = io.BytesIO()
            value.savefig(out, format="png")
            kind, ending, data = "chart", ".png", out.getvalue()
        elif pandas is not None and isinstance(value, (pandas.DataFrame, pandas.Series)):
            kind, ending, data = "table", ".csv", value.to_csv().encode("utf-8", "replace")
        else:
            file = getattr(value, "buffer", value)
            if isinstance(file, MemoryFile) and not file.closed:
                value.flush()
            return file.name if isinstance(file, MemoryFile) and file.name in self.made else ""
        self.counts[kind] = number = self.counts.get(kind, 0) + 1
        self.keep(f"{kind}-{number}{ending}", data)
        return f"{kind}-{number}{ending}"

    def take_new(self, room: int) -> list[list[str]]:
        """Return new files as name and bytes in base64. Prints the names of those beyond `room` bytes."""
        new, self.new = list(self.new), {}
        taken: list[list[str]] = []
        for name in new:
            data = self.made.get(name, b"")
            room -= len(data) * 4 // 3 + len(name) * 6 + 100
            if len(taken) == FILES or room < 0:
                print(f"(The file {name} has {len(data):,} bytes: too much to keep it.)")
            elif data:
                taken.append([name, base64.b64encode(data).decode()])
        return taken

    def open(self, file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        path, reads = _path(file), mode.strip("bt") == "r"
        data = self.data.get(path)
        if data is None and not (0 < len(path) <= NAME_CHARS and not os.path.dirname(path)):
            return _open(file, mode, *args, **options)
        if data is not None and not reads:
            raise PermissionError(*_DENIED.args, path)
        if data is None and "r" in mode and path not in self.made:
            raise FileNotFoundError(2, "No such file or directory", path)
        if "x" in mode and path in self.made:
            raise FileExistsError(17, "File exists", path)
        content = data if data is not None else b"" if "w" in mode else self.made.get(path, b"")
        raw: Any = MemoryFile(path, mode, content, None if reads else self.keep)
        if "b" in mode:
            return raw
        given = dict(zip(("buffering", "encoding", "errors", "newline"), args, strict=False)) | options
        encoding = given.get("encoding") or "utf-8"
        return io.TextIOWrapper(raw, encoding, given.get("errors"), given.get("newline"), write_through=True)

    def stat(self, path: Any, **options: Any) -> Any:
        name = "" if options.get("dir_fd") is not None else _path(path)
        data = self.data.get(name, self.made.get(name))
        if data is None and name not in ("", ".") and not os.path.dirname(name):
            raise FileNotFoundError(2, "No such file or directory", name)
        if data is None and name != ".":
            return _stat(path, **options)
        kind = stat.S_IFDIR | 0o755 if data is None else stat.S_IFREG | 0o644
        return os.stat_result((kind, 0, 0, 1, 0, 0, len(data or b""), 0, 0, 0))

    def install(self) -> None:
        """Put the files behind `open` and `os.stat`, and let `plt.show` keep the open figures."""
        builtins.open = io.open = self.open
        os.stat = self.stat
        pyplot: Any = sys.modules.get("matplotlib.pyplot")

        def show(*args: Any, **options: Any) -> None:
            for number in pyplot.get_fignums():
                self.keep_value(pyplot.figure(number))
            pyplot.close("all")

        if pyplot is not None:
            pyplot.show = show


def _path(file: Any) -> str:
    path = os.fsdecode(file) if isinstance(file, (str, bytes, os.PathLike)) else ""
    return "" if path == ".." or "\0" in path else path.removeprefix("./")


def load_zones(folders: list[str]) -> None:
    """Keep the time zones of the first folder that has any, for `zoneinfo`."""
    import zoneinfo

    zones: dict[str, bytes] = {}
    for folder in folders:
        for place, inner, files in os.walk(folder):
            inner[:] = [name for name in inner if name not in ("posix", "right", "__pycache__")]
            for name in files:
                with contextlib.suppress(OSError), open(os.path.join(place, name), "rb") as file:
                    if (data := file.read()).startswith(b"TZif"):
                        zones[os.path.relpath(file.name, folder)] = data
        if zones:
            break

    def load(key: str) -> Any:
        if key not in zones:
            raise zoneinfo.ZoneInfoNotFoundError(f"No time zone found with key {key}")
        return io.BytesIO(zones[key])

    zoneinfo.reset_tzpath(to=())
    sys.modules["zoneinfo._common"].load_tzdata = load  # type: ignore[attr-defined]
    zoneinfo.available_timezones = lambda: set(zones)


def load_packages(packages: dict[str, Any], folder: str) -> MemoryFiles:
    """Import all modules of the packages, and keep their data. `folder` is a private one for what they write meanwhile.
    Raises `ImportError` if a package itself cannot be imported; single modules of it may fail."""
    loaded, folders = packages["loaded"], packages["folders"]
    tops = tuple(os.path.join(place, name) for place in folders for name in loaded)

    class _ModuleFinder:
        """Finds the modules of these packages, and none that is only beside them."""

        @staticmethod
        def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
            known = name.partition(".")[0] in loaded
            return PathFinder.find_spec(name, folders if path is None else path) if known else None

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("no process starts while packages are loaded")

    os.environ.update({f"{name}_NUM_THREADS": "1" for name in ONE_THREAD}, MPLBACKEND="agg", MPLCONFIGDIR=folder)
    start: Any = subprocess.Popen.__init__
    # matplotlib looks for the fonts of the machine, which code could not open.
    os.walk = lambda top, *a, **k: _walk(top, *a, **k) if str(top).startswith(tops) else iter(())
    subprocess.Popen.__init__ = refuse  # type: ignore[method-assign]
    sys.dont_write_bytecode = True
    sys.meta_path.append(_ModuleFinder)
    for name in packages["modules"]:
        __import__(name)
    for name in loaded:
        _load_with_those_below(name)
    subprocess.Popen.__init__, os.walk = start, _walk  # type: ignore[method-assign]
    files = MemoryFiles()
    for top in tops:
        for place, inner, names in _walk(top):
            inner[:] = [name for name in inner if name not in _SKIPPED]
            for path in (os.path.join(place, name) for name in names if not name.endswith(_NOT_DATA)):
                with contextlib.suppress(OSError), open(path, "rb") as file:
                    if os.path.getsize(path) <= DATA_BYTES:
                        files.data[path] = file.read()
    return files


def _load_with_those_below(name: str) -> None:
    with contextlib.suppress(BaseException), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        __import__(name)
        for found in iter_modules(getattr(sys.modules[name], "__path__", ())):
            if found.name not in _SKIPPED:
                _load_with_those_below(f"{name}.{found.name}")


def plain_value(value: Any) -> Any:
    """Return numbers, arrays and tables of the packages as values that can leave the worker; others unchanged."""
    if hasattr(value, "to_dict") and hasattr(value, "columns"):
        return value.to_dict("records")
    return value.tolist() if hasattr(value, "tolist") and hasattr(value, "dtype") else value
