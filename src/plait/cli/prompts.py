"""`plait prompts`: every prompt can be shown, copied out and replaced."""

from __future__ import annotations

from pathlib import Path

import click


@click.group(short_help="List, show and copy the prompts of the loops.")
def prompts() -> None:
    """The prompts of the loops: templates in files that can be replaced (`plait run --prompts DIR`)."""


@prompts.command("list")
def list_() -> None:
    """List the prompts, a line each: STRATEGY/NAME."""
    from plait.loops.registry import ELSEWHERE, names

    for strategy in sorted([*names(), *ELSEWHERE]):
        for name in _texts(strategy):
            click.echo(f"{strategy}/{name}")


@prompts.command()
@click.argument("which", metavar="STRATEGY[/NAME]")
def show(which: str) -> None:
    """Print one prompt as it is, or all of a loop, each under its name."""
    strategy, _, name = which.partition("/")
    texts = _texts(strategy)
    if name:
        click.echo(texts[_known(strategy, name.removesuffix(".j2"), texts)], nl=False)
        return
    for number, (each, text) in enumerate(texts.items()):
        click.echo(("\n" if number else "") + f"--- {strategy}/{each}")
        click.echo(text, nl=not text.endswith("\n"))


@prompts.command()
@click.argument("strategy")
@click.argument("folder", metavar="DIR")
@click.option("--force", is_flag=True, help="Write over files that are there.")
def copy(strategy: str, folder: str, force: bool) -> None:
    """Copy the prompts of a loop to DIR/STRATEGY, to be changed and used with `--prompts DIR`."""
    from plait.core.errors import PlaitError, UsageError

    texts = _texts(strategy)
    place = Path(folder) / strategy
    files = {place / f"{name}.j2": text for name, text in texts.items()}
    there = [path for path in files if path.exists()]
    if there and not force:
        names = ", ".join(path.name for path in there[:3]) + (", ..." if len(there) > 3 else "")
        raise UsageError(f"{place} has {names} already.", hint="Nothing was written; --force writes over them.")
    try:
        place.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            path.write_bytes(text.encode())
    except OSError as why:
        raise PlaitError(f"{why.filename or place} can't be written: {why.strerror}.") from why
    click.echo(f"{len(files)} prompts in {place}; use them with --prompts {folder}", err=True)


def _texts(strategy: str) -> dict[str, str]:
    """A loop's templates by name, ours or those a loop of another package brings. Raises `UsageError`."""
    from plait.loops import prompts_of
    from plait.runtime.prompts import shipped

    return dict(sorted({**prompts_of(strategy), **shipped(strategy)}.items()))


def _known(strategy: str, name: str, texts: dict[str, str]) -> str:
    from plait.core.errors import UsageError

    if name not in texts:
        raise UsageError(f"The loop {strategy} has no prompt {name!r}.", hint=f"It has: {', '.join(texts)}.")
    return name
