"""The folders in which Plait stores things for a user, by the variables of XDG, and disks of other machines."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
NETWORK_HINT = "SQLite's locks are not reliable there. Use a local folder, or PostgreSQL."
_NETWORKS = frozenset(
    {"nfs", "nfs3", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "afs", "lustre", "sshfs"}
)


def config_folder() -> Path:
    """Return plait in XDG_CONFIG_HOME or ~/.config."""
    return _find_folder("XDG_CONFIG_HOME", ".config")


def state_folder() -> Path:
    """Return plait in XDG_STATE_HOME or ~/.local/state."""
    return _find_folder("XDG_STATE_HOME", ".local/state")


def cache_folder() -> Path:
    """Return plait in XDG_CACHE_HOME or ~/.cache."""
    return _find_folder("XDG_CACHE_HOME", ".cache")


def _find_folder(variable: str, usual: str) -> Path:
    return _make_path(os.environ.get(variable), usual, os.environ.get("HOME"))


@lru_cache(maxsize=8)  # each agent asks for one when it is made
def _make_path(folder: str | None, usual: str, home: str | None) -> Path:
    if folder:
        return Path(folder) / "plait"
    try:
        return Path.home() / usual / "plait"
    except RuntimeError:  # in a container: no HOME, and a user whom /etc/passwd does not have
        return Path("/") / usual / "plait"


def find_network(path: Path) -> str:
    """Return the type of the network file system that holds a path, such as "nfs4"; "" for a local one."""
    try:
        mounts = [line.split() for line in MOUNTS.read_text(errors="replace").splitlines()]
    except OSError:
        return ""
    types = {words[4].replace("\\040", " "): words[words.index("-") + 1] for words in mounts if "-" in words}
    place = path.resolve()
    found = next((types[str(each)] for each in (place, *place.parents) if str(each) in types), "")
    return found if found.removeprefix("fuse.") in _NETWORKS else ""
