"""Only the journal's timeline reads rows, and the record of a run for its engine.

Other modules get model calls, tool calls, questions and notes from the timeline.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import get_args

import plait
from plait.journal.records import Record

SOURCE = Path(plait.__file__).parent
RECORDS = {each.__name__ for each in get_args(Record)}
WRITERS = {
    "runtime/run_journal.py": "writes the entries and the notes of a run",
    "runtime/runs.py": "writes that a run is resumed, and the answer of the user",
    "runtime/answers.py": "writes the answers of the user",
    "runtime/decisions.py": "writes what guards decide",
    "runtime/child_runs.py": "writes the end of a child run whose entry does not say so yet",
    "runtime/signals.py": "makes the rows of what the loop received in place of a result, and reads them",
    "runtime/engine.py": "writes what the loop received in place of a result, and results of work that is not done",
    "runtime/performers/ask_model.py": "writes replies",
    "runtime/performers/call_tool.py": "writes the questions of calls that the user answers",
}
"""The modules that make records, because they perform effects. They read a trace as a `Timeline` as well."""


@cache
def modules() -> list[tuple[str, ast.Module]]:
    """The modules outside the journal that import from it: no other can name a record."""
    texts = {path.relative_to(SOURCE).as_posix(): path.read_text("utf-8") for path in sorted(SOURCE.rglob("*.py"))}
    return [
        (name, ast.parse(text))
        for name, text in texts.items()
        if not name.startswith("journal/") and "plait.journal" in text
    ]


def imported_records(module: ast.Module) -> set[str]:
    return {
        alias.name
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("plait.journal")
        for alias in node.names
        if alias.name in RECORDS | {"Record", "records"}
    }


def names_in(node: ast.expr) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def matched_records(module: ast.Module) -> set[str]:
    """The record classes that a module tells apart by `case` or `isinstance`."""
    found: set[str] = set()
    for node in ast.walk(module):
        match node:
            case ast.MatchClass(cls=cls):
                found |= names_in(cls)
            case ast.Call(func=ast.Name("isinstance"), args=[_, kinds]):
                found |= names_in(kinds)
    return found & imported_records(module)


def test_only_the_modules_that_write_records_import_them() -> None:
    found = {name for name, module in modules() if imported_records(module)}
    assert found == set(WRITERS)


def test_only_the_record_of_a_run_tells_records_apart_outside_the_journal() -> None:
    """`RunJournal` looks up what is on record of an entry, for the engine: it reads kinds of rows, and no values."""
    assert {name for name, module in modules() if matched_records(module)} == {"runtime/run_journal.py"}
