"""The cache of local model files: fetched once, proved by hash, safe for several processes at once.

Theory of operation. A file is written as `NAME.part` beside its place while it is hashed, and renamed
only when size and hash are right; so a file under its own name was whole when it was put there. A stamp
beside it (`NAME.ok`) says which hash was proved for which inode, size and times of change. A later load hashes the
whole file again unless all of them are as in the stamp. (A program can set the time of modification back, but not
the time of the last change of status.) An interrupted fetch leaves the parts
that came whole and a note of how many (`NAME.part.json`); the next fetch hashes them again and goes on
behind them. One `flock` a file makes the others wait for whoever fetches.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from plait.core.errors import ModelMissing
from plait.models import sources
from plait.models.catalogue import CATALOGUE, CatalogueModel, Source, catalogue_model
from plait.models.progress import Progress, default_progress

MARGIN = 256 << 20
"""Room on the disk, beyond the file's own size, for what is being unpacked."""


class CatalogueRow(msgspec.Struct, frozen=True):
    """A catalogue model as `plait models list` shows it. `path` is where its file is, or would be."""

    name: str
    bytes: int
    licence: str
    cached: bool
    path: str
    default: bool = False


class _Stamp(msgspec.Struct, frozen=True):
    """What was proved of a file: its hash, for these of its attributes."""

    sha256: str
    bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int


class _Progressed(msgspec.Struct, frozen=True):
    """How far an interrupted fetch came: whole parts of one source, and their bytes."""

    source: str
    parts: int
    bytes: int


def cache_folder() -> Path:
    """Where model files are kept: `PLAIT_CACHE`, else `plait/models` in the user's cache folder."""
    if own := os.environ.get("PLAIT_CACHE"):
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "plait" / "models"


def catalogue_rows() -> list[CatalogueRow]:
    """Every catalogue model, with whether its file is there. Looks at size and stamp, hashes nothing."""
    return [_row(model) for model in CATALOGUE.values()]


def _row(model: CatalogueModel) -> CatalogueRow:
    path = cache_folder() / model.file
    return CatalogueRow(
        model.name, model.bytes, model.licence, _stamped(model, path), str(path), model is catalogue_model("")
    )


def model_file(name: str, *, progress: Progress | None = None) -> Path:
    """The file of a catalogue model ("" is the default), fetched first if it is not in the cache.

    `progress` is told (bytes done, bytes in all) while something is fetched; None draws a bar on stderr,
    or prints a line each tenth where stderr is no terminal. Raises `UsageError` for a name that is not in
    the catalogue, `ModelMissing` where the file can't be had or is not what its hash says.
    """
    return ensure(catalogue_model(name), progress=progress)


def verify(name: str) -> Path:
    """Hash a cached model's whole file again. Returns its path; a wrong file is deleted: `ModelMissing`."""
    model = catalogue_model(name)
    path = cache_folder() / model.file
    if not path.exists():
        raise ModelMissing(
            f"The file of {model.name} is not in {path.parent}.",
            hint=f"`plait models pull {model.name}` fetches it.",
        )
    with _lock(path):
        _check_whole(model, path)
    return path


def ensure(model: CatalogueModel, *, progress: Progress | None = None) -> Path:
    """As `model_file`, for any catalogue entry."""
    path = cache_folder() / model.file
    if _stamped(model, path):
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _lock(path):
            if _stamped(model, path):  # another process fetched it while we waited
                return path
            if path.exists():  # put there by hand, or its stamp is lost
                _check_whole(model, path)
                return path
            _room(model, path)
            with default_progress(model.name, progress) as told:
                _fetch(model, path, told)
            return path
    except OSError as error:
        raise ModelMissing(
            f"The file of {model.name} can't be kept in {path.parent}: {error.strerror or error}.",
            hint="Make room or set PLAIT_CACHE to another folder.",
        ) from error


# --- what is there ------------------------------------------------------------------------------------


def _stamp_path(path: Path) -> Path:
    return path.with_name(path.name + ".ok")


def _stamped(model: CatalogueModel, path: Path) -> bool:
    try:
        stamp = msgspec.json.decode(_stamp_path(path).read_bytes(), type=_Stamp)
        state = path.stat()
    except (OSError, msgspec.MsgspecError):
        return False
    return stamp == _stamp(model, state) and state.st_size == model.bytes


def _stamp(model: CatalogueModel, state: os.stat_result) -> _Stamp:
    return _Stamp(model.sha256, state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino, state.st_dev)


def checked(name: str) -> dict[str, Any] | None:
    """What was proved of a cached model's file as it is now; None where it is not there, or is to be hashed again."""
    model = catalogue_model(name)
    path = cache_folder() / model.file
    if not _stamped(model, path):
        return None
    return {"sha256": model.sha256, "bytes": model.bytes, "ctime_ns": path.stat().st_ctime_ns}


def _put_stamp(model: CatalogueModel, path: Path) -> None:
    state = path.stat()
    text = msgspec.json.encode(_stamp(model, state))
    with suppress(OSError):  # a read-only cache: it is hashed each time, no more
        _replace(_stamp_path(path), text)


def _replace(path: Path, data: bytes) -> None:
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(data)
    fresh.replace(path)


def _check_whole(model: CatalogueModel, path: Path) -> None:
    found = hashlib.sha256()
    size = 0
    with path.open("rb") as file:
        while chunk := file.read(sources.CHUNK):
            found.update(chunk)
            size += len(chunk)
    if found.hexdigest() != model.sha256:
        _remove(path, _stamp_path(path))
        raise _wrong_hash(model, found.hexdigest(), size, str(path))
    _put_stamp(model, path)


def _wrong_hash(model: CatalogueModel, found: str, size: int, where: str) -> ModelMissing:
    return ModelMissing(
        f"What came as {model.name} from {where} is another file: expected sha256 {model.sha256} "
        f"({model.bytes:,} bytes), found {found} ({size:,} bytes). It was deleted.",
        hint=f"Try `plait models pull {model.name}` again, or put the right file at {cache_folder() / model.file}.",
    )


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Held by one process (and one thread) at a time; freed by the system when its holder dies."""
    try:
        file = path.with_name(path.name + ".lock").open("ab")
    except OSError:
        if not path.exists():
            raise
        yield  # a read-only cache that somebody filled: nothing will be written, so nothing to keep apart
        return
    with file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.1)  # a blocking flock would not let Ctrl-C through in every thread
        yield


def _remove(*paths: Path) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


# --- fetching -----------------------------------------------------------------------------------------


def _part_paths(path: Path) -> tuple[Path, Path]:
    return path.with_name(path.name + ".part"), path.with_name(path.name + ".part.json")


def _room(model: CatalogueModel, path: Path) -> None:
    part, _ = _part_paths(path)
    there = part.stat().st_size if part.exists() else 0
    need = model.bytes - there + MARGIN
    free = shutil.disk_usage(path.parent).free
    if free < need:
        raise ModelMissing(
            f"{model.name} needs {need / 1e9:.1f} GB in {path.parent}, and {free / 1e9:.1f} GB are free.",
            hint="Make room, or set PLAIT_CACHE to a folder on another disk.",
        )


def _fetch(model: CatalogueModel, path: Path, progress: Progress) -> None:
    tried: list[str] = []
    for left in path.parent.glob(f".{model.name}-*"):  # of a fetch that was killed; we hold the lock
        shutil.rmtree(left, ignore_errors=True)
    part, note = _part_paths(path)
    for source in model.sources:
        try:
            found, size = _from(source, model, path, progress)
        except sources.SourceFailed as failure:
            tried.append(f"{sources.describe(source)}: {failure}")
            continue
        except OSError:
            _remove(part, note)  # a full disk gets its room back
            raise
        if found != model.sha256:
            _remove(part, note)
            raise _wrong_hash(model, found, size, sources.describe(source))
        part.replace(path)
        _remove(note)
        _put_stamp(model, path)
        return
    raise ModelMissing(
        f"{model.name} could not be fetched. Tried " + "; ".join(tried) + ".",
        hint=f"Fetch it where there is a connection and put the file (sha256 {model.sha256}) at {path}: "
        "it is taken from there. Or give a file of yours as local:/path/to/model.gguf.",
    )


def _from(source: Source, model: CatalogueModel, path: Path, progress: Progress) -> tuple[str, int]:
    """Write the source's bytes to the part file. Returns their sha256 and how many they are."""
    part, note = _part_paths(path)
    known = sources.describe(source)
    hashed = hashlib.sha256()
    with part.open("ab+") as out:
        came = _resume(out, note, known, hashed)
        done, seen = came.bytes, came.bytes
        progress(done, model.bytes)

        def tick(coming: int) -> None:
            # What is on its way is compressed and not yet here, so it is an estimate: never the whole.
            nonlocal seen
            seen = max(seen, min(done + coming, model.bytes - 1))
            progress(seen, model.bytes)

        with tempfile.TemporaryDirectory(prefix=f".{model.name}-", dir=path.parent) as scratch:
            pieces = sources.parts(source, came.parts, Path(scratch), tick)
            try:
                for number, piece in enumerate(pieces, came.parts + 1):
                    for chunk in piece:
                        out.write(chunk)
                        hashed.update(chunk)
                        done += len(chunk)
                        if done > model.bytes:  # whatever this is, it isn't the model: don't fill the disk
                            return hashed.hexdigest() + " so far", done
                    out.flush()
                    os.fsync(out.fileno())
                    _replace(note, msgspec.json.encode(_Progressed(known, number, done)))
                    tick(0)
            finally:
                close: Callable[[], Any] = getattr(pieces, "close", lambda: None)
                close()
        progress(done, model.bytes)
    return hashed.hexdigest(), done


def _resume(out: BinaryIO, note: Path, source: str, hashed: Any) -> _Progressed:
    """Read what an interrupted fetch from this source left into the hash; cut off what was not whole."""
    try:
        came = msgspec.json.decode(note.read_bytes(), type=_Progressed)
    except (OSError, msgspec.MsgspecError):
        came = _Progressed(source, 0, 0)
    if came.source != source or os.fstat(out.fileno()).st_size < came.bytes:
        came = _Progressed(source, 0, 0)
    out.truncate(came.bytes)
    out.seek(0)
    while chunk := out.read(sources.CHUNK):
        hashed.update(chunk)
    return came
