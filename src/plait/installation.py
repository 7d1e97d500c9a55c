"""Finds out how Plait was installed, and lists the installed extras and plugins."""

from __future__ import annotations

import json
import shlex
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from msgspec import Struct

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint


class Source(Struct, frozen=True):
    """Where the installed Plait came from.

    `kind` is "checkout" (editable), "folder", "archive" (a wheel file or its address), "repository", "index", or
    "none" if Plait is only on the import path. `place` is the folder or the address; "" for an index and for none.
    """

    kind: str
    place: str = ""


class Extra(Struct, frozen=True):
    """An extra of Plait, and the packages of it that are not installed."""

    name: str
    missing: tuple[str, ...]


def installation_source() -> Source:
    """Say how Plait was installed, from the file direct_url.json that pip writes (PEP 610)."""
    distribution = _distribution()
    if distribution is None:
        return Source("none")
    try:
        record = json.loads(distribution.read_text("direct_url.json") or "{}")
    except ValueError:
        record = {}
    url = str(record.get("url", ""))
    if "dir_info" in record:
        kind = "checkout" if record["dir_info"].get("editable") else "folder"
        return Source(kind, unquote(urlsplit(url).path))
    if "vcs_info" in record:
        return Source("repository", f"{record['vcs_info'].get('vcs', 'git')}+{url}")
    return Source("archive", url) if url else Source("index")


def install_command(extra: str) -> str:
    """Return the command that adds an extra to Plait as it is installed here."""
    source, program = installation_source(), _find_installer()
    if source.kind in ("checkout", "folder"):
        folder = "." if Path(source.place) == Path.cwd() else source.place
        editable = "-e " if source.kind == "checkout" else ""
        return f"{program} {editable}{shlex.quote(f'{folder}[{extra}]')}"
    at = f" @ {source.place}" if source.place else ""
    return f"{program} {shlex.quote(f'plait[{extra}]{at}')}"


def _find_installer() -> str:
    """Return the command that changes this environment. Those of uv and pipx have no pip."""
    places, distribution = Path(sys.prefix).parts, _distribution()
    if "pipx" in places:
        return "pipx install --force"
    if distribution is None or (distribution.read_text("INSTALLER") or "").strip() != "uv":
        return "pip install"
    if "archive-v0" in places or "environments-v2" in places:  # uv's cache: made by uvx for one command
        return "uvx --from"
    return "uv tool install" if "tools" in places else "uv pip install"


def install_hint(extra: str) -> str:
    """Return the hint of an error: which command installs what is missing."""
    return f"Install it with: {install_command(extra)}"


def list_extras() -> list[Extra]:
    """List the extras that users install, with the packages that each still needs. Compares no versions."""
    distribution = _distribution()
    requirements: dict[str, list[str]] = {}
    for line in distribution.requires or () if distribution is not None else ():
        package, _, marker = line.partition(";")
        extra = marker.partition("extra ==")[2].strip().strip("\"'")
        if extra and extra not in ("all", "dev"):
            end = next((at for at, letter in enumerate(package) if not (letter.isalnum() or letter in "-_.")), None)
            requirements.setdefault(extra, []).append(package[:end])
    return [
        Extra(name, tuple(each for each in packages if _distribution(each) is None))
        for name, packages in requirements.items()
    ]


def plugins(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group. The first call searches all packages (about 50 ms); the result is cached."""
    return tuple(_read_entry_points(tuple(sys.path)).select(group=group))


@lru_cache(maxsize=32)
def _read_entry_points(path: tuple[str, ...]) -> Any:
    from importlib.metadata import entry_points  # 20 ms

    return entry_points()


def _distribution(name: str = "plait") -> Distribution | None:
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        return distribution(name)
    except PackageNotFoundError:
        return None
