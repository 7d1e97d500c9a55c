"""JSON records read from files. Each knows its place, so that errors can name it."""

from __future__ import annotations

import difflib
import gzip
import io
import re
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from plait.core.errors import ConfigError
from plait.core.text import cut_text, suggest
from plait.user_files import read_file

MAX_UNPACKED = 1 << 30
"""Bytes of the largest file that is unpacked (1 GiB)."""


class FileRecord(Struct, frozen=True):
    """One record of a file. `place` says where it is (`dev.jsonl, line 3`), `number` counts from 1."""

    place: str
    number: int
    value: dict[str, Any]

    def error(self, message: str, hint: str = "") -> ConfigError:
        return ConfigError(f"{self.place}: {message}", hint=hint)

    def require(self, *names: str) -> Any:
        """Return the first of these fields that is present. Raises `ConfigError` if none is."""
        for name in names:
            if self.value.get(name) is not None:
                return self.value[name]
        near = difflib.get_close_matches(names[0], self.value, 1, 0.75)
        hint = f"Is {near[0]!r} it?" if near else f"It has: {', '.join(map(repr, self.value)) or 'nothing'}."
        raise self.error(f"{' or '.join(map(repr, names))} is missing.", hint)

    def text(self, *names: str) -> str:
        """Return the first of these fields as non-empty text; a number is accepted as text."""
        found = self.require(*names)
        if isinstance(found, (int, float)) and not isinstance(found, bool):
            return str(found)
        if not isinstance(found, str) or not found.strip():
            raise self.error(f"{names[0]!r} is not a text: {_short(found)}.")
        return found.strip()

    def id(self, *names: str, otherwise: str) -> str:
        """Return the record's id, or `otherwise` if it has none."""
        return self.text(*names) if any(self.value.get(name) is not None for name in names) else otherwise


def find_file(name: str) -> Path:
    """Return the absolute path of a file. Raises `ConfigError` if it does not exist."""
    if not name.strip():
        raise ConfigError("The name of a file is missing.", hint="Write it after the colon: SUITE:FILE.")
    path = Path(name.strip()).expanduser().absolute()
    if path.is_file():
        return path
    if path.is_dir():
        raise ConfigError(f"{name.strip()!r} is a folder, not a file.")
    beside = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
    raise ConfigError(f"There is no file {name.strip()!r}.", hint=suggest(path.name, beside, f"Looked for {path}."))


def read_records(path: Path) -> list[FileRecord]:
    """Read the records of a file: JSON lines, a JSON list, or an object whose `data` is a list; `.gz` of each. Raises
    `ConfigError` if the file cannot be read, is not JSON, is cut short or empty."""
    if path.suffix in (".parquet", ".arrow", ".csv", ".tsv", ".zip"):
        hint = "Save it as JSON lines, a record a line."
        raise ConfigError(f"{path.name} can't be read: {path.suffix} files are not.", hint=hint)
    data = _read_text(path)
    lines = data.splitlines()
    first = next((line for line in lines if line.strip()), b"")
    is_list = first.lstrip().startswith(b"[")
    is_object = first.strip() == b"{" or '"data"' in first[:40].decode(errors="replace")
    entries = _read_list(path, data) if is_list or is_object else _read_lines(path, lines)
    if not entries:
        raise ConfigError(f"{path.name} has no records.", hint="The file is empty.")
    return entries


def check_distinct(entries: Iterable[tuple[FileRecord, str]]) -> None:
    """Raise `ConfigError` if two records have the same id."""
    seen: dict[str, FileRecord] = {}
    for entry, id in entries:
        if id in seen:
            raise entry.error(f"the id {id!r} is that of {seen[id].place.rpartition(', ')[2]} as well.", "Change one.")
        seen[id] = entry


def parse_options(argument: str, names: tuple[str, ...], what: str) -> tuple[str, dict[str, str]]:
    """Split `a.jsonl,corpus=b.jsonl` into a file's name and options. Raises `ConfigError` for an unknown option."""
    parts = re.split(r",\s*([a-z_]+)=", argument)
    given = dict(zip(parts[1::2], parts[2::2], strict=True))
    for name in given:
        if name not in names:
            has = f"It has: {', '.join(f'{each}=' for each in names)}." if names else "It has none."
            raise ConfigError(f"The suite {what} has no option {name!r}.", hint=has)
    return parts[0], given


def file_stamp(path: Path) -> tuple[int, int]:
    """Return a file's modification time and size, which change when the file does."""
    try:
        stat = path.stat()
    except OSError as error:
        raise ConfigError(f"{str(path)!r} can't be read: {error.strerror}.") from error
    return stat.st_mtime_ns, stat.st_size


def _read_text(path: Path) -> bytes:
    try:
        data = read_file(path)
        if path.suffix == ".gz":
            with gzip.open(io.BytesIO(data)) as packed:
                data = packed.read(MAX_UNPACKED + 1)
            if len(data) > MAX_UNPACKED:
                raise ConfigError(f"{path.name} unpacks to more than {MAX_UNPACKED >> 20} MiB.", hint="Split it.")
        data.decode("utf-8")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        hint = "It seems cut short: fetch it again."
        raise ConfigError(f"{path.name} can't be unpacked: {error}.", hint=hint) from error
    except OSError as error:
        raise ConfigError(f"{str(path)!r} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path.name}, line {line}: is not UTF-8 text.", hint="Save it as UTF-8.") from error
    return data.removeprefix(b"\xef\xbb\xbf")


def _read_lines(path: Path, lines: list[bytes]) -> list[FileRecord]:
    entries = []
    written = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    for number, line in written:
        place = f"{path.name}, line {number}"
        try:
            value = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            cut = number == written[-1][0] and number > 1
            hint = "It is the last line: the file seems cut short." if cut else "Each line must be one JSON object."
            raise ConfigError(f"{place}: is not JSON ({error}).", hint=hint) from error
        entries.append(_record(place, number, value))
    return entries


def _read_list(path: Path, data: bytes) -> list[FileRecord]:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        cut = data.rstrip()[-1:] not in (b"]", b"}")
        hint = "It seems cut short." if cut else "It must be a list of objects."
        raise ConfigError(f"{path.name}: is not JSON ({error}).", hint=hint) from error
    if isinstance(value, dict):
        value = value.get("data", value)
    if not isinstance(value, list):
        raise ConfigError(f"{path.name}: is not a list of records.", hint="Write a JSON list, or a JSON object a line.")
    return [_record(f"{path.name}, record {number}", number, each) for number, each in enumerate(value, 1)]


def _record(place: str, number: int, value: Any) -> FileRecord:
    if not isinstance(value, dict):
        hint = 'Write {"question": ..., "answer": ...}.'
        raise ConfigError(f"{place}: is not an object: {_short(value)}.", hint=hint)
    return FileRecord(place, number, value)


def _short(value: Any) -> str:
    return cut_text(msgspec.json.encode(value).decode(), 60)
