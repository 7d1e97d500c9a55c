"""The command `plait doctor`: it reports what this installation can do, and which configured parts do not work."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import click
import msgspec

from plait import __version__, trust
from plait import config as config_files
from plait.cli import options
from plait.cli.commands import exit_with
from plait.cli.main import CRASHED
from plait.cli.output import print_json, print_table
from plait.core.errors import ConfigError, JournalError, PlaitError
from plait.core.text import one_line
from plait.installation import install_command, installation_source, list_extras
from plait.journal.store import Journal, NoJournal, default_place, is_address, open_store, wait_for
from plait.models.config import ModelConfig
from plait.models.default_model import ask_for_models, choose_model
from plait.models.fetch import list_catalogue
from plait.models.presets import HOSTS
from plait.models.resolve import resolve
from plait.sandbox import AUTO, BACKENDS, Settings, default_sandbox
from plait.sandbox.command import check_folder
from plait.sandbox.monty_worker import library
from plait.sandbox.process import ProcessSession
from plait.user_files import read_file
from plait.user_folders import NETWORK_HINT, find_network

State = Literal["ok", "absent", "broken"]
COLOURS: dict[State, str] = {"ok": "green", "absent": "dim", "broken": "bold red"}
ANOTHER_JOURNAL = "Set PLAIT_JOURNAL to another file."
SOURCES = {
    "checkout": "editable, from {}",
    "folder": "from the folder {}",
    "archive": "from {}",
    "repository": "from {}",
    "index": "from a package index",
    "none": "not as a package: it is only on the import path",
}


class Finding(msgspec.Struct, frozen=True):
    """One line of the report. `absent` is an optional part that is missing; `broken` is a configured part that
    fails."""

    group: str
    name: str
    state: State
    detail: str
    fix: str = ""


@click.command()
@options.journal
@options.as_object
def doctor(journal: str | None, as_object: bool) -> None:
    """Check this installation: extras, models, keys, configuration, journal and sandbox.

    Plait asks local servers and configured endpoints for their models, without a key. It starts no model and changes
    nothing. Exit codes: 0 nothing is broken, 1 something that is configured does not work, 2 wrong usage.
    """
    findings = list(examine(journal))
    broken = [each for each in findings if each.state == "broken"]
    lacking = next((each for each in findings if (each.name, each.state) == ("default", "absent")), None)
    if as_object:
        print_json({"usable": not broken and lacking is None, "findings": msgspec.to_builtins(findings)})
    else:
        heads = ("group", "name", "state", "what")
        texts = [f"{each.detail.rstrip('.')}. Fix: {each.fix}" if each.fix else each.detail for each in findings]
        rows = [(each.group, each.name, each.state, one_line(text)) for each, text in zip(findings, texts, strict=True)]
        if sys.stdout.isatty():  # which wraps long cells; a pipe gets one line per finding
            from rich.console import Console
            from rich.table import Table
            from rich.text import Text

            table = Table(box=None, pad_edge=False, header_style="bold")
            for head in heads:
                table.add_column(head, overflow="fold")
            shown = ""
            for group, name, state, what in rows:
                table.add_row("" if group == shown else group, Text(name), Text(state, COLOURS[state]), Text(what))
                shown = group
            Console().print(table)
        else:
            print_table(heads, rows)
        said = f"No model can be used yet. {lacking.detail} {lacking.fix}" if lacking is not None else "Usable."
        click.echo(f"{len(broken)} of the settings above do not work." if broken else said)
    exit_with(CRASHED if broken else 0)


def examine(journal: str | None = None) -> Iterator[Finding]:
    """Yield every finding. `journal` is the file that the command line names."""
    source = installation_source()
    yield Finding("plait", "version", "ok", f"{__version__}, installed {SOURCES[source.kind].format(source.place)}")
    yield Finding("plait", "python", "ok", f"{platform.python_version()}, {sys.executable}")
    for extra in list_extras():
        if extra.missing:
            detail = f"missing: {', '.join(extra.missing)}"
            yield Finding("extra", extra.name, "absent", detail, install_command(extra.name))
        else:
            yield Finding("extra", extra.name, "ok", "installed")
    own, because, config = trust.own_file(), "safe: it needs no trust", config_files.Config({}, ModelConfig())
    try:
        config = config_files.load()
        if config.path is None:
            yield Finding("config", "file", "absent", f"no plait.toml here, and no {own}")
    except ConfigError as why:
        yield Finding("config", "file", "broken", one_line(why.message), one_line(why.hint))
    if config.path is not None:
        if config.path == own:
            because = "your own file"
        elif trust.is_trusted(config.path, read_file(config.path)):
            because = "trusted with `plait trust`"
        elif config.path.absolute() != Path("plait.toml").absolute():
            because = "named by you"
        yield Finding("config", "file", "ok", f"{config.path.absolute()} ({because})")
    yield from _examine_keys(config)
    yield from _examine_local_models()
    yield from _examine_configured_models(config)
    yield from _examine_endpoints(config)
    yield _examine_journal(journal or os.environ.get("PLAIT_JOURNAL") or config.run.get("journal"))
    yield from _examine_sandbox(config.run.get("sandbox", AUTO))


def _examine_keys(config: config_files.Config) -> Iterator[Finding]:
    """Report which variables hold a key, never a value."""
    keys = [(name, key) for name, host in HOSTS.items() for key in host.keys]
    for name, key in (*keys, ("plait serve", "PLAIT_SERVE_TOKEN")):
        if os.environ.get(key, "").strip():
            yield Finding("key", name, "ok", f"{key} is set")
    for name, endpoint in config.models.endpoints.items():
        if endpoint.key_env and not os.environ.get(endpoint.key_env, "").strip():
            fix = f"export {endpoint.key_env}=..."
            yield Finding("key", name, "broken", f"{endpoint.key_env} is not set, and endpoints.{name} names it", fix)
        elif endpoint.key_env:
            yield Finding("key", name, "ok", f"{endpoint.key_env} is set")
    hosts = [host for host in HOSTS.values() if not host.local]
    unset = [host.name for host in hosts if not any(os.environ.get(key, "").strip() for key in host.keys)]
    if unset:
        yield Finding("key", "not set", "absent", ", ".join(unset))


def _examine_local_models() -> Iterator[Finding]:
    for row in list_catalogue():
        path, size = Path(row.path), f"{row.bytes / 1e6:,.0f} MB"
        name = f"local:{row.name}" + (" (default)" if row.default else "")
        if row.cached:
            yield Finding("model", name, "ok", f"{size}, hash checked, {path}")
        elif path.is_file() and path.stat().st_size == row.bytes:
            yield Finding("model", name, "ok", f"{size}, its hash is checked at the next load, {path}")
        elif path.is_file():
            detail = f"{path} has {path.stat().st_size:,} bytes, and {row.bytes:,} are expected"
            yield Finding("model", name, "broken", detail, f"rm {path} && plait models pull {row.name}")
        else:
            fix = f"plait models pull {row.name}"
            yield Finding("model", name, "absent", f"{size} to download, at its first use", fix)


def _examine_configured_models(config: config_files.Config) -> Iterator[Finding]:
    """Check the models that the environment or the configuration chooses, without asking them."""
    tables = {"run": config.run, **{f"agents.{name}": table for name, table in config.agents.items()}}
    wanted = {"PLAIT_MODEL": os.environ.get("PLAIT_MODEL", "")}
    for place, table in tables.items():
        wanted[f"{place}.model"] = table.get("model", "")
        wanted.update({f"{place}.models.{phase}": spec for phase, spec in table.get("models", {}).items()})
    if not any(wanted.values()):
        wanted["default"], _ = choose_model(os.environ)
    for place, spec in wanted.items():
        if not spec:
            continue
        try:
            resolve(spec, config.models)
        except ConfigError as why:
            state: State = "absent" if place == "default" else "broken"
            yield Finding("model", place, state, one_line(why.message), one_line(why.hint))
            continue
        yield Finding("model", place, "ok", spec)


def _examine_endpoints(config: config_files.Config) -> Iterator[Finding]:
    """Ask the presets' local servers and every configured endpoint for their models, all at once."""
    asked: list[tuple[str, str, bool]] = []
    for name, host in HOSTS.items():
        moved = os.environ.get(host.base_env, "").strip()
        if moved or host.local:
            asked.append((name, moved or host.base_url, bool(moved)))
    asked += [(name, each.base_url, True) for name, each in config.models.endpoints.items() if each.base_url]
    with ThreadPoolExecutor(len(asked)) as threads:
        answers = threads.map(ask_for_models, [address for _, address, _ in asked])
    for (name, address, is_configured), (models, answer) in zip(asked, answers, strict=True):
        state: State = "ok" if models is not None else "broken" if is_configured else "absent"
        yield Finding("endpoint", name, state, f"{address}: {answer}")


def _examine_journal(named: str | None) -> Finding:
    place = named or default_place()
    if is_address(place):
        try:
            info = wait_for((store := open_store(place)).info())
        except PlaitError as why:
            return Finding("journal", "postgresql", "broken", one_line(why.message), one_line(why.hint))
        about = f"schema {info.version} (current), {info.size / 1e6:,.1f} MB, writable"
        return Finding("journal", store.place, "ok", about)
    path = Path(place).expanduser()
    try:
        version = wait_for(Journal(path).store.info()).version
    except NoJournal:
        folder = next(each for each in path.absolute().parents if each.exists())
        if network := find_network(path):
            return Finding("journal", str(path), "broken", f"{folder} is on {network}", NETWORK_HINT)
        if os.access(folder, os.W_OK):
            return Finding("journal", str(path), "ok", "the first run makes it")
        return Finding("journal", str(path), "broken", f"{folder} is not writable", ANOTHER_JOURNAL)
    except JournalError as why:
        return Finding("journal", str(path), "broken", one_line(why.message), one_line(why.hint))
    free = shutil.disk_usage(path.parent).free
    about = f"schema {version} (current), {path.stat().st_size / 1e6:,.1f} MB, {free / 1e9:,.0f} GB free"
    if network := find_network(path):
        return Finding("journal", str(path), "broken", f"{about}, on {network}", NETWORK_HINT)
    if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        return Finding("journal", str(path), "ok", f"{about}, writable")
    return Finding("journal", str(path), "broken", f"{about}, not writable", ANOTHER_JOURNAL)


def _examine_sandbox(configured: str) -> Iterator[Finding]:
    """Open a session of `process` to see what the kernel offers, and look for the package of `monty`."""

    async def find_walls() -> dict[str, Any]:
        session = ProcessSession(Settings())
        await session.start()
        await session.close()
        return session.walls

    problems = {}
    for name in ("process", "monty"):
        try:
            if name == "monty":
                library()
                what = BACKENDS[name]
            else:
                walls = asyncio.run(find_walls())
                landlock = f"Landlock {walls['landlock']}" if walls["landlock"] else "no Landlock"
                spaces = f"namespaces: {', '.join(walls['namespaces'])}" if walls["namespaces"] else "no namespaces"
                what = f"seccomp filter, {landlock}, {spaces}"
            yield Finding("sandbox", name, "ok", what)
        except PlaitError as why:
            problems[name] = one_line(str(why))
            yield Finding("sandbox", name, "absent", one_line(why.message), one_line(why.hint))
    chosen, why_not = default_sandbox()
    if chosen == "process" and "process" in problems:
        chosen, why_not = "monty", problems["process"]
    reason = f" because process is not available: {why_not}" if why_not else ", because the kernel can confine it"
    yield Finding("sandbox", AUTO, "absent" if chosen in problems else "ok", f"uses {chosen}{reason}")
    if configured != AUTO and configured in problems:
        yield Finding("sandbox", "run.sandbox", "broken", f"{configured} is configured: {problems[configured]}")
    try:  # an empty command, as the tool runs it
        with tempfile.TemporaryDirectory(prefix="plait-doctor-") as folder:
            check_folder(Path(folder).resolve())
        yield Finding("sandbox", "shell", "ok", "the tool shell:FOLDER can confine commands to a folder")
    except ConfigError as why:
        yield Finding("sandbox", "shell", "absent", one_line(why.message), one_line(why.hint))
