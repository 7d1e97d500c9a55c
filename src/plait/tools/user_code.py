"""Runs a user's own Python file as a module, and shows its errors in one line."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

from plait.core.errors import ConfigError


def run_file(name: str, kind: str) -> ModuleType:
    """Runs a file and returns its module. `kind` stands in the module's name before that of the file.

    Adds the file's folder at the end of the import path, so that it can import what lies beside it. Raises
    `ConfigError` if there is no such file, and with the line where it fails.
    """
    path, source = _path(name), read_file(name)
    add_to_path(str(path.resolve().parent))
    # The name of its own cannot hide an installed module. Type hints and pickles look for it in sys.modules.
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
        raise ConfigError(f"{name!r} can't be used: {_line(error, str(path))}{show_error(error)}.") from error
    return module


def read_file(name: str) -> bytes:
    """Reads a file of the user. Raises `ConfigError`."""
    path = _path(name)
    if not path.is_file():
        raise ConfigError(f"There is no file {name!r}.", hint=f"Looked for {path}.")
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{name!r} can't be read: {error.strerror}.", hint=f"Looked for {path}.") from error


def add_to_path(folder: str) -> None:
    """Adds a folder at the end of the import path."""
    if folder not in sys.path:
        sys.path.append(folder)


def show_error(error: BaseException) -> str:
    """Shows an error of a user's code in one line: its type and its text, without the last full stop."""
    words = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
    return f"{type(error).__name__}: {words}".rstrip(": .")


def _path(name: str) -> Path:
    return Path(name).expanduser().absolute()


def _line(error: BaseException, file: str) -> str:
    """Names the line of the user's file where an error came from, as `line 3: `."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return f"line {error.lineno}: "
    trace, line = error.__traceback__, 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"line {line}: " if line else ""
