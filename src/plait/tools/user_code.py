"""A user's own Python: a file is run as a module, and what is wrong with it is said in a line."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

from plait.core.errors import UsageError


def run_file(name: str, kind: str) -> ModuleType:
    """The module that a file makes when it is run. `kind` stands in the module's name before the file's.

    Its folder is added at the end of the import path, so that it may import what lies beside it. Raises `UsageError`
    where there is no such file, and with the line where it fails.
    """
    path, source = _path(name), read_file(name)
    see_folder(str(path.resolve().parent))
    # Under a name of its own, so that it can't hide an installed module; in sys.modules, where type hints
    # and pickles look for it.
    module = ModuleType(f"plait_{kind}_{path.stem}")
    module.__file__ = str(path)
    before = sys.modules.get(module.__name__)
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, str(path), "exec"), vars(module))
    except (Exception, SystemExit) as error:
        if before is None:
            del sys.modules[module.__name__]
        else:
            sys.modules[module.__name__] = before
        raise UsageError(f"{name!r} can't be used: {_line(error, str(path))}{in_a_line(error)}.") from error
    return module


def read_file(name: str) -> bytes:
    """What a file holds. Raises `UsageError`."""
    path = _path(name)
    if not path.is_file():
        raise UsageError(f"There is no file {name!r}.", hint=f"Looked for {path}.")
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{name!r} can't be read: {error.strerror}.", hint=f"Looked for {path}.") from error


def see_folder(folder: str | None = None) -> None:
    """Modules that lie in a folder, the current one where none is given, are found from now on, after all others."""
    folder = folder if folder is not None else os.getcwd()
    if folder not in sys.path:
        sys.path.append(folder)


def in_a_line(error: BaseException) -> str:
    """An error of a user's code in one line: its kind and its words, without the last full stop."""
    words = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
    return f"{type(error).__name__}: {words}".rstrip(": .")


def _path(name: str) -> Path:
    return Path(name).expanduser().absolute()


def _line(error: BaseException, file: str) -> str:
    """The line of the user's file where an error came from, as `line 3: `."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return f"line {error.lineno}: "
    trace, line = error.__traceback__, 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"line {line}: " if line else ""
