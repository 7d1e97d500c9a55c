"""`plait.toml`: endpoints, prices, electricity, and defaults for `plait run`.

Flags win over the environment, the environment over the file, the file over what is built in.
Secrets are never in the file: an endpoint names the environment variable its key is in.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from plait.core.errors import UsageError
from plait.models.config import ModelConfig

TABLES = {"run", "endpoints", "prices", "params", "electricity", "local", "timeout"}


class RunDefaults(Struct, frozen=True, forbid_unknown_fields=True):
    """The table `[run]`: what `plait run` takes where no flag says otherwise. The names are the flags'."""

    strategy: str | None = None
    model: str | None = None
    models: dict[str, str] = {}
    set: dict[str, Any] = {}
    results: str | None = None
    at_least: float | None = None
    tools: list[str] = []
    prompts: str | None = None
    journal: str | None = None
    approve: str | None = None
    embedder: str | None = None
    provenance: str | None = None
    sandbox: str | None = None
    show_tools: int | None = None
    code: dict[str, Any] = {}
    max_steps: int | None = None
    max_calls: int | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    max_seconds: float | None = None


class Config(Struct, frozen=True):
    """What the file says. `path` is where it was read, None without a file."""

    run: RunDefaults
    models: ModelConfig
    path: Path | None = None


def load(path: Path | None = None) -> Config:
    """The configuration: of `path`, else `PLAIT_CONFIG`, else `plait.toml` in the working folder, else none.

    Raises `UsageError` for a file that was named and is not there, and for one that can't be understood.
    """
    named = path or (Path(os.environ["PLAIT_CONFIG"]) if os.environ.get("PLAIT_CONFIG") else None)
    place = named or Path("plait.toml")
    if not place.is_file():
        if named is not None:
            raise UsageError(f"There is no configuration file {place}.", hint="Check --config or PLAIT_CONFIG.")
        return Config(RunDefaults(), ModelConfig.from_mapping({}))
    import tomllib

    try:
        data = tomllib.loads(place.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as why:
        raise UsageError(f"{place} can't be read: {why}.", hint="It must be a TOML file.") from why
    for table in data:
        if table not in TABLES:
            raise UsageError(
                f"{place} has a table [{table}], which is not known.",
                hint=f"Known are: {', '.join(sorted(TABLES))}.",
            )
    return Config(_defaults(data.pop("run", {}), place), ModelConfig.from_mapping(data, place.name), place)


def _defaults(table: Any, place: Path) -> RunDefaults:
    import difflib

    known = RunDefaults.__struct_fields__
    for name in table if isinstance(table, dict) else ():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"Did you mean {near[0]}?" if near else f"It may have: {', '.join(known)}."
            raise UsageError(f"{place}, table [run]: there is no setting '{name}'.", hint=hint)
    try:
        return msgspec.convert(table, RunDefaults)
    except msgspec.ValidationError as why:
        raise UsageError(f"{place}, table [run]: {why}.") from why
