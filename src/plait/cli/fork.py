"""`plait fork`: a new run from a step of a recorded one."""

from __future__ import annotations

import click

from plait.cli import options


@click.command(short_help="Begin a new run from a step of a recorded one.")
@click.argument("run")
@click.option(
    "--at",
    type=options.WHOLE,
    metavar="N",
    required=True,
    help="The first step that is made anew.",
)
@options.strategy
@options.settings
@options.models
@options.tools
@options.load_tools
@options.prompts
@options.limits
@options.journal
@options.config
@options.as_object
@options.quiet
def fork(
    run: str,
    at: int,
    strategy: str | None,
    settings: tuple[str, ...],
    models: tuple[str, ...],
    tools: tuple[str, ...],
    load_tools: bool,
    prompts: str | None,
    journal: str | None,
    as_object: bool,
    quiet: bool,
    **limits: float | None,
) -> None:
    """Begin a new run that shares the steps of RUN before step N and makes the rest anew.

    What the flags do not change is as it was. Output and exit codes are those of `plait run`.
    """
    from plait.cli.record import found
    from plait.cli.run import perform
    from plait.cli.settings import agent_again, limits_over

    row, _ = found(run, journal)
    agent = agent_again(
        row.head,
        journal=journal,
        strategy=strategy,
        settings=settings,
        models=models,
        tools=tools,
        load_tools=load_tools,
        prompts=prompts,
        limits=limits_over(row.head, limits),
    )
    perform(
        lambda emit, person: agent.afork(row.head.run, at, emit=emit, person=person),
        as_object=as_object,
        quiet=quiet,
        journal=journal,
    )
