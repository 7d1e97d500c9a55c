"""The commands `plait loops`, `models`, `tools` and `prompts`, which list them, and `plait trust`."""

from __future__ import annotations

import inspect
import os
import textwrap
from pathlib import Path
from typing import Any, get_args, get_type_hints

import click
import msgspec
from msgspec import structs

from plait import trust as trust_store
from plait.cli import options
from plait.cli.output import as_json, print_json, print_table
from plait.config import load
from plait.core.errors import ConfigError, PlaitError
from plait.core.hosted import HOSTED_WORDS, PREFIX
from plait.core.text import clean
from plait.core.tools import MARKS
from plait.loops import make, options_of, prompts_of
from plait.loops.registry import UNLISTED, choices_of
from plait.loops.registry import names as loop_names
from plait.models.base import Model
from plait.models.chat import ChatModel
from plait.models.fallback import members_of
from plait.models.fetch import list_catalogue, model_file
from plait.models.prices import describe_rate
from plait.models.rejections import forget_rejections, list_rejections
from plait.models.resolve import providers, resolve
from plait.recorded_runs import format_time
from plait.runtime.templates.prompts import shared_prompts, shipped_prompts
from plait.toolkits.method_search import lines_of
from plait.tools import load as load_tools
from plait.tools import toolkit_names, tools_from

# -- loops


@click.group()
def loops() -> None:
    """The loops."""


@loops.command("list")
@click.argument("names", nargs=-1)
@options.as_list
def list_loops(names: tuple[str, ...], as_object: bool) -> None:
    """List the loops (all, or those named): a description, phases (--model PHASE=SPEC) and options (--set K=V)."""
    found: list[dict[str, Any]] = []
    for loop in map(make, names or loop_names()):
        kind = type(loop)
        own = {name: [_option_type(name, kind), default] for name, default in options_of(loop).items()}
        found.append({"name": loop.name, "what": _first_line(kind), "phases": list(loop.phases), "options": own})
    if as_object:
        print_json(found)
        return
    for number, each in enumerate(found):
        click.echo(("\n" if number else "") + f"{each['name']}: {each['what']}")
        click.echo(f"  phases: {', '.join(each['phases'])}")
        for option, (kind, default) in each["options"].items():
            click.echo(f"  --set {option}={as_json(default) if not isinstance(default, str) else default}  ({kind})")


def _option_type(option: str, owner: type) -> str:
    """Return the values of an option in words: its choices, otherwise its type."""
    try:
        hint = get_type_hints(owner)[option]
    except (NameError, KeyError):
        return "see its documentation"
    if choices := choices_of(hint):
        return " | ".join(choices)
    parts = get_args(hint) or (hint,)
    return " | ".join("none" if part is type(None) else getattr(part, "__name__", str(part)) for part in parts)


# -- models


@click.group()
def models() -> None:
    """The local models, the providers of other models, and what Plait knows of a model."""


@models.command("list")
@options.config
@options.as_list
def list_models(as_object: bool) -> None:
    """List the local models (size, licence, whether fetched) and the providers of others."""
    rows = list_catalogue()
    if as_object:
        print_json([{"model": f"local:{row.name}", **msgspec.to_builtins(row)} for row in rows])
        return
    lines = [
        [
            f"local:{row.name}",
            f"{row.bytes / 1e6:,.0f}",
            row.licence,
            "yes" if row.cached else "no",
            "the default for `local`" if row.default else "",
        ]
        for row in rows
    ]
    print_table(["model", ">MB", "licence", "fetched", ""], lines)
    click.echo("\nYour own file: local:/path/to/model.gguf")
    others = ", ".join(name for name in providers(load().models) if name != "local")
    click.echo(f"Other models are named PROVIDER:NAME. Providers: {clean(others)}")


@models.command()
@click.argument("name")
def pull(name: str) -> None:
    """Fetch the local model NAME, check its hash, and print the path of its file."""
    click.echo(str(model_file(name.removeprefix("local:") if name != "local" else "")))


@models.command("show")
@click.argument("name", metavar="SPEC")
@options.config
@options.as_list
def show_model(name: str, as_object: bool) -> None:
    """Show what Plait knows of the model SPEC, such as openai:gpt-5: endpoint, wire, settings, price, abilities.

    An ability comes from Plait's table, from plait.toml, or from a rejection in an earlier run. Needs no key.
    """
    members = members_of(resolve(name, load().models, require_key=False))
    details = [describe_details(each) for each in members]
    if as_object:
        print_json(details)
        return
    for number, each in enumerate(details):
        click.echo("\n" if number else "", nl=False)
        key = each.get("key")
        lines = {
            "wire": each.get("wire"),
            "endpoint": each["endpoint"],
            "key": f"{key} ({'set' if each['key_is_set'] else 'not set'})" if key else "",
            "settings": _join(each.get("settings")),
            "params": _join(each.get("params")),
            "price": each["price"] or "not known",
            "rate limit": each.get("rate_limit"),
        }
        click.echo(each["model"])
        for head, value in lines.items():
            if value:
                click.echo(f"  {head:<10}  {clean(str(value))}")
        click.echo()
        rows = []
        for ability in each["abilities"]:
            source = ability["source"]
            if source == "learned":
                source = f'learned on {ability["date"]}, expires {ability["expires"]}: "{clean(ability["said"])}"'
            rows.append([ability["ability"], "yes" if ability["value"] else "no", source])
        print_table(["ability", "", "from"], rows)


def describe_details(model: Model) -> dict[str, Any]:
    """Return what `--json` prints: the wire, the endpoint, the key, settings, price, rate limit and abilities."""
    learned = {each.ability: each for each in list_rejections(model)}
    details: dict[str, Any] = {"model": model.spec, "name": model.name, "endpoint": model.endpoint}
    if isinstance(model, ChatModel):
        details |= {
            "wire": model.wire,
            "key": model.key_env,
            "key_is_set": bool(os.environ.get(model.key_env, "").strip()),
            "settings": msgspec.to_builtins(model.settings),
            "params": dict(model.params),
            "rate_limit": str(model.rate_limit) if model.rate_limit is not None else None,
        }
    stated = getattr(model, "stated_abilities", ())
    abilities: list[dict[str, Any]] = []
    for name, able in structs.asdict(model.abilities).items():
        abilities.append({"ability": name, "value": able, "source": "plait.toml" if name in stated else "table"})
        if name not in stated and able and (seen := learned.get(name)) is not None:
            dates = {"date": format_time(seen.at)[:10], "said": seen.said, "expires": format_time(seen.expires)[:10]}
            abilities[-1] |= {"value": False, "source": "learned", **dates}
    return {**details, "price": describe_rate(model.rate) if model.rate.is_known else None, "abilities": abilities}


def _join(values: dict[str, Any] | None) -> str:
    return " ".join(f"{name}={value}" for name, value in (values or {}).items())


@models.command("forget")
@click.argument("name", metavar="SPEC")
@options.config
def forget_model(name: str) -> None:
    """Forget what the endpoint of the model SPEC rejected in earlier runs. Needs no key."""
    count = sum(map(forget_rejections, members_of(resolve(name, load().models, require_key=False))))
    click.echo(f"Forgotten: {count} rejection{'' if count == 1 else 's'} of {name}.")


# -- tools


@click.group()
def tools() -> None:
    """The built-in tools, and those behind a word such as file.py."""


@tools.command("list")
@click.argument("words", nargs=-1, metavar="[WORD]...")
@options.as_list
def list_tools(words: tuple[str, ...], as_object: bool) -> None:
    """List the toolkits; with words (calculator, lookup:FILE, file.py, module:name) the tools behind them."""
    if not words:
        toolkits = {name: _describe_toolkit(name) for name in toolkit_names()}
        if as_object:
            print_json([{"toolkit": name, "what": what} for name, what in toolkits.items()])
            return
        width = max(map(len, toolkits))
        for name, what in toolkits.items():
            click.echo(f"{name:<{width}}  {what}".rstrip())
        said = "file.py and module:name are your own tools; `plait tools list WORD` shows each."
        names = ", ".join(f"{PREFIX}{each}" for each in HOSTED_WORDS)
        click.echo(f"\n{said}\nTools that the provider of a model runs: {names}.", err=True)
        return
    found = tools_from(words)
    if as_object:
        print_json([_describe_tool(each) for each in found])
        return
    for number, each in enumerate(found):
        about = _describe_tool(each)
        attributes = f"  [{', '.join(about['attributes'])}]" if about["attributes"] else ""
        click.echo(("\n" if number else "") + clean(f"{each.name} {each.signature.shape}{attributes}"))
        for line in (about["description"], f"Returns: {about['returns']}" if about["returns"] else ""):
            if line:
                click.echo(textwrap.indent(clean(line), "  "))


@tools.command("search")
@click.argument("description")
@options.agent(only=("tools",))
@click.option("-k", "count", type=options.WHOLE, default=3, metavar="N", help="Maximum number of tools (default 3).")
@options.agent(only=("embedder",))
@options.as_list
def search_tools(description: str, tools: tuple[str, ...], count: int, embedder: str | None, as_object: bool) -> None:
    """Search tools by what they do, as a model does: the best first, each with its score.

    It searches the tools of --tools, otherwise those of plait.toml, otherwise all built-in tools.
    """
    from plait.search import ToolIndex

    if not description.strip():
        raise ConfigError("The description is empty.", hint="Say in a few words what the tool should do.")
    defaults = load().run
    among = tools_from(tools or defaults.get("tools") or ("all",))
    index = ToolIndex((each.spec for each in among), embedder or defaults.get("embedder", "local"))
    found = [(among.get(each.tool.name), each.score) for each in index.search(description, count)]
    if as_object:
        print_json([{**_describe_tool(tool), "score": round(score, 4)} for tool, score in found])
        return
    for tool, score in found:
        click.echo(f"{score:.2f}  {clean(lines_of([tool.spec]))}" if tool is not None else "")


def _describe_tool(tool: Any) -> dict[str, Any]:
    spec = tool.spec
    return {
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.parameters,
        "returns": spec.returns,
        "attributes": [name for name in MARKS if getattr(spec, name)],
        "source": tool.source,
    }


def _describe_toolkit(name: str) -> str:
    """Return the first line of its tool's description, or the names of its tools."""
    try:
        found = load_tools(name)
    except PlaitError:  # it needs an argument, such as a file: the function that makes it describes it
        import plait.toolkits

        return _first_line(getattr(plait.toolkits, name, None))
    if len(found) > 6:
        return f"{len(found)} tools: {found[0].name}, {found[1].name} ... {found[-1].name}"
    if len(found) > 1:
        return ", ".join(tool.name for tool in found)
    return found[0].spec.description.partition("\n")[0]


def _first_line(documented: object) -> str:
    return (inspect.getdoc(documented) or "").partition("\n")[0]


# -- prompts


@click.group()
def prompts() -> None:
    """The prompts of the loops: template files that you can replace (`plait run --prompts DIR`)."""


@prompts.command("list")
def list_prompts() -> None:
    """List the prompts, one per line: LOOP/NAME."""
    for loop in sorted([*loop_names(), *UNLISTED]):
        for name in _prompt_texts(loop):
            click.echo(f"{loop}/{name}")


@prompts.command("show")
@click.argument("which", metavar="LOOP[/NAME]")
def show_prompts(which: str) -> None:
    """Print one prompt as it is, or all prompts of a loop, each under its name."""
    loop, _, name = which.partition("/")
    name = name.removesuffix(".j2")
    texts = _prompt_texts(loop)
    if name:
        if name not in texts:
            raise ConfigError(f"The loop {loop} has no prompt {name!r}.", hint=f"It has: {', '.join(texts)}.")
        click.echo(texts[name], nl=False)
        return
    for number, (each, text) in enumerate(texts.items()):
        click.echo(("\n" if number else "") + f"--- {loop}/{each}")
        click.echo(text, nl=not text.endswith("\n"))


@prompts.command("copy")
@click.argument("loop")
@click.argument("folder", metavar="DIR")
@options.flag("--force", help="Overwrite existing files.")
def copy_prompts(loop: str, folder: str, force: bool) -> None:
    """Copy the prompts of a loop to DIR/LOOP. Change them there and use them with `--prompts DIR`."""
    place = Path(folder) / loop
    files = {place / f"{name}.j2": text for name, text in _prompt_texts(loop).items()}
    existing = [path.name for path in files if path.exists()]
    if existing and not force:
        names = ", ".join(existing[:3]) + (", ..." if len(existing) > 3 else "")
        raise ConfigError(f"{place} already has {names}.", hint="Nothing was written; --force overwrites them.")
    try:
        place.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            path.write_bytes(text.encode())
    except OSError as why:
        raise PlaitError(f"{why.filename or place} can't be written: {why.strerror}.") from why
    click.echo(f"{len(files)} prompts in {place}; use them with --prompts {folder}", err=True)


def _prompt_texts(loop: str) -> dict[str, str]:
    """Return a loop's templates by name, built-in or from another package. Raises `ConfigError`."""
    return dict(sorted({**shared_prompts(), **prompts_of(loop), **shipped_prompts(loop)}.items()))


# -- trust


@click.command()
@click.argument("file", default="plait.toml", metavar="[FILE]")
@options.flag("--remove", help="Remove the trust.")
def trust(file: str, remove: bool) -> None:
    """Trust FILE (default ./plait.toml), a configuration or an AGENTS.md, with its current content.

    Without trust, Plait does not read a folder's file that could do harm: one that runs code, sends a key, gives
    instructions, opens other files, or raises a limit, for example. After a change, trust the file again. Exit codes:
    0 done, 2 wrong usage.
    """
    path = Path(file)
    if remove:
        trust_store.distrust(path)
        click.echo(f"Not trusted any more: {path.absolute()}")
        return
    for each in trust_store.trust(path):
        click.echo(f"Allowed: {clean(each)}")
    click.echo(f"Trusted: {path.absolute()}")
