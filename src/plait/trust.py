"""Which configuration files may decide where keys go and which code runs.

Plait trusts a file that the user named (`--config`, `PLAIT_CONFIG`) and the user's own file. A `plait.toml` in the
working folder may have come with a download. Plait reads it only if it names no code to run, no folder for tools, no
environment variable to send, and no address outside this machine, or after `plait trust`, which records its path and
digest. SECURITY.md has a table of the rules.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from plait.core.errors import ConfigError


def own_file() -> Path:
    """Return the path of the user's own configuration: plait/plait.toml in XDG_CONFIG_HOME or ~/.config."""
    return _home("XDG_CONFIG_HOME", ".config") / "plait" / "plait.toml"


def is_trusted(file: Path, content: bytes) -> bool:
    """Return whether the user trusted this file with exactly this content."""
    return _trusted().get(str(file.absolute())) == _digest(content)


def trust(file: Path) -> list[str]:
    """Trust a file with its current content. Returns what that allows, one phrase each. Raises `ConfigError`."""
    import tomllib

    try:
        content = file.read_bytes()
        allowed = list(risks(tomllib.loads(content.decode())))
    except (OSError, ValueError) as why:
        raise ConfigError(f"{file} cannot be trusted, because it cannot be read: {why}.") from why
    _record({**_trusted(), str(file.absolute()): _digest(content)})
    return allowed


def distrust(file: Path) -> None:
    _record({name: digest for name, digest in _trusted().items() if name != str(file.absolute())})


def risks(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a configuration would do that needs trust, one phrase each."""
    from plait.tools.load import opens_folder

    for name, table in _tables(settings.get("endpoints")):
        address = str(table.get("base_url", ""))
        if not _on_this_machine(address):
            yield f"send requests for {name} to {address}"
        if table.get("key_env"):
            yield f"send the key in {table['key_env']} to {address}"
        for variable in _variables(table.get("headers")):
            yield f"send the variable {variable} to {address}"
    agents = [(f"agents.{name}", table) for name, table in _tables(settings.get("agents"))]
    for name, table in [*_tables({"run": settings.get("run")}), *agents]:
        words = table.get("tools")
        for word in words if isinstance(words, list) else ():
            if opens_folder(str(word).strip()):
                yield f"use a folder with the tool {word} ({name})"
            elif _runs_code(str(word)):
                yield f"run the code of the tool {word} ({name})"
    serve = settings.get("serve")
    if isinstance(serve, Mapping):
        if not _on_this_machine(f"http://{serve.get('host') or 'localhost'}"):
            yield f"let other machines connect to plait serve ({serve['host']})"
        if serve.get("hosts"):
            yield "let plait serve answer to other host names"


def _tables(value: Any) -> list[tuple[str, Mapping[str, Any]]]:
    tables = value.items() if isinstance(value, Mapping) else ()
    return [(name, table) for name, table in tables if isinstance(table, Mapping)]


def _variables(headers: Any) -> list[str]:
    values = headers.values() if isinstance(headers, Mapping) else ()
    return [value[1:].strip("{}") for value in values if isinstance(value, str) and value.startswith("$")]


def _runs_code(word: str) -> bool:
    """Return whether a tool's word is a Python file, a module or an MCP server, and not an installed toolkit."""
    from plait.tools.load import toolkit_names

    name = re.sub(r"\A[A-Za-z_][\w.-]*=", "", word.strip()).partition(":")[0]
    return name not in toolkit_names()


def _on_this_machine(address: str) -> bool:
    try:
        host = urlsplit(address).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _home(variable: str, usual: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / usual)


def state_folder() -> Path:
    """Return the folder of what Plait stores for this user: plait in XDG_STATE_HOME or ~/.local/state."""
    return _home("XDG_STATE_HOME", ".local/state") / "plait"


def _trusted() -> dict[str, str]:
    """Return digests by absolute path. Returns none if the file of trust cannot be read."""
    try:
        found = json.loads((state_folder() / "trusted.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _record(trusted: dict[str, str]) -> None:
    place = state_folder() / "trusted.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    scratch = place.with_suffix(f".{os.getpid()}")
    scratch.write_text(json.dumps(trusted, indent=1), encoding="utf-8")
    scratch.replace(place)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
