"""The commands `plait show`, `plait export` and `plait trajectories`: recorded runs for people, programs and
training."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import click
import msgspec

from plait.cli import options
from plait.cli.commands import exit_with
from plait.cli.costs import phase_table
from plait.cli.main import CRASHED
from plait.cli.output import (
    SHOWN,
    as_json,
    clean_text,
    describe_tree,
    format_seconds,
    format_tokens,
    format_usd,
    print_json,
    print_table,
    write_file,
)
from plait.cli.run_output import how_to_answer, save_run_files, view_for
from plait.cli.runs import find_run
from plait.core import Event, Usage, Waiting
from plait.core import events as ev
from plait.core.errors import ConfigError, JournalError, UnknownRun
from plait.core.text import clean, decode_text, format_count, one_line
from plait.journal.entries import ModelCall
from plait.journal.export import lines, read_digest
from plait.journal.open_questions import read_questions
from plait.journal.records import Row, RunHead, RunRow
from plait.journal.store import Journal, wait_for
from plait.journal.timeline import Timeline
from plait.recorded_runs import describe_run, format_time, read_open_questions
from plait.runtime.costs import spending
from plait.runtime.recorded_events import describe_answer, make_events, recorded_loop
from plait.runtime.run_files import RunFile, read_files_of
from plait.runtime.spent import read_spent, spent_in
from plait.user_files import read_text

_DEPTH = 100
"""Generations of child runs in one JSON object."""


@click.command()
@click.argument("run")
@options.flag("--wire", help="Show each request and response, byte for byte.")
@options.flag("--pretty", help="With --wire: indent JSON bodies, so they are no longer byte for byte.")
@options.flag("--tree", help="Show RUN and its child runs, a line each, with what they used.")
@options.flag("--full", help="Do not shorten long observations.")
@click.option("--html", metavar="FILE", help="Write one HTML file instead, with all steps, requests and responses.")
@options.save_files
@options.journal
@options.as_object
def show(
    run: str,
    wire: bool,
    pretty: bool,
    tree: bool,
    full: bool,
    html: str | None,
    folder: str | None,
    journal: str | None,
    as_object: bool,
) -> None:
    """Show RUN (an id, the beginning of one, or `last`) step by step on stdout."""
    if pretty and not wire:
        raise ConfigError("--pretty is for --wire.", hint="Add --wire.")
    if html is not None and (wire or as_object or tree):
        raise ConfigError("--html shows everything by itself.", hint="Leave out --wire, --tree and --json.")
    if tree and wire:
        raise ConfigError("--tree and --wire show different things.", hint="Give one of them.")
    if tree and full:
        raise ConfigError("--tree shows a line for each run.", hint="Leave out --full.")
    row, store = find_run(run, journal)
    files = wait_for(read_files_of(store.store, row.head.run)) if folder or not (wire or tree or html) else []
    if folder is not None:
        save_run_files(files, folder)
    if tree:
        show_tree(row, store, as_object=as_object)
        return
    if html is not None:
        from plait.view.html_file import LONGEST, render_html

        write_file(html, render_html(row, store, max_text=None if full else LONGEST))
        return
    if wire:
        _show_wire(row.head, store.iter_rows(row.head.run), pretty=pretty, as_object=as_object)
        return
    words = (*row.head.agent_words, *options.journal_words(journal))
    timeline = store.timeline(row.head.run, bodies=False)
    events = make_events(timeline, recorded_loop(row.head), (row.outcome or {}).get("answer"))
    steps = {child.run: child.step for child in timeline.children}
    for asked in wait_for(read_questions(store.store, row.head.run)):
        if asked.run != row.head.run and asked.answer is not None:
            # Before the result of the call that started the child run.
            step = steps.get(asked.run)
            ends = (i for i, each in enumerate(events) if isinstance(each, ev.Observed) and each.step == step)
            at = next(ends, len(events))
            events[at:at] = [ev.Noted(0, asked.kind, asked.text), describe_answer(asked)]
    questions = wait_for(read_open_questions(store.store, row))
    events += [ev.Noted(0, each.kind, each.text) for each in questions if each.asked_by != row.head.run]
    if as_object:
        shown: dict[str, Any] = {"questions": questions, "fork_at": row.head.fork_at or None}
        shown |= {"attachments": row.head.attachments, "files": [each.json() for each in files]}
        shown |= {"phases": [each.json() for each in spending(timeline)], "events": events}
        print_json({**describe_run(row), **msgspec.to_builtins(shown)})
        return
    _show_steps(row, timeline, events, files, full=full)
    for each in questions:
        waiting = Waiting(each.kind, each.text, each.question)
        asker = "" if each.asked_by == each.run else f"Asked by child run {each.asked_by}. "
        click.echo(asker + how_to_answer(each.run, waiting, words)[0])


def show_tree(row: RunRow, store: Journal, *, as_object: bool) -> None:
    """Print a run and its child runs: a line each, or one JSON object with `children`; then what they used together."""
    if as_object:
        print_json({**_tree_as_json(row, store), "tree": wait_for(read_spent(store.store, row)).json()})
        return
    left = [(row, "", "")]
    while left:  # without recursion: a journal from elsewhere may nest runs at any depth
        each, first, rest = left.pop()
        parts, totals = [each.head.run, each.verdict, str(each.head.loop["name"])], each.totals
        if "calls" in totals:
            parts += [format_count(totals["calls"], "call"), format_tokens(msgspec.convert(totals, Usage))]
            parts.append(format_usd(totals["cost_usd"]))
        click.echo(f"{first}{' · '.join(parts)}: {one_line(each.head.question)[:100]}")
        below = [(child, rest + "├─ ", rest + "│  ") for child in store.children(each.head.run)]
        below[-1:] = [(child, rest + "└─ ", rest + "   ") for child, *_ in below[-1:]]
        left += below[::-1]
    spent = wait_for(read_spent(store.store, row))
    parts = [format_count(spent.runs, "run"), format_count(spent.calls, "call"), format_tokens(spent.usage)]
    click.echo(" · ".join(["In all", *parts, format_usd(spent.cost_usd)]))


def _tree_as_json(row: RunRow, store: Journal, depth: int = 0) -> dict[str, Any]:
    if depth > _DEPTH:
        raise ConfigError(f"More than {_DEPTH} runs are nested.", hint="`plait show --tree` without --json shows them.")
    below = [_tree_as_json(child, store, depth + 1) for child in store.children(row.head.run)]
    return {**describe_run(row), "children": below}


def _show_steps(row: RunRow, timeline: Timeline, events: Sequence[Event], files: list[RunFile], *, full: bool) -> None:
    head, outcome, totals = row.head, row.outcome or {}, row.totals
    models = ", ".join(
        f"{phase}={model['spec']}" if phase else str(model["spec"]) for phase, model in head.models.items()
    )
    origin = f" · step {head.fork_at} of {head.parent}" if head.parent else ""
    origin += f" · child of {head.caller.run}" if head.caller is not None else ""
    said = {"session": head.session, "user": head.user, "tags": ", ".join(head.tags)}
    said["metadata"] = as_json(head.metadata) if head.metadata else ""
    origin += "".join(f" · {name} {clean(value)}" for name, value in said.items() if value)
    click.echo(f"run {head.run} · {head.loop['name']} · {clean(models)} · {format_time(row.started)}{origin}")
    click.echo(f"Question: {clean_text(head.question)}")
    if head.attachments:
        click.echo(f"Attached: {clean(', '.join(map(str, head.attachments)))}")
    view = view_for(sys.stdout, limit=None if full else SHOWN)
    for event in events:
        match event:
            case ev.Noted(kind="told", text=text, data={"by": by, "at": float(at)}):
                who = f"{by}, " if by else ""
                event = msgspec.structs.replace(event, text=f"{text} ({who}{format_time(at)})")
        view(event)
    view.close()
    if files:
        click.echo(f"Files: {clean(', '.join(map(str, files)))}")
    if (answer := outcome.get("answer")) is not None:
        click.echo(f"Answer: {clean_text(answer if isinstance(answer, str) else as_json(answer))}")
    why = outcome.get("reason") or (row.grade or {}).get("why")
    parts = [row.verdict + (f": {clean_text(why)}" if why else "")]
    if "steps" in totals:
        usage = msgspec.convert(totals, Usage)
        parts += [format_count(totals["steps"], "step"), format_count(totals["calls"], "call"), format_tokens(usage)]
        parts += [format_seconds(totals["seconds"]), format_usd(totals["cost_usd"])]
    if "tree" in totals:
        parts.append(describe_tree(spent_in(totals)))
    click.echo(" · ".join(parts))
    if len(spent := spending(timeline)) > 1:  # with one phase, the line above says it all
        click.echo()
        print_table(*phase_table(spent))


def _show_wire(head: RunHead, rows: Iterable[Row], *, pretty: bool, as_object: bool) -> None:
    timeline, separator = Timeline(), ""
    for row in rows:  # one body at a time, because those of a long run take much memory
        for moment in timeline.add(row, keep_body=False):
            about: dict[str, Any]
            match moment.change, moment.entry:
                case "asked", ModelCall(last=attempt, step=step, phase=phase, model=model):
                    path, number = head.address(phase, attempt.path, model), attempt.number + 1
                    about = {"type": "request", "step": step, "phase": phase, "model": model, "attempt": number}
                    about |= {"method": "POST", "path": path}
                    title = f"request · step {step} · {phase} · {model} · attempt {number}\nPOST {path}"
                case "responded", ModelCall(last=attempt, step=step) if (seen := attempt.response) is not None:
                    about = {"type": "response", "step": step, "attempt": attempt.number + 1}
                    about |= {"status": seen.status or None, "seconds": seen.seconds, "error": seen.error or None}
                    about["cut"] = seen.cut
                    title = f"response · step {step} · {seen.seconds:.3f} s" + " · cut at a stop" * seen.cut
                    title += f"\n{seen.status or 'no response'}" + (f"  {seen.error}" if seen.error else "")
                case _:
                    continue
            body = row.body or b""
            if as_object:
                print_json({**about, "body": body.decode(errors="backslashreplace")}, indent=None)
            else:
                click.echo(f"{separator}--- {title}")
                separator = "\n"
                if pretty:
                    with suppress(ValueError):  # show a stream, or text that is not JSON, unchanged
                        body = as_json(json.loads(body), indent=2).encode()
                if sys.stdout.isatty():
                    click.echo(clean(body.decode(errors="backslashreplace")))
                    continue
                sys.stdout.flush()
                sys.stdout.buffer.write(body + (b"" if body.endswith(b"\n") else b"\n"))
                sys.stdout.buffer.flush()


@click.command()
@click.argument("run", required=False)
@click.option("--verify", "file", metavar="FILE", help="Check an exported file instead of writing one; - for stdin.")
@click.option("--test", metavar="FILE", help="Write a pytest file instead, which runs with the recorded replies.")
@options.journal
def export(run: str | None, file: str | None, test: str | None, journal: str | None) -> None:
    """Write the record of RUN: one line of JSON for the run, then one for every row, bodies included.

    The last line of an ended run is a SHA-256 digest of all lines before it: keep it elsewhere to prove later that a
    file is unchanged. `--verify FILE` compares a file with its digest, and with what the journal has of that run. Exit
    codes: 0 they agree, 1 they do not, 2 wrong usage.

    `--test FILE` writes RUN as a test: its replies are a script, and its answer and calls are asserted.
    """
    if (run is None) == (file is None):
        raise ConfigError("Name a run to export, or a file to verify.", hint="plait export RUN > run.jsonl")
    if file is not None:
        text = decode_text(sys.stdin.buffer.read()) or "" if file == "-" else read_text(file)
        exported = text.removesuffix("\n").split("\n")
        try:
            said, digest = read_digest(exported)
        except JournalError as why:
            click.echo(f"{file} can't be verified. {clean(str(why))}", err=True)
            exit_with(CRASHED)
        where = f"run {clean(said)}, sha256 {digest}"
        try:
            row, store = find_run(said, journal)
            now = list(lines(row, store.iter_rows(row.head.run), store.contents(row.head.files)))
        except UnknownRun:
            click.echo(f"{file} is whole: {where}. The journal does not have this run.")
            return
        if now != exported:
            click.echo(f"{file} is whole, but the journal has another record: {where}.", err=True)
            exit_with(CRASHED)
        click.echo(f"{file} is whole, and the journal has the same record: {where}.")
        return
    assert run is not None
    row, store = find_run(run, journal)
    if test is not None:
        from plait.testing.recorded_run import write_test

        write_file(test, write_test(row, store.timeline(row.head.run, bodies=False)))
        return
    for line in lines(row, store.iter_rows(row.head.run), store.contents(row.head.files)):
        click.echo(line)


TRAJECTORIES_EPILOG = """\
\b
Examples:
  plait trajectories --comparison last -o train
  plait trajectories --all --loop react --model openai:gpt-5 --approved -o train

A run is good if a comparison graded it as successful, or if a user rated it good (`plait rate`); never if a user
rated it bad. Exit codes: 0 lines were written, 3 no lines to write, 1 an error, 2 wrong usage.
"""


@click.command(epilog=TRAJECTORIES_EPILOG)
@click.argument("runs", metavar="[RUN...]", nargs=-1)
@click.option("--comparison", default="", metavar="NAME", help="The runs of a comparison: its name, or last.")
@options.flag("--all", "every", help="All recorded runs.")
@click.option("-o", "--out", "folder", required=True, metavar="DIR", help="The folder for the files LOOP.PHASE.jsonl.")
@click.option("--loop", default="", metavar="LOOP", help="Only runs of this loop: react, or react(dialect=lines).")
@click.option("--model", default="", metavar="SPEC", help="Only calls of this model.")
@click.option(
    "--min-score", type=options.NumberType(0, 1), metavar="X", help="Only graded runs with at least this score."
)
@options.flag("--approved", help="Only runs that a user rated good.")
@options.filters
@options.flag("--strict", help="Leave out replies that Plait had to repair.")
@options.flag("--force", help="Overwrite existing files.")
@options.journal
@options.as_object
def trajectories(
    runs: Sequence[str], folder: str, force: bool, journal: str | None, as_object: bool, **chosen: Any
) -> None:
    """Write the model calls of good runs to DIR: a file for each loop and phase, a line for each call.

    RUN is an id, the beginning of one, or `last`.
    """
    from plait.lab.trajectories import find_trajectories

    good = find_trajectories(*runs, journal=options.journal_path(journal), **chosen)
    written = good.write(folder, force=force)
    if as_object:
        runs_found = {"runs": [each.run for each in good.runs], "runs_left_out": good.runs_left_out}
        print_json({**msgspec.to_builtins(written), "lines": written.lines, **runs_found})
    else:
        for name, lines in written.files.items():
            click.echo(f"{clean(written.folder)}/{name}  {format_count(lines, 'line')}")
        click.echo(f"{format_count(written.lines, 'line')} of {format_count(len(good.runs), 'good run')}.")
        for what, reasons in (("Runs", good.runs_left_out), ("Calls", written.calls_left_out)):
            if reasons:
                counted = ", ".join(f"{number:,} {why}" for why, number in reasons.items())
                click.echo(f"{what} left out: {counted}.")
    exit_with(0 if written.lines else 3)
