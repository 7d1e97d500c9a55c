"""`plait show`: a recorded run told again, or its requests and responses as they were."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from plait.cli import options

if TYPE_CHECKING:
    from plait.journal.records import RunHead


@click.command(short_help="Tell a recorded run again.")
@click.argument("run")
@click.option("--wire", is_flag=True, help="Each request and response, byte for byte.")
@click.option("--pretty", is_flag=True, help="With --wire: JSON bodies indented, so no longer byte for byte.")
@click.option("--full", is_flag=True, help="Long observations whole.")
@click.option("--html", metavar="FILE", help="Write one HTML file instead: all steps and the wire, to look at or mail.")
@options.journal
@options.config
@options.as_object
def show(
    run: str, wire: bool, pretty: bool, full: bool, html: str | None, journal: str | None, as_object: bool
) -> None:
    """Tell RUN (an id, the beginning of one, or `last`) again, step by step, on stdout."""
    from plait.cli.record import found
    from plait.core.errors import UsageError

    if pretty and not wire:
        raise UsageError("--pretty is for --wire.", hint="Add --wire.")
    if html is not None and (wire or as_object):
        raise UsageError("--html tells all of a run by itself.", hint="Leave out --wire and --json.")
    row, kept = found(run, journal)
    if html is not None:
        _html(row, kept.rows(row.head.run), html, full=full)
    elif wire:
        _wire(row.head, kept.iter_rows(row.head.run), pretty=pretty, as_object=as_object)
    elif as_object:
        _object(row, kept.rows(row.head.run))
    else:
        _told(row, kept.rows(row.head.run), full=full)


def _html(row: Any, rows: Any, name: str, *, full: bool) -> None:
    from pathlib import Path

    from plait.core.errors import UsageError
    from plait.window.html_file import LONGEST, render_html

    place = Path(name).expanduser()
    if place.is_dir():
        raise UsageError(f"{name} is a folder.", hint="Name a file in it.")
    if not place.absolute().parent.is_dir():
        raise UsageError(f"{name} can't be written.", hint="Name a file in a folder that is there.")
    text = render_html(row, rows, max_text=None if full else LONGEST)
    try:
        place.write_text(text, encoding="utf-8")
    except OSError as why:
        raise UsageError(f"{name} can't be written: {why.strerror}.") from why
    click.echo(f"Written: {place}", err=True)


def _told(row: Any, rows: Any, *, full: bool) -> None:
    from plait.cli.record import at
    from plait.cli.text import SHOWN, as_json, clean, count, duration, money, one_line, tokens
    from plait.cli.watch import watch_for
    from plait.core import Usage
    from plait.runtime.retell import recorded_loop, retell

    head, outcome, totals = row.head, row.outcome or {}, row.totals
    asked = ", ".join(
        f"{phase}={model['spec']}" if phase else str(model["spec"]) for phase, model in head.models.items()
    )
    origin = f" · step {head.fork_at} of {head.parent}" if head.parent else ""
    origin += f" · session {clean(head.session)}" if head.session else ""
    click.echo(f"run {head.run} · {head.strategy['name']} · {clean(asked)} · {at(row.started)}{origin}")
    click.echo(f"Question: {one_line(head.question)}")
    watch = watch_for(sys.stdout, most=None if full else SHOWN)
    for event in retell(rows, recorded_loop(head)):
        watch(event)
    watch.close()
    if outcome.get("answer") is not None:
        answer = outcome["answer"]
        click.echo(f"Answer: {one_line(answer if isinstance(answer, str) else as_json(answer))}")
    parts = [row.status + (f": {one_line(outcome['reason'])}" if outcome.get("reason") else "")]
    if "steps" in totals:
        usage = Usage(
            totals["input_tokens"],
            totals["output_tokens"],
            totals["cached_tokens"],
            totals.get("estimated", False),
        )
        parts += [count(totals["steps"], "step"), count(totals["calls"], "call"), tokens(usage)]
        parts += [duration(totals["seconds"]), money(totals["cost_usd"])]
    click.echo(" · ".join(parts))
    _phases(rows)


def _phases(rows: Any) -> None:
    """What each phase took, where there is more than one: the line above has said it of a single one."""
    from plait.cli.spent import phase_table
    from plait.cli.table import show_table
    from plait.runtime.spending import spending

    spent = spending(rows)
    if len(spent) > 1:
        heads, lines = phase_table(spent)
        right = {i for i, (_, to_the_right) in enumerate(heads) if to_the_right}
        click.echo()
        show_table([name for name, _ in heads], lines, right=right)


def _object(row: Any, rows: Any) -> None:
    import msgspec

    from plait.cli.record import listed
    from plait.cli.text import as_json
    from plait.runtime.retell import recorded_loop, retell
    from plait.runtime.spending import spending

    told = {
        "fork_at": row.head.fork_at or None,
        "phases": [each.json() for each in spending(rows)],
        "events": msgspec.to_builtins(retell(rows, recorded_loop(row.head))),
    }
    click.echo(as_json({**listed(row), **told}, indent=1))


def _wire(head: RunHead, rows: Iterable[Any], *, pretty: bool, as_object: bool) -> None:
    from plait.cli.text import as_json
    from plait.journal.records import Got, Thinking

    asked: dict[int, Thinking] = {}
    first = True
    for row in rows:
        record = row.record
        if isinstance(record, Thinking):
            asked[record.n] = record
            where = head.address(record)
            told = {
                "type": "request",
                "step": record.step,
                "phase": record.phase,
                "model": record.model,
                "attempt": record.attempt + 1,
                "method": "POST",
                "path": where,
            }
            title = f"--- request · step {record.step} · {record.phase} · {record.model}"
            title += f" · attempt {record.attempt + 1}"
            line = f"POST {where}"
        elif isinstance(record, Got):
            step = asked[record.n].step if record.n in asked else 0
            told = {
                "type": "response",
                "step": step,
                "attempt": record.attempt + 1,
                "status": record.status or None,
                "seconds": record.seconds,
                "error": record.error or None,
                "cut": record.cut,
            }
            title = f"--- response · step {step} · {record.seconds:.3f} s" + (" · cut at a stop" if record.cut else "")
            line = str(record.status or "no response") + (f"  {record.error}" if record.error else "")
        else:
            continue
        body = row.body or b""
        if as_object:
            click.echo(as_json({**told, "body": body.decode(errors="backslashreplace")}))
            continue
        click.echo(("" if first else "\n") + f"{title}\n{line}")
        first = False
        _body(body, pretty=pretty)


def _body(body: bytes, *, pretty: bool) -> None:
    import json

    from plait.cli.text import as_json, clean

    if pretty:
        with suppress(ValueError):  # a stream, or no JSON at all, is shown as it came
            body = as_json(json.loads(body), indent=2).encode()
    if sys.stdout.isatty():
        click.echo(clean(body.decode(errors="backslashreplace")))
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(body + (b"" if body.endswith(b"\n") else b"\n"))
    sys.stdout.buffer.flush()
