"""`Folder`: reads and writes files below one folder, and nowhere else.

The folder stays open from the beginning. Each part of a path is opened in the folder before it, and no symbolic link is
followed. So a path that changes while it is used, or the folder's own path, still leads to a place in the folder.
Hidden files and folders (`.git`, `.env`) and the files of open journals are not offered.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path

from msgspec import Struct

from plait.core.errors import ConfigError, ToolError
from plait.core.text import decode_text
from plait.tools.call_context import cancelled
from plait.tools.render import describe_bytes
from plait.user_files import open_file, refuse_journal

MAX_BYTES = 2_000_000
"""Maximum size of a file that is read or written."""
MAX_FILES, MAX_DEPTH = 50_000, 50
"""Maximum number of files and folders that one call looks at, and of folders inside each other."""
SECONDS = 20.0
"""Maximum time that one call looks at files."""
SHOWN = 20_000
"""Maximum number of characters of a file that are shown at once."""

_LINE = re.compile(r"[^\r\n]*(?:\r\n|[\r\n])|[^\r\n]+")
_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC


class FoundFile(Struct, frozen=True):
    """A regular file that a walk found: its path in the folder, and its size and state at that time."""

    path: str
    size: int
    state: tuple[int, ...]


class Folder(Struct, frozen=True, weakref=True):
    """One folder of the user. Paths are relative to it and use `/`. `descriptor` is the open folder."""

    root: Path
    descriptor: int

    @classmethod
    def open(cls, folder: str | Path, word: str) -> Folder:
        """Return the folder. Raises `ConfigError` if there is none; `word` is the toolkit's name."""
        if not str(folder).strip():
            raise ConfigError(f"The toolkit {word} needs a folder.", hint=f"Write {word}:FOLDER.")
        path = Path(folder).expanduser()
        if not path.is_dir():
            name, comma, _ = str(folder).rpartition(",")
            hint = f"Looked for {path.absolute()}."
            if comma and Path(name).expanduser().is_dir():
                hint = f"Did you mean {word}:{name},read_only?"
            elif path.exists():
                hint = "That is a file. Give the folder that holds it."
            raise ConfigError(f"There is no folder {str(folder)!r}.", hint=hint)
        root = path.resolve()
        try:
            made = cls(root, os.open(root, os.O_RDONLY | os.O_DIRECTORY | _NO_LINK))
        except OSError as error:
            raise ConfigError(f"The folder {root} can't be opened: {error.strerror}.") from None
        weakref.finalize(made, os.close, made.descriptor)
        return made

    def check(self) -> os.stat_result:
        """Return the state of the folder. Raises `ToolError` if its path leads to another one by now, or to none."""
        with suppress(OSError):
            if os.path.samestat(os.stat(self.root), found := os.fstat(self.descriptor)):
                return found
        raise ToolError(f"The folder {self.root} is gone, or another one is there now.", hint="Ask the user.")

    def read_bytes(self, path: str, most: int = MAX_BYTES) -> bytes:
        """Return the content of a regular file of at most `most` bytes. Raises `ToolError`."""
        parts = split_path(path)
        with self._open_parent(parts) as parent, _explain(path):
            _check_kind(os.stat(parts[-1], dir_fd=parent, follow_symlinks=False), path)
            with open_file(parts[-1], os.O_NONBLOCK | os.O_NOCTTY | _NO_LINK, parent) as opened:
                _check_kind(os.fstat(opened.fileno()), path)
                content = opened.read(most + 1)
        if len(content) > most:
            raise ToolError(f"{path} has more than {most:,} bytes.", hint="Only smaller files can be used.")
        return content

    def read_text(self, path: str) -> str:
        """Return the text of a file. Raises `ToolError`, which describes a file that is not text."""
        content = self.read_bytes(path)
        text = decode_text(content)
        if text is None:
            raise ToolError(f"{path} is not text: {describe_bytes(content)}.", hint="Only text can be shown.")
        return text

    def write(self, path: str, content: str, *, replaces: bool, encoding: str = "utf-8") -> None:
        """Write a text file: as a whole or not at all. An existing file keeps its mode. Raises `ToolError`.

        `replaces`: the file must exist. Otherwise, folders that do not exist are made.
        """
        parts = split_path(path)
        try:
            data = content.encode(encoding)
        except UnicodeEncodeError:
            raise ToolError(f"The content has characters that {encoding} can't hold.", hint="Leave them out.") from None
        if len(data) > MAX_BYTES:
            raise ToolError(f"The content has {len(data):,} bytes; at most {MAX_BYTES:,} can be written.")
        with self._open_parent(parts, make=not replaces) as parent, _explain(path):
            refuse_journal(parts[-1], parent)
            mode = None
            with suppress(FileNotFoundError):
                existing = os.stat(parts[-1], dir_fd=parent, follow_symlinks=False)
                _check_kind(existing, path)
                mode = existing.st_mode & 0o777
                if not mode & 0o222:
                    raise ToolError(f"{path} is write-protected.", hint="The user can change its mode.")
            temporary = f".plait-{secrets.token_hex(8)}.tmp"
            new = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK, 0o666, dir_fd=parent)
            try:
                with open(new, "wb") as file:
                    file.write(data)
                    file.flush()
                    if mode is not None:
                        os.fchmod(new, mode)
                    os.fsync(new)
                os.rename(temporary, parts[-1], src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                os.unlink(temporary, dir_fd=parent)
                raise

    def walk(self, pattern: str = "**") -> Iterator[FoundFile]:
        """Yield the regular files whose path or name fits a pattern, by name, without hidden ones and links.

        Looks only into the folder with which the pattern begins. Raises `ToolError` if there are too many files, or if
        the caller takes too long.
        """
        if len(pattern) > 300 or "\0" in pattern:
            raise ToolError("The pattern is too long.", hint="Write one such as *.py or docs/**/*.md.")
        ends = time.monotonic() + SECONDS
        seen = 0
        begin = re.split(r"[*?\[]", pattern.removeprefix("./"))[0].rpartition("/")[0]
        todo = ["/".join(split_path(begin)) + "/" if begin else ""]
        while todo:
            folder = todo.pop()
            parts = folder.split("/")[:-1]
            if len(parts) > MAX_DEPTH:
                continue
            below = []
            try:
                with self._open_parent([*parts, ""]) as parent, os.scandir(parent) as entries:
                    some = islice(entries, MAX_FILES + 1)
                    listed = sorted((each.name, each.stat(follow_symlinks=False)) for each in some)
            except (OSError, ToolError):
                continue  # not readable, or it has just gone
            for name, info in listed:
                seen += 1
                if seen > MAX_FILES:
                    hint = "Begin the pattern with a folder."
                    raise ToolError(f"There are more than {MAX_FILES:,} files.", hint=hint)
                if cancelled() or time.monotonic() > ends:
                    raise ToolError(f"This took longer than {SECONDS:g} s.", hint="Use a narrower pattern.")
                if _is_offered(name) and stat.S_ISDIR(info.st_mode):
                    below.append(f"{folder}{name}/")
                elif _is_offered(name) and stat.S_ISREG(info.st_mode) and _fits(f"{folder}{name}", pattern):
                    yield FoundFile(f"{folder}{name}", info.st_size, (info.st_mtime_ns, info.st_size, info.st_ino))
            todo += reversed(below)

    @contextmanager
    def _open_parent(self, parts: list[str], make: bool = False) -> Iterator[int]:
        """Open the folder of a file, given by the parts of its path. The last one is not used."""
        path = "/".join(parts)
        self.check()
        current = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.descriptor)
        try:
            for part in parts[:-1]:
                with _explain(path):
                    if make:
                        with suppress(FileExistsError):
                            os.mkdir(part, dir_fd=current)
                    below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | _NO_LINK, dir_fd=current)
                os.close(current)
                current = below
            yield current
        finally:
            os.close(current)


def split_path(path: str) -> list[str]:
    """Return the parts of a path in the folder. Raises `ToolError` if it leads out of it or to a hidden place."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or not parts or path.endswith("/"):
        raise ToolError(f"{path[:80]!r} is not a file's path in the folder.", hint="Write one such as docs/notes.md.")
    if hidden := next((part for part in parts if not _is_offered(part)), ""):
        raise ToolError(f"{hidden[:80]!r} is hidden, or not a name.", hint="Hidden files and folders can't be used.")
    if len(parts) > MAX_DEPTH or len(path) > 1000:
        raise ToolError(f"The path has {len(parts)} parts and {len(path):,} characters: too long.")
    return parts


def show_lines(path: str, text: str, first: int, count: int) -> str:
    """Return lines of a file below a line that says which. Raises `ToolError` if the file has fewer."""
    lines = _LINE.findall(text)
    if first > max(len(lines), 1):
        raise ToolError(f"{path} has {len(lines):,} lines; there is no line {first:,}.")
    shown: list[str] = []
    used = 0
    for line in lines[first - 1 : first - 1 + count]:
        if shown and used + len(line) > SHOWN:
            break
        shown.append(line if len(line) <= SHOWN else f"{line[:SHOWN]} [{len(line) - SHOWN:,} more characters]\n")
        used += len(line)
    last = first - 1 + len(shown)
    more = f" Next: line {last + 1}." if last < len(lines) else ""
    return f"[{path}: lines {first if lines else 0}-{last} of {len(lines):,}.{more}]\n{''.join(shown)}"


def _is_offered(name: str) -> bool:
    return not name.startswith(".") and name.isprintable()


def _fits(path: str, pattern: str) -> bool:
    """Return whether a path or its name fits a pattern, in which `*` stands for any text and `**/` for any folders."""
    name = path.rpartition("/")[2]
    wanted = pattern.removeprefix("./")
    return any(map(fnmatchcase, (path, path, name), (wanted, wanted.replace("**/", ""), wanted)))


def _check_kind(info: os.stat_result, path: str) -> None:
    kind = info.st_mode
    if stat.S_ISLNK(kind):
        raise ToolError(f"{path} is a symbolic link.", hint="Links are not followed. Name the file itself.")
    if stat.S_ISDIR(kind):
        raise ToolError(f"{path} is a folder.", hint="Name a file in it.")
    if not stat.S_ISREG(kind):
        raise ToolError(f"{path} is a device, a pipe or a socket, not a file.", hint="Name a file.")


@contextmanager
def _explain(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise ToolError(f"There is no file {path!r}.", hint="Look at the files that there are.") from None
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ToolError(f"{path!r} can't be used: {said}.", hint="Links are not followed.") from None
