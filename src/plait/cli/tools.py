"""`plait tools`: which tools there are, and which fit a description."""

from __future__ import annotations

import textwrap
from typing import Any

import click

from plait.cli import options


@click.group(short_help="List the tools that ship, or those behind a word; search them.")
def tools() -> None:
    """The tools that ship, and those behind a word."""


@tools.command("list")
@click.argument("words", nargs=-1, metavar="[WORD]...")
@click.option("--json", "as_object", is_flag=True, help="Print one JSON list on stdout.")
def list_(words: tuple[str, ...], as_object: bool) -> None:
    """List the toolkits; with words (calculator, lookup:FILE, file.py, module:name) the tools behind them."""
    from plait.cli.text import as_json
    from plait.tools import toolkit_names, tools_from

    if not words:
        names = toolkit_names()
        if as_object:
            click.echo(as_json([{"toolkit": name, "what": _what(name)} for name in names], indent=1))
            return
        width = max(map(len, names))
        for name in names:
            click.echo(f"{name:<{width}}  {_what(name)}".rstrip())
        click.echo("\nfile.py and module:name are tools of yours; `plait tools list WORD` shows each.", err=True)
        return
    found = tools_from(words)
    if as_object:
        click.echo(as_json([_described(each) for each in found], indent=1))
        return
    for number, each in enumerate(found):
        told = _described(each)
        marks = f"  [{', '.join(told['marks'])}]" if told["marks"] else ""
        click.echo(("\n" if number else "") + f"{each.name} {each.signature.shape}{marks}")
        for line in (told["description"], f"Returns: {told['returns']}" if told["returns"] else ""):
            if line:
                click.echo(textwrap.indent(line, "  "))


@tools.command("search")
@click.argument("description")
@options.tools
@click.option("-k", "count", type=options.WHOLE, default=3, metavar="N", help="Tools that are shown (default 3).")
@click.option("--embedder", metavar="SPEC", help="What compares meanings: local (default), openai:NAME, ...")
@click.option("--json", "as_object", is_flag=True, help="Print one JSON list on stdout.")
def search(description: str, tools: tuple[str, ...], count: int, embedder: str | None, as_object: bool) -> None:
    """Search tools by what they do, as a model does it: the best first, each with its score.

    Searched are the tools of --tools, else those of plait.toml, else all that ship.
    """
    from plait.cli.text import as_json, clean
    from plait.config import load
    from plait.core.errors import UsageError
    from plait.search import ToolIndex
    from plait.toolkits.method_search import lines_of
    from plait.tools import tools_from

    if not description.strip():
        raise UsageError("The description is empty.", hint="Say in a few words what the tool is to do.")
    said = load().run
    among = tools_from(tools or said.tools or ("all",))
    index = ToolIndex((each.spec for each in among), embedder or said.embedder or "local")
    found = [(among.get(each.tool.name), each.score) for each in index.search(description, count)]
    if as_object:
        click.echo(as_json([{**_described(tool), "score": round(score, 4)} for tool, score in found], indent=1))
        return
    for tool, score in found:
        click.echo(f"{score:.2f}  {clean(lines_of([tool.spec]))}" if tool is not None else "")


def _described(tool: Any) -> dict[str, Any]:
    spec = tool.spec
    marks = [mark for mark in ("read_only", "idempotent", "destructive") if getattr(spec, mark)]
    return {
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.parameters,
        "returns": spec.returns,
        "marks": marks,
        "source": tool.source,
    }


def _what(name: str) -> str:
    """What a toolkit is for: the first line of its tool's description, its tools' names, or what makes it."""
    import inspect

    from plait.core.errors import PlaitError
    from plait.tools import load

    try:
        found = load(name)
    except PlaitError:  # it must be told more, such as a file: what makes it says what it is for
        import plait.toolkits

        return (inspect.getdoc(getattr(plait.toolkits, name, None)) or "").partition("\n")[0]
    if len(found) > 6:
        return f"{len(found)} tools: {found[0].name}, {found[1].name} ... {found[-1].name}"
    if len(found) > 1:
        return ", ".join(tool.name for tool in found)
    return found[0].spec.description.partition("\n")[0]
