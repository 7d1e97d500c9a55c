"""`plait memory`: the notes that agents keep across sessions."""

from __future__ import annotations

import click
from msgspec import structs, to_builtins

from plait.cli import options
from plait.cli.output import print_json, print_table
from plait.cli.runs import open_journal
from plait.core.errors import ConfigError
from plait.core.text import one_line
from plait.journal.notes import Memory, Notes
from plait.journal.store import wait_for
from plait.recorded_runs import format_time

user = click.option("--user", default="", metavar="NAME", help="Whose notes: the user of the runs that wrote them.")


@click.group()
def memory() -> None:
    """Look at the notes that agents keep (`--tools memory:NAME`), change and remove them."""


@memory.command("list", short_help="List notes, or export them as JSON.")
@click.argument("name", required=False)
@click.option("--user", metavar="NAME", help="Only the notes of this user.")
@options.as_object
@options.journal
def list_notes(name: str | None, user: str | None, as_object: bool, journal: str | None) -> None:
    """List the notes of the memory NAME, or of all: id, time, memory, user, text. `--json` exports them whole."""
    notes = Notes(open_journal(journal).store)
    memories = [m for m in wait_for(notes.list_memories()) if name in (None, m.name) and user in (None, m.owner)]
    found = [(each, note) for each in memories for note in wait_for(notes.list(each))]
    if as_object:
        print_json([{"memory": each.name, "user": each.owner, **to_builtins(note)} for each, note in found])
        return
    rows = [
        (note.id, format_time(note.at), m.name, m.owner, "(outside) " * note.outside + note.text) for m, note in found
    ]
    print_table(["id", "written", "memory", "user", "note"], [[*map(one_line, each)] for each in rows])


@memory.command("edit", short_help="Change the text of a note.")
@click.argument("name")
@click.argument("note")
@click.argument("text")
@user
@options.journal
def edit(name: str, note: str, text: str, user: str, journal: str | None) -> None:
    """Give the NOTE of the memory NAME another TEXT. The mark of content from outside stays."""
    notes, where = Notes(open_journal(journal).store), Memory(user, name)
    for found in wait_for(notes.list(where, [note])):
        return wait_for(notes.write(where, structs.replace(found, text=text.strip(), call="")))
    raise ConfigError(f"The memory {name!r} has no note {note!r}.", hint="`plait memory list` shows them.")


@memory.command("forget", short_help="Remove notes.")
@click.argument("name")
@click.argument("note", nargs=-1)
@options.flag("--all", help="Remove all notes of the memory.")
@user
@options.journal
def forget(name: str, note: tuple[str, ...], user: str, journal: str | None, **given: bool) -> None:
    """Remove each NOTE of the memory NAME, or all of them."""
    notes, where = Notes(open_journal(journal).store), Memory(user, name)
    if bool(note) is given["all"]:
        raise ConfigError("Name the notes to remove, or give --all.", hint="`plait memory list` shows them.")
    wanted = note or [each.id for each in wait_for(notes.list(where))]
    click.echo(f"Removed: {wait_for(notes.forget(where, wanted))} of {len(wanted)}.", err=True)
