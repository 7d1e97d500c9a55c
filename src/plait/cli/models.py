"""`plait models`: the local models, and which other words name a model."""

from __future__ import annotations

import click

from plait.cli import options


@click.group(short_help="List and fetch the local models.")
def models() -> None:
    """The local models, and which words name others."""


@models.command("list")
@options.config
@click.option("--json", "as_object", is_flag=True, help="Print one JSON list on stdout.")
def list_(as_object: bool) -> None:
    """List the local models (size, licence, whether fetched) and the providers of others."""
    import msgspec

    from plait.cli.table import show_table
    from plait.cli.text import as_json
    from plait.config import load
    from plait.models.fetch import list_catalogue
    from plait.models.resolve import providers

    rows = list_catalogue()
    if as_object:
        click.echo(as_json([{"model": f"local:{row.name}", **msgspec.to_builtins(row)} for row in rows], indent=1))
        return
    show_table(
        ["model", "MB", "licence", "fetched", ""],
        [
            [
                f"local:{row.name}",
                f"{row.bytes / 1e6:,.0f}",
                row.licence,
                "yes" if row.cached else "no",
                "the one that `local` means" if row.default else "",
            ]
            for row in rows
        ],
        right={1},
    )
    click.echo("\nA file of yours: local:/path/to/model.gguf")
    others = ", ".join(name for name in providers(load().models) if name != "local")
    click.echo(f"Other models are named PROVIDER:NAME. Providers: {others}")


@models.command()
@click.argument("name")
def pull(name: str) -> None:
    """Fetch the local model NAME and check its hash; prints the file's path."""
    from plait.models.fetch import model_file

    click.echo(str(model_file(name.removeprefix("local:") if name != "local" else "")))
