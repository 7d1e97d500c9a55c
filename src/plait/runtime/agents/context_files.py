"""The files AGENTS.md of a project, which say how to work in it, as instructions of an agent.

Those in the agent's folder, in the folders above it up to the top of its repository, and in the folders below count.
They come with a project, as code does: each is read only after `plait trust FILE`, with the content that was trusted.
"""

from __future__ import annotations

import os
import shlex
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from plait.core.errors import ConfigError
from plait.core.text import decode_text, one_line, show_hidden
from plait.trust import CONTEXT_FILE, is_trusted
from plait.user_files import open_file

MAX_BYTES = 32_768
"""Maximum size of all files of a project together. The nearest ones come first."""
MAX_FOLDERS, MAX_DEPTH = 2_000, 6
"""Maximum number of folders below that are looked at, and of folders inside each other."""
SKIPPED = ("node_modules", "site-packages", "__pycache__", "venv")
HEAD = (
    "The project says how to work in it, in its files AGENTS.md. Each is about the files in its folder and below. "
    "Where two disagree, the one nearer to the file that you work on holds. What the user asks for holds above all."
)


def read_context_files(given: str | Path | None) -> str:
    """Return the text of the context files of a folder, the topmost first; "" without a folder, or if none is trusted.
    Warns of those that are left out. Raises `ConfigError` if there is no folder."""
    if given is None:
        return ""
    place = Path(os.path.abspath(Path(given).expanduser()))
    if not place.is_dir():
        hint = f"Looked for {place}. The text of a file is instructions=, or --instructions @FILE."
        raise ConfigError(f"There is no folder {given} for context_files.", hint=hint)
    top = next((each for each in (place, *place.parents) if (each / ".git").exists()), place)
    found, room, untrusted = dict[Path, str](), MAX_BYTES, list[str]()
    for file in _list_files(place, top):
        try:
            found[file] = text = _read(file, room)
            room -= len(text.encode())
        except ConfigError as why:
            warnings.warn(f"A context file is left out. {one_line(why.message)}", stacklevel=2)
        except PermissionError:
            untrusted.append(f"plait trust {shlex.quote(os.path.relpath(file))}")
    if untrusted:
        said = f"{len(untrusted)} of the project's {CONTEXT_FILE}. Read them, then run: {', '.join(untrusted[:5])}."
        warnings.warn(f"A context file is left out. Not trusted: {one_line(said)}", stacklevel=2)
    outermost_first = sorted(found, key=lambda file: (len(file.parts), file))
    parts = [f"## {file.relative_to(top)}\n\n{found[file]}" for file in outermost_first]
    return "\n\n".join([HEAD, *parts]) if parts else ""


def _list_files(place: Path, top: Path) -> Iterator[Path]:
    """Yield the context files that count in a folder, the nearest first: its own, those above, those below."""
    above = [each for each in (place, *place.parents) if each.is_relative_to(top)]
    yield from (each / CONTEXT_FILE for each in above if os.path.lexists(each / CONTEXT_FILE))
    depth = len(place.parts)
    for at, below, names in islice(os.walk(place), MAX_FOLDERS):
        is_end = len(Path(at).parts) - depth >= MAX_DEPTH
        below[:] = [] if is_end else sorted(each for each in below if each[0] != "." and each not in SKIPPED)
        if CONTEXT_FILE in names and Path(at) != place:
            yield Path(at) / CONTEXT_FILE


def _read(file: Path, room: int) -> str:
    """Return the text of a file. Raises `PermissionError` without trust, `ConfigError` if it can't be used."""
    try:
        with open_file(file, os.O_NOFOLLOW | os.O_NONBLOCK) as opened:
            content = opened.read(MAX_BYTES + 1)
    except OSError as why:
        said = "it is a symbolic link" if file.is_symlink() else why.strerror
        raise ConfigError(f"{file} can't be read: {said}.") from None
    if len(content) > room:
        raise ConfigError(f"{file} does not fit: all of them together may have {MAX_BYTES:,} bytes.")
    if not is_trusted(file, content):
        raise PermissionError(str(file))
    if (text := decode_text(content)) is None:
        raise ConfigError(f"{file} is not text.")
    return show_hidden(text.replace("\r\n", "\n")).strip()
