"""Runs a user's own Python file as a module, and shows its errors in one line."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

from plait.core.errors import ConfigError
from plait.user_files import open_file

_run: dict[tuple[str, str, bytes], ModuleType] = {}
"""The modules of files that were run, by kind, path and content: what comes from one file shares its classes."""


def run_file(name: str, kind: str) -> ModuleType:
    """Run a file and return its module. A file that did not change is not run again. `kind` is the prefix of the
    module's name.

    Appends the file's folder to the import path, so that it can import its neighbours. Raises `ConfigError` if the file
    does not exist, or fails; the message names the line.
    """
    path, source = _path(name), read_file(name)
    key = (kind, str(path), source)
    if key in _run:
        return _run[key]
    add_to_path(str(path.resolve().parent))
    # Its unique name cannot hide an installed module. Type hints and pickles look for it in sys.modules.
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
    _run[key] = module
    return module


def read_file(name: str) -> bytes:
    """Read a file of user code. Raises `ConfigError`."""
    path = _path(name)
    if not path.is_file():
        raise ConfigError(f"There is no file {name!r}.", hint=f"Looked for {path}.")
    try:
        with open_file(path) as file:
            return file.read()
    except OSError as error:
        raise ConfigError(f"{name!r} can't be read: {error.strerror}.", hint=f"Looked for {path}.") from error


def add_to_path(folder: str) -> None:
    if folder not in sys.path:
        sys.path.append(folder)


def show_error(error: BaseException) -> str:
    """Return an error of a user's code in one line: its type and its text, without the last full stop."""
    try:
        words = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
    except Exception:  # whatever a stranger's error may do when it is looked at
        words = "(its message can't be shown)"
    return f"{type(error).__name__}: {words}".rstrip(": .")


def _path(name: str) -> Path:
    return Path(name).expanduser().absolute()


def _line(error: BaseException, file: str) -> str:
    """Return the line of the user's file that raised an error, as `line 3: `, with the path of another file."""
    if isinstance(error, SyntaxError) and error.filename:  # perhaps of a module that the file imports
        return f"line {error.lineno}: " if error.filename == file else f"{error.filename}, line {error.lineno}: "
    trace, line = error.__traceback__, 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"line {line}: " if line else ""
