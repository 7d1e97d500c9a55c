"""`plait tables`: four classic tables, drawn again with the models at hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from plait.cli import options, seeding

BASICS = "basics:report"


@click.group(short_help="Draw the four classic tables with the models at hand.")
def tables() -> None:
    """Four classic tables with the models at hand. Every run is on record, and what is on record is not run again.

    Exit codes: 0 the table is whole, 4 the budget or an endpoint ended it early, 130 cancelled, 1 an error, 2 wrong
    usage.
    """


@tables.command("phases", short_help="Time and cost by phase, a row a combination of phase models.")
@seeding.models
@click.option("--model", "single", metavar="PHASE=X,Y", multiple=True, help="Models of one phase in place of --models.")
@click.option("--suite", metavar="SUITE", help=f"The tasks (default {BASICS}).")
@seeding.question
@click.option("--limit", type=options.WHOLE, default=3, metavar="N", help="The first N tasks (default 3).")
@click.option("--hardware", type=options.NUMBER, metavar="USD", help="After how many runs such hardware is paid.")
@seeding.recorded("the rows of `phased`")
@seeding.shared
def phases(
    names: str,
    single: Sequence[str],
    suite: str | None,
    question: str | None,
    limit: int,
    hardware: float | None,
    recorded: str | None,
    as_markdown: bool,
    as_object: bool,
    running: dict[str, Any],
) -> None:
    """Seconds and USD of the loop `phased` by phase, for each combination of the models: each phase with each.

    --hardware compares each row with the first one, as `plait costs` does.
    """
    from plait.cli.comparing import by_phase, several
    from plait.core.errors import UsageError
    from plait.lab.seeds import combined, product_of

    everywhere = several(names)
    chosen = product_of("phased", everywhere, by_phase(single))
    if hardware is not None and recorded is None and all(len(set(each)) < 2 for each in chosen.values()):
        raise UsageError(
            "--hardware compares rows with the first one, and there is only one row.",
            hint="Name a model without the hardware first, then one with it: --models openai:NAME,local.",
        )
    done = seeding.compared(
        seeding.suite_of(suite, question, running["tools"], BASICS),
        running=running,
        strategies="phased",
        models=everywhere[:1],
        phases=chosen,
        limit=limit,
        recorded=recorded,
    )
    table = combined(done, hardware=hardware)
    if as_object:
        seeding.show_object("phases", done, table.json())
    else:
        seeding.show([table.drawn()], as_markdown=as_markdown)
    seeding.ended(done)


@tables.command("rewoo", short_help="Tokens of two loops on the same tasks: react against rewoo.")
@seeding.models
@click.option("--strategies", default="react,rewoo", metavar="A,B", help="The two loops (default react,rewoo).")
@click.option("--suite", metavar="SUITE", help=f"The tasks (default {BASICS}).")
@seeding.question
@click.option("--limit", type=options.WHOLE, default=12, metavar="N", help="The first N tasks (default 12).")
@seeding.recorded("the two loops")
@seeding.shared
def rewoo(
    names: str,
    strategies: str,
    suite: str | None,
    question: str | None,
    limit: int,
    recorded: str | None,
    as_markdown: bool,
    as_object: bool,
    running: dict[str, Any],
) -> None:
    """Calls and tokens of two loops on the same tasks: a row a task, and in all. One table a model."""
    from plait.core.errors import UsageError
    from plait.lab.seeds import working
    from plait.loops import loop_from, parse_loops, word_of

    loops = [word_of(loop_from(word)) for word in parse_loops(strategies)]
    if len(set(loops)) != 2:
        raise UsageError(f"--strategies {strategies} does not name two loops.", hint="Such as react,rewoo.")
    done = seeding.compared(
        seeding.suite_of(suite, question, running["tools"], BASICS),
        running=running,
        strategies=strategies,
        models=names,
        limit=limit,
        recorded=recorded,
    )
    found = working(done, loops)
    if as_object:
        seeding.show_object("rewoo", done, {"models": [each.json() for each in found]})
    else:
        seeding.show([each.drawn() for each in found], as_markdown=as_markdown)
    seeding.ended(done)


@tables.command("tasks", short_help="The six tasks of the world by model, with marks and steps.")
@seeding.models
@seeding.strategy
@click.option("--suite", default="world:six", metavar="SUITE", help="Other tasks than the six (world:variations).")
@click.option("--limit", type=options.WHOLE, metavar="N", help="The first N tasks only.")
@click.option("--why", is_flag=True, help="What was wrong, below the table.")
@seeding.recorded("the cells")
@seeding.shared
def tasks(
    names: str,
    loop: str | None,
    suite: str,
    limit: int | None,
    why: bool,
    recorded: str | None,
    as_markdown: bool,
    as_object: bool,
    running: dict[str, Any],
) -> None:
    """The six tasks of the offline world (A to F) by model: in each cell done, flaw or not done, and the steps.

    The loop is codeact where --strategy names none; several, as codeact,json, have a column each.
    """
    from plait.lab.seeds import doing

    done = seeding.compared(
        suite, running=running, strategies=loop or "codeact", models=names, limit=limit, recorded=recorded
    )
    table = doing(done)
    if as_object:
        seeding.show_object("tasks", done, table.json())
    else:
        seeding.show([table.drawn(why=why)], as_markdown=as_markdown)
    seeding.ended(done)


@tables.command("wire", short_help="The requests and responses of a run, as sent.")
@click.argument("question", required=False)
@seeding.models
@seeding.strategy
@click.option("--run", "run", metavar="RUN", help="Run nothing: tell a run on record, by its id or `last`.")
@click.option("--full", is_flag=True, help="Write out what was sent before as well.")
@seeding.shared
def wire(
    question: str | None,
    names: str,
    loop: str | None,
    run: str | None,
    full: bool,
    as_markdown: bool,
    as_object: bool,
    running: dict[str, Any],
) -> None:
    """Each request of a run with its stop strings, and each response, in order; `=` was sent before, `+` is new.

    QUESTION is run with --strategy (default react) and the --tools; without one the first task of basics is. Byte for
    byte they are in `plait show RUN --wire`.
    """
    from plait.cli.record import found, names_run
    from plait.cli.text import as_json
    from plait.core.errors import UsageError
    from plait.lab.seeds import exchanges, markdown_of, text_of

    if run is not None and question is not None:
        raise UsageError("A question and --run exclude each other.", hint="Choose one.")
    if question is not None and names_run(question, running["journal"]):
        raise UsageError(
            f"{question!r} names a run, and a question is wanted there.",
            hint=f"To show a run on record, write: plait tables wire --run {question}",
        )
    whole, wanted = True, [run] if run is not None else []
    if run is None:
        done = seeding.compared(
            seeding.suite_of(None, question, running["tools"], BASICS),
            running=running,
            strategies=loop or "react",
            models=names,
            limit=1,
        )
        whole, wanted = done.whole, [result.run for result in done.results]
    told = []
    for number, each in enumerate(wanted):
        row, kept = found(each, running["journal"])
        exchanged = exchanges(kept.rows(row.head.run))
        if as_object:
            head = {"run": row.head.run, "question": row.head.question, "strategy": row.head.strategy["name"]}
            told.append({**head, "exchanges": [one.json() for one in exchanged]})
            continue
        say = markdown_of if as_markdown else text_of
        click.echo(("\n" if number else "") + say(row.head.question, exchanged, full=full))
    if as_object:
        click.echo(as_json({"table": "wire", "runs": told}, indent=1))
    if not whole:
        seeding.ended(done)
