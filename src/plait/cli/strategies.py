"""`plait strategies`: which loops there are, with their options and phases."""

from __future__ import annotations

import inspect
from typing import Any

import click


@click.group(short_help="List the loops with their options and phases.")
def strategies() -> None:
    """The loops."""


@strategies.command("list")
@click.argument("names", nargs=-1)
@click.option("--json", "as_object", is_flag=True, help="Print one JSON list on stdout.")
def list_(names: tuple[str, ...], as_object: bool) -> None:
    """List the loops (all, or those named): what each is, its phases (--model PHASE=SPEC), its options (--set K=V)."""
    from plait.cli.text import as_json

    found = _found(names)
    if as_object:
        click.echo(as_json(found, indent=1))
        return
    for number, each in enumerate(found):
        click.echo(("\n" if number else "") + f"{each['name']}: {each['what']}")
        click.echo(f"  phases: {', '.join(each['phases'])}")
        for option, (kind, default) in each["options"].items():
            click.echo(f"  --set {option}={as_json(default) if not isinstance(default, str) else default}  ({kind})")


def _found(names: tuple[str, ...]) -> list[dict[str, Any]]:
    from plait import loops

    found = []
    for name in names or loops.names():
        loop = loops.make(name)
        defaults = loops.options_of(loop)
        kinds = {option: _kind(option, type(loop)) for option in defaults}
        found.append(
            {
                "name": name,
                "what": (inspect.getdoc(type(loop)) or "").partition("\n")[0],
                "phases": list(loop.phases),
                "options": {option: [kinds[option], default] for option, default in defaults.items()},
            }
        )
    return found


def _kind(option: str, owner: type) -> str:
    """An option's values in words: the choices where there are some, otherwise the type."""
    from typing import Literal, get_args, get_origin, get_type_hints

    try:
        hint = get_type_hints(owner)[option]
    except (NameError, KeyError):
        return "see its documentation"
    if get_origin(hint) is Literal:
        return " | ".join(map(str, get_args(hint)))
    parts = get_args(hint) or (hint,)
    return " | ".join("none" if part is type(None) else getattr(part, "__name__", str(part)) for part in parts)
