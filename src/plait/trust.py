"""Which configuration files may decide where keys go and which code runs.

Plait trusts a file that the user named (`--config`, `PLAIT_CONFIG`) and the user's own file. A `plait.toml` in the
working folder may have come with a download. Plait reads it only if all its settings are harmless, or after `plait
trust`, which records its path and digest. `harmless_settings` lists the settings that can be. SECURITY.md has the
rules.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.core.errors import ConfigError
from plait.user_files import read_file
from plait.user_folders import config_folder, state_folder

if TYPE_CHECKING:
    from plait.runtime.agents.options import Option


def own_file() -> Path:
    """Return the path of the user's own configuration: plait/plait.toml in XDG_CONFIG_HOME or ~/.config."""
    return config_folder() / "plait.toml"


def is_trusted(file: Path, content: bytes) -> bool:
    """Return whether the user trusted this file with exactly this content."""
    return _trusted().get(os.path.abspath(file)) == _digest(content)


def trust(file: Path) -> list[str]:
    """Trust a file with its current content. Returns what that allows, one phrase each. Raises `ConfigError`."""
    import tomllib

    try:
        content = read_file(file)
        if file.name == CONTEXT_FILE:
            _record({**_trusted(), os.path.abspath(file): _digest(content)})
            return [f"give instructions to agents in {os.path.dirname(os.path.abspath(file))}"]
        own = tomllib.loads(own_file().read_text("utf-8-sig")) if own_file().is_file() else {}
        allowed = list(risks(tomllib.loads(content.decode("utf-8-sig")), own, file.absolute().parent))
    except (OSError, ValueError) as why:
        raise ConfigError(f"{file} cannot be trusted, because it cannot be read: {why}.") from why
    _record({**_trusted(), os.path.abspath(file): _digest(content)})
    return allowed


def distrust(file: Path) -> None:
    _record({name: digest for name, digest in _trusted().items() if name != os.path.abspath(file)})


TOOLS = ("calculator", "date", "ask-user", "todo")
"""Tools that neither read a file nor reach anybody but the user."""
CONTEXT_FILE = "AGENTS.md"
"""The name of a project's files that are instructions of agents (`runtime/agents/context_files.py`)."""
HOOKS = ("redact", "hosts", "rate", "retry")
_ADDRESS_HERE = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?(/[\w./~-]*)?")


@cache
def agent_options() -> dict[str, Option]:
    """Return the options of an agent by their keys in a configuration file."""
    from plait.runtime.agents.agent_fields import OPTIONS

    return {each.file_key: each for each in OPTIONS if each.file_key}


@cache
def harmless_settings() -> dict[str, set[str]]:
    """Return, by table, the settings that need no trust by themselves. `risks` looks at their values. The options of an
    agent say it (`Option.trust`). All others need trust."""
    run = {key for key, option in agent_options().items() if option.trust != "refused"}
    return {
        "run": run,
        "agents": run | {"description", "thoughts"},
        "endpoints": {"base_url", "model", "kind", "wire", "abilities", "context_tokens", "timeout"}
        | {"requests_per_minute", "tokens_per_minute", "key_env", "headers"},
        "serve": {"host", "hosts", "port"},
    }


def risks(settings: Mapping[str, Any], own: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """Yield what a configuration in a folder would do that needs trust, one phrase each. `own` are the settings of the
    user's own file."""
    from plait.loops.registry import AUTO_LOOP, OURS
    from plait.models.presets import HOSTS

    harmless = harmless_settings()
    yield from (f"set {table}" for table in settings if table not in harmless)
    mine = dict(_tables(own.get("endpoints")))
    near = dict(_tables(settings.get("endpoints")))
    for name, table in near.items():
        address = str(table.get("base_url", ""))
        if not _ADDRESS_HERE.fullmatch(address):
            yield f"send requests for {name} to {address}"
        if table.get("key_env"):
            yield f"send the key in {table['key_env']} to {address}"
        for value in table["headers"].values() if isinstance(table.get("headers"), Mapping) else ():
            if isinstance(value, str) and value.startswith("$"):
                yield f"send the variable {value[1:].strip('{}')} to {address}"
        if name in HOSTS or name in mine:
            yield f"replace the endpoint {name}"
        yield from _others(table, "endpoints", f"endpoints.{name}")
    own_agents = dict(_tables(own.get("agents")))
    of_runs = dict(_tables({"run": own.get("run")})).get("run", {})
    agents = [(f"agents.{name}", table) for name, table in _tables(settings.get("agents"))]
    for name, table in [*_tables({"run": settings.get("run")}), *agents]:
        words = table.get("tools")
        found = (risk_of_tool(str(word), folder) for word in (words if isinstance(words, list) else ()))
        yield from (f"{risk} ({name})" for risk in found if risk)
        yield from risks_of_models(table, {*HOSTS, *near, *mine}, name)
        if name.partition(".")[2] in own_agents:
            yield f"replace the agent {name.partition('.')[2]}"
        for key, option in agent_options().items():
            usual = of_runs.get(key, option.default)
            value, trust = table.get(key, usual), option.trust
            if trust == "same" and key in table and of_runs.get(key) and value != usual:
                yield f"change {key} from {usual!r} to {value!r} ({name})"
            if trust == "at most" and usual is not None and not (isinstance(value, int | float) and value <= usual):
                yield f"raise {key} from {usual} to {value} ({name})"
        if packages := str(table.get("sandbox", "")).partition(":")[2]:
            yield f"import the packages {packages} for code ({name})"
        if (loop := table.get("loop", AUTO_LOOP)) not in (AUTO_LOOP, *OURS):
            yield f"use the loop {loop} of another package ({name})"
        for hook in table["hooks"] if isinstance(table.get("hooks"), list) else ():
            if str(hook).partition(":")[0].strip() not in HOOKS:
                yield f"use the hook {hook} ({name})"
        code = {key: table[key] for key in ("agent", "deps") if key in table}
        yield from (f"run the code of {word} ({name})" for word in code.values())
        yield from _others({key: table[key] for key in table if key not in code}, name.partition(".")[0], name)
    for _, table in _tables({"serve": settings.get("serve")}):
        if table.get("host", "localhost") not in ("localhost", "127.0.0.1", "::1"):
            yield f"let other machines connect to plait serve ({table['host']})"
        if table.get("hosts"):
            yield "let plait serve answer to other host names"
        yield from _others(table, "serve", "serve")


def _others(table: Mapping[str, Any], kind: str, name: str) -> Iterator[str]:
    return (f"set {key} ({name})" for key in table if key not in harmless_settings()[kind])


def risk_of_tool(word: str, folder: Path | None) -> str:
    """Return what the tools of a word would do that needs trust, as a phrase; "" if they are harmless.

    A file in `folder`, where the word was written, may be read. A word of a journal has none.
    """
    from plait.tools.load import opens_folder, toolkit_names

    toolkit, _, argument = re.sub(r"\A\w[\w.-]*=", "", word.strip()).strip().partition(":")
    if opens_folder(word.strip()):
        return f"use a folder with the tool {word}"
    if toolkit == "hosted":
        return f"let the provider of the model use {word}"
    if toolkit == "run-python":
        return f"run code in the sandbox with the tool {word}"
    if toolkit not in toolkit_names():
        return f"run the code of the tool {word}"
    if toolkit == "lookup" and "\0" not in argument:
        file = Path(os.path.realpath((folder or Path()) / Path(argument).expanduser()))
        if folder is None or not file.is_relative_to(os.path.realpath(folder)):
            return f"read a file outside its folder with the tool {word}"
        # A folder may hold links to files elsewhere.
        return f"use a folder with the tool {word}" if file.is_dir() else ""
    if toolkit == "memory":
        return f"use your notes with the tool {word}"
    return "" if toolkit in TOOLS else f"use the tool {word}, which may reach other machines"


def risks_of_models(table: Mapping[str, Any], known: set[str], name: str) -> Iterator[str]:
    """Yield the models of a table that need trust, one phrase each. `known` are the hosts and the user's endpoints."""
    models = table.get("models")
    for spec in [table.get("model", "local"), *(models.values() if isinstance(models, Mapping) else ())]:
        for each in str(spec).split("|"):
            provider, _, rest = each.strip().partition(":")
            is_own_file = provider == "local" and ("/" in rest or os.sep in rest or rest.lower().endswith(".gguf"))
            if is_own_file or provider not in {"local", *known} or "@" in each:
                yield f"use the model {each} ({name})"


def _tables(value: Any) -> list[tuple[str, Mapping[str, Any]]]:
    tables = value.items() if isinstance(value, Mapping) else ()
    return [(name, table) for name, table in tables if isinstance(table, Mapping)]


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
